"""Reductions and inclusive scans along one axis of a block, for GPU kernels.

Values are floats, integers or bool and keep their dtype; integers wrap, floats propagate NaN. Reductions drop the axis.
For every reduction `r` there is `r_combine`, which joins the results of two stretches of the axis. Under Triton's
interpreter `device_interpret` stands in for this file.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from helion_inductor.runtime.device_math import maximum, minimum

# ---- joining two stretches


@triton.jit
def sum_combine(a, b):
    return a + b


@triton.jit
def prod_combine(a, b):
    return a * b


@triton.jit
def max_combine(a, b):
    if a.dtype == tl.int1:
        return a | b
    else:
        return maximum(a, b)


@triton.jit
def min_combine(a, b):
    if a.dtype == tl.int1:
        return a & b
    else:
        return minimum(a, b)


@triton.jit
def any_combine(a, b):
    return a | b


@triton.jit
def xor_sum_combine(a, b):
    return a ^ b


@triton.jit
def argmax_combine(v0, i0, v1, i1):
    """The greater value and its index: NaN before numbers, the least index among equals."""
    tie = (v0 == v1) | ((v0 != v0) & (v1 != v1))
    first = (v0 > v1) | ((v0 != v0) & (v1 == v1)) | (tie & (i0 <= i1))
    return tl.where(first, v0, v1), tl.where(first, i0, i1)


@triton.jit
def argmin_combine(v0, i0, v1, i1):
    """The lesser value and its index: NaN before numbers, the least index among equals."""
    tie = (v0 == v1) | ((v0 != v0) & (v1 != v1))
    first = (v0 < v1) | ((v0 != v0) & (v1 == v1)) | (tie & (i0 <= i1))
    return tl.where(first, v0, v1), tl.where(first, i0, i1)


# ---- reductions


@triton.jit
def _wide(x):
    # Shuffles between threads do not take single bits.
    if x.dtype == tl.int1:
        return x.to(tl.int32)
    else:
        return x


@triton.jit
def sum(x, axis: tl.constexpr):
    return tl.reduce(x, axis, sum_combine)


@triton.jit
def prod(x, axis: tl.constexpr):
    return tl.reduce(x, axis, prod_combine)


@triton.jit
def max(x, axis: tl.constexpr):
    return tl.reduce(_wide(x), axis, max_combine).to(x.dtype)


@triton.jit
def min(x, axis: tl.constexpr):
    return tl.reduce(_wide(x), axis, min_combine).to(x.dtype)


@triton.jit
def any(x, axis: tl.constexpr):
    """Whether an element differs from 0 (bool)."""
    return tl.reduce((x != 0).to(tl.int32), axis, any_combine) != 0


@triton.jit
def xor_sum(x, axis: tl.constexpr):
    return tl.reduce(_wide(x), axis, xor_sum_combine).to(x.dtype)


@triton.jit
def argmax_pair(x, index, axis: tl.constexpr):
    """(greatest value, `index` where it stands); NaN before numbers, the least index among equals."""
    values, positions = tl.broadcast(_wide(x), index)
    value, position = tl.reduce((values, positions), axis, argmax_combine)
    return value.to(x.dtype), position


@triton.jit
def argmin_pair(x, index, axis: tl.constexpr):
    """(least value, `index` where it stands); NaN before numbers, the least index among equals."""
    values, positions = tl.broadcast(_wide(x), index)
    value, position = tl.reduce((values, positions), axis, argmin_combine)
    return value.to(x.dtype), position


@triton.jit
def argmax(x, index, axis: tl.constexpr):
    _, position = argmax_pair(x, index, axis)
    return position


@triton.jit
def argmin(x, index, axis: tl.constexpr):
    _, position = argmin_pair(x, index, axis)
    return position


# ---- inclusive scans


@triton.jit
def cumsum(x, axis: tl.constexpr):
    return tl.associative_scan(x, axis, sum_combine)


@triton.jit
def cumprod(x, axis: tl.constexpr):
    return tl.associative_scan(x, axis, prod_combine)


@triton.jit
def logcumsumexp_combine(a, b):
    """log(exp(a) + exp(b)) without overflow; floats."""
    high = maximum(a, b)
    low = minimum(a, b)
    # Two equal infinities have no difference; one minus the other would be NaN.
    alike = (high == low) & (tl.abs(high) == float("inf"))
    return tl.where(alike, high, high + libdevice.log1p(libdevice.exp(low - high)))


@triton.jit
def logcumsumexp(x, axis: tl.constexpr):
    return tl.associative_scan(x, axis, logcumsumexp_combine)


@triton.jit
def cummax_combine(v0, i0, v1, i1):
    """The greater value and its index, the later one among equals; a NaN holds on until the next NaN."""
    second = (v1 >= v0) | (v1 != v1)
    return tl.where(second, v1, v0), tl.where(second, i1, i0)


@triton.jit
def cummin_combine(v0, i0, v1, i1):
    """The lesser value and its index, the later one among equals; a NaN holds on until the next NaN."""
    second = (v1 <= v0) | (v1 != v1)
    return tl.where(second, v1, v0), tl.where(second, i1, i0)


@triton.jit
def cummax(x, index, axis: tl.constexpr):
    """(running maximum, `index` where it was last met)."""
    values, positions = tl.broadcast(_wide(x), index)
    value, position = tl.associative_scan((values, positions), axis, cummax_combine)
    return value.to(x.dtype), position


@triton.jit
def cummin(x, index, axis: tl.constexpr):
    """(running minimum, `index` where it was last met)."""
    values, positions = tl.broadcast(_wide(x), index)
    value, position = tl.associative_scan((values, positions), axis, cummin_combine)
    return value.to(x.dtype), position


# ---- checking


@triton.jit
def device_assert(condition, message: tl.constexpr):
    """Stop the kernel with `message` where `condition` is false; compiled in only under the launch option `debug`."""
    tl.device_assert(condition, message)


@triton.jit
def dot(a, b, acc):
    """`acc` + the matrix product of `a` [m, k] and `b` [k, n], halves both, summed in f32."""
    return tl.dot(a, b, acc)
