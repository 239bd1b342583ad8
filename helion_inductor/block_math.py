"""Reductions and inclusive scans along one axis of a CPU tensor: what the device functions of the same names compute.

All keep the dtype of their values: integers wrap in it, f32 is accumulated in f32 or better. Floats propagate NaN;
among equal extremes a reduction takes the least index, a scan the latest, as eager PyTorch does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from helion_inductor.unsigned_math import from_ordered, to_ordered


def _wrapping(fn: Callable[..., Tensor]) -> Callable[[Tensor, int], Tensor]:
    def apply(x: Tensor, axis: int) -> Tensor:
        return fn(x, axis) if x.is_floating_point() else fn(x.to(torch.int64), axis).to(x.dtype)

    return apply


def _extreme(fn: Callable[..., Tensor]) -> Callable[[Tensor, int], Tensor]:
    return lambda x, axis: from_ordered(fn(to_ordered(x), axis), x.dtype)


def any_nonzero(x: Tensor, axis: int) -> Tensor:
    """Whether any element along `axis` differs from 0 (bool)."""
    return torch.any(x != 0, axis)


def xor_sum(x: Tensor, axis: int) -> Tensor:
    """Exclusive or of all elements along `axis`; integers and bool."""
    while x.shape[axis] > 1:
        half = x.shape[axis] // 2
        folded = x.narrow(axis, 0, half) ^ x.narrow(axis, half, half)
        x = torch.cat([folded, x.narrow(axis, 2 * half, x.shape[axis] - 2 * half)], axis)
    return x.squeeze(axis)


def _arg_reduction(extreme: Callable[[Tensor, int], Tensor]) -> Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]:
    def apply(x: Tensor, index: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        best = extreme(x, axis)
        hit = (x == best.unsqueeze(axis)) | (x != x)  # a NaN makes `best` NaN, and then only NaNs are hits
        last = torch.iinfo(index.dtype).max
        return best, torch.where(hit, index.broadcast_to(x.shape), last).amin(axis)

    return apply


def _arg_scan(fn: Callable[..., tuple[Tensor, Tensor]]) -> Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]:
    def apply(x: Tensor, index: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        values, at = fn(to_ordered(x), axis)
        return from_ordered(values, x.dtype), index.broadcast_to(x.shape).gather(axis, at)

    return apply


def _arg_combine(better: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    def apply(v0: Tensor, i0: Tensor, v1: Tensor, i1: Tensor) -> tuple[Tensor, Tensor]:
        nan0, nan1 = v0 != v0, v1 != v1
        tie = (v0 == v1) | (nan0 & nan1)
        first = better(to_ordered(v0), to_ordered(v1)) | (nan0 & ~nan1) | (tie & (i0 <= i1))
        return torch.where(first, v0, v1), torch.where(first, i0, i1)

    return apply


def _scan_combine(fn: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    def apply(v0: Tensor, i0: Tensor, v1: Tensor, i1: Tensor) -> tuple[Tensor, Tensor]:
        second = fn(to_ordered(v1), to_ordered(v0)) | (v1 != v1)
        return torch.where(second, v1, v0), torch.where(second, i1, i0)

    return apply


maximum, minimum = _extreme(torch.amax), _extreme(torch.amin)

REDUCTIONS: Mapping[str, Callable[[Tensor, int], Tensor]] = MappingProxyType({
    "sum": _wrapping(torch.sum),
    "prod": _wrapping(torch.prod),
    "max": maximum,
    "min": minimum,
    "any": any_nonzero,
    "xor_sum": xor_sum,
})  # fmt: skip
"""kind -> f(x, axis); the axis is gone from the result."""

ARG_REDUCTIONS: Mapping[str, Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]] = MappingProxyType({
    "argmax": _arg_reduction(maximum),
    "argmin": _arg_reduction(minimum),
})  # fmt: skip
"""kind -> f(x, index, axis) = (extreme value, `index` where it stands); NaN is the extreme of values that hold one."""

ARG_COMBINES: Mapping[str, Callable[..., tuple[Tensor, Tensor]]] = MappingProxyType({
    "argmax": _arg_combine(torch.gt),
    "argmin": _arg_combine(torch.lt),
    "cummax": _scan_combine(torch.ge),
    "cummin": _scan_combine(torch.le),
})  # fmt: skip
"""kind -> f(value0, index0, value1, index1) = what the reduction, or the scan's last element, is of both stretches."""

SCANS: Mapping[str, Callable[[Tensor, int], Tensor]] = MappingProxyType({
    "sum": _wrapping(torch.cumsum),
    "prod": _wrapping(torch.cumprod),
    "logcumsumexp": torch.logcumsumexp,
})  # fmt: skip
"""kind -> f(x, axis), of x's shape."""

ARG_SCANS: Mapping[str, Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]] = MappingProxyType({
    "max": _arg_scan(torch.cummax),
    "min": _arg_scan(torch.cummin),
})  # fmt: skip
"""kind -> f(x, index, axis) = (running extreme, `index` where it was last met), both of x's shape."""
