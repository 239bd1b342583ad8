"""Other kernels for the same program, to be measured: one thing changed at a time, in every kernel of a region."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from ..ir.pid_map import PidMap
from ..ir.schedule_ir import KernelSchedule, Phase, Task, TileDim
from ..ir.tile_ir import TileProgram
from .cost import kernel_us
from .device_model import H200_MODEL, DeviceModel
from .dot_tiles import LEAST

MOST_WARPS = 32
MOST_APART = 16  # more kernels than before, to be tried with a kernel for each loop
MOST_ELEMENTS = 32768  # of a tile: beyond, blocks spill
AXES = ("num_warps", "block_sizes", "pid_type", "loop_order", "l2_grouping")
"""What candidates change, by the options that decide it where they are given."""


@dataclass(frozen=True)
class Candidate:
    """Kernels of a region, and in which ``change`` they differ from those that they were made from."""

    change: str
    schedules: tuple[KernelSchedule, ...]

    def __str__(self) -> str:
        return f"{self.change}:\n" + "\n".join(map(str, self.schedules))


_Change = tuple[tuple[str, ...], str, Callable[[KernelSchedule], KernelSchedule]]


def candidates(schedules: Sequence[KernelSchedule], program: TileProgram, fixed: Collection[str] = (),
               device: DeviceModel = H200_MODEL) -> tuple[Candidate, ...]:  # fmt: skip
    """Kernels that differ from ``schedules`` in one thing, those first that are predicted to be fastest.

    ``fixed`` names options that were given, which stay as they are.
    """
    found: dict[tuple[KernelSchedule, ...], str] = {}
    for axes, change, apply in _changes():
        changed = tuple(map(apply, schedules))
        if not set(axes) & set(fixed) and changed != tuple(schedules):
            found.setdefault(changed, change)
    apart = tuple(_apart(schedules))
    if len(schedules) < len(apart) <= len(schedules) + MOST_APART:
        found.setdefault(apart, "every loop in a kernel of its own")
    cost = {s: sum(kernel_us(k, program, device) for k in s) for s in found}
    return tuple(Candidate(found[s], s) for s in sorted(found, key=lambda s: cost[s]))


def _changes() -> Iterator[_Change]:
    for factor, word in ((2, "twice"), (0.5, "half")):
        yield ("num_warps",), f"{word} the warps", _warps(factor)
        yield ("block_sizes",), f"{word} the parallel block", _blocks(("parallel",), factor)
        yield ("block_sizes",), f"{word} the looped block", _blocks(("looped",), factor)
        both = _both(_blocks(("parallel",), factor), _warps(factor))
        yield ("block_sizes", "num_warps"), f"{word} the parallel block and the warps", both
    for kind in ("persistent_interleaved", "persistent_blocked"):
        for programs in (2, 4, 8):
            yield ("pid_type",), f"{kind} with {programs} programs a multiprocessor", _pids(kind, programs)
    yield ("loop_order",), "tiles in the other order", _numbered(lambda m, names: replace(m, order=m.dims(names)[::-1]))
    for group in (4, 8):
        yield ("l2_grouping",), f"{group} rows of tiles at a time", _numbered(lambda m, names, group=group: replace(m, group=group))


def _apart(schedules: Sequence[KernelSchedule]) -> Iterator[KernelSchedule]:
    """Kernels of one phase with a kernel for each of their tasks, families included; what takes turns in phases stays."""
    number = 0
    for kernel in schedules:
        alone = [(t,) for t in kernel.tasks()] if len(kernel.phases) == 1 else [()]
        for tasks in alone:
            phases = (Phase(tuple(replace(t, weight=1) for t in tasks)),) if tasks else kernel.phases
            yield replace(kernel, name=f"k{number}", phases=phases)
            number += 1


def _numbered(change: Callable[..., PidMap]) -> Callable[[KernelSchedule], KernelSchedule]:
    """Tiles in another order, in every task of two parallel dimensions or more."""

    def one(task: Task) -> Task:
        names = tuple(d.name for d in task.parallel())
        if len(names) < 2 or task.dot:
            return task
        changed: PidMap = change(task.pid_map, names)
        return replace(task, pid_map=replace(changed, order=()) if changed.order == names else changed)

    return lambda kernel: replace(kernel, phases=tuple(Phase(tuple(map(one, p.tasks))) for p in kernel.phases))


def _warps(factor: float) -> Callable[[KernelSchedule], KernelSchedule]:
    return lambda kernel: replace(kernel, num_warps=max(1, min(MOST_WARPS, int(kernel.num_warps * factor))))


def _pids(kind: str, programs: int) -> Callable[[KernelSchedule], KernelSchedule]:
    return lambda kernel: replace(kernel, pid_type=kind, sm_multiplier=programs)


def _both(first: Callable[[KernelSchedule], KernelSchedule],
          second: Callable[[KernelSchedule], KernelSchedule]) -> Callable[[KernelSchedule], KernelSchedule]:  # fmt: skip
    def apply(kernel: KernelSchedule) -> KernelSchedule:
        changed = first(kernel)
        return second(changed) if changed != kernel else kernel

    return apply


def _blocks(kinds: Sequence[str], factor: float) -> Callable[[KernelSchedule], KernelSchedule]:
    """The innermost dimension of one of ``kinds`` in larger or smaller blocks, in every task whose tiles allow it."""

    def dims(task: Task) -> tuple[TileDim, ...]:
        position = next((k for k in reversed(range(len(task.dims))) if task.dims[k].kind in kinds), None)
        if position is None:
            return task.dims
        block = max(LEAST if task.dot else 1, int(task.dims[position].block * factor))
        changed = tuple(replace(d, block=block) if k == position else d for k, d in enumerate(task.dims))
        held = [d.block for d in changed if d.kind == "parallel" or not task.dot]  # a product adds up over the summed axis
        return changed if math.prod(held) <= MOST_ELEMENTS else task.dims

    def apply(kernel: KernelSchedule) -> KernelSchedule:
        phases = tuple(Phase(tuple(replace(t, dims=dims(t)) for t in p.tasks)) for p in kernel.phases)
        return replace(kernel, phases=phases)

    return apply
