"""Rules about one nest: a rule is a function that says what is wrong, and its name (with hyphens) names the rule.

A *statement rule* looks at one statement and what stands before it, and may rely on the rules above it in
``STATEMENT_RULES``. A *nest rule* looks at a whole nest. ``problems`` runs them all, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .body import Flow, effect_axes
from .footprint import disjoint, footprint
from .index import names_in, to_text, values_in
from .ops import OPS
from .simplify import Ranges, simplify
from .tile_ir import (
    ATOMICS,
    REDUCTIONS,
    SCANS,
    Atomic,
    Check,
    Load,
    LoopNest,
    Map,
    Reduce,
    Scan,
    Stmt,
    Store,
    TileProgram,
    indices,
    operands,
)
from .verify_dtypes import DTYPE_RULES, Scope


@dataclass(frozen=True)
class Problem:
    """What is wrong, and in which statement (None: in the head of the nest)."""

    rule: str
    detail: str
    stmt: int | None = None


def rule_name(rule: Callable[..., object]) -> str:
    """``store_covers_parallel`` -> ``store-covers-parallel``."""
    return rule.__name__.replace("_", "-")


def _list(items: object) -> str:
    return ", ".join(map(str, sorted(items)))  # type: ignore[call-overload]


def ssa_order(stmt: Stmt, scope: Scope) -> str | None:
    """A value is defined once, before its uses."""
    if missing := [v for v in operands(stmt) if v not in scope.dtypes]:
        return f"%{missing[0]} is used before it is defined"
    if not isinstance(stmt, (Store, Atomic, Check)) and (stmt.id in scope.dtypes or stmt.id < 0):
        return f"%{stmt.id} is defined twice" if stmt.id >= 0 else "value numbers start at 0"
    return None


def known_buffer(stmt: Stmt, scope: Scope) -> str | None:
    """Loads and stores name a declared buffer."""
    if isinstance(stmt, (Load, Store, Atomic)) and stmt.buffer not in scope.buffers:
        return f"no buffer is called {stmt.buffer}"
    return None


def known_axis(stmt: Stmt, scope: Scope) -> str | None:
    """Index expressions mention axes of the nest, declared sizes and earlier values only."""
    unknown = frozenset[str]().union(*map(names_in, indices(stmt))) - scope.names
    return f"{_list(unknown)}: neither an axis of the nest nor a size" if unknown else None


def known_kind(stmt: Stmt, scope: Scope) -> str | None:
    """Ops, reductions, scans and atomics are among those that have a meaning."""
    match stmt:
        case Map():
            return None if stmt.op in OPS else f"no op is called {stmt.op}"
        case Reduce():
            return None if stmt.kind in REDUCTIONS else f"no reduction is called {stmt.kind}"
        case Scan():
            return None if stmt.kind in SCANS else f"no scan is called {stmt.kind}"
        case Atomic():
            return None if stmt.op in ATOMICS else f"no atomic is called {stmt.op}"
    return None


def reduce_all_axes(stmt: Stmt, scope: Scope) -> str | None:
    """A Reduce folds all reduce axes of its nest, in their order."""
    axes = tuple(a.name for a in scope.nest.reduce)
    if not isinstance(stmt, Reduce) or (stmt.axes == axes and axes):
        return None
    return f"folds ({', '.join(stmt.axes)}), the reduce axes are ({', '.join(axes)})"


def scan_one_axis(stmt: Stmt, scope: Scope) -> str | None:
    """A Scan runs along the only reduce axis of its nest."""
    axes = tuple(a.name for a in scope.nest.reduce)
    if not isinstance(stmt, Scan) or axes == (stmt.axis,):
        return None
    return f"scans {stmt.axis}, the reduce axes are ({', '.join(axes)})"


def store_covers_parallel(stmt: Stmt, scope: Scope) -> str | None:
    """A Store's index mentions every parallel axis longer than 1, so that no two programs race for an element.

    A scatter, whose index holds a loaded value, is exempt: what it means where indices collide is left open.
    """
    if not isinstance(stmt, Store) or values_in(stmt.index):
        return None
    missing = {a.name for a in scope.nest.parallel if a.extent != 1} - scope.axes_of(stmt.index)
    return f"every {_list(missing)} stores to the same element of {stmt.buffer}" if missing else None


def store_covers_value(stmt: Stmt, scope: Scope) -> str | None:
    """A Store writes one value to one element: its index varies over the reduce axes that value or mask vary over."""
    if not isinstance(stmt, Store) or values_in(stmt.index):
        return None
    reduce = {a.name for a in scope.nest.reduce if a.extent != 1}
    over = effect_axes(stmt, scope.nest, Flow(scope.over, {}))
    missing = (over - scope.axes_of(stmt.index)) & reduce
    return f"each {_list(missing)} stores another value to the same element of {stmt.buffer}" if missing else None


def atomic_outside_reduction(stmt: Stmt, scope: Scope) -> str | None:
    """An Atomic stands in a nest without reduce axes: there it is clear how often it adds."""
    if isinstance(stmt, Atomic) and scope.nest.reduce:
        return f"adds to {stmt.buffer} in a nest that reduces"
    return None


STATEMENT_RULES: tuple[Callable[[Stmt, Scope], str | None], ...] = (
    ssa_order, known_buffer, known_axis, known_kind, *DTYPE_RULES, reduce_all_axes, scan_one_axis,
    store_covers_parallel, store_covers_value, atomic_outside_reduction,
)  # fmt: skip


def axis_unique(nest: LoopNest, program: TileProgram) -> Iterator[tuple[int | None, str]]:
    """Axes of a nest have names of their own, which no size has."""
    seen = {s.name for s in program.sizes}
    for axis in (*nest.parallel, *nest.reduce):
        if axis.name in seen:
            yield None, f"the name {axis.name} is taken"
        seen.add(axis.name)


def known_size(nest: LoopNest, program: TileProgram) -> Iterator[tuple[int | None, str]]:
    """Extents mention declared sizes only."""
    sizes = {s.name for s in program.sizes}
    for axis in (*nest.parallel, *nest.reduce):
        if unknown := {s.name for s in axis.extent.free_symbols} - sizes:
            yield None, f"the extent of {axis.name} mentions {_list(unknown)}, not a declared size"


def in_place_same_element(nest: LoopNest, program: TileProgram) -> Iterator[tuple[int | None, str]]:
    """A nest that reads and writes one part of a storage reads the very element that it writes: its points have no order."""
    storage = {b.name: b.aliases or b.name for b in program.buffers}
    ranges = Ranges(nest.extents(), program.lower())
    loads = [s for s in nest.body if isinstance(s, Load)]
    for position, stmt in enumerate(nest.body):
        if not isinstance(stmt, (Store, Atomic)):
            continue
        for load in loads:
            if storage[load.buffer] != storage[stmt.buffer]:
                continue
            if disjoint(footprint(load, ranges), footprint(stmt, ranges)):
                continue
            if isinstance(stmt, Atomic) or simplify(load.index - stmt.index, ranges) != 0:
                where = f"{load.buffer}[{to_text(load.index)}]"
                yield position, f"%{load.id} reads {where}, which another point may write here"


HEAD_RULES = (axis_unique, known_size)
BODY_RULES = (in_place_same_element,)


def problems(nest: LoopNest, program: TileProgram) -> Iterator[Problem]:
    """The broken rules of ``nest``, the head's first. Only the first one counts: later rules rely on earlier ones."""
    for head_rule in HEAD_RULES:
        yield from (Problem(rule_name(head_rule), detail, at) for at, detail in head_rule(nest, program))
    names = frozenset(nest.extents()) | {s.name for s in program.sizes}
    scope = Scope(nest, program.by_name(), names, {}, {})
    for position, stmt in enumerate(nest.body):
        for rule in STATEMENT_RULES:
            if detail := rule(stmt, scope):
                yield Problem(rule_name(rule), detail, position)
        _define(stmt, scope)
    for body_rule in BODY_RULES:
        yield from (Problem(rule_name(body_rule), detail, at) for at, detail in body_rule(nest, program))


def _define(stmt: Stmt, scope: Scope) -> None:
    if isinstance(stmt, (Store, Atomic, Check)):
        return
    over = frozenset[str]().union(*map(scope.axes_of, indices(stmt)), *(scope.over[v] for v in operands(stmt)))
    if isinstance(stmt, Reduce):
        over -= frozenset(stmt.axes)
    if isinstance(stmt, Scan):
        over |= {stmt.axis}
    scope.dtypes[stmt.id], scope.over[stmt.id] = stmt.dtype, over
