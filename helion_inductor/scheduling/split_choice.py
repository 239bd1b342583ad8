"""Which reductions are cut in two, and into which chunks: those that are predicted to be faster so, on the whole device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..ir.index import ZERO, product
from ..ir.rewrite import collapse_axes, cse, dce
from ..ir.schedule_ir import Task
from ..ir.tile_ir import Load, LoopNest, Stmt, Store, TileProgram
from .cost import nest_us
from .dependence import storage
from .device_model import H200_MODEL, DeviceModel
from .dot_tiles import dot_task
from .hints import evaluate_size
from .split import Cut, Scratch, obstacle, split_nest
from .tile_sizes import TileTarget, choose_task, memory_order, next_power_of_two, points, reduce_is_contiguous

LEAST_CHUNK = 4096  # elements of a program: below, starting it takes longer than its memory
MOST_CHUNK = 16384  # above, a few programs a multiprocessor do not take turns evenly
DOT_CHUNK = 1024  # elements of the summed axis of a product of matrices that a program takes: eight steps
TURNS = 8  # programs for each multiprocessor that chunks between the two are chosen for
GAIN = 0.85  # of the whole's time that a split must not pass, for predictions are not exact; it must also make up for its launches
VECTORS = (16, 8)  # elements that chunks are multiples of, where they can be: whole accesses, of bytes or of halves


@dataclass(frozen=True)
class SplitDecision:
    """A reduction of long rows that are few, whether it was cut, and why (not). ``chunk``: elements of a row for each program."""

    nest: str
    split: bool
    chunk: int
    reason: str

    def __str__(self) -> str:
        return f"{self.nest}: {f'split in chunks of {self.chunk}' if self.split else 'whole'}: {self.reason}"


def split_reductions(program: TileProgram, target: TileTarget, device: DeviceModel = H200_MODEL,
                     chunk: int | None = None) -> tuple[TileProgram, tuple[SplitDecision, ...]]:  # fmt: skip
    """``program`` with long reductions cut, and what was decided.

    ``chunk`` cuts every reduction that is longer, into chunks of about so many elements, whatever is predicted. Without it nothing
    is cut for the interpreter, where programs cost more than their elements.
    """
    if chunk is None and target.interpreter:
        return program, ()
    choice = _Choice(program, target, device, chunk)
    long = {n.name for n in program.nests if n.reduce and choice.is_long(n)}
    if not long:
        return program, ()
    elements = chunk or _elements(sum(points(n, program) for n in program.nests if n.name in long), target)
    nests: list[LoopNest] = []
    decisions: list[SplitDecision] = []
    for nest in program.nests:
        parts = [nest]
        if nest.name in long:
            parts, decision = choice.split(nest, elements)
            decisions.append(decision)
        nests += parts
    buffers = (*program.buffers, *choice.scratch.buffers())
    return replace(program, nests=tuple(nests), buffers=buffers), tuple(decisions)


def _elements(work: int, target: TileTarget) -> int:
    """Elements of a program, where ``work`` of them are to be reduced: a power of two."""
    share = next_power_of_two(-(-work // (TURNS * target.sm_count)))
    return max(LEAST_CHUNK, min(share, MOST_CHUNK))


class _Choice:
    """Decides about the nests of one program; equal ones once."""

    def __init__(self, program: TileProgram, target: TileTarget, device: DeviceModel, forced: int | None) -> None:
        self.program, self.target, self.device, self.forced = program, target, device, forced
        self.storages, self.hints, self.lower = storage(program), program.hints(), program.lower()
        self.scratch = Scratch({b.name for b in program.buffers})
        self.known: dict[Any, tuple[Cut | None, str]] = {}

    def is_long(self, nest: LoopNest) -> bool:
        """Whether cutting ``nest`` is worth a thought: its rows are longer than a chunk, and too few to fill the device."""
        length = evaluate_size(product(a.extent for a in nest.reduce), self.hints)
        if self.forced is not None:
            return length > self.forced
        tiles = self._task(nest, self.program)
        if tiles.task.dot:
            return length >= 2 * DOT_CHUNK and tiles.programs(nest, self.hints) < self.target.sm_count
        return length * tiles.width > LEAST_CHUNK and tiles.programs(nest, self.hints) < 2 * self.target.sm_count

    def _task(self, nest: LoopNest, program: TileProgram) -> _Tiles:
        return _Tiles(dot_task(nest, program, self.target, {}) or choose_task(nest, program, self.target, {}, points(nest, program)))

    def split(self, nest: LoopNest, elements: int) -> tuple[list[LoopNest], SplitDecision]:
        """The nests that ``nest`` becomes: itself where it stays whole."""
        form = (nest.parallel, nest.reduce, tuple(_blank(s) for s in nest.body))
        if form not in self.known:
            self.known[form] = self._decide(nest, elements)
        cut, reason = self.known[form]
        if cut is None:
            return [nest], SplitDecision(nest.name, False, 0, reason)
        return self._made(nest, cut, self.scratch), SplitDecision(nest.name, True, self._chunk(nest, cut), reason)

    def _chunk(self, nest: LoopNest, cut: Cut) -> int:
        return cut.length * evaluate_size(product(a.extent for a in nest.reduce[cut.position + 1 :]), self.hints)

    def _decide(self, nest: LoopNest, elements: int) -> tuple[Cut | None, str]:
        reason = obstacle(nest, self.storages)
        if reason is not None:
            return None, reason
        task = self._task(nest, self.program)
        width = task.width if self.forced is None else 1
        cut = choose_cut(nest, DOT_CHUNK if task.task.dot and self.forced is None else max(2, elements // width), self.hints)
        if cut is None:
            return None, "its rows are no longer than a chunk"
        if self.forced is not None:
            return cut, "the option split_reductions asks for it"
        scratch = Scratch(set(self.scratch.taken))
        parts = self._made(nest, cut, scratch)
        trial = replace(self.program, nests=tuple(parts), buffers=(*self.program.buffers, *scratch.buffers()))
        whole = self._us([nest], self.program)
        more = len(parts) - 1
        apart = self._us(parts, trial) + self.device.launch_us * more
        told = f"predicted {apart:.1f} us split, by {more} more kernels, against {whole:.1f} us whole"
        return (cut if apart < GAIN * whole and apart + self.device.host_kernel_us * more < whole else None), told

    def _us(self, nests: Sequence[LoopNest], program: TileProgram) -> float:
        return sum(nest_us(n, self._task(n, program).task, program, self.device) for n in nests)

    def _made(self, nest: LoopNest, cut: Cut, scratch: Scratch) -> list[LoopNest]:
        side_by_side = reduce_is_contiguous(nest) and not self._task(nest, self.program).task.dot
        parts = split_nest(nest, cut, scratch, self.lower, rows_first=side_by_side)
        return [dce(cse(collapse_axes(n if n.reduce else memory_order(n, self.hints), self.lower))) for n in parts]


@dataclass(frozen=True)
class _Tiles:
    """A task with what the choice of a cut asks about it."""

    task: Task

    @property
    def width(self) -> int:
        """Rows of a tile."""
        return math.prod(d.block for d in self.task.dims if d.kind == "parallel")

    def programs(self, nest: LoopNest, hints: Mapping[str, int]) -> int:
        return evaluate_size(self.task.tiles(nest), hints)


def _blank(stmt: Stmt) -> Stmt:
    """The statement without what does not matter to its time: which buffer, and where a store goes."""
    match stmt:
        case Load():
            return replace(stmt, buffer="")
        case Store():
            return replace(stmt, buffer="", index=ZERO)
    return stmt


def choose_cut(nest: LoopNest, elements: int, hints: Mapping[str, int]) -> Cut | None:
    """Chunks of about ``elements`` points of the reduce axes; None where all of them are no more.

    The chunk is a whole number of steps of the outermost axis that allows it. A length that divides the axis is preferred, down to
    half of what is wanted: then no element has to be masked. Where neighbours of the axis are neighbours in memory, chunks must not
    begin in the middle of a wide access for that.
    """
    extents = [evaluate_size(a.extent, hints) for a in nest.reduce]
    inner = [math.prod(extents[k + 1 :]) for k in range(len(extents))]
    position = next(k for k, size in enumerate(inner) if size <= elements)
    extent, length = nest.reduce[position].extent, max(1, elements // max(1, inner[position]))
    if position == 0 and length >= extents[0]:
        return None
    if extent.is_Integer:
        length = min(length, int(extent))
        near = [d for d in range(length // 2 + 1, length + 1) if int(extent) % d == 0]
        even = ([d for d in near if d * inner[position] % v == 0] for v in VECTORS)
        length = max(next(filter(None, even), near if not reduce_is_contiguous(nest) else []), default=length)
    if length == 1 and position == len(nest.reduce) - 1:
        length = 2
    return Cut(position, length)
