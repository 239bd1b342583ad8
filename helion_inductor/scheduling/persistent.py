"""Assemble kernels: independent nests of a level share one kernel and one virtual-pid space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.family import Form, signature
from ..ir.index import product
from ..ir.schedule_ir import KernelSchedule, Phase, Task
from ..ir.tile_ir import LoopNest, Scan, TileProgram
from .cost import nest_bytes
from .dependence import levels, storage
from .families import form_families, within_pointer_limit
from .tile_sizes import TileTarget, choose_task, points

LARGE_NEST_BYTES = 32 << 20  # a nest that moves this much fills the device alone and gains nothing from company


def build_schedules(program: TileProgram, target: TileTarget, *, pid_type: str = "auto", sm_multiplier: int = 4,
                    num_warps: int | None = None, num_stages: int | None = None,
                    block_sizes: Mapping[str, int] | None = None, reserved_sms: int = 0) -> tuple[KernelSchedule, ...]:  # fmt: skip
    """Kernels of ``program`` in launch order.

    Nests at one depth of the dependence graph are independent; they are joined into one kernel, nests of one form into one task
    of it, unless a nest is large enough to fill the device by itself: such nests share a kernel with none but those of their
    form. A kernel that would pass the parameter limit is cut.
    """
    depth = levels(program.nests, storage(program))
    nests = {n.name: n for n in program.nests}
    kernels: list[tuple[Task, ...]] = []
    for level in range(1 + max(depth, default=-1)):
        small, large = _groups([n for n, d in zip(program.nests, depth, strict=True) if d == level], program)
        for group in (small, *large):
            work = sum(points(n, program) for n in group)
            tasks = form_families([choose_task(n, program, target, block_sizes or {}, work) for n in group], program)
            kernels += within_pointer_limit(tasks, program) if group is small else [(t,) for t in tasks]
    result = []
    for number, mine in enumerate(kernels):
        warps = num_warps or max(_warps(t, nests[n]) for t in mine for n in t.nests())
        kind = pid_type if pid_type != "auto" else "flat"
        result.append(KernelSchedule(f"k{number}", kind, warps, num_stages or 2, (Phase(mine),), sm_multiplier, reserved_sms))
    return tuple(result)


def _groups(nests: Sequence[LoopNest], program: TileProgram) -> tuple[list[LoopNest], list[list[LoopNest]]]:
    """(the small nests, groups of large ones of one form)"""
    buffers = program.by_name()
    small: list[LoopNest] = []
    large: dict[Form, list[LoopNest]] = {}
    for nest in nests:
        if nest_bytes(nest, program) < LARGE_NEST_BYTES:
            small.append(nest)
        else:
            large.setdefault(signature(nest, buffers), []).append(nest)
    return small, list(large.values())


def _warps(task: Task, nest: LoopNest) -> int:
    elements = 1
    for dim in task.dims:
        extent = product(a.extent for a in (*nest.parallel, *nest.reduce) if a.name in dim.axes)
        elements *= min(dim.block, int(extent)) if extent.is_Integer else dim.block
    if any(isinstance(s, Scan) for s in nest.body):
        return 4
    return 8 if elements >= 4096 else 4 if elements >= 512 else 2 if elements >= 128 else 1
