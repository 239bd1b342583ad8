"""Numbers of programs and tiles: which virtual pids a program works on, and which tile a virtual pid is.

Every map is straight-line integer arithmetic, kept as *steps*: pairs of a name and an index expression over earlier names.
``evaluate`` runs steps on integers, and code generation writes them as lines, so what is checked to be a bijection is what
kernels compute. All names stand for integers that are not negative.

- Tiles (``PidMap``): a virtual pid within its task, and the number of tiles ``<dim>_tiles`` along each parallel dimension, give
  ``<dim>_pid``. Row-major, or *grouped*: ``group`` rows of tiles are walked column by column before the next rows, so that
  programs that run at one time share rows and columns in the L2 cache. The last group has the rows that are left.
- Programs (``program_pids``): interleaved (each ``programs``-th virtual pid), or a contiguous share, equal in number of tiles
  or, where tasks weigh differently, in weight.
- Chiplets (``XCD_REMAP``): devices with several XCDs hand consecutive programs to them in turn; the remap numbers programs so that
  those of one XCD are neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import sympy

from .index import ZERO, Expr, FloorDiv, Mod, ceil_div, integer, symbol
from .interpret import evaluate_int

Steps = tuple[tuple[str, Expr], ...]
PID_TYPES = ("flat", "persistent_blocked", "persistent_interleaved")
MAX_WEIGHT = 1024  # products of weights, tiles and programs stay within 64 bits
MAX_GROUP = 2**31 - 1
_PROGRAM, _PROGRAMS, _TOTAL, _XCDS, _PID = map(symbol, ("program", "programs", "total", "xcds", "pid"))


def evaluate(steps: Steps, names: Mapping[str, int]) -> dict[str, int]:
    """``names`` and the value of every step."""
    known = dict(names)
    for name, expr in steps:
        known[name] = evaluate_int(expr, known)
    return known


@dataclass(frozen=True)
class PidMap:
    """``order`` of the parallel dimensions, slowest first; empty where it is that of the tile. ``group``: rows of tiles, along the
    last dimension but one, that are visited together; 1 is row-major. Dimensions before the last two are slower than any group.
    """

    order: tuple[str, ...] = ()
    group: int = 1

    def dims(self, parallel: Sequence[str]) -> tuple[str, ...]:
        """The parallel dimensions, of which ``parallel`` are the names in the order of the tile, slowest first."""
        return self.order or tuple(parallel)

    def steps(self, parallel: Sequence[str]) -> Steps:
        """From ``pid`` and ``<dim>_tiles`` to ``<dim>_pid``; the last step is that of a dimension."""
        dims = self.dims(parallel)
        if self.group == 1 or len(dims) < 2:
            return tuple(_row_major(_PID, dims))
        *outer, row, column = dims
        plane = symbol(f"{row}_tiles") * symbol(f"{column}_tiles")
        if not outer:
            return tuple(_grouped(_PID, row, column, self.group))
        within = symbol(f"{row}_plane")
        steps = (*_row_major(FloorDiv(_PID, plane), outer), (str(within), Mod(_PID, plane)))
        return (*steps, *_grouped(within, row, column, self.group))

    def tile(self, pid: int, tiles: Mapping[str, int]) -> dict[str, int]:
        """Number of the tile along each dimension; ``tiles`` counts them, in the order of the tile."""
        known = evaluate(self.steps(tuple(tiles)), {"pid": pid} | {f"{d}_tiles": n for d, n in tiles.items()})
        return {d: known[f"{d}_pid"] for d in tiles}


def _row_major(pid: Expr, dims: Sequence[str]) -> Iterator[tuple[str, Expr]]:
    for dim in reversed(dims[1:]):
        tiles = symbol(f"{dim}_tiles")
        yield f"{dim}_pid", Mod(pid, tiles)
        pid = FloorDiv(pid, tiles)
    yield from ((f"{dim}_pid", pid) for dim in dims[:1])


def _grouped(pid: Expr, row: str, column: str, group: int) -> Iterator[tuple[str, Expr]]:
    tiles, wanted, first, rows, within = (symbol(f"{row}_{name}") for name in ("tiles", "group", "first", "rows", "within"))
    # No more rows than there are: the size of a group must not pass the number of tiles, whose type it is computed in.
    yield str(wanted), sympy.Min(integer(group), tiles)
    size = wanted * symbol(f"{column}_tiles")
    yield str(first), FloorDiv(pid, size) * wanted
    yield str(rows), sympy.Min(tiles - first, wanted)
    yield str(within), Mod(pid, size)
    yield f"{row}_pid", first + Mod(within, rows)
    yield f"{column}_pid", FloorDiv(within, rows)


# ---- programs
XCD_REMAP: Steps = (
    ("xcd", Mod(_PROGRAM, _XCDS)),
    ("remapped", symbol("xcd") * FloorDiv(_PROGRAMS, _XCDS) + sympy.Min(symbol("xcd"), Mod(_PROGRAMS, _XCDS)) + FloorDiv(_PROGRAM, _XCDS)),
)
"""From ``program`` of ``programs`` on ``xcds`` chiplets to ``remapped``."""

EQUAL_SHARE: Steps = (("share", ceil_div(_TOTAL, _PROGRAMS)), ("first", _PROGRAM * symbol("share")))
"""From ``program`` of ``programs`` to its ``first`` of ``total`` virtual pids; it has ``share``, or those that are left."""


def weighted_runs(weights: Sequence[int]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """(weight, positions) of consecutive tasks of one weight."""
    runs = groupby(range(len(weights)), key=lambda k: weights[k])
    return tuple((weight, tuple(positions)) for weight, positions in runs)


def weighted_first(weights: Sequence[int]) -> Steps:
    """From ``program`` of ``programs`` to its ``first`` virtual pid, for runs of ``tiles<k>`` virtual pids that weigh ``weights[k]``.

    A virtual pid belongs to the program in whose share of the whole ``cost`` the weight of all before it falls: to ``program``
    if that is from ``bound`` on, floor(cost * program / programs), and below the bound of the next. So shares are disjoint, leave
    out nothing, and exceed an equal share by less than one tile. All of it is computed in 64 bits.
    """
    tiles = [symbol(f"tiles{k}") for k in range(len(weights))]
    costs = [integer(w) * t for w, t in zip(weights, tiles, strict=True)]
    cost, bound = symbol("cost"), symbol("bound")
    steps: list[tuple[str, Expr]] = [
        (str(cost), sum(costs, ZERO)),
        # cost * program, which may pass 64 bits, is never computed.
        (str(bound), FloorDiv(cost, _PROGRAMS) * _PROGRAM + FloorDiv(Mod(cost, _PROGRAMS) * _PROGRAM, _PROGRAMS)),
    ]
    first: Expr = ZERO
    for k, (weight, count) in enumerate(zip(weights, tiles, strict=True)):
        above = symbol(f"above{k}")
        steps.append((str(above), sympy.Max(integer(0), bound - sum(costs[:k], ZERO))))
        first = first + sympy.Min(count, ceil_div(above, integer(weight)))
    return (*steps, ("first", first))


def program_pids(pid_type: str, program: int, programs: int, tiles: Sequence[int], weights: Sequence[int]) -> range:
    """Virtual pids of ``program`` of ``programs``, for tasks of so many ``tiles`` each of which weighs ``weights``."""
    total = sum(tiles)
    if pid_type == "flat":
        return range(program, program + 1)
    if pid_type == "persistent_interleaved":
        return range(program, total, programs)
    if len(set(weights)) > 1:
        runs = weighted_runs(weights)
        counts = {f"tiles{k}": sum(tiles[p] for p in positions) for k, (_, positions) in enumerate(runs)}
        steps = weighted_first([weight for weight, _ in runs])
        return range(*(evaluate(steps, counts | {"program": p, "programs": programs})["first"] for p in (program, program + 1)))
    known = evaluate(EQUAL_SHARE, {"program": program, "programs": programs, "total": total})
    return range(known["first"], min(known["first"] + known["share"], total))


def remapped(program: int, programs: int, xcds: int) -> int:
    """The number that ``program`` of ``programs`` works as on a device of ``xcds`` chiplets."""
    return evaluate(XCD_REMAP, {"program": program, "programs": programs, "xcds": xcds})["remapped"]
