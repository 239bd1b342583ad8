"""A region's sub-graph -> ``TileProgram``: the door's loops as nests over named buffers, outputs bound or copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch

from ..errors import UnsupportedError
from ..ir.index import ZERO, names_in, symbol
from ..ir.simplify import Ranges, simplify
from ..ir.tile_ir import Axis, Buffer, Const, Load, LoopNest, Size, Store, TileProgram, compute_dtype, indices
from .components import Component
from .from_loops import to_buffer, to_nest
from .inductor_loops import Layout, LoopRefused, LoweredGraph, Output, lower_graph
from .sizes import SizeNames

UNKNOWN_SIZE = 8192  # the value of a size symbol that nothing was seen of while tracing; for choices only


def lower_component(name: str, component: Component, fake_mode: Any, hints: Mapping[str, int]) -> tuple[TileProgram, dict[str, Any]]:
    """The tile program of a piece of a region, and what those of its sizes stand for that are not symbols of the graph.

    ``hints`` gives the values of the graph's symbols seen while tracing.

    Raises:
        LoopRefused: naming a node that is not loops, or whose loops use something outside the IR.
    """
    outputs, output_layouts = tuple(component.outputs), component.layouts
    lowered = lower_graph(component.module(), component.example_inputs(), fake_mode)
    layouts = [*lowered.inputs.values(), *(layout for layout, _ in lowered.made.values())]
    names = SizeNames(lowered.lower_bounds, lowered.least, [n for layout in layouts for n in layout.size])
    bound = _bind_outputs(lowered, outputs, output_layouts, names)
    buffers = {n: to_buffer(n, layout, names, "in") for n, layout in lowered.inputs.items()}
    for made, (layout, node) in lowered.made.items():
        buffers[made] = _named(node, lambda made=made, layout=layout: to_buffer(made, layout, names))
    dtypes = {n: b.dtype for n, b in buffers.items()}
    nests = [_named(loop.node, lambda loop=loop, k=k: to_nest(loop, f"n{k}", dtypes, names)) for k, loop in enumerate(lowered.loops)]
    nests[:0] = [_zero_nest(f"u{k}", buffers[b], lowered.made[b][1]) for k, b in enumerate(lowered.unfilled)]
    for position, (result, output) in enumerate(zip(outputs, lowered.outputs, strict=True)):
        if position not in bound:
            source = buffers[output.buffer]
            buffers[result] = _output_buffer(result, output, output_layouts[position], names)
            if not any(n == 0 for n in buffers[result].shape):
                nests.append(_copy_nest(f"n{len(nests)}", source, output, buffers[result], names))
    renamed = {output.buffer: outputs[k] for k, output in enumerate(lowered.outputs) if k in bound}
    nests = [_rename(n, renamed) for n in nests]
    final = tuple(
        Buffer(renamed.get(b.name, b.name), b.dtype, b.shape, b.stride, "out" if b.name in renamed or b.name in outputs else b.kind)
        for b in buffers.values()
    )
    values = names.values()
    known = dict(hints) | {n: _value_at(e, hints) for n, e in values.items()}
    return TileProgram(name, _sizes(final, nests, names.lower, known), final, tuple(nests)), values


def _value_at(e: Any, hints: Mapping[str, int]) -> int:
    return int(e.xreplace({s: sympy.Integer(hints.get(s.name, UNKNOWN_SIZE)) for s in e.free_symbols}))


def _named(node: str, make: Any) -> Any:
    try:
        return make()
    except UnsupportedError as error:
        raise LoopRefused(node, error.reason) from error


def _layout_equals(layout: Layout, shape: Sequence[Any], stride: Sequence[Any], names: SizeNames) -> bool:
    if layout.offset != 0 or len(layout.size) != len(shape):
        return False
    pairs = zip(layout.size, layout.stride, shape, stride, strict=True)
    return all(
        names.convert(n) == names.of_size(want) and (n == 1 or names.convert(s) == names.of_size(step)) for n, s, want, step in pairs
    )


def _extent(layout: Layout, names: SizeNames) -> Any:
    """Elements from the first to the last one."""
    reach = ((names.convert(n) - 1) * names.convert(s) for n, s in zip(layout.size, layout.stride, strict=True))
    return sympy.expand(sum(reach, ZERO) + 1)


def _bind_outputs(lowered: LoweredGraph, outputs: Sequence[str], layouts: Sequence[tuple[Sequence[Any], Sequence[Any]]],
                  names: SizeNames) -> set[int]:  # fmt: skip
    """Positions of outputs that are a loop's whole buffer as it stands, each buffer taken once."""
    taken: set[str] = set()
    bound: set[int] = set()
    for position, output in enumerate(lowered.outputs):
        made = lowered.made.get(output.buffer)
        if made is None or output.buffer in taken or _extent(made[0], names) != _extent(output.layout, names):
            continue
        if _layout_equals(output.layout, *layouts[position], names):
            taken.add(output.buffer)
            bound.add(position)
    return bound


def _output_buffer(name: str, output: Output, layout: tuple[Sequence[Any], Sequence[Any]], names: SizeNames) -> Buffer:
    shape, stride = (tuple(names.of_size(e) for e in part) for part in layout)
    return Buffer(name, output.layout.dtype, shape, stride, "out")


def _copy_nest(name: str, source: Buffer, output: Output, target: Buffer, names: SizeNames) -> LoopNest:
    axes = [Axis(f"p{k}", n) for k, n in enumerate(target.shape)]
    ranges = Ranges({a.name: a.extent for a in axes}, names.lower)
    kept = tuple(a for a in axes if a.extent != 1)
    point = [symbol(a.name) if a.extent != 1 else ZERO for a in axes]
    read = names.convert(output.layout.offset) + sum((p * names.convert(s) for p, s in zip(point, output.layout.stride, strict=True)), ZERO)
    write = sum((p * s for p, s in zip(point, target.stride, strict=True)), ZERO)
    dtype = compute_dtype(source.dtype)
    body = (Load(0, dtype, source.name, simplify(read, ranges)), Store(target.name, simplify(write, ranges), 0))
    return LoopNest(name, kept, (), body, (target.name,))


def _zero_nest(name: str, buffer: Buffer, node: str) -> LoopNest:
    """Zeros for a buffer that was left uninitialised, so that every value has a definition; what overwrites it removes them."""
    axes = tuple(Axis(f"p{k}", n) for k, n in enumerate(buffer.shape) if n != 1)
    steps = [s for n, s in zip(buffer.shape, buffer.stride, strict=True) if n != 1]
    write = sum((symbol(a.name) * s for a, s in zip(axes, steps, strict=True)), ZERO)
    dtype = compute_dtype(buffer.dtype)
    zero = False if dtype == torch.bool else 0.0 if dtype.is_floating_point else 0
    return LoopNest(name, axes, (), (Const(0, dtype, zero), Store(buffer.name, write, 0)), (node,))


def _rename(nest: LoopNest, renamed: Mapping[str, str]) -> LoopNest:

    def one(stmt: Any) -> Any:
        buffer = getattr(stmt, "buffer", "")
        return replace(stmt, buffer=renamed[buffer]) if buffer in renamed else stmt

    return replace(nest, body=tuple(map(one, nest.body)))


def _sizes(buffers: Sequence[Buffer], nests: Sequence[LoopNest], lower: Mapping[str, int], hints: Mapping[str, int]) -> tuple[Size, ...]:
    names: set[str] = set()
    for b in buffers:
        names |= {n for e in (*b.shape, *b.stride) for n in names_in(e)}
    for nest in nests:
        own = set(nest.extents())
        names |= {n for e in nest.extents().values() for n in names_in(e)}
        names |= {n for s in nest.body for e in indices(s) for n in names_in(e)} - own
    return tuple(Size(n, lower.get(n, 0), hints.get(n, max(UNKNOWN_SIZE, lower.get(n, 0)))) for n in sorted(names))
