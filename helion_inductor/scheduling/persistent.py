"""Assemble kernels: independent nests of a level share kernels, as many or as few as the cost model says, and virtual pids."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.schedule_ir import KernelSchedule, Phase, Task
from ..ir.tile_ir import TileProgram
from .dependence import levels, storage
from .device_model import H200_MODEL, DeviceModel
from .families import form_families, within_pointer_limit
from .guard import JoinDecision, worth_joining
from .pid_map import TileOrder, ordered, usable_pid_type, weighted
from .tile_sizes import TileTarget, choose_task, points, usual_warps

DEFAULT_ORDER = TileOrder()


def build_schedules(program: TileProgram, target: TileTarget, *, pid_type: str = "auto", sm_multiplier: int = 4,
                    num_warps: int | None = None, num_stages: int | None = None, block_sizes: Mapping[str, int] | None = None,
                    reserved_sms: int = 0, order: TileOrder = DEFAULT_ORDER, xcd_remap: bool = False,
                    device: DeviceModel = H200_MODEL) -> tuple[tuple[KernelSchedule, ...], tuple[JoinDecision, ...]]:  # fmt: skip
    """Kernels of ``program`` in launch order, and what was decided about tasks sharing them.

    Nests at one depth of the dependence graph are independent. Those of one form become one task; tasks share a kernel where
    that is predicted to gain on ``device``. A kernel that would pass the parameter limit is cut, whatever was predicted. In the
    interpreter, where a kernel costs nothing and a program much, all share one. Where programs take contiguous shares, tiles are
    weighed by what they are predicted to cost.
    """
    depth = levels(program.nests, storage(program))
    nests = {n.name: n for n in program.nests}
    kernels: list[tuple[Task, ...]] = []
    decisions: list[JoinDecision] = []
    for level in range(1 + max(depth, default=-1)):
        mine = [n for n, d in zip(program.nests, depth, strict=True) if d == level]
        work = sum(points(n, program) for n in mine)
        alone = [ordered(choose_task(n, program, target, block_sizes or {}, work), order) for n in mine]
        tasks = form_families(alone, program)
        groups: tuple[tuple[Task, ...], ...] = (tasks,)
        if not target.interpreter:
            groups, tried = worth_joining(tasks, program, device, first_kernel=len(kernels))
            decisions += tried
        for group in groups:
            kernels += within_pointer_limit(group, program)
    result = []
    for number, tasks in enumerate(kernels):
        warps = num_warps or max(usual_warps(t, nests[n]) for t in tasks for n in t.nests())
        kind = usable_pid_type(pid_type, tasks, program)
        if kind == "persistent_blocked":
            tasks = weighted(tasks, program, warps, sm_multiplier * max(1, device.info.sm_count - reserved_sms), device)
        phases = (Phase(tasks),)
        result.append(KernelSchedule(f"k{number}", kind, warps, num_stages or 2, phases, sm_multiplier, reserved_sms, xcd_remap))
    return tuple(result), tuple(decisions)
