"""Blocks of a task: the shape, coordinates and tail masks of its tile dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..ir.index import Expr, FloorDiv, Mod, integer, product, substitute, symbol
from ..ir.schedule_ir import Task, TileDim
from ..ir.simplify import Ranges, exact_quotient, simplify
from ..ir.tile_ir import LoopNest
from .index_text import triton_text


@dataclass(frozen=True)
class Blocks:
    """Tile geometry of ``task`` on ``nest``: every block value has ``len(task.dims)`` dimensions, 1 where it does not vary.

    ``multiples`` gives integers that are known to divide a symbol.
    """

    task: Task
    nest: LoopNest
    lower: Mapping[str, int]
    multiples: Mapping[str, int] = field(default_factory=dict)

    def rank(self) -> int:
        return len(self.task.dims)

    def dims_of(self, axes: Iterable[str]) -> frozenset[str]:
        wanted = set(axes)
        return frozenset(d.name for d in self.task.dims if wanted & set(d.axes))

    def shape(self, dims: frozenset[str]) -> str:
        return "[" + ", ".join(str(d.block) if d.name in dims else "1" for d in self.task.dims) + "]"

    def all_dims(self) -> frozenset[str]:
        return frozenset(d.name for d in self.task.dims)

    def expand(self, dim: TileDim) -> str:
        """Subscript that turns a vector along ``dim`` into a block of full rank."""
        if self.rank() == 1:
            return ""
        return "[" + ", ".join(":" if d.name == dim.name else "None" for d in self.task.dims) + "]"

    def extent(self, dim: TileDim) -> Expr:
        return dim.extent(self.nest)

    def has_tail(self, dim: TileDim) -> bool:
        known = {symbol(name): integer(by) * symbol(name) for name, by in self.multiples.items()}
        return exact_quotient(substitute(self.extent(dim), known), integer(dim.block)) is None

    def masks(self, dims: frozenset[str]) -> list[str]:
        return [f"{d.name}_mask" for d in self.task.dims if d.name in dims and self.has_tail(d)]

    def coordinates(self, dim: TileDim, used: frozenset[str], start: str, extent: str) -> list[str]:
        """Lines that define the dimension's flat coordinate, its tail mask, and the axes that are used."""
        lines = [f"{dim.name} = {start} + tl.arange(0, {dim.block}){self.expand(dim)}"]
        if self.has_tail(dim):
            lines.append(f"{dim.name}_mask = {dim.name} < {extent}")
        ranges = Ranges({dim.name: self.extent(dim)}, self.lower)
        extents = self.nest.extents()
        for k, axis in enumerate(dim.axes):
            if axis not in used:
                continue
            inner = product(extents[a] for a in dim.axes[k + 1 :])
            digit: Expr = FloorDiv(symbol(dim.name), inner)
            if k > 0:
                digit = Mod(digit, extents[axis])
            digit = simplify(digit, ranges)
            # An axis of one element is still a block, as everything that is computed from it takes it to be.
            lines.append(f"{axis} = {f'{dim.name} * 0' if digit.is_Integer else triton_text(digit, ranges)}")
        return lines
