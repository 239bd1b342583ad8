"""A kernel and what it runs, under names that depend on nothing else: equal for stretches of a program that do the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .family import with_buffers
from .schedule_ir import KernelSchedule, Phase
from .text import text
from .tile_ir import Buffer, LoopNest, TileProgram


@dataclass(frozen=True)
class CanonicalKernel:
    """``schedule`` over ``program``, which holds its nests and their buffers only; ``buffers`` maps names in it to those that
    the whole program has."""

    schedule: KernelSchedule
    program: TileProgram
    buffers: Mapping[str, str]

    def __str__(self) -> str:
        return f"{text(self.program)}\n{text(self.schedule)}"


def canonical(schedule: KernelSchedule, program: TileProgram) -> CanonicalKernel:
    """``schedule`` with its nests, their axes left as they are, and buffers named in the order in which they come."""
    by_name = {n.name: n for n in program.nests}
    given = program.by_name()
    nests: dict[str, str] = {}
    buffers: dict[str, str] = {}
    bodies: list[LoopNest] = []
    for task in schedule.tasks():
        for name in task.nests():
            nests[name] = f"n{len(nests)}"
            for s in by_name[name].body:
                old = getattr(s, "buffer", None)
                if old is not None:
                    buffers.setdefault(old, f"t{len(buffers)}")
            renamed = with_buffers(by_name[name], buffers)
            bodies.append(replace(renamed, name=nests[name], origins=tuple(map(_unnumbered, renamed.origins))))
    phases = tuple(
        Phase(tuple(replace(t, nest=nests[t.nest], members=tuple(nests[m] for m in t.members)) for t in p.tasks)) for p in schedule.phases
    )
    own = tuple(_renamed(given[old], buffers) for old in buffers)
    mentioned = TileProgram("kernel", program.sizes, own, tuple(bodies))
    return CanonicalKernel(replace(schedule, name="k", phases=phases), mentioned, {new: old for old, new in buffers.items()})


def canonical_text(schedule: KernelSchedule, program: TileProgram) -> str:
    """Equal for kernels that do the same with other buffers."""
    return str(canonical(schedule, program))


def _renamed(buffer: Buffer, names: Mapping[str, str]) -> Buffer:
    """A buffer under its new name; what it aliases matters only where that is a buffer of the kernel too."""
    return replace(buffer, name=names[buffer.name], aliases=names.get(buffer.aliases or ""))


def _unnumbered(origin: str) -> str:
    head, _, tail = origin.rpartition("_")
    return head if head and tail.isdigit() else origin
