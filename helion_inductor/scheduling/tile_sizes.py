"""Tile sizes for one nest: how its axes are laid out in blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..ir.index import Expr, product, symbol, values_in
from ..ir.schedule_ir import Task, TileDim
from ..ir.tile_ir import Atomic, Axis, Load, LoopNest, Scan, Store, TileProgram
from .hints import evaluate_size

PERSISTENT_LIMIT = 4096
INT32_ELEMENTS = 2**31 - 2**17  # a block may reach past the end of its extent before masks cut it off


@dataclass(frozen=True)
class TileTarget:
    """What tiles are chosen for: multiprocessors of the device, or Triton's interpreter, where one program costs milliseconds."""

    sm_count: int
    interpreter: bool = False

    def budget(self) -> int:
        """Elements of a block that one program should hold."""
        return 65536 if self.interpreter else 4096


def next_power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def choose_task(nest: LoopNest, program: TileProgram, target: TileTarget, blocks: Mapping[str, int], work: int) -> Task:
    """Tile dimensions of ``nest``; ``blocks`` overrides block sizes by dimension name (``x``, ``y``, ``r``).

    ``work`` is the number of points of all nests that share the kernel: together they should give each multiprocessor a few
    programs, and beyond that larger tiles are better than more of them.
    """
    hints = program.hints()
    rows = evaluate_size(product(a.extent for a in nest.parallel), hints)
    parallel = tuple(a.name for a in nest.parallel)
    dims: tuple[TileDim, ...]
    if nest.reduce:
        x, r = _reduction_blocks(nest, rows, work, hints, target)
        r_dim = _reduce_dim(nest, blocks.get("r", r))
        dims = (TileDim("x", parallel, blocks.get("x", x), "parallel"), r_dim)
    elif (split := transposing_axis(nest)) is not None:
        dims = _square_dims(nest, split + 1, hints, target, blocks)
    else:
        dims = (TileDim("x", parallel, blocks.get("x", _pointwise_block(rows, work, target)), "parallel"),)
    return Task(nest.name, dims, wide=exceeds_32_bits(nest, program))


def _pointwise_block(rows: int, work: int, target: TileTarget) -> int:
    if target.interpreter:
        return min(next_power_of_two(rows), target.budget())
    share = next_power_of_two(-(-work // (4 * target.sm_count)))
    return min(next_power_of_two(rows), max(128, min(share, 1024)))


def _square_dims(nest: LoopNest, split: int, hints: Mapping[str, int], target: TileTarget,
                 blocks: Mapping[str, int]) -> tuple[TileDim, ...]:  # fmt: skip
    """Two dimensions, so that loads along one axis and stores along another both touch whole lines of memory."""
    side = 256 if target.interpreter else 32
    result = []
    for name, axes in (("y", nest.parallel[:split]), ("x", nest.parallel[split:])):
        block = min(side, next_power_of_two(evaluate_size(_numel(axes), hints)))
        result.append(TileDim(name, tuple(a.name for a in axes), blocks.get(name, block), "parallel"))
    return tuple(result)


def points(nest: LoopNest, program: TileProgram) -> int:
    """Points of the iteration space at the hinted sizes."""
    return evaluate_size(_numel(nest.parallel) * _numel(nest.reduce), program.hints())


def _reduction_blocks(nest: LoopNest, rows: int, work: int, hints: Mapping[str, int], target: TileTarget) -> tuple[int, int]:
    extent = product(a.extent for a in nest.reduce)
    length = next_power_of_two(evaluate_size(extent, hints))
    if is_product(nest) and not target.interpreter:
        return _product_blocks(nest, rows, evaluate_size(extent, hints), target)
    scans = any(isinstance(s, Scan) for s in nest.body)
    if scans or (extent.is_Integer and length <= PERSISTENT_LIMIT):
        r = length
    else:
        r = 4096 if target.interpreter else 2048
    if not reduce_is_contiguous(nest) and not scans:
        r = min(r, max(1, target.budget() // 64))
    room = max(1, target.budget() // r)
    # Rows side by side save programs; where all loops together have too few rows for the device, each gets a program of its own.
    shared = work // (2 * target.sm_count * max(1, evaluate_size(extent, hints)))
    widest = 64 if not reduce_is_contiguous(nest) else max(1, min(1024 // r, shared))
    wanted = rows if target.interpreter else widest
    return max(1, min(next_power_of_two(rows), next_power_of_two(wanted), room)), r


def _product_blocks(nest: LoopNest, rows: int, length: int, target: TileTarget) -> tuple[int, int]:
    """Blocks of a product of few rows, which streams its larger operand once: many elements in flight on each multiprocessor, in
    several programs, and at least two programs for each."""
    spread = max(1, rows // (2 * target.sm_count))
    spread = next_power_of_two(spread + 1) // 2
    if not reduce_is_contiguous(nest):  # neighbours in memory are columns: a few of them, and long runs of rows
        x = min(64, max(8, spread))
        return min(x, next_power_of_two(rows)), min(next_power_of_two(length), 2 * target.budget() // x)
    r = next_power_of_two(length) if length <= 2048 else 1024
    return max(1, min(target.budget() // r, spread)), r


def is_product(nest: LoopNest) -> bool:
    """Whether a nest is a product of matrices and vectors: nothing is stored along the reduced axes, and what it loads along them
    is shared by its columns in part."""
    reduced, parallel = {a.name for a in nest.reduce}, {a.name for a in nest.parallel}
    stored = {n.name for s in nest.body if isinstance(s, (Store, Atomic)) for n in s.index.free_symbols}
    along = [{n.name for n in s.index.free_symbols} for s in nest.body if isinstance(s, Load)]
    along = [names for names in along if names & reduced]
    return not stored & reduced and any(parallel - n for n in along) and any(n & parallel for n in along)


def _reduce_dim(nest: LoopNest, block: int) -> TileDim:
    extent = product(a.extent for a in nest.reduce)
    scans = any(isinstance(s, Scan) for s in nest.body)
    whole = extent.is_Integer and block >= int(extent)
    if scans and not whole:
        block, whole = next_power_of_two(int(extent)), True
    if whole:
        block = next_power_of_two(int(extent))
    return TileDim("r", tuple(a.name for a in nest.reduce), block, "persistent" if whole else "looped")


def memory_order(nest: LoopNest, hints: Mapping[str, int]) -> LoopNest:
    """Parallel axes by falling stride of the nest's first plain store, so that neighbours in a tile are neighbours in memory."""
    store = next((s for s in nest.body if isinstance(s, Store) and not values_in(s.index)), None)
    if store is None or len(nest.parallel) < 2:
        return nest
    index = store.index.expand()
    strides = {a.name: index.coeff(symbol(a.name)) for a in nest.parallel}
    if any(s == 0 for s in strides.values()):
        return nest
    return replace(nest, parallel=tuple(sorted(nest.parallel, key=lambda a: -evaluate_size(strides[a.name], hints))))


def transposing_axis(nest: LoopNest) -> int | None:
    """Position of the axis along which most loads are contiguous, where that is not the innermost; None if it is."""
    votes: dict[int, int] = {}
    for s in nest.body:
        if not isinstance(s, (Load, Store)) or values_in(s.index):
            continue
        index = s.index.expand()
        unit = [k for k, a in enumerate(nest.parallel) if index.coeff(symbol(a.name)) == 1]
        for k in unit[:1]:
            votes[k] = votes.get(k, 0) + 1
    last = len(nest.parallel) - 1
    others = {k: n for k, n in votes.items() if k != last}
    return max(others, key=lambda k: others[k]) if others and votes.get(last) else None


def reduce_is_contiguous(nest: LoopNest) -> bool:
    """Whether most loads step by one element along the innermost reduce axis."""
    inner = symbol(nest.reduce[-1].name)
    votes = 0
    for s in nest.body:
        if isinstance(s, (Load, Store)) and inner in s.index.free_symbols and not values_in(s.index):
            votes += 1 if s.index.expand().coeff(inner) == 1 else -1
    return votes >= 0


def usual_warps(task: Task, nest: LoopNest) -> int:
    """Warps that suit the block of ``nest`` in ``task``."""
    elements = 1
    for dim in task.dims:
        extent = dim.extent(nest)
        elements *= min(dim.block, int(extent)) if extent.is_Integer else dim.block
    if any(isinstance(s, Scan) for s in nest.body):
        return 4
    return 8 if elements >= 4096 else 4 if elements >= 512 else 2 if elements >= 128 else 1


def exceeds_32_bits(nest: LoopNest, program: TileProgram) -> bool | None:
    """True or False when 64-bit offsets are known to be needed or not; None when the sizes decide."""
    decided = [_exceeds(e) for e in reach(nest, program)]
    if any(d is True for d in decided):
        return True
    return None if any(d is None for d in decided) else False


def reach(nest: LoopNest, program: TileProgram) -> tuple[Expr, ...]:
    """Everything whose size bounds the offsets and flat coordinates that ``nest`` computes with."""
    used = set(nest.reads()) | set(nest.writes())
    spans = [b.span() for b in program.buffers if b.name in used]
    return (*dict.fromkeys([*spans, _numel(nest.parallel), _numel(nest.reduce)]),)


def _numel(axes: tuple[Axis, ...]) -> Expr:
    return product(a.extent for a in axes)


def _exceeds(e: Expr) -> bool | None:
    return int(e) > INT32_ELEMENTS if e.is_Integer else None
