"""Random functions on a real device, for a fixed time each; tests/property runs fewer of them in the interpreter.

With HELION_TEST_PROFILE=long each test takes as many functions as that profile has, however long it lasts, and shrinks what fails.
"""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tests.property.checking import check
from tests.property.programs import Program
from tests.property.steps import programs
from tests.property.test_options import schedule_options

pytestmark = pytest.mark.gpu

LONG = settings.default.max_examples > 100
SECONDS = 22.0
TIMED = settings(max_examples=1000, phases=[Phase.generate], deadline=None, database=None, suppress_health_check=list(HealthCheck))
NO_OPTIONS: st.SearchStrategy[dict[str, Any]] = st.just({})
CASES: dict[str, tuple[st.SearchStrategy[Program], st.SearchStrategy[dict[str, Any]], dict[str, bool]]] = {
    "short": (programs(), NO_OPTIONS, {}),
    "long": (programs(most=30), NO_OPTIONS, {}),
    "gradients": (programs(most=8, updates=False, differentiable=True), NO_OPTIONS, {"gradients": True}),
    "any size": (programs(most=8), NO_OPTIONS, {"dynamic": True}),
    "any schedule": (programs(most=8), schedule_options(), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_random_functions(name: str) -> None:
    """Those of the time are other ones at every run."""
    strategy, options, how = CASES[name]
    end, checked = math.inf if LONG else time.monotonic() + SECONDS, 0

    @(settings.default if LONG else TIMED)
    @given(strategy, options)
    def every(program: Program, chosen: dict[str, Any]) -> None:
        nonlocal end, checked
        if time.monotonic() > end:
            return
        note(f"{program.text()}\n# options: {chosen}, {how}")
        try:
            checked += check(program, options=chosen, **how)
        except Exception:
            end = math.inf  # what failed is run once more, to be shown
            raise

    every()
    assert checked >= 3, "too slow to tell anything"
