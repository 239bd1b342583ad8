"""Orthogonal polynomials for GPU kernels: f32 or f64 blocks or scalars x, and degrees n of the same dtype, rounded towards zero.

All follow from two first values by a recurrence of three terms (DLMF 18.9). Values are those of eager PyTorch: 0 for a negative
degree and for one that is not finite; inside (-1, 1), where |values| stay small, Chebyshev's are computed from cosines beyond
a low degree (DLMF 18.5(i)). Time is linear in the greatest degree of a block; a recurrence that has overflowed to NaN ends early.
Under Triton's interpreter `device_interpret` stands in for this file.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from helion_inductor.runtime.device_math import _anywhere, _divide


@triton.jit
def _degree(n):
    return tl.where((n > -1.0) & (n < 9.2e18), libdevice.trunc(n), -1.0)


@triton.jit
def _recurrence(x, n, one, kind: tl.constexpr):
    """The value at degree n (whole, at least 0) of the polynomials that begin with 1 and `one`; anything for negative n."""
    before = tl.full(x.shape, 1.0, x.dtype)
    value = one
    k = tl.full([], 1, tl.int64)
    more = (n > 1.0) & (value == value)
    while _anywhere(more):
        order = k.to(x.dtype)
        if kind == "chebyshev":
            step = 2.0 * x * value - before
        elif kind == "hermite_h":
            step = 2.0 * (x * value - order * before)
        elif kind == "hermite_he":
            step = x * value - order * before
        elif kind == "laguerre":
            step = _divide((2.0 * order + (1.0 - x)) * value - order * before, order + 1.0)
        else:
            step = _divide((2.0 * order + 1.0) * x * value - order * before, order + 1.0)
        before = tl.where(more, value, before)
        value = tl.where(more, step, value)
        k += 1
        more = (k.to(x.dtype) < n) & (value == value)
    value = tl.where(n == 0, 1.0, value)
    return tl.where(n < 0, 0.0, value)


@triton.jit
def _chebyshev(x, n, one, inside, least: tl.constexpr, right, left):
    """`inside` is the form by cosines, for degrees above `least`; `right` and `left` are the values at 1 and -1."""
    edge = tl.abs(x) == 1.0
    by_cosines = (n > least) & (tl.abs(x) < 1.0)
    # Where another form holds, there is nothing to step through.
    stepped = _recurrence(x, tl.where(by_cosines | edge, tl.minimum(n, 0.0), n), one, "chebyshev")
    return tl.where(by_cosines, inside, tl.where(edge & (n >= 0), tl.where(x > 0, right, left), stepped))


@triton.jit
def _alternating(n):
    """1 for even n, -1 for odd."""
    half = 0.5 * n
    return tl.where(tl.floor(half) == half, 1.0, -1.0).to(n.dtype)


# The angle is that of |x|, because beside -1 the arc cosine has no digits left to tell its distance from pi: signs alternate
# for negative x, and the third and fourth kind change places.


@triton.jit
def _even_quotient(x, n):
    angle = libdevice.acos(tl.minimum(tl.abs(x), 1.0))
    return libdevice.cos((n + 0.5) * angle) / libdevice.cos(0.5 * angle)


@triton.jit
def _odd_quotient(x, n):
    angle = libdevice.acos(tl.minimum(tl.abs(x), 1.0))
    return libdevice.sin((n + 0.5) * angle) / libdevice.sin(0.5 * angle)


@triton.jit
def chebyshev_polynomial_t(x, n):
    """Of the first kind: cos(n a), where x = cos(a)."""
    x, n = tl.broadcast(x, _degree(n))
    turn = _alternating(n)
    inside = libdevice.cos(n * libdevice.acos(tl.minimum(tl.abs(x), 1.0)))
    return _chebyshev(x, n, x, tl.where(x < 0, turn * inside, inside), 6, 1.0, turn)


@triton.jit
def chebyshev_polynomial_u(x, n):
    """Of the second kind: sin((n + 1) a) / sin(a)."""
    x, n = tl.broadcast(x, _degree(n))
    turn = _alternating(n)
    angle = libdevice.acos(tl.minimum(tl.abs(x), 1.0))
    inside = libdevice.sin((n + 1.0) * angle) / libdevice.sin(angle)
    return _chebyshev(x, n, 2.0 * x, tl.where(x < 0, turn * inside, inside), 8, n + 1.0, (n + 1.0) * turn)


@triton.jit
def chebyshev_polynomial_v(x, n):
    """Of the third kind: cos((n + 1/2) a) / cos(a / 2)."""
    x, n = tl.broadcast(x, _degree(n))
    turn = _alternating(n)
    inside = tl.where(x < 0, turn * _odd_quotient(x, n), _even_quotient(x, n))
    return _chebyshev(x, n, 2.0 * x - 1.0, inside, 8, 1.0, (2.0 * n + 1.0) * turn)


@triton.jit
def chebyshev_polynomial_w(x, n):
    """Of the fourth kind: sin((n + 1/2) a) / sin(a / 2)."""
    x, n = tl.broadcast(x, _degree(n))
    turn = _alternating(n)
    inside = tl.where(x < 0, turn * _even_quotient(x, n), _odd_quotient(x, n))
    return _chebyshev(x, n, 2.0 * x + 1.0, inside, 8, 2.0 * n + 1.0, turn)


@triton.jit
def shifted_chebyshev_polynomial_t(x, n):
    return chebyshev_polynomial_t(2.0 * x - 1.0, n)


@triton.jit
def shifted_chebyshev_polynomial_u(x, n):
    return chebyshev_polynomial_u(2.0 * x - 1.0, n)


@triton.jit
def shifted_chebyshev_polynomial_v(x, n):
    return chebyshev_polynomial_v(2.0 * x - 1.0, n)


@triton.jit
def shifted_chebyshev_polynomial_w(x, n):
    return chebyshev_polynomial_w(2.0 * x - 1.0, n)


@triton.jit
def _hermite_degree(n):
    # Eager gives NaN above a degree at which values overflow, and need not step there.
    return tl.where(n > _hermite_limit(n), 0.0, n)


@triton.jit
def _hermite_limit(n):
    if n.dtype == tl.float64:
        return 512
    else:
        return 128


@triton.jit
def hermite_polynomial_h(x, n):
    """The physicists' polynomials; NaN for degrees above 128 in f32 and 512 in f64."""
    x, n = tl.broadcast(x, _degree(n))
    value = _recurrence(x, _hermite_degree(n), 2.0 * x, "hermite_h")
    return tl.where(n > _hermite_limit(n), float("nan"), value)


@triton.jit
def hermite_polynomial_he(x, n):
    """The probabilists' polynomials; NaN for degrees above 128 in f32 and 512 in f64."""
    x, n = tl.broadcast(x, _degree(n))
    value = _recurrence(x, _hermite_degree(n), x, "hermite_he")
    return tl.where(n > _hermite_limit(n), float("nan"), value)


@triton.jit
def laguerre_polynomial_l(x, n):
    x, n = tl.broadcast(x, _degree(n))
    return _recurrence(x, tl.where(x == 0, tl.minimum(n, 0.0), n), 1.0 - x, "laguerre")  # 1 at 0 whatever the degree


@triton.jit
def legendre_polynomial_p(x, n):
    x, n = tl.broadcast(x, _degree(n))
    edge = tl.abs(x) == 1.0
    stepped = _recurrence(x, tl.where(edge, tl.minimum(n, 0.0), n), x, "legendre")
    return tl.where(edge & (n >= 0) & (x < 0), _alternating(n), stepped)
