"""Every reported case through this backend, with every supported op taken."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.cases.reported_cases import CASES, Case, run_case

# Cases whose fault is made outside the kernels, in Inductor's decompositions, lowerings or passes: id -> why.
# Each must keep failing, so that a case that is cured leaves the table.
UPSTREAM: dict[str, str] = {
    "scan_0d_constant": "Inductor's replacement for the cumsum of a constant indexes a shape of no dimensions; it runs before our pass",
    "layout_channel_shuffle_cl": "AOTAutograd traces the reference of channel_shuffle, which is row-major, and promises its strides",
}


def _parameter(case: Case) -> object:
    marks = []
    if case.id in UPSTREAM:
        marks.append(pytest.mark.xfail(reason=UPSTREAM[case.id], strict=True))
    if case.cuda_only:
        marks.append(pytest.mark.gpu)
    if case.heavy and os.environ.get("HELION_TEST_PROFILE") != "long":
        marks.append(pytest.mark.skip(reason="needs gigabytes; HELION_TEST_PROFILE=long runs it"))
    return pytest.param(case, id=case.id, marks=marks)


@pytest.mark.parametrize("case", [_parameter(case) for case in CASES])
def test_reported_case(case: Case, device: str) -> None:
    thrice = replace(case, calls=max(case.calls, 3))
    status, detail = run_case(thrice, "helion", device, {"options": {"regions": "all"}})
    if status == "skip":
        pytest.skip(detail)
    assert status == "ok", f"{case.summary} ({case.source}): {detail}"


def test_ids_are_unique_and_the_table_names_cases() -> None:
    ids = [case.id for case in CASES]
    assert len(set(ids)) == len(ids) == 88
    assert set(UPSTREAM) <= set(ids)


def test_runner_sees_what_is_wrong() -> None:
    """The runner itself: a backend that adds 1 to every output must not pass."""

    def off_by_one(graph, inputs):
        return lambda *args: [out + 1 if hasattr(out, "add") else out for out in graph(*args)]

    case = next(case for case in CASES if case.id == "softmax_scaled_1e14")
    status, detail = run_case(case, off_by_one)
    assert status == "mismatch" and "differ" in detail
    assert run_case(case, "eager") == ("ok", "")
