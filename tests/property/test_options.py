"""Options that choose a schedule change nothing but time: random functions give what eager gives under any of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from helion_inductor.runtime import num_sm
from tests.property.checking import check
from tests.property.programs import Program
from tests.property.steps import programs

LONG = settings.default.max_examples > 100
BLOCKS = st.sampled_from([32, 128, 1024])


@st.composite
def schedule_options(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "pid_type": draw(st.sampled_from(["auto", "flat", "persistent_blocked", "persistent_interleaved"])),
        "num_sm_multiplier": draw(st.integers(1, 4)),
        "cross_loop": draw(st.sampled_from(["auto", "off", "barrier"])),
        "loop_order": draw(st.sampled_from(["auto", ["x", "y"], ["y", "x"]])),
        "l2_grouping": draw(st.integers(1, 3)),
        "block_sizes": draw(st.none() | st.fixed_dictionaries({"x": BLOCKS, "y": BLOCKS, "r": BLOCKS})),
        "split_reductions": draw(st.sampled_from(["auto", "off", 2, 8])),
    }


@pytest.mark.parametrize("workers", [1, 3])
@settings(max_examples=settings.default.max_examples if LONG else 6)
@given(program=programs(most=8), options=schedule_options())
def test_random_schedules_of_random_functions(workers: int, program: Program, options: dict[str, Any]) -> None:
    note(f"{program.text()}\n# options: {options}, {workers} multiprocessors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(num_sm, "_count", lambda kind, index: workers)
        check(program, options=options)
