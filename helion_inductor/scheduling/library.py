"""What a product of matrices takes where Inductor has a library do it, with the loops around it as kernels of their own."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.body import flow
from ..ir.dots import HALVES, dot_plan
from ..ir.index import product
from ..ir.tile_ir import Load, LoopNest, Map, Reduce, TileProgram
from .device_model import DeviceModel
from .hints import evaluate_size
from .tile_sizes import is_product
from .work import nest_bytes

FIXED_US = 2.6  # of a product, however small: bf16 products of 128 rows and 768 columns take 4.4 as a node of a graph, launch included
OVERHEAD = 1.1  # times what bytes or arithmetic take at best
STEP_US = 0.0005  # for each element of the summed axis: 8192 of them add 4
FEW_OPS = 4  # at the end of a product that need no kernel of their own: a bias, a cast


@dataclass(frozen=True)
class LibraryCalls:
    """Microseconds, launches included, and the number of launches."""

    us: float
    launches: int


def library_calls(nest: LoopNest, program: TileProgram, device: DeviceModel) -> LibraryCalls | None:
    """A product with the loops that were fused with it; None where ``nest`` is none that a library does."""
    plan = dot_plan(nest, program.by_name())
    buffers = program.by_name()
    halves = any(isinstance(s, Load) and buffers[s.buffer].dtype in HALVES for s in nest.body)
    if plan is None and not (halves and is_product(nest)):
        return None
    hints = program.hints()
    length = evaluate_size(product(a.extent for a in nest.reduce), hints)
    points = evaluate_size(product(a.extent for a in (*nest.parallel, *nest.reduce)), hints)
    products = sum(isinstance(s, Reduce) and flow(nest).axes[s.id] == frozenset(a.name for a in nest.parallel) for s in nest.body)
    least = 1e6 * max(nest_bytes(nest, program) / device.bandwidth, 2 * products * points / device.matrix_flops)
    us = max(1, products) * (device.launch_us + FIXED_US + STEP_US * length) + OVERHEAD * least
    others = _other_kernels(nest)
    return LibraryCalls(us + others * (device.launch_us + device.start_us + 2 * device.memory_us), max(1, products) + others)


def _other_kernels(nest: LoopNest) -> int:
    """Kernels for what is computed before and after the products: rows that are reduced first, and more than a few ops at the end."""
    known = flow(nest)
    parallel = frozenset(a.name for a in nest.parallel)
    before = any(isinstance(s, Reduce) and known.axes[s.id] != parallel for s in nest.body)
    depth = max(known.depth.values(), default=0)
    after = sum(isinstance(s, Map) and s.op not in ("cast", "round_to") and known.depth[s.id] == depth for s in nest.body)
    return int(before) + int(after > FEW_OPS)
