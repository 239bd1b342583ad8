"""Peak memory of a call beside Inductor's: counted over the allocations that compiled graphs really make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from helion_inductor.runtime.launcher import Launcher

MOST = 1.05
"""Of Inductor's peak for the same graph."""


def peak_bytes(call: Callable[[], Any]) -> int:
    """The most bytes that a call on CPU tensors holds of what it allocated, its results included.

    Launches are left out, for Triton's interpreter copies what a kernel is given.
    """
    with mock.patch.object(Launcher, "__call__", lambda *args, **constexprs: None):
        call()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            kept = call()
    events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]  # type: ignore[union-attr]
    del kept
    held = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def peaks(fn: Callable[..., Any], *args: Any, **options: Any) -> tuple[int, int]:
    """Of Inductor and of this backend."""
    with torch.no_grad():
        theirs = torch.compile(fn, dynamic=False)
        ours = torch.compile(_copy_of(fn), backend="helion", options={"on_error": "raise", **options}, dynamic=False)
        torch.testing.assert_close(ours(*args), fn(*args), rtol=1e-3, atol=1e-3)
        return peak_bytes(lambda: theirs(*args)), peak_bytes(lambda: ours(*args))


def _copy_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        return fn(*args)

    return call


def layers(x: Tensor, at: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Regions between products; a loop of the first region stands last in the graph."""
    for w in weights:
        x = torch.tanh(torch.softmax(x, -1) @ w) * 0.5
    return x, torch.sin(at) + 1


def test_outputs_of_later_regions_are_not_allocated_with_the_first() -> None:
    weights = [torch.randn(128, 128) for _ in range(4)]
    theirs, ours = peaks(layers, torch.randn(128, 128), torch.randn(128), weights)
    assert theirs >= 2 * 4 * 128 * 128, "the count has seen the tensors between two products"
    assert ours <= MOST * theirs
