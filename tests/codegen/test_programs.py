"""Generated modules do what the program they were generated from means, whatever its schedule, before and after fusion."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import assume, given, note
from hypothesis import strategies as st

from helion_inductor.ir.interpret import interpret
from helion_inductor.ir.schedule_ir import PID_TYPES
from helion_inductor.ir.tile_ir import Scan, TileProgram
from helion_inductor.ir.verify import verify_program
from helion_inductor.ir.verify_schedule import verify_schedules
from helion_inductor.pipeline import collapse
from helion_inductor.scheduling.fuse_vertical import fuse_vertical
from helion_inductor.scheduling.in_place import grant_in_place
from helion_inductor.scheduling.inline import inline_producers
from helion_inductor.scheduling.persistent import Settings, build_schedules
from helion_inductor.scheduling.tile_sizes import TileTarget
from tests.codegen.generated import of_few_tiles, one_phase_each, run_module
from tests.schedule_strategies import schedules
from tests.strategies import Case, cases

WORKERS = st.sampled_from([1, 2, 3, 5, 132])
BLOCKS = st.sampled_from([None, 1, 2, 8, 32])
TARGETS = st.sampled_from([TileTarget(4), TileTarget(1, interpreter=True)])


@given(cases(max_points=500), st.data())
def test_any_legal_schedule(case: Case, data: st.DataObject) -> None:
    """Pid types, tile sizes, loops or whole rows, 32- or 64-bit offsets, nests together or apart, few or many
    workers, tiles in any order, equal and weighted shares."""
    kernels = data.draw(schedules(case.program, case.sizes))
    kernels = of_few_tiles(one_phase_each(kernels), case, case.program)
    workers = data.draw(WORKERS)
    note("\n".join(map(str, kernels)))
    case.check(run_module(case, case.program, kernels, workers, data.draw(st.sampled_from([1, 2, 3, 8]))))


def passes(program: TileProgram) -> dict[str, TileProgram]:
    """The program after each pass of the pipeline."""
    inlined = inline_producers(program)
    fused, _ = fuse_vertical(inlined)
    collapsed = collapse(fused)
    stages = {"inline": inlined, "fuse": fused, "collapse": collapsed}
    taken: set[str] = set()
    for out in [b for b in collapsed.buffers if b.kind == "out"]:
        same = [b.name for b in collapsed.buffers if b.kind == "in" and b.name not in taken and b.dtype == out.dtype
                and b.shape == out.shape and b.stride == out.stride]  # fmt: skip
        if same:
            taken.add(same[0])
            collapsed, _ = grant_in_place(collapsed, [(out.name, same[0])])
    return stages | {"in place": collapsed}


@given(cases(updates=False))
def test_passes_keep_the_meaning(case: Case) -> None:
    for name, program in passes(case.program).items():
        note(f"after {name}:\n{program}")
        verify_program(program)
        case.check(case.outputs(interpret(program, case.inputs(), case.sizes)))


@given(cases(updates=False, max_points=500), TARGETS, st.sampled_from(PID_TYPES), BLOCKS, BLOCKS, WORKERS, st.integers(1, 4))
def test_the_pipeline(case: Case, target: TileTarget, pid_type: str, x: int | None, r: int | None, workers: int, multiplier: int) -> None:
    """Fused programs on the compiler's own schedules, with tile sizes of its choice and of others'."""
    program = passes(case.program)["in place"]
    for nest in program.nests:  # lowering refuses a scan whose length is not known
        assume(all(a.extent.is_Integer for a in nest.reduce) or not any(isinstance(s, Scan) for s in nest.body))
    blocks = {name: block for name, block in (("x", x), ("r", r)) if block}
    kernels, _ = build_schedules(program, target, Settings(pid_type, multiplier, block_sizes=blocks))
    verify_schedules(kernels, program)
    note(f"{program}\n" + "\n".join(map(str, kernels)))
    case.check(run_module(case, program, of_few_tiles(kernels, case, program), workers))


@given(cases(updates=False, scatter=False, max_points=300), st.sampled_from(PID_TYPES), WORKERS)
def test_pid_types_agree_to_the_bit(case: Case, pid_type: str, workers: int) -> None:
    """Who computes a tile does not matter: the same tiles give the same bits."""
    program = passes(case.program)["collapse"]
    assume(not program.sizes or not any(isinstance(s, Scan) for n in program.nests for s in n.body))
    kernels = of_few_tiles(build_schedules(program, TileTarget(4))[0], case, program)
    want = run_module(case, program, kernels, 1)
    got = run_module(case, program, [replace(k, pid_type=pid_type) for k in kernels], workers)
    assert all(torch.equal(got[name], want[name]) for name in want), f"{case!r}"
