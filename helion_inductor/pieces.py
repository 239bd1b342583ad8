"""The program of a region while it is made piece by piece: one program for each kind of piece, and how they make a whole."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .errors import InternalError
from .ir.merge import merged, renamed
from .ir.spread import is_elementwise, spread
from .ir.tile_ir import TileProgram
from .lowering.components import Component
from .lowering.inductor_loops import LoopRefused

_NUMBERED = re.compile(r"([a-z]+)(\d+)")


@dataclass(frozen=True)
class Names:
    """What one piece's program calls things -> what the region's program calls them. Numbers of nests and of temporaries move
    up by ``nests`` and ``temporaries``.

    The program is that of the piece whose structure is ``kind``; where that is another piece, of tensors of ``elements`` elements,
    it is spread over the shape of this one.
    """

    component: Component
    sizes: Mapping[str, str]
    nests: int
    temporaries: int
    kind: str
    elements: int | None = None

    def apply(self, program: TileProgram) -> TileProgram:
        if self.elements is not None:
            program = spread(program, self.elements, self.component.shape)
        buffers = {b.name: _moved(b.name, self.temporaries) for b in program.buffers if b.kind == "temp"}
        buffers |= {**self.component.inputs, **self.component.outputs}
        return renamed(program, buffers, self.nest, self.sizes, self.component.calls)

    def nest(self, name: str) -> str:
        return _moved(name, self.nests)


def _moved(name: str, by: int) -> str:
    """``n3`` moved by 4 is ``n7``."""
    match = _NUMBERED.fullmatch(name)
    assert match is not None, f"the lowering numbers what it names, yet there is {name}"
    return f"{match[1]}{int(match[2]) + by}"


@dataclass(frozen=True)
class Pieces:
    """Programs by the structure of the pieces they are for; ``names`` has an entry for every piece."""

    name: str
    inputs: tuple[str, ...]
    names: tuple[Names, ...]
    programs: Mapping[str, TileProgram]
    size_values: Mapping[str, Any]

    def map(self, change: Callable[[TileProgram], TileProgram]) -> Pieces:
        return replace(self, programs={k: change(p) for k, p in self.programs.items()})

    def first(self, program: TileProgram) -> Names:
        """The names of the first piece that ``program``, one of these programs, is for."""
        return next(n for n in self.names if self.programs[n.kind] is program)

    def whole(self) -> TileProgram:
        """The region's program."""
        for kind, elements in {(n.kind, n.elements) for n in self.names if n.elements is not None}:
            if not is_elementwise(self.programs[kind], elements):
                raise InternalError("a change made elements of a program depend on others", rule="elementwise")
        return merged(self.name, [n.apply(self.programs[n.kind]) for n in self.names], self.inputs)

    def nest_count(self) -> int:
        """Nests of the region's program."""
        return sum(len(self.programs[n.kind].nests) for n in self.names)

    def __str__(self) -> str:
        return str(self.whole())


def lower_pieces(name: str, inputs: Sequence[str], components: Sequence[Component],
                 lower: Callable[[Component], tuple[TileProgram, dict[str, Any]]]) -> Pieces:  # fmt: skip
    """Lower each kind of piece once; ``lower`` also gives what the sizes that it named stand for.

    Raises:
        LoopRefused: naming the calls of every piece that ``lower`` refuses for the same reason.
    """
    programs: dict[str, TileProgram] = {}
    values: dict[str, dict[str, Any]] = {}
    known: dict[Any, str] = {}
    names: list[Names] = []
    spreads: dict[str, tuple[str, int]] = {}
    nests = temporaries = 0
    for component in components:
        kind, elements = component.structure, None
        if kind not in programs and component.form in spreads:
            kind, elements = spreads[component.form]
        if kind not in programs:
            try:
                programs[kind], values[kind] = lower(component)
            except LoopRefused as refusal:
                equal = [c.calls.get(refusal.node, refusal.node) for c in components if c.structure == kind]
                raise LoopRefused(equal[0], refusal.reason, equal[1:]) from refusal
            count = math.prod(component.shape)
            if component.form and not values[kind] and is_elementwise(programs[kind], count):
                spreads.setdefault(component.form, (kind, count))
        sizes = {own: known.setdefault(value, f"z{len(known)}") for own, value in values[kind].items()}
        names.append(Names(component, sizes, nests, temporaries, kind, elements))
        nests += _numbers(n.name for n in programs[kind].nests)
        temporaries += _numbers(b.name for b in programs[kind].buffers if b.kind == "temp")
    return Pieces(name, tuple(inputs), tuple(names), programs, {z: value for value, z in known.items()})


def _numbers(names: Iterable[str]) -> int:
    """Numbers that ``names`` take up, from 0 on."""
    return max((int(match[2]) + 1 for n in names if (match := _NUMBERED.fullmatch(n))), default=0)
