"""Decisions made from predicted times: whether a region is worth taking from Inductor, and which tasks should share a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.schedule_ir import KernelSchedule, Task
from ..ir.tile_ir import TileProgram
from .cost import Side, host_us, inductor_host_us, inductor_nests_us, kernel_us, side
from .device_model import H200_MODEL, DeviceModel
from .resources import ResourceEstimate
from .tile_sizes import usual_warps
from .work import task_work

RISK = 0.05  # of the time of loops that fill the device: what sharing a kernel or leaving Inductor may cost them unforeseen
HOST_MARGIN_US = 3.0  # by which the host's times are uncertain
LIKE_FOR_LIKE = 0.1  # of Inductor's time: what as many kernels as Inductor's must gain to be worth a change


@dataclass(frozen=True)
class Prediction:
    """Microseconds: on the device of each kernel and of Inductor's kernels, and on the host of a call of the region and of
    Inductor's launches. ``launches`` are Inductor's; ``filling_us`` is the part of its time in loops that fill the device.
    ``measured``: the times on the device are."""

    kernels: tuple[float, ...]
    inductor: float
    host: float
    inductor_host: float
    launches: int
    filling_us: float
    measured: bool = False

    @property
    def word(self) -> str:
        return "measured" if self.measured else "predicted"

    @property
    def region(self) -> float:
        """Device time of the region's kernels."""
        return sum(self.kernels)

    def __str__(self) -> str:
        return (
            f"{self.word} {self.region:.1f} us against {self.inductor:.1f} us on the device, "
            f"{'predicted ' if self.measured else ''}{self.host:.1f} us against {self.inductor_host:.1f} us on the host"
        )


def predict(program: TileProgram, schedules: Sequence[KernelSchedule], device: DeviceModel = H200_MODEL,
            whole: TileProgram | None = None) -> Prediction:  # fmt: skip
    """Times of a region and of what Inductor would make of it, at the hinted sizes. ``whole``: the program before reductions were
    split, for Inductor decides about these itself; ``program`` where None."""
    theirs = inductor_nests_us(whole or program, device)
    return Prediction(
        kernels=tuple(kernel_us(s, program, device) for s in schedules),
        inductor=sum(k.us for k in theirs),
        host=host_us(program, schedules, device),
        inductor_host=inductor_host_us(theirs, device),
        launches=sum(k.launches for k in theirs),
        filling_us=sum(k.filling_us for k in theirs),
    )


def pays(times: Prediction, *, captured: bool) -> tuple[bool, str]:
    """Whether a region is worth taking, and why (not), with the times that decide.

    Where graphs are ``captured`` only the device's time counts. Else calls are bound by the slower of device and host, and a
    region that saves no launch must gain more. Loops that fill the device gain little from company: a share of their time is a
    margin that the region has to gain elsewhere.
    """
    saved = times.launches - len(times.kernels)
    if captured:
        ours, theirs, where, margin = times.region, times.inductor, "on the device", 0.0
    else:
        ours, theirs = max(times.region, times.host), max(times.inductor, times.inductor_host)
        where = "on the host" if times.host >= times.region and times.inductor_host >= times.inductor else "on device and host"
        margin = HOST_MARGIN_US
    told = f"{times.word} {ours:.1f} us against {theirs:.1f} us {where}"
    margin = max(margin, RISK * times.filling_us)
    if not captured and saved < 1:
        # The host's times do not count here: they are those of as many launches.
        faster = times.inductor - times.region >= max(margin, LIKE_FOR_LIKE * theirs)
        return faster, f"{told}, {'in as many launches' if faster else f'but saves no launch of {times.launches}'}"
    if theirs - ours < margin - 1e-6:
        full = f", {times.filling_us:.1f} us of it in loops that fill the device" if times.filling_us else ""
        return False, f"{told}{full}"
    return True, f"{told}, with {saved} launches of {times.launches} saved"


@dataclass(frozen=True)
class JoinDecision:
    """Number of the kernel, the nests that were tried in it (those of the last task, or of a whole group), whether they joined
    the kernel, and why."""

    kernel: int
    nests: tuple[str, ...]
    joined: bool
    reason: str

    def __str__(self) -> str:
        more = f" and {len(self.nests) - 1} more" if len(self.nests) > 1 else ""
        return f"k{self.kernel} + {self.nests[0]}{more}: {'joined' if self.joined else 'apart'}: {self.reason}"


@dataclass
class _Group:
    """Tasks that will be one kernel, by position among those given."""

    positions: list[int]
    side: Side

    def us(self, device: DeviceModel) -> float:
        return device.launch_us + self.side.us(device)


def worth_joining(tasks: Sequence[Task], program: TileProgram, device: DeviceModel = H200_MODEL,
                  first_kernel: int = 0) -> tuple[tuple[tuple[Task, ...], ...], tuple[JoinDecision, ...]]:  # fmt: skip
    """Independent ``tasks`` in groups that should be kernels, each in the order given, and a decision for everything tried.

    Tasks of one class of registers are gathered first; then whole groups, so that a task of many registers is weighed against
    all those whose occupancy it would lower, not against one at a time. Of loops that fill the device, joining must gain a share
    of the smaller's time. ``first_kernel``: number of the first group, for the decisions.
    """
    classes: dict[int, list[_Group]] = {}
    tried: list[_Trial] = []
    nests = {n.name: n for n in program.nests}
    for position, task in enumerate(tasks):
        warps = max(usual_warps(task, nests[n]) for n in task.nests())
        one = _Group([position], side(task_work(task, program, warps, device)))
        siblings = classes.setdefault(_resources(one.side).resource_class, [])
        if not _joins(one, siblings, device, tried):
            siblings.append(one)
    groups: list[_Group] = []
    for kind in sorted(classes):
        groups += [g for g in classes[kind] if not _joins(g, tuple(groups), device, tried)]
    groups.sort(key=lambda g: min(g.positions))
    number = {p: first_kernel + k for k, g in enumerate(groups) for p in g.positions}
    decisions = tuple(
        JoinDecision(number[t.into.positions[0]], tuple(n for p in t.what for n in tasks[p].nests()), t.joined, t.reason) for t in tried
    )
    return tuple(tuple(tasks[p] for p in sorted(g.positions)) for g in groups), decisions


@dataclass(frozen=True)
class _Trial:
    into: _Group
    what: tuple[int, ...]
    joined: bool
    reason: str


def _joins(new: _Group, groups: Sequence[_Group], device: DeviceModel, tried: list[_Trial]) -> bool:
    """Whether ``new`` was put into a group: the first that it is worth joining."""
    for group in groups:
        together = group.side + new.side
        apart, joined = group.us(device) + new.us(device), device.launch_us + together.us(device)
        margin = RISK * min(group.side.filling_us(device), new.side.filling_us(device))
        worth = apart - joined >= margin
        tried.append(_Trial(group, tuple(new.positions), worth, _told(group.side, new.side, joined, apart, device)))
        if worth:
            group.positions += new.positions
            group.side = together
            return True
    return False


def _resources(s: Side) -> ResourceEstimate:
    return ResourceEstimate(s.registers, s.num_warps)


def _told(a: Side, b: Side, joined: float, apart: float, device: DeviceModel) -> str:
    text = f"predicted {joined:.1f} us joined against {apart:.1f} us apart"
    if _resources(a).resource_class != _resources(b).resource_class:
        text += f", with {_resources(b)} beside {_resources(a)}"
    if a.filling_us(device) and b.filling_us(device):
        text += ", each filling the device"
    return text
