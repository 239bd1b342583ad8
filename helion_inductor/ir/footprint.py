"""Which offsets of a storage a nest may touch, so that nests which share one buffer in parts are known to be independent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .index import ONE, ZERO, Expr
from .simplify import Ranges, bounds
from .tile_ir import Atomic, Load, LoopNest, Store


@dataclass(frozen=True)
class Footprint:
    """Offsets between ``low`` and ``high``, inclusive; and for strides of the access, the least and greatest remainder that the offsets
    leave: a slice of every row."""

    low: int
    high: int
    rows: Mapping[int, tuple[int, int]]

    def __or__(self, other: Footprint) -> Footprint:
        both = self.rows.keys() & other.rows.keys()
        rows = {s: (min(self.rows[s][0], other.rows[s][0]), max(self.rows[s][1], other.rows[s][1])) for s in both}
        return Footprint(min(self.low, other.low), max(self.high, other.high), rows)


Part = Footprint | None
"""None where nothing is known."""


@dataclass(frozen=True)
class Touched:
    """Storages that a nest reads and writes, with the offsets."""

    reads: Mapping[str, Part]
    writes: Mapping[str, Part]


def touched(nests: Sequence[LoopNest], storages: Mapping[str, str]) -> list[Touched]:
    """What each nest touches; offsets are looked at only where several nests write a storage. ``storages``: buffer -> storage."""
    writers = Counter(s for n in nests for s in {storages[b] for b in n.writes()})
    shared = frozenset(s for s, count in writers.items() if count > 1)
    return [_touched(n, storages, shared) for n in nests]


def _touched(nest: LoopNest, storages: Mapping[str, str], shared: frozenset[str]) -> Touched:
    ranges = Ranges(nest.extents())
    found: tuple[dict[str, Part], dict[str, Part]] = ({}, {})
    for s in nest.body:
        if not isinstance(s, (Load, Store, Atomic)):
            continue
        own, storage = found[not isinstance(s, Load)], storages[s.buffer]
        here = footprint(s, ranges) if storage in shared else None
        before = own.get(storage, here)
        own[storage] = None if here is None or before is None else before | here
    return Touched(*found)


def footprint(stmt: Load | Store | Atomic, ranges: Ranges) -> Part:
    """Offsets that a statement may touch; ``ranges`` are those of its nest."""
    low, high = _bounds(stmt.index, ranges)
    if low is None or high is None:
        return None
    terms = stmt.index.expand().as_coefficients_dict()
    strides = {abs(int(c)) for term, c in terms.items() if term != ONE and c.is_Integer and abs(c) > 1}
    rows = {s: rest for s in strides if (rest := _remainders(stmt.index, s, ranges)) is not None}
    return Footprint(low, high, rows)


def _bounds(e: Expr, ranges: Ranges) -> tuple[int | None, int | None]:
    low, high = bounds(e, ranges)
    return (int(low) if low is not None and low.is_Integer else None), (int(high) if high is not None and high.is_Integer else None)


def _remainders(index: Expr, stride: int, ranges: Ranges) -> tuple[int, int] | None:
    """Least and greatest remainder of ``index`` by ``stride``, where they do not wrap around."""
    terms = index.expand().as_coefficients_dict()
    low, high = _bounds(sum((c * term for term, c in terms.items() if c % stride != 0), ZERO), ranges)
    if low is None or high is None or low // stride != high // stride:
        return None
    return low % stride, high % stride


def _apart(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[1] < b[0] or b[1] < a[0]


def disjoint(a: Part, b: Part) -> bool:
    """Whether no offset is in both, for certain."""
    if a is None or b is None:
        return False
    return _apart((a.low, a.high), (b.low, b.high)) or any(_apart(a.rows[s], b.rows[s]) for s in a.rows.keys() & b.rows.keys())
