"""IR values -> text, in the grammars that head ``tile_ir`` and ``schedule_ir``; ``parser`` is the way back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import torch

from .index import Expr, product, to_text
from .schedule_ir import KernelSchedule, Task, TileDim
from .text import text
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
    Stmt,
    Store,
    TileProgram,
)

HEADER_WIDTH = 110
_SHORT = ((r"^bfloat", "bf"), (r"^float(\d+)_?", r"f\1"), (r"^uint", "u"), (r"^int", "i"), (r"^complex", "c"))


def _short(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    for pattern, replacement in _SHORT:
        name = re.sub(pattern, replacement, name)
    return name


_NAMES = {d: _short(d) for d in vars(torch).values() if isinstance(d, torch.dtype)}
DTYPES: Mapping[str, torch.dtype] = MappingProxyType({name: dtype for dtype, name in _NAMES.items()})


def dtype_name(dtype: torch.dtype) -> str:
    """``f32``, ``bf16``, ``i64``, ``bool``, ``f8e4m3fn`` ...; ``DTYPES`` is the way back."""
    return _NAMES[dtype]


def literal_text(value: Literal) -> str:
    """``True``, ``-3``, ``-0.0``, ``1e-05``, ``inf``, ``nan``: the type shows."""
    return repr(value)


def contiguous(shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """Row-major strides, those of a buffer whose text shows none."""
    return tuple(product(shape[k + 1 :]) for k in range(len(shape)))


def _exprs(items: Iterable[Expr]) -> str:
    return ", ".join(map(to_text, items))


def _values(items: Iterable[int]) -> str:
    return ", ".join(f"%{v}" for v in items)


def _mask(mask: int | None) -> str:
    return "" if mask is None else f" mask %{mask}"


def _attribute(value: object) -> str:
    return dtype_name(value) if isinstance(value, torch.dtype) else repr(value)


def buffer_text(b: Buffer) -> str:
    strides = "" if b.stride == contiguous(b.shape) else f" strides({_exprs(b.stride)})"
    aliases = "" if b.aliases is None else f" aliases {b.aliases}"
    return f"{b.kind} {b.name}: {dtype_name(b.dtype)}[{_exprs(b.shape)}]{strides}{aliases}"


def stmt_text(stmt: Stmt) -> str:
    """One statement, without indentation."""
    match stmt:
        case Store():
            return f"store {stmt.buffer}[{to_text(stmt.index)}] %{stmt.value}{_mask(stmt.mask)}"
        case Atomic():
            return f"atomic {stmt.op} {stmt.buffer}[{to_text(stmt.index)}] %{stmt.value}{_mask(stmt.mask)}"
        case Check():
            return f"check %{stmt.value} in [{to_text(stmt.lower)}, {to_text(stmt.upper)}){_mask(stmt.mask)}"
        case Load():
            other = "" if stmt.mask is None else f" else {literal_text(stmt.other)}"
            right = f"load {stmt.buffer}[{to_text(stmt.index)}]{_mask(stmt.mask)}{other}"
        case Const():
            right = f"const {literal_text(stmt.value)}"
        case Index():
            right = f"index {to_text(stmt.expr)}"
        case Map():
            attributes = ", ".join(map(_attribute, stmt.attrs))
            right = f"{stmt.op}({_values(stmt.args)})" + (f"{{{attributes}}}" if stmt.attrs else "")
        case Reduce():
            right = f"reduce {stmt.kind}({', '.join(stmt.axes)}) %{stmt.arg}"
        case Scan():
            right = f"scan {stmt.kind}({stmt.axis}) %{stmt.arg}"
    return f"%{stmt.id}: {dtype_name(stmt.dtype)} = {right}"


def _axes(axes: Iterable[Axis]) -> str:
    return ", ".join(f"{a.name}: {to_text(a.extent)}" for a in axes)


def nest_lines(nest: LoopNest) -> list[str]:
    """The head of the nest, then one line per statement, indented as in a program."""
    reduce = f" reduce({_axes(nest.reduce)})" if nest.reduce else ""
    origins = f"  # {' '.join(nest.origins)}" if nest.origins else ""
    head = f"  nest @{nest.name} parallel({_axes(nest.parallel)}){reduce}{origins}"
    return [head, *(f"    {stmt_text(s)}" for s in nest.body)]


def header_lines(program: TileProgram) -> list[str]:
    """The ``program`` line, which holds the buffers before the first ``temp`` if they fit, and the declarations."""
    sizes = ", ".join(f"{s.name}>={s.lower}~{s.hint}" for s in program.sizes)
    tail = f" sizes({sizes})" if sizes else ""
    first_temp = next((k for k, b in enumerate(program.buffers) if b.kind == "temp"), len(program.buffers))
    shown = ", ".join(map(buffer_text, program.buffers[:first_temp]))
    if len(shown) > HEADER_WIDTH:
        first_temp, shown = 0, ""
    head = f"program @{program.name}({shown}){tail}"
    return [head, *(f"  {buffer_text(b)}" for b in program.buffers[first_temp:])]


@text.register
def nest_text(nest: LoopNest) -> str:
    """The nest as it stands in the text of a program."""
    return "\n".join(nest_lines(nest))


@text.register
def program_text(program: TileProgram) -> str:
    """The whole program, without a final newline."""
    return "\n".join([*header_lines(program), *(line for n in program.nests for line in nest_lines(n))])


def _dim(d: TileDim) -> str:
    return f"{d.name}[{', '.join(d.axes)}]={d.block} {d.kind}"


def pid_map_text(task: Task) -> str:
    dims = ", ".join(task.pid_map.dims([d.name for d in task.parallel()]))
    return f"row_major({dims})" if task.pid_map.group == 1 else f"grouped_l2({dims}, group={task.pid_map.group})"


def task_line(task: Task) -> str:
    width = "" if task.wide is None else "  wide" if task.wide else "  narrow"
    dims = ", ".join(map(_dim, task.dims))
    nests = " ".join(f"@{n}" for n in task.nests())
    select = "" if task.select == Task.select else f"  select={task.select}"
    weight = "" if task.weight == Task.weight else f"  weight={task.weight}"
    once = "  once" if task.once else ""
    dot = "  dot" if task.dot else ""
    stages = "" if task.stages == Task.stages else f"  stages={task.stages}"
    return f"    task nest {nests} pid_map {pid_map_text(task)} tile({dims}){select}{weight}{width}{once}{stages}{dot}"


def schedule_lines(schedule: KernelSchedule) -> list[str]:
    """The ``kernel`` line; for each phase its line, then one line per task."""
    settings = {"pid_type": schedule.pid_type, "num_warps": schedule.num_warps, "num_stages": schedule.num_stages}
    head = "".join(f"  {name}={value}" for name, value in settings.items())
    if schedule.sm_multiplier != KernelSchedule.sm_multiplier:
        head += f"  sm_multiplier={schedule.sm_multiplier}"
    if schedule.reserved_sms:
        head += f"  reserved_sms={schedule.reserved_sms}"
    head += "  xcd_remap" if schedule.xcd_remap else ""
    lines = [f"kernel @{schedule.name}{head}"]
    for number, phase in enumerate(schedule.phases):
        lines += [f"  phase {number}", *map(task_line, phase.tasks)]
    return lines


@text.register
def schedule_text(schedule: KernelSchedule) -> str:
    """The whole kernel, without a final newline."""
    return "\n".join(schedule_lines(schedule))
