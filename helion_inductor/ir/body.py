"""Facts about a nest's body (axes, passes) and the renaming of its values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .index import names_in, rename_values
from .tile_ir import (
    Atomic,
    Check,
    Const,
    Effect,
    Index,
    Load,
    LoopNest,
    Map,
    Reduce,
    Scan,
    Stmt,
    Store,
    indices,
    operands,
)


@dataclass(frozen=True)
class Flow:
    """Per value of a nest: the axes it varies over and its pass (reduction depth)."""

    axes: Mapping[int, frozenset[str]]
    depth: Mapping[int, int]


def flow(nest: LoopNest) -> Flow:
    """Axes and pass of every value of ``nest``."""
    known: Flow | None = nest.memo.get("flow")
    if known is None:
        known = nest.memo["flow"] = _flow(nest)
    return known


def _flow(nest: LoopNest) -> Flow:
    axes: dict[int, frozenset[str]] = {}
    depth: dict[int, int] = {}
    names = frozenset(nest.extents())
    for stmt in nest.body:
        if isinstance(stmt, (Store, Atomic, Check)):
            continue
        over = frozenset().union(*(names_in(e) & names for e in indices(stmt)), *(axes[v] for v in operands(stmt)))
        pass_number = max((depth[v] for v in operands(stmt)), default=0)
        if isinstance(stmt, Reduce):
            over, pass_number = over - frozenset(stmt.axes), pass_number + 1
        if isinstance(stmt, Scan):
            over |= {stmt.axis}
        axes[stmt.id], depth[stmt.id] = over, pass_number
    return Flow(axes, depth)


def effect_axes(stmt: Effect, nest: LoopNest, known: Flow) -> frozenset[str]:
    """Axes that an effect statement's index, value and mask mention."""
    names = frozenset(nest.extents())
    return frozenset().union(*(names_in(e) & names for e in indices(stmt)), *(known.axes[v] for v in operands(stmt)))


def effect_depth(stmt: Effect, known: Flow) -> int:
    """Pass in which an effect statement can run."""
    return max((known.depth[v] for v in operands(stmt)), default=0)


def renumber(body: Iterable[Stmt], rename: Mapping[int, int]) -> tuple[Stmt, ...]:
    """The statements with every value id mapped through ``rename``."""
    return tuple(remap(s, rename) for s in body)


def remap(stmt: Stmt, rename: Mapping[int, int]) -> Stmt:
    mask = rename[stmt.mask] if isinstance(stmt, (Load, Store, Atomic, Check)) and stmt.mask is not None else None
    match stmt:
        case Load():
            return Load(rename[stmt.id], stmt.dtype, stmt.buffer, rename_values(stmt.index, rename), mask, stmt.other)
        case Const():
            return Const(rename[stmt.id], stmt.dtype, stmt.value)
        case Index():
            return Index(rename[stmt.id], stmt.dtype, rename_values(stmt.expr, rename))
        case Map():
            return Map(rename[stmt.id], stmt.dtype, stmt.op, tuple(rename[a] for a in stmt.args), stmt.attrs)
        case Reduce():
            return Reduce(rename[stmt.id], stmt.dtype, stmt.kind, stmt.axes, rename[stmt.arg])
        case Scan():
            return Scan(rename[stmt.id], stmt.dtype, stmt.kind, stmt.axis, rename[stmt.arg])
        case Store():
            return Store(stmt.buffer, rename_values(stmt.index, rename), rename[stmt.value], mask)
        case Atomic():
            return Atomic(stmt.buffer, rename_values(stmt.index, rename), rename[stmt.value], stmt.op, mask)
        case Check():
            return Check(rename[stmt.value], rename_values(stmt.lower, rename), rename_values(stmt.upper, rename), mask)
