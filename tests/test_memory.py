"""Peak memory of a call beside Inductor's: counted over the allocations that compiled graphs really make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
import torch._inductor.config as inductor_config
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from helion_inductor import Report, explain
from helion_inductor.device import H200
from helion_inductor.fx_peak import GRANULE, Step, peak_bytes, tensor_bytes
from helion_inductor.runtime.launcher import Launcher
from helion_inductor.scheduling.tile_sizes import TileTarget

MOST = 1.05
"""Of Inductor's peak for the same graph."""


def counted_bytes(call: Callable[[], Any]) -> int:
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
    """Of Inductor and of this backend, compiled anew."""
    torch.compiler.reset()
    with torch.no_grad(), inductor_config.patch(force_disable_caches=True):
        theirs = torch.compile(fn, dynamic=False)
        ours = torch.compile(_copy_of(fn), backend="helion", options={"on_error": "raise", **options}, dynamic=False)
        return counted_bytes(lambda: theirs(*args)), counted_bytes(lambda: ours(*args))


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


def test_and_the_results_are_right() -> None:
    weights = [torch.randn(16, 16) for _ in range(3)]
    args = (torch.randn(16, 16), torch.randn(16), weights)
    torch.testing.assert_close(torch.compile(layers, backend="helion", options={"on_error": "raise"})(*args), layers(*args))


# ---- what is left to Inductor for the sake of memory
def as_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regions of CPU graphs are chosen and scheduled as for an H200; their kernels are not run."""
    monkeypatch.setattr("helion_inductor.backend.tile_target", lambda device: TileTarget(H200.sm_count))
    monkeypatch.setattr("helion_inductor.backend.regrouped", lambda region, device, model: region)


def one_after_another(xs: list[Tensor], weights: list[Tensor]) -> Tensor:
    """Inductor holds one of the squashed inputs at a time, a region all of them."""
    total = torch.zeros(1)
    for x, w in zip(xs, weights, strict=True):
        total = total + (torch.tanh(x) @ w).sum()
    return total


def stored_at_the_start(ids: Tensor, table: Tensor, more: list[Tensor], weights: list[Tensor]) -> tuple[Tensor, ...]:
    """Inductor looks the words up again wherever they are read; a region that does so at the start holds them to the end."""
    words = table[ids]
    x = F.layer_norm(words, words.shape[-1:])
    for w in weights:
        x = x @ w @ w.T
    return (words * x, *(torch.sin(m) for m in more))


def words() -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:
    return torch.randint(0, 50, (256,)), torch.randn(50, 128), [torch.randn(64) for _ in range(8)], [torch.randn(128, 256)]


def matrices(count: int) -> tuple[list[Tensor], list[Tensor]]:
    return [torch.randn(256, 512) for _ in range(count)], [torch.randn(512, 16) for _ in range(count)]


@pytest.mark.parametrize(("fn", "args"), [(one_after_another, matrices(6)), (stored_at_the_start, words())])
def test_no_more_than_a_twentieth_above_inductor(monkeypatch: pytest.MonkeyPatch, fn: Any, args: Any) -> None:
    as_for_a_gpu(monkeypatch)
    theirs, ours = peaks(fn, *args)
    assert ours <= MOST * theirs
    monkeypatch.setattr("helion_inductor.fx_memory_rule.MOST", 100.0)
    _, without = peaks(fn, *args)
    assert without > MOST * theirs, "the rule has something to do"


def report_of(fn: Callable[..., Any], *args: Any) -> Report:
    with torch.no_grad():
        return explain(fn, *args)


def test_the_report_says_what_was_left_and_why() -> None:
    report = report_of(one_after_another, *matrices(6))
    left = [r for r in report.graphs[0].refusals if r.code == "peak-memory"]
    assert sum(r.node.startswith("tanh") for r in left) >= 5 and "estimated peak of" in left[0].detail and "without it" in left[0].detail
    taken = report_of(lambda xs: [torch.tanh(x) for x in xs], matrices(6)[0])
    assert taken.regions, "results that leave the graph are held either way"
    assert "estimated peak of 3.15 MB against 3.15 MB of Inductor's" in str(taken)


def test_all_regions_are_taken_where_the_option_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        report = explain(one_after_another, *matrices(6), options={"regions": "all"})
    assert not [r for r in report.graphs[0].refusals if r.code == "peak-memory"]


def test_what_stands_alone_leaves_a_region_and_the_rest_stays() -> None:
    """Eight small loops, and large ones whose results are read one after another."""

    def both(small: list[Tensor], xs: list[Tensor], weights: list[Tensor]) -> tuple[Tensor, ...]:
        return (*(torch.sin(s) * 2 for s in small), one_after_another(xs, weights))

    report = report_of(both, [torch.randn(64) for _ in range(8)], *matrices(6))
    left = {r.node.split("_")[0] for r in report.graphs[0].refusals if r.code == "peak-memory"}
    assert left == {"tanh"}
    assert len(report.regions) == 1 and {n.split("_")[0] for n in report.regions[0].nodes} >= {"sin", "mul"}


# ---- the count itself
def step(at: int, reads: str, **makes: int) -> Step:
    return Step(at, frozenset(reads.split()), makes)


def test_storages_live_from_the_step_that_makes_them_to_the_last_that_reads_them() -> None:
    chain = [step(0, "given", a=10), step(1, "a", b=20), step(2, "b", c=5)]
    assert peak_bytes(chain, ()) == 30
    assert peak_bytes(chain, ("a",)) == 35
    assert peak_bytes([*chain, step(3, "a c", d=1)], ()) == 35
    assert peak_bytes([replace(chain[2], scratch=50), *chain[:2]], ()) == 75


def test_a_step_waits_for_what_it_reads() -> None:
    late = [step(0, "b", c=1), step(1, "a", b=2), step(2, "", a=4)]
    assert peak_bytes(late, ()) == 6


def test_what_is_made_in_parts_is_held_once_and_read_when_all_are_there() -> None:
    parts = [step(0, "", a=10), step(1, "a", b=1), step(2, "", a=10)]
    assert peak_bytes(parts, ()) == 11
    assert peak_bytes([*parts, step(3, "b", c=5)], ("a",)) == 16
    report = report_of(lambda xs: torch.cat([torch.sin(x) for x in xs]), [torch.randn(8192) for _ in range(20)])
    assert "estimated peak of 0.66 MB against 0.66 MB of Inductor's" in str(report)


def test_bytes_of_tensors_are_those_of_their_storage() -> None:
    assert tensor_bytes(torch.empty(4, 100), {}) == 4 * GRANULE
    assert tensor_bytes(torch.empty(1, 1000).expand(50, 1000), {}) == 8 * GRANULE
    assert tensor_bytes(torch.empty(0, 5), {}) == 0
