"""Decide which outputs may be written straight onto the input they will be copied to.

An output ``y`` that ends in ``copy_(x, y)`` can live in ``x``'s storage when no nest still needs the old ``x`` after ``y``'s
element has been stored: every load of ``x`` is in an earlier nest, or in the storing nest at the very element it stores, in no
later pass over it. What fails the test keeps its own storage, and the copy stays with the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..ir.body import effect_depth, flow
from ..ir.tile_ir import Atomic, Buffer, Load, LoopNest, Store, TileProgram


@dataclass(frozen=True)
class InPlaceDecision:
    """Output, the input it was to overwrite, whether it does, and why not."""

    output: str
    target: str
    granted: bool
    reason: str

    def __str__(self) -> str:
        return f"{self.output} onto {self.target}: {'in place' if self.granted else 'copied: ' + self.reason}"


def grant_in_place(program: TileProgram, wanted: Sequence[tuple[str, str]]) -> tuple[TileProgram, tuple[InPlaceDecision, ...]]:
    """``wanted`` pairs (output, input). Granted outputs alias their input, and loads of that input name the output."""
    decisions = []
    for output, target in wanted:
        reason = _obstacle(program, output, target)
        decisions.append(InPlaceDecision(output, target, reason is None, reason or ""))
        if reason is None:
            program = _merge(program, output, target)
    return program, tuple(decisions)


def _obstacle(program: TileProgram, output: str, target: str) -> str | None:
    buffers = program.by_name()
    out, old = buffers[output], buffers[target]
    if (out.dtype, out.shape, out.stride) != (old.dtype, old.shape, old.stride):
        return "dtype, shape or strides differ"
    if old.aliases is not None or any(b.aliases == target for b in program.buffers):
        return "the input is overwritten twice"
    storing = [k for k, n in enumerate(program.nests) if output in n.writes()]
    if len(storing) != 1:
        return "the output is written by several nests"
    if any(target in n.reads() for n in program.nests[storing[0] + 1 :]):
        return "the old value is read later"
    return _same_element(program.nests[storing[0]], output, target)


def _same_element(nest: LoopNest, output: str, target: str) -> str | None:
    stores = [s for s in nest.body if isinstance(s, (Store, Atomic)) and s.buffer == output]
    loads = [s for s in nest.body if isinstance(s, Load) and s.buffer == target]
    if len(stores) != 1 or not isinstance(stores[0], Store):
        return "the output is not one plain store"
    if not loads:
        return None
    if any(s.index != stores[0].index for s in loads):
        return "the storing nest reads other elements of the input"
    known = flow(nest)
    if effect_depth(stores[0], known) < max(known.depth.values(), default=0):
        return "the input is read again in a later pass"
    return None


def _merge(program: TileProgram, output: str, target: str) -> TileProgram:
    def buffer(b: Buffer) -> Buffer:
        return replace(b, aliases=target) if b.name == output else b

    return replace(program, buffers=tuple(map(buffer, program.buffers)))
