"""Kernels of dependent loops become phases of one cooperative kernel, with a barrier of all its programs between two.

A kernel that follows another waits until the last program of that has ended, is launched, and fills the device anew; a phase waits
at a barrier. In return all phases of a kernel run with the registers of the hungriest and on as many programs as are resident at
once, which loops that fill the device pay for. Kernels are taken in their order; each becomes a further phase of the one before
where that is predicted to be faster.

On its own accord that is done for stretches with products of matrices, for which it was measured.

Where the loops of a stretch come again, as in the layers of a model, a new kernel begins: stretches of one form then are one
kernel, compiled once and launched for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..ir.canonical import canonical_text
from ..ir.schedule_ir import KernelSchedule, Phase, Task
from ..ir.tile_ir import TileProgram
from .cost import Side, kernel_us, nest_bytes, side
from .device_model import DeviceModel
from .guard import RISK
from .hints import evaluate_size
from .tile_sizes import is_product, reduce_is_contiguous
from .work import task_work

MOST_PHASES = 24  # of one kernel: the compiler takes its time for each
WARPS = 4  # programs of this size, several on a multiprocessor, hide one another's waiting
MOST_POINTERS = 400
ONCE_TILES = 256
STAGES = 3
STREAMED_ROW = 512  # elements along which a matrix is walked; shorter runs are copied piece by piece, which takes longer
STREAMED_BYTES = 2**22


@dataclass(frozen=True)
class PhaseDecision:
    """The first nest of a kernel, the kernel it was to be a phase of, whether it is, and why (not)."""

    nest: str
    kernel: str
    joined: bool
    reason: str

    def __str__(self) -> str:
        return f"{self.nest} as a phase of {self.kernel}: {'yes' if self.joined else 'no'}: {self.reason}"


def join_phases(levels: Sequence[Sequence[KernelSchedule]], program: TileProgram, device: DeviceModel, *, always: bool,
                num_warps: int | None) -> tuple[tuple[KernelSchedule, ...], tuple[PhaseDecision, ...]]:  # fmt: skip
    """``levels`` of kernels, those of one level independent of one another, as fewer kernels; numbered anew.

    ``always``: whatever is predicted; then the kernels of one level are one phase too. ``num_warps``: of kernels with several
    phases; ``WARPS`` where None.
    """
    line = _Line(program, device, always, num_warps or WARPS)
    for kernels in levels:
        line.add(kernels)
    kernels = tuple(replace(k, name=f"k{number}", phases=line.refined(k)) for number, k in enumerate(line.done))
    return kernels, tuple(line.decisions)


class _Line:
    """The kernels so far, of which the last may take further phases."""

    def __init__(self, program: TileProgram, device: DeviceModel, always: bool, num_warps: int) -> None:
        self.program, self.device, self.always, self.num_warps = program, device, always, num_warps
        self.nests = {n.name: n for n in program.nests}
        self.done: list[KernelSchedule] = []
        self.decisions: list[PhaseDecision] = []
        self.forms: set[str] = set()

    def add(self, kernels: Sequence[KernelSchedule]) -> None:
        if self.always and len(kernels) > 1:
            kernels = [replace(kernels[0], phases=(Phase(tuple(t for k in kernels for t in k.tasks())),))]
        forms = {canonical_text(k, self.program) for k in kernels}
        if not self.done or len(kernels) != 1 or not self._joins(kernels[0], forms):
            self.done += kernels
            self.forms = set()
        self.forms |= forms

    def _joins(self, kernel: KernelSchedule, forms: set[str]) -> bool:
        last = self.done[-1]
        together = self._with(last, kernel)
        apart_us = kernel_us(last, self.program, self.device) + kernel_us(kernel, self.program, self.device) + self.device.drain_us
        joined_us = kernel_us(together, self.program, self.device)
        filling_us = min(self._filling_us(last), self._filling_us(kernel))
        margin = RISK * filling_us
        reason = f"predicted {joined_us:.1f} us against {apart_us:.1f} us"
        reason += f", {filling_us:.1f} us of it in loops that fill the device" if filling_us else ""
        fits = True
        if not self.always and not self._multiplies(together):
            fits, reason = False, "no product among them: these are phases only where cross_loop='barrier' asks for it"
        elif forms & self.forms:
            fits, reason = False, "a stretch begins again that the kernel has had"
        elif len(last.phases) >= MOST_PHASES:
            fits, reason = False, f"it has {MOST_PHASES} phases"
        elif len(self._buffers(together)) > MOST_POINTERS:
            fits, reason = False, f"both touch more than {MOST_POINTERS} tensors"
        joins = fits and (self.always or apart_us - joined_us > margin)
        self.decisions.append(PhaseDecision(kernel.tasks()[0].nest, f"k{len(self.done) - 1}", joins, reason))
        if joins:
            self.done[-1] = together
        return joins

    def _with(self, kernel: KernelSchedule, other: KernelSchedule) -> KernelSchedule:
        kind = kernel.pid_type if kernel.pid_type != "flat" else "persistent_interleaved"
        return replace(kernel, pid_type=kind, num_warps=self.num_warps, phases=(*kernel.phases, *other.phases))

    def _multiplies(self, kernel: KernelSchedule) -> bool:
        return any(t.dot or is_product(self.nests[t.nest]) for t in kernel.tasks())

    def _filling_us(self, kernel: KernelSchedule) -> float:
        """Time of a kernel's last phase where that fills the device; products, which run as well on few programs, do not count."""
        tasks = [t for t in kernel.phases[-1].tasks if not is_product(self.nests[t.nest])]
        return sum((side(task_work(t, self.program, kernel.num_warps, self.device)) for t in tasks), Side()).filling_us(self.device)

    def refined(self, kernel: KernelSchedule) -> tuple[Phase, ...]:
        """The phases, where most programs have several tiles of a task, with what these have in common computed once, and with
        loads under way for the next ones."""
        if len(kernel.phases) == 1:
            return kernel.phases
        hints = self.program.hints()
        result = []
        for phase in kernel.phases:
            tiles = [evaluate_size(t.all_tiles(self.nests), hints) for t in phase.tasks]
            many = [t.wide is False and n >= max(ONCE_TILES, sum(tiles) // 2) for t, n in zip(phase.tasks, tiles, strict=True)]
            refined = (t if t.dot else replace(t, once=m, stages=self._stages(t)) for t, m in zip(phase.tasks, many, strict=True))
            result.append(Phase(tuple(refined)))
        return tuple(result)

    def _stages(self, task: Task) -> int:
        """Stages of a product that streams a matrix."""
        nest = self.nests[task.nest]
        dim = task.reduce_dim()
        if dim is None or dim.block < STREAMED_ROW or not is_product(nest) or not reduce_is_contiguous(nest):
            return 1
        if sum(nest_bytes(self.nests[n], self.program) for n in task.nests()) < STREAMED_BYTES:
            return 1
        return STAGES

    def _buffers(self, kernel: KernelSchedule) -> set[str]:
        nests = [self.nests[n] for t in kernel.tasks() for n in t.nests()]
        return {b for n in nests for b in (*n.reads(), *n.writes())}
