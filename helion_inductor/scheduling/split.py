"""Cut a reduction in two nests, so that a few long rows fill the device.

Before::

    nest @n parallel(p0: M) reduce(r0: K)     store y[p0] = f(reduce sum(r0) x[K*p0 + r0])

After, in chunks of L::

    nest @n_1 parallel(p0: M, p1: K/L) reduce(r0: L)    store t[K/L*p0 + p1] = reduce sum(r0) x[K*p0 + L*p1 + r0]
    nest @n_2 parallel(p0: M) reduce(r0: K/L)           store y[p0] = f(reduce sum(r0) t[K/L*p0 + r0])

Each depth of reductions takes two such nests; values of rows that later nests need go through memory. What is stored along the
row goes into the first nest that walks it with all values at hand, at the end one without reductions. The order of summation
depends on the sizes only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from ..ir.body import effect_axes, effect_depth, flow, remap
from ..ir.index import ONE, ZERO, Expr, ceil_div, integer, product, symbol
from ..ir.ops import identity
from ..ir.rewrite import with_indices
from ..ir.simplify import Ranges, simplify
from ..ir.tile_ir import (
    Atomic,
    Axis,
    Buffer,
    Check,
    Const,
    Index,
    Load,
    LoopNest,
    Map,
    Reduce,
    Scan,
    Stmt,
    Store,
    is_value,
    operands,
)

INT32 = 2**31
ALIGNED = 16  # bytes to which parts of a common buffer are aligned
_EXTREMUM = {"argmax": "max", "argmin": "min"}


@dataclass(frozen=True)
class Cut:
    """Where the reduce axes are cut: those before ``position`` become parallel, the one there is walked in chunks of ``length``."""

    position: int
    length: int

    def chunks(self, nest: LoopNest) -> Expr:
        extent = nest.reduce[self.position].extent
        return ceil_div(extent, integer(self.length))

    def exact(self, nest: LoopNest) -> bool:
        """Whether all chunks are full, for certain."""
        extent = nest.reduce[self.position].extent
        return self.length == 1 or bool(extent.is_Integer and int(extent) % self.length == 0)


@dataclass
class Scratch:
    """Temporaries of split reductions. Those of one dtype and of known size are parts of one buffer: a call then allocates one, and
    a kernel takes one pointer."""

    taken: set[str]
    sizes: dict[torch.dtype, int] = field(default_factory=dict)
    names: dict[torch.dtype, str] = field(default_factory=dict)
    own: list[Buffer] = field(default_factory=list)

    def take(self, dtype: torch.dtype, shape: Sequence[Expr]) -> tuple[str, Expr]:
        """Room for a row-major tensor: the buffer it is in, and the offset of its first element."""
        numel = product(shape)
        if not numel.is_Integer:
            strides = tuple(product(shape[k + 1 :]) for k in range(len(shape)))
            self.own.append(Buffer(self._name(), dtype, tuple(shape), strides))
            return self.own[-1].name, ZERO
        if dtype not in self.names:
            self.names[dtype] = self._name()
        first = self.sizes.get(dtype, 0)
        step = max(1, ALIGNED // dtype.itemsize)
        self.sizes[dtype] = first + -(-int(numel) // step) * step
        return self.names[dtype], integer(first)

    def _name(self) -> str:
        name = next(n for n in (f"part{k}" for k in range(len(self.taken) + 1)) if n not in self.taken)
        self.taken.add(name)
        return name

    def buffers(self) -> tuple[Buffer, ...]:
        shared = (Buffer(name, d, (integer(self.sizes[d]),), (ONE,)) for d, name in self.names.items())
        return (*shared, *self.own)


def obstacle(nest: LoopNest, storages: Mapping[str, str]) -> str | None:
    """Why the reductions of ``nest`` cannot be cut; None where they can."""
    if not any(isinstance(s, Reduce) for s in nest.body):
        return "it reduces nothing"
    if any(isinstance(s, (Scan, Atomic)) for s in nest.body):
        return "it scans or adds atomically"
    if {storages[b] for b in nest.reads()} & {storages[b] for b in nest.writes()}:
        return "it reads what it overwrites"
    known, reduced = flow(nest), {a.name for a in nest.reduce}
    when: dict[str, set[tuple[bool, int]]] = {}
    for s in nest.body:
        if isinstance(s, Store):
            when.setdefault(storages[s.buffer], set()).add((bool(effect_axes(s, nest, known) & reduced), effect_depth(s, known)))
    return "it stores to one buffer in several passes" if any(len(kinds) > 1 for kinds in when.values()) else None


def split_nest(nest: LoopNest, cut: Cut, scratch: Scratch, lower: Mapping[str, int], *, rows_first: bool) -> list[LoopNest]:
    """The nests that ``nest``, which has no ``obstacle``, becomes. Partial results of a row lie side by side. ``rows_first``: whether
    a tile holds chunks of one row, or else one chunk of neighbouring rows. ``lower``: least values of sizes."""
    return _Splitter(nest, cut, scratch, lower, rows_first).run()


def _row_major(coordinates: Iterable[tuple[Expr, Expr]]) -> Expr:
    """Flat index of (coordinate, extent) pairs."""
    flat: Expr = ZERO
    for at, extent in coordinates:
        flat = flat * extent + at
    return flat


@dataclass
class _Body:
    """Statements of one new nest under construction: those of ``nest`` with axes changed, all under ``mask`` where they vary over
    ``masked``."""

    change: Mapping[str, Expr]
    ranges: Ranges
    body: list[Stmt] = field(default_factory=list)
    rename: dict[int, int] = field(default_factory=dict)
    count: int = 0
    mask: int | None = None

    def emit(self, make: Callable[[int], Stmt]) -> int:
        self.count += 1
        self.body.append(make(self.count - 1))
        return self.count - 1

    def load(self, dtype: torch.dtype, buffer: str, index: Expr) -> int:
        return self.emit(lambda v: Load(v, dtype, buffer, simplify(index, self.ranges)))

    def store(self, buffer: str, index: Expr, value: int) -> None:
        self.body.append(Store(buffer, simplify(index, self.ranges), value))

    def map(self, dtype: torch.dtype, op: str, *args: int, attrs: tuple[object, ...] = ()) -> int:
        return self.emit(lambda v: Map(v, dtype, op, args, attrs))

    def copy(self, stmt: Stmt, *, masked: bool) -> None:
        mask = self._masked(stmt) if masked else None
        if is_value(stmt):
            self.rename[stmt.id] = self.count  # type: ignore[union-attr]
            self.count += 1
        new = with_indices(remap(stmt, self.rename), {symbol(n): e for n, e in self.change.items()}, self.ranges)
        if mask is not None and isinstance(new, (Load, Store, Check)):
            new = replace(new, mask=mask)
        self.body.append(new)

    def _masked(self, stmt: Stmt) -> int | None:
        """The mask for a statement that touches memory: its own and that of the chunk."""
        if self.mask is None or not isinstance(stmt, (Load, Store, Check)) or stmt.mask is None:
            return self.mask
        return self.map(torch.bool, "logical_and", self.mask, self.rename[stmt.mask])


class _Splitter:
    def __init__(self, nest: LoopNest, cut: Cut, scratch: Scratch, lower: Mapping[str, int], rows_first: bool) -> None:
        self.nest, self.cut, self.scratch, self.lower, self.rows_first = nest, cut, scratch, lower, rows_first
        self.flow = flow(nest)
        self.reduced = frozenset(a.name for a in nest.reduce)
        self.last = max(d for d in self.flow.depth.values())
        self.dtypes = {s.id: s.dtype for s in nest.body if is_value(s)}  # type: ignore[union-attr]
        self.rows: dict[int, tuple[str, Expr]] = {}
        self.exports: dict[int, list[int]] = {}
        self.parts: dict[int, tuple[tuple[str, Expr], ...]] = {}
        fresh = (n for n in (f"p{k}" for k in range(2 * len(nest.extents()) + 1)) if n not in nest.extents())
        self.names = {a.name: next(fresh) for a in nest.reduce}
        outer = nest.reduce[: cut.position]
        axis = nest.reduce[cut.position]
        self.chunked = (*outer, Axis(axis.name, cut.chunks(nest)))
        self.at_row = _row_major((symbol(a.name), a.extent) for a in nest.parallel)

    def run(self) -> list[LoopNest]:
        """Made from the last to the first, for what a nest needs of earlier ones is found on the way; numbered in program order."""
        nests: list[LoopNest] = []
        whole = [k for k, s in enumerate(self.nest.body) if self._varies(s) and not is_value(s) and self._depth(s) == self.last]
        if whole:
            nests.append(self._elementwise(whole))
        for depth in range(self.last, 0, -1):
            for s in self._reduces(depth):
                self.parts[s.id] = self._take_parts(s)
            nests += [self._fold(depth), self._partial(depth)]
        return [replace(n, name=f"{self.nest.name}_{k + 1}") for k, n in enumerate(reversed(nests))]

    # ---- what goes where
    def _varies(self, stmt: Stmt) -> bool:
        if isinstance(stmt, (Store, Atomic, Check)):
            return bool(effect_axes(stmt, self.nest, self.flow) & self.reduced)
        return bool(self.flow.axes[stmt.id] & self.reduced)

    def _depth(self, stmt: Stmt) -> int:
        return effect_depth(stmt, self.flow) if isinstance(stmt, (Store, Atomic, Check)) else self.flow.depth[stmt.id]

    def _reduces(self, depth: int) -> list[Reduce]:
        return [s for s in self.nest.body if isinstance(s, Reduce) and self.flow.depth[s.id] == depth]

    def _imported(self, value: int, fold: int) -> bool:
        """Whether the value belongs to a row and is made by an earlier fold than ``fold``."""
        return not (self.flow.axes[value] & self.reduced) and 1 <= self.flow.depth[value] != fold

    def _copy(self, new: _Body, values: Iterable[int], effects: Iterable[int], fold: int = 0) -> None:
        """Add what ``values`` and the effects at positions ``effects`` need, with the checks of it, in the order of the body."""
        needed, wanted = set(values), set(effects)
        for k in wanted:
            needed.update(operands(self.nest.body[k]))
        for k in reversed(range(len(self.nest.body))):
            stmt = self.nest.body[k]
            if isinstance(stmt, Check):
                used = stmt.value in needed and not self._imported(stmt.value, fold)
            else:
                used = is_value(stmt) and stmt.id in needed and not self._imported(stmt.id, fold)  # type: ignore[union-attr]
                used = used and stmt.id not in new.rename  # type: ignore[union-attr]
            if used:
                wanted.add(k)
                needed.update(operands(stmt))
        for k, stmt in enumerate(self.nest.body):
            if k in wanted:
                new.copy(stmt, masked=self.nest.reduce[self.cut.position].name in self._axes(stmt))
            elif is_value(stmt) and stmt.id in needed and self._imported(stmt.id, fold):  # type: ignore[union-attr]
                self._import(new, stmt.id)  # type: ignore[union-attr]

    def _axes(self, stmt: Stmt) -> frozenset[str]:
        if isinstance(stmt, (Store, Atomic, Check)):
            return effect_axes(stmt, self.nest, self.flow)
        return self.flow.axes[stmt.id]

    def _import(self, new: _Body, value: int) -> None:
        dtype = self.dtypes[value]
        if value not in self.rows:
            self.rows[value] = self.scratch.take(dtype, [a.extent for a in self.nest.parallel])
            self.exports.setdefault(self.flow.depth[value], []).append(value)
        buffer, first = self.rows[value]
        new.rename[value] = new.load(dtype, buffer, first + self.at_row)

    # ---- partial results in memory
    def _take_parts(self, stmt: Reduce) -> tuple[tuple[str, Expr], ...]:
        shape = [a.extent for a in (*self.nest.parallel, *self.chunked)]
        dtype = self.dtypes[stmt.arg]
        if stmt.kind not in _EXTREMUM:
            return (self.scratch.take(dtype, shape),)
        return self.scratch.take(_comparable(dtype), shape), self.scratch.take(torch.int64, shape)

    def _at_part(self, chunks: Sequence[Expr]) -> Expr:
        rows = [(symbol(a.name), a.extent) for a in self.nest.parallel]
        return _row_major([*rows, *((at, a.extent) for at, a in zip(chunks, self.chunked, strict=True))])

    # ---- the new nests
    def _partial(self, depth: int) -> LoopNest:
        """Reductions of ``depth`` over each chunk, and what is stored along rows as soon as the depths before are known."""
        axis, position = self.nest.reduce[self.cut.position], self.cut.position
        chunk = symbol(self.names[axis.name])
        inner = self.nest.reduce[position + 1 :]
        reduce = (Axis(axis.name, integer(self.cut.length)), *inner) if self.cut.length > 1 else inner
        at = chunk * self.cut.length + symbol(axis.name) if self.cut.length > 1 else chunk
        outer = {a.name: symbol(self.names[a.name]) for a in self.nest.reduce[:position]}
        chunks = tuple(Axis(self.names[a.name], a.extent) for a in self.chunked)
        parallel = (*self.nest.parallel, *chunks) if self.rows_first else (*chunks, *self.nest.parallel)
        new = _Body({**outer, axis.name: at}, Ranges({a.name: a.extent for a in (*parallel, *reduce)}, self.lower))
        if not self.cut.exact(self.nest):
            new.mask = self._inside(new, at, axis.extent)
        stores = [k for k, s in enumerate(self.nest.body) if self._varies(s) and not is_value(s) and self._depth(s) == depth - 1]
        self._copy(new, [s.arg for s in self._reduces(depth)], stores)
        first = _row_major([*((symbol(self.names[a.name]), a.extent) for a in self.nest.reduce[:position]),
                            (chunk * self.cut.length, axis.extent)]) * product(a.extent for a in inner)  # fmt: skip
        for s in self._reduces(depth):
            self._store_part(new, s, tuple(a.name for a in reduce), first, self._at_part([symbol(a.name) for a in chunks]))
        return replace(self.nest, parallel=parallel, reduce=reduce, body=tuple(new.body))

    def _inside(self, new: _Body, at: Expr, extent: Expr) -> int:
        """Whether an element of the last chunk is one of the axis."""
        small = extent.is_Integer and int(extent) + self.cut.length < INT32
        dtype = torch.int32 if small else torch.int64
        return new.map(torch.bool, "lt", new.emit(lambda v: Index(v, dtype, at)), new.emit(lambda v: Index(v, dtype, extent)))

    def _store_part(self, new: _Body, stmt: Reduce, axes: tuple[str, ...], first: Expr, at: Expr) -> None:
        value, dtype = new.rename[stmt.arg], self.dtypes[stmt.arg]
        indexed = stmt.kind in _EXTREMUM
        if indexed and dtype != _comparable(dtype):
            value, dtype = new.map(torch.int8, "cast", value, attrs=(torch.int8,)), torch.int8
        if new.mask is not None:
            neutral = new.emit(lambda v: Const(v, dtype, identity(stmt.kind, dtype)))
            value = new.map(dtype, "where", new.mask, value, neutral)
        kinds = ((_EXTREMUM[stmt.kind], dtype), (stmt.kind, torch.int64)) if indexed else ((stmt.kind, stmt.dtype),)
        for (kind, result), (buffer, offset) in zip(kinds, self.parts[stmt.id], strict=True):
            part = new.emit(lambda v, kind=kind, result=result: Reduce(v, result, kind, axes, value))  # type: ignore[misc]
            if kind in _EXTREMUM:
                start = new.emit(lambda v: Index(v, torch.int64, simplify(first, new.ranges)))
                part = new.map(torch.int64, "add", part, start)
            new.store(buffer, offset + at, part)

    def _fold(self, depth: int) -> LoopNest:
        """The partial results of ``depth`` folded, and what follows for each row."""
        new = _Body({}, Ranges({a.name: a.extent for a in (*self.nest.parallel, *self.chunked)}, self.lower))
        axes = tuple(a.name for a in self.chunked)
        at = self._at_part([symbol(a.name) for a in self.chunked])
        for s in self._reduces(depth):
            new.rename[s.id] = self._fold_one(new, s, axes, at)
        first = 0 if depth == 1 else depth  # what needs no reduction belongs to the first fold
        effects = [k for k, s in enumerate(self.nest.body)
                   if not is_value(s) and not self._varies(s) and first <= self._depth(s) <= depth]  # fmt: skip
        exports = self.exports.get(depth, [])
        self._copy(new, exports, effects, fold=depth)
        for value in exports:
            buffer, offset = self.rows[value]
            new.store(buffer, offset + self.at_row, new.rename[value])
        return replace(self.nest, reduce=self.chunked, body=tuple(new.body))

    def _fold_one(self, new: _Body, stmt: Reduce, axes: tuple[str, ...], at: Expr) -> int:
        (buffer, offset), *positions = self.parts[stmt.id]
        if not positions:
            part = new.load(stmt.dtype, buffer, offset + at)
            return new.emit(lambda v: Reduce(v, stmt.dtype, stmt.kind, axes, part))
        dtype = _comparable(self.dtypes[stmt.arg])
        part = new.load(dtype, buffer, offset + at)
        best = new.emit(lambda v: Reduce(v, dtype, _EXTREMUM[stmt.kind], axes, part))
        hit = new.map(torch.bool, "eq", part, best)
        if dtype.is_floating_point:  # NaN is the extremum wherever there is one
            hit = new.map(torch.bool, "logical_or", hit, new.map(torch.bool, "isnan", part))
        where = new.load(torch.int64, positions[0][0], positions[0][1] + at)
        far = new.emit(lambda v: Const(v, torch.int64, torch.iinfo(torch.int64).max))
        candidate = new.map(torch.int64, "where", hit, where, far)
        return new.emit(lambda v: Reduce(v, torch.int64, "min", axes, candidate))

    def _elementwise(self, effects: Sequence[int]) -> LoopNest:
        """What is stored along the rows once everything is reduced."""
        parallel = (*self.nest.parallel, *(Axis(self.names[a.name], a.extent) for a in self.nest.reduce))
        change = {a.name: symbol(self.names[a.name]) for a in self.nest.reduce}
        new = _Body(change, Ranges({a.name: a.extent for a in parallel}, self.lower))
        self._copy(new, (), effects)
        return replace(self.nest, parallel=parallel, reduce=(), body=tuple(new.body))


def _comparable(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which extrema are sought."""
    return torch.int8 if dtype == torch.bool else dtype
