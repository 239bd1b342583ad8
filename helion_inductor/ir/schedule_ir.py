"""Kernel schedules: which tasks a kernel runs, in which phases, over which tiles.

Grammar (text form; ``printer`` writes it, ``parser`` reads it back to an equal value)::

    kernel   ::= "kernel @" NAME "  pid_type=" PIDTYPE "  num_warps=" INT "  num_stages=" INT ["  sm_multiplier=" INT]
                 ["  reserved_sms=" INT] ["  xcd_remap"]
                 NEWLINE {phase}
    phase    ::= "  phase " INT NEWLINE {task}              numbered from 0
    task     ::= "    task nest @" NAME {" @" NAME} " pid_map " pidmap " tile(" dim {", " dim} ")" ["  select=table"]
                 ["  weight=" INT] [width] ["  once"] ["  stages=" INT] ["  dot"] NEWLINE
    pidmap   ::= "row_major(" dimnames ")" | "grouped_l2(" dimnames ", group=" INT ")"
    width    ::= "  wide" | "  narrow"
    dim      ::= NAME "[" axisnames "]=" INT (" parallel" | " persistent" | " looped")
    PIDTYPE  ::= "flat" | "persistent_blocked" | "persistent_interleaved"

``dimnames`` are the parallel dimensions in the order in which virtual pids walk them, the slowest first.

Meaning. A *tile dimension* lays a run of a nest's axes out row-major and cuts it into blocks of a power of two
elements. Parallel dimensions are cut across virtual pids: a task owns ``product(ceil(extent / block))`` of them,
numbered by its pid map (``pid_map``). A ``persistent`` reduce dimension is held whole in one block; a ``looped`` one is walked
block by block, once per pass. A task of several nests is a *family*: nests of one form (``family``) on the same tiles,
of which the kernel has one copy. It owns the virtual pids of the first nest, then those of the second, and so on;
a member's buffers and integers are selected among the kernel's arguments, or come from a table in device memory.
Tasks of one phase share one virtual-pid space (task after task) and are independent; phases run one after another,
and virtual pids restart at 0 in each. ``persistent_blocked`` programs take equal shares of the weight of all tiles, of which
each of a task weighs ``weight``. ``xcd_remap`` numbers programs anew on a device of several chiplets. ``wide`` tasks compute
offsets in 64 bits, ``narrow`` ones in 32; with neither it is chosen at launch from the sizes. What all tiles of a ``once`` task
compute alike, because it varies over no parallel axis, each program computes once, before its first tile. A task of several
``stages`` has so many tiles, or steps of a looped dimension, on their way from memory at a time. A ``dot`` task multiplies
matrices by the units that are made for it (``dots``); its dimensions are ``z`` (batch, one matrix a tile), ``m``, ``n`` and ``k``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .index import ZERO, Expr, ceil_div, integer, product
from .pid_map import PID_TYPES, PidMap
from .text import text
from .tile_ir import LoopNest

__all__ = ["PID_TYPES", "SELECTS", "KernelSchedule", "Phase", "PidMap", "Task", "TileDim"]

SELECTS = ("arguments", "table")


@dataclass(frozen=True)
class TileDim:
    """``axes`` of a nest, row-major, in blocks of ``block`` elements; ``kind``: parallel | persistent | looped."""

    name: str
    axes: tuple[str, ...]
    block: int
    kind: str

    def extent(self, nest: LoopNest) -> Expr:
        extents = nest.extents()
        return product(extents[a] for a in self.axes)


@dataclass(frozen=True)
class Task:
    """One nest on tiles, or a family of them: ``nest`` and further ``members``, told apart by ``select``.

    ``wide``: 64-bit offsets (None: decided at launch). ``weight``: what a tile costs, compared with those of other tasks.
    ``once``: what all tiles compute alike is computed before them. ``stages``: of software pipelining of its loads, 1 for none.
    ``dot``: whether units for matrices multiply.
    """

    nest: str
    dims: tuple[TileDim, ...]
    wide: bool | None = False
    pid_map: PidMap = PidMap()
    members: tuple[str, ...] = ()
    select: str = "arguments"
    weight: int = 1
    once: bool = False
    stages: int = 1
    dot: bool = False

    def nests(self) -> tuple[str, ...]:
        return (self.nest, *self.members)

    def parallel(self) -> tuple[TileDim, ...]:
        return tuple(d for d in self.dims if d.kind == "parallel")

    def tiles(self, nest: LoopNest) -> Expr:
        """Number of virtual pids that ``nest``, one of the task's, takes."""
        return product(ceil_div(d.extent(nest), integer(d.block)) for d in self.parallel())

    def all_tiles(self, nests: Mapping[str, LoopNest]) -> Expr:
        """Number of virtual pids; ``nests`` by name."""
        return sum((self.tiles(nests[n]) for n in self.nests()), ZERO)

    def reduce_dim(self) -> TileDim | None:
        return next((d for d in self.dims if d.kind != "parallel"), None)


@dataclass(frozen=True)
class Phase:
    tasks: tuple[Task, ...]


@dataclass(frozen=True)
class KernelSchedule:
    """One launch. ``sm_multiplier``: programs per SM of a persistent grid, which leaves ``reserved_sms`` of them alone.

    ``xcd_remap``: on devices of several chiplets, neighbouring virtual pids are worked on by programs of one chiplet.
    """

    name: str
    pid_type: str
    num_warps: int
    num_stages: int
    phases: tuple[Phase, ...]
    sm_multiplier: int = 4
    reserved_sms: int = 0
    xcd_remap: bool = False

    def tasks(self) -> tuple[Task, ...]:
        return tuple(t for p in self.phases for t in p.tasks)

    def __str__(self) -> str:
        return text(self)
