"""Families in generated modules: any members, selected either way, in any pid type, do what each nest means by itself."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given, note
from hypothesis import strategies as st

from helion_inductor.ir.schedule_ir import PID_TYPES, SELECTS, KernelSchedule, Phase
from helion_inductor.ir.verify import verify_program
from helion_inductor.ir.verify_schedule import verify_schedules
from helion_inductor.pipeline import collapse
from helion_inductor.scheduling.families import form_families
from helion_inductor.scheduling.persistent import Settings, build_schedules
from helion_inductor.scheduling.tile_sizes import TileTarget, choose_task
from tests.codegen.generated import of_few_tiles, run_module
from tests.family_strategies import member_cases
from tests.strategies import Case

WORKERS = st.sampled_from([1, 2, 5, 132])
BLOCKS = st.sampled_from([None, 1, 4, 16])
WIDTHS = st.sampled_from([False, False, None, True])
TARGETS = st.sampled_from([TileTarget(4), TileTarget(1, interpreter=True)])


def scheduled(case: Case, target: TileTarget, pid_type: str, blocks: dict[str, int], select: str,
              wide: bool | None) -> list[KernelSchedule]:  # fmt: skip
    tasks = form_families([choose_task(n, case.program, target, blocks, 64) for n in case.program.nests], case.program)
    tasks = tuple(replace(t, select=select if t.members else t.select, wide=wide) for t in tasks)
    return [KernelSchedule("k0", pid_type, 4, 2, (Phase(tasks),))]


@given(member_cases(), TARGETS, st.sampled_from(PID_TYPES), BLOCKS, BLOCKS, st.sampled_from(SELECTS), WIDTHS, WORKERS, st.booleans())
def test_families_compute_their_members(case: Case, target: TileTarget, pid_type: str, x: int | None, r: int | None, select: str,
                                        wide: bool | None, workers: int, collapsed: bool) -> None:  # fmt: skip
    if collapsed:
        case = replace(case, program=collapse(case.program))
    verify_program(case.program)
    blocks = {name: block for name, block in (("x", x), ("r", r)) if block}
    kernels = scheduled(case, target, pid_type, blocks, select, wide)
    assume(any(t.members for t in kernels[0].tasks()))
    kernels = list(of_few_tiles(kernels, case, case.program))
    verify_schedules(kernels, case.program)
    note("\n".join(map(str, kernels)))
    case.check(run_module(case, case.program, kernels, workers))


@given(member_cases(), TARGETS, st.sampled_from(PID_TYPES), WORKERS)
def test_the_compilers_own_schedules(case: Case, target: TileTarget, pid_type: str, workers: int) -> None:
    program = collapse(case.program)
    kernels, _ = build_schedules(program, target, Settings(pid_type))
    verify_schedules(kernels, program)
    note("\n".join(map(str, kernels)))
    case.check(run_module(case, program, of_few_tiles(kernels, case, program), workers))
