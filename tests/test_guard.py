"""What is taken from Inductor, what shares a kernel, what registers are expected; and that reports tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from helion_inductor import Report, explain
from helion_inductor.ir.schedule_ir import KernelSchedule, Task
from helion_inductor.ir.tile_ir import TileProgram
from helion_inductor.runtime.precompile import Resources, compile_offline_many
from helion_inductor.scheduling.guard import Prediction, pays, predict, worth_joining
from helion_inductor.scheduling.resources import MAX_REGISTERS, resources_of
from helion_inductor.scheduling.tile_sizes import TileTarget, choose_task
from tests.measured_programs import MEASURED, NORM, POINTWISE, SUM, Measured, family, independent, kernel, separate, tasks_of, together


def region_pays(program: TileProgram, schedules: Sequence[KernelSchedule], *, captured: bool) -> tuple[bool, str]:
    return pays(predict(program, schedules), captured=captured)


BOTH = pytest.mark.parametrize("captured", [False, True])
ALL = {"regions": "all"}


# ---- regions
@BOTH
@pytest.mark.parametrize("row", MEASURED, ids=lambda row: row.title)
def test_what_was_measured_to_be_faster_is_taken(row: Measured, captured: bool) -> None:
    schedules = together(row.program) if row.joined is not None else separate(row.program)
    assert (row.joined or row.apart or 0) < row.inductor
    taken, reason = region_pays(row.program, schedules, captured=captured)
    assert taken, reason
    assert "predicted " in reason and " us against " in reason


@BOTH
@pytest.mark.parametrize(("body", "width"), [(POINTWISE, 4096), (NORM, 1024)])
def test_large_loops_are_left_though_they_share_a_launch(body: str, width: int, captured: bool) -> None:
    program = independent(body, [(16384, width)] * 8)
    taken, reason = region_pays(program, family(program), captured=captured)
    assert not taken and "fill the device" in reason


def test_as_many_launches_must_gain_more() -> None:
    assert pays(prediction(90, 101, 5, 5, launches=1), captured=False)[0]
    assert not pays(prediction(95, 101, 5, 5, launches=1), captured=False)[0]
    assert not pays(prediction(95, 101, 5, 500, launches=1), captured=False)[0], "the host's time is that of one launch too"


@BOTH
def test_a_large_loop_does_not_keep_many_small_ones_out(captured: bool) -> None:
    program = independent(POINTWISE, [*[(64, 1024)] * 60, (8192, 4096)])
    *small, large = tasks_of(program)
    taken, reason = region_pays(program, (kernel(program, small), kernel(program, [large], "k1")), captured=captured)
    assert taken, reason


@BOTH
@pytest.mark.parametrize("rows", [1, 8])
def test_few_long_rows_are_left(rows: int, captured: bool) -> None:
    program = independent(SUM, [(rows, 1 << 20)] * 16)
    taken, reason = region_pays(program, together(program), captured=captured)
    assert not taken, reason


def test_one_small_loop_is_worth_it_only_where_the_host_does_not_count() -> None:
    program = independent(NORM, [(128, 768)])
    assert region_pays(program, separate(program), captured=True)[0]
    taken, reason = region_pays(program, separate(program), captured=False)
    assert not taken and "saves no launch of 1" in reason


def test_loops_in_kernels_of_their_own_are_left_unless_captured() -> None:
    program = independent(NORM, [(128, 768)] * 4)
    taken, reason = region_pays(program, separate(program), captured=False)
    assert not taken and "saves no launch of 4" in reason


def prediction(region: float, inductor: float, host: float, inductor_host: float, filling_us: float = 0.0,
               launches: int = 4) -> Prediction:  # fmt: skip
    return Prediction((region,), inductor, host, inductor_host, launches, filling_us)


def test_the_slower_of_device_and_host_decides() -> None:
    assert not pays(prediction(100, 101, 5, 60), captured=False)[0]
    assert pays(prediction(100, 110, 5, 60), captured=False)[0]
    assert pays(prediction(50, 49, 5, 60), captured=False)[0]
    assert not pays(prediction(50, 49, 5, 60), captured=True)[0]
    assert not pays(prediction(100, 104, 5, 500, filling_us=90), captured=True)[0]
    assert pays(prediction(100, 105, 5, 5, filling_us=90), captured=True)[0]
    taken, reason = pays(prediction(12.31, 30.06, 5, 20), captured=True)
    assert taken and reason == "predicted 12.3 us against 30.1 us on the device, with 3 launches of 4 saved"


# ---- shared kernels
def test_small_loops_share_a_kernel_and_large_ones_do_not() -> None:
    program = independent(POINTWISE, [(64, 1024)] * 8 + [(16384, 4096)] * 3)
    tasks = tasks_of(program)
    groups, decisions = worth_joining(tasks, program, first_kernel=5)
    assert groups == (tasks[:8], *((t,) for t in tasks[8:]))
    apart = [d for d in decisions if not d.joined]
    assert apart and all("each filling the device" in d.reason and d.kernel >= 5 for d in apart)
    assert str(apart[0]).startswith(f"k{apart[0].kernel} + {apart[0].nests[0]}: apart: predicted ")


def test_registers_of_one_do_not_lower_the_occupancy_of_sixty() -> None:
    program = independent(POINTWISE, [(256, 1024)] * 60 + [(4096, 16)])
    *small, other = tasks_of(program)
    huge = replace(other, dims=tuple(replace(d, block=16384) for d in other.dims))
    groups, decisions = worth_joining([huge, *small], program)
    assert [len(g) for g in groups] == [1, 60] and groups[0] == (huge,)
    (refused,) = [d for d in decisions if not d.joined]
    assert (refused.kernel, refused.nests) == (1, ("n60",)) and "255 registers a thread" in refused.reason
    modest = worth_joining([other, *small], program)[0]
    assert [len(g) for g in modest] == [61]


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from([1, 16, 256, 8192]), st.sampled_from([8, 128, 1024, 4096])), min_size=1, max_size=8),
       st.sampled_from([POINTWISE, NORM]))  # fmt: skip
def test_grouping_is_never_slower_than_launching_apart(shapes: list[tuple[int, int]], body: str) -> None:
    program = independent(body, shapes)
    tasks = tasks_of(program)
    groups, _ = worth_joining(tasks, program)
    joined = predict(program, [kernel(program, g) for g in groups]).region
    assert joined <= predict(program, separate(program)).region + 1e-6
    assert [sorted(g, key=tasks.index) for g in groups] == [list(g) for g in groups]


# ---- registers
def wide(*xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return sum(xs), xs[0] * xs[-1]


COMPILED: dict[str, tuple[Callable[..., object], tuple[torch.Tensor, ...]]] = {
    "softmax": (lambda x: torch.softmax(x, -1), (torch.randn(512, 1000),)),
    "looped": (lambda x: torch.softmax(x, -1), (torch.randn(512, 8192),)),
    "norm": (lambda x: F.gelu(F.layer_norm(x, x.shape[-1:])) + x, (torch.randn(512, 4096),)),
    "wide": (wide, tuple(torch.randn(100_000) for _ in range(10))),
}


def test_registers_are_estimated_within_a_factor_of_two(tmp_path: Path) -> None:
    requests, estimates = [], []
    for name, (fn, arguments) in COMPILED.items():
        (one,) = explain(fn, *arguments, options=ALL).kernels
        path = tmp_path / f"{name}.py"
        path.write_text(one.source)
        requests.append(one.request(str(path)))
        estimates.append(one.estimate().registers)
    for name, estimate, result in zip(COMPILED, estimates, compile_offline_many(requests), strict=True):
        assert isinstance(result, Resources), f"{name}: {result}"
        assert result.registers / 2 <= estimate <= result.registers * 2, f"{name}: {estimate} for {result.registers}"


def blocked(task: Task, block: int) -> Task:
    return replace(task, dims=tuple(replace(d, block=block) if d.kind == "parallel" else d for d in task.dims))


@given(st.sampled_from([POINTWISE, NORM, SUM]), st.integers(0, 8), st.integers(0, 3), st.sampled_from([1, 2, 4, 8]))
def test_larger_blocks_never_take_fewer_registers(body: str, log: int, more: int, warps: int) -> None:
    program = independent(body, [(512, 2048)])
    (task,) = tasks_of(program)
    small, large = (resources_of(replace(kernel(program, [blocked(task, 1 << n)]), num_warps=warps), program) for n in (log, log + more))
    assert small.registers <= large.registers <= MAX_REGISTERS
    assert small.resource_class <= large.resource_class


@given(st.lists(st.sampled_from([8, 100, 1024, 2048]), min_size=1, max_size=4))
def test_the_hungriest_task_sets_the_registers(widths: list[int]) -> None:
    program: TileProgram = independent(NORM, [(64, w) for w in widths])
    (joined,) = together(program)
    alone = [replace(k, num_warps=joined.num_warps) for k in separate(program)]
    assert resources_of(joined, program).registers == max(resources_of(k, program).registers for k in alone)


def test_a_looped_reduction_keeps_less_than_a_persistent_one() -> None:
    program = independent(NORM, [(512, 4096)])
    nest = program.nests[0]

    def registers(r: int) -> int:
        schedule: KernelSchedule = replace(kernel(program, [choose_task(nest, program, TileTarget(132), {"r": r}, 1)]), num_warps=4)
        return resources_of(schedule, program).registers

    assert registers(512) < registers(4096)


# ---- reports
def layers(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.softmax(x, -1), torch.tanh(y) + 1


def test_reports_show_times_of_kernels_regions_and_inductor() -> None:
    report: Report = explain(layers, torch.randn(64, 128), torch.randn(4000))
    (region,) = report.regions
    assert region.taken and region.prediction is not None
    (one,) = region.kernels()
    assert one.predicted_us == region.prediction.region and 0.92 < one.predicted_us < region.prediction.inductor
    text = str(report)
    assert f"taken: {region.reason}" in text and str(region.prediction) in text
    assert f"{one.name}: 2 tasks, flat, predicted {one.predicted_us:.1f} us, about {one.estimate()}" in text


def test_reports_give_times_and_reasons_of_what_is_left() -> None:
    report = explain(torch.tanh, torch.randn(64, 128))
    (region,) = report.graphs[0].regions
    assert not region.taken and region.prediction is not None
    assert f"left: {region.reason}" in str(report) and "saves no launch" in region.reason
    assert explain(torch.tanh, torch.randn(64, 128), options=ALL).regions[0].reason == "regions='all'"
