"""Operators whose loops are ours, because Inductor's differ from what eager PyTorch computes.

Each function here takes ``call``, which lowers another operator, ``pointwise``, which makes a loop of one opcode of the tile IR,
the operator itself and its arguments: tensors as Inductor's boxes (``get_dtype``, ``get_size``), scalars as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

aten = torch.ops.aten
Call = Callable[..., Any]


def _is_float(x: Any) -> bool:
    return x.get_dtype().is_floating_point if hasattr(x, "get_dtype") else isinstance(x, float)


def floor_division(call: Call, pointwise: Call, target: Any, a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    """Floats: one opcode, not ``floor(a / b)``: NaN for an infinite ``a``, -1 for ``-1 // inf``, 2 for ``0.6 // 0.2``, whose quotient
    is rounded up to 3. Source: ``c10::div_floor_floating`` of PyTorch.
    """
    if rounding_mode != "floor" or not (_is_float(a) or _is_float(b)):
        return call(target, a, b, rounding_mode=rounding_mode)
    common = call(aten.sub.Tensor, a, b)  # for its dtype and shape; what nobody reads is not computed
    dtype, shape = common.get_dtype(), list(common.get_size())
    convert, expand = torch.ops.prims.convert_element_type.default, aten.expand.default
    return pointwise("floordiv", *(call(expand, call(convert, x, dtype), shape) if hasattr(x, "get_dtype") else x for x in (a, b)))


def var_mean(call: Call, pointwise: Call, target: Any, x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """The mean of no elements is NaN, as the variance is."""
    variance, mean = call(target, x, dim, correction=correction, keepdim=keepdim)
    if not any(n == 0 for n in x.get_size()):
        return variance, mean
    every = list(range(len(x.get_size())))
    return variance, call(aten.mean.dim, x, dim or every, keepdim)


def power(call: Call, pointwise: Call, target: Any, x: Any, exponent: Any) -> Any:
    """The power of -0.5 is ``rsqrt`` in eager: NaN for -inf, and -inf for -0.0, where ``pow`` gives 0 and inf."""
    if exponent == -0.5 and x.get_dtype().is_floating_point:
        return call(aten.rsqrt.default, x)
    return call(target, x, exponent)


CORRECTED: Mapping[Any, Callable[..., Any]] = {
    aten.div.Tensor_mode: floor_division,
    aten.div.Scalar_mode: floor_division,
    aten.pow.Tensor_Scalar: power,
    aten.var_mean.correction: var_mean,
}
