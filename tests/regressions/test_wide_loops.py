"""Loop variables are plain ints under the interpreter; offsets of 64 bits are made of them all the same."""

from __future__ import annotations

import pytest

from helion_inductor.ir.parser import parse_program, parse_schedule
from tests.codegen.generated import run_module
from tests.strategies import Case

PROGRAM = parse_program("""program @p(in x: f32[3, 9], out y: f32[3])
  nest @n parallel(p0: 3) reduce(r0: 9)
    %0: f32 = load x[9 * p0 + r0]
    %1: f32 = reduce sum(r0) %0
    store y[p0] %1
""")


@pytest.mark.parametrize("pid_type", ["flat", "persistent_blocked", "persistent_interleaved"])
@pytest.mark.parametrize("width", ["  wide", "  narrow", ""])
def test_wide(pid_type: str, width: str) -> None:
    kernel = parse_schedule(f"""kernel @k  pid_type={pid_type}  num_warps=1  num_stages=1
  phase 0
    task nest @n pid_map row_major(x) tile(x[p0]=2 parallel, r[r0]=4 looped){width}
""")
    case = Case(PROGRAM, {}, {"x": 1}, {"y": 1e-5}, 0)
    case.check(run_module(case, PROGRAM, [kernel], 1))
