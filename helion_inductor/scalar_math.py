"""What each scalar operation means, as a formula on CPU tensors.

`FORMULAS[name](*operands, *attributes)` is the meaning of the opcode `name` (table: `helion_inductor.ir.ops`). The IR
interpreter evaluates programs with it, and under Triton's interpreter the device functions are these very formulas, so
the two agree to the bit. Operands are tensors of compute dtypes (f32, f64, integers, bool), already promoted, of shapes
that broadcast; the result has the broadcast shape.

Meaning is eager PyTorch's wherever eager PyTorch has one. Two things it leaves open are fixed here: dividing an integer
by zero gives `x // 0 == x` and `x % 0 == 0` (eager raises or traps), and 16- to 64-bit unsigned integers, of which
eager knows little, behave as in C.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType

import torch
from torch import Tensor

from helion_inductor.random_math import rand, randint64, randn
from helion_inductor.unsigned_math import SIGNED, ordered, remainder_unsigned, ring, shift_right_unsigned, truncdiv_unsigned

_UNSIGNED = frozenset({torch.uint8, torch.uint16, torch.uint32, torch.uint64})


def compute_dtype(memory_dtype: torch.dtype) -> torch.dtype:
    """The dtype in which values of a buffer of `memory_dtype` are computed: f32 for half and 8-bit floats."""
    return torch.float32 if memory_dtype.is_floating_point and memory_dtype.itemsize < 4 else memory_dtype


# ---- integer division: one rounding to zero, the other forms follow from it


def truncdiv(a: Tensor, b: Tensor) -> Tensor:
    """Quotient rounded towards zero; integers wrap (INT_MIN / -1 == INT_MIN) and never trap."""
    if a.is_floating_point():
        return torch.div(a, b, rounding_mode="trunc")
    a, b = _divisible(a, b)
    if a.dtype in _UNSIGNED:
        return truncdiv_unsigned(a, b)
    # The processor traps on INT_MIN / -1.
    quotient = torch.div(a, torch.where(b == -1, 1, b), rounding_mode="trunc")
    return torch.where(b == -1, -a, quotient)


def mod(a: Tensor, b: Tensor) -> Tensor:
    """Remainder with the sign of the dividend, as in C."""
    if a.is_floating_point():
        return torch.fmod(a, b)
    a, b = _divisible(a, b)
    return remainder_unsigned(a, b) if a.dtype in _UNSIGNED else a - truncdiv(a, b) * b


def floordiv(a: Tensor, b: Tensor) -> Tensor:
    """Quotient rounded down."""
    if a.is_floating_point():
        return torch.div(a, b, rounding_mode="floor")
    a, b = _divisible(a, b)
    if a.dtype in _UNSIGNED:
        return truncdiv_unsigned(a, b)
    rest = mod(a, b)
    return truncdiv(a, b) - ((rest != 0) & ((rest < 0) != (b < 0))).to(a.dtype)


def remainder(a: Tensor, b: Tensor) -> Tensor:
    """Remainder with the sign of the divisor, as in Python."""
    if a.is_floating_point():
        return torch.remainder(a, b)
    rest = mod(a, b)
    return rest if rest.dtype in _UNSIGNED else torch.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


def _divisible(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    dtype = torch.promote_types(a.dtype, b.dtype)
    return a.to(dtype), ring(lambda d: torch.where(d == 0, 1, d))(b).to(dtype)


def int_truediv(a: Tensor, b: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Integers divided in floating point: each is rounded to `dtype` first, as eager does."""
    return a.to(dtype) / b.to(dtype)


# ---- bits


def left_shift(a: Tensor, b: Tensor) -> Tensor:
    """`a << b`; 0 where `b` is negative or not below the width."""
    return ring(torch.bitwise_left_shift)(a, _shift_amount(a, b))


def right_shift(a: Tensor, b: Tensor) -> Tensor:
    """`a >> b`, arithmetic for signed `a`; all bits are the sign (0 if unsigned) for a negative or too great `b`."""
    amount = _shift_amount(a, b)
    return shift_right_unsigned(a, amount) if a.dtype in _UNSIGNED else torch.bitwise_right_shift(a, amount)


def _shift_amount(a: Tensor, b: Tensor) -> Tensor:
    width = 8 * a.dtype.itemsize
    wide = b.to(torch.int64)  # a uint64 amount of 2**63 or more turns negative: out of range either way
    return torch.where((wide < 0) | (wide >= width), width, wide).to(a.dtype)


def bitcast(x: Tensor, source: torch.dtype, target: torch.dtype) -> Tensor:
    """The bits that `x` has in memory as `source`, read as `target` (same width)."""
    bits = narrow(x, source)
    return (bits.view(torch.uint8) != 0) if target == torch.bool else bits.view(target).to(compute_dtype(target))


def signbit(x: Tensor) -> Tensor:
    if x.dtype in _UNSIGNED:
        return torch.zeros_like(x, dtype=torch.bool)
    return torch.signbit(x)


# ---- conversions


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Eager's `x.to(dtype)`: != 0 for bool, truncation from float to integer, wrap between integers."""
    if dtype == torch.bool:
        return x != 0
    if x.is_floating_point() and dtype in _UNSIGNED and dtype != torch.uint64:
        x = x.to(torch.int64)  # C leaves negative values open; eager wraps them
    return x.to(dtype)


def round_to(x: Tensor, low: torch.dtype) -> Tensor:
    """f32 values rounded through a half or 8-bit float dtype, as f32."""
    return narrow(x, low).to(torch.float32)


def narrow(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` as it is stored in `dtype`. float8_e4m3fn has no infinity: what is too great becomes the greatest number, as on GPUs
    (and in eager PyTorch from 2.13 on; before, it became NaN)."""
    if dtype == torch.float8_e4m3fn and x.is_floating_point():
        x = x.clamp(-448.0, 448.0)
    return x.to(dtype)


def _then_cast(rounding: Callable[[Tensor], Tensor]) -> Callable[[Tensor, torch.dtype], Tensor]:
    return lambda x, dtype: cast(rounding(x), dtype)


def _on_floats(rounding: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: rounding(x) if x.is_floating_point() else x


# ---- arithmetic that torch has no function for


def fma(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """x * y + z, rounded once; in f64 not always so in the last bit, nor where the product over- or underflows."""
    if x.dtype == torch.float64:
        return _fma64(x, y, z)
    product, addend = x.double() * y.double(), z.double()  # the product is exact
    total = product + addend
    error = _sum_error(product, addend, total)
    # Rounding to odd first makes the second rounding, to f32, the only one that shows.
    bits = total.view(torch.int64)
    even = ((bits & 1) == 0) & (error != 0) & error.isfinite()
    outward = (error > 0) == (total > 0)
    odd = torch.where(even, torch.where(outward, bits + 1, bits - 1), bits)
    return odd.view(torch.float64).float()


def _fma64(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    product = x * y
    x_high, y_high = ((134217729.0 * v) - (134217729.0 * v - v) for v in (x, y))
    x_low, y_low = x - x_high, y - y_high
    product_error = x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)
    total = product + z
    correction = product_error + _sum_error(product, z, total)
    return torch.where(correction.isfinite() & (correction != 0), total + correction, total)


def _sum_error(a: Tensor, b: Tensor, total: Tensor) -> Tensor:
    b_part = total - a
    return (a - (total - b_part)) + (b - b_part)


def int_or_float_pow(a: Tensor, b: Tensor) -> Tensor:
    """a ** b; integers wrap, and a negative exponent gives 0 unless the base is 1 or -1."""
    if a.dtype not in _UNSIGNED or a.dtype == torch.uint8:
        return torch.pow(a, b)
    dtype, exponent = a.dtype, b.to(torch.int64)
    a = a.view(SIGNED[dtype])  # products wrap alike for either sign, and not every torch multiplies and selects unsigned numbers
    result = torch.ones_like(a * exponent.to(a.dtype))
    for _ in range(64):
        result = torch.where((exponent & 1) != 0, result * a, result)
        a, exponent = a * a, (exponent >> 1) & (2**63 - 1)
    return result.view(dtype)


def ldexp(x: Tensor, n: Tensor) -> Tensor:
    """x * 2**n, rounded once."""
    shape = torch.broadcast_shapes(x.shape, n.shape)  # torch's own broadcasting resizes a result that it then warns of
    exponent = n.to(torch.int64).clamp(-2200, 2200).to(torch.int32)  # of wider ones torch's ldexp takes the low 32 bits
    return torch.ldexp(x.expand(shape), exponent.expand(shape))


def polygamma(n: Tensor, x: Tensor) -> Tensor:
    """The n-th derivative of digamma at x; `n` holds whole numbers in x's dtype."""
    result = torch.full_like(n + x, torch.nan)
    for order in set(n.flatten().tolist()):
        if order >= 0 and order == int(order):
            result = torch.where(n == order, torch.special.polygamma(int(order), x), result)
    return result


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1 in x's dtype; 0 for NaN."""
    return (x != 0).to(x.dtype) if x.dtype in _UNSIGNED else torch.sign(x)


def where(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return ring(lambda x, y: torch.where(condition != 0, x, y))(a, b)


def _isinf(x: Tensor) -> Tensor:
    return torch.isinf(x) if x.is_floating_point() else torch.zeros_like(x, dtype=torch.bool)


def _logical(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *operands: fn(*(x != 0 for x in operands))


def _from(module: ModuleType, names: str) -> dict[str, Callable[..., Tensor]]:
    return {name: getattr(module, name) for name in names.split()}


FORMULAS: Mapping[str, Callable[..., Tensor]] = MappingProxyType({
    **_from(torch, """
        acos acosh asin asinh atan atan2 atanh copysign cos cosh digamma eq erf erfc erfinv exp exp2 expm1 hypot i0
        igamma igammac lgamma log log10 log1p log2 ne nextafter reciprocal rsqrt sigmoid sin sinh sqrt tan
        tanh"""),
    **_from(torch.special, """
        airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u
        chebyshev_polynomial_v chebyshev_polynomial_w erfcx gammainc gammaincc hermite_polynomial_h
        hermite_polynomial_he i0e i1 i1e laguerre_polynomial_l legendre_polynomial_p log_ndtr modified_bessel_i0
        modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 ndtr ndtri scaled_modified_bessel_k0
        scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u
        shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w spherical_bessel_j0 zeta"""),
    "abs": lambda x: x if x.dtype in _UNSIGNED else torch.abs(x),
    "add": ring(torch.add),
    "and_": torch.bitwise_and,
    "bitcast": bitcast,
    "bitwise_and": torch.bitwise_and,
    "bitwise_left_shift": left_shift,
    "bitwise_not": ring(torch.bitwise_not),
    "bitwise_or": torch.bitwise_or,
    "bitwise_right_shift": right_shift,
    "bitwise_xor": torch.bitwise_xor,
    "cast": cast,
    "ceil": _on_floats(torch.ceil),
    "ceil_to_int": _then_cast(_on_floats(torch.ceil)),
    "div_rn": torch.true_divide,
    "floor": _on_floats(torch.floor),
    "floor_to_int": _then_cast(_on_floats(torch.floor)),
    "floordiv": floordiv,
    "fma": fma,
    "fmod": mod,
    "frexp_exponent": lambda x: torch.frexp(x).exponent,
    "frexp_mantissa": lambda x: torch.frexp(x).mantissa,
    "ge": ordered(torch.ge),
    "gt": ordered(torch.gt),
    "identity": lambda x: x,
    "int_truediv": int_truediv,
    "isinf": _isinf,
    "isnan": lambda x: x != x,
    "ldexp": ldexp,
    "le": ordered(torch.le),
    "logical_and": _logical(torch.logical_and),
    "logical_not": _logical(torch.logical_not),
    "logical_or": _logical(torch.logical_or),
    "logical_xor": _logical(torch.logical_xor),
    "lshift": left_shift,
    "lt": ordered(torch.lt),
    "maximum": ordered(torch.maximum),
    "minimum": ordered(torch.minimum),
    "mod": mod,
    "mul": ring(torch.mul),
    "mul_rn": ring(torch.mul),
    "neg": ring(torch.neg),
    "or_": torch.bitwise_or,
    "polygamma": polygamma,
    "pow": int_or_float_pow,
    "rand": rand,
    "randint64": randint64,
    "randn": randn,
    "relu": lambda x: x if x.dtype in _UNSIGNED else torch.relu(x),
    "remainder": remainder,
    "round": _on_floats(torch.round),
    "round_to": round_to,
    "round_to_int": _then_cast(_on_floats(torch.round)),
    "rshift": right_shift,
    "sign": sign,
    "signbit": signbit,
    "square": ring(torch.square),
    "sub": ring(torch.sub),
    "truediv": torch.true_divide,
    "trunc": _on_floats(torch.trunc),
    "trunc_to_int": _then_cast(_on_floats(torch.trunc)),
    "truncdiv": truncdiv,
    "where": where,
    "xor": torch.bitwise_xor,
})  # fmt: skip
