"""Dependences between nests: read after write, write after read, write after write.

Buffers are told apart by name; ``TileProgram`` gives every storage of a region exactly one name (views are index arithmetic),
so a name is a storage. Outputs that will be written in place on an input alias it, and share its storage here. Nests that
write parts of one buffer (the tensors of a cat, partial results) do not depend on one another where the parts are known to be
disjoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.footprint import Part, disjoint, touched
from ..ir.tile_ir import LoopNest, TileProgram


def storage(program: TileProgram) -> dict[str, str]:
    """Buffer name -> name of the storage it lives in."""
    return {b.name: b.aliases or b.name for b in program.buffers}


def predecessors(nests: Sequence[LoopNest], storages: Mapping[str, str]) -> list[set[int]]:
    """For each nest, the positions of earlier nests that must have finished before it starts."""
    writers: dict[str, list[tuple[int, Part]]] = {}
    readers: dict[str, list[tuple[int, Part]]] = {}
    result: list[set[int]] = []
    for position, mine in enumerate(touched(nests, storages)):
        hazards = [(mine.reads, writers), (mine.writes, writers), (mine.writes, readers)]
        result.append({
            p for own, others in hazards for b, here in own.items() for p, there in others.get(b, ()) if not disjoint(here, there)
        })  # fmt: skip
        for own, users in ((mine.reads, readers), (mine.writes, writers)):
            for b, here in own.items():
                users.setdefault(b, []).append((position, here))
    return result


def levels(nests: Sequence[LoopNest], storages: Mapping[str, str]) -> list[int]:
    """Longest chain of dependences below each nest: nests of one level are independent of each other."""
    result: list[int] = []
    for before in predecessors(nests, storages):
        result.append(1 + max((result[p] for p in before), default=-1))
    return result
