"""Elementary, special and random functions for GPU kernels, of f32 or f64 blocks or scalars.

Under Triton's interpreter `device_interpret` stands in for this file.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

# ---- exponentials and logarithms


@triton.jit
def exp(x):
    return libdevice.exp(x)


@triton.jit
def exp2(x):
    return libdevice.exp2(x)


@triton.jit
def expm1(x):
    return libdevice.expm1(x)


@triton.jit
def log(x):
    return libdevice.log(x)


@triton.jit
def log2(x):
    return libdevice.log2(x)


@triton.jit
def log10(x):
    return libdevice.log10(x)


@triton.jit
def log1p(x):
    return libdevice.log1p(x)


@triton.jit
def sigmoid(x):
    bottom = 1.0 + libdevice.exp(-x)
    if x.dtype == tl.float64:
        return 1.0 / bottom
    else:
        return tl.div_rn(1.0, bottom)


# ---- circular and hyperbolic functions


@triton.jit
def sin(x):
    return libdevice.sin(x)


@triton.jit
def cos(x):
    return libdevice.cos(x)


@triton.jit
def tan(x):
    return libdevice.tan(x)


@triton.jit
def asin(x):
    return libdevice.asin(x)


@triton.jit
def acos(x):
    return libdevice.acos(x)


@triton.jit
def atan(x):
    return libdevice.atan(x)


@triton.jit
def atan2(y, x):
    return libdevice.atan2(y, x)


@triton.jit
def sinh(x):
    return libdevice.sinh(x)


@triton.jit
def cosh(x):
    return libdevice.cosh(x)


@triton.jit
def tanh(x):
    return libdevice.tanh(x)


@triton.jit
def asinh(x):
    return libdevice.asinh(x)


@triton.jit
def acosh(x):
    return libdevice.acosh(x)


@triton.jit
def atanh(x):
    return libdevice.atanh(x)


# ---- special functions


@triton.jit
def erf(x):
    return libdevice.erf(x)


@triton.jit
def erfc(x):
    return libdevice.erfc(x)


@triton.jit
def erfcx(x):
    return libdevice.erfcx(x)


@triton.jit
def erfinv(x):
    return libdevice.erfinv(x)


@triton.jit
def ndtr(x):
    """Distribution function of the standard normal."""
    z = x * 0.7071067811865476
    return tl.where(tl.abs(z) < 0.7071067811865476, 0.5 + 0.5 * libdevice.erf(z), 0.5 * libdevice.erfc(-z))


@triton.jit
def log_ndtr(x):
    """Logarithm of `ndtr`."""
    z = x * 0.7071067811865476
    left = libdevice.log(libdevice.erfcx(-z) * 0.5) - z * z
    return tl.where(x < -1.0, left, libdevice.log1p(-libdevice.erfc(z) * 0.5))


@triton.jit
def ndtri(x):
    """Inverse of `ndtr`."""
    return libdevice.normcdfinv(x)


@triton.jit
def lgamma(x):
    return libdevice.lgamma(x)


@triton.jit
def i0(x):
    return libdevice.cyl_bessel_i0(x)


@triton.jit
def i1(x):
    return libdevice.cyl_bessel_i1(x)


@triton.jit
def bessel_j0(x):
    return libdevice.j0(x)


@triton.jit
def bessel_j1(x):
    return libdevice.j1(x)


@triton.jit
def bessel_y0(x):
    return libdevice.y0(x)


@triton.jit
def bessel_y1(x):
    return libdevice.y1(x)


# ---- random numbers: int64 seeds, integer offsets of which the low 32 bits count


@triton.jit
def rand(seed, offset):
    """Uniform f32 in [0, 1): word 0 of counter `offset`."""
    return tl.rand(seed, offset.to(tl.uint32))


@triton.jit
def randn(seed, offset):
    """Standard normal f32 from words 0 and 1 of counter `offset`."""
    return tl.randn(seed, offset.to(tl.uint32))


@triton.jit
def _lane(offset, x0, x1, x2, x3):
    low = tl.where((offset & 1) == 0, x0, x1)
    high = tl.where((offset & 1) == 0, x2, x3)
    return tl.where((offset & 2) == 0, low, high)


@triton.jit
def rand_lanes(seed, offset):
    """Uniform f32 in [0, 1): word `offset % 4` of counter `offset // 4`."""
    offset = offset.to(tl.uint32)
    x0, x1, x2, x3 = tl.rand4x(seed, offset >> 2)
    return _lane(offset, x0, x1, x2, x3)


@triton.jit
def randn_lanes(seed, offset):
    """Standard normal f32: number `offset % 4` of the four that counter `offset // 4` gives."""
    offset = offset.to(tl.uint32)
    x0, x1, x2, x3 = tl.randn4x(seed, offset >> 2)
    return _lane(offset, x0, x1, x2, x3)


@triton.jit
def randint64(seed, offset, low, high):
    """int64 in [low, high): words 0 and 1 of counter `offset`, modulo the size of the range."""
    word0, word1, _, _ = tl.randint4x(seed, offset.to(tl.uint32))
    bits = word0.to(tl.uint64) | (word1.to(tl.uint64) << 32)
    size = (high.to(tl.int64) - low.to(tl.int64)).to(tl.uint64)
    return (bits % tl.where(size == 0, 1, size)).to(tl.int64) + low.to(tl.int64)
