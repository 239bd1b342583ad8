"""Assemble kernels: independent nests of a level share one kernel and one virtual-pid space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.index import product
from ..ir.schedule_ir import KernelSchedule, Phase, Task
from ..ir.tile_ir import LoopNest, Scan, TileProgram
from .cost import nest_bytes
from .dependence import levels, storage
from .tile_sizes import TileTarget, choose_task, points

MAX_POINTERS = 400  # 8 bytes each in a 4 KB parameter space, with room for sizes
LARGE_NEST_BYTES = 32 << 20  # a nest that moves this much fills the device alone and gains nothing from company


def build_schedules(program: TileProgram, target: TileTarget, *, pid_type: str = "auto", sm_multiplier: int = 4,
                    num_warps: int | None = None, num_stages: int | None = None,
                    block_sizes: Mapping[str, int] | None = None, reserved_sms: int = 0) -> tuple[KernelSchedule, ...]:  # fmt: skip
    """Kernels of ``program`` in launch order.

    Nests at one depth of the dependence graph are independent; they are joined into one kernel unless a nest is large enough to
    fill the device by itself, or the kernel would pass the parameter limit.
    """
    depth = levels(program.nests, storage(program))
    groups: list[list[LoopNest]] = []
    for level in range(1 + max(depth, default=-1)):
        groups += _groups([n for n, d in zip(program.nests, depth, strict=True) if d == level], program)
    result = []
    for number, group in enumerate(groups):
        work = sum(points(n, program) for n in group)
        mine = tuple(choose_task(n, program, target, block_sizes or {}, work) for n in group)
        warps = num_warps or max(_warps(t, n) for t, n in zip(mine, group, strict=True))
        kind = pid_type if pid_type != "auto" else "flat"
        result.append(KernelSchedule(f"k{number}", kind, warps, num_stages or 2, (Phase(mine),), sm_multiplier, reserved_sms))
    return tuple(result)


def _groups(nests: Sequence[LoopNest], program: TileProgram) -> list[list[LoopNest]]:
    alone: list[list[LoopNest]] = []
    shared: list[list[LoopNest]] = []
    pointers: set[str] = set()
    for nest in nests:
        mine = set(nest.reads()) | set(nest.writes())
        if nest_bytes(nest, program) >= LARGE_NEST_BYTES:
            alone.append([nest])
        elif not shared or len(pointers | mine) > MAX_POINTERS:
            shared.append([nest])
            pointers = mine
        else:
            shared[-1].append(nest)
            pointers |= mine
    return shared + alone


def _warps(task: Task, nest: LoopNest) -> int:
    elements = 1
    for dim in task.dims:
        extent = product(a.extent for a in (*nest.parallel, *nest.reduce) if a.name in dim.axes)
        elements *= min(dim.block, int(extent)) if extent.is_Integer else dim.block
    if any(isinstance(s, Scan) for s in nest.body):
        return 4
    return 8 if elements >= 4096 else 4 if elements >= 512 else 2 if elements >= 128 else 1
