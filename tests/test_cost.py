"""The cost model ranks what was measured as it was measured, and never promises what cannot be."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from helion_inductor.device import H200, INTERPRETER
from helion_inductor.ir.parser import parse_program
from helion_inductor.ir.schedule_ir import KernelSchedule, Phase
from helion_inductor.ir.tile_ir import Scan
from helion_inductor.scheduling import work
from helion_inductor.scheduling.cost import inductor_us, kernel_us, nest_us
from helion_inductor.scheduling.device_model import H200_MODEL, device_model
from helion_inductor.scheduling.tile_sizes import TileTarget, choose_task
from tests.measured_programs import MEASURED, NORM, POINTWISE, SUM, Measured, family, independent, kernel, separate, tasks_of, together
from tests.schedule_strategies import schedules
from tests.strategies import Case, cases

BY_TITLE = pytest.mark.parametrize("row", MEASURED, ids=lambda row: row.title)


def total(schedules: tuple[KernelSchedule, ...], row: Measured) -> float:
    return sum(kernel_us(s, row.program) for s in schedules)


def within(factor: float, predicted: float, measured: float) -> bool:
    return measured / factor <= predicted <= measured * factor


@BY_TITLE
def test_absolute_times_are_within_a_factor_of_two(row: Measured) -> None:
    assert within(2, inductor_us(row.program), row.inductor)
    if row.joined is not None:
        assert within(2, total(together(row.program), row), row.joined)
    if row.apart is not None:
        assert within(2, total(separate(row.program), row), row.apart)


def test_rows_are_ranked_as_measured() -> None:
    def order(times: list[float]) -> list[int]:
        return sorted(range(len(times)), key=times.__getitem__)

    assert order([inductor_us(r.program) for r in MEASURED]) == order([r.inductor for r in MEASURED])
    joined = [r for r in MEASURED if r.joined is not None]
    assert order([total(together(r.program), r) for r in joined]) == order([r.joined or 0 for r in joined])


@BY_TITLE
def test_one_kernel_beats_many_where_it_was_measured_to(row: Measured) -> None:
    apart, joined, theirs = total(separate(row.program), row), total(together(row.program), row), inductor_us(row.program)
    if row.joined is not None:
        assert joined < 0.5 * theirs and joined < 0.5 * apart
    else:  # rows of 4096, which Inductor reads again in every pass
        assert abs(joined - apart) < 0.05 * apart and apart < 0.95 * theirs


def test_rows_that_both_hold_in_registers_take_both_as_long() -> None:
    program = independent(NORM, [(8192, 1024)] * 4)
    assert abs(sum(kernel_us(k, program) for k in separate(program)) - inductor_us(program)) < 0.01 * inductor_us(program)


def test_one_body_beats_a_branch_each() -> None:
    """A hand-written kernel for 64 equal shapes with one body took 17.1 us, 64 branches 26.0."""
    program = MEASURED[0].program
    (one,), (many,) = family(program), together(program)
    assert kernel_us(one, program) < kernel_us(many, program)
    assert within(2, kernel_us(one, program), 17.1)


@pytest.mark.parametrize("rows", [1, 8, 64])
def test_few_long_rows_are_slow_on_few_programs_and_not_with_inductor(rows: int) -> None:
    program = independent(SUM, [(rows, 1 << 20)])
    (ours,) = separate(program)
    assert kernel_us(ours, program) > 100
    at_full_rate = 1e6 * rows * (4 << 20) / H200_MODEL.bandwidth
    assert inductor_us(program) < at_full_rate + 10


def test_columns_of_few_programs_are_split_too() -> None:
    program = parse_program("""\
program @p(in x: f32[65536, 64], out y: f32[64])
  nest @n parallel(p0: 64) reduce(r0: 65536)
    %0: f32 = load x[64 * r0 + p0]
    %1: f32 = reduce sum(r0) %0
    store y[p0] %1
""")
    (ours,) = separate(program)
    assert inductor_us(program) < 0.1 * kernel_us(ours, program)


def test_an_indirect_load_waits_for_its_index() -> None:
    text = """\
program @p(in i: i64[1024], in t: f32[1024], out y: f32[1024])
  nest @n parallel(p0: 1024)
    %0: i64 = load i[p0]
    %1: f32 = load t[{}]
    store y[p0] %1
"""
    direct, indirect = (parse_program(text.format(at)) for at in ("p0", "%0"))
    times = [nest_us(p.nests[0], tasks_of(p)[0], p) for p in (direct, indirect)]
    assert times[1] - times[0] == pytest.approx(H200_MODEL.memory_us)


def test_foreach_loops_share_inductors_kernels() -> None:
    program = independent(POINTWISE, [(4, 64)] * 200)
    nests = tuple(replace(n, origins=("_foreach_tanh", "_foreach_mul")) for n in program.nests)
    launches = math.ceil(200 * 3 / 250)
    assert inductor_us(replace(program, nests=nests)) < launches * H200_MODEL.launch_us + 10 < inductor_us(program)


def test_phases_follow_one_another_behind_barriers() -> None:
    program = independent(NORM, [(64, 512)] * 2)
    a, b = tasks_of(program)
    one, other = kernel_us(kernel(program, [a]), program), kernel_us(kernel(program, [b]), program)
    phased = replace(kernel(program, [a, b]), phases=(Phase((a,)), Phase((b,))))
    expected = one + other - H200_MODEL.launch_us + H200_MODEL.barrier_us
    assert kernel_us(phased, program) == pytest.approx(expected)


def test_a_small_persistent_grid_takes_turns() -> None:
    program = independent(POINTWISE, [(4096, 1024)])
    (flat,) = separate(program)
    few = replace(flat, pid_type="persistent_blocked", sm_multiplier=1)
    assert kernel_us(few, program) > kernel_us(replace(few, sm_multiplier=8), program) >= kernel_us(flat, program)


def test_another_device_is_scaled_by_what_it_reports() -> None:
    half = device_model(replace(H200, memory_bytes_per_s=H200.memory_bytes_per_s / 2, sm_count=66))
    assert half.bandwidth == pytest.approx(H200_MODEL.bandwidth / 2) and half.slots == pytest.approx(H200_MODEL.slots / 2)
    silent = device_model(replace(H200, memory_bytes_per_s=0.0, clock_hz=0.0))
    assert (silent.bandwidth, silent.slots) == (H200_MODEL.bandwidth, H200_MODEL.slots)
    assert device_model(INTERPRETER) == H200_MODEL
    program = MEASURED[-1].program
    (first, *_) = separate(program)
    assert kernel_us(first, program, half) > 1.8 * kernel_us(first, program)


def has_dynamic_scan(case: Case) -> bool:
    """Scans over dynamic axes have no tiles: they stay with Inductor."""
    nests = case.program.nests
    return any(isinstance(s, Scan) for n in nests for s in n.body if any(not a.extent.is_Integer for a in n.reduce))


SIZED = """\
program @p(in x: f32[M, K], in w: f32[K], out y: f32[M, K]) sizes(M>=1~{m}, K>=1~{k})
""" + NORM.format(k="", rows="M", width="K").replace("const K.0", "const 64.0")  # fmt: skip


@given(st.integers(1, 1 << 14), st.integers(1, 1 << 14), st.integers(0, 1 << 14), st.integers(0, 1 << 14))
def test_more_work_in_equal_blocks_is_never_faster(m: int, k: int, more_rows: int, longer: int) -> None:
    small, large = (parse_program(SIZED.format(m=a, k=b)) for a, b in ((m, k), (m + more_rows, k + longer)))
    task = choose_task(small.nests[0], small, TileTarget(132), {}, 1)
    times = [nest_us(p.nests[0], task, p, num_warps=4) for p in (small, large)]
    assert times[0] <= times[1] * (1 + 1e-9)


@settings(max_examples=60)
@given(cases())
def test_a_joined_kernel_of_tiny_loops_saves_the_launches(case: Case) -> None:
    """Never slower than its parts one after another, less the launches that it saves."""
    program = case.program
    assume(len(program.nests) > 1 and not has_dynamic_scan(case))
    tasks = tasks_of(program)
    parts = [kernel_us(kernel(program, [t]), program) for t in tasks]
    assert kernel_us(kernel(program, tasks), program) <= sum(parts) - (len(tasks) - 1) * H200_MODEL.launch_us + 1e-9


@settings(max_examples=60)
@given(cases().flatmap(lambda c: st.tuples(st.just(c), schedules(c.program, c.sizes))))
def test_any_kernel_has_a_time(drawn: tuple[Case, tuple[KernelSchedule, ...]]) -> None:
    case, kernels = drawn
    assume(not has_dynamic_scan(case))
    times = [kernel_us(k, case.program) for k in kernels]
    assert all(math.isfinite(t) and t >= H200_MODEL.launch_us for t in times)
    assert inductor_us(case.program) >= H200_MODEL.launch_us * (len(case.program.nests) > 0)


def test_members_of_equal_sizes_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A family of 300 costs the compiler as much as its members differ, and its work is still that of all."""
    program = independent(POINTWISE, [(64, 1024)] * 20 + [(32, 512)] * 10)
    (schedule,) = family(program)
    (task,) = schedule.tasks()
    nests = {n.name: n for n in program.nests}
    alone = [work.nest_work(nests[n], task, program, 4, H200_MODEL) for n in task.nests()]
    counted: list[str] = []
    original = work.nest_work
    monkeypatch.setattr(work, "nest_work", lambda nest, *more: counted.append(nest.name) or original(nest, *more))
    together = work.task_work(task, program, 4, H200_MODEL)
    assert len(task.nests()) == 30 and len(counted) == 2
    assert (together.programs, together.bytes, together.slots) == tuple(
        sum(getattr(w, what) for w in alone) for what in ("programs", "bytes", "slots")
    )
    assert work.task_work(task, program, 4, H200_MODEL) is together and len(counted) == 2
