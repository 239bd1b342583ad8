"""The random numbers of a kernel, on CPU tensors: Philox4x32-10 counters turned into numbers the way Triton does.

A seed (int64) is the key, an offset the counter. With the same seed and offset, `rand` and `randint64` give to the bit
what a GPU kernel's `tl.rand` and `tl.randint4x` give; `randn` differs by the GPU's roundings of log, sqrt and cos.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from helion_inductor.unsigned_math import remainder_unsigned

_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
# The largest f32 that keeps 2**31 - 1 times it below 1.
_UNIFORM_SCALE = 4.6566127342e-10
_LEAST_UNIFORM = 1.0e-7


def philox(seed: Tensor, counter: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four words of 32 random bits, each in an int64, for the counter (low 32 bits of `counter`, 0, 0, 0)."""
    c0, c1, c2, c3 = counter.to(torch.int64) & _LOW, *(torch.zeros_like(counter) for _ in range(3))
    k0, k1 = seed & _LOW, (seed >> 32) & _LOW
    for _ in range(_ROUNDS):
        first, second = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2  # 64-bit products; bit 63 is not a sign here
        c0, c1 = ((second >> 32) & _LOW) ^ c1 ^ k0, second & _LOW
        c2, c3 = ((first >> 32) & _LOW) ^ c3 ^ k1, first & _LOW
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW, (k1 + _KEY_STEPS[1]) & _LOW
    return c0, c1, c2, c3


def rand(seed: Tensor, offset: Tensor, lanes: int = 1) -> Tensor:
    """Uniform f32 in [0, 1).

    lanes: 1 takes the first word of counter `offset`; 4 uses all four words of a counter, taking word `offset % 4` of
    counter `offset // 4`.
    """
    if lanes == 1:
        return _uniform(philox(seed, offset)[0])
    return _uniform(_pick(philox(seed, _quarter(offset)), offset))


def randn(seed: Tensor, offset: Tensor, lanes: int = 1) -> Tensor:
    """Standard normal f32 by Box and Muller; `lanes` as for `rand`."""
    if lanes == 1:
        first, second, _, _ = philox(seed, offset)
        return _normal(first, second)[0]
    words = philox(seed, _quarter(offset))
    return _pick((*_normal(*words[:2]), *_normal(*words[2:])), offset)


def randint64(seed: Tensor, offset: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Integers (int64) in [low, high): 64 random bits modulo the size of the range."""
    first, second, _, _ = philox(seed, offset)
    bits = first | (second << 32)
    low, high = low.to(torch.int64), high.to(torch.int64)
    size = torch.where(high == low, 1, high - low)
    return remainder_unsigned(bits.view(torch.uint64), size.view(torch.uint64)).view(torch.int64) + low


def _quarter(offset: Tensor) -> Tensor:
    return (offset.to(torch.int64) & _LOW) >> 2


def _pick(words: tuple[Tensor, ...], offset: Tensor) -> Tensor:
    lane = (offset.to(torch.int64) & 3).expand_as(words[0])
    return torch.stack(words).gather(0, lane.unsqueeze(0)).squeeze(0)


def _uniform(word: Tensor) -> Tensor:
    signed = torch.where(word >= 2**31, word - 2**32, word)
    folded = torch.where(signed < 0, -signed - 1, signed)
    return folded.to(torch.float32) * _UNIFORM_SCALE


def _normal(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    u1, u2 = _uniform(first).clamp(min=_LEAST_UNIFORM), _uniform(second)
    angle, radius = (2.0 * math.pi) * u2, torch.sqrt(-2.0 * torch.log(u1))
    return radius * torch.cos(angle), radius * torch.sin(angle)
