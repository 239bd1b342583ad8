"""Which integers an input may hold in a trial run: those that are used as indices must stay within what they index.

A value is followed from its load to the check that guards it, through temporaries, as long as nothing but its type is changed,
or negative numbers are wrapped. Of what is computed with in any other way only zero is sure to be a valid index, as ``i + k`` is
at least for ``i = 0``.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.tile_ir import Atomic, Check, Const, Load, LoopNest, Map, Stmt, Store, TileProgram, is_value, operands
from .hints import evaluate_size

Sources = Mapping[str, bool]
"""Buffers that a value depends on -> whether it is what was loaded from them."""


def index_bounds(program: TileProgram) -> dict[str, int]:
    """Least number that the integers of a buffer must not reach, at least 1; buffers that index nothing are left out."""
    buffers, hints = program.by_name(), program.hints()
    behind: dict[str, Sources] = {}
    result: dict[str, int] = {}
    for nest in program.nests:
        values = _sources(nest, behind)
        for check in (s for s in nest.body if isinstance(s, Check)):
            upper = max(1, evaluate_size(check.upper, hints))
            for buffer, unchanged in values[check.value].items():
                if not buffers[buffer].dtype.is_floating_point:
                    result[buffer] = min(upper if unchanged else 1, result.get(buffer, upper))
        for store in (s for s in nest.body if isinstance(s, (Store, Atomic))):
            if buffers[store.buffer].kind == "temp":
                changed = isinstance(store, Atomic)
                behind[store.buffer] = _joined([behind.get(store.buffer, {}), values[store.value]], changed=changed)
    return result


def _sources(nest: LoopNest, behind: Mapping[str, Sources]) -> dict[int, Sources]:
    values: dict[int, Sources] = {}
    made: dict[int, Stmt] = {}
    for s in nest.body:
        if not is_value(s):
            continue
        parts = [values[v] for v in operands(s)]
        if isinstance(s, Load):
            inner = _joined(parts, changed=True)
            values[s.id] = {**inner, **behind.get(s.buffer, {s.buffer: True})}
        elif isinstance(s, Map) and s.op == "where":
            condition, positive, otherwise = s.args
            kept = [otherwise] if _is_negative(made[condition], otherwise, made) else [positive, otherwise]
            values[s.id] = {**_joined(parts, changed=True), **_joined([values[v] for v in kept], changed=False)}
        else:
            values[s.id] = _joined(parts, changed=not (isinstance(s, Map) and s.op == "cast"))  # type: ignore[union-attr]
        made[s.id] = s  # type: ignore[union-attr]
    return values


def _is_negative(stmt: Stmt, value: int, made: Mapping[int, Stmt]) -> bool:
    """Whether ``stmt`` asks if ``value`` is less than 0."""
    if not isinstance(stmt, Map) or stmt.op != "lt" or stmt.args[0] != value:
        return False
    zero = made[stmt.args[1]]
    return isinstance(zero, Const) and zero.value == 0


def _joined(parts: list[Sources], *, changed: bool) -> Sources:
    result: dict[str, bool] = {}
    for part in parts:
        for buffer, unchanged in part.items():
            result[buffer] = result.get(buffer, True) and unchanged and not changed
    return result
