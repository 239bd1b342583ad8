"""Runs one case: eager and compiled on clones of the same inputs, several times, then compares everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from tests.cases.case_kit import Case

# What eager raises for a mistake of the user, and what wraps it when compiling.
USER_ERRORS = (RuntimeError, ValueError, TypeError, IndexError)


def run_case(
    case: Case, backend: str | Callable = "inductor", device: str = "cpu", compile_kwargs: dict[str, Any] | None = None
) -> tuple[str, str]:
    """(status, detail) where the status is "ok", "mismatch", "eager_error" or "skip".

    The compiled function is called ``case.calls`` times on fresh clones and all results must still be right at the end,
    which shows overwritten outputs and state left behind by an earlier call; mutated inputs are compared too.  An error
    of the compiled function is passed on, unless eager raises as well and the case says so.
    """
    if case.cuda_only and not device.startswith("cuda"):
        return "skip", "cuda only"
    if case.cpu_only and device != "cpu":
        return "skip", "cpu only"
    settings = dict(compile_kwargs or {})
    if case.dynamic is not None:
        settings.setdefault("dynamic", case.dynamic)
    torch.compiler.reset()
    compiled = torch.compile(case.fn, backend=backend, **settings)
    further = case.more_inputs(device) if case.more_inputs else []
    for number, inputs in enumerate([case.make_inputs(device), *further]):
        run = _run_raising if case.check == "raises" else _run_inputs
        status, detail = run(case, compiled, inputs)
        if status != "ok":
            return status, f"inputs {number}: {detail}"
    return "ok", ""


def clone_inputs(inputs: Sequence[Any], device: str | None = None) -> tuple:
    """Clones, on ``device`` where one is named, that keep strides, ``requires_grad``, and which inputs share one storage."""
    storages: dict[int, torch.Tensor] = {}

    def clone(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.numel():
            return tensor.detach().clone().to(device).requires_grad_(tensor.requires_grad)
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in storages:
            count = storage.nbytes() // tensor.element_size()
            flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage, 0, (count,), (1,))
            storages[storage.data_ptr()] = flat.clone().to(device)
        flat = storages[storage.data_ptr()]
        view = flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        return view.detach().requires_grad_(tensor.requires_grad)

    return tuple(clone(item) if isinstance(item, torch.Tensor) else item for item in inputs)


def _run_inputs(case: Case, compiled: Callable[..., Any], inputs: tuple) -> tuple[str, str]:
    try:
        eager = _call(case.fn, clone_inputs(inputs), case.grad)
    except USER_ERRORS as error:
        return "eager_error", f"{type(error).__name__}: {error}"
    results = []
    for _ in range(case.calls):
        results.append(_call(compiled, clone_inputs(inputs), case.grad))
    for number, result in enumerate(results):
        difference = _difference(case, eager, result)
        if difference:
            return "mismatch", f"call {number}: {difference}"
    return "ok", ""


def _run_raising(case: Case, compiled: Callable[..., Any], inputs: tuple) -> tuple[str, str]:
    try:
        case.fn(*clone_inputs(inputs))
        return "eager_error", "eager does not raise with this version of torch"
    except USER_ERRORS as error:
        expected = type(error).__name__
    try:
        result = compiled(*clone_inputs(inputs))
        _synchronize()
    except USER_ERRORS as error:
        return "ok", f"eager raises {expected}, compiled {type(error).__name__}"
    return "mismatch", f"eager raises {expected}, compiled returned {str(result)[:80]!r}"


def _call(fn: Callable[..., Any], inputs: tuple, grad: bool) -> tuple[Any, list, tuple]:
    """Outputs, input gradients (none unless ``grad``) and the inputs as the call left them."""
    gradients = []
    if grad:
        inputs = tuple(item.detach().requires_grad_() if _differentiable(item) else item for item in inputs)
    outputs = fn(*inputs)
    if grad:
        sum(_weighted(item) for item in _flat(outputs) if _differentiable(item)).backward()
        gradients = [item.grad for item in inputs if _differentiable(item)]
    _synchronize()
    return outputs, gradients, inputs


def _differentiable(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and (item.is_floating_point() or item.is_complex())


def _weighted(output: torch.Tensor) -> torch.Tensor:
    """A scalar in which neighbouring elements weigh differently, so that swapped gradients show."""
    if output.is_complex():
        return output.abs().sum()
    weights = 1 + torch.arange(output.numel(), device=output.device).reshape(output.shape).remainder(7) / 7
    return (output * weights).sum()


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _difference(case: Case, eager: tuple[Any, list, tuple], result: tuple[Any, list, tuple]) -> str:
    if not isinstance(case.check, str):
        return "" if case.check(eager[0], result[0], eager[2], result[2]) else "the case's own check failed"
    exact = case.check == "equal"
    parts = [
        ("outputs", eager[0], result[0], exact),
        ("inputs afterwards", eager[2], result[2], exact),
        ("gradients", eager[1], result[1], False),
    ]
    for name, expected, actual, equal in parts:
        differences = _compare_all(case, expected, actual, equal, case.strides and name == "outputs")
        for text in differences:
            return f"{name}{text}"
    return ""


def _compare_all(case: Case, expected: Any, actual: Any, exact: bool, strides: bool) -> Iterator[str]:
    flat_expected, flat_actual = _flat(expected), _flat(actual)
    if len(flat_expected) != len(flat_actual):
        yield f": {len(flat_actual)} instead of {len(flat_expected)}"
        return
    for number, (x, y) in enumerate(zip(flat_expected, flat_actual, strict=True)):
        text = _compare(case, x, y, exact, strides)
        if text:
            yield f"[{number}]: {text}"


def _flat(value: Any) -> list:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _flat(item)]
    return [value]


def _compare(case: Case, x: Any, y: Any, exact: bool, strides: bool) -> str:
    if not isinstance(x, torch.Tensor):
        return "" if x == y else f"{y!r} instead of {x!r}"
    if (x.shape, x.dtype, x.device.type) != (y.shape, y.dtype, y.device.type):
        return f"{y.dtype}{list(y.shape)} on {y.device} instead of {x.dtype}{list(x.shape)} on {x.device}"
    wide = [axis for axis, size in enumerate(x.shape) if size > 1]
    if strides and any(x.stride(axis) != y.stride(axis) for axis in wide):
        return f"strides {y.stride()} instead of {x.stride()}"
    x, y = x.detach(), y.detach()
    if exact or not _differentiable(x):
        same = (x == y) | ((x != x) & (y != y))
    else:
        same = torch.isclose(x, y, rtol=case.rtol, atol=case.atol, equal_nan=True)
    if bool(same.all()):
        return ""
    wrong = ~same
    return (
        f"{int(wrong.sum())} of {x.numel()} differ, such as {y[wrong][:3].tolist()} instead of {x[wrong][:3].tolist()}"
    )
