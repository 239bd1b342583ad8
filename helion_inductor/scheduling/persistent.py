"""Assemble kernels: independent nests share kernels, as many or as few as the cost model says, and virtual pids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..ir.schedule_ir import KernelSchedule, Phase, Task
from ..ir.tile_ir import TileProgram
from .cost import kernel_us
from .device_model import H200_MODEL, DeviceModel
from .dot_tiles import dot_task
from .families import form_families, within_pointer_limit
from .guard import JoinDecision, worth_joining
from .phases import PhaseDecision, join_phases
from .pid_map import TileOrder, ordered, usable_pid_type, weighted
from .placement import PlacementDecision, Positions, place
from .tile_sizes import TileTarget, choose_task, points, usual_warps

Decision = PlacementDecision | JoinDecision | PhaseDecision


@dataclass(frozen=True)
class Settings:
    """What options say about kernels; None and "auto" leave it to the scheduler."""

    pid_type: str = "auto"
    sm_multiplier: int = 4
    num_warps: int | None = None
    num_stages: int | None = None
    block_sizes: Mapping[str, int] = field(default_factory=dict)
    reserved_sms: int = 0
    order: TileOrder = field(default_factory=TileOrder)
    xcd_remap: bool = False
    cross_loop: str = "off"


def build_schedules(program: TileProgram, target: TileTarget, settings: Settings | None = None,
                    device: DeviceModel = H200_MODEL) -> tuple[tuple[KernelSchedule, ...], tuple[Decision, ...]]:  # fmt: skip
    """Kernels of ``program`` in launch order, and what was decided about the place of nests and the tasks that share kernels.

    Nests of one form become one task; independent tasks share a kernel where that is predicted to gain on ``device``. A kernel
    that would pass the parameter limit is cut, whatever was predicted. In the interpreter, where a kernel costs nothing and a
    program much, all independent tasks share one. Where programs take contiguous shares, tiles are weighed by what they are
    predicted to cost. Kernels that depend on one another become phases of one where the settings say so.
    """
    assembly = _Assembly(program, target, settings or Settings(), device)
    level, moves = place(program, assembly.level_us)
    by_level: list[list[KernelSchedule]] = []
    decisions: list[Decision] = [*moves]
    for number in range(1 + max(level, default=-1)):
        at = tuple(p for p, where in enumerate(level) if where == number)
        more, joins = assembly.kernels(at, sum(map(len, by_level)))
        by_level.append(more)
        decisions += joins
    wanted = assembly.settings.cross_loop
    if wanted == "off" or (wanted == "auto" and target.interpreter):
        return tuple(k for kernels in by_level for k in kernels), tuple(decisions)
    joined, phases = join_phases(by_level, program, device, always=wanted == "barrier", num_warps=assembly.settings.num_warps)
    return joined, (*decisions, *phases)


class _Assembly:
    """Makes the kernels of independent nests, given by their positions in the program."""

    def __init__(self, program: TileProgram, target: TileTarget, settings: Settings, device: DeviceModel) -> None:
        self.program, self.target, self.settings, self.device = program, target, settings, device
        self._us: dict[Positions, float] = {}

    def level_us(self, at: Positions) -> float:
        if at not in self._us:
            self._us[at] = sum(kernel_us(k, self.program, self.device) for k in self.kernels(at, 0)[0])
        return self._us[at]

    def kernels(self, at: Positions, first: int) -> tuple[list[KernelSchedule], tuple[JoinDecision, ...]]:
        """``first``: number of the first kernel."""
        mine = [self.program.nests[p] for p in at]
        work = sum(points(n, self.program) for n in mine)
        blocks = self.settings.block_sizes
        alone = [dot_task(n, self.program, self.target, blocks) or choose_task(n, self.program, self.target, blocks, work) for n in mine]
        tasks = form_families([ordered(t, self.settings.order) for t in alone], self.program)
        groups: tuple[tuple[Task, ...], ...] = (tasks,)
        joins: tuple[JoinDecision, ...] = ()
        if not self.target.interpreter:
            groups, joins = worth_joining(tasks, self.program, self.device, first_kernel=first)
        cut = [k for group in groups for k in within_pointer_limit(group, self.program)]
        return [self._kernel(f"k{first + k}", tasks) for k, tasks in enumerate(cut)], joins

    def _kernel(self, name: str, tasks: Sequence[Task]) -> KernelSchedule:
        chosen = self.settings
        nests = {n.name: n for n in self.program.nests}
        warps = chosen.num_warps or max(usual_warps(t, nests[n]) for t in tasks for n in t.nests())
        kind = usable_pid_type(chosen.pid_type, tasks, self.program)
        if kind == "persistent_blocked":
            workers = chosen.sm_multiplier * max(1, self.device.info.sm_count - chosen.reserved_sms)
            tasks = weighted(tasks, self.program, warps, workers, self.device)
        return KernelSchedule(name, kind, warps, chosen.num_stages or 2, (Phase(tuple(tasks)),), chosen.sm_multiplier,
                              chosen.reserved_sms, chosen.xcd_remap)  # fmt: skip
