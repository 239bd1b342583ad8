"""``verify_schedule``: the rules that kernel schedules keep, by name.

A rule yields what is wrong and where: the positions ``(phase, task)``, or None for the kernel itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from .dots import dot_plan
from .family import signature
from .footprint import Part, disjoint, touched
from .pid_map import MAX_GROUP, MAX_WEIGHT
from .printer import schedule_lines
from .schedule_ir import PID_TYPES, SELECTS, KernelSchedule, Task
from .tile_ir import LoopNest, Scan, TileProgram
from .verify import fail
from .verify_nest import rule_name

Place = tuple[int, int] | None
Found = Iterator[tuple[Place, str]]
MAX_STAGES = 8
DIM_KINDS = ("parallel", "persistent", "looped")


def verify_schedule(kernel: KernelSchedule, program: TileProgram) -> None:
    """Raises ``VerifyError`` for the first rule that ``kernel`` breaks; ``program`` itself has been verified."""
    for rule in KERNEL_RULES:
        for place, detail in rule(kernel, program):
            _fail(rule, detail, kernel, place)


def verify_schedules(kernels: Sequence[KernelSchedule], program: TileProgram) -> None:
    """Verifies each kernel, and that launched in this order they run every nest once and keep all dependences."""
    for kernel in kernels:
        verify_schedule(kernel, program)
    nests, seen, done = _nests(program), Accesses(program), set[str]()
    for kernel in kernels:
        for place, _, name in _runs(kernel):
            if name in done:
                _fail(nest_once, f"@{name} runs in another kernel too", kernel, place)
            for detail in seen.misplaced(nests[name]):
                _fail(dependence_order, detail, kernel, place)
        for _, _, name in _runs(kernel):
            seen.add(nests[name])
            done.add(name)
    if left := [n.name for n in program.nests if n.name not in done]:
        lines = [line for k in kernels for line in schedule_lines(k)]
        fail(rule_name(nest_once), f"no kernel runs @{left[0]}", lines, len(lines) - 1)


def _fail(rule: Callable[..., object], detail: str, kernel: KernelSchedule, place: Place) -> None:
    line = 0
    if place is not None:
        phase, task = place
        line = 1 + sum(1 + len(p.tasks) for p in kernel.phases[:phase]) + 1 + task
    fail(rule_name(rule), detail, schedule_lines(kernel), line)


def _tasks(kernel: KernelSchedule) -> Iterator[tuple[tuple[int, int], Task]]:
    for p, phase in enumerate(kernel.phases):
        for t, task in enumerate(phase.tasks):
            yield (p, t), task


def _runs(kernel: KernelSchedule) -> Iterator[tuple[tuple[int, int], Task, str]]:
    """Every nest that a task runs, the members of families included."""
    for place, task in _tasks(kernel):
        yield from ((place, task, name) for name in task.nests())


def _nests(program: TileProgram) -> dict[str, LoopNest]:
    return {n.name: n for n in program.nests}


class Accesses:
    """Which nests have read and written each storage so far."""

    def __init__(self, program: TileProgram) -> None:
        self.order = {n.name: position for position, n in enumerate(program.nests)}
        self.storage = {b.name: b.aliases or b.name for b in program.buffers}
        self.touched = dict(zip(self.order, touched(program.nests, self.storage), strict=True))
        self.clear()

    def clear(self) -> None:
        """As before the first nest."""
        self.readers: dict[str, list[tuple[str, Part]]] = {}
        self.writers: dict[str, list[tuple[str, Part]]] = {}

    def add(self, nest: LoopNest) -> None:
        mine = self.touched[nest.name]
        for parts, users in ((mine.reads, self.readers), (mine.writes, self.writers)):
            for storage, part in parts.items():
                users.setdefault(storage, []).append((nest.name, part))

    def hazards(self, nest: LoopNest) -> Iterator[tuple[str, str]]:
        """(nest so far, hazard) for each that ``nest`` must keep its order with."""
        mine = self.touched[nest.name]
        for buffers, parts, users, hazard in (
            (nest.reads(), mine.reads, self.writers, "read after write"),
            (nest.writes(), mine.writes, self.readers, "write after read"),
            (nest.writes(), mine.writes, self.writers, "write after write"),
        ):
            for b in buffers:
                part, others = parts[self.storage[b]], users.get(self.storage[b], ())
                yield from ((n, f"{hazard} of {b}") for n, other in others if not disjoint(part, other))

    def misplaced(self, nest: LoopNest) -> Iterator[str]:
        """What is wrong with running ``nest`` after those so far."""
        for name, hazard in self.hazards(nest):
            if self.order[name] > self.order[nest.name]:
                yield f"@{name} runs before @{nest.name}, yet follows it in the program: {hazard}"


def _power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def known_pid_type(kernel: KernelSchedule, program: TileProgram) -> Found:
    """The pid type is among those that have a meaning."""
    if kernel.pid_type not in PID_TYPES:
        yield None, f"no pid type is called {kernel.pid_type}"


def pid_map_order(kernel: KernelSchedule, program: TileProgram) -> Found:
    """A pid map that names an order names the parallel dimensions, once each, and not in the order that the tile has anyway."""
    for place, task in _tasks(kernel):
        names, order = [d.name for d in task.parallel()], task.pid_map.order
        if order and (sorted(order) != sorted(names) or list(order) == names):
            yield place, f"the pid map orders ({', '.join(order)}), the tile has ({', '.join(names)})"


def pid_map_group(kernel: KernelSchedule, program: TileProgram) -> Found:
    """Rows of tiles are grouped where there are rows and columns; a group has at least one."""
    for place, task in _tasks(kernel):
        if not 1 <= task.pid_map.group <= MAX_GROUP:
            yield place, f"a group of {task.pid_map.group} rows: it has from 1 to {MAX_GROUP}"
        if task.pid_map.group > 1 and len(task.parallel()) < 2:
            yield place, f"groups of {task.pid_map.group} rows in {len(task.parallel())} parallel dimensions"


def task_weight(kernel: KernelSchedule, program: TileProgram) -> Found:
    """Weights are small enough for sums of them to be computed in 64 bits."""
    for place, task in _tasks(kernel):
        if not 1 <= task.weight <= MAX_WEIGHT:
            yield place, f"a tile weighs {task.weight}: it weighs from 1 to {MAX_WEIGHT}"


def once_is_narrow(kernel: KernelSchedule, program: TileProgram) -> Found:
    """What is computed once for many tiles has offsets of 32 bits, in a kernel whose programs may have several."""
    for place, task in _tasks(kernel):
        if task.once and (task.wide is not False or kernel.pid_type == "flat"):
            yield place, f"@{task.nest} computes some of it once, in a {kernel.pid_type} kernel with {task.wide} wide offsets"


def dot_multiplies(kernel: KernelSchedule, program: TileProgram) -> Found:
    """A dot task has nests that multiply matrices, and tiles that the units for it take: one matrix, 16 or more along the others."""
    nests, buffers = _nests(program), program.by_name()
    for place, task in _tasks(kernel):
        if not task.dot:
            continue
        for name in task.nests():
            plan = dot_plan(nests[name], buffers)
            if plan is None:
                yield place, f"@{name} multiplies no matrices"
                continue
            wanted = {"m": plan.rows, "n": plan.columns} | ({"z": plan.batch} if plan.batch else {})
            if {d.name: d.axes for d in task.parallel()} != wanted:
                yield place, f"the dimensions of @{name} are {', '.join(f'{n}{list(a)}' for n, a in wanted.items())}"
        yield from ((place, f"the block of {d.name} is {d.block}") for d in task.dims if (d.block != 1 if d.name == "z" else d.block < 16))


def task_stages(kernel: KernelSchedule, program: TileProgram) -> Found:
    """A task has from 1 to 8 stages."""
    for place, task in _tasks(kernel):
        if not 1 <= task.stages <= MAX_STAGES:
            yield place, f"{task.stages} stages: a task has from 1 to {MAX_STAGES}"


def known_select(kernel: KernelSchedule, program: TileProgram) -> Found:
    """A family selects its members in a way that has a meaning."""
    for place, task in _tasks(kernel):
        if task.select not in SELECTS:
            yield place, f"no way to select a member is called {task.select}"


def launch_settings(kernel: KernelSchedule, program: TileProgram) -> Found:
    """Warps are a power of two up to 32; stages and programs per SM are at least 1."""
    if not _power_of_two(kernel.num_warps) or kernel.num_warps > 32:
        yield None, f"{kernel.num_warps} warps: not a power of two up to 32"
    if kernel.num_stages < 1 or kernel.sm_multiplier < 1:
        yield None, f"{kernel.num_stages} stages and {kernel.sm_multiplier} programs per SM: both are at least 1"


def phase_not_empty(kernel: KernelSchedule, program: TileProgram) -> Found:
    """A kernel has phases and a phase has tasks."""
    if not kernel.phases or not all(p.tasks for p in kernel.phases):
        yield None, "a phase without tasks" if kernel.phases else "a kernel without phases"


def known_nest(kernel: KernelSchedule, program: TileProgram) -> Found:
    """A task runs a nest of the program."""
    names = {n.name for n in program.nests}
    for place, _, name in _runs(kernel):
        if name not in names:
            yield place, f"no nest is called @{name}"


def nest_once(kernel: KernelSchedule, program: TileProgram) -> Found:
    """A nest runs once."""
    seen: set[str] = set()
    for place, _, name in _runs(kernel):
        if name in seen:
            yield place, f"@{name} runs twice"
        seen.add(name)


def family_form(kernel: KernelSchedule, program: TileProgram) -> Found:
    """The members of a family have one form: one body, up to buffers and to the integers of extents and indices."""
    nests, buffers = _nests(program), program.by_name()
    for place, task in _tasks(kernel):
        if task.members:
            form = signature(nests[task.nest], buffers)
            yield from ((place, f"@{m} and @{task.nest} differ in form") for m in task.members
                        if signature(nests[m], buffers) != form)  # fmt: skip


def dim_names(kernel: KernelSchedule, program: TileProgram) -> Found:
    """The tile dimensions of a task have different names and known kinds."""
    for place, task in _tasks(kernel):
        names = [d.name for d in task.dims]
        if len(set(names)) < len(names):
            yield place, f"two dimensions have one name: {', '.join(names)}"
        yield from ((place, f"{d.name} is {d.kind}, not one of {', '.join(DIM_KINDS)}")
                    for d in task.dims if d.kind not in DIM_KINDS)  # fmt: skip


def dims_cover_axes(kernel: KernelSchedule, program: TileProgram) -> Found:
    """Parallel dimensions hold the parallel axes, once and in order; one last dimension holds all reduce axes."""
    nests = _nests(program)
    for place, task, name in _runs(kernel):
        nest = nests[name]
        inner = [d for d in task.dims if d.kind != "parallel"]
        parallel = [a for d in task.dims if d.kind == "parallel" for a in d.axes]
        if (sorted(parallel) if task.dot else parallel) != (sorted if task.dot else list)(a.name for a in nest.parallel):
            wanted = ", ".join(a.name for a in nest.parallel)
            yield place, f"the parallel dimensions hold ({', '.join(parallel)}), the parallel axes are ({wanted})"
        reduce = tuple(a.name for a in nest.reduce)
        if [d.axes for d in inner] != ([reduce] if reduce else []):
            yield place, f"one dimension, no more, holds the reduce axes ({', '.join(reduce)}), in order"
        if inner and task.dims[-1].kind == "parallel":
            yield place, "the reduce dimension is the last one"


def block_power_of_two(kernel: KernelSchedule, program: TileProgram) -> Found:
    """A block is a power of two."""
    for place, task in _tasks(kernel):
        yield from ((place, f"the block of {d.name} is {d.block}") for d in task.dims if not _power_of_two(d.block))


def persistent_holds_all(kernel: KernelSchedule, program: TileProgram) -> Found:
    """The block of a persistent dimension holds its whole extent, where that is known."""
    nests = _nests(program)
    for place, task, name in _runs(kernel):
        for d in task.dims:
            extent = d.extent(nests[name])
            if d.kind == "persistent" and extent.is_Integer and extent > d.block:
                yield place, f"{d.name} has {extent} elements in one block of {d.block}"


def scan_not_looped(kernel: KernelSchedule, program: TileProgram) -> Found:
    """A Scan needs its axis whole: it is not walked block by block."""
    nests = _nests(program)
    for place, task in _tasks(kernel):
        scans = any(isinstance(s, Scan) for s in nests[task.nest].body)
        if scans and any(d.kind == "looped" for d in task.dims):
            yield place, f"@{task.nest} scans a looped dimension"


def phase_independent(kernel: KernelSchedule, program: TileProgram) -> Found:
    """Tasks of one phase run in any order: none reads or writes what another one writes."""
    nests, phase, seen = _nests(program), -1, Accesses(program)
    for place, _, mine in _runs(kernel):
        if place[0] != phase:
            phase = place[0]
            seen.clear()
        for name, hazard in seen.hazards(nests[mine]):
            yield place, f"@{name} and @{mine} share a phase: {hazard}"
        seen.add(nests[mine])


def dependence_order(kernel: KernelSchedule, program: TileProgram) -> Found:
    """Nests that depend on one another run in program order."""
    nests, seen = _nests(program), Accesses(program)
    for place, _, name in _runs(kernel):
        yield from ((place, detail) for detail in seen.misplaced(nests[name]))
        seen.add(nests[name])


KERNEL_RULES: tuple[Callable[[KernelSchedule, TileProgram], Found], ...] = (
    known_pid_type, known_select, launch_settings, phase_not_empty, known_nest, nest_once, family_form, dim_names, dims_cover_axes,
    pid_map_order, pid_map_group, task_weight, once_is_narrow, task_stages, dot_multiplies, block_power_of_two, persistent_holds_all,
    scan_not_looped, phase_independent, dependence_order,
)  # fmt: skip
