"""A family's task -> one copy of its body, and a function that selects the member of a virtual pid.

From a table in device memory, one row of addresses and integers per member::

    @triton.jit
    def _k0_n1(pid, table_ptr, ALIGNED_n1: tl.constexpr):
        member = pid // 8
        pid = pid % 8
        row = table_ptr + member * 3
        b0_ptr = tl.load(row).to(tl.pointer_type(tl.float32))
        ...
        _k0_n1_body(pid, b0_ptr, b1_ptr, c0)

or among the kernel's arguments, by a balanced if/else with one leaf per member.

What the compiler would know of an argument or a literal it is told here of a loaded one: that addresses are multiples of 16
bytes (``ALIGNED``, checked on the host), and by which power of two an integer can be divided. Without, no access is wider
than one element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import sympy

from ..ir.family import Family, common_form, in_all
from ..ir.index import Expr, integer, names_in, symbol
from ..ir.schedule_ir import Task
from ..ir.simplify import Ranges
from ..ir.tile_ir import Check, Index, LoopNest, TileProgram, indices
from .dispatch import INDENT, choose
from .expressions import triton_dtype
from .index_text import triton_text

TABLE = "table_ptr"


@dataclass(frozen=True)
class MemberTable:
    """Rows of a family's table: names of buffers, then integers or expressions in sizes."""

    nest: str
    rows: tuple[tuple[str | Expr, ...], ...]

    @property
    def aligned(self) -> str:
        return aligned(self.nest)


def aligned(nest: str) -> str:
    """The constexpr that says whether all addresses in the table of a family are multiples of 16 bytes."""
    return f"ALIGNED_{nest}"


@dataclass
class FamilyText:
    """The selecting function of ``task``, whose body is the function ``body`` of ``family.template``.

    ``first_cell`` is where the family's rows begin in the table of the kernel.
    """

    task: Task
    family: Family
    nests: Mapping[str, LoopNest]
    program: TileProgram
    first_cell: int

    def __post_init__(self) -> None:
        self.shared = in_all(self.family.buffers)
        self.chosen = [(k, a) for k, a in enumerate(self.family.arguments) if k not in self.shared]

    def table(self) -> MemberTable | None:
        """None where members are chosen among arguments."""
        if self.task.select != "table":
            return None
        rows = zip(self.family.buffers, self.family.parameters, strict=True)
        return MemberTable(self.task.nest, tuple((*(b[k] for k, _ in self.chosen), *p) for b, p in rows))

    def pointers(self) -> frozenset[str]:
        """Buffers whose pointers are arguments of the function."""
        if self.task.select == "table":
            return frozenset(self.shared.values())
        return frozenset(b for row in self.family.buffers for b in row)

    def body_arguments(self) -> list[str]:
        """Pointers and integers of the selected member, as the function calls them; a buffer of all members keeps its name."""
        names = [self.shared.get(k, a.name) for k, a in enumerate(self.family.arguments)]
        return [*(f"{name}_ptr" for name in names), *self.family.symbols]

    def sizes(self) -> frozenset[str]:
        """Sizes that selecting a member mentions."""
        tiles = [names_in(e) for e in self._tiles()]
        return frozenset().union(*tiles, *(names_in(e) for row in self.family.parameters for e in row if self.task.select == "arguments"))

    def lines(self) -> list[str]:
        """The lines of the function up to the call of the body."""
        table = self.task.select == "table"
        lines = [*self._member(), *self._load_row()] if table else [*self._choose_arguments(), *self._widths()]
        return [INDENT + line for line in lines]

    # ---- which member
    def _tiles(self) -> list[Expr]:
        return [self.task.tiles(self.nests[n]) for n in self.task.nests()]

    def _text(self, e: Expr) -> str:
        """A number of virtual pids, or an integer of a member: sizes are taken to 64 bits before they are multiplied."""
        if e.is_Integer:
            return str(int(e))
        wide = {symbol(n): sympy.Symbol(f"tl.cast({n}, tl.int64)", integer=True) for n in names_in(e)}
        return triton_text(e.xreplace(wide), Ranges({}, {s.name: self.program.lower()[n.name] for n, s in wide.items()}))

    def _ends(self, tiles: Sequence[Expr]) -> tuple[list[str], list[str]]:
        """(lines that define them, the boundaries) of consecutive runs of virtual pids."""
        lines, ends = [], []
        total: Expr = integer(0)
        for k, count in enumerate(tiles):
            total = total + count
            if total.is_Integer:
                ends.append(str(int(total)))
                continue
            before = f"{ends[-1]} + " if ends else ""
            ends.append(f"end{k}")
            lines.append(f"end{k} = {before}{self._text(count)}")
        return lines, ends

    def _member(self) -> list[str]:
        """Lines that turn ``pid`` into ``member`` and the pid within it; members of equal tile counts are found by division."""
        runs = [(count, len(list(run))) for count, run in groupby(self._tiles())]
        if len(runs) == 1:
            count = runs[0][0]
            tiles = str(max(1, int(count))) if count.is_Integer else self._pid_width(self._text(count))
            return [f"tiles = {tiles}", "member = pid // tiles", "pid = pid % tiles"]
        lines, ends = self._ends([count * members for count, members in runs])
        leaves, base = [], 0
        literal = all(count.is_Integer for count, _ in runs)
        for k, (count, members) in enumerate(runs):
            tiles = str(max(1, int(count))) if literal else f"tl.cast({self._text(count)}, tl.int64)"
            first = ends[k - 1] if k else "0"
            leaves.append([f"base = {base}", f"first = {first if literal else f'tl.cast({first}, tl.int64)'}", f"tiles = {tiles}"])
            base += members
        lines += choose(leaves, ends, "pid", 0)
        if literal:
            lines.append("pid = pid - first")
        else:
            lines += [f"pid = {self._pid_width('pid - first')}", f"tiles = {self._pid_width('tiles')}"]
        return [*lines, "member = base + pid // tiles", "pid = pid % tiles"]

    def _pid_width(self, text: str) -> str:
        """A number within the virtual pids of a member, in the width of its offsets."""
        dtype = {False: "tl.int32", True: "tl.int64", None: "tl.int64 if WIDE else tl.int32"}[self.task.wide]
        return f"tl.cast({text}, {dtype})"

    # ---- its buffers and integers
    def _load_row(self) -> list[str]:
        pointers = [f"{a.name}_ptr" for _, a in self.chosen]
        columns = len(pointers) + len(self.family.symbols)
        offset = f"{self.first_cell} + " if self.first_cell else ""
        lines = [f"row = {TABLE} + ({offset}member * {columns})"]
        for k, (_, argument) in enumerate(self.chosen):
            at = f"row + {k}" if k else "row"
            lines.append(f"{pointers[k]} = tl.load({at}).to(tl.pointer_type({triton_dtype(argument.dtype)}))")
        lines.append(f"if {aligned(self.task.nest)}:")
        lines += [f"{INDENT}{p} = tl.multiple_of({p}, 16)" for p in pointers]
        lines += [f"{s} = tl.load(row + {len(pointers) + k})" for k, s in enumerate(self.family.symbols)]
        lines += self._narrow()
        for k, s in enumerate(self.family.symbols):
            power = min(16, self.family.multiple(k) & -self.family.multiple(k))
            if power > 1:
                lines.append(f"{s} = tl.multiple_of({s}, {power})")
        return lines

    def _choose_arguments(self) -> list[str]:
        lines, ends = self._ends(self._tiles())
        typed = any(end.startswith("end") for end in ends)
        leaves = []
        for k, (buffers, parameters) in enumerate(zip(self.family.buffers, self.family.parameters, strict=True)):
            leaf = [f"{a.name}_ptr = {buffers[at]}_ptr" for at, a in self.chosen]
            for number, (s, e) in enumerate(zip(self.family.symbols, parameters, strict=True)):
                leaf.append(f"{s} = {self._text(e)}" if self._short(number) else f"{s} = tl.cast({self._text(e)}, tl.int64)")
            first = ends[k - 1] if k else "0"
            leaves.append([*leaf, f"first = tl.cast({first}, tl.int64)" if typed else f"first = {first}"])
        lines += choose(leaves, ends, "pid", 0)
        return [*lines, f"pid = {self._pid_width('pid - first')}" if typed else "pid = pid - first"]

    # ---- widths of integers
    def _short(self, number: int) -> bool:
        """Whether a parameter is known to fit 32 bits in every member."""
        column = [row[number] for row in self.family.parameters]
        return all(e.is_Integer and -(2**31) <= int(e) < 2**31 for e in column)

    def _kept(self, number: int) -> bool:
        """Whether a parameter stays in 64 bits whatever the width of offsets: too large, or a size used as a value."""
        column = [row[number] for row in self.family.parameters]
        if all(e.is_Integer for e in column):
            return not self._short(number)
        body = self.family.template.body
        return any(self.family.symbols[number] in names_in(e) for s in body if isinstance(s, (Index, Check)) for e in indices(s))

    def _narrow(self) -> list[str]:
        """Loaded integers are brought to 32 bits where offsets have no more."""
        if self.task.wide is True:
            return []
        names = [s for k, s in enumerate(self.family.symbols) if not self._kept(k)]
        return self._if_wide([f"{s} = {s}.to(tl.int32)" for s in names], "not WIDE")

    def _widths(self) -> list[str]:
        """Chosen integers, which are in 32 bits where all fit, are brought to the width of offsets."""
        symbols = list(enumerate(self.family.symbols))
        down = [f"{s} = tl.cast({s}, tl.int32)" for k, s in symbols if not self._short(k) and not self._kept(k)]
        up = [f"{s} = tl.cast({s}, tl.int64)" for k, s in symbols if self._short(k)]
        if self.task.wide is None:
            return [*self._if_wide(down, "not WIDE"), *self._if_wide(up, "WIDE")]
        return up if self.task.wide else down

    def _if_wide(self, lines: list[str], condition: str) -> list[str]:
        if self.task.wide is not None or not lines:
            return lines
        return [f"if {condition}:", *(INDENT + line for line in lines)]


def family_of(task: Task, nests: Mapping[str, LoopNest], program: TileProgram) -> Family:
    return common_form([nests[n] for n in task.nests()], program)
