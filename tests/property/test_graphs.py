"""Random small functions give what eager gives: values, dtypes, shapes, strides and updated inputs.

How close. Integers and bools are equal where they are computed from integers and bools. Floats are compared with the
function run in float64 on the same inputs: eager itself is off by ``e`` from that, for it rounds after each op, and the
compiled function, which rounds in fewer places, may be off by a small multiple of ``e`` plus the rounding of one result.
Where a value of another type hangs on a float (a comparison, a sign, an argmax, a rounding), a float that is off by
its last bit may turn it over; programs in which eager and float64 disagree on such a value are passed over.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given, note
from torch.utils import _pytree as pytree

from tests.cases.case_runner import clone_inputs
from tests.property.programs import Program, programs

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OPTIONS = {"regions": "all", "on_error": "raise", "inductor": {"force_disable_caches": True}}
EPS = {torch.float32: 1e-5, torch.bfloat16: 2.0**-7, torch.float64: 1e-12}


def run(fn: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Results, then the inputs as they are afterwards."""
    given_ = clone_inputs(inputs)
    return [*pytree.tree_leaves(fn(*given_)), *given_]


def exact(program: Program, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The function in float64: also what it casts to a narrower float stays wide."""
    text = program.text().replace("torch.float32", "torch.float64").replace("torch.bfloat16", "torch.float64")
    names: dict[str, Any] = {}
    exec(text, names)
    wide = [t.double() if t.is_floating_point() else t for t in inputs]
    return run(names["f"], wide)


def check(program: Program, *, dynamic: bool = False) -> bool:
    """Compile and compare; False, without either, where eager itself cannot be relied on."""
    fn, make = program.load()
    inputs = [t.to(DEVICE) for t in make()]
    want, ideal = run(fn, inputs), exact(program, inputs)
    for w, i in zip(want, ideal):
        if not w.is_floating_point() and not torch.equal(w.double(), i.double()):
            return False
        if not torch.equal(w.isnan(), i.isnan()) or not torch.equal(w.isinf(), i.isinf()):
            return False
    torch.compiler.reset()
    got = run(torch.compile(fn, backend="helion", options=OPTIONS, dynamic=dynamic), inputs)
    for number, (g, w, i) in enumerate(zip(got, want, ideal, strict=True)):
        what = f"value {number} of results and inputs"
        assert (g.dtype, g.shape) == (w.dtype, w.shape), f"{what}: {g.dtype} {g.shape}, not {w.dtype} {w.shape}"
        assert strides(g) == strides(w), f"{what}: strides {g.stride()}, not {w.stride()}"
        compare(what, g, w, i)
    return True


def strides(t: torch.Tensor) -> list[int]:
    """Those that matter: along dimensions of more than one element."""
    return [s for n, s in zip(t.shape, t.stride()) if n > 1] if t.numel() else []


def compare(what: str, got: torch.Tensor, want: torch.Tensor, ideal: torch.Tensor) -> None:
    if not want.is_floating_point():
        assert torch.equal(got, want), f"{what}: {got} instead of {want}"
        return
    assert torch.equal(got.isnan(), want.isnan()), f"{what}: NaN in other places: {got} instead of {want}"
    infinite = want.isinf()
    assert torch.equal(got[infinite], want[infinite]) and not got[~infinite].isinf().any(), f"{what}: {got} instead of {want}"
    fine = want.isfinite()
    g, w, i = (t[fine].double() for t in (got, want, ideal))
    if not g.numel():
        return
    # The error of eager at one element says little of that at another, so the greatest stands for all.
    slack = 4 * (w - i).abs().max().item() + EPS[want.dtype] * (i.abs() + (1e-3 if want.dtype == torch.bfloat16 else 1e-1))
    worst = ((g - i).abs() - slack).max().item()
    assert worst <= 0 and not math.isnan(worst), f"{what}: off by {(g - i).abs().max().item()}: {got} instead of {want}"


@given(programs())
def test_random_functions(program: Program) -> None:
    note(program.text())
    assume(check(program))




@pytest.mark.parametrize("dynamic", [False, True])
def test_a_function_of_every_kind(dynamic: bool) -> None:
    """One of each kind of line that programs are made of, so that the comparison itself is run on each."""
    lines = ("v0 = torch.tanh(x0)", "v1 = v0 * x1", "v2 = v1.transpose(0, -1)", "v3 = torch.softmax(v2, -1)", "v4 = v3[x2]",
             "v5 = torch.cat([v4, v3])", "v6 = v5.to(torch.bfloat16)", "x0.add_(1)", "v8 = v6.argmax(0)")  # fmt: skip
    inputs = ("torch.randn((7, 5), generator=g)", "torch.randn((1, 5), generator=g)", "torch.randint(-5, 5, (3,), generator=g)")
    assert check(Program(inputs, lines, ("v2", "v6", "v8")), dynamic=dynamic)
