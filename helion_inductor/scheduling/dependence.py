"""Dependences between nests: read after write, write after read, write after write.

Buffers are told apart by name; ``TileProgram`` gives every storage of a region exactly one name (views are index arithmetic),
so a name is a storage. Outputs that will be written in place on an input alias it, and share its storage here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.tile_ir import LoopNest, TileProgram


def storage(program: TileProgram) -> dict[str, str]:
    """Buffer name -> name of the storage it lives in."""
    return {b.name: b.aliases or b.name for b in program.buffers}


def predecessors(nests: Sequence[LoopNest], storages: Mapping[str, str]) -> list[set[int]]:
    """For each nest, the positions of earlier nests that must have finished before it starts."""
    writers: dict[str, list[int]] = {}
    readers: dict[str, list[int]] = {}
    result: list[set[int]] = []
    for position, nest in enumerate(nests):
        reads = {storages[b] for b in nest.reads()}
        writes = {storages[b] for b in nest.writes()}
        before: set[int] = set()
        for b in reads | writes:
            before.update(writers.get(b, ()))
        for b in writes:
            before.update(readers.get(b, ()))
        result.append(before)
        for b in reads:
            readers.setdefault(b, []).append(position)
        for b in writes:
            writers.setdefault(b, []).append(position)
    return result


def levels(nests: Sequence[LoopNest], storages: Mapping[str, str]) -> list[int]:
    """Longest chain of dependences below each nest: nests of one level are independent of each other."""
    result: list[int] = []
    for before in predecessors(nests, storages):
        result.append(1 + max((result[p] for p in before), default=-1))
    return result
