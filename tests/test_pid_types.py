"""Independent loops share one kernel, whatever the pid type, and are computed to the same bits as in a flat one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from helion_inductor.backend import helion
from helion_inductor.ir.pid_map import PidMap
from helion_inductor.report import GraphReport, KernelReport

PID_TYPES = ("flat", "persistent_blocked", "persistent_interleaved")
LOOPS = {
    "flat": "pid_shared = tl.program_id(0)",
    "persistent_blocked": "for pid_shared in tl.range(first, last):",
    "persistent_interleaved": "for pid_shared in tl.range(tl.program_id(0), end1, tl.num_programs(0)):",
}


def two_loops(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tanh(x) * 2, torch.softmax(y, -1)


def arguments(rows: int, device: str) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    return [torch.randn(shape, generator=generator).to(device) for shape in ((97 * rows,), (rows, 33))]


def compiled(pid_type: str, dynamic: bool, device: str, rows: tuple[int, ...], fn: Callable[..., Any] = two_loops,
             **more: Any) -> tuple[list[tuple[torch.Tensor, ...]], KernelReport]:  # fmt: skip
    """Results for each number of rows, and the only kernel."""
    graphs: list[GraphReport] = []
    options = {"regions": "all", "on_error": "raise", "pid_type": pid_type, "block_sizes": {"x": 16},
               "inductor": {"force_disable_caches": True}} | more  # fmt: skip
    torch.compiler.reset()
    run = torch.compile(fn, backend="helion", options=options, dynamic=dynamic)
    with helion.recording(graphs.append):
        results = [run(*arguments(n, device)) for n in rows]
    (graph,) = graphs
    (region,) = graph.regions
    (kernel,) = region.kernels()
    return results, kernel


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("pid_type", PID_TYPES)
def test_one_kernel_of_two_loops(pid_type: str, dynamic: bool, device: str) -> None:
    rows = (5, 8) if dynamic else (5,)
    results, kernel = compiled(pid_type, dynamic, device, rows)
    assert kernel.schedule.pid_type == pid_type and len(kernel.schedule.tasks()) == 2
    body = kernel.source[kernel.source.index(f"def {kernel.name}(") :]
    lines = [line.strip() for line in body.split("_launch_k0 =")[0].splitlines()]
    assert LOOPS[pid_type] in lines
    first, other = lines.index("if pid_shared < end0:"), lines.index("else:")
    assert first < other
    calls = [lines[first + 1], lines[other + 1]]
    assert calls[0].split("(")[0] != calls[1].split("(")[0]
    assert "(pid_shared," in calls[0] and "(pid_shared - end0," in calls[1]
    flat, _ = compiled("flat", dynamic, device, rows)
    for n, got, want in zip(rows, results, flat, strict=True):
        assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))
        torch.testing.assert_close(got, two_loops(*arguments(n, device)))


@pytest.mark.parametrize("pid_type", PID_TYPES[1:])
def test_workers_are_counted_at_the_launch(pid_type: str, device: str) -> None:
    _, kernel = compiled(pid_type, False, device, (5,))
    assert "get_num_sm(" in kernel.source and "tl.num_programs(0)" in kernel.source


def transposing_loops(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A transpose beside a row-wise loop and a plain one."""
    return (y.t() * 2).contiguous(), torch.softmax(y, -1), torch.tanh(x)


NUMBERINGS: list[dict[str, Any]] = [
    {}, {"loop_order": ["x", "y"]}, {"l2_grouping": 3}, {"loop_order": ["x", "y"], "l2_grouping": 2}, {"l2_grouping": 1000},
    {"xcd_remap": True},
]  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("pid_type", PID_TYPES)
def test_numberings_of_transposing_tiles_agree_to_the_bit(pid_type: str, dynamic: bool, device: str) -> None:
    rows = (50, 61) if dynamic else (50,)
    blocks = {"x": 16, "y": 8}
    flat, _ = compiled("flat", dynamic, device, rows, transposing_loops, block_sizes=blocks)
    for more in NUMBERINGS:
        results, kernel = compiled(pid_type, dynamic, device, rows, transposing_loops, block_sizes=blocks, **more)
        pid_map = next(t.pid_map for t in kernel.schedule.tasks() if len(t.parallel()) == 2)
        assert pid_map.order == tuple(more.get("loop_order", ())) and pid_map.group == more.get("l2_grouping", 1)
        assert all(t.pid_map == PidMap() for t in kernel.schedule.tasks() if len(t.parallel()) == 1), "one dimension has one order"
        assert kernel.schedule.xcd_remap is ("xcd_remap" in more) is ("XCDS=get_num_xcd(" in kernel.source)
        for got, want in zip(results, flat, strict=True):
            assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True)), (pid_type, more)
    for n, got in zip(rows, flat, strict=True):
        torch.testing.assert_close(got, transposing_loops(*arguments(n, device)))


def test_shares_are_weighed_where_tiles_differ_in_cost(device: str) -> None:
    def alike(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(x) + 1, y.relu() * 3

    _, kernel = compiled("persistent_blocked", False, device, (5,))
    weights = {t.nest: t.weight for t in kernel.schedule.tasks()}
    assert len(set(weights.values())) == 2 and f"shares of equal weight, {', '.join(map(str, weights.values()))} a tile" in kernel.source
    _, kernel = compiled("persistent_blocked", False, device, (5,), alike)
    assert {t.weight for t in kernel.schedule.tasks()} == {1} and "_first(" not in kernel.source
    assert "for pid_shared in tl.range(first, tl.minimum(first + share, end1)):" in kernel.source
