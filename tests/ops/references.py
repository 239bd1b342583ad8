"""What eager PyTorch, or Python's unbounded integers, say an opcode gives: independent of the project's formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from tests.ops.op_cases import Case

Reference = Callable[..., Tensor]


def reference(case: Case, *operands: Tensor) -> Tensor:
    """The result that is expected of `case`, as eager gives it."""
    integral = case.dtypes[0] not in (torch.float32, torch.float64)
    table = _INTEGER if integral and case.op in _INTEGER else _EAGER
    return table[case.op](case, *operands)


def _eager(name: str) -> Reference:
    fn = getattr(torch, name, None) or getattr(torch.special, name)
    return lambda case, *operands: fn(*operands)


def _python(fn: Callable[..., Any]) -> Reference:
    """Element by element on Python numbers; integers wrap into the result's dtype."""

    def apply(case: Case, *operands: Tensor) -> Tensor:
        width = 1 if case.dtypes[0] == torch.bool else 8 * case.dtypes[0].itemsize
        rows = zip(*(x.tolist() for x in operands))
        results = [fn(*row) if fn.__code__.co_argcount == len(row) else fn(width, *row) for row in rows]
        return _wrapped(results, case.result)

    return apply


def _wrapped(values: list[Any], dtype: torch.dtype) -> Tensor:
    if dtype == torch.bool:
        return torch.tensor([bool(v) for v in values])
    low, count = torch.iinfo(dtype).min, 1 << 8 * dtype.itemsize
    return torch.tensor([(int(v) - low) % count + low for v in values], dtype=dtype)


def _truncated(a: int, b: int) -> int:
    if b == 0:
        return a
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _power(a: int, b: int) -> int:
    if b >= 0:
        return pow(a, b, 1 << 64)
    return {1: 1, -1: 1 if b % 2 == 0 else -1}.get(a, 0)


def _shifted_left(width: int, a: int, b: int) -> int:
    return a << b if 0 <= b < width else 0


def _shifted_right(width: int, a: int, b: int) -> int:
    return a >> b if 0 <= b < width else (-1 if a < 0 else 0)


def _fused(case: Case, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    results = []
    for a, b, c in zip(x.tolist(), y.tolist(), z.tolist()):
        if all(map(math.isfinite, (a, b, c))) and (exact := Fraction(a) * Fraction(b) + Fraction(c)) != 0:
            results.append(_rounded(exact, case.result))
        else:
            results.append(a * b + c)
    return torch.tensor(results, dtype=torch.float64).to(case.result)


def _rounded(value: Fraction, dtype: torch.dtype) -> float:
    """The float of `dtype` nearest to `value`, ties to even, as a double."""
    digits, lowest, greatest = (24, -149, 127) if dtype == torch.float32 else (53, -1074, 1023)
    exponent = math.floor(math.log2(abs(value.numerator)) - math.log2(value.denominator))
    exponent += (abs(value) >= Fraction(2) ** (exponent + 1)) - (abs(value) < Fraction(2) ** exponent)
    unit = Fraction(2) ** max(exponent - digits + 1, lowest)
    rounded = round(value / unit) * unit
    if abs(rounded) >= Fraction(2) ** (greatest + 1):
        return math.copysign(math.inf, value)
    return math.copysign(float(abs(rounded)), value)


def _to_int(rounding: Callable[[Tensor], Tensor]) -> Reference:
    return lambda case, x: (rounding(x) if x.is_floating_point() else x).to(case.result)


def _bits(case: Case, x: Tensor) -> Tensor:
    source, target = case.attrs
    raw = x.to(source).view(torch.uint8)
    return (raw != 0) if target is torch.bool else raw.view(target).to(case.result)


def _polygamma(case: Case, n: Tensor, x: Tensor) -> Tensor:
    return torch.cat([torch.special.polygamma(int(k), v.reshape(1)) for k, v in zip(n.tolist(), x)])


def _saturated(x: Tensor, low: torch.dtype) -> Tensor:
    """What is too great for a dtype without infinity, as eager converts it from torch 2.13 on."""
    return x.clamp(-448.0, 448.0) if low == torch.float8_e4m3fn else x


_FLOAT_NAMES = """
    abs acos acosh add airy_ai asin asinh atan atan2 atanh bessel_j0 bessel_j1 bessel_y0 bessel_y1 ceil
    chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w copysign cos cosh
    digamma eq erf erfc erfcx erfinv exp exp2 expm1 floor fmod gammainc gammaincc ge gt hermite_polynomial_h
    hermite_polynomial_he hypot i0 i0e i1 i1e igamma igammac isinf isnan laguerre_polynomial_l le
    legendre_polynomial_p lgamma log log10 log1p log2 log_ndtr logical_and logical_not logical_or logical_xor lt
    maximum minimum modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 mul ndtr ndtri ne
    neg nextafter pow reciprocal relu remainder round rsqrt scaled_modified_bessel_k0 scaled_modified_bessel_k1
    shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v
    shifted_chebyshev_polynomial_w sigmoid sign signbit sin sinh spherical_bessel_j0 sqrt square sub tan tanh trunc
    where zeta"""

_EAGER: dict[str, Reference] = {
    **{name: _eager(name) for name in _FLOAT_NAMES.split()},
    "bitcast": _bits,
    "cast": lambda case, x: x.to(case.result),
    "ceil_to_int": _to_int(torch.ceil),
    "div_rn": lambda case, a, b: a / b,
    "floor_to_int": _to_int(torch.floor),
    "floordiv": _eager("floor_divide"),
    "fma": _fused,
    "frexp_exponent": lambda case, x: torch.frexp(x)[1],
    "frexp_mantissa": lambda case, x: torch.frexp(x)[0],
    "identity": lambda case, x: x,
    "ldexp": lambda case, x, n: torch.ldexp(x, n.clamp(-(2**31), 2**31 - 1).int()),  # eager takes the low 32 bits of longer ones
    "mod": _eager("fmod"),
    "mul_rn": _eager("mul"),
    "polygamma": _polygamma,
    "round_to": lambda case, x: _saturated(x, case.attrs[0]).to(case.attrs[0]).float(),
    "round_to_int": _to_int(torch.round),
    "truediv": lambda case, a, b: a / b,
    "trunc_to_int": _to_int(torch.trunc),
    "truncdiv": lambda case, a, b: torch.div(a, b, rounding_mode="trunc"),
}

_INTEGER: dict[str, Reference] = {
    "abs": _python(lambda a: abs(a)),
    "add": _python(lambda a, b: a + b),
    "and_": _python(lambda a, b: a & b),
    "bitwise_and": _python(lambda a, b: a & b),
    "bitwise_left_shift": _python(_shifted_left),
    "bitwise_not": _python(lambda w, a: ~a & ((1 << w) - 1)),
    "bitwise_or": _python(lambda a, b: a | b),
    "bitwise_right_shift": _python(_shifted_right),
    "bitwise_xor": _python(lambda a, b: a ^ b),
    "eq": _python(lambda a, b: a == b),
    "floor": _python(lambda a: a),
    "ceil": _python(lambda a: a),
    "trunc": _python(lambda a: a),
    "round": _python(lambda a: a),
    "floordiv": _python(lambda a, b: a // b if b else a),
    "fmod": _python(lambda a, b: a - _truncated(a, b) * b if b else 0),
    "ge": _python(lambda a, b: a >= b),
    "gt": _python(lambda a, b: a > b),
    "int_truediv": lambda case, a, b: a.to(case.result) / b.to(case.result),
    "isinf": _python(lambda a: False),
    "isnan": _python(lambda a: False),
    "le": _python(lambda a, b: a <= b),
    "logical_and": _python(lambda a, b: a != 0 and b != 0),
    "logical_not": _python(lambda a: a == 0),
    "logical_or": _python(lambda a, b: a != 0 or b != 0),
    "logical_xor": _python(lambda a, b: (a != 0) != (b != 0)),
    "lshift": _python(_shifted_left),
    "lt": _python(lambda a, b: a < b),
    "maximum": _python(lambda a, b: max(a, b)),
    "minimum": _python(lambda a, b: min(a, b)),
    "mod": _python(lambda a, b: a - _truncated(a, b) * b if b else 0),
    "mul": _python(lambda a, b: a * b),
    "mul_rn": _python(lambda a, b: a * b),
    "ne": _python(lambda a, b: a != b),
    "neg": _python(lambda a: -a),
    "or_": _python(lambda a, b: a | b),
    "pow": _python(_power),
    "relu": _python(lambda a: max(a, 0)),
    "remainder": _python(lambda a, b: a % b if b else 0),
    "rshift": _python(_shifted_right),
    "sign": _python(lambda a: (a > 0) - (a < 0)),
    "signbit": _python(lambda a: a < 0),
    "square": _python(lambda a: a * a),
    "sub": _python(lambda a, b: a - b),
    "truncdiv": _python(_truncated),
    "xor": _python(lambda a, b: a ^ b),
}
