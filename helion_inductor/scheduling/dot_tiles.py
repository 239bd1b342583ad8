"""Tiles of products of matrices: which nests are multiplied by the units that are made for it, and in blocks of how many elements."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.dots import DotPlan, dot_plan
from ..ir.index import product
from ..ir.schedule_ir import Task, TileDim
from ..ir.tile_ir import Load, LoopNest, Reduce, TileProgram
from .hints import evaluate_size
from .tile_sizes import TileTarget, exceeds_32_bits, next_power_of_two

LEAST = 16  # elements along each dimension that the units take
SHORT_STEP, STEP, LONG_STEP = 64, 128, 256  # of the summed axis
MOST_ROWS, MOST_COLUMNS = 64, 64
FEW_COLUMNS = 32  # of a tile of many rows, which would be loaded for each tile of columns
STAGES = 3


def dot_task(nest: LoopNest, program: TileProgram, target: TileTarget, blocks: Mapping[str, int]) -> Task | None:
    """The task of a nest that multiplies matrices; None for any other. ``blocks`` overrides sizes by the names ``m``, ``n``, ``k``."""
    plan = dot_plan(nest, program.by_name())
    if plan is None:
        return None
    hints, extents = program.hints(), nest.extents()
    matrices, rows, columns, length = (
        evaluate_size(product(extents[a] for a in axes), hints)
        for axes in (plan.batch, plan.rows, plan.columns, [a.name for a in nest.reduce])
    )
    repeats = any(isinstance(s, Reduce) and s.id not in {d.value for d in plan.dots} for s in nest.body)
    loaded = all(f in {s.id for s in nest.body if isinstance(s, Load)} for d in plan.dots for f in (d.left, d.right))
    sizes = _blocks(matrices, rows, columns, length, target, repeats=repeats, loaded=loaded)
    sizes |= {name: max(LEAST, n) for name, n in blocks.items() if name in ("m", "n", "k")}
    k_extent = product(a.extent for a in nest.reduce)
    whole = k_extent.is_Integer and sizes["k"] >= int(k_extent)
    stages = STAGES if not whole and not target.interpreter else 1
    return Task(nest.name, _dims(plan, nest, sizes, whole=whole), wide=exceeds_32_bits(nest, program), stages=stages, dot=True)


def _blocks(matrices: int, rows: int, columns: int, length: int, target: TileTarget, *, repeats: bool,
            loaded: bool) -> dict[str, int]:  # fmt: skip
    """``repeats``: whether each tile of columns reduces the rows anew; ``loaded``: whether the factors need not be computed, which
    takes registers for all of a step."""
    if target.interpreter:
        return {name: max(LEAST, min(most, next_power_of_two(n))) for name, n, most in
                (("m", rows, 128), ("n", columns, 256), ("k", length, 512))}  # fmt: skip
    m = max(LEAST, min(MOST_ROWS, next_power_of_two(rows)))
    n = max(LEAST, min(MOST_COLUMNS, next_power_of_two(columns)))
    least = n if repeats and columns <= MOST_COLUMNS else min(n, LEAST if m == LEAST else FEW_COLUMNS)
    while n > least and matrices * -(-rows // m) * -(-columns // n) < target.sm_count:
        n //= 2
    step = SHORT_STEP if not loaded else LONG_STEP if m == LEAST else STEP
    return {"m": m, "n": n, "k": max(LEAST, min(step, next_power_of_two(length)))}


def _dims(plan: DotPlan, nest: LoopNest, sizes: Mapping[str, int], *, whole: bool) -> tuple[TileDim, ...]:
    batch = (TileDim("z", plan.batch, 1, "parallel"),) if plan.batch else ()
    reduce = tuple(a.name for a in nest.reduce)
    return (*batch, TileDim("m", plan.rows, sizes["m"], "parallel"), TileDim("n", plan.columns, sizes["n"], "parallel"),
            TileDim("k", reduce, sizes["k"], "persistent" if whole else "looped"))  # fmt: skip
