"""Which offsets of a storage a nest may touch, so that nests which share one buffer in parts are known to be independent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .simplify import Ranges, bounds
from .tile_ir import Atomic, Load, LoopNest, Store

Interval = tuple[int, int] | None
"""Least and greatest offset in elements, inclusive; None where they are not known."""


@dataclass(frozen=True)
class Touched:
    """Storages that a nest reads and writes, with the offsets."""

    reads: Mapping[str, Interval]
    writes: Mapping[str, Interval]


def touched(nests: Sequence[LoopNest], storages: Mapping[str, str]) -> list[Touched]:
    """What each nest touches; offsets are looked at only where several nests write a storage. ``storages``: buffer -> storage."""
    writers = Counter(s for n in nests for s in {storages[b] for b in n.writes()})
    shared = frozenset(s for s, count in writers.items() if count > 1)
    return [_touched(n, storages, shared) for n in nests]


def _touched(nest: LoopNest, storages: Mapping[str, str], shared: frozenset[str]) -> Touched:
    ranges = Ranges(nest.extents())
    found: tuple[dict[str, Interval], dict[str, Interval]] = ({}, {})
    for s in nest.body:
        if not isinstance(s, (Load, Store, Atomic)):
            continue
        own, storage = found[not isinstance(s, Load)], storages[s.buffer]
        here = interval(s, ranges) if storage in shared else None
        before = own.get(storage, here)
        own[storage] = None if here is None or before is None else (min(here[0], before[0]), max(here[1], before[1]))
    return Touched(*found)


def interval(stmt: Load | Store | Atomic, ranges: Ranges) -> Interval:
    """Offsets that a statement may touch; ``ranges`` are those of its nest."""
    low, high = bounds(stmt.index, ranges)
    return (int(low), int(high)) if low is not None and high is not None and low.is_Integer and high.is_Integer else None


def disjoint(a: Interval, b: Interval) -> bool:
    """Whether no offset is in both, for certain."""
    return a is not None and b is not None and (a[1] < b[0] or b[1] < a[0])
