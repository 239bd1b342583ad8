"""A graph's peak memory with some of its regions taken, beside what it would be with none, and what is left for its sake.

A region's call holds all that it reads and all that it writes at once; Inductor runs the same loops one by one, each where it
stands in the graph, and computes short chains anew instead of storing them. Both are played through: calls are in the order in
which they are put in the graph, loops are those of the region's program before reductions were split. That Inductor writes over
what is read for the last time is left out, for it holds on to such memory as long as its own estimate, which leaves it out too,
is not passed. Its choice of an order that holds less is not foreseen; it has that choice either way.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from .fx_peak import Step, peak_bytes, rounded, tensor_bytes
from .fx_sizes import symbol_hints
from .ir.index import product
from .ir.tile_ir import Buffer, Load, LoopNest, Reduce, Scan, Store, TileProgram, is_value, operands
from .lowering.partition import RegionNodes, is_view
from .pipeline import CompiledRegion
from .scheduling.hints import evaluate_size
from .scheduling.tile_sizes import is_product as multiplies

INLINED_LOADS = 4  # Inductor stores what several readers would else compute from more than so many tensors
INLINED_ONCE = 8  # the same for a single reader

Calls = Mapping[int, frozenset[str]]
"""By the number of a region: the names of those of its nests that are in its call; the rest runs as Inductor would run it."""


@dataclass(frozen=True)
class Placed:
    """A region of the graph with what it compiled to; ``original`` maps names of its own graph to nodes of the whole one,
    ``in_place`` names outputs that are written onto a graph input; ``part``: the nests that are meant, all where None."""

    nodes: RegionNodes
    compiled: CompiledRegion
    original: Mapping[str, str]
    in_place: Collection[str]
    part: frozenset[str] | None = None

    def nests(self) -> frozenset[str]:
        return self.part if self.part is not None else frozenset(n.name for n in self.compiled.fused.nests)

    def left_out(self, part: frozenset[str]) -> Placed:
        """Some of its nests, with the nodes that they compute, as what stays with Inductor."""
        calls = self.calls_of(part)
        members = tuple(m for m in self.nodes.members if m.name in calls)
        twins = {t: o for t, o in self.nodes.twins.items() if t in members}
        return replace(self, nodes=replace(self.nodes, members=members, twins=twins), part=part)

    def parts(self) -> list[frozenset[str]]:
        """Nests that exchange results, together."""
        parts: list[tuple[set[str], set[str]]] = []
        given = {b.name for b in self.compiled.fused.buffers if b.kind == "in"}
        for nest in self.compiled.fused.nests:
            names, buffers = {nest.name}, {*nest.reads(), *nest.writes()} - given
            for part in [p for p in parts if p[1] & buffers]:
                names, buffers = names | part[0], buffers | part[1]
                parts.remove(part)
            parts.append((names, buffers))
        return [frozenset(names) for names, _ in parts]

    def bytes_made(self, part: Collection[str]) -> int:
        """Bytes of the results of the nests ``part``."""
        program = self.compiled.fused
        made = {b for n in program.nests if n.name in part for b in n.writes() if b in self.compiled.outputs}
        return sum(_buffer_bytes(program.by_name()[b], program) for b in made)

    def calls_of(self, part: Collection[str]) -> frozenset[str]:
        """Nodes of the graph that are computed by the nests ``part`` and by no other."""
        inside = {o for n in self.compiled.fused.nests if n.name in part for o in n.origins}
        others = {o for n in self.compiled.fused.nests if n.name not in part for o in n.origins}
        members = {m.name for m in self.nodes.members}
        return frozenset(self.original[o] for o in inside - others if self.original.get(o) in members)


def scratch_bytes(region: CompiledRegion) -> int:
    """The most that a call's temporaries take at one time: each from its first kernel to its last."""
    program, used = region.program, [k.touched for k in region.source.kernels]
    held = [0] * len(used)
    for b in (b for b in program.buffers if b.kind == "temp"):
        at = [k for k, touched in enumerate(used) if b.name in touched]
        for k in range(min(at, default=0), max(at, default=-1) + 1):
            held[k] += _buffer_bytes(b, program)
    return max(held, default=0)


def _buffer_bytes(b: Buffer, program: TileProgram) -> int:
    return rounded(evaluate_size(product(b.shape), program.hints()) * b.dtype.itemsize)


class GraphMemory:
    """Peaks of one graph; ``regions`` are all that were carved from it, and parts that were left out before; ``made`` are nodes that
    their readers compute anew."""

    def __init__(self, graph: fx.Graph, regions: Sequence[Placed], made: Collection[fx.Node]) -> None:
        self.graph, self.regions, self.made = graph, regions, made
        self.position = {n.name: k for k, n in enumerate(graph.nodes)}
        self.hints = symbol_hints(graph.nodes)
        self.owner = {m: k for k, r in enumerate(regions) for m in r.nodes.members}
        self.twins = {t: o for r in regions for t, o in r.nodes.twins.items()}

    def peak(self, calls: Calls) -> int:
        """Bytes at the peak, at the hinted sizes, without what the graph is given."""
        play = _Play(self, calls)
        steps = [Step(s.at, play.resolved(s.reads), s.makes, s.scratch) for s in play.steps()]
        kept = play.resolved(play.storage(n) for n in self.graph.output_node().all_input_nodes)
        return peak_bytes(steps, kept)


    def given_bytes(self) -> int:
        """Bytes of the tensors that the graph is given."""
        values = (n.meta.get("val") for n in self.graph.nodes if n.op == "placeholder")
        return sum(tensor_bytes(v, self.hints) for v in values if isinstance(v, torch.Tensor))

    def multiplies(self, calls: Calls) -> bool:
        """Whether a nest in one of the calls is a product of matrices."""
        programs = ((self.regions[k].compiled.fused, names) for k, names in calls.items())
        return any(n.name in names and multiplies(n) for program, names in programs for n in program.nests)


class _Play:
    """The steps of a graph with some nests in ``calls``; ``inlined``: storages that are not made -> what their readers read."""

    def __init__(self, memory: GraphMemory, calls: Calls) -> None:
        self.memory, self.calls = memory, calls
        self.inlined: dict[str, frozenset[str]] = {}

    def storage(self, node: fx.Node) -> str:
        """The name of the storage behind a tensor."""
        m = self.memory
        while True:
            if is_view(node):
                node = node.all_input_nodes[0]
            elif node in m.twins and self.calls.get(m.owner[node]):
                node = m.twins[node]
            elif node.target is operator.getitem and node not in m.owner:
                return f"{node.args[0]}#{node.args[1]}"
            else:
                return node.name

    def resolved(self, reads: Iterable[str]) -> frozenset[str]:
        return frozenset(r for n in reads for r in self.inlined.get(n, (n,)))

    def steps(self) -> list[Step]:
        steps = [*self._others()]
        for number, region in enumerate(self.memory.regions):
            steps += self._region(number, region)
        return steps

    def _others(self) -> Iterator[Step]:
        """Calls that are in no region."""
        m = self.memory
        for node in (n for n in m.graph.nodes if n.op == "call_function"):
            if node in m.owner or node in m.made or is_view(node) or node.target is operator.getitem:
                continue
            value: Any = node.meta.get("val")
            results = {f"{node}#{k}": v for k, v in enumerate(value)} if isinstance(value, (tuple, list)) else {node.name: value}
            mutates = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
            makes = {n: tensor_bytes(v, m.hints) for n, v in results.items() if isinstance(v, torch.Tensor) and not mutates}
            yield Step(m.position[node.name], frozenset(map(self.storage, node.all_input_nodes)), makes)

    def _region(self, number: int, region: Placed) -> Iterator[Step]:
        """A region's call, if it has one, and a step for each nest that is not in it."""
        m, program, inside = self.memory, region.compiled.fused, self.calls.get(number, frozenset())
        outputs = dict(zip(region.compiled.outputs, region.nodes.outputs, strict=True))
        names = {b.name: f"{number}.{b.name}" for b in program.buffers}
        names |= {f"x{k}": self.storage(n) for k, n in enumerate(region.nodes.inputs)} | {y: o.name for y, o in outputs.items()}
        buffers = program.by_name()
        kept = {b for b in buffers if b in outputs and outputs[b].name in region.in_place}
        if inside:
            called = [n for n in program.nests if n.name in inside]
            written = {b for n in called for b in n.writes() if b in outputs and b not in kept}
            at = max(m.position[n.name] for n in region.nodes.members)
            reads = frozenset(names[b] for n in called for b in n.reads() if b not in outputs and buffers[b].kind != "temp")
            yield Step(at, reads, {names[b]: _buffer_bytes(buffers[b], program) for b in written}, scratch_bytes(region.compiled))
        for nest in (n for n in program.nests if n.name in region.nests() - inside):
            at = max((m.position[o] for n in nest.origins if (o := region.original.get(n, "")) in m.position), default=0)
            stored = [b for b in nest.writes() if b not in kept and not self._inlines(nest, b, outputs.get(b), names)]
            reads = frozenset(names[b] for b in nest.reads())
            yield Step(at, reads, {names[b]: _buffer_bytes(buffers[b], program) for b in stored})
        for twin, output in region.nodes.twins.items() if not inside else ():
            yield Step(m.position[twin.name], frozenset({output.name}), {twin.name: tensor_bytes(twin.meta["val"], m.hints)})

    def _inlines(self, nest: LoopNest, buffer: str, output: fx.Node | None, names: Mapping[str, str]) -> bool:
        """Whether Inductor would compute a result of the region where it is read; its readers then read what it is made from."""
        loads = None if output is None else _computed_from(nest, buffer)
        if output is None or loads is None:
            return False
        reads = self.resolved(names[b] for b in loads)
        readers = [r for r in _readers(output) if self.memory.owner.get(r) != self.memory.owner[output]]  # its own loads are its own
        few = len(reads) <= (INLINED_ONCE if len(readers) == 1 else INLINED_LOADS)
        if not few or not all(map(self._is_loop, readers)):
            return False
        self.inlined[names[buffer]] = reads
        return True


    def _is_loop(self, node: fx.Node) -> bool:
        """Whether a node is of a region, and in no call."""
        number = self.memory.owner.get(node)
        if number is None or not (inside := self.calls.get(number)):
            return number is not None
        region = self.memory.regions[number]
        return node.name in region.calls_of(region.nests() - inside)


def _readers(node: fx.Node) -> list[fx.Node]:
    """Calls, and the output, that read a tensor, through views too."""
    return [r for user in node.users for r in (_readers(user) if is_view(user) else [user])]


def _computed_from(nest: LoopNest, buffer: str) -> frozenset[str] | None:
    """What the value stored to ``buffer`` is loaded from; None where it is reduced, or stored in parts."""
    stores = [s for s in nest.body if isinstance(s, Store) and s.buffer == buffer]
    if len(stores) != 1:
        return None
    made: dict[int, Any] = {s.id: s for s in nest.body if is_value(s)}  # type: ignore[union-attr]
    todo, seen, loads = [*operands(stores[0])], set[int](), set[str]()
    while todo:
        value = todo.pop()
        if isinstance(made[value], (Reduce, Scan)):
            return None
        if isinstance(made[value], Load):
            loads.add(made[value].buffer)
        todo += [v for v in operands(made[value]) if v not in seen]
        seen.update(operands(made[value]))
    return frozenset(loads)
