"""Scalar operations for GPU kernels that plain Triton lacks, or has with other rounding, NaN or sign than eager.

Operands are blocks or scalars of f32 or f64 where not said otherwise; operands of two have one dtype. Under Triton's
interpreter `device_interpret` stands in for this file.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

# ---- integers; operands may also be Python ints (`tl.core` has what `tl` of older versions lacks)


@triton.jit
def _magnitude(x):
    # As an unsigned number even the least integer has one. Division must not see negative operands at all: Triton's
    # divisibility analysis takes their quotients for rounded down, and merges neighbours that differ.
    unsigned: tl.constexpr = tl.core.get_int_dtype(x.dtype.primitive_bitwidth, signed=False)
    return tl.abs(x).to(unsigned, bitcast=True)


@triton.jit
def _or_one(x):
    # Division by zero is undefined to the compiler, which may then drop what depends on it.
    return tl.where(x == 0, 1, x)


@triton.jit
def _signed(x):
    return x.to(tl.core.get_int_dtype(x.dtype.primitive_bitwidth, signed=True), bitcast=True)


@triton.jit
def trunc_div(a, b):
    """Integer quotient rounded towards zero; x / 0 is x."""
    a = tl.core.to_tensor(a)
    b = tl.core.to_tensor(b)
    if a.dtype.is_int_signed():
        quotient = _signed(_magnitude(a) // _or_one(_magnitude(b)))
        return tl.where((a < 0) != (b < 0), -quotient, quotient)
    else:
        return a // _or_one(b)


@triton.jit
def trunc_mod(a, b):
    """Integer remainder with the sign of the dividend; x % 0 is 0."""
    a = tl.core.to_tensor(a)
    b = tl.core.to_tensor(b)
    if a.dtype.is_int_signed():
        rest = _signed(_magnitude(a) % _or_one(_magnitude(b)))
        return tl.where(a < 0, -rest, rest)
    else:
        return a % _or_one(b)


@triton.jit
def floor_div(a, b):
    """Integer quotient rounded down; x / 0 is x. For indices that may be negative, too."""
    a = tl.core.to_tensor(a)
    b = tl.core.to_tensor(b)
    if a.dtype.is_int_signed():
        dividend = _magnitude(a)
        divisor = _or_one(_magnitude(b))
        quotient = dividend // divisor
        opposite = (a < 0) != (b < 0)
        quotient = _signed(tl.where(opposite & (quotient * divisor != dividend), quotient + 1, quotient))
        return tl.where(opposite, -quotient, quotient)
    else:
        return a // _or_one(b)


@triton.jit
def floor_mod(a, b):
    """Integer remainder with the sign of the divisor; x % 0 is 0."""
    a = tl.core.to_tensor(a)
    b = tl.core.to_tensor(b)
    if a.dtype.is_int_signed():
        divisor = _or_one(_magnitude(b))
        rest = _magnitude(a) % divisor
        opposite = (a < 0) != (b < 0)
        rest = _signed(tl.where(opposite & (rest != 0), divisor - rest, rest))
        return tl.where(b < 0, -rest, rest)
    else:
        return a % _or_one(b)


@triton.jit
def int_pow(base, exponent):
    """Integer power, wrapping; a negative exponent gives 0 unless the base is 1 or -1."""
    base, exponent = tl.broadcast(base, exponent)
    result = tl.full(base.shape, 1, base.dtype)
    square = base
    rest = exponent
    for _ in range(exponent.dtype.primitive_bitwidth):
        result = tl.where((rest & 1) != 0, result * square, result)
        square = square * square
        rest = rest >> 1
    if base.dtype.is_int_signed():
        parity = 1 - ((exponent & 1) << 1)
        inverse = tl.where(base == 1, 1, tl.where(base == -1, parity, 0))
        result = tl.where(exponent < 0, inverse, result)
    return result


@triton.jit
def left_shift(a, b):
    """a << b for integers; 0 where b is negative or not below the width."""
    width: tl.constexpr = a.dtype.primitive_bitwidth
    fits = (b >= 0) & (b < width)
    return tl.where(fits, a << tl.where(fits, b, 0).to(a.dtype), 0)


@triton.jit
def right_shift(a, b):
    """a >> b for integers, filling with the sign; only sign is left where b is negative or not below the width."""
    width: tl.constexpr = a.dtype.primitive_bitwidth
    fits = (b >= 0) & (b < width)
    if a.dtype.is_int_signed():
        return a >> tl.where(fits, b, width - 1).to(a.dtype)
    else:
        return tl.where(fits, a >> tl.where(fits, b, 0).to(a.dtype), 0)


# ---- sign, order, bits


@triton.jit
def maximum(a, b):
    """The greater of two floats or integers; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(a, b):
    """The lesser of two floats or integers; NaN if either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def relu(x):
    """x where not negative, else 0; floats or integers. NaN and -0.0 pass."""
    return tl.where(x < 0, 0, x)


@triton.jit
def sign(x):
    """-1, 0 or 1 in the dtype of x, a float or an integer; 0 for NaN."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def copysign(x, y):
    return libdevice.copysign(x, y)


@triton.jit
def nextafter(x, y):
    """The number beside x on the way to y."""
    # On the bits: libdevice's may flush the smallest numbers to zero.
    bits_dtype: tl.constexpr = tl.core.get_int_dtype(x.dtype.primitive_bitwidth, signed=True)
    bits = x.to(bits_dtype, bitcast=True)
    away = (x < y) == (x > 0)
    stepped = tl.where(away, bits + 1, bits - 1)
    negative_zero = tl.full([], 1, bits_dtype) << (x.dtype.primitive_bitwidth - 1)
    least = tl.where(y > 0, 1, negative_zero | 1)
    stepped = tl.where(x == 0, least, stepped).to(x.dtype, bitcast=True)
    result = tl.where(x == y, y, stepped)
    return tl.where((x != x) | (y != y), x + y, result)


@triton.jit
def frexp(x):
    """(mantissa, exponent): x == mantissa * 2**exponent, 0.5 <= |mantissa| < 1; zero, inf and NaN have exponent 0."""
    double: tl.constexpr = x.dtype == tl.float64
    bits_dtype: tl.constexpr = tl.int64 if double else tl.int32
    digits: tl.constexpr = 52 if double else 23
    ones: tl.constexpr = 0x7FF if double else 0xFF
    bias: tl.constexpr = 1022 if double else 126
    raised = x * (2.0**digits)  # makes denormals normal
    denormal = (tl.abs(raised).to(bits_dtype, bitcast=True) >> digits) <= digits
    bits = tl.where(denormal, raised, x).to(bits_dtype, bitcast=True)
    field = (bits >> digits) & ones
    half = tl.full([], bias, bits_dtype) << digits
    mask = tl.full([], ones, bits_dtype) << digits
    mantissa = ((bits & ~mask) | half).to(x.dtype, bitcast=True)
    exponent = (field - bias - tl.where(denormal, digits, 0)).to(tl.int32)
    special = (x == 0) | (field == ones)
    return tl.where(special, x, mantissa), tl.where(special, 0, exponent)


@triton.jit
def frexp_mantissa(x):
    mantissa, _ = frexp(x)
    return mantissa


@triton.jit
def frexp_exponent(x):
    _, exponent = frexp(x)
    return exponent


@triton.jit
def ldexp(x, n):
    """x * 2**n for an integer n, rounded once."""
    if x.dtype == tl.float64:
        return libdevice.ldexp(x, tl.minimum(tl.maximum(n.to(tl.int64), -2200), 2200).to(tl.int32))
    else:
        power = tl.minimum(tl.maximum(n.to(tl.int64), -400), 400) + 1023
        return (x.to(tl.float64) * (power << 52).to(tl.float64, bitcast=True)).to(tl.float32)


@triton.jit
def narrow(x, dtype: tl.constexpr):
    """f32 rounded to a half or 8-bit float dtype of memory."""
    if dtype == tl.float8e5:
        # The hardware's conversion turns what is too great into the greatest number; eager turns it into infinity.
        bits = x.to(dtype).to(tl.uint8, bitcast=True)
        bits = tl.where(tl.abs(x) >= 61440.0, (bits & 0x80) | 0x7C, bits)
        return bits.to(dtype, bitcast=True)
    else:
        return x.to(dtype)


@triton.jit
def widen(x):
    """A half or 8-bit float of memory as f32."""
    return x.to(tl.float32)


@triton.jit
def _anywhere(condition):
    """Whether a bool scalar, or some element of a bool block, is true: a scalar, to branch on."""
    if condition.type.is_block():
        return tl.max(condition.to(tl.int32), axis=None) != 0
    else:
        return condition


# ---- division and its kin


@triton.jit
def _divide(a, b):
    if a.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def fmod(a, b):
    return libdevice.fmod(a, b)


@triton.jit
def remainder(a, b):
    """Float remainder with the sign of the divisor."""
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)


@triton.jit
def floor_divide(a, b):
    """Float quotient rounded down, exact where a / b rounds up to a whole number; NaN for infinite a."""
    quotient = _divide(a, b)
    rest = libdevice.fmod(a, b)
    whole = _divide(a - rest, b)
    whole = tl.where((rest != 0) & ((b < 0) != (rest < 0)), whole - 1, whole)
    floor = tl.floor(whole)
    floor = tl.where(whole - floor > 0.5, floor + 1, floor)
    result = tl.where(whole != 0, floor, libdevice.copysign(tl.zeros_like(quotient), quotient))
    return tl.where(b == 0, quotient, result)


@triton.jit
def mul_rn(a, b):
    """Product that is never fused with a following sum."""
    return libdevice.mul_rn(a, b)


@triton.jit
def fma(a, b, c):
    return tl.fma(a, b, c)


@triton.jit
def pow(a, b):
    return libdevice.pow(a, b)


@triton.jit
def hypot(a, b):
    return libdevice.hypot(a, b)


@triton.jit
def rsqrt(x):
    return libdevice.rsqrt(x)


@triton.jit
def round(x):
    """To the nearest whole number, halves to even."""
    return libdevice.nearbyint(x)


@triton.jit
def trunc(x):
    return libdevice.trunc(x)
