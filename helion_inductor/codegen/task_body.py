"""One task -> the body of a ``@triton.jit`` function that computes one virtual pid's tile.

A value is either a scalar (varies over no axis and was never a block) or a block of full rank. A nest whose reduce dimension is
persistent is straight-line code in body order. A looped one walks the reduce dimension once per pass: pass ``d`` recomputes what
varies over the axis and is needed by that pass's reductions and stores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from ..ir.body import Flow, effect_axes, effect_depth, flow
from ..ir.index import Expr, names_in, values_in
from ..ir.ops import identity
from ..ir.schedule_ir import Task, TileDim
from ..ir.simplify import Ranges
from ..ir.tile_ir import (
    Atomic,
    Buffer,
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
    Value,
    indices,
    is_value,
    operands,
)
from .blocks import Blocks
from .dispatch import INDENT
from .expressions import constant, emit, from_memory, to_memory, triton_dtype
from .index_text import fits_int32, triton_text
from .programs import bare
from .reductions import accumulate, final, initial, scan_text


@dataclass
class TaskBody:
    """Collects the lines of one task; ``buffers`` by name, ``lower`` the least value of each size symbol, ``multiples`` integers
    that are known to divide one. Only the statements at ``positions`` of the body are written, if that is not None; values that are
    ``given`` to the function are known by name, with whether each is a block; ``raw`` values are loaded as they lie in memory."""

    nest: LoopNest
    task: Task
    buffers: dict[str, Buffer]
    lower: dict[str, int]
    multiples: dict[str, int] = field(default_factory=dict)
    positions: frozenset[int] | None = None
    given: Mapping[int, bool] = field(default_factory=dict)
    raw: frozenset[int] = frozenset()
    lines: list[str] = field(default_factory=list)
    depth: int = 1

    def __post_init__(self) -> None:
        self.blocks = Blocks(self.task, self.nest, self.lower, self.multiples)
        self.flow: Flow = flow(self.nest)
        self.ranges = Ranges(self.nest.extents(), self.lower)
        self.dims = {v: self.blocks.dims_of(a) for v, a in self.flow.axes.items()}
        self.body = [s for k, s in enumerate(self.nest.body) if self.positions is None or k in self.positions]
        self.block_values = {v for v, block in self.given.items() if block}
        self.types: dict[int, torch.dtype] = {v: self.types_of(v) for v in self.given}
        self.done = set(self.given)
        self.used_names = frozenset().union(*(names_in(e) for s in self.nest.body for e in indices(s)))

    def write(self, line: str) -> None:
        self.lines.append(INDENT * self.depth + line)

    # ---- structure
    def run(self, *, tile: bool = True) -> list[str]:
        """The lines; without a ``tile`` nothing has parallel coordinates."""
        reduce_dim = self.task.reduce_dim()
        if tile:
            self.place_tile(self.coordinates)
        if reduce_dim is None or reduce_dim.kind == "persistent":
            if reduce_dim is not None:
                self.coordinates(reduce_dim, "0")
            for stmt in self.body:
                self.statement(stmt)
        else:
            self._looped(reduce_dim)
        return self.lines

    def place_tile(self, place: Callable[[TileDim, str], None]) -> None:
        """Lines that find the tile of the virtual pid; ``place`` writes the coordinates of a dimension that starts there."""
        self._widen()
        dims = {d.name: d for d in self.task.parallel()}
        ranges = Ranges({}, {f"{name}_{part}": 1 for name in dims for part in ("tiles", "group", "rows")})
        counted: set[str] = set()
        steps = self.task.pid_map.steps(tuple(dims))
        for number, (name, expr) in enumerate(steps):
            for other in sorted(names_in(expr)):
                if other.endswith("_tiles") and other not in counted:
                    counted.add(other)
                    dim = dims[other.removesuffix("_tiles")]
                    self.write(f"{other} = ({triton_text(self.blocks.extent(dim), self.ranges)} + {dim.block - 1}) // {dim.block}")
            text = triton_text(expr, ranges)
            last = number + 1 == len(steps)
            if not last:
                self.write(f"{name} = {bare(text)}")
            if (own := dims.get(name.removesuffix("_pid"))) is not None:
                place(own, f"{text if last else name} * {own.block}")

    def _widen(self) -> None:
        """The virtual pid in 64 bits where offsets are, and sizes, whose product an extent is."""
        extents = self.nest.extents()
        mentioned = self.used_names.union(*map(names_in, extents.values())) - set(extents) - set(self.multiples)
        casts = [f"{name} = tl.cast({name}, tl.int64)" for name in ("pid", *sorted(mentioned))]
        if self.task.wide is None:
            self.write("if WIDE:")
        for cast in casts if self.task.wide is not False else ():
            self.write(cast if self.task.wide else INDENT + cast)

    def coordinates(self, dim: TileDim, start: str) -> None:
        extent = triton_text(self.blocks.extent(dim), self.ranges)
        for line in self.blocks.coordinates(dim, self.used_names, start, extent):
            self.write(line)

    def _looped(self, dim: TileDim) -> None:
        last = max([*self.flow.depth.values(), 0])
        for depth in range(last + 1):
            self.invariants(depth, dim)
            inner = self._pass_targets(depth, dim)
            if inner:
                self._one_pass(depth, dim, inner)

    def _varies(self, stmt: Stmt, dim: TileDim) -> bool:
        if isinstance(stmt, (Store, Atomic, Check)):
            axes = effect_axes(stmt, self.nest, self.flow)
            return isinstance(stmt, Atomic) or bool(axes & set(dim.axes))
        return bool(self.flow.axes[stmt.id] & set(dim.axes))

    def invariants(self, depth: int, dim: TileDim) -> None:
        """What a pass needs that does not vary along ``dim``."""
        for stmt in self.body:
            if isinstance(stmt, Reduce) or self._varies(stmt, dim) or self._depth(stmt) != depth:
                continue
            if all(v in self.done for v in operands(stmt)):
                self.statement(stmt)

    def _depth(self, stmt: Stmt) -> int:
        return effect_depth(stmt, self.flow) if isinstance(stmt, (Store, Atomic, Check)) else self.flow.depth[stmt.id]

    def _pass_targets(self, depth: int, dim: TileDim) -> list[Stmt]:
        return [
            s for s in self.body
            if (isinstance(s, Reduce) and self.flow.depth[s.id] == depth + 1)
            or (isinstance(s, (Store, Atomic, Check)) and self._varies(s, dim) and self._depth(s) == depth)
        ]  # fmt: skip

    def _one_pass(self, depth: int, dim: TileDim, targets: Sequence[Stmt]) -> None:
        reduces = [s for s in targets if isinstance(s, Reduce)]
        self.begin(reduces)
        self.coordinates(dim, self.open_loop(dim))
        outside = set(self.done)
        for stmt in self._needed(targets):
            if isinstance(stmt, Reduce):
                self.fold(stmt, dim)
            else:
                self.statement(stmt)
        self.done = outside
        self.depth -= 1
        self.end(reduces)

    def begin(self, reduces: Sequence[Reduce]) -> None:
        """Accumulators of reductions, before the loop that walks their dimension."""
        for s in reduces:
            for line in initial(s, self.types_of(s.arg), self._folded_shape(s)):
                self.write(line)

    def fold(self, stmt: Reduce, dim: TileDim) -> None:
        """One step of a reduction, in that loop."""
        for line in accumulate(stmt, self.masked_argument(stmt), dim.name):
            self.write(line)

    def end(self, reduces: Sequence[Reduce]) -> None:
        """The values of reductions, after it."""
        for s in reduces:
            self.define(s, final(s, len(self.task.dims)), block=True)

    def open_loop(self, dim: TileDim) -> str:
        """Begins the loop over ``dim``; the text of where its block starts."""
        extent = triton_text(self.blocks.extent(dim), self.ranges)
        stages = f", num_stages={self.task.stages}" if self.task.stages > 1 else ""
        self.write(f"for {dim.name}_start in tl.range(0, {extent}, {dim.block}{stages}):")
        self.depth += 1
        if self.task.wide is False:
            return f"{dim.name}_start"
        wide = f"tl.cast({dim.name}_start, tl.int64)"
        self.write(f"{dim.name}_first = {wide}" if self.task.wide else f"{dim.name}_first = {wide} if WIDE else {dim.name}_start")
        return f"{dim.name}_first"

    def looped_pass(self, depth: int, dim: TileDim, values: set[int]) -> None:
        """One pass along ``dim``, for those of its reductions that are among ``values``."""
        self.invariants(depth, dim)
        reduces = [s for s in self._pass_targets(depth, dim) if isinstance(s, Reduce) and s.id in values]
        if reduces:
            self._one_pass(depth, dim, reduces)

    def needed(self, values: set[int]) -> list[Stmt]:
        """The statements, in order, that ``values`` take and that were not written yet."""
        values, picked = set(values), list[Stmt]()
        for stmt in reversed(self.body):
            if is_value(stmt) and stmt.id in values and stmt.id not in self.done:  # type: ignore[union-attr]
                picked.append(stmt)
                values.update(operands(stmt))
        return picked[::-1]

    def types_of(self, value: int) -> torch.dtype:
        return next(s.dtype for s in self.nest.body if not isinstance(s, (Store, Atomic, Check)) and s.id == value)

    def _needed(self, targets: Sequence[Stmt]) -> list[Stmt]:
        wanted = {id(t) for t in targets}
        values: set[int] = set()
        picked: list[Stmt] = []
        for stmt in reversed(self.body):
            is_target = id(stmt) in wanted
            is_value = not isinstance(stmt, (Store, Atomic, Check, Reduce)) and stmt.id in values and stmt.id not in self.done
            if is_target or is_value:
                picked.append(stmt)
                values.update(operands(stmt))
        return list(reversed(picked))

    # ---- statements
    def define(self, stmt: Value, text: str, *, block: bool) -> None:
        self.write(f"v{stmt.id} = {text}")
        self.types[stmt.id] = stmt.dtype
        self.done.add(stmt.id)
        if block:
            self.block_values.add(stmt.id)

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case Load():
                self._load(stmt)
            case Const():
                self.define(stmt, constant(stmt.value, stmt.dtype), block=False)
            case Index():
                self._index(stmt)
            case Map():
                text = emit(stmt.op, [f"v{a}" for a in stmt.args], [self.types[a] for a in stmt.args], stmt.dtype, stmt.attrs)
                self.define(stmt, text, block=self._any_block(stmt.args))
            case Reduce():
                self.write(f"a{stmt.id} = {self.masked_argument(stmt)}")
                self.define(stmt, final(stmt, len(self.task.dims), f"a{stmt.id}"), block=True)
            case Scan():
                axis = next(k for k, d in enumerate(self.task.dims) if stmt.axis in d.axes)
                self.define(stmt, scan_text(stmt, self.masked_argument(stmt), self._scan_positions(stmt), axis), block=True)
            case _:
                self._effect(stmt)

    def _any_block(self, values: Iterable[int]) -> bool:
        return any(v in self.block_values for v in values)

    def _folded_shape(self, stmt: Reduce | Scan) -> str:
        """Shape of a block that varies along the reduce dimension and wherever the argument does, and nowhere else."""
        dim = self.task.reduce_dim()
        assert dim is not None
        return self.blocks.shape(self.dims[stmt.arg] | {dim.name})

    def _scan_positions(self, stmt: Scan) -> str:
        dim = self.task.reduce_dim()
        assert dim is not None
        return f"tl.broadcast_to({dim.name}.to(tl.int64), {self._folded_shape(stmt)})"

    def _index(self, stmt: Index) -> None:
        axes = self.flow.axes[stmt.id]
        text = triton_text(stmt.expr, self.ranges, wide=not fits_int32(stmt.expr, self.ranges))
        if axes or values_in(stmt.expr):
            self.define(stmt, f"({text}).to({triton_dtype(stmt.dtype)})", block=True)
        else:
            self.define(stmt, f"tl.full([], {text}, {triton_dtype(stmt.dtype)})", block=False)

    def masked_argument(self, stmt: Reduce | Scan) -> str:
        """The argument as a block whose tail lanes along the reduce dimension hold the identity."""
        dim = self.task.reduce_dim()
        assert dim is not None
        dtype = self.types[stmt.arg]
        text = self.spread(stmt.arg, self._folded_shape(stmt), dtype)
        if not self.blocks.has_tail(dim):
            return text
        return f"tl.where({dim.name}_mask, {text}, {constant(identity(stmt.kind, dtype), dtype)})"

    def spread(self, value: int, shape: str, dtype: torch.dtype) -> str:
        """A value as a block of ``shape``."""
        if value in self.block_values:
            return f"tl.broadcast_to(v{value}, {shape})"
        return f"tl.full({shape}, v{value}, {triton_dtype(dtype)})"

    # ---- memory
    def _address(self, buffer: str, index: Expr, dims: frozenset[str], *, block: bool) -> str:
        """Pointer text; a block of the shape that ``dims`` give when ``block``."""
        text = triton_text(index, self.ranges)
        own = self.blocks.dims_of(names_in(index)) | frozenset().union(*(self.dims[v] for v in values_in(index)))
        is_block = bool(names_in(index) & set(self.nest.extents())) or self._any_block(values_in(index))
        if block and (own != dims or not is_block):
            shape = self.blocks.shape(dims)
            text = f"tl.broadcast_to({text}, {shape})" if is_block else f"tl.full({shape}, {text}, tl.int64)"
        return f"{buffer}_ptr + {text}"

    def _mask(self, dims: frozenset[str], mask: int | None) -> str:
        parts = self.blocks.masks(dims) + ([] if mask is None else [f"v{mask}"])
        return " & ".join(parts)

    def _load(self, stmt: Load) -> None:
        dims = self.dims[stmt.id]
        block = bool(names_in(stmt.index) & set(self.nest.extents())) or self._any_block(operands(stmt))
        pointer = self._address(stmt.buffer, stmt.index, dims, block=block)
        mask = self._mask(dims if block else frozenset(), stmt.mask)
        text = f"tl.load({pointer}"
        memory = self.buffers[stmt.buffer].dtype
        # Short floats would round the other value, and Triton's interpreter takes it for their bits.
        later = stmt.mask is not None and stmt.other != 0 and memory != stmt.dtype
        if mask:
            text += f", {mask}, other={_zero(memory) if later or stmt.mask is None or stmt.other == 0 else _literal(stmt.other)}"
        text += ")"
        if memory == torch.bool:
            text += ".to(tl.int1)"
        text = text if stmt.id in self.raw else from_memory(text, memory)
        self.define(stmt, f"tl.where(v{stmt.mask}, {text}, {constant(stmt.other, stmt.dtype)})" if later else text, block=block)

    def _effect(self, stmt: Effect) -> None:
        if isinstance(stmt, Check):
            self._check(stmt)
            return
        values = operands(stmt)
        dims = self.blocks.dims_of(effect_axes(stmt, self.nest, self.flow))
        block = bool(names_in(stmt.index) & set(self.nest.extents())) or self._any_block(values)
        if isinstance(stmt, Atomic):
            dims, block = self.blocks.all_dims(), True
        pointer = self._address(stmt.buffer, stmt.index, dims, block=block)
        mask = self._mask(dims if block else frozenset(), stmt.mask)
        value = self._stored(stmt, dims)
        if isinstance(stmt, Store):
            self.write(f"tl.store({pointer}, {value}{', ' + mask if mask else ''})")
        else:
            self.write(f'tl.atomic_add({pointer}, {value}{", mask=" + mask if mask else ""}, sem="relaxed")')

    def _stored(self, stmt: Store | Atomic, dims: frozenset[str]) -> str:
        memory = self.buffers[stmt.buffer].dtype
        value = f"v{stmt.value}"
        if isinstance(stmt, Atomic):
            text = self.spread(stmt.value, self.blocks.shape(dims), memory)
            # Triton's interpreter takes the value of an atomic to be contiguous, and a broadcast one is not.
            return f"{text} * 1" if stmt.value in self.block_values and self.dims[stmt.value] != dims else text
        return to_memory(value, memory)

    def _check(self, stmt: Check) -> None:
        dims = frozenset().union(*(self.dims[v] for v in operands(stmt)))
        value = f"v{stmt.value}"
        lower, upper = triton_text(stmt.lower, self.ranges), triton_text(stmt.upper, self.ranges)
        inside = f"(({value} >= {lower}) & ({value} < {upper}))"
        mask = self._mask(dims if self._any_block(operands(stmt)) else frozenset(), stmt.mask)
        condition = f"{inside} | ~({mask})" if mask else inside
        self.write(f'dl.device_assert({condition}, "index out of bounds: 0 <= index < {upper}")')


def _zero(dtype: torch.dtype) -> str:
    return "0.0" if dtype.is_floating_point else "0"


def _literal(value: bool | int | float) -> str:
    return repr(value) if math.isfinite(value) else f'float("{value}")'
