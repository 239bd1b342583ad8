"""The part of a kernel that hands virtual pids to programs, and each virtual pid to the task it belongs to.

Virtual pids are numbered in 32 bits, or in 64 where there may be more than ``INT32_PIDS``: decided by the sizes known here
(``numbered_wide``), or at launch (``WIDE``) where they are symbols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy

from ..ir.index import ZERO, Expr, names_in, symbol
from ..ir.pid_map import EQUAL_SHARE, XCD_REMAP, Steps, weighted_first, weighted_runs
from ..ir.schedule_ir import KernelSchedule, Phase, Task
from ..ir.simplify import Ranges
from ..ir.tile_ir import LoopNest, TileProgram
from .dispatch import INDENT, choose
from .index_text import triton_text

INT32_PIDS = 2**30
"""Virtual pids that a persistent kernel numbers in 32 bits: the last one and the number of programs, added up, fit as well."""
_PROGRAMS = "tl.num_programs(0)"


@dataclass(frozen=True)
class Call:
    """The function ``name`` of a task, and its ``arguments`` after the virtual pid; lines to run ``before`` the first tile."""

    name: str
    arguments: tuple[str, ...]
    before: tuple[str, ...] = ()


def step_lines(steps: Steps, ranges: Ranges, names: Mapping[str, str] | None = None) -> list[str]:
    """``name = expression`` for each step, with other ``names`` for some symbols."""
    other = {symbol(old): sympy.Symbol(new, integer=True) for old, new in (names or {}).items()}
    return [f"{name} = {bare(triton_text(e.xreplace(other), ranges))}" for name, e in steps]


def bare(text: str) -> str:
    """``text`` without the parentheses around all of it."""
    if not text.startswith("("):
        return text.replace(" + -", " - ")
    depth = 0
    for k, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return (text[1:-1] if k == len(text) - 1 else text).replace(" + -", " - ")
    return text


def total_pids(phase: Phase, nests: Mapping[str, LoopNest]) -> Expr:
    return sum((t.all_tiles(nests) for t in phase.tasks), ZERO)


def numbered_wide(schedule: KernelSchedule, total: Expr) -> bool | None:
    """Whether virtual pids need 64 bits; None where that is decided at launch. The grid of a flat kernel never does."""
    if schedule.pid_type == "flat":
        return False
    return int(total) > INT32_PIDS if total.is_Integer else None


@dataclass
class PhaseText:
    """Lines of the kernel of ``schedule`` for ``phase``; ``calls`` in the order of its tasks."""

    schedule: KernelSchedule
    phase: Phase
    calls: Sequence[Call]
    program: TileProgram

    def __post_init__(self) -> None:
        self.nests = {n.name: n for n in self.program.nests}
        self.total = total_pids(self.phase, self.nests)
        self.wide = numbered_wide(self.schedule, self.total)
        weights = [t.weight for t in self.phase.tasks]
        self.weighted = self.schedule.pid_type == "persistent_blocked" and len(set(weights)) > 1
        self.runs = weighted_runs(weights)
        self.ends = [f"end{k}" for k in range(len(self.calls))]
        # A flat kernel of one task has no boundaries.
        self.bounded = self.schedule.pid_type != "flat" or len(self.calls) > 1

    def decides_at_launch(self) -> bool:
        """Whether the width of a number of virtual pids depends on ``WIDE``."""
        return self.bounded and not self.total.is_Integer

    def sizes(self) -> frozenset[str]:
        """Sizes that boundaries mention."""
        return names_in(self.total) if self.bounded else frozenset()

    def functions(self) -> list[str]:
        """Lines of the functions that the kernel calls beside those of tasks."""
        if not self.weighted:
            return []
        tiles = [f"tiles{k}" for k in range(len(self.runs))]
        casts = [f"{name} = tl.cast({value}, tl.int64)" for name, value in (
            ("program", "program"), ("programs", _PROGRAMS), *((t, t) for t in tiles))]  # fmt: skip
        steps = step_lines(weighted_first([weight for weight, _ in self.runs]), Ranges({}, {"programs": 1}))
        lines = [*casts, *steps, "return first"]
        about = f"# first virtual pid of a program: shares of equal weight, {', '.join(str(w) for w, _ in self.runs)} a tile"
        head = ["@triton.jit", f"def {self._first}({', '.join(['program', *tiles])}):"]
        return [*head, *(INDENT + line for line in (about, *lines)), "", ""]

    def lines(self) -> list[str]:
        """Lines of the kernel's body."""
        leaves = [[f"{call.name}({', '.join([self._pid(k), *call.arguments])})"] for k, call in enumerate(self.calls)]
        before = [line for call in self.calls for line in call.before]
        lines = [*(self._boundaries() if self.bounded else ()), *before, *self._program(), *self._loop()]
        lines = [INDENT + line for line in lines]
        return lines + choose(leaves, self.ends, "pid_shared", 1 if self.schedule.pid_type == "flat" else 2)

    # ---- parts
    @property
    def _first(self) -> str:
        return f"_{self.schedule.name}_first"

    def _ranges(self) -> Ranges:
        return Ranges({}, self.program.lower())

    def _boundaries(self) -> list[str]:
        lines = []
        if self.decides_at_launch():
            lines = ["if WIDE:", *(f"{INDENT}{s} = tl.cast({s}, tl.int64)" for s in sorted(self.sizes()))]
        for k, task in enumerate(self.phase.tasks):
            tiles = triton_text(task.all_tiles(self.nests), self._ranges())
            text = f"{self.ends[k - 1]} + {tiles}" if k else tiles
            # A literal takes the type of what it meets, which is not enough for the total.
            last = self.wide is True and k + 1 == len(self.ends)
            lines.append(f"{self.ends[k]} = {f'tl.cast({text}, tl.int64)' if last else text}")
        return lines

    def _program(self) -> list[str]:
        """Lines that give programs other numbers, where asked for."""
        if not self.schedule.xcd_remap:
            return []
        steps = step_lines(XCD_REMAP, Ranges({}, {"XCDS": 1}), {"programs": _PROGRAMS, "xcds": "XCDS"})
        steps[-1] = steps[-1].replace("remapped = ", "program = ", 1)
        return ["program = tl.program_id(0)", "if XCDS > 1:", *(INDENT + s for s in steps)]

    def _loop(self) -> list[str]:
        """Lines that give ``pid_shared`` its values."""
        program, total = "program" if self.schedule.xcd_remap else "tl.program_id(0)", self.ends[-1]
        if self.schedule.pid_type == "flat":
            return [f"pid_shared = {program}"]
        if self.schedule.pid_type == "persistent_interleaved":
            return [f"for pid_shared in tl.range({program}, {total}, {_PROGRAMS}{self._stages()}):"]
        if self.weighted:
            return [self._weighted_first("first", program), self._weighted_first("last", f"{program} + 1"),
                    f"for pid_shared in tl.range(first, last{self._stages()}):"]  # fmt: skip
        names = {"program": program, "programs": _PROGRAMS, "total": total}
        shares = step_lines(EQUAL_SHARE, Ranges({}, {_PROGRAMS: 1}), names)
        return [*shares, f"for pid_shared in tl.range(first, tl.minimum(first + share, {total}){self._stages()}):"]

    def _stages(self) -> str:
        """Stages of the loop over tiles: a task that loops within its tiles has them there."""
        task = self.phase.tasks[0]
        dim = task.reduce_dim()
        whole = len(self.phase.tasks) == 1 and (dim is None or dim.kind == "persistent")
        return f", num_stages={task.stages}" if whole and task.stages > 1 else ""

    def _weighted_first(self, name: str, program: str) -> str:
        tiles = [f"{self.ends[run[-1]]} - {self.ends[run[0] - 1]}" if run[0] else self.ends[run[-1]] for _, run in self.runs]
        arguments = ", ".join([program, *tiles])
        dtype = "tl.int64" if self.wide else "tl.int32" if self.wide is False else "tl.int64 if WIDE else tl.int32"
        return f"{name} = tl.cast({self._first}({arguments}), {dtype})"

    def _pid(self, position: int) -> str:
        """The virtual pid as the task at ``position`` counts it; what fits 32 bits is handed over in 32."""
        pid = f"pid_shared - {self.ends[position - 1]}" if position else "pid_shared"
        task: Task = self.phase.tasks[position]
        return f"tl.cast({pid}, tl.int32)" if self.wide is not False and task.wide is False else pid
