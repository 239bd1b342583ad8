"""The device functions under Triton's interpreter: torch formulas lifted onto the interpreter's values.

The interpreter runs a kernel as plain Python over numpy arrays; it has no libdevice, rounds bf16 wrongly, and reduces
with a custom combine function one element at a time. The formulas are those that define the operations, so kernels and
definitions agree to the bit, and run at torch's speed.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from helion_inductor.block_math import ARG_COMBINES, ARG_REDUCTIONS, ARG_SCANS, REDUCTIONS, SCANS
from helion_inductor.scalar_math import FORMULAS

_DTYPES: Mapping[tl.dtype, torch.dtype] = {
    tl.int1: torch.bool,
    tl.int8: torch.int8,
    tl.int16: torch.int16,
    tl.int32: torch.int32,
    tl.int64: torch.int64,
    tl.uint8: torch.uint8,
    tl.uint16: torch.uint16,
    tl.uint32: torch.uint32,
    tl.uint64: torch.uint64,
    tl.float16: torch.float16,
    tl.bfloat16: torch.bfloat16,
    tl.float32: torch.float32,
    tl.float64: torch.float64,
    tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e5: torch.float8_e5m2,
}
_TRITON_DTYPES: Mapping[torch.dtype, tl.dtype] = {v: k for k, v in _DTYPES.items()}
# What numpy has no type for is stored as bits.
_STORAGE: Mapping[torch.dtype, torch.dtype] = {
    torch.bfloat16: torch.uint16,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e5m2: torch.uint8,
}


def _to_torch(x: tl.tensor) -> torch.Tensor:
    dtype = _DTYPES[x.dtype]
    data = x.handle.data
    # Broadcast arrays are read-only, which torch warns about; flipped ones have negative strides, which it refuses.
    values = torch.from_numpy(data if data.flags.writeable and data.flags.c_contiguous else data.copy())
    storage = _STORAGE.get(dtype, dtype)
    if values.dtype != storage:  # the interpreter is lax about signs
        values = values.to(storage)
    return values.view(dtype)


def _to_triton(x: torch.Tensor, is_block: bool) -> tl.tensor:
    dtype = _TRITON_DTYPES[x.dtype]
    bits = x.contiguous().view(_STORAGE.get(x.dtype, x.dtype))
    data = bits.numpy() if is_block else bits.reshape(1).numpy()
    return tl.tensor(TensorHandle(data, dtype), tl.block_type(dtype, list(data.shape)) if is_block else dtype)


def _argument(x: Any, like: torch.dtype) -> Any:
    if isinstance(x, tl.constexpr):
        x = x.value
    if isinstance(x, tl.tensor):
        return _to_torch(x)
    if isinstance(x, tl.dtype):
        return _DTYPES[x]
    return torch.tensor([x], dtype=like)


def lift(formula: Callable[..., Any], *extra: Any) -> Callable[..., Any]:
    """A pointwise formula on tensors as a function on the interpreter's values; `extra` goes last.

    Python numbers among the operands take the dtype of the first operand that is a tensor.
    """

    def lifted(*operands: Any) -> Any:
        tensors = [x for x in operands if isinstance(x, tl.tensor)]
        like = _DTYPES[tensors[0].dtype] if tensors else torch.int32
        result = formula(*(_argument(x, like) for x in operands), *extra)
        is_block = any(x.type.is_block() for x in tensors)
        return _wrap(result, is_block)

    return lifted


def _wrap(result: Any, is_block: bool) -> Any:
    return tuple(_to_triton(r, is_block) for r in result) if isinstance(result, tuple) else _to_triton(result, is_block)


def _along(formula: Callable[..., Any]) -> Callable[..., Any]:
    """f(*blocks, axis) for a formula that works along an axis; a reduced vector becomes a scalar."""

    def lifted(*operands: Any) -> Any:
        *blocks, axis = operands
        axis = axis.value if isinstance(axis, tl.constexpr) else int(axis)
        result = formula(*map(_to_torch, blocks), axis)
        first = result[0] if isinstance(result, tuple) else result
        return _wrap(result, first.ndim > 0)

    return lifted


def _second(pair: Callable[..., tuple[Any, Any]]) -> Callable[..., Any]:
    return lambda *operands: pair(*operands)[1]


def _device_assert(condition: Any, message: Any) -> None:
    holds = _argument(condition, torch.bool)
    if not bool((holds != 0).all()):
        raise IndexError(message.value if isinstance(message, tl.constexpr) else message)


_SAME_NAME = """
    acos acosh airy_ai asin asinh atan atan2 atanh bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t
    chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w copysign cos cosh digamma erf erfc erfcx
    erfinv exp exp2 expm1 fma fmod frexp_exponent frexp_mantissa hermite_polynomial_h hermite_polynomial_he hypot i0
    i0e i1 i1e laguerre_polynomial_l ldexp legendre_polynomial_p lgamma log log10 log1p log2 log_ndtr maximum minimum
    modified_bessel_k0 modified_bessel_k1 mul_rn ndtr ndtri nextafter polygamma pow rand randint64 randn relu remainder
    round rsqrt scaled_modified_bessel_k0 scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t
    shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w sigmoid sign sin sinh
    spherical_bessel_j0 tan tanh trunc zeta"""
_FORMULA_OF = {
    "floor_div": "floordiv",
    "floor_divide": "floordiv",
    "floor_mod": "remainder",
    "int_pow": "pow",
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
    "trunc_div": "truncdiv",
    "trunc_mod": "mod",
    "sum_combine": "add",
    "prod_combine": "mul",
    "max_combine": "maximum",
    "min_combine": "minimum",
    "any_combine": "or_",
    "xor_sum_combine": "xor",
    **{name: name for name in _SAME_NAME.split()},
}

LIFTED: Mapping[str, Callable[..., Any]] = {
    **{name: lift(FORMULAS[formula]) for name, formula in _FORMULA_OF.items()},
    "narrow": lift(torch.Tensor.to),
    "widen": lift(torch.Tensor.to, torch.float32),
    "dot": lift(lambda a, b, acc: acc + a.to(torch.float32) @ b.to(torch.float32)),
    "frexp": lift(torch.frexp),
    "rand_lanes": lift(FORMULAS["rand"], 4),
    "randn_lanes": lift(FORMULAS["randn"], 4),
    "logcumsumexp_combine": lift(torch.logaddexp),
    **{f"{kind}_combine": lift(combine) for kind, combine in ARG_COMBINES.items()},
    **{kind: _along(reduction) for kind, reduction in REDUCTIONS.items()},
    **{f"{kind}_pair": _along(pair) for kind, pair in ARG_REDUCTIONS.items()},
    **{kind: _along(_second(pair)) for kind, pair in ARG_REDUCTIONS.items()},
    "cumsum": _along(SCANS["sum"]),
    "cumprod": _along(SCANS["prod"]),
    "logcumsumexp": _along(SCANS["logcumsumexp"]),
    "cummax": _along(ARG_SCANS["max"]),
    "cummin": _along(ARG_SCANS["min"]),
    "device_assert": _device_assert,
}
"""Device function by name; `device_lib` puts them in the place of the GPU's."""
