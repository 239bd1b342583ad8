"""Which nests are products of matrices: sums of products of a value of the rows and a value of the columns.

``reduce sum(k) mul(%a, %b)`` can be computed tile by tile, by the units that multiply small matrices, where ``%a`` varies over some
parallel axes (rows) and ``%b`` over others (columns); axes of both number the matrices of a batch. The units take halves, and add
up in float32: both factors must be halves then, loaded as such or rounded to them, so that multiplying them in float32 is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from .body import Flow, flow
from .exact import types_that_hold
from .tile_ir import Atomic, Buffer, Check, LoopNest, Map, Reduce, Scan, Stmt, Store, is_value, operands

HALVES = frozenset({torch.float16, torch.bfloat16})


@dataclass(frozen=True)
class Dot:
    """The value ``sum over k of left[m, k] * right[k, n]``; ``dtype``: of the factors."""

    value: int
    left: int
    right: int
    dtype: torch.dtype


@dataclass(frozen=True)
class DotPlan:
    """``batch``, ``rows`` and ``columns`` are the parallel axes, in the nest's order; all ``dots`` are of one pass.

    ``kept``: values that vary over no column, from earlier passes, that are needed beside the dots.
    """

    batch: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    dots: tuple[Dot, ...]
    kept: tuple[int, ...]


def dot_plan(nest: LoopNest, buffers: Mapping[str, Buffer]) -> DotPlan | None:
    """How ``nest`` is a product of matrices; None where it is none."""
    if not nest.reduce or not nest.parallel or any(isinstance(s, (Scan, Atomic)) for s in nest.body):
        return None
    known = flow(nest)
    by_id = {s.id: s for s in nest.body if is_value(s)}  # type: ignore[union-attr]
    sides: tuple[frozenset[str], frozenset[str]] | None = None
    dots: list[Dot] = []
    exact = types_that_hold(nest, buffers)
    for stmt in nest.body:
        pair = _factors(stmt, by_id, nest, known)
        if pair is None or not isinstance(stmt, Reduce):
            continue
        left, right = pair if sides is None or known.axes[pair[0]] <= sides[0] else (pair[1], pair[0])
        sides = sides or (known.axes[left], known.axes[right])
        both = exact[left] & exact[right] & HALVES
        if not (known.axes[left] <= sides[0] and known.axes[right] <= sides[1]) or not both:
            return None
        dots.append(Dot(stmt.id, left, right, min(both, key=str)))
    if sides is None or len({known.depth[d.value] for d in dots}) != 1:
        return None
    sides = _oriented(nest, sides)
    if sides[0] != known.axes[dots[0].left] and not known.axes[dots[0].left] <= sides[0]:
        dots = [Dot(d.value, d.right, d.left, d.dtype) for d in dots]
    return _plan(nest, known, sides, tuple(dots))


def _factors(stmt: Stmt, by_id: Mapping[int, Stmt], nest: LoopNest, known: Flow) -> tuple[int, int] | None:
    """The factors of a sum of products of rows and columns."""
    if not isinstance(stmt, Reduce) or stmt.kind != "sum" or stmt.dtype != torch.float32:
        return None
    inner = by_id[stmt.arg]
    reduced = frozenset(a.name for a in nest.reduce)
    if not isinstance(inner, Map) or inner.op != "mul" or frozenset(stmt.axes) != reduced:
        return None
    a, b = inner.args
    x, y = known.axes[a], known.axes[b]
    return (a, b) if reduced <= x & y and x - y and y - x else None


def _oriented(nest: LoopNest, sides: tuple[frozenset[str], frozenset[str]]) -> tuple[frozenset[str], frozenset[str]]:
    """The sides with the innermost parallel axis among the columns: there stores walk memory."""
    last = nest.parallel[-1].name
    return (sides[1], sides[0]) if last in sides[0] and last not in sides[1] else sides


def _plan(nest: LoopNest, known: Flow, sides: tuple[frozenset[str], frozenset[str]], dots: tuple[Dot, ...]) -> DotPlan | None:
    names = [a.name for a in nest.parallel]
    both = sides[0] & sides[1]
    if not set(names) <= sides[0] | sides[1]:
        return None
    values = {d.value for d in dots}
    by_id = {s.id: s for s in nest.body if is_value(s)}  # type: ignore[union-attr]
    reduced = {a.name for a in nest.reduce}
    left_only = sides[0] - reduced
    kept: set[int] = set()
    seen: set[int] = set()
    waiting = [v for s in nest.body if isinstance(s, (Store, Check)) and not _of_factor(s, known, reduced) for v in operands(s)]
    while waiting:
        v = waiting.pop()
        if v in seen or v in values:
            continue
        seen.add(v)
        if known.axes[v] & reduced:
            return None
        if known.depth[v] > 0 and isinstance(by_id[v], Reduce):
            if not known.axes[v] <= left_only:
                return None
            kept.add(v)
            continue
        waiting += operands(by_id[v])
    for s in nest.body:
        if isinstance(s, Reduce) and s.id not in values:
            if not known.axes[s.arg] <= sides[0] or known.depth[s.id] > known.depth[dots[0].value]:
                return None
        if isinstance(s, Check) and _of_factor(s, known, reduced) and not any(_axes(s, known) <= side for side in sides):
            return None
    ordered = (tuple(n for n in names if n in part) for part in (both, sides[0] - both, sides[1] - both))
    batch, rows, columns = ordered
    return DotPlan(batch, rows, columns, dots, tuple(sorted(kept))) if rows and columns else None


def _axes(stmt: Check, known: Flow) -> frozenset[str]:
    return frozenset().union(*(known.axes[v] for v in operands(stmt)))


def _of_factor(stmt: Stmt, known: Flow, reduced: set[str]) -> bool:
    """Whether a check belongs to what is multiplied."""
    return isinstance(stmt, Check) and bool(_axes(stmt, known) & reduced)
