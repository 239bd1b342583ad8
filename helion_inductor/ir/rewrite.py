"""Meaning-preserving rewrites of one nest: axis substitution, common subexpressions, dead code, collapsing of axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import sympy

from .body import remap
from .index import Expr, FloorDiv, Mod, substitute, symbol
from .simplify import Ranges, simplify
from .tile_ir import (
    Atomic,
    Axis,
    Check,
    Index,
    Load,
    LoopNest,
    Map,
    Reduce,
    Scan,
    Stmt,
    Store,
    indices,
    is_value,
    operands,
)

_COMMUTATIVE = frozenset({
    "add", "mul", "maximum", "minimum", "eq", "ne", "logical_and", "logical_or", "bitwise_and", "bitwise_or",
})  # fmt: skip
_IMPURE = frozenset({"inline_asm_elementwise"})


def with_indices(stmt: Stmt, change: Mapping[sympy.Symbol, Expr], ranges: Ranges) -> Stmt:
    """``stmt`` with symbols substituted in its index expressions, which are then simplified."""

    def new(e: Expr) -> Expr:
        changed = substitute(e, change)
        return simplify(changed, ranges) if changed is not e else e

    match stmt:
        case Load() | Store() | Atomic():
            return replace(stmt, index=new(stmt.index))
        case Index():
            return replace(stmt, expr=new(stmt.expr))
        case Check():
            return replace(stmt, lower=new(stmt.lower), upper=new(stmt.upper))
    return stmt


def reaxis(nest: LoopNest, parallel: Sequence[Axis], reduce: Sequence[Axis], change: Mapping[str, Expr],
           reduced: Mapping[str, tuple[str, ...]], lower: Mapping[str, int]) -> LoopNest:  # fmt: skip
    """Run ``nest`` over new axes: ``change`` gives each old axis in terms of the new ones, ``reduced`` the new names of
    each old reduce axis."""
    ranges = Ranges({a.name: a.extent for a in (*parallel, *reduce)}, lower)
    symbols = {symbol(name): e for name, e in change.items()}
    body: list[Stmt] = []
    for stmt in nest.body:
        stmt = with_indices(stmt, symbols, ranges)
        if isinstance(stmt, Reduce):
            stmt = replace(stmt, axes=tuple(n for a in stmt.axes for n in reduced[a]))
        if isinstance(stmt, Scan):
            (axis,) = reduced[stmt.axis]
            stmt = replace(stmt, axis=axis)
        body.append(stmt)
    return replace(nest, parallel=tuple(parallel), reduce=tuple(reduce), body=tuple(body))


def _key(stmt: Stmt) -> tuple[object, ...]:
    match stmt:
        case Load():
            return ("load", stmt.buffer, stmt.index, stmt.mask, repr(stmt.other))
        case Index():
            return ("index", stmt.dtype, stmt.expr)
        case Map():
            args = tuple(sorted(stmt.args)) if stmt.op in _COMMUTATIVE else stmt.args
            return ("map", stmt.dtype, stmt.op, args, tuple(map(repr, stmt.attrs)))
        case Reduce():
            return ("reduce", stmt.dtype, stmt.kind, stmt.axes, stmt.arg)
        case Scan():
            return ("scan", stmt.dtype, stmt.kind, stmt.axis, stmt.arg)
        case Check():
            return ("check", stmt.value, stmt.lower, stmt.upper, stmt.mask)
        case Store() | Atomic():
            return ("effect", id(stmt))
    return ("const", stmt.dtype, repr(stmt.value))


def cse(nest: LoopNest) -> LoopNest:
    """Equal statements become one. A load is not shared across a store into the buffer it reads."""
    rename: dict[int, int] = {}
    seen: dict[tuple[object, ...], int] = {}
    body: list[Stmt] = []
    written: dict[str, int] = {}
    for old in nest.body:
        number = rename.setdefault(old.id, old.id) if is_value(old) else -1  # type: ignore[union-attr]
        stmt = remap(old, rename)
        key = _key(stmt)
        if isinstance(stmt, Load):
            key += (written.get(stmt.buffer, 0),)
        if isinstance(stmt, (Store, Atomic)):
            written[stmt.buffer] = written.get(stmt.buffer, 0) + 1
        if key in seen and not (isinstance(stmt, Map) and stmt.op in _IMPURE):
            if number >= 0:
                rename[number] = seen[key]
            continue
        seen[key] = number
        body.append(stmt)
    return replace(nest, body=tuple(body))


def dce(nest: LoopNest, dead_buffers: frozenset[str] = frozenset()) -> LoopNest:
    """Drop stores into ``dead_buffers`` and values that no remaining effect needs; values are renumbered from 0."""
    needed: set[int] = set()
    kept: list[Stmt] = []
    for stmt in reversed(nest.body):
        if isinstance(stmt, (Store, Atomic)) and stmt.buffer in dead_buffers:
            continue
        if isinstance(stmt, (Store, Atomic, Check)) or stmt.id in needed:
            kept.append(stmt)
            needed.update(operands(stmt))
    kept.reverse()
    rename: dict[int, int] = {}
    for stmt in kept:
        if is_value(stmt):
            rename[stmt.id] = len(rename)  # type: ignore[union-attr]
    return replace(nest, body=tuple(remap(s, rename) for s in kept))


def _complexity(body: Sequence[Stmt]) -> int:
    return sum(len(e.atoms(FloorDiv, Mod)) for s in body for e in indices(s))


def collapse_axes(nest: LoopNest, lower: Mapping[str, int]) -> LoopNest:
    """Join neighbouring axes (a, b) -> a*extent(b)+b wherever no index expression grows a division for it.

    Nests whose extents are quotients of size symbols (what strided convolutions leave of dynamic images) stay as they are: each
    trial multiplies such extents out, and the polynomials soon take minutes.
    """
    if any(e.has(FloorDiv, Mod) for e in nest.extents().values()):
        return nest
    for kind in ("parallel", "reduce"):
        position = 0
        while position + 1 < len(getattr(nest, kind)):
            joined = _join(nest, kind, position, lower)
            if joined is None:
                position += 1
            else:
                nest = joined
                position = max(0, position - 1)
    return nest


def _join(nest: LoopNest, kind: str, position: int, lower: Mapping[str, int]) -> LoopNest | None:
    axes: tuple[Axis, ...] = getattr(nest, kind)
    a, b = axes[position], axes[position + 1]
    if kind == "reduce" and not all(_folds_both(s, a.name, b.name) for s in nest.body):
        return None
    joined = Axis(a.name, a.extent * b.extent)
    changed = (*axes[:position], joined, *axes[position + 2 :])
    parallel, reduce = (changed, nest.reduce) if kind == "parallel" else (nest.parallel, changed)
    whole = symbol(joined.name)
    names = {x.name: symbol(x.name) for x in (*parallel, *reduce)}
    change = {**names, a.name: FloorDiv(whole, b.extent), b.name: Mod(whole, b.extent)}
    reduced = {x.name: (x.name,) for x in nest.reduce} | ({b.name: ()} if kind == "reduce" else {})
    result = reaxis(nest, parallel, reduce, change, reduced, lower)
    return result if _complexity(result.body) <= _complexity(nest.body) else None


def _folds_both(stmt: Stmt, a: str, b: str) -> bool:
    if isinstance(stmt, Scan):
        return stmt.axis not in (a, b)
    if isinstance(stmt, Reduce) and a in stmt.axes:
        at = stmt.axes.index(a)
        return at + 1 < len(stmt.axes) and stmt.axes[at + 1] == b
    return not (isinstance(stmt, Reduce) and b in stmt.axes)


def shift_values(body: Sequence[Stmt], by: int) -> tuple[Stmt, ...]:
    """Every value id increased by ``by``, so that two bodies can be joined."""
    rename = {s.id: s.id + by for s in body if is_value(s)}  # type: ignore[union-attr]
    return tuple(remap(s, rename) for s in body)


def next_value(body: Sequence[Stmt]) -> int:
    return 1 + max((s.id for s in body if is_value(s)), default=-1)  # type: ignore[union-attr]

