"""Reductions that are split mean what they meant whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, note
from hypothesis import strategies as st

from helion_inductor.device import H200
from helion_inductor.ir.interpret import interpret
from helion_inductor.ir.parser import parse_program
from helion_inductor.ir.tile_ir import LoopNest, TileProgram
from helion_inductor.ir.verify import verify_program
from helion_inductor.ir.verify_schedule import verify_schedules
from helion_inductor.pipeline import collapse
from helion_inductor.scheduling.fuse_vertical import fuse_vertical
from helion_inductor.scheduling.inline import inline_producers
from helion_inductor.scheduling.persistent import build_schedules
from helion_inductor.scheduling.split_choice import SplitDecision, choose_cut, split_reductions
from helion_inductor.scheduling.tile_sizes import TileTarget
from tests.codegen.generated import of_few_tiles, run_module
from tests.strategies import Case, cases

INTERPRETER, DEVICE = TileTarget(1, interpreter=True), TileTarget(H200.sm_count)
CHUNKS = st.sampled_from([2, 3, 4, 5, 8, 16])


def split(program: TileProgram, chunk: int) -> tuple[TileProgram, tuple[SplitDecision, ...]]:
    result, decisions = split_reductions(program, INTERPRETER, chunk=chunk)
    verify_program(result)
    return result, decisions


@given(cases(scatter=False), CHUNKS, st.booleans())
def test_a_split_program_means_the_same(case: Case, chunk: int, fused: bool) -> None:
    """Every reduction of random programs that can be cut, at ragged and exact chunks, static and dynamic, fused or not."""
    program = collapse(fuse_vertical(inline_producers(case.program))[0]) if fused else case.program
    result, decisions = split(program, chunk)
    assume(any(d.split for d in decisions))
    note(str(result))
    case.check(case.outputs(interpret(result, case.inputs(), case.sizes)))


@given(cases(max_points=500, scatter=False), CHUNKS)
def test_kernels_of_a_split_program(case: Case, chunk: int) -> None:
    program, decisions = split(collapse(fuse_vertical(inline_producers(case.program))[0]), chunk)
    assume(any(d.split for d in decisions))
    kernels, _ = build_schedules(program, INTERPRETER)
    verify_schedules(kernels, program)
    note("\n".join(map(str, (program, *kernels))))
    case.check(run_module(case, program, of_few_tiles(kernels, case, program), 3))
