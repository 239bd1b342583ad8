"""Outputs take the memory of products that nobody else reads, as Inductor's own loops do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import helion_inductor

OPTIONS = {"regions": "all", "on_error": "raise"}


def activation(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.gelu(x @ w) @ w


def in_another_shape(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.linear(x[None], w).relu().view(2, -1, 16) * 1.5


def normalised(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x @ w + x, (16,)) @ w


def two_products(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (F.silu(x @ w) * (x @ w.t())) @ w


def read_again_outside(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x @ w
    return y.relu() @ w, y @ w


def returned(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x @ w
    return y, y.relu() @ w


def view_returned(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x @ w
    return y[2:], y.relu() @ w


def read_elsewhere(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x @ w
    return (y + y.flip(0)) @ w


def read_in_two_passes(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x @ w
    return torch.cat([y.relu(), y.softmax(-1)]) @ w


def reused(fn: Callable[..., Any], *args: torch.Tensor) -> int:
    report = helion_inductor.explain(fn, *args, options=OPTIONS)
    return sum(d.granted for r in report.regions for d in r.compiled.in_place)


@pytest.mark.parametrize(
    ("fn", "outputs"),
    [(activation, 1), (in_another_shape, 1), (normalised, 1), (two_products, 1), (read_again_outside, 0), (returned, 0),
     (view_returned, 0), (read_elsewhere, 0), (read_in_two_passes, 0)],
)  # fmt: skip
def test_memory_is_reused_where_nobody_can_tell(device: str, fn: Callable[..., Any], outputs: int) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(6, 16, device=device), torch.randn(16, 16, device=device)
    assert reused(fn, x, w) == outputs
    compiled = torch.compile(fn, backend="helion", options=OPTIONS)
    for _ in range(2):
        torch.testing.assert_close(compiled(x, w), fn(x, w), rtol=1e-4, atol=1e-5)


def test_gradients(device: str) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(6, 16, device=device), torch.randn(16, 16, device=device, requires_grad=True)
    (expected,) = torch.autograd.grad(normalised(x, w).square().sum(), w)
    (actual,) = torch.autograd.grad(torch.compile(normalised, backend="helion", options=OPTIONS)(x, w).square().sum(), w)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_the_wrapper_copies_nothing(device: str) -> None:
    """The call is handed the product itself: two tensors are made, one for each product."""
    from torch._inductor.utils import run_and_get_code

    x, w = torch.randn(6, 16, device=device), torch.randn(16, 16, device=device)
    _, code = run_and_get_code(torch.compile(activation, backend="helion", options=OPTIONS), x, w)
    assert "call_region" in code[0] and code[0].count("= empty_strided_") == 2 and "copy" not in code[0].split("def call", 1)[1]
