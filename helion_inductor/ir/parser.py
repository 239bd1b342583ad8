"""Text -> IR values: the inverse of ``printer``, for the grammars in the docstrings of ``tile_ir`` and ``schedule_ir``.

Every function raises ``ValueError`` that names the number of the line and shows it. Only syntax is checked here; what a
well-formed text means is for ``verify``. Blank lines, indentation and the width of gaps between words do not matter.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

import torch

from . import index
from .index import Expr
from .printer import DTYPES, contiguous
from .schedule_ir import KernelSchedule, Phase, PidMap, Task, TileDim
from .tile_ir import (
    Atomic,
    Axis,
    Buffer,
    Check,
    Const,
    Index,
    Literal,
    Load,
    LoopNest,
    Map,
    Reduce,
    Scan,
    Size,
    Stmt,
    Store,
    TileProgram,
)

T = TypeVar("T")
_MASK = r"(?: mask %(?P<mask>\d+))?"
_AT = r"(?P<buffer>\w+)\[(?P<index>[^\]]*)\]"
_PROGRAM = re.compile(r"program @(?P<name>[\w.]+)\((?P<buffers>.*?)\)(?: sizes\((?P<sizes>[^()]*)\))?")
_SIZE = re.compile(r"(?P<name>\w+)>=(?P<lower>-?\d+)~(?P<hint>-?\d+)")
_BUFFER = re.compile(
    r"(?P<kind>in|out|temp) (?P<name>\w+): (?P<dtype>\w+)\[(?P<shape>[^\]]*)\]"
    r"(?: strides\((?P<stride>.*)\))?(?: aliases (?P<aliases>\w+))?"
)
_NEST = re.compile(
    r"nest @(?P<name>[\w.]+) parallel\((?P<parallel>.*?)\)(?: reduce\((?P<reduce>.*?)\))?(?: *# (?P<origins>.*))?"
)
_AXIS = re.compile(r"(?P<name>\w+): (?P<extent>.+)")
_VALUE = re.compile(r"%(?P<id>\d+): (?P<dtype>\w+) = (?P<right>.*)")
_LOAD = re.compile(rf"load {_AT}(?: mask %(?P<mask>\d+) else (?P<other>\S+))?")
_CONST = re.compile(r"const (?P<value>\S+)")
_INDEX = re.compile(r"index (?P<expr>.+)")
_FOLD = re.compile(r"(?P<form>reduce|scan) (?P<kind>\w+)\((?P<axes>[^()]*)\) %(?P<arg>\d+)")
_MAP = re.compile(r"(?P<op>\w+)\((?P<args>[^()]*)\)(?:\{(?P<attrs>.*)\})?")
_ATTRIBUTE = re.compile(r"""\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,'"]+)\s*(?:,|$)""")
_STORE = re.compile(rf"store {_AT} %(?P<value>\d+){_MASK}")
_ATOMIC = re.compile(rf"atomic (?P<op>\w+) {_AT} %(?P<value>\d+){_MASK}")
_CHECK = re.compile(rf"check %(?P<value>\d+) in \[(?P<bounds>.*)\){_MASK}")
_KERNEL = re.compile(
    r"kernel @(?P<name>[\w.]+) +pid_type=(?P<pid_type>\w+) +num_warps=(?P<num_warps>\d+)"
    r" +num_stages=(?P<num_stages>\d+)(?: +sm_multiplier=(?P<sm_multiplier>\d+))?(?: +reserved_sms=(?P<reserved_sms>\d+))?"
    r"(?P<xcd_remap> +xcd_remap)?"
)
_PHASE = re.compile(r"phase (?P<number>\d+)")
_TASK = re.compile(
    r"task +nest @(?P<nest>[\w.]+)(?P<members>(?: +@[\w.]+)*) +pid_map (?P<pid_map>\w+\([^()]*\))"
    r" +tile\((?P<tile>[^()]*)\)(?: +select=(?P<select>\w+))?(?: +weight=(?P<weight>\d+))?(?: +(?P<width>wide|narrow))?"
    r"(?P<once> +once)?(?: +stages=(?P<stages>\d+))?(?P<dot> +dot)?"
)
_PID_MAP = re.compile(r"(?:row_major\((?P<plain>[^()=]*)\)|grouped_l2\((?P<grouped>[^()=]*), group=(?P<group>\d+)\))")
_DIM = re.compile(r"(?P<name>\w+)\[(?P<axes>[^\]]*)\]=(?P<block>\d+) (?P<kind>\w+)")


class _Lines:
    """The lines of a text that say something, read one after another."""

    def __init__(self, text: str) -> None:
        lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), start=1)]
        self.lines = [(number, line) for number, line in lines if line]
        self.at = 0

    def peek(self) -> str:
        """The next line, empty at the end."""
        return self.lines[self.at][1] if self.at < len(self.lines) else ""

    def take(self, read: Callable[[str], T]) -> T:
        """Read the next line; whatever is wrong with it is reported with its number and text."""
        if self.at == len(self.lines):
            raise ValueError(f"line {self.lines[-1][0] + 1 if self.lines else 1}: the text ends too early")
        number, line = self.lines[self.at]
        try:
            result = read(line)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}\n    {line}") from error
        self.at += 1
        return result

    def end(self) -> None:
        if self.at < len(self.lines):
            self.take(lambda line: _fail("the text should end here"))


def _fail(message: str) -> NoReturn:
    raise ValueError(message)


def _match(pattern: re.Pattern[str], text: str, what: str) -> re.Match[str]:
    return pattern.fullmatch(text) or _fail(f"not {what}: {text!r}")


def _split(text: str) -> list[str]:
    """The parts between commas that stand outside brackets; none for an empty text."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts] if text.strip() else []


def _exprs(text: str) -> tuple[Expr, ...]:
    return tuple(index.parse(part) for part in _split(text))


def _dtype(name: str) -> torch.dtype:
    return DTYPES[name] if name in DTYPES else _fail(f"not a dtype: {name!r}")


def _value(text: str) -> int:
    return int(_match(re.compile(r"%(\d+)"), text, "a value").group(1))


def _optional(text: str | None) -> int | None:
    return None if text is None else int(text)


def _literal(text: str) -> Literal:
    if text in ("True", "False"):
        return text == "True"
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def _attribute(text: str) -> object:
    if text[0] in "'\"":
        return ast.literal_eval(text)
    return DTYPES[text] if text in DTYPES else _literal(text)


def _attributes(text: str) -> tuple[object, ...]:
    found: list[object] = []
    at = 0
    while at < len(text):
        m = _ATTRIBUTE.match(text, at) or _fail(f"not an attribute: {text[at:]!r}")
        found.append(_attribute(m.group(1)))
        at = m.end()
    return tuple(found)


def _size(text: str) -> Size:
    m = _match(_SIZE, text, "a size")
    return Size(m["name"], int(m["lower"]), int(m["hint"]))


def _buffer(text: str) -> Buffer:
    m = _match(_BUFFER, text, "a buffer")
    shape = _exprs(m["shape"])
    stride = contiguous(shape) if m["stride"] is None else _exprs(m["stride"])
    return Buffer(m["name"], _dtype(m["dtype"]), shape, stride, m["kind"], m["aliases"])


def _program_head(line: str) -> TileProgram:
    m = _match(_PROGRAM, line, "a program")
    sizes = tuple(map(_size, _split(m["sizes"] or "")))
    return TileProgram(m["name"], sizes, tuple(map(_buffer, _split(m["buffers"]))), ())


def _axes(text: str) -> Iterator[Axis]:
    for part in _split(text):
        m = _match(_AXIS, part, "an axis")
        yield Axis(m["name"], index.parse(m["extent"]))


def _nest_head(line: str) -> LoopNest:
    m = _match(_NEST, line, "a nest")
    origins = tuple((m["origins"] or "").split())
    return LoopNest(m["name"], tuple(_axes(m["parallel"])), tuple(_axes(m["reduce"] or "")), (), origins)


def _stmt(line: str) -> Stmt:
    if m := _VALUE.fullmatch(line):
        return _value_stmt(int(m["id"]), _dtype(m["dtype"]), m["right"])
    if m := _STORE.fullmatch(line):
        return Store(m["buffer"], index.parse(m["index"]), int(m["value"]), _optional(m["mask"]))
    if m := _ATOMIC.fullmatch(line):
        return Atomic(m["buffer"], index.parse(m["index"]), int(m["value"]), m["op"], _optional(m["mask"]))
    if m := _CHECK.fullmatch(line):
        bounds = _exprs(m["bounds"])
        if len(bounds) != 2:
            _fail("a check has a lower and an upper bound")
        return Check(int(m["value"]), *bounds, _optional(m["mask"]))
    _fail("not a statement")


def _value_stmt(number: int, dtype: torch.dtype, right: str) -> Stmt:
    if m := _LOAD.fullmatch(right):
        at, other = index.parse(m["index"]), 0 if m["other"] is None else _literal(m["other"])
        return Load(number, dtype, m["buffer"], at, _optional(m["mask"]), other)
    if m := _CONST.fullmatch(right):
        return Const(number, dtype, _literal(m["value"]))
    if m := _INDEX.fullmatch(right):
        return Index(number, dtype, index.parse(m["expr"]))
    if m := _FOLD.fullmatch(right):
        axes = tuple(_split(m["axes"]))
        if m["form"] == "reduce":
            return Reduce(number, dtype, m["kind"], axes, int(m["arg"]))
        axis = axes[0] if len(axes) == 1 else _fail("a scan has one axis")
        return Scan(number, dtype, m["kind"], axis, int(m["arg"]))
    if m := _MAP.fullmatch(right):
        return Map(number, dtype, m["op"], tuple(map(_value, _split(m["args"]))), _attributes(m["attrs"] or ""))
    _fail("not a value")


def _nest(lines: _Lines) -> LoopNest:
    head = lines.take(_nest_head)
    body: list[Stmt] = []
    while lines.peek() and not lines.peek().startswith("nest "):
        body.append(lines.take(_stmt))
    return replace(head, body=tuple(body))


def parse_program(text: str) -> TileProgram:
    """The program whose text form is ``text``; ``ValueError`` with the line at fault otherwise."""
    lines = _Lines(text)
    head = lines.take(_program_head)
    buffers = list(head.buffers)
    while lines.peek().startswith(("in ", "out ", "temp ")):
        buffers.append(lines.take(_buffer))
    nests: list[LoopNest] = []
    while lines.peek():
        nests.append(_nest(lines))
    return replace(head, buffers=tuple(buffers), nests=tuple(nests))


def parse_nest(text: str) -> LoopNest:
    """The one nest whose text form is ``text``; ``ValueError`` with the line at fault otherwise."""
    lines = _Lines(text)
    nest = _nest(lines)
    lines.end()
    return nest


def _kernel_head(line: str) -> KernelSchedule:
    m = _match(_KERNEL, line, "a kernel")
    kernel = KernelSchedule(m["name"], m["pid_type"], int(m["num_warps"]), int(m["num_stages"]), ())
    given: dict[str, Any] = {name: int(m[name]) for name in ("sm_multiplier", "reserved_sms") if m[name] is not None}
    return replace(kernel, **given, xcd_remap=m["xcd_remap"] is not None)


def _dim(text: str) -> TileDim:
    m = _match(_DIM, text, "a tile dimension")
    return TileDim(m["name"], tuple(_split(m["axes"])), int(m["block"]), m["kind"])


def _pid_map(text: str, parallel: list[str]) -> PidMap:
    m = _match(_PID_MAP, text, "a pid map, row_major(...) or grouped_l2(..., group=...)")
    order = _split(m["plain"] if m["grouped"] is None else m["grouped"])
    if sorted(order) != sorted(parallel):
        _fail(f"the pid map covers ({', '.join(order)}), the parallel dimensions are ({', '.join(parallel)})")
    if m["group"] == "1":
        _fail("groups of one row are row_major")
    return PidMap(() if order == parallel else tuple(order), int(m["group"] or 1))


def _task(line: str) -> Task:
    m = _match(_TASK, line, "a task")
    dims = tuple(map(_dim, _split(m["tile"])))
    members = tuple(name.removeprefix("@") for name in m["members"].split())
    wide = {"wide": True, "narrow": False, None: None}[m["width"]]
    pid_map = _pid_map(m["pid_map"], [d.name for d in dims if d.kind == "parallel"])
    return Task(m["nest"], dims, wide, pid_map, members, m["select"] or Task.select, int(m["weight"] or Task.weight),
                m["once"] is not None, int(m["stages"] or Task.stages), m["dot"] is not None)  # fmt: skip


def _phase(lines: _Lines, number: int) -> Phase:
    def head(line: str) -> None:
        if int(_match(_PHASE, line, "a phase")["number"]) != number:
            _fail(f"phase {number} comes next")

    lines.take(head)
    tasks: list[Task] = []
    while lines.peek().startswith("task "):
        tasks.append(lines.take(_task))
    return Phase(tuple(tasks))


def parse_schedule(text: str) -> KernelSchedule:
    """The one kernel whose text form is ``text``; ``ValueError`` with the line at fault otherwise."""
    lines = _Lines(text)
    head = lines.take(_kernel_head)
    phases: list[Phase] = []
    while lines.peek():
        phases.append(_phase(lines, len(phases)))
    return replace(head, phases=tuple(phases))
