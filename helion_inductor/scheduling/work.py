"""What a task must do, counted at the hinted sizes: programs, bytes, instructions, and the critical path of one program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..ir.body import Flow, effect_axes, flow
from ..ir.index import names_in, product, values_in
from ..ir.schedule_ir import Task
from ..ir.tile_ir import (
    Atomic,
    Check,
    Const,
    Effect,
    Index,
    Load,
    LoopNest,
    Map,
    Reduce,
    Scan,
    Stmt,
    Store,
    TileProgram,
    is_value,
    operands,
)
from .device_model import DeviceModel
from .hints import evaluate_size
from .resources import passes, task_registers

MEMORY_SLOTS = 4  # address, mask and conversion beside the access itself
_SLOTS_OF: tuple[tuple[int, str], ...] = (
    (4, "exp2 truncdiv reciprocal rsqrt sqrt"),
    (6, "exp log log2 log10 sigmoid truediv div_rn int_truediv"),
    (20, """acos acosh asin asinh atan atan2 atanh cos cosh erf erfc exp expm1 floordiv fmod hypot log1p mod remainder sin sinh
            tan tanh"""),
    (60, "erfcx erfinv frexp_mantissa i0 i0e i1 i1e ldexp log_ndtr ndtr ndtri nextafter pow rand"),
    (100, """airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 digamma gammainc gammaincc igamma igammac lgamma
             modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 polygamma randint64 randn
             scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0 zeta"""),
)  # fmt: skip
OP_SLOTS: Mapping[str, int] = {name: slots for slots, names in reversed(_SLOTS_OF) for name in names.split()}
"""Instructions of a lane for one element of an op, where they are more than one: library code compiled for sm_90, rounded."""


def nest_bytes(nest: LoopNest, program: TileProgram) -> int:
    """Least bytes ``nest`` moves at the hinted sizes: each access counted once per element of the axes it mentions, at most the
    whole buffer for loads."""
    hints, buffers, extents = program.hints(), program.by_name(), nest.extents()
    seen: dict[tuple[str, str], int] = {}
    for s in nest.body:
        if not isinstance(s, (Load, Store, Atomic)):
            continue
        buffer = buffers[s.buffer]
        axes = extents if values_in(s.index) else {a: e for a, e in extents.items() if a in names_in(s.index)}
        touched = evaluate_size(product(axes.values()), hints)
        whole = evaluate_size(product(buffer.shape), hints)
        size = min(touched, whole) * buffer.dtype.itemsize
        key = (type(s).__name__, s.buffer)
        seen[key] = max(seen.get(key, 0), size)
    return sum(seen.values())


@dataclass(frozen=True)
class Work:
    """Work of a task whose kernel has ``num_warps`` warps: ``programs``; ``bytes`` that must move; ``slots``, instructions of
    single lanes; ``latency_us`` of one program that has the device to itself; ``registers`` of a thread."""

    programs: int
    bytes: int
    slots: int
    latency_us: float
    registers: int
    num_warps: int


def task_work(task: Task, program: TileProgram, num_warps: int, device: DeviceModel) -> Work:
    """Work of all nests of a task; the latency is that of its slowest member."""
    key = ("work", task, num_warps, id(device))
    if key not in program.memo:
        program.memo[key] = _task_work(task, program, num_warps, device), device  # which must not be replaced at its address
    result: Work = program.memo[key][0]
    return result


def _task_work(task: Task, program: TileProgram, num_warps: int, device: DeviceModel) -> Work:
    nests = {n.name: n for n in program.nests}
    of_size: dict[Any, Work] = {}
    parts = []
    for nest in (nests[n] for n in task.nests()):
        key = member_sizes(nest, program)
        if key not in of_size:
            of_size[key] = nest_work(nest, task, program, num_warps, device)
        parts.append(of_size[key])
    return Work(
        sum(p.programs for p in parts), sum(p.bytes for p in parts), sum(p.slots for p in parts),
        max(p.latency_us for p in parts), max(p.registers for p in parts), num_warps,
    )  # fmt: skip


def member_sizes(nest: LoopNest, program: TileProgram) -> tuple[Any, ...]:
    """What tells the work of two nests of one form apart: their extents and the buffers behind their accesses, in order."""
    buffers = program.by_name()
    touched = tuple((buffers[s.buffer].shape, buffers[s.buffer].dtype) for s in nest.body if isinstance(s, (Load, Store, Atomic)))
    return nest.parallel, nest.reduce, touched


def nest_work(nest: LoopNest, task: Task, program: TileProgram, num_warps: int, device: DeviceModel) -> Work:
    """Work of ``nest``, one of the task's.

    The path of a program: its start; a round trip to memory for each load in a chain of indirect ones, in every step of a looped
    dimension (in later passes the data is near); a fold for each reduction in a chain; and its instructions.
    """
    if task.dot:
        return _dot_work(nest, task, program, num_warps, device)
    hints, known = program.hints(), flow(nest)
    steps, tiles = _steps(nest, task, hints), evaluate_size(task.tiles(nest), hints)
    stages = passes(nest, task)
    extents = {d.name: evaluate_size(d.extent(nest), hints) for d in task.dims}
    counts = [_slots(nest.body[k], nest, known, task, extents) for members in stages for k in members]
    slots, longest = (sum(c[i] for c in counts) for i in (0, 1))
    folds = max((d for d in known.depth.values()), default=0)
    trips = device.memory_us + (len(stages) - 1) * device.cached_us if steps > 1 or len(stages) > 1 else device.memory_us
    latency = device.start_us + _chain(nest) * steps * trips + folds * device.reduce_us
    latency += device.issue_us(longest, num_warps)
    return Work(tiles, nest_bytes(nest, program), slots, latency, task_registers(nest, task, num_warps), num_warps)


def _dot_work(nest: LoopNest, task: Task, program: TileProgram, num_warps: int, device: DeviceModel) -> Work:
    """Work of a product: tiles are computed whole, and its instructions are those of lanes that would take as long."""
    hints = program.hints()
    steps, tiles = _steps(nest, task, hints), evaluate_size(task.tiles(nest), hints)
    block = {d.name: d.block for d in task.dims}
    dots = sum(isinstance(s, Reduce) for s in nest.body)
    flops = 2 * dots * tiles * block["m"] * block["n"] * max(block["k"], evaluate_size(task.dims[-1].extent(nest), hints))
    passes_before = max(flow(nest).depth.values(), default=1) - 1
    latency = device.start_us + device.memory_us + steps * (device.step_us + passes_before * device.cached_us) + device.reduce_us
    registers = min(255, 64 + dots * block["m"] * block["n"] // (num_warps * 32))
    return Work(tiles, nest_bytes(nest, program), int(flops * device.slots / device.matrix_flops), latency, registers, num_warps)


def _steps(nest: LoopNest, task: Task, hints: Mapping[str, int]) -> int:
    dim = task.reduce_dim()
    return 1 if dim is None or dim.kind == "persistent" else max(1, -(-evaluate_size(dim.extent(nest), hints) // dim.block))


def _chain(nest: LoopNest) -> int:
    """Most loads of which each waits for the one before."""
    depth: dict[int, int] = {}
    for s in nest.body:
        below = max((depth[v] for v in operands(s)), default=0)
        if is_value(s):
            depth[s.id] = below + isinstance(s, Load)  # type: ignore[union-attr]
    return max(depth.values(), default=0)


def _slots(stmt: Stmt, nest: LoopNest, known: Flow, task: Task, extents: Mapping[str, int]) -> tuple[int, int]:
    """Instructions of single lanes in one pass, of all programs together and of one with a full tile; ``extents`` by dimension. A
    block that varies over no parallel dimension is computed by every program."""
    every = one = _weight(stmt)
    if every == 0:
        return 0, 0
    over = _axes(stmt, nest, known)
    for dim in task.dims:
        size = extents[dim.name]
        if over & set(dim.axes):
            every *= size
            one *= min(size, dim.block) if dim.kind == "parallel" else size
        elif dim.kind == "parallel":
            every *= -(-size // dim.block)
    return every, one


def _axes(stmt: Stmt, nest: LoopNest, known: Flow) -> frozenset[str]:
    match stmt:
        case Store() | Atomic() | Check():
            effect: Effect = stmt
            return effect_axes(effect, nest, known)
        case Reduce() | Scan():
            return known.axes[stmt.arg]
    return known.axes[stmt.id]


def _weight(stmt: Stmt) -> int:
    match stmt:
        case Load() | Store():
            return MEMORY_SLOTS
        case Atomic():
            return 4 * MEMORY_SLOTS
        case Const():
            return 0
        case Index() | Check() | Reduce():
            return 2
        case Scan():
            return 10
        case Map():
            wide = stmt.dtype in (torch.float64, torch.int64, torch.uint64)
            return OP_SLOTS.get(stmt.op, 1) * (2 if wide else 1)
