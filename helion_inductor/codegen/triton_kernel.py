"""A kernel schedule -> the text of its Triton functions.

Each task becomes one small ``@triton.jit`` function (a family one more, which selects the member); the kernel numbers the
virtual pids of all tasks of a phase one after another and dispatches by a balanced if/else over the boundaries::

    for pid_shared in tl.range(tl.program_id(0), total, tl.num_programs(0)):     # persistent_interleaved
        if pid_shared < end0:
            _k0_n3(pid_shared, ...)
        else:
            _k0_n4(pid_shared - end0, ...)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ir.index import names_in
from ..ir.schedule_ir import KernelSchedule, Phase, Task
from ..ir.tile_ir import Buffer, LoopNest, TileProgram, indices
from .dispatch import INDENT
from .family_text import TABLE, FamilyText, MemberTable, family_of
from .programs import Call, PhaseText
from .task_body import TaskBody


@dataclass(frozen=True)
class KernelText:
    """``name`` of the jit function and its ``source``.

    Its parameters are pointers to ``buffers``, a pointer to the table that holds ``tables`` one after another if there are any,
    ``sizes``, and constexprs: ``WIDE`` if it ``takes_wide``; ``XCDS``, the number of chiplets, if it ``takes_xcds``; one for each
    table. ``touched`` are all buffers that it reads or writes.
    """

    name: str
    source: str
    buffers: tuple[str, ...]
    tables: tuple[MemberTable, ...]
    sizes: tuple[str, ...]
    takes_wide: bool
    takes_xcds: bool
    touched: frozenset[str]

    def pointers(self) -> tuple[str, ...]:
        """Names of the parameters that are pointers."""
        return (*(f"{b}_ptr" for b in self.buffers), *((TABLE,) if self.tables else ()))


def kernel_name(schedule: KernelSchedule, nests: Sequence[LoopNest]) -> str:
    """``_helion_<ops>_<kernel>``: named after the graph nodes it came from."""
    words: list[str] = []
    for nest in nests:
        for origin in nest.origins:
            word = re.sub(r"(_default|_tensor)?(_\d+)?$", "", origin.lower())
            if word not in words:
                words.append(re.sub(r"\W", "_", word))
    return f"_helion_{'_'.join(words[:5])}_{schedule.name}" if words else f"_helion_{schedule.name}"


@dataclass(frozen=True)
class _TaskText:
    """``lines`` of the functions of a task, of which ``name`` is called; the parameters of that one after the pid."""

    name: str
    lines: list[str]
    buffers: tuple[str, ...]
    table: MemberTable | None
    sizes: tuple[str, ...]
    wide: bool

    def arguments(self, *, typed: bool) -> list[str]:
        return _parameters(self.buffers, (self.table,) if self.table else (), self.sizes, self.wide, typed=typed)


def _parameters(buffers: Sequence[str], tables: Sequence[MemberTable], sizes: Sequence[str], wide: bool, *, typed: bool,
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
    text = _TaskText(name, [], buffers, None, sizes, task.wide is None)
    body = TaskBody(nest, task, dict(program.by_name()), program.lower()).run()
    text.lines.extend(_function(name, text.arguments(typed=True), f"nest @{nest.name}: {' '.join(nest.origins)}", body))
    return text


def _family(name: str, task: Task, nests: Mapping[str, LoopNest], program: TileProgram, first_cell: int) -> _TaskText:
    family = family_of(task, nests, program)
    select = FamilyText(task, family, nests, program, first_cell)
    template, wide = family.template, ["WIDE"] if task.wide is None else []
    inner = [s.name for s in program.sizes if s.name in _mentioned(template)]
    multiples = {s: family.multiple(k) for k, s in enumerate(family.symbols)}
    stand_ins: dict[str, Buffer] = {a.name: a for a in family.arguments}
    body = TaskBody(template, task, stand_ins, program.lower() | family.ranges(), multiples).run()
    parameters = [*(f"{a.name}_ptr" for a in family.arguments), *family.symbols, *inner, *(f"{w}: tl.constexpr" for w in wide)]
    about = f"{len(family.members)} nests like @{template.name}: {' '.join(template.origins)}"
    lines = _function(f"{name}_body", parameters, about, body)
    sizes = tuple(s.name for s in program.sizes if s.name in select.sizes() or s.name in inner)
    pointers = select.pointers()
    buffers = tuple(b.name for b in program.buffers if b.name in pointers)
    text = _TaskText(name, lines, buffers, select.table(), sizes, task.wide is None)
    call = f"{INDENT}{name}_body({', '.join(['pid', *select.body_arguments(), *inner, *wide])})"
    text.lines.extend(_function(name, text.arguments(typed=True), f"nests {' '.join(f'@{m}' for m in family.members)}",
                                [*select.lines(), call]))  # fmt: skip
    return text


def _function(name: str, parameters: Sequence[str], about: str, body: Sequence[str]) -> list[str]:
    return ["@triton.jit", f"def {name}({', '.join(['pid', *parameters])}):", f"{INDENT}# {about}"[:160], *body, "", ""]


def _task_texts(phase: Phase, prefix: str, nests: Mapping[str, LoopNest], program: TileProgram) -> list[_TaskText]:
    texts: list[_TaskText] = []
    cells = 0
    for task in phase.tasks:
        name = f"{prefix}_{task.nest}"
        if task.members:
            texts.append(_family(name, task, nests, program, cells))
        else:
            texts.append(_plain(name, nests[task.nest], task, program))
        table = texts[-1].table
        cells += sum(map(len, table.rows)) if table else 0
    return texts


def kernel_text(schedule: KernelSchedule, program: TileProgram) -> KernelText:
    """All functions of one kernel. Kernels of several phases are not generated here yet: the schedule must have one."""
    (phase,) = schedule.phases
    nests = {n.name: n for n in program.nests}
    name = kernel_name(schedule, [nests[t.nest] for t in phase.tasks])
    texts = _task_texts(phase, f"_{schedule.name}", nests, program)
    main = PhaseText(schedule, phase, [Call(t.name, tuple(t.arguments(typed=False))) for t in texts], program)
    named = {b for t in texts for b in t.buffers}
    buffers = tuple(b.name for b in program.buffers if b.name in named)
    tables = tuple(t.table for t in texts if t.table)
    sizes = tuple(s.name for s in program.sizes if s.name in main.sizes() or any(s.name in t.sizes for t in texts))
    wide = main.decides_at_launch() or any(t.wide for t in texts)
    lines = [*(line for t in texts for line in t.lines), *main.functions()]
    parameters = _parameters(buffers, tables, sizes, wide, typed=True, xcds=schedule.xcd_remap)
    lines += ["@triton.jit", f"def {name}({', '.join(parameters)}):", *main.lines()]
    touched = frozenset(b for t in phase.tasks for n in t.nests() for b in (*nests[n].reads(), *nests[n].writes()))
    return KernelText(name, "\n".join(lines) + "\n", buffers, tables, sizes, wide, schedule.xcd_remap, touched)
