"""What the statements around a load say about its index: its mask bounds axes, checks bound the values it mentions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from ..ir.index import ONE, ZERO, Expr, integer, names_in, symbol, value_symbol, values_in
from ..ir.simplify import Ranges, nonnegative
from ..ir.tile_ir import Check, Const, Index, Load, LoopNest, Map, Stmt, is_value

_SLACK = {"lt": (-1, 1), "le": (-1, 0), "gt": (1, 1), "ge": (1, 0)}  # sign of (left - right), and by how much it is strict


def where_loaded(load: Load, nest: LoopNest, lower: Mapping[str, int]) -> Ranges:
    """Bounds that hold wherever ``load``, a statement of ``nest``, does read memory.

    Index expressions simplified by them mean the same there, and anything at points that the mask of the load excludes.
    """
    before = nest.body[: nest.body.index(load)]
    ranges = Ranges(nest.extents(), lower)
    for fact in _facts(load.mask, {s.id: s for s in before if is_value(s)}):  # type: ignore[union-attr]
        ranges = _narrowed(ranges, fact)
    return replace(ranges, axes={**ranges.axes, **_checked(before, load.mask)})


def _checked(body: Sequence[Stmt], mask: int | None) -> dict[str, Expr]:
    """Extents of values that were checked to be less than them, and not negative, at every point where ``mask`` holds."""
    checks = [s for s in body if isinstance(s, Check) and s.lower == ZERO and s.mask in (None, mask)]
    return {value_symbol(c.value).name: c.upper for c in checks if not values_in(c.upper)}


def _facts(mask: int | None, values: Mapping[int, Stmt]) -> Iterator[Expr]:
    """Expressions that are not negative where the value ``mask`` is true."""
    stmt = None if mask is None else values.get(mask)
    if not isinstance(stmt, Map):
        return
    if stmt.op in ("logical_and", "and_") and stmt.dtype == torch.bool:
        for part in stmt.args:
            yield from _facts(part, values)
    elif stmt.op in _SLACK:
        left, right = (_exact(values.get(a)) for a in stmt.args)
        if left is not None and right is not None:
            sign, strict = _SLACK[stmt.op]
            yield (sign * (left - right) - strict).expand()


def _exact(stmt: Stmt | None) -> Expr | None:
    if isinstance(stmt, Index) and not values_in(stmt.expr):
        return stmt.expr
    if isinstance(stmt, Const) and not stmt.dtype.is_floating_point:
        return integer(int(stmt.value))
    return None


def _narrowed(ranges: Ranges, fact: Expr) -> Ranges:
    """``ranges`` where ``fact``, which is ``axis + sizes`` or ``sizes - axis``, is not negative."""
    names = [n for n in names_in(fact) if n in ranges.axes]
    if len(names) != 1:
        return ranges
    (name,) = names
    rest = (fact - fact.coeff(symbol(name)) * symbol(name)).expand()
    if name in names_in(rest):
        return ranges
    if fact.coeff(symbol(name)) == ONE and nonnegative(-rest, ranges):
        return replace(ranges, least={**ranges.least, name: -rest})
    if fact.coeff(symbol(name)) == -ONE and nonnegative(ranges.axes[name] - rest - 1, ranges):
        return replace(ranges, axes={**ranges.axes, name: rest + 1})
    return ranges
