"""Random small functions give what eager gives; see checking.py for what is compared, and how closely."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, note, settings

from tests.property.checking import check, run
from tests.property.programs import Program
from tests.property.steps import programs

LONG = settings.default.max_examples > 100


@given(programs())
def test_random_functions(program: Program) -> None:
    note(program.text())
    check(program)


@settings(max_examples=settings.default.max_examples if LONG else 8)
@given(programs(most=8, updates=False, differentiable=True))
def test_gradients_of_random_functions(program: Program) -> None:
    note(program.text())
    check(program, gradients=True)


@settings(max_examples=settings.default.max_examples if LONG else 6)
@given(programs(most=8))
def test_random_functions_of_any_size(program: Program) -> None:
    note(program.text())
    check(program, dynamic=True)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_function_of_every_kind(dynamic: bool) -> None:
    """One of each kind of line that programs are made of, so that the comparison itself is run on each."""
    lines = ("v0 = torch.tanh(x0)", "v1 = v0 * x1", "v2 = v1.transpose(0, -1)", "v3 = torch.softmax(v2, -1)", "v4 = v3[x2]",
             "v5 = torch.cat([v4, v3])", "v6 = v5.to(torch.bfloat16)", "x0.add_(1)", "v8 = v6.argmax(0)")  # fmt: skip
    inputs = ("x0 = torch.randn((7, 5), generator=g)", "x1 = torch.randn((1, 5), generator=g)",
              "x2 = torch.randint(-5, 5, (3,), generator=g)")  # fmt: skip
    assert check(Program(inputs, lines, ("v2", "v6", "v8")), dynamic=dynamic)


@pytest.mark.parametrize("wrong", ["v0 = x0 * 2 + 1e-3", "v0 = (x0 * 2).t().contiguous().t()", "v0 = (x0 * 2).double()",
                                   "v0 = x0.mul_(2)", "v0 = (x0 * 2).where(x0 < 1, torch.nan)"])  # fmt: skip
def test_the_comparison_sees_what_is_wrong(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker itself: values, strides, dtypes, updated inputs and NaN, each off in one of two functions."""
    right = Program(("x0 = torch.randn((7, 5), generator=g)",), ("v0 = x0 * 2",), ("v0",))
    other, _ = Program(right.inputs, (wrong,), ("v0",)).load()
    monkeypatch.setattr("torch.compile", lambda fn, backend, **_: other if backend == "helion" else fn)
    with pytest.raises(AssertionError):
        check(right)


def test_programs_print_ready_to_paste() -> None:
    text = Program(("x0 = torch.ones((2,))",), ("v0 = x0 * 2",), ("v0",)).text()
    names: dict = {"__name__": "pasted"}
    exec(text, names)
    assert torch.equal(run(names["f"], names["inputs"]()).results[0], torch.full((2,), 2.0))
    assert 'torch.compile(f, backend="helion"' in text
