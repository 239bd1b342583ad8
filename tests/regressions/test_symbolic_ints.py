"""An int argument becomes a size symbol under dynamic shapes; unlike a size it may be negative."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

OPTIONS = {"regions": "all", "on_error": "raise"}


@pytest.mark.parametrize("n", [-5, -7, 8])
@pytest.mark.parametrize("fn", [lambda x, n: x + n // 3, lambda x, n: x * n + n % 5], ids=["floordiv", "mod"])
def test_negative_int_argument(fn: Callable[..., torch.Tensor], n: int, device: str) -> None:
    x = torch.arange(12, device=device).reshape(3, 4)
    compiled = torch.compile(fn, backend="helion", options=OPTIONS, dynamic=True)
    assert torch.equal(compiled(x, n), fn(x, n))


def test_int_tensor_without_dimensions(device: str) -> None:
    """Its value gets a symbol whose range is open at both ends."""
    x = torch.tensor(-3, device=device)
    assert torch.compile(torch.add, backend="helion", options=OPTIONS)(x, x).item() == -6


@pytest.mark.parametrize("n", [3, 1, 70000, -70000])
def test_products_of_sizes_are_values_of_64_bits(n: int, device: str) -> None:
    """70000 squared passes 32 bits though neither factor nor any tensor does."""

    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        return x + n * n + (n * n + 1) // 3

    x = torch.arange(4, device=device)
    compiled = torch.compile(fn, backend="helion", options=OPTIONS, dynamic=True)
    assert torch.equal(compiled(x, 5), fn(x, 5)) and torch.equal(compiled(x, n), fn(x, n))
