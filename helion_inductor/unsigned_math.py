"""Arithmetic on unsigned tensors, most of which torch implements for uint8 only."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

SIGNED = {
    torch.uint8: torch.int8,
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}
_WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64}
_SIGN_BIT = -(2**63)


def ring(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`fn` (sum, product, left shift, complement: what wraps alike for either sign) for unsigned operands too."""

    def wrapped(*operands: Tensor) -> Tensor:
        dtype = operands[0].dtype
        signed = SIGNED.get(dtype)
        return fn(*operands) if signed is None else fn(*(x.view(signed) for x in operands)).view(dtype)

    return wrapped


def to_ordered(x: Tensor) -> Tensor:
    """The values in a dtype that torch can compare, in the same order (uint64 is moved down by 2**63)."""
    if x.dtype == torch.uint64:
        return x.view(torch.int64) ^ _SIGN_BIT
    return x.to(_WIDER.get(x.dtype, x.dtype))


def from_ordered(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Undo `to_ordered`; `dtype` is what the values had before."""
    return (x ^ _SIGN_BIT).view(torch.uint64) if dtype == torch.uint64 else x.to(dtype)


def ordered(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`fn` (comparisons, maximum, minimum: what needs only an order) for unsigned operands too."""

    def wrapped(*operands: Tensor) -> Tensor:
        result = fn(*map(to_ordered, operands))
        return result if result.dtype == torch.bool else from_ordered(result, operands[0].dtype)

    return wrapped


def truncdiv_unsigned(a: Tensor, b: Tensor) -> Tensor:
    """Quotient of unsigned tensors of one dtype; no divisor may be 0."""
    if a.dtype != torch.uint64:
        wide = torch.int64 if a.dtype == torch.uint32 else torch.int32
        return torch.div(a.to(wide), b.to(wide), rounding_mode="trunc").to(a.dtype)
    n, d = a.view(torch.int64), b.view(torch.int64)
    small = torch.where(d > 0, d, 1)  # as signed numbers, divisors of 2**63 and more are negative
    quotient = torch.div((n >> 1) & (2**63 - 1), small, rounding_mode="trunc") << 1
    quotient = quotient + _not_below(n - quotient * small, small)
    return torch.where(d > 0, quotient, _not_below(n, d)).view(torch.uint64)


def remainder_unsigned(a: Tensor, b: Tensor) -> Tensor:
    """Remainder of unsigned tensors of one dtype; no divisor may be 0."""
    return ring(lambda n, q, d: n - q * d)(a, truncdiv_unsigned(a, b), b)


def shift_right_unsigned(a: Tensor, amount: Tensor) -> Tensor:
    """Logical right shift; `amount` is between 0 and the width of a's dtype."""
    if a.dtype != torch.uint64:
        wide = torch.int64 if a.dtype == torch.uint32 else torch.int32
        return torch.bitwise_right_shift(a.to(wide), amount.to(wide)).to(a.dtype)
    n, shift = a.view(torch.int64), amount.view(torch.int64)
    halved = (n >> 1) & (2**63 - 1)
    shifted = torch.bitwise_right_shift(halved, torch.clamp(shift - 1, min=0))
    return torch.where(shift == 0, n, shifted).view(torch.uint64)


def _not_below(a: Tensor, b: Tensor) -> Tensor:
    """1 where a >= b as unsigned 64-bit numbers held in int64, else 0."""
    return ((a ^ _SIGN_BIT) >= (b ^ _SIGN_BIT)).to(torch.int64)
