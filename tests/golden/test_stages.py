"""What each stage prints for small functions, and the number of loop nests they come down to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helion_inductor.codegen.triton_host import region_source
from helion_inductor.ir.parser import parse_program, parse_schedule
from helion_inductor.scheduling.fuse_vertical import FusionDecision
from helion_inductor.scheduling.tile_sizes import reach
from tests.golden.functions import FUNCTIONS, region, report

STAGES = {"lower": "lowered program", "in place": "fused program", "schedule": "schedule", "generate": "generated module"}


def stages(name: str) -> str:
    """The stages of the region as one text. The module repeats program and schedule at its top; that is left out."""
    compiled = region(name)
    parts = []
    for record in compiled.stages:
        if record.name in STAGES:
            text = record.text if record.name != "generate" else record.text.split('"""\n', 2)[-1].strip("\n")
            parts.append(f"=== {STAGES[record.name]}\n{text}")
    decisions = "\n".join(map(str, (*compiled.decisions, *compiled.splits, *compiled.in_place)))
    return "\n\n".join([*parts, f"=== decisions\n{decisions}"])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_stages(name: str, golden: Callable[[str, str], None]) -> None:
    golden(name, stages(name))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_number_of_nests(name: str) -> None:
    """Softmax, layer norm, RMSNorm with rotary embedding, GELU with residual, and the rows of cross-entropy are one each.

    The mean over the rows of a cross-entropy needs all of them, so it is a second nest; the zeros of a scatter, its
    additions and what follows are three, for additions may hit any element.
    """
    compiled = region(name)
    apart = "\n".join(map(str, compiled.decisions))
    assert len(compiled.program.nests) == FUNCTIONS[name].nests, f"{apart}\n{compiled.program}"
    if FUNCTIONS[name].nests == 1:
        assert len(compiled.schedules) == 1


def test_cross_entropy_is_rows_and_their_mean() -> None:
    rows, mean = region("cross_entropy").program.nests
    assert [str(a.extent) for a in rows.parallel] == ["512"] and [str(a.extent) for a in rows.reduce] == ["2000"]
    assert not mean.parallel and [str(a.extent) for a in mean.reduce] == ["512"]
    apart = [d for d in region("cross_entropy").decisions if isinstance(d, FusionDecision) and not d.joined]
    assert {d.reason for d in apart} == {"iteration spaces do not match"}


def test_rows_are_loaded_once_in_a_softmax() -> None:
    """Both reductions, the normalisation and the store work on one load, whatever the dtype and the sizes."""
    for name in ("softmax", "softmax_dynamic", "softmax_bf16_long"):
        (nest,) = region(name).program.nests
        assert str(nest).count(" load ") == 1, str(nest)


@pytest.mark.parametrize("name", ["two_loops_flat", "two_loops_blocked", "two_loops_interleaved"])
def test_independent_loops_share_a_kernel(name: str) -> None:
    (schedule,) = region(name).schedules
    assert schedule.pid_type == FUNCTIONS[name].options["pid_type"]
    assert [len(p.tasks) for p in schedule.phases] == [2]


@pytest.mark.parametrize(("name", "members", "select"), [
    ("family_of_64", [[64]], "table"),
    ("family_of_mixed_sizes", [[20]], "table"),
    ("family_of_two_sizes_dynamic", [[2]], "arguments"),
    ("family_layer_norm_gelu", [[8]], "arguments"),
    ("family_foreach", [[20]], "table"),
    ("family_adamw", [[10, 2]], "table"),
    ("family_towers", [[6], [1]], "arguments"),
])  # fmt: skip
def test_loops_of_one_form_are_one_task(name: str, members: list[list[int]], select: str) -> None:
    schedules = region(name).schedules
    assert [[len(t.nests()) for t in p.tasks] for s in schedules for p in s.phases] == members
    assert schedules[0].tasks()[0].select == select


def test_updates_are_in_place() -> None:
    compiled = region("adamw")
    assert [d.granted for d in compiled.in_place] == [True] * 3
    assert sorted(b.aliases for b in compiled.program.buffers if b.aliases) == ["x1", "x2", "x3"]


def test_seeds_stay_with_the_graph() -> None:
    assert [r.code for r in report("dropout").refusals] == ["no-lowering"]


@pytest.mark.parametrize("name", [
    "softmax_dynamic", "scatter_add", "two_loops_blocked", "adamw", "family_adamw", "family_of_two_sizes_dynamic",
])  # fmt: skip
def test_printed_stages_read_back_and_generate_the_same_module(name: str) -> None:
    compiled = region(name)
    assert parse_program(str(compiled.lowered)) == compiled.lowered
    program = parse_program(str(compiled.program))
    schedules = tuple(parse_schedule(str(s)) for s in compiled.schedules)
    assert program == compiled.program and schedules == compiled.schedules
    reaches = {n.name: reach(n, program) for n in program.nests}
    again = region_source(program, schedules, compiled.inputs, compiled.outputs, reaches)
    assert again.module == compiled.source.module
