"""Programs that do one thing to every element: what was made for tensors of one shape serves any other.

Such a program is written over the elements in memory order, one axis. An optimizer step over parameters of a hundred shapes is
then lowered and fused once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .index import ONE, ZERO, Expr, integer, product, symbol
from .tile_ir import Axis, Buffer, Load, LoopNest, Map, Store, TileProgram, indices

_AXIS = "p0"


def is_elementwise(program: TileProgram, elements: int) -> bool:
    """Whether every nest treats each of ``elements`` elements, which all tensors of more than one hold densely and row-major, by
    itself; single elements may be read by all, and computed from one another."""
    return not program.sizes and all(_fits(b, elements) for b in program.buffers) and all(_is_plain(n, elements) for n in program.nests)


def spread(program: TileProgram, elements: int, shape: Sequence[int]) -> TileProgram:
    """A program that ``is_elementwise`` for ``elements``, for tensors of ``shape``."""
    extents = tuple(map(integer, shape))
    buffers = tuple(_shaped(b, extents) if _count(b.shape) == elements else b for b in program.buffers)
    return replace(program, buffers=buffers, nests=tuple(_respread(n, product(extents)) for n in program.nests))


def _count(shape: Sequence[Expr]) -> int:
    total = product(shape)
    return int(total) if total.is_Integer else -1


def _row_major(extents: Sequence[Expr]) -> tuple[Expr, ...]:
    return tuple(product(extents[k + 1 :]) if extents[k + 1 :] else ONE for k in range(len(extents)))


def _fits(buffer: Buffer, elements: int) -> bool:
    count = _count(buffer.shape)
    dense = all(n == ONE or s == d for n, s, d in zip(buffer.shape, buffer.stride, _row_major(buffer.shape), strict=True))
    return count == 1 or (count == elements and dense)


def _is_plain(nest: LoopNest, elements: int) -> bool:
    if nest.reduce or not all(isinstance(s, (Load, Store, Map)) or not indices(s) for s in nest.body):
        return False
    count = _count([a.extent for a in nest.parallel])
    linear = _linear(nest)
    allowed = (linear, ZERO) if count == elements else (ZERO,)
    plain = all(e.expand() in allowed for s in nest.body if isinstance(s, (Load, Store)) for e in indices(s))
    # A store of single elements by all would be one by each.
    alone = all(s.index.expand() == linear for s in nest.body if isinstance(s, Store))
    return plain and count in (1, elements) and (alone or count == 1)


def _linear(nest: LoopNest) -> Expr:
    extents = [a.extent for a in nest.parallel]
    return sum((s * symbol(a.name) for a, s in zip(nest.parallel, _row_major(extents), strict=True)), ZERO).expand()


def _shaped(buffer: Buffer, extents: tuple[Expr, ...]) -> Buffer:
    return replace(buffer, shape=extents, stride=_row_major(extents))


def _respread(nest: LoopNest, elements: Expr) -> LoopNest:
    if _count([a.extent for a in nest.parallel]) == 1:
        return nest
    linear, axis = _linear(nest), symbol(_AXIS)
    body = []
    for s in nest.body:
        if isinstance(s, (Load, Store)):
            s = replace(s, index=axis if s.index.expand() == linear else ZERO)
        body.append(s)
    return replace(nest, parallel=(Axis(_AXIS, elements),), body=tuple(body))
