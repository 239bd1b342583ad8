"""What a program of a persistent kernel computes once for all of its tiles: values of a row that every tile reads.

The norm of a row before a product, say: it varies over the reduced axis only, and a program that has several tiles of columns
would compute it anew for each. Where a reduced axis is walked block by block, what can be kept are the values that do not vary
over it: the results of earlier passes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..ir.body import Flow, effect_axes, flow
from ..ir.index import names_in
from ..ir.schedule_ir import Task
from ..ir.tile_ir import Check, Const, Index, Load, LoopNest, Map, Reduce, Stmt, indices, is_value, operands


@dataclass(frozen=True)
class Once:
    """Positions in a nest's body that are run ``before`` the first tile, and those that are left for each (``inside``); the former
    give the values ``given``, which the latter use."""

    before: frozenset[int]
    inside: frozenset[int]
    given: tuple[int, ...]


def once_of(nest: LoopNest, task: Task, shared: Collection[str], own: Collection[str] = ()) -> Once | None:
    """What a program can compute once; None where that is not worth it.

    ``shared``: buffers that all tiles may load alike. ``own``: integers that differ from one member of a family to the next.
    """
    dim = task.reduce_dim()
    if dim is None or task.wide is not False:
        return None
    known, looped = flow(nest), dim.kind == "looped"
    rows = _rows(nest, known, frozenset(dim.axes), set(shared) - set(nest.writes()), set(own))
    defined = {s.id: p for p, s in enumerate(nest.body) if is_value(s)}  # type: ignore[union-attr]

    def varies(stmt: Stmt) -> bool:
        return bool(_axes(stmt, nest, known))

    kept = [p for p in rows if isinstance(nest.body[p], Check) and not (looped and varies(nest.body[p]))]
    inside, given = set(range(len(nest.body))) - rows, set[int]()
    inside |= {p for p in rows if isinstance(nest.body[p], Check) and p not in kept}
    waiting = [v for p in inside for v in operands(nest.body[p])]
    while waiting:
        value = waiting.pop()
        position = defined[value]
        stmt = nest.body[position]
        if position not in rows or position in inside:
            continue
        if isinstance(stmt, Const) or (looped and varies(stmt)):
            inside.add(position)
            waiting += operands(stmt)
        else:
            given.add(value)
    before = _closure(nest, [*kept, *(defined[v] for v in given)], defined)
    dear = any(isinstance(nest.body[p], Reduce) or (isinstance(nest.body[p], Load) and varies(nest.body[p])) for p in before)
    return Once(frozenset(before), frozenset(inside), tuple(sorted(given))) if given and dear else None


def _rows(nest: LoopNest, known: Flow, reduced: frozenset[str], readable: set[str], own: set[str]) -> set[int]:
    """Positions of statements that every tile runs alike."""
    found: set[int] = set()
    values: set[int] = set()
    for position, stmt in enumerate(nest.body):
        if not isinstance(stmt, (Load, Const, Index, Map, Reduce, Check)) or not set(operands(stmt)) <= values:
            continue
        if isinstance(stmt, Load) and stmt.buffer not in readable:
            continue
        if not _axes(stmt, nest, known) <= reduced or any(own & names_in(e) for e in indices(stmt)):
            continue
        if isinstance(stmt, Reduce) and own & frozenset().union(*(names_in(nest.extents()[a]) for a in stmt.axes)):
            continue
        found.add(position)
        if is_value(stmt):
            values.add(stmt.id)  # type: ignore[union-attr]
    return found


def _axes(stmt: Stmt, nest: LoopNest, known: Flow) -> frozenset[str]:
    return effect_axes(stmt, nest, known) if isinstance(stmt, Check) else known.axes[stmt.id]  # type: ignore[union-attr]


def _closure(nest: LoopNest, wanted: list[int], defined: dict[int, int]) -> set[int]:
    found: set[int] = set()
    while wanted:
        position = wanted.pop()
        if position not in found:
            found.add(position)
            wanted += [defined[v] for v in operands(nest.body[position])]
    return found
