"""Dynamic shapes: right for every size, with no recompilation and no guard that Dynamo and AOTAutograd have not without us."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters

OPTIONS = {"regions": "all", "on_error": "raise", "inductor": {"force_disable_caches": True}}
SIZES = (0, 1, 2, 31, 32, 33, 128, 1000)


def rows(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.softmax(x, -1) * w, x.sum(0), F.layer_norm(x, (x.shape[-1],)), x.amax() if x.numel() else x.sum()


def joined(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    n = x.shape[0]
    both = torch.cat([x, x * 2, x[: n // 2]])
    return both.flip(0), F.pad(x, (1, 2)).cumsum(1), both.reshape(-1)[n:] + 1, torch.arange(n, device=x.device) * n


def updated(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x[1:].mul_(2)
    x.add_(w)
    return x.t().contiguous(), (x > x.mean()).sum(1)


def gathered(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    at = torch.arange(x.shape[0] - 1, -1, -1, device=x.device)
    return x[at], x.index_add(0, at, x), x.gather(0, at[:, None].expand_as(x))


FUNCTIONS = [rows, joined, updated, gathered]


def _calls(fn: Callable[..., Any], run: Any, sizes: tuple[int, ...], device: str, mark: bool = False) -> int:
    """Compare with eager for every number of rows, in this order; how many graphs were compiled."""
    for n in sizes:
        x, w = torch.randn(n, 5, generator=torch.Generator().manual_seed(n)).to(device), torch.ones(5, device=device)
        if mark:
            torch._dynamo.mark_dynamic(x, 0)
        other = x.clone()
        actual, expected = run(x, w), fn(other, w)
        torch.testing.assert_close((actual, x), (expected, other), rtol=1e-4, atol=1e-4, msg=lambda text, n=n: f"{n} rows: {text}")
        assert [t.stride() for t in actual] == [t.stride() for t in expected] or n < 2
    return counters["stats"]["unique_graphs"]


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("sizes", [SIZES, (129, 1, 5, 0, 128)], ids=["growing", "any order"])
def test_sizes_across_boundaries(fn: Callable[..., Any], sizes: tuple[int, ...], device: str) -> None:
    graphs = []
    for backend, options in (("helion", {"options": OPTIONS}), ("aot_eager", {})):
        torch.compiler.reset()
        counters.clear()
        graphs.append(_calls(fn, torch.compile(fn, backend=backend, dynamic=True, **options), sizes, device))
    assert graphs[0] <= graphs[1]


@pytest.mark.parametrize("fn", [rows, gathered], ids=lambda f: f.__name__)
def test_a_marked_dimension_is_compiled_once(fn: Callable[..., Any], device: str) -> None:
    """``mark_dynamic`` raises if a guard pins the size that was marked: none is added."""
    counters.clear()
    assert _calls(fn, torch.compile(fn, backend="helion", options=OPTIONS), (7, 2, 64, 65, 300), device, mark=True) == 1


def test_a_size_that_changes_becomes_dynamic(device: str) -> None:
    counters.clear()
    assert _calls(rows, torch.compile(rows, backend="helion", options=OPTIONS), (7, 12, 300, 33), device) == 2
