"""Digamma, polygamma and Hurwitz's zeta function for GPU kernels, of f32 or f64 blocks or scalars.

Under Triton's interpreter `device_interpret` stands in for this file.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from helion_inductor.runtime.device_math import _anywhere

# B(2k) / (2k) for k = 7, 6, ..., 1; B are Bernoulli's numbers.
_DIGAMMA_TERMS = tl.constexpr((1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12))
# B(2k) / (2k)! for k = 1, 2, ..., 12.
_ZETA_TERMS = tl.constexpr((
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600, -3617 / 10670622842880000,
    43867 / 5109094217170944000, -174611 / 802857662698291200000, 77683 / 14101100039391805440000,
    -236364091 / 1693824136731743669452800000,
))  # fmt: skip


@triton.jit
def digamma(x):
    """Derivative of lgamma: stepped up to 10 or more, then the asymptotic series (DLMF 5.5.2, 5.11.2); 5.5.4 left of 0.

    Infinite at 0, with the sign opposite to the zero's; NaN at negative whole numbers.
    """
    y = tl.where(x < 0, 1.0 - x, x)
    total = tl.zeros_like(x)
    for _ in range(10):
        low = y < 10.0
        total -= tl.where(low, 1.0 / y, 0.0)
        y += tl.where(low, 1.0, 0.0)
    inverse = 1.0 / y
    square = inverse * inverse
    series = tl.zeros_like(x)
    for k in tl.static_range(7):
        series = series * square + _DIGAMMA_TERMS[k]
    value = total + (libdevice.log(y) - 0.5 * inverse - square * series)
    nearest = libdevice.nearbyint(x)
    reflected = value - 3.141592653589793 / libdevice.tan(3.141592653589793 * (x - nearest))
    reflected = tl.where(x == nearest, float("nan"), reflected)
    return tl.where(x < 0, reflected, value)


@triton.jit
def _zeta_of_positive(s, q):
    """Sum of (q + k)**-s over k = 0, 1, ..., f64, q > 0, s > 1: nine terms, and Euler and Maclaurin's formula for the rest."""
    total = libdevice.pow(q, -s)
    for k in range(1, 9):
        total += libdevice.pow(q + k, -s)
    base = q + 9.0
    power = libdevice.pow(base, -s)
    # Below 2**-53 of the sum the rest does not show; its terms may then overflow, or grow without bound.
    more = power > 1.1e-16 * total
    total += tl.where(more, power * (base / (s - 1.0) + 0.5), 0.0)
    factor = power * s / base
    for k in tl.static_range(12):
        term = factor * _ZETA_TERMS[k]
        more = more & (tl.abs(term) > 1.1e-16 * total)
        total += tl.where(more, term, 0.0)
        factor *= ((s + (2 * k + 1)) / base) * ((s + (2 * k + 2)) / base)
    return total


@triton.jit
def zeta(s, q):
    """Hurwitz's zeta function, the sum of (q + k)**-s over k = 0, 1, ... (DLMF 25.11.1, 25.11.28).

    Infinite for s = 1 and for q = 0, -1, ...; NaN for s < 1, for infinite q (as in eager), and for other negative q unless s is
    whole. Computed in f64, because f32 powers that GPUs flush to zero may add up to a number that is not small.
    """
    return _zeta(s.to(tl.float64), q.to(tl.float64)).to(q.dtype)


@triton.jit
def _zeta(s, q):
    s, q = tl.broadcast(s, q)
    below = tl.floor(q)
    negative = q <= 0
    even = tl.floor(0.5 * s) == 0.5 * s
    # Terms of negative base are, up to the sign, those from `ceil(q) - q` up to but not including `1 - q`.
    fraction = tl.where(negative, q - below, q)
    total = _zeta_of_positive(s, fraction)
    if _anywhere(negative):
        first = tl.where(negative, (below + 1.0) - q, 1.0)
        last = tl.where(negative, 1.0 - q, 1.0)
        turned = _zeta_of_positive(s, first) - _zeta_of_positive(s, last)
        total += tl.where(negative, tl.where(even, turned, -turned), 0.0)
    pole = negative & (q == below)
    total = tl.where((negative & (s != tl.floor(s))) | (q == float("inf")), float("nan"), total)
    total = tl.where(pole, float("inf"), total)
    return tl.where(s == 1.0, float("inf"), tl.where(s < 1.0, float("nan"), total))


@triton.jit
def polygamma(n, x):
    """The n-th derivative of digamma: (-1)**(n + 1) n! zeta(n + 1, x) for n > 0 (DLMF 5.15.1, 25.11.12); n is whole."""
    n, x = tl.broadcast(n, x)
    even = tl.floor(0.5 * n) == 0.5 * n
    value = libdevice.tgamma(n + 1.0) * zeta(n + 1.0, x)
    value = tl.where(even, -value, value)
    value = tl.where(n < 0, float("nan"), value)
    return tl.where(n == 0, digamma(x), value)
