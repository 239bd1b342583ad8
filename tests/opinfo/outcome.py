"""One op, one dtype, one sample: compiled through the backend, compared with eager, and put into a class.

Classes, from the worst to the best:

    crash, timeout  the process died, compiling or running raised, or it took too long
    wrong           values, dtype, shape or strides differ from eager, and plain Inductor (same graph, no regions) does not
                    give the same result
    upstream        they differ from eager exactly as plain Inductor's do
    refused         every call that is left outside regions has loops under plain Inductor: the backend could have taken it
    extern          some call that is left has no loops under plain Inductor either
    untraced        no graph reaches the backend, and plain Inductor compiles none or raises too
    nothing         the graph holds no call that computes (views, constants, `empty`), or no sample has elements
    region          every call is in a region

"Loop-only" is region + refused + wrong + upstream (+ crash and timeout, so that a crash never makes the base smaller).
What counts as a call without loops is told by the refusal codes of ``NO_LOOPS``: ops that Inductor has no lowering for, or
whose lowering makes an extern kernel, a fallback or a template; matmul, attention and convolution families; complex dtypes,
which Inductor falls back for; and sizes that depend on data.  The measure is Inductor on a GPU: special functions that it
has C++ but no Triton code for are fallbacks there and count as such where they are left (``igamma``), though most of them
(polynomials, Bessel functions, ``polygamma``, ``zeta``) are in regions, and then make the base greater; ``GPU_LOOPS``, for which
it has loops there though not for CPU tensors, count as refused.  Two kinds of calls are left out by design and count neither
way: the final ``copy_`` of a mutated input, and ``inductor_seeds``, the one draw of a graph's seeds.

A graph that is partly in regions is run, and its values compared, where the rest needs no C++ compiler (``compared``).
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

NO_LOOPS = frozenset({"family", "no-lowering", "not-a-loop", "not-an-op", "data-dependent", "symbolic-scalar", "not-a-tensor"})
COMPUTES_NOTHING = frozenset({"empty", "uninitialised"})
NEITHER = ("copy_", "inductor_seeds", "sym_size")
GPU_LOOPS = ("aten.bucketize", "aten.searchsorted", "aten.sort")
ORDER = ("crash", "timeout", "wrong", "upstream", "refused", "extern", "untraced", "nothing", "region")
LOOP_ONLY = frozenset({"crash", "timeout", "wrong", "upstream", "refused", "region"})
UNINITIALISED = frozenset({"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"})
SAMPLES_LOOKED_AT = 24
RTOL = {torch.float32: 1e-4, torch.float64: 1e-7, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@dataclass(frozen=True)
class Outcome:
    """``status`` is a class of the module docstring; ``reasons`` say why (refusals by code, or what differed); ``compared``
    is whether code of the backend ran and its values were compared."""

    op: str
    dtype: str
    sample: int
    status: str
    reasons: tuple[str, ...] = ()
    compared: bool = False

    def record(self) -> dict[str, Any]:
        return asdict(self) | {"reasons": list(self.reasons)}


class Stopped(Exception):
    """Ends the compilation of a graph whose class is known and that is not to be run."""


def second_dtype(op: Any) -> torch.dtype | None:
    """The dtype swept besides float32: int64 where the op has it, else a half one, else bool."""
    known = op.supported_dtypes("cpu")
    return next((d for d in (torch.int64, torch.float16, torch.bfloat16, torch.bool) if d in known), None)


def samples(op: Any, dtype: torch.dtype, count: int) -> list[tuple[int, Any]]:
    """Up to ``count`` samples with elements, spread over the first few, with their numbers."""
    torch.manual_seed(0)
    made = list(islice(enumerate(op.sample_inputs("cpu", dtype, requires_grad=False)), SAMPLES_LOOKED_AT))
    full = [(k, s) for k, s in made if all(t.numel() for t in tensors((s.input, s.args, s.kwargs))) and _gives_elements(op, s)]
    step = max(1, len(full) // count)
    return full[::step][:count]


def _gives_elements(op: Any, sample: Any) -> bool:
    return all(t.numel() for t in tensors(_apply(op.get_op(), copied((sample.input, sample.args, sample.kwargs)))))


def tensors(tree: Any) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def copied(tree: Any) -> Any:
    """The same tree over fresh tensors of equal strides."""
    return pytree.tree_map_only(torch.Tensor, _fresh, tree)


def _fresh(t: torch.Tensor) -> torch.Tensor:
    if t.layout is not torch.strided:
        return t.clone()
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(t) if _dense(t) else t.clone()


def _dense(t: torch.Tensor) -> bool:
    return all(s != 0 or n <= 1 for n, s in zip(t.shape, t.stride(), strict=True))


def difference(got: Any, want: Any, loose: Any = None, *, values: bool = True) -> str:
    """What differs between two results, empty when nothing does; ``loose`` is a more precise result that may be met instead."""
    g, w = tensors(got), tensors(want)
    if len(g) != len(w):
        return f"{len(g)} tensors, not {len(w)}"
    extra = tensors(loose) if loose is not None else [None] * len(w)
    for k, (a, b) in enumerate(zip(g, w, strict=True)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"result {k}: {a.dtype} {tuple(a.shape)}, not {b.dtype} {tuple(b.shape)}"
        if b.layout is torch.strided and a.numel() and _steps(a) != _steps(b):
            return f"result {k}: strides {a.stride()}, not {b.stride()} (shape {tuple(b.shape)})"
        if values and not (_close(a, b) or (extra[k] is not None and (_close(a, extra[k].to(b.dtype)) or _no_further(a, b, extra[k])))):
            worst = (a.double() - b.double()).abs().nan_to_num(float("inf")).max().item() if not b.is_complex() else float("nan")
            return f"result {k}: values differ by up to {worst:.3g}: {_some(a)} is not {_some(b)}"
    return ""


def _steps(t: torch.Tensor) -> list[int]:
    return [s for n, s in zip(t.shape, t.stride(), strict=True) if n != 1]


def _some(t: torch.Tensor) -> str:
    return str([round(x, 5) if isinstance(x, float) else x for x in t.flatten()[:6].tolist()])


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if not (b.is_floating_point() or b.is_complex()):
        return torch.equal(a, b)
    return torch.allclose(a, b, rtol=RTOL.get(b.dtype, 1e-4), atol=1e-5, equal_nan=True)


def _left(report: Any) -> list[Any]:
    return [r for r in report.refusals if not any(name in f"{r.node} {r.detail}" for name in NEITHER)]


def _cheap_to_run(report: Any) -> bool:
    """Whether some code of a graph is ours, and none of the rest is C++ to compile."""
    kernels = any(region.taken for region in report.regions)
    return kernels and all(_without_loops(r.code, r.detail) for r in _left(report))


def _no_further(a: torch.Tensor, b: torch.Tensor, precise: torch.Tensor) -> bool:
    """Whether no element of ``a`` is further from a more precise result than the one of ``b`` that is furthest.

    Where terms cancel, two half results that were rounded in different places have few digits in common, and both are right.
    """
    if not b.is_floating_point() or not (a.isfinite() == precise.isfinite()).all():
        return False
    errors = [(t.double() - precise.double())[precise.isfinite()].abs().max() for t in (a, b)]
    return bool(precise.isfinite().any()) and bool(errors[0] <= errors[1])


def classify(reports: Sequence[Any]) -> tuple[str, tuple[str, ...]]:
    """Class of graphs that compiled, by their reports."""
    left = [r for report in reports for r in _left(report)]
    taken = any(r.taken for report in reports for r in report.regions)
    idle = [r for r in left if r.code in COMPUTES_NOTHING]
    left = [r for r in left if r.code not in COMPUTES_NOTHING]
    reasons = tuple(dict.fromkeys(f"{r.code}: {r.detail}" for r in left))
    if any(_without_loops(r.code, r.detail) for r in left):
        return "extern", reasons
    if left:
        return "refused", reasons
    return ("region" if taken else "nothing"), tuple(f"{r.code}: {r.node}" for r in idle)


def _without_loops(code: str, detail: str) -> bool:
    if code == "dtype":
        return "complex" in detail
    return code in NO_LOOPS and not detail.startswith(GPU_LOOPS)


def run_sample(op: Any, dtype: torch.dtype, number: int, sample: Any, *, partial: bool) -> Outcome:
    """Compile and compare one sample; ``partial`` runs graphs too whose rest takes a C++ compiler."""
    from helion_inductor import backend
    from helion_inductor.options import Options

    reports: list[Any] = []

    def listen(report: Any) -> None:
        reports.append(report)
        if not partial and classify([report])[0] in ("extern", "refused") and not _cheap_to_run(report):
            raise Stopped

    def compiler(gm: Any, inputs: Any) -> Any:
        options = Options.from_mapping({"regions": "all", "on_error": "raise"})
        graph_pass = backend.RegionPass(options, listen)
        return backend.compile_fx(gm, list(inputs), config_patches=backend.config_patches(options, graph_pass))

    def outcome(status: str, *reasons: str, compared: bool = False) -> Outcome:
        return Outcome(op.full_name, str(dtype).removeprefix("torch."), number, status, reasons, compared)

    fn, tree = op.get_op(), (sample.input, sample.args, sample.kwargs)
    want, loose, steady = eager(fn, tree, dtype)
    steady = steady and op.name not in UNINITIALISED
    got, error = call(fn, tree, compiler)
    if error is not None and not isinstance(error, Stopped):
        said = f"{type(error).__name__}: {str(error).strip()}".split("\n\nSet TORCHDYNAMO")[0]
        if not reports and call(fn, tree, "inductor")[1] is not None:
            return outcome("untraced", said.splitlines()[0][:300])
        return outcome("crash", said[:1500], _where(error))
    status, reasons = classify(reports)
    if status == "region" and op.name in UNINITIALISED:  # whose memory a kernel may own, but has nothing to write to
        status = "nothing"
    if error is not None:
        return outcome(status, *reasons)
    if not reports:
        return outcome("untraced", "no graph")
    different = difference(got, want, loose, values=steady)
    if different:
        theirs, failed = call(fn, tree, "inductor")
        same = failed is None and not difference(got, theirs, values=steady)
        return outcome("upstream" if same else "wrong", different)
    return outcome(status, *reasons, compared=steady and any(region.taken for r in reports for region in r.regions))


def _where(error: BaseException) -> str:
    """The innermost frames of the error that began it."""
    while (deeper := error.__cause__ or error.__context__) is not None:
        error = deeper
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return f"{type(error).__name__} at " + " > ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames)


def eager(fn: Callable[..., Any], tree: Any, dtype: torch.dtype) -> tuple[Any, Any, bool]:
    """Eager's result, for half dtypes also that of the same inputs in f32, and whether eager gives the same from any seed."""
    torch.manual_seed(0)
    want = _apply(fn, copied(tree))
    steady = True
    for seed in range(1, 9):  # a few coins fall alike now and then
        torch.manual_seed(seed)
        steady = steady and not difference(_apply(fn, copied(tree)), want)
    loose = None
    if dtype in (torch.float16, torch.bfloat16):
        up = pytree.tree_map_only(torch.Tensor, lambda t: t.float() if t.dtype == dtype else t.clone(), tree)
        with contextlib.suppress(RuntimeError):
            loose = _apply(fn, up)
            if [t.shape for t in tensors(loose)] != [t.shape for t in tensors(want)]:
                loose = None
    return want, loose, steady


def _apply(fn: Callable[..., Any], tree: Any) -> Any:
    value, args, kwargs = tree
    return fn(value, *args, **kwargs)


def call(fn: Callable[..., Any], tree: Any, compiler: Any) -> tuple[Any, BaseException | None]:
    """Result of the compiled function, or the error it ends in."""
    torch._dynamo.reset()
    value, args, kwargs = copied(tree)
    torch.manual_seed(1)
    try:
        return torch.compile(lambda *a, **k: fn(*a, **k), backend=compiler, dynamic=False)(value, *args, **kwargs), None
    except Stopped as stopped:
        return None, stopped
    # Whatever it is, it is this op's outcome, and the sweep goes on.
    except Exception as error:
        inner: BaseException | None = error
        while inner is not None and not isinstance(inner, Stopped):
            inner = inner.__cause__ or inner.__context__
        return None, inner or error
