"""Registers of a task, estimated from the blocks that are alive together.

A block of n elements takes ceil(n / threads) registers of each thread, twice that for 8-byte elements; what varies over no tile
dimension takes none to speak of, and constants are part of the instructions. A persistent reduction keeps what a later pass reads
again; a looped one computes it anew in each pass, and keeps a block of partial results for every reduction of the pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ir.body import effect_depth, flow
from ..ir.schedule_ir import KernelSchedule, Task
from ..ir.tile_ir import Atomic, Check, Const, LoopNest, Reduce, Store, TileProgram, is_value, operands
from .tile_sizes import next_power_of_two

BASE_REGISTERS = 16  # addresses, tile coordinates, the virtual pid
MAX_REGISTERS = 255
FREE_REGISTERS = 32
WARP = 32


@dataclass(frozen=True)
class ResourceEstimate:
    """``registers`` of a thread of a kernel with ``num_warps`` warps a program: the largest of its tasks' counts."""

    registers: int
    num_warps: int

    @property
    def per_program(self) -> int:
        """Registers of a program; no fewer than the 32 a thread up to which a multiprocessor holds all its threads."""
        return max(FREE_REGISTERS, self.registers) * WARP * self.num_warps

    @property
    def resource_class(self) -> int:
        """``per_program``, rounded up to a power of two: kernels of one class lower each other's occupancy by half at most."""
        return next_power_of_two(self.per_program)

    def __str__(self) -> str:
        return f"{self.registers} registers a thread, {self.num_warps} warps"


def resources_of(schedule: KernelSchedule, program: TileProgram) -> ResourceEstimate:
    """The estimate for a kernel: registers belong to the kernel, so that its hungriest task sets them for all."""
    nests = {n.name: n for n in program.nests}
    registers = max((task_registers(nests[t.nest], t, schedule.num_warps) for t in schedule.tasks()), default=BASE_REGISTERS)
    return ResourceEstimate(registers, schedule.num_warps)


def task_registers(nest: LoopNest, task: Task, num_warps: int) -> int:
    """Registers of a thread, at most what a thread can have: beyond, values spill."""
    alive = max(_alive(nest, task, members, num_warps * WARP) for members in passes(nest, task))
    return min(MAX_REGISTERS, BASE_REGISTERS + alive)


def passes(nest: LoopNest, task: Task) -> tuple[tuple[int, ...], ...]:
    """Positions of the statements that run in each pass over the reduce dimension; one pass of all unless it is looped.

    A pass of a looped dimension runs its reductions and effects, and whatever of the dimension they read.
    """
    dim = task.reduce_dim()
    if dim is None or dim.kind == "persistent":
        return (tuple(range(len(nest.body))),)
    known, axes = flow(nest), frozenset(dim.axes)
    place = {s.id: k for k, s in enumerate(nest.body) if is_value(s)}  # type: ignore[union-attr]
    found: dict[int, set[int]] = {}
    for position, stmt in enumerate(nest.body):
        if isinstance(stmt, (Store, Atomic, Check)):
            depth = effect_depth(stmt, known)
        elif isinstance(stmt, Reduce):
            depth = known.depth[stmt.id] - 1
        elif known.axes[stmt.id] & axes:
            continue
        else:
            depth = known.depth[stmt.id]
        mine, todo = found.setdefault(depth, set()), [position]
        while todo:
            k = todo.pop()
            if k not in mine:
                mine.add(k)
                todo += [place[v] for v in operands(nest.body[k]) if known.axes[v] & axes]
    return tuple(tuple(sorted(found[d])) for d in sorted(found))


def _alive(nest: LoopNest, task: Task, members: Sequence[int], threads: int) -> int:
    """Most registers of a thread that hold values between two statements of one pass."""
    body = [nest.body[k] for k in members]
    size = _registers(nest, task, threads)
    last = {v: k for k, s in enumerate(body) for v in operands(s)}
    dim = task.reduce_dim()
    looped = dim is not None and dim.kind == "looped"
    own = {s.id for s in body if is_value(s)}  # type: ignore[union-attr]
    now = sum(size[v] for v in last if v not in own)
    most = now = now + (sum(size[s.arg] for s in body if isinstance(s, Reduce)) if looped else 0)
    for k, stmt in enumerate(body):
        now += size[stmt.id] if is_value(stmt) else 0  # type: ignore[union-attr]
        most = max(most, now)
        now -= sum(size[v] for v in dict.fromkeys(operands(stmt)) if last[v] == k and v in own)
    return most


def _registers(nest: LoopNest, task: Task, threads: int) -> Mapping[int, int]:
    """Per value: registers of a thread that hold its block."""
    known = flow(nest)
    result: dict[int, int] = {}
    for stmt in nest.body:
        if not is_value(stmt):
            continue
        over = known.axes[stmt.id]  # type: ignore[union-attr]
        elements = block_elements(task, over)
        words = -(-elements // threads) if over and not isinstance(stmt, Const) else 0
        result[stmt.id] = words * (2 if stmt.dtype.itemsize == 8 else 1)  # type: ignore[union-attr]
    return result


def block_elements(task: Task, axes: frozenset[str]) -> int:
    """Elements of the block of a value that varies over ``axes``."""
    result = 1
    for dim in task.dims:
        result *= dim.block if axes & set(dim.axes) else 1
    return result
