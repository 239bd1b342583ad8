"""At which level nests run: beside others of their form where that is predicted to gain, and always after what they wait for."""

from __future__ import annotations

import pytest
from hypothesis import given

from helion_inductor.ir.parser import parse_program
from helion_inductor.ir.tile_ir import TileProgram
from helion_inductor.ir.verify_schedule import verify_schedules
from helion_inductor.scheduling.dependence import predecessors, storage
from helion_inductor.scheduling.persistent import build_schedules
from helion_inductor.scheduling.placement import MARGIN_US, Positions, place
from helion_inductor.scheduling.tile_sizes import TileTarget
from tests.strategies import Case, cases

SUM = """\
  nest @{name} parallel(p0: 256) reduce(r0: 1024)
    %0: f32 = load {source}[1024 * p0 + r0]
    %1: f32 = mul(%0, %0)
    %2: f32 = reduce sum(r0) %1
    store {target}[p0] %2
"""
SCALE = """\
  nest @{name} parallel(p0: 256, p1: 1024)
    %0: f32 = load {source}[1024 * p0 + p1]
    %1: f32 = load {by}[p0]
    %2: f32 = rsqrt(%1)
    %3: f32 = mul(%0, %2)
    store {target}[1024 * p0 + p1] %3
"""


def towers(*, scale_is_temp: bool = False) -> TileProgram:
    """A sum of squares that scales x0, and the same scaling of x1 by a vector that is given."""
    kind = "temp" if scale_is_temp else "out"
    nests = [
        SUM.format(name="n0", source="x0", target="t0"),
        SCALE.format(name="n1", source="x1", by="v1", target="y1"),
        SCALE.format(name="n2", source="x0", by="t0", target="y0"),
    ]
    given = "in x0: f32[256, 1024], in x1: f32[256, 1024], in v1: f32[256], out y0: f32[256, 1024], out y1: f32[256, 1024]"
    return parse_program(f"program @p({given}, {kind} t0: f32[256])\n{''.join(nests)}")


def tasks(program: TileProgram) -> list[list[tuple[str, ...]]]:
    kernels, _ = build_schedules(program, TileTarget(132))
    verify_schedules(kernels, program)
    return [[t.nests() for t in k.tasks()] for k in kernels]


@pytest.mark.parametrize("temp", [True, False])
def test_a_nest_waits_for_others_of_its_form(temp: bool) -> None:
    found = tasks(towers(scale_is_temp=temp))
    assert [len(k) for k in found] == [1, 1]
    assert found[0] == [("n0",)] and set(found[1][0]) == {"n1", "n2"}


def test_the_decision_is_told() -> None:
    _, decisions = build_schedules(towers(), TileTarget(132))
    told = [str(d) for d in decisions]
    assert any("n1 at level 1, not 0: yes: predicted " in t and "us less" in t for t in told), told


def test_nests_stay_where_nothing_is_gained() -> None:
    level, decisions = place(towers(), lambda at: float(len(at)))
    assert level == [0, 0, 1]
    assert [d.moved for d in decisions] == [False]


def test_a_gain_within_the_margin_is_not_taken() -> None:
    def level_us(at: Positions) -> float:
        return 0.0 if at == (1, 2) else 0.5 * MARGIN_US if 1 in at else 0.0

    assert place(towers(), level_us)[0] == [0, 0, 1]


def chain(last: int) -> TileProgram:
    """@n1 reads t0 and could wait for @n5, which has its form; meanwhile t3, of ``last`` elements, is made and read."""
    return parse_program(f"""\
program @p(in x0: f32[64], out y0: f32[64], out y1: f32[64], temp t0: f32[64], temp t1: f32[64], temp t2: f32[64], temp t3: f32[{last}])
  nest @n0 parallel(p0: 64)
    %0: f32 = load x0[p0]
    store t0[p0] %0
  nest @n1 parallel(p0: 64)
    %0: f32 = load t0[p0]
    store y1[p0] %0
  nest @n2 parallel(p0: 64)
    %0: f32 = load x0[p0]
    %1: f32 = exp(%0)
    store t1[p0] %1
  nest @n3 parallel(p0: 64)
    %0: f32 = load t1[p0]
    %1: f32 = sin(%0)
    store t2[p0] %1
  nest @n4 parallel(p0: {last})
    %0: f32 = load t2[0]
    %1: f32 = tanh(%0)
    store t3[p0] %1
  nest @n5 parallel(p0: 64)
    %0: f32 = load t3[p0]
    store y0[p0] %0
""")


@pytest.mark.parametrize(("last", "moves"), [(64, True), (1024, False)])
def test_no_more_memory_is_held_for_it(last: int, moves: bool) -> None:
    level, decisions = place(chain(last), lambda at: 0.0 if at == (1, 5) else float(len(at)))
    assert level == [0, 3 if moves else 1, 0, 1, 2, 3]
    assert moves or any("more memory" in d.reason for d in decisions)


def test_large_programs_are_not_searched_without_end() -> None:
    """Every trial predicts kernels anew; those of a program of thousands of nests would take minutes."""
    pairs = "".join(
        SUM.format(name=f"n{2 * k}", source="x0", target=f"t{k}") + SCALE.format(name=f"n{2 * k + 1}", source="x0", by="v1", target=f"y{k}")
        for k in range(400)
    )
    outputs = ", ".join(f"out t{k}: f32[256], out y{k}: f32[256, 1024]" for k in range(400))
    last = SCALE.format(name="n800", source="x0", by="t0", target="z0")
    program = parse_program(f"program @p(in x0: f32[256, 1024], in v1: f32[256], {outputs}, out z0: f32[256, 1024])\n{pairs}{last}")
    asked: list[int] = []

    def level_us(at: Positions) -> float:
        asked.append(len(at))
        return float(len(at))

    _, decisions = place(program, level_us)
    assert len(decisions) == 1 and sum(asked) <= 4 * 800 + 4


@given(cases(updates=True, max_points=200))
def test_every_nest_runs_after_what_it_waits_for(case: Case) -> None:
    program = case.program
    level, _ = place(program, lambda at: float(len({str(program.nests[p].parallel) for p in at})))
    for position, before in enumerate(predecessors(program.nests, storage(program))):
        assert all(level[b] < level[position] for b in before)
