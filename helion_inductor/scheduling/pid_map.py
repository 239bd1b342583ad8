"""How a kernel's tiles are numbered and shared out: the pid type, the order of tiles, and what a tile of each task weighs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..ir.index import ZERO
from ..ir.pid_map import MAX_WEIGHT, PidMap
from ..ir.schedule_ir import Task
from ..ir.tile_ir import TileProgram
from .device_model import DeviceModel
from .hints import evaluate_size
from .work import nest_work

MAX_GRID = 2**31 - 1  # programs of a flat kernel
WEIGHT_UNITS = 4  # weight of the cheapest tile: costs are told apart by quarters of it
EQUAL = 1.25  # costs within this factor count as equal: predictions are no better


@dataclass(frozen=True)
class TileOrder:
    """``dims`` by name, slowest first, for tasks that have all of them in parallel; empty leaves the order to the tile. ``group``:
    rows of tiles visited together where there are two or more parallel dimensions, 1 for none."""

    dims: tuple[str, ...] = ()
    group: int = 1


def ordered(task: Task, order: TileOrder) -> Task:
    """``task`` with the pid map that ``order`` asks for, as far as its dimensions go."""
    names = tuple(d.name for d in task.parallel())
    dims = order.dims if sorted(order.dims) == sorted(names) and order.dims != names else ()
    return replace(task, pid_map=PidMap(dims, order.group if len(names) > 1 else 1))


def usable_pid_type(wanted: str, tasks: Sequence[Task], program: TileProgram) -> str:
    """The pid type ``wanted``; where that is "auto" or "flat" and the tiles at the hinted sizes pass the limit of a grid, one whose
    grid does not grow with the sizes."""
    nests = {n.name: n for n in program.nests}
    total = evaluate_size(sum((t.all_tiles(nests) for t in tasks), ZERO), program.hints())
    if wanted in ("auto", "flat"):
        return "flat" if total <= MAX_GRID else "persistent_interleaved"
    return wanted


def weighted(tasks: Sequence[Task], program: TileProgram, num_warps: int, workers: int, device: DeviceModel) -> tuple[Task, ...]:
    """The tasks of one phase with ``weight`` as the cost model predicts the time of a tile, in whole numbers without a common
    divisor; 1 where there is little between them. ``workers`` programs share the device."""
    costs = [tile_us(t, program, num_warps, workers, device) for t in tasks]
    least = min(costs)
    if max(costs) < EQUAL * least:
        return tuple(replace(t, weight=1) for t in tasks)
    weights = [min(MAX_WEIGHT, round(WEIGHT_UNITS * c / least)) for c in costs]
    divisor = math.gcd(*weights)
    return tuple(replace(t, weight=w // divisor) for t, w in zip(tasks, weights, strict=True))


def tile_us(task: Task, program: TileProgram, num_warps: int, workers: int, device: DeviceModel) -> float:
    """Microseconds that a program takes for a tile of ``task``, on average over its nests: its latency, and its bytes and
    instructions at the rates that are left to it beside ``workers`` - 1 others."""
    nests = {n.name: n for n in program.nests}
    works = [nest_work(nests[n], task, program, num_warps, device) for n in task.nests()]
    tiles = max(1, sum(w.programs for w in works))
    waiting = sum(w.programs * w.latency_us for w in works) if any(w.programs for w in works) else works[0].latency_us
    moving = 1e6 * workers * max(sum(w.bytes for w in works) / device.bandwidth, sum(w.slots for w in works) / device.slots)
    return (waiting + moving) / tiles
