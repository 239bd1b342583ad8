"""Rules about one nest: a rule is a function that says what is wrong, and its name (with hyphens) names the rule.

A *statement rule* looks at one statement and what stands before it, and may rely on the rules above it in
``STATEMENT_RULES``. A *nest rule* looks at a whole nest. ``problems`` runs them all, in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from ..errors import UnsupportedError
from .body import Flow, effect_axes
from .index import Expr, names_in, to_text, values_in
from .ops import INTEGERS, OPS, result_dtype
from .printer import dtype_name, literal_text
from .simplify import Ranges, simplify
from .tile_ir import (
    ATOMICS,
    COMPUTE_DTYPES,
    REDUCTIONS,
    SCANS,
    Atomic,
    Buffer,
    Check,
    Const,
    Index,
    Literal,
    Load,
    LoopNest,
    Map,
    Reduce,
    Scan,
    Stmt,
    Store,
    TileProgram,
    compute_dtype,
    indices,
    operands,
)


@dataclass(frozen=True)
class Problem:
    """What is wrong, and in which statement (None: in the head of the nest)."""

    rule: str
    detail: str
    stmt: int | None = None


@dataclass(frozen=True)
class Scope:
    """What one statement may mention. ``dtypes`` and ``over`` hold the dtype and the axes of each earlier value."""

    nest: LoopNest
    buffers: Mapping[str, Buffer]
    names: frozenset[str]
    dtypes: dict[int, torch.dtype]
    over: dict[int, frozenset[str]]

    def axes_of(self, index: Expr) -> frozenset[str]:
        """Axes over which an index expression varies, those of its indirect values included."""
        own = names_in(index) & frozenset(self.nest.extents())
        return own.union(*(self.over[v] for v in values_in(index)))


def rule_name(rule: Callable[..., object]) -> str:
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


def value_dtype(stmt: Stmt, scope: Scope) -> str | None:
    """A value has a compute dtype; half and 8-bit floats exist in memory only."""
    if isinstance(stmt, (Store, Atomic, Check)) or stmt.dtype in COMPUTE_DTYPES:
        return None
    return f"{dtype_name(stmt.dtype)} is not a compute dtype"


def mask_is_bool(stmt: Stmt, scope: Scope) -> str | None:
    """A mask is a bool value."""
    if not isinstance(stmt, (Load, Store, Atomic, Check)) or stmt.mask is None:
        return None
    dtype = scope.dtypes[stmt.mask]
    return None if dtype == torch.bool else f"the mask %{stmt.mask} is {dtype_name(dtype)}"


def index_is_i64(stmt: Stmt, scope: Scope) -> str | None:
    """Values that index, or whose bounds are checked, are int64: offsets never wrap."""
    used = [v for e in indices(stmt) for v in values_in(e)] + ([stmt.value] if isinstance(stmt, Check) else [])
    bad = [v for v in used if scope.dtypes[v] != torch.int64]
    return f"%{bad[0]} indexes, but is {dtype_name(scope.dtypes[bad[0]])}" if bad else None


def _expect(what: str, got: torch.dtype, want: torch.dtype) -> str | None:
    return None if got == want else f"{what} is {dtype_name(want)}, not {dtype_name(got)}"


def dtype_of_load(stmt: Stmt, scope: Scope) -> str | None:
    """A load gives the compute dtype of its buffer."""
    if not isinstance(stmt, Load):
        return None
    return _expect(f"a value of {stmt.buffer}", stmt.dtype, compute_dtype(scope.buffers[stmt.buffer].dtype))


def dtype_of_store(stmt: Stmt, scope: Scope) -> str | None:
    """What is stored, or added in memory, has the compute dtype of the buffer."""
    if not isinstance(stmt, (Store, Atomic)):
        return None
    want = compute_dtype(scope.buffers[stmt.buffer].dtype)
    return _expect(f"a value of {stmt.buffer}", scope.dtypes[stmt.value], want)


def dtype_of_index(stmt: Stmt, scope: Scope) -> str | None:
    """An index used as a value is an integer."""
    if isinstance(stmt, Index) and stmt.dtype not in INTEGERS:
        return f"an index is an integer, not {dtype_name(stmt.dtype)}"
    return None


def literal_fits(stmt: Stmt, scope: Scope) -> str | None:
    """A literal is a value of its dtype."""
    if isinstance(stmt, Const) and not _fits(stmt.value, stmt.dtype):
        return f"{literal_text(stmt.value)} is no {dtype_name(stmt.dtype)}"
    if isinstance(stmt, Load) and not _fits(stmt.other, stmt.dtype):
        return f"{literal_text(stmt.other)} is no {dtype_name(stmt.dtype)}"
    return None


def _fits(value: Literal, dtype: torch.dtype) -> bool:
    if dtype == torch.bool:
        return value in (False, True)
    if dtype.is_floating_point:
        return True
    if isinstance(value, float):
        return False
    limits = torch.iinfo(dtype)
    return limits.min <= value <= limits.max


def other_needs_mask(stmt: Stmt, scope: Scope) -> str | None:
    """A load without a mask says nothing about the elements that a mask leaves out."""
    if isinstance(stmt, Load) and stmt.mask is None and (math.isnan(stmt.other) or stmt.other != 0):
        return f"a load without a mask has {literal_text(stmt.other)} for masked elements"
    return None


def op_arity(stmt: Stmt, scope: Scope) -> str | None:
    """An op has as many operands as its table entry says."""
    if not isinstance(stmt, Map) or len(stmt.args) == OPS[stmt.op].arity:
        return None
    return f"{stmt.op} takes {OPS[stmt.op].arity} operands, not {len(stmt.args)}"


def operands_promoted(stmt: Stmt, scope: Scope) -> str | None:
    """The op has a meaning for these dtypes and attributes: operands have been promoted to one dtype beforehand."""
    if not isinstance(stmt, Map):
        return None
    try:
        result_dtype(stmt.op, tuple(scope.dtypes[a] for a in stmt.args), stmt.attrs)
    except UnsupportedError as error:
        return error.reason.detail
    return None


def dtype_of_op(stmt: Stmt, scope: Scope) -> str | None:
    """A Map has the dtype that its op gives for its operands."""
    if not isinstance(stmt, Map):
        return None
    want = result_dtype(stmt.op, tuple(scope.dtypes[a] for a in stmt.args), stmt.attrs)
    return _expect(f"{stmt.op} of these operands", stmt.dtype, want)


def dtype_of_fold(stmt: Stmt, scope: Scope) -> str | None:
    """``argmax`` and ``argmin`` give int64, other reductions and scans what they fold; ``any`` folds bool."""
    if not isinstance(stmt, (Reduce, Scan)):
        return None
    got = scope.dtypes[stmt.arg]
    if stmt.kind == "any" and got != torch.bool:
        return f"any folds bool, not {dtype_name(got)}"
    want = torch.int64 if stmt.kind in ("argmax", "argmin") else got
    return _expect(f"{stmt.kind} of {dtype_name(got)}", stmt.dtype, want)


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
    ssa_order, known_buffer, known_axis, known_kind, value_dtype, mask_is_bool, index_is_i64, dtype_of_load,
    dtype_of_store, dtype_of_index, literal_fits, other_needs_mask, op_arity, operands_promoted, dtype_of_op,
    dtype_of_fold, reduce_all_axes, scan_one_axis, store_covers_parallel, store_covers_value, atomic_outside_reduction,
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
    """A nest that reads and writes one storage reads the very element that it writes: points of a nest have no order."""
    storage = {b.name: b.aliases or b.name for b in program.buffers}
    ranges = Ranges(nest.extents(), program.lower())
    loads = [s for s in nest.body if isinstance(s, Load)]
    for position, stmt in enumerate(nest.body):
        if not isinstance(stmt, (Store, Atomic)):
            continue
        for load in loads:
            if storage[load.buffer] != storage[stmt.buffer]:
                continue
            if isinstance(stmt, Atomic) or simplify(load.index - stmt.index, ranges) != 0:
                where = f"{load.buffer}[{to_text(load.index)}]"
                yield position, f"%{load.id} reads {where}, which another point may write here"


HEAD_RULES = (axis_unique, known_size)
BODY_RULES = (in_place_same_element,)


def problems(nest: LoopNest, program: TileProgram) -> Iterator[Problem]:
    """All broken rules of ``nest``, the head's first. After the first problem the later ones may be its consequences."""
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
