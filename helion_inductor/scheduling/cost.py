"""First-order times of kernels: ours, from their schedules, and Inductor's, from the nests.

A phase takes as long as the slowest of four things::

    bytes / bandwidth            all programs together
    instructions / issue rate    all programs together
    latency                      of the program with the longest path
    sum of latencies / resident  programs that take turns on the places that registers and warps leave

The last is Little's law as well: few programs, each waiting for one block of loads after another, do not fill the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..ir.index import product
from ..ir.schedule_ir import KernelSchedule, Task, TileDim
from ..ir.tile_ir import LoopNest, Scan, TileProgram
from .device_model import H200_MODEL, DeviceModel
from .hints import evaluate_size
from .library import library_calls
from .tile_sizes import TileTarget, choose_task, next_power_of_two, points, reduce_is_contiguous, usual_warps
from .work import Work, member_sizes, nest_bytes, nest_work, task_work

__all__ = ["host_us", "inductor_host_us", "inductor_nests_us", "inductor_us", "kernel_us", "nest_bytes", "nest_us"]

INDUCTOR_PERSISTENT = 1024  # longest row that Inductor's heuristics keep in registers
INDUCTOR_BLOCK = 2048
SPLIT_ROW = 8192  # above, Inductor splits rows that are too few for the device
SPLIT_COLUMN = 512  # the same for reductions across rows; on the safe side, for what Inductor does depends on more
FULL = 1.5  # a loop that takes more than so many times its longest program fills the device
FOREACH_POINTERS = 250  # arguments of one of Inductor's kernels for a foreach op
ATEN_CHUNK = 65536  # elements of a block of ATen's kernels for lists of tensors, which Inductor calls for foreach reductions
ATEN_STEP = 2048  # elements that such a block of 512 threads loads at once
ATEN_BLOCKS, ATEN_TENSORS = 320, 110  # of one launch at most


@dataclass(frozen=True)
class Side:
    """Tasks side by side in one phase, added up: as :class:`Work`, with ``turns_us`` the latencies of all programs one after
    another, ``longest_us`` the longest, and the number of ``bodies``."""

    programs: int = 0
    bytes: int = 0
    slots: int = 0
    turns_us: float = 0.0
    longest_us: float = 0.0
    registers: int = 0
    num_warps: int = 1
    bodies: int = 0

    def __add__(self, other: Side) -> Side:
        return Side(
            self.programs + other.programs, self.bytes + other.bytes, self.slots + other.slots, self.turns_us + other.turns_us,
            max(self.longest_us, other.longest_us), max(self.registers, other.registers), max(self.num_warps, other.num_warps),
            self.bodies + other.bodies,
        )  # fmt: skip

    def rate_us(self, device: DeviceModel) -> float:
        """What the bytes and instructions take on the whole device."""
        return 1e6 * max(self.bytes / device.bandwidth, self.slots / device.slots)

    def us(self, device: DeviceModel, grid: int | None = None) -> float:
        """Time of the phase; ``grid`` programs take turns where it is persistent. The hungriest task sets the registers of all."""
        places = device.info.sm_count * device.resident(self.registers, self.num_warps)
        turns = self.turns_us / max(1, places if grid is None else min(places, grid))
        # A multiprocessor fetches the code of no more bodies than it runs programs.
        bodies = min(self.bodies, -(-self.programs // device.info.sm_count))
        return max(self.rate_us(device), self.longest_us, turns) + device.body_us * max(0, bodies - 1)

    def filling_us(self, device: DeviceModel) -> float:
        """Its time where there is work for all of the device, 0 where the longest program decides."""
        time = self.us(device)
        return time if time > FULL * self.longest_us else 0.0


def side(work: Work) -> Side:
    longest = work.latency_us if work.programs else 0.0
    turns = work.programs * work.latency_us
    return Side(work.programs, work.bytes, work.slots, turns, longest, work.registers, work.num_warps, 1)


def nest_us(nest: LoopNest, task: Task, program: TileProgram, device: DeviceModel = H200_MODEL, num_warps: int | None = None) -> float:
    """Microseconds of one nest with the device to itself, without its launch. ``num_warps``: what suits the block where None."""
    return side(nest_work(nest, task, program, num_warps or usual_warps(task, nest), device)).us(device)


def kernel_us(schedule: KernelSchedule, program: TileProgram, device: DeviceModel = H200_MODEL) -> float:
    """Microseconds of a kernel as a node of a graph: launch, phases, and a barrier between two."""
    grid = None
    if schedule.pid_type != "flat":
        grid = schedule.sm_multiplier * max(1, device.info.sm_count - schedule.reserved_sms)
    sides = [sum((side(task_work(t, program, schedule.num_warps, device)) for t in phase.tasks), Side()) for phase in schedule.phases]
    registers = max(s.registers for s in sides)
    phases = [replace(s, registers=registers).us(device, grid) for s in sides]
    return device.launch_us + sum(phases) + device.barrier_us * (len(phases) - 1)


@dataclass(frozen=True)
class InductorNest:
    """Time of a nest as Inductor would run it, launches included; ``filling_us`` of it in loops that fill the device."""

    us: float
    launches: int
    tensors: int
    filling_us: float


def inductor_us(program: TileProgram, device: DeviceModel = H200_MODEL) -> float:
    """Microseconds on the device of Inductor's kernels for the same work."""
    return sum(k.us for k in inductor_nests_us(program, device))


def inductor_nests_us(program: TileProgram, device: DeviceModel = H200_MODEL) -> tuple[InductorNest, ...]:
    """Inductor's kernels: about one a nest, as fast as ours would be alone or faster; those of foreach ops are shared."""
    apart = [n for n in program.nests if not _of_foreach(n)]
    grouped: dict[tuple[str, ...], list[LoopNest]] = {}
    for nest in program.nests:
        if _of_foreach(nest):
            grouped.setdefault(nest.origins, []).append(nest)
    alone = [_inductor_nest(n, program, device) for n in apart]
    return (*alone, *(_inductor_foreach(group, program, device) for group in grouped.values()))


def _of_foreach(nest: LoopNest) -> bool:
    """Nests come from nodes of the graph, which are named after their ops."""
    return any(o.startswith("_foreach_") for o in nest.origins)


def _inductor_nest(nest: LoopNest, program: TileProgram, device: DeviceModel) -> InductorNest:
    tensors = len({*nest.reads(), *nest.writes()})
    if (calls := library_calls(nest, program, device)) is not None:
        return InductorNest(calls.us, calls.launches, tensors, 0.0)
    task = choose_task(nest, program, TileTarget(device.info.sm_count), {}, points(nest, program))
    tasks = dict.fromkeys((task, _looped(task, nest, program)) if not _long_row(task, nest, program) else (_looped(task, nest, program),))
    sides = [side(nest_work(nest, t, program, usual_warps(t, nest), device)) for t in tasks]
    best = min(sides, key=lambda s: s.us(device))
    whole, filling = best.us(device), best.filling_us(device)
    if _splits(nest, sides[0].programs, program, device):
        step = device.start_us + device.memory_us + device.reduce_us
        split = max(sides[0].rate_us(device), 2 * step) + step + device.launch_us
        if split < whole:
            return InductorNest(device.launch_us + split, 2, tensors + 2, filling)
    return InductorNest(device.launch_us + whole, 1, tensors, filling)


def _splits(nest: LoopNest, programs: int, program: TileProgram, device: DeviceModel) -> bool:
    """Whether Inductor cuts the reduction in two kernels, so that it fills the device."""
    if not nest.reduce or programs >= 2 * device.info.sm_count:
        return False
    length = evaluate_size(product(a.extent for a in nest.reduce), program.hints())
    return length > (SPLIT_ROW if reduce_is_contiguous(nest) else SPLIT_COLUMN)


def _long_row(task: Task, nest: LoopNest, program: TileProgram) -> bool:
    """Whether Inductor is sure to take the rows in steps, reading them again in every pass: they are walked along memory, and
    longer than it keeps in registers."""
    dim = task.reduce_dim()
    if dim is None or any(isinstance(s, Scan) for s in nest.body):
        return False
    return reduce_is_contiguous(nest) and evaluate_size(dim.extent(nest), program.hints()) > INDUCTOR_PERSISTENT


def _looped(task: Task, nest: LoopNest, program: TileProgram) -> Task:
    """The task with long rows in steps."""
    dim = task.reduce_dim()
    length = evaluate_size(dim.extent(nest), program.hints()) if dim is not None else 0
    if dim is None or length <= INDUCTOR_PERSISTENT or any(isinstance(s, Scan) for s in nest.body):
        return task
    block = min(INDUCTOR_BLOCK, next_power_of_two(length))
    return replace(task, dims=(*task.dims[:-1], TileDim(dim.name, dim.axes, block, "looped")))


def _inductor_foreach(nests: Sequence[LoopNest], program: TileProgram, device: DeviceModel) -> InductorNest:
    tensors = sum(len({*n.reads(), *n.writes()}) for n in nests)
    if any(n.reduce for n in nests):
        return _aten_foreach(nests, tensors, program, device)
    launches = -(-tensors // FOREACH_POINTERS)
    of_size: dict[Any, Side] = {}  # loops of one op are of one form
    together = Side()
    for nest in nests:
        key = member_sizes(nest, program)
        if key not in of_size:
            task = choose_task(nest, program, TileTarget(device.info.sm_count), {}, points(nest, program))
            of_size[key] = side(nest_work(nest, task, program, usual_warps(task, nest), device))
        together += of_size[key]
    together = replace(together, bodies=1)
    return InductorNest(launches * device.launch_us + together.us(device), launches, tensors, together.filling_us(device))


def _aten_foreach(nests: Sequence[LoopNest], tensors: int, program: TileProgram, device: DeviceModel) -> InductorNest:
    """A reduction of each of many tensors: Inductor has no loops for it and calls ATen, whose blocks reduce a chunk each and whose
    last kernel folds the chunks."""
    sizes = [points(n, program) for n in nests]
    blocks = sum(-(-size // ATEN_CHUNK) for size in sizes)
    launches = max(-(-blocks // ATEN_BLOCKS), -(-len(nests) // ATEN_TENSORS))
    block = device.start_us + -(-min(max(sizes), ATEN_CHUNK) // ATEN_STEP) * device.memory_us + device.reduce_us
    reading = 1e6 * sum(nest_bytes(n, program) for n in nests) / device.bandwidth
    folding = device.start_us + device.memory_us + device.reduce_us
    us = max(reading, launches * block) + folding + (launches + 1) * device.launch_us
    return InductorNest(us, launches + 1, tensors, reading if reading > launches * block else 0.0)


def host_us(program: TileProgram, schedules: Sequence[KernelSchedule], device: DeviceModel = H200_MODEL) -> float:
    """Microseconds that a call of the region takes on the host. What allocating the outputs takes is left out here and for
    Inductor, as it is the same."""
    tensors = sum(b.kind != "temp" for b in program.buffers)
    return device.host_region_us + device.host_kernel_us * max(0, len(schedules) - 1) + device.host_tensor_us * tensors


def inductor_host_us(kernels: Sequence[InductorNest], device: DeviceModel = H200_MODEL) -> float:
    """Microseconds that Inductor's launches of ``kernels`` take on the host."""
    return sum(device.host_launch_us * k.launches + device.host_tensor_us * k.tensors for k in kernels)
