"""Several tile programs side by side, as one program under one set of names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import sympy

from .index import Expr, substitute, symbol
from .rewrite import with_indices
from .simplify import Ranges
from .tile_ir import Atomic, Axis, Buffer, Load, LoopNest, Size, Stmt, Store, TileProgram


def renamed(program: TileProgram, buffers: Mapping[str, str], nests: Callable[[str], str], sizes: Mapping[str, str],
            origins: Mapping[str, str]) -> TileProgram:  # fmt: skip
    """``program`` under other names; what a mapping does not mention keeps its name."""
    change: dict[sympy.Symbol, Expr] = {symbol(old): symbol(new) for old, new in sizes.items() if old != new}

    def expr(e: Expr) -> Expr:
        return substitute(e, change) if change else e

    def statement(s: Stmt) -> Stmt:
        if isinstance(s, (Load, Store, Atomic)) and s.buffer in buffers:
            s = replace(s, buffer=buffers[s.buffer])
        return with_indices(s, change, Ranges({})) if change else s

    def axes(old: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(a.name, expr(a.extent)) for a in old) if change else old

    return TileProgram(
        program.name,
        tuple(replace(s, name=sizes.get(s.name, s.name)) for s in program.sizes),
        tuple(
            Buffer(buffers.get(b.name, b.name), b.dtype, tuple(map(expr, b.shape)), tuple(map(expr, b.stride)), b.kind,
                   None if b.aliases is None else buffers.get(b.aliases, b.aliases))
            for b in program.buffers
        ),
        tuple(
            LoopNest(nests(n.name), axes(n.parallel), axes(n.reduce), tuple(map(statement, n.body)),
                     tuple(dict.fromkeys(origins.get(o, o) for o in n.origins)))
            for n in program.nests
        ),
    )  # fmt: skip


def merged(name: str, programs: Sequence[TileProgram], inputs: Sequence[str]) -> TileProgram:
    """The programs one after another. Buffers of one name are one buffer; ``inputs`` come first, in this order."""
    buffers: dict[str, Buffer] = {}
    sizes: dict[str, Size] = {}
    for program in programs:
        for b in program.buffers:
            buffers.setdefault(b.name, b)
        for s in program.sizes:
            sizes.setdefault(s.name, s)
    order = [*(n for n in inputs if n in buffers), *(n for n in buffers if n not in inputs)]
    nests = tuple(n for p in programs for n in p.nests)
    return TileProgram(name, tuple(sizes[s] for s in sorted(sizes)), tuple(buffers[n] for n in order), nests)
