"""A task that multiplies matrices -> the body of its ``@triton.jit`` function.

A tile has rows and columns; what is multiplied has rows or columns and the reduced axis. Each of the three is written with blocks
of two dimensions of its own: the factors in ``[rows, k]`` and ``[k, columns]``, and what is done with the product in
``[rows, columns]``. Axes and values of the factors have names that tell whose they are: ``p0l``, ``p1r``. What reduces rows before
they are multiplied, such as a norm, runs in the left factor's passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..ir.body import flow
from ..ir.dots import Dot, DotPlan, dot_plan
from ..ir.index import Expr, FloorDiv, Mod, product, symbol
from ..ir.rewrite import next_value, shift_values, with_indices
from ..ir.schedule_ir import Task, TileDim
from ..ir.simplify import Ranges, simplify
from ..ir.tile_ir import Axis, Buffer, Check, Load, LoopNest, Reduce, Stmt, is_value, operands
from .expressions import triton_dtype
from .index_text import triton_text
from .task_body import TaskBody


@dataclass
class DotBody:
    """As ``TaskBody``, for a task of kind ``dot``."""

    nest: LoopNest
    task: Task
    buffers: dict[str, Buffer]
    lower: dict[str, int]
    multiples: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plan = dot_plan(self.nest, self.buffers)
        assert plan is not None, f"@{self.nest.name} multiplies no matrices"
        self.plan: DotPlan = plan
        self.dims = {d.name: d for d in self.task.dims}
        self.shift = next_value(self.nest.body)
        self.frame = TaskBody(self.nest, self.task, self.buffers, self.lower, self.multiples)
        self.lines = self.frame.lines
        dots = {d.value for d in self.plan.dots}
        before = {s.arg for s in self.nest.body if isinstance(s, Reduce) and s.id not in dots} | set(self.plan.kept)
        self.left = self._context("l", 1, ("m", "k"), self._closure({d.left for d in self.plan.dots} | before))
        self.right = self._context("r", 2, ("k", "n"), self._closure({d.right for d in self.plan.dots}))
        self.result = self._context("", 0, ("m", "n"), None)

    def run(self) -> list[str]:
        self.frame.place_tile(self._place)
        depths = flow(self.nest).depth
        self.depth = depths[self.plan.dots[0].value] - 1
        if self.looped:
            for number in range(self.depth):
                self.left.looped_pass(number, self.left_k, {s.id for s in self.left_reduces})
            self.left.invariants(self.depth, self.left_k)
        else:
            self._coordinates_of_k("0")
            for stmt in self.left_reduces:
                for needed in [*self.left.needed({stmt.arg}), stmt]:
                    self.left.statement(needed)
        self._multiply()
        self._finish()
        return self.lines

    # ---- the three
    @cached_property
    def looped(self) -> bool:
        return self.dims["k"].kind == "looped"

    @cached_property
    def left_k(self) -> TileDim:
        return next(d for d in self.left.task.dims if d.name.startswith("k"))

    @cached_property
    def right_k(self) -> TileDim:
        return next(d for d in self.right.task.dims if d.name.startswith("k"))

    @cached_property
    def left_reduces(self) -> list[Reduce]:
        """What rows are reduced to before they are multiplied."""
        dots = {d.value + self.shift for d in self.plan.dots}
        return [s for s in self.left.nest.body if isinstance(s, Reduce) and s.id not in dots]

    def _closure(self, values: set[int]) -> frozenset[int]:
        """Positions of the statements that ``values`` need, and of what reduces them."""
        found: set[int] = set()
        for position in reversed(range(len(self.nest.body))):
            stmt = self.nest.body[position]
            if is_value(stmt) and stmt.id in values:  # type: ignore[union-attr]
                found.add(position)
                values |= set(operands(stmt))
        return frozenset(found)

    def _context(self, suffix: str, number: int, names: tuple[str, str], positions: frozenset[int] | None) -> TaskBody:
        """A writer of blocks with the dimensions ``names``; its axes and values have names of their own."""
        batch = set(self.plan.batch)
        change = {a: f"{a}{suffix}" for a in self.nest.extents() if a not in batch}
        symbols = {symbol(old): symbol(new) for old, new in change.items() if new != old}
        ranges = Ranges({}, {})
        body = []
        for stmt in shift_values(self.nest.body, number * self.shift):
            stmt = with_indices(stmt, symbols, ranges) if symbols else stmt
            body.append(replace(stmt, axes=tuple(change[a] for a in stmt.axes)) if isinstance(stmt, Reduce) else stmt)
        dims = tuple(replace(self.dims[n], name=f"{n}{suffix}", axes=tuple(change[a] for a in self.dims[n].axes)) for n in names)
        held = {a for d in dims for a in d.axes}
        parallel, reduce = (
            tuple(Axis(change[a.name], a.extent) for a in axes if change.get(a.name) in held)
            for axes in (self.nest.parallel, self.nest.reduce)
        )
        own = LoopNest(self.nest.name, parallel, reduce, tuple(body), self.nest.origins)
        lower = self.lower | dict.fromkeys(batch, 0)
        return TaskBody(own, replace(self.task, dims=dims), self.buffers, lower, self.multiples, positions, lines=self.lines)

    # ---- coordinates
    def _place(self, dim: TileDim, start: str) -> None:
        if dim.name == "z":
            self.frame.write(f"z = {start}")
            self._batch(dim)
            return
        contexts = (self.left, self.result) if dim.name == "m" else (self.right, self.result)
        for context in contexts:
            own = next(d for d in context.task.dims if d.name.startswith(dim.name))
            context.coordinates(own, start)

    def _batch(self, dim: TileDim) -> None:
        """The axes that number matrices, as scalars."""
        extents = self.nest.extents()
        ranges = Ranges({"z": dim.extent(self.nest)}, self.lower)
        for k, axis in enumerate(dim.axes):
            digit: Expr = FloorDiv(symbol("z"), product(extents[a] for a in dim.axes[k + 1 :]))
            digit = simplify(Mod(digit, extents[axis]) if k else digit, ranges)
            self.frame.write(f"{axis} = {triton_text(digit, ranges)}")

    def _coordinates_of_k(self, start: str) -> None:
        self.left.coordinates(self.left_k, start)
        self.right.coordinates(self.right_k, start)

    # ---- the product
    def _multiply(self) -> None:
        shape = self.result.blocks.shape(self.result.blocks.all_dims())
        for dot in self.plan.dots:
            self.left.write(f"acc{dot.value} = tl.zeros({shape}, tl.float32)")
        beside = [s for s in self.left_reduces if self.left.flow.depth[s.id] == self.depth + 1] if self.looped else []
        self.left.begin(beside)
        if self.looped:
            start = self.left.open_loop(self.left_k)
            self.right.depth = self.left.depth
            self._coordinates_of_k(start)
        done = set(self.left.done), set(self.right.done)
        for number, context in ((1, self.left), (2, self.right)):
            factors = {(d.left if number == 1 else d.right) + number * self.shift for d in self.plan.dots}
            context.raw = frozenset(v for v in factors if self._only_multiplied(context, v, factors))
            for stmt in context.needed(factors):
                context.statement(stmt)
            for check in self._checks(context):
                context.statement(check)
        for dot in self.plan.dots:
            left = self._factor(self.left, dot.left + self.shift, self.left_k, dot)
            right = self._factor(self.right, dot.right + 2 * self.shift, self.right_k, dot)
            self.left.write(f"acc{dot.value} = dl.dot({left}, {right}, acc{dot.value})")
        for stmt in beside:
            for needed in self.left.needed({stmt.arg}):
                self.left.statement(needed)
            self.left.fold(stmt, self.left_k)
        if self.looped:
            self.left.done, self.right.done = done
            self.left.depth = self.right.depth = 1
            self.left.end(beside)

    def _checks(self, context: TaskBody) -> list[Stmt]:
        """Checks of indices by which a factor is loaded."""
        found: list[Stmt] = []
        for stmt in context.nest.body:
            if isinstance(stmt, Check) and set(operands(stmt)) <= context.done:
                if any(context.flow.axes[v] & set(a.name for a in context.nest.reduce) for v in operands(stmt)):
                    found.append(stmt)
        return found

    def _only_multiplied(self, context: TaskBody, value: int, factors: set[int]) -> bool:
        """Whether a factor is loaded, and of no other use: it then goes to the unit as it lies in memory."""
        stmt = next(s for s in context.nest.body if is_value(s) and s.id == value)  # type: ignore[union-attr]
        products = {s.arg for s in context.nest.body if isinstance(s, Reduce) and s.id not in {r.id for r in self._reduces(context)}}
        users = [s for s in context.nest.body if value in operands(s)]
        return isinstance(stmt, Load) and all(is_value(s) and s.id in products for s in users)  # type: ignore[union-attr]

    def _reduces(self, context: TaskBody) -> list[Reduce]:
        return self.left_reduces if context is self.left else []

    def _factor(self, context: TaskBody, value: int, k: TileDim, dot: Dot) -> str:
        plain = value in context.raw
        text = context.spread(value, context.blocks.shape(context.blocks.all_dims()), context.types[value])
        if not plain:
            text = f"dl.narrow({text}, {triton_dtype(dot.dtype)})"
        if context.blocks.has_tail(k) and not plain:  # what is computed from masked elements need not be 0
            text = f"tl.where({k.name}_mask, {text}, 0.0)"
        return text

    # ---- what is done with it
    def _finish(self) -> None:
        result = self.result
        given: Mapping[int, str] = {d.value: f"acc{d.value}" for d in self.plan.dots} | {v: f"v{v + self.shift}" for v in self.plan.kept}
        for value, text in given.items():
            stmt = next(s for s in self.nest.body if is_value(s) and s.id == value)  # type: ignore[union-attr]
            result.define(stmt, text, block=True)  # type: ignore[arg-type]
        reduced = {a.name for a in self.nest.reduce}
        known = self.frame.flow
        effects = [s for s in self.nest.body if not is_value(s)]
        own = [s for s in effects if not (isinstance(s, Check) and any(known.axes[v] & reduced for v in operands(s)))]
        wanted = {v for s in own for v in operands(s)}
        needed = {id(s) for s in result.needed(wanted)} | {id(s) for s in result.nest.body if self._is_own(s, own)}
        for stmt in result.nest.body:
            if id(stmt) in needed:
                result.statement(stmt)

    def _is_own(self, stmt: Stmt, own: list[Stmt]) -> bool:
        return not is_value(stmt) and stmt in own
