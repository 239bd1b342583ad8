"""Compiles a random function and compares it with eager: values, dtypes, shapes, strides, aliasing, updated inputs, gradients.

How close. Integers and bools are equal where they are computed from integers and bools. Floats are compared with the
function run in float64 on the same inputs: eager itself is off by ``e`` from that, for it rounds after each op, and the
compiled function, which rounds in fewer places, may be off by a small multiple of ``e`` plus the rounding of one result.
Programs whose values eager and float64 do not agree on, for an overflow of a narrower type, say, are passed over.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.cases.case_runner import clone_inputs
from tests.property.programs import Program, overlaps

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OPTIONS = {"regions": "all", "on_error": "raise", "inductor": {"force_disable_caches": True}}
EPS = {torch.float32: 1e-5, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10, torch.float64: 1e-12}
FLOOR = {torch.float32: 1e-1, torch.bfloat16: 1e-3, torch.float16: 1e-2, torch.float64: 1e-1}


@dataclass(frozen=True)
class Outcome:
    """Results and inputs of a call, afterwards, and gradients of the inputs, where asked for."""

    results: list[Any]
    inputs: list[torch.Tensor]
    gradients: list[torch.Tensor | None]

    def tensors(self) -> list[torch.Tensor]:
        return [t for t in (*self.results, *self.inputs) if isinstance(t, torch.Tensor)]


def run(fn: Any, inputs: list[torch.Tensor], *, gradients: bool = False) -> Outcome:
    given = list(clone_inputs(inputs))
    results = pytree.tree_leaves(fn(*given))
    found: list[torch.Tensor | None] = []
    if gradients:
        wanted = [t for t in given if t.requires_grad]
        loss = sum((r.double() * _weights(r)).sum() for r in results if r.requires_grad)
        found = list(torch.autograd.grad(loss, wanted, allow_unused=True)) if isinstance(loss, torch.Tensor) and wanted else []
    return Outcome([r.detach() for r in results], [t.detach() for t in given], found)


def _weights(t: torch.Tensor) -> torch.Tensor:
    """Neighbouring elements weigh differently, so that swapped gradients show."""
    return 1 + torch.arange(t.numel(), device=t.device, dtype=torch.float64).reshape(t.shape).remainder(7) / 7


def exact(program: Program, inputs: list[torch.Tensor], gradients: bool) -> Outcome:
    """The function in float64: also what it casts to a narrower float stays wide."""
    text = re.sub(r"torch\.(float32|bfloat16|float16)\b", "torch.float64", program.text()).replace(".float()", ".double()")
    names: dict[str, Any] = {"__name__": "pasted"}
    exec(text, names)
    wide = list(clone_inputs(inputs))
    storages: dict[int, torch.Tensor] = {}
    for k, t in enumerate(wide):
        if t.is_floating_point():
            base = t.untyped_storage().data_ptr()
            count = t.untyped_storage().nbytes() // t.element_size()
            if base not in storages:
                storages[base] = torch.empty(0, dtype=t.dtype, device=t.device).set_(t.untyped_storage(), 0, (count,), (1,)).double()
            view = storages[base].as_strided(t.shape, t.stride(), t.storage_offset()) if t.numel() else t.double()
            wide[k] = view.detach().requires_grad_(t.requires_grad)
    return run(names["f"], wide, gradients=gradients)


def agree(want: Outcome, ideal: Outcome) -> bool:
    """Whether eager's values are those of float64, but for roundings."""
    pairs = list(zip(want.tensors(), ideal.tensors())) + [(g, i) for g, i in zip(want.gradients, ideal.gradients) if g is not None]
    for w, i in pairs:
        if w.shape != i.shape or (not w.is_floating_point() and not torch.equal(w.double(), i.double())):
            return False
        if not torch.equal(w.isnan(), i.isnan()) or not torch.equal(w.isinf(), i.isinf()):
            return False
    return True


def check(program: Program, *, dynamic: bool = False, gradients: bool = False, backend: str = "helion",
          options: Mapping[str, Any] | None = None) -> bool:  # fmt: skip
    """Compile, call twice and compare; False where eager itself cannot be relied on, and where plain Inductor raises the same
    or gives the same strides. ``options`` are further ones of the backend."""
    fn, make = program.load()
    inputs = list(clone_inputs(make(), DEVICE))
    if gradients:
        inputs = [t.requires_grad_() if t.is_floating_point() else t for t in inputs]
    try:
        want = run(fn, inputs, gradients=gradients)
        ideal = exact(program, inputs, gradients)
    except (RuntimeError, IndexError):
        return False
    if not agree(want, ideal):
        return False
    # Before our seam: AOTAutograd lays gradients out like the results they belong to, in overlapping memory where those overlap.
    if gradients and any(overlaps(r) for r in want.results):
        return False
    # And with dynamic shapes it takes the place of a result in an input from the graph's tensor, which need not lie in that input.
    if dynamic and any(inputs[i].storage_offset() for _, i in aliases(want)):
        return False
    got = None
    try:
        got = _call_twice(fn, inputs, backend, dynamic, gradients, options)
        for outcome in got:  # compared when both are through, so that a call that writes to what an earlier one returned shows
            compare_outcomes(outcome, want, ideal, [t.dtype for t in inputs])
    except Exception as error:
        if backend == "helion" and _before_our_seam(error, lambda: _call_twice(fn, inputs, "inductor", dynamic, gradients), got):
            return False
        raise
    return True


def _before_our_seam(error: Exception, plain: Callable[[], list[Outcome]], got: list[Outcome] | None) -> bool:
    """Whether plain Inductor raises the same error, or returns tensors of the same strides, which the traced graph has already."""
    try:
        outcomes = plain()
    except Exception as other:
        return type(other) is type(error) and str(other).splitlines()[1:2] == str(error).splitlines()[1:2]
    return ": strides " in str(error) and got is not None and _all_strides(outcomes) == _all_strides(got)


def _all_strides(outcomes: list[Outcome]) -> list[list[int]]:
    return [strides(t) for outcome in outcomes for t in outcome.tensors()]


def _call_twice(fn: Any, inputs: list[torch.Tensor], backend: str, dynamic: bool, gradients: bool,
                options: Mapping[str, Any] | None = None) -> list[Outcome]:  # fmt: skip
    torch.compiler.reset()
    settings = {"options": OPTIONS | dict(options or {})} if backend == "helion" else {}
    compiled = torch.compile(fn, backend=backend, dynamic=dynamic, **settings)
    return [run(compiled, inputs, gradients=gradients) for _ in range(2)]


def compare_outcomes(got: Outcome, want: Outcome, ideal: Outcome, given: Sequence[torch.dtype]) -> None:
    """``given``: types of the inputs. A float64 that is made of integers, say, has been a float32, in the reference as well."""
    eps = EPS if set(given) <= {torch.float64} else EPS | {torch.float64: EPS[torch.float32]}
    for number, (g, w, i) in enumerate(zip(got.tensors(), want.tensors(), ideal.tensors(), strict=True)):
        what = f"result {number}" if number < len(want.results) else f"input {number - len(want.results)}"
        assert (g.dtype, g.shape) == (w.dtype, w.shape), f"{what}: {g.dtype} {g.shape}, not {w.dtype} {w.shape}"
        assert strides(g) == strides(w), f"{what}: strides {g.stride()}, not {w.stride()}"
        compare(what, g, w, i, eps[w.dtype] if w.is_floating_point() else 0.0)
    assert aliases(got) == aliases(want), f"share memory: {aliases(got)}, not {aliases(want)}"
    for number, (g, w, i) in enumerate(zip(got.gradients, want.gradients, ideal.gradients, strict=True)):
        assert (g is None) == (w is None), f"gradient {number}: {g}, not {w}"
        if g is not None and w is not None and i is not None:
            compare(f"gradient {number}", g, w, i, eps[w.dtype])


def aliases(outcome: Outcome) -> set[tuple[int, int]]:
    """(result, input) that share memory, each counted from 0."""
    pairs = [(r, i) for r in range(len(outcome.results)) for i in range(len(outcome.inputs))]
    return {(r, i) for r, i in pairs if _storage(outcome.results[r]) == _storage(outcome.inputs[i]) != 0}


def _storage(t: torch.Tensor) -> int:
    return t.untyped_storage().data_ptr() if t.numel() else 0


def strides(t: torch.Tensor) -> list[int]:
    """Those that matter: along dimensions of more than one element."""
    return [s for n, s in zip(t.shape, t.stride()) if n > 1] if t.numel() else []


def compare(what: str, got: torch.Tensor, want: torch.Tensor, ideal: torch.Tensor, eps: float) -> None:
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
    slack = 4 * (w - i).abs().max().item() + eps * (i.abs() + FLOOR[want.dtype])
    worst = ((g - i).abs() - slack).max().item()
    assert worst <= 0 and not math.isnan(worst), f"{what}: off by {(g - i).abs().max().item()}: {got} instead of {want}"
