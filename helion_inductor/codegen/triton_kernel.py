"""A kernel schedule -> the text of its Triton functions: those of its phases (``phase_body``), and the kernel that runs them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..ir.canonical import canonical
from ..ir.schedule_ir import KernelSchedule
from ..ir.tile_ir import LoopNest, TileProgram
from .dispatch import INDENT
from .family_text import TABLE, MemberTable
from .phase_body import PhaseBody, parameters, phase_body

STATE = "state_ptr"


@dataclass(frozen=True)
class KernelText:
    """``name`` of the jit function and its ``source``.

    Its parameters are pointers to ``buffers``, a pointer to the table that holds ``tables`` one after another if there are any,
    ``sizes``, and constexprs: ``WIDE`` if it ``takes_wide``; ``XCDS``, the number of chiplets, if it ``takes_xcds``; one for each
    table. ``touched`` are all buffers that it reads or writes. A kernel of several ``phases`` further takes a pointer to its state
    after the sizes, and the constexprs ``FIRST`` and ``LAST``.
    """

    name: str
    source: str
    buffers: tuple[str, ...]
    tables: tuple[MemberTable, ...]
    sizes: tuple[str, ...]
    takes_wide: bool
    takes_xcds: bool
    touched: frozenset[str]
    names: tuple[str, ...]
    phases: int = 1

    def buffer_pointers(self) -> tuple[str, ...]:
        """Names of the parameters that point to ``buffers``, which the text calls ``names``."""
        return tuple(f"{b}_ptr" for b in self.names)

    def pointers(self) -> tuple[str, ...]:
        """Names of all parameters that are pointers."""
        return (*self.buffer_pointers(), *((TABLE,) if self.tables else ()), *((STATE,) if self.phases > 1 else ()))


def kernel_name(schedule: KernelSchedule, nests: Sequence[LoopNest]) -> str:
    """``_helion_<ops>_<kernel>``: named after the graph nodes it came from."""
    words: list[str] = []
    for nest in nests:
        for origin in nest.origins:
            word = re.sub(r"(_default|_tensor)?(_\d+)?$", "", origin.lower())
            if word not in words:
                words.append(re.sub(r"\W", "_", word))
    return f"_helion_{'_'.join(words[:5])}_{schedule.name}" if words else f"_helion_{schedule.name}"


def kernel_text(schedule: KernelSchedule, program: TileProgram) -> KernelText:
    """All functions of one kernel.

    A kernel of several phases is written under canonical names, so that kernels that do the same have one text.
    """
    if len(schedule.phases) > 1:
        return phased_text(schedule, program)
    (phase,) = schedule.phases
    nests = {n.name: n for n in program.nests}
    name = kernel_name(schedule, [nests[t.nest] for t in phase.tasks])
    body = phase_body(schedule, phase, program)
    lines = [*body.functions, "@triton.jit", f"def {name}({', '.join(body.parameters(typed=True))}):", *body.lines]
    return _kernel_text(name, lines, schedule, [body], program)


def _kernel_text(name: str, lines: Sequence[str], schedule: KernelSchedule, bodies: Sequence[PhaseBody],
                 program: TileProgram) -> KernelText:  # fmt: skip
    nests = {n.name: n for n in program.nests}
    buffers, sizes = all_buffers(bodies, program), all_sizes(bodies, program)
    tables = tuple(t for b in bodies for t in b.tables)
    touched = frozenset(b for t in schedule.tasks() for n in t.nests() for b in (*nests[n].reads(), *nests[n].writes()))
    wide = any(b.wide for b in bodies)
    return KernelText(name, "\n".join(lines) + "\n", buffers, tables, sizes, wide, schedule.xcd_remap, touched, buffers, len(bodies))


def all_buffers(bodies: Sequence[PhaseBody], program: TileProgram) -> tuple[str, ...]:
    """Buffers whose pointers the phases take, in the order of the program."""
    return tuple(b.name for b in program.buffers if any(b.name in body.buffers for body in bodies))


def all_sizes(bodies: Sequence[PhaseBody], program: TileProgram) -> tuple[str, ...]:
    """Sizes that the phases take, in the order of the program."""
    return tuple(s.name for s in program.sizes if any(s.name in body.sizes for body in bodies))


def phased_text(schedule: KernelSchedule, program: TileProgram) -> KernelText:
    """A kernel of several phases: a function for each, and a barrier of all programs between two.

    It runs phases ``FIRST`` up to, but not including, ``LAST``: all of them in a cooperative launch, or one in each of several.
    """
    plain = canonical(schedule, program)
    short = f"k{hashlib.sha256(str(plain).encode()).hexdigest()[:8]}"
    own, mine = replace(plain.schedule, name=short), plain.program
    nests = {n.name: n for n in mine.nests}
    name = kernel_name(own, [nests[t.nest] for t in own.tasks()])
    bodies: list[PhaseBody] = []
    cells = 0
    for number, phase in enumerate(own.phases):
        bodies.append(phase_body(replace(own, name=f"{short}_{number}"), phase, mine, cells))
        cells += sum(len(row) for t in bodies[-1].tables for row in t.rows)
    lines = [line for number, body in enumerate(bodies) for line in (
        *body.functions, "@triton.jit", f"def _{short}_phase{number}({', '.join(body.parameters(typed=True))}):", *body.lines, "", "",
    )]  # fmt: skip
    tables = tuple(t for b in bodies for t in b.tables)
    given = parameters(all_buffers(bodies, mine), tables, (*all_sizes(bodies, mine), STATE), any(b.wide for b in bodies), typed=True,
                        xcds=own.xcd_remap)  # fmt: skip
    lines += ["@triton.jit", f"def {name}({', '.join([*given, 'FIRST: tl.constexpr', 'LAST: tl.constexpr'])}):"]
    for number, body in enumerate(bodies):
        call = f"_{short}_phase{number}({', '.join(body.parameters(typed=False))})"
        barrier = [f"{2 * INDENT}if FIRST < {number}:", f"{3 * INDENT}grid_barrier({STATE}, 0, tl.num_programs(0))"] if number else []
        lines += [f"{INDENT}if FIRST <= {number} and LAST > {number}:", *barrier, f"{2 * INDENT}{call}"]
    text = _kernel_text(name, lines, own, bodies, mine)
    return replace(text, buffers=tuple(plain.buffers[b] for b in text.buffers), touched=frozenset(plain.buffers[b] for b in text.touched),
                   tables=tuple(_with_names(t, plain.buffers) for t in text.tables))  # fmt: skip


def _with_names(table: MemberTable, names: Mapping[str, str]) -> MemberTable:
    return replace(table, rows=tuple(tuple(names[c] if isinstance(c, str) else c for c in row) for row in table.rows))
