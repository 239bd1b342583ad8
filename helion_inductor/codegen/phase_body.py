"""One phase of a kernel -> the text of the functions of its tasks, and of the lines that call them.

Each task becomes one small ``@triton.jit`` function (a family one more, which selects the member); the virtual pids of all tasks
of a phase are numbered one after another, and dispatched by a balanced if/else over the boundaries::

    for pid_shared in tl.range(tl.program_id(0), total, tl.num_programs(0)):     # persistent_interleaved
        if pid_shared < end0:
            _k0_n3(pid_shared, ...)
        else:
            _k0_n4(pid_shared - end0, ...)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ..ir.index import names_in
from ..ir.schedule_ir import KernelSchedule, Phase, Task
from ..ir.tile_ir import Buffer, Load, LoopNest, TileProgram, indices
from .dispatch import INDENT
from .dot_body import DotBody
from .family_text import TABLE, FamilyText, MemberTable, family_of
from .once import Once, once_of
from .programs import Call, PhaseText
from .task_body import TaskBody


@dataclass(frozen=True)
class _TaskText:
    """``lines`` of the functions of a task, of which ``name`` is called; the parameters of that one after the pid. ``before`` are lines
    of the kernel that compute the values ``given`` to each call."""

    name: str
    lines: list[str]
    buffers: tuple[str, ...]
    table: MemberTable | None
    sizes: tuple[str, ...]
    wide: bool
    before: tuple[str, ...] = ()
    given: tuple[str, ...] = ()

    def arguments(self, *, typed: bool) -> list[str]:
        plain = parameters(self.buffers, (self.table,) if self.table else (), self.sizes, self.wide, typed=typed)
        return [*plain, *(_inside(g) for g in self.given)] if typed else [*plain, *self.given]


def parameters(buffers: Sequence[str], tables: Sequence[MemberTable], sizes: Sequence[str], wide: bool, *, typed: bool,
                xcds: bool = False) -> list[str]:  # fmt: skip
    constexpr = ": tl.constexpr" if typed else ""
    names = (*(["WIDE"] if wide else []), *(["XCDS"] if xcds else []), *(t.aligned for t in tables))
    constexprs = [f"{name}{constexpr}" for name in names]
    return [*(f"{b}_ptr" for b in buffers), *([TABLE] if tables else []), *sizes, *constexprs]


def _mentioned(nest: LoopNest) -> frozenset[str]:
    in_body = (names_in(e) for s in nest.body for e in indices(s))
    return frozenset().union(*in_body, *(names_in(a.extent) for a in (*nest.parallel, *nest.reduce)))


def _plain(name: str, nest: LoopNest, task: Task, program: TileProgram) -> _TaskText:
    used = {*nest.reads(), *nest.writes()}
    mentioned = _mentioned(nest)
    buffers = tuple(b.name for b in program.buffers if b.name in used)
    sizes = tuple(s.name for s in program.sizes if s.name in mentioned)
    known = nest, task, dict(program.by_name()), program.lower()
    writer = partial(TaskBody, *known)
    once = _OnceText.of(name, nest, task, {b: b for b in used}) if task.once else None
    before, given = once.lines(writer) if once else ([], {})
    text = _TaskText(name, before, buffers, None, sizes, task.wide is None, *(once.call() if once else ()))
    body = DotBody(*known).run() if task.dot else writer(positions=once.plan.inside if once else None, given=given).run()
    text.lines.extend(_function(name, text.arguments(typed=True), f"nest @{nest.name}: {' '.join(nest.origins)}", body))
    return text


def _family(name: str, task: Task, nests: Mapping[str, LoopNest], program: TileProgram, first_cell: int) -> _TaskText:
    family = family_of(task, nests, program)
    select = FamilyText(task, family, nests, program, first_cell)
    template, wide = family.template, ["WIDE"] if task.wide is None else []
    inner = [s.name for s in program.sizes if s.name in _mentioned(template)]
    multiples = {s: family.multiple(k) for k, s in enumerate(family.symbols)}
    stand_ins: dict[str, Buffer] = {a.name: a for a in family.arguments}
    known = template, task, stand_ins, program.lower() | family.ranges(), multiples
    writer = partial(TaskBody, *known)
    shared = {family.arguments[k].name: buffer for k, buffer in select.shared.items()}
    once = _OnceText.of(name, template, task, shared, family.symbols) if task.once else None
    before, given = once.lines(writer) if once else ([], {})
    body = DotBody(*known).run() if task.dot else writer(positions=once.plan.inside if once else None, given=given).run()
    values = [f"v{v}" for v in given]
    parameters = [*(f"{a.name}_ptr" for a in family.arguments), *family.symbols, *inner, *(f"{w}: tl.constexpr" for w in wide), *values]
    about = f"{len(family.members)} nests like @{template.name}: {' '.join(template.origins)}"
    lines = [*before, *_function(f"{name}_body", parameters, about, body)]
    sizes = tuple(s.name for s in program.sizes if s.name in select.sizes() or s.name in inner)
    pointers = select.pointers()
    buffers = tuple(b.name for b in program.buffers if b.name in pointers)
    text = _TaskText(name, lines, buffers, select.table(), sizes, task.wide is None, *(once.call() if once else ()))
    call = f"{INDENT}{name}_body({', '.join(['pid', *select.body_arguments(), *inner, *wide, *values])})"
    text.lines.extend(_function(name, text.arguments(typed=True), f"nests {' '.join(f'@{m}' for m in family.members)}",
                                [*select.lines(), call]))  # fmt: skip
    return text


@dataclass(frozen=True)
class _OnceText:
    """The function that computes what a task needs once; ``buffers`` that it reads, as the nest and as the kernel call them."""

    name: str
    plan: Once
    buffers: Mapping[str, str]

    @staticmethod
    def of(name: str, nest: LoopNest, task: Task, buffers: Mapping[str, str], own: Sequence[str] = ()) -> _OnceText | None:
        plan = once_of(nest, task, buffers.keys(), own)
        if plan is None:
            return None
        read = {s.buffer for k, s in enumerate(nest.body) if k in plan.before and isinstance(s, Load)}
        return _OnceText(name, plan, {b: kernel for b, kernel in buffers.items() if b in read})

    def lines(self, writer: Callable[..., TaskBody]) -> tuple[list[str], dict[int, bool]]:
        """The function's lines, and the values it gives, with whether each is a block."""
        before = writer(positions=self.plan.before)
        body = before.run(tile=False)
        values = ", ".join(f"v{v}" for v in self.plan.given)
        head = ["@triton.jit", f"def {self.name}_once({', '.join(f'{b}_ptr' for b in self.buffers)}):"]
        return [*head, *body, f"{INDENT}return {values}", "", ""], {v: v in before.block_values for v in self.plan.given}

    def call(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The kernel's line that calls it, and the names that it gives the values."""
        names = tuple(f"{self.name.lstrip('_')}_v{v}" for v in self.plan.given)
        call = f"{self.name}_once({', '.join(f'{b}_ptr' for b in self.buffers.values())})"
        return (f"{', '.join(names)} = {call}",), names


def _inside(name: str) -> str:
    """What a task's function calls a value that the kernel knows as ``name``."""
    return name[name.rindex("_v") + 1 :]


def _function(name: str, parameters: Sequence[str], about: str, body: Sequence[str]) -> list[str]:
    return ["@triton.jit", f"def {name}({', '.join(['pid', *parameters])}):", f"{INDENT}# {about}"[:160], *body, "", ""]


def _task_texts(phase: Phase, prefix: str, nests: Mapping[str, LoopNest], program: TileProgram, cells: int) -> list[_TaskText]:
    """``cells``: of the kernel's table that tasks of earlier phases take."""
    texts: list[_TaskText] = []
    for task in phase.tasks:
        name = f"{prefix}_{task.nest}"
        if task.members:
            texts.append(_family(name, task, nests, program, cells))
        else:
            texts.append(_plain(name, nests[task.nest], task, program))
        table = texts[-1].table
        cells += sum(map(len, table.rows)) if table else 0
    return texts


@dataclass(frozen=True)
class PhaseBody:
    """One phase as text: ``functions`` that its ``lines`` call, and what those take."""

    functions: list[str]
    lines: list[str]
    buffers: tuple[str, ...]
    tables: tuple[MemberTable, ...]
    sizes: tuple[str, ...]
    wide: bool
    xcds: bool

    def parameters(self, *, typed: bool) -> list[str]:
        return parameters(self.buffers, self.tables, self.sizes, self.wide, typed=typed, xcds=self.xcds)


def phase_body(schedule: KernelSchedule, phase: Phase, program: TileProgram, first_cell: int = 0) -> PhaseBody:
    nests = {n.name: n for n in program.nests}
    texts = _task_texts(phase, f"_{schedule.name}", nests, program, first_cell)
    main = PhaseText(schedule, phase, [Call(t.name, tuple(t.arguments(typed=False)), t.before) for t in texts], program)
    named = {b for t in texts for b in t.buffers}
    buffers = tuple(b.name for b in program.buffers if b.name in named)
    tables = tuple(t.table for t in texts if t.table)
    sizes = tuple(s.name for s in program.sizes if s.name in main.sizes() or any(s.name in t.sizes for t in texts))
    wide = main.decides_at_launch() or any(t.wide for t in texts)
    functions = [*(line for t in texts for line in t.lines), *main.functions()]
    return PhaseBody(functions, main.lines(), buffers, tables, sizes, wide, schedule.xcd_remap)
