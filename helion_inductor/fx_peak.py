"""Bytes that a sequence of calls holds at its peak: storages live from the call that makes them to the last that reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

GRANULE = 512  # bytes: what the caching allocator of CUDA rounds to


@dataclass(frozen=True)
class Step:
    """A call, or a loop, at position ``at`` of a graph: the storages that it reads, those that it makes with their bytes, and bytes
    that it needs only while it runs."""

    at: int
    reads: frozenset[str]
    makes: Mapping[str, int]
    scratch: int = 0


def peak_bytes(steps: Iterable[Step], kept: Collection[str]) -> int:
    """The most bytes held at one time; ``kept`` are held to the end. What no step makes is not counted; what several steps make, the
    parts of a cat, is there from the first on."""
    ordered = list(_ordered(steps))
    last = {name: k for k, step in enumerate(ordered) for name in (*step.reads, *step.makes)}
    sizes: dict[str, int] = {}
    held = most = 0
    for k, step in enumerate(ordered):
        held += sum(size for n, size in step.makes.items() if n not in sizes)
        sizes |= step.makes
        most = max(most, held + step.scratch)
        held -= sum(sizes[n] for n in {*step.reads, *step.makes} if n in sizes and last[n] == k and n not in kept)
    return most


def _ordered(steps: Iterable[Step]) -> Iterator[Step]:
    """By position; a step that waits for another comes right behind it."""
    pending = sorted(steps, key=lambda s: s.at)
    missing = Counter(name for step in pending for name in step.makes)
    waiting: dict[str, list[Step]] = {}
    for first in pending:
        stack = [first]
        while stack:
            step = stack.pop()
            blocker = next((n for n in sorted(step.reads) if missing[n] and n not in step.makes), None)
            if blocker is not None:
                waiting.setdefault(blocker, []).append(step)
                continue
            yield step
            missing.subtract(step.makes.keys())
            for name in (n for n in step.makes if not missing[n]):
                stack += reversed(waiting.pop(name, []))


def tensor_bytes(t: torch.Tensor, hints: Mapping[str, int]) -> int:
    """Bytes of a fresh storage for ``t``, at the hinted sizes."""
    shape, stride = ([_size(n, hints) for n in ns] for ns in (t.shape, t.stride()))
    elements = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if all(shape) else 0
    return rounded(elements * t.dtype.itemsize)


def rounded(size: int) -> int:
    """Bytes that an allocation of ``size`` bytes takes."""
    return -(-size // GRANULE) * GRANULE


def _size(n: Any, hints: Mapping[str, int]) -> int:
    return n if isinstance(n, int) else int(n.node.expr.xreplace({s: hints.get(s.name, 1) for s in n.node.expr.free_symbols}))
