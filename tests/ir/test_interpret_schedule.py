"""Schedules mean what their program means, whoever computes which tile, and in which order."""

from __future__ import annotations

import torch
from hypothesis import given, note
from hypothesis import strategies as st

from helion_inductor.ir.interpret_schedule import interpret_schedules, phase_tiles
from helion_inductor.ir.parser import parse_program, parse_schedule
from tests.schedule_strategies import schedules
from tests.strategies import Case, cases


@given(cases(max_points=300), st.data(), st.integers(1, 7), st.integers(1, 3), st.none() | st.integers(0, 99))
def test_any_schedule_means_its_program(case: Case, data: st.DataObject, programs: int, xcds: int, shuffle: int | None) -> None:
    kernels = data.draw(schedules(case.program, case.sizes, blocks=(4, 16, 64)))
    note("\n".join(map(str, kernels)))
    env = interpret_schedules(kernels, case.program, case.inputs(), case.sizes, programs=programs, xcds=xcds, shuffle=shuffle)
    case.check(case.outputs(env))


PROGRAM = parse_program("""program @p(in x: f32[5, 7], out y: f32[7, 5], out z: f32[4])
  nest @t parallel(i: 7, j: 5)
    %0: f32 = load x[7 * j + i]
    store y[5 * i + j] %0
  nest @z parallel(k: 4)
    %0: f32 = const 1.0
    store z[k] %0
""")
KERNEL = """kernel @k  pid_type={pid_type}  num_warps=1  num_stages=1{remap}
  phase 0
    task nest @t pid_map grouped_l2(b, a, group=2) tile(a[i]=4 parallel, b[j]=2 parallel)  weight=3
    task nest @z pid_map row_major(a) tile(a[k]=1 parallel)"""


def order(pid_type: str, programs: int, *, xcds: int = 1, remap: str = "") -> list[tuple[str, int]]:
    kernel = parse_schedule(KERNEL.format(pid_type=pid_type, remap=remap))
    nests = {n.name: n for n in PROGRAM.nests}
    return [(name, pid) for _, name, pid in phase_tiles(kernel, kernel.phases[0], nests, {}, programs=programs, xcds=xcds)]


def test_who_runs_what() -> None:
    tiles = [("t", k) for k in range(6)] + [("z", k) for k in range(4)]
    assert order("flat", 3) == order("persistent_blocked", 3) == tiles
    assert order("persistent_interleaved", 3) == tiles[::3] + tiles[1::3] + tiles[2::3]
    # Chiplet 0 has programs 0 and 2, which work as 0 and 1; chiplet 1 has program 1, which works as 2.
    assert order("persistent_interleaved", 3, xcds=2, remap="  xcd_remap") == tiles[::3] + tiles[2::3] + tiles[1::3]


def test_a_transposing_tile() -> None:
    kernel = parse_schedule(KERNEL.format(pid_type="persistent_blocked", remap=""))
    x = torch.arange(35.0).reshape(5, 7)
    env = interpret_schedules([kernel], PROGRAM, {"x": x}, {}, programs=3, shuffle=1)
    assert torch.equal(env["y"], x.t()) and torch.equal(env["z"], torch.ones(4))
