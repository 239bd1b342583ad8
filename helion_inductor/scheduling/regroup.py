"""Second thoughts about what shares a kernel, once it is known how many registers the compiled kernel takes.

Estimates decide first (``guard.worth_joining``). Where the compiler needed more, the hungriest tasks set the occupancy of all:
those whose estimates are largest are then given a kernel of their own, if that is predicted to be faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..ir.schedule_ir import KernelSchedule, Phase, Task
from ..ir.tile_ir import TileProgram
from .cost import Side, side
from .device_model import H200_MODEL, DeviceModel
from .guard import JoinDecision
from .resources import ResourceEstimate, resources_of
from .work import task_work


@dataclass(frozen=True)
class Compiled:
    """What a compiled kernel takes of each thread: registers, and bytes of them that had to be spilled to memory."""

    registers: int
    spilled: int = 0

    def __str__(self) -> str:
        return f"{self.registers} registers a thread" + (f" and {self.spilled} bytes spilled" if self.spilled else "")


def regroup(schedules: Sequence[KernelSchedule], program: TileProgram, found: Mapping[str, Compiled],
            device: DeviceModel = H200_MODEL) -> tuple[tuple[KernelSchedule, ...], tuple[JoinDecision, ...]]:  # fmt: skip
    """The kernels, some of them in two; ``found`` tells of those that were compiled, by name. A decision for each looked at."""
    result: list[KernelSchedule] = []
    decisions: list[JoinDecision] = []
    for schedule in schedules:
        parts = [schedule.tasks()]
        actual = found.get(schedule.name)
        if actual is not None and len(parts[0]) > 1 and len(schedule.phases) == 1:
            parts, decision = _weighed(schedule, program, actual, device, len(result))
            decisions += decision
        phases = [schedule.phases] if len(parts) == 1 else [(Phase(tasks),) for tasks in parts]
        result += [replace(schedule, name=f"k{len(result) + k}", phases=p) for k, p in enumerate(phases)]
    return tuple(result), tuple(decisions)


def _weighed(schedule: KernelSchedule, program: TileProgram, actual: Compiled, device: DeviceModel,
             number: int) -> tuple[list[tuple[Task, ...]], list[JoinDecision]]:  # fmt: skip
    """The tasks of a kernel, together or in two groups, and why."""
    estimate = resources_of(schedule, program)
    together = device.resident(actual.registers, schedule.num_warps)
    if not actual.spilled and together >= device.resident(estimate.registers, schedule.num_warps):
        return [schedule.tasks()], []
    sides = {t: side(task_work(t, program, schedule.num_warps, device)) for t in schedule.tasks()}
    hungry = sorted(sides, key=lambda t: -sides[t].registers)
    joined = device.launch_us + replace(sum(sides.values(), Side()), registers=actual.registers).us(device)
    best, apart = schedule.tasks(), joined
    for cut in range(1, len(hungry)):
        if sides[hungry[cut - 1]].registers == sides[hungry[cut]].registers:
            continue  # they cannot be told apart
        first = replace(sum((sides[t] for t in hungry[:cut]), Side()), registers=actual.registers)
        us = 2 * device.launch_us + first.us(device) + sum((sides[t] for t in hungry[cut:]), Side()).us(device)
        if us < apart:
            best, apart = tuple(hungry[:cut]), us
    splits = len(best) < len(hungry)
    told = f"compiled to {actual}, where {ResourceEstimate(estimate.registers, schedule.num_warps)} were expected; "
    told += f"predicted {joined:.1f} us joined" + (f" against {apart:.1f} us apart" if splits else ", no less apart")
    nests = tuple(n for t in best for n in t.nests())
    decision = JoinDecision(number, nests, not splits, told)
    if not splits:
        return [schedule.tasks()], [decision]
    return [tuple(t for t in schedule.tasks() if t not in best), best], [decision]
