"""A region's graph in pieces that have nothing to do with one another, so that equal pieces are compiled once.

An optimizer step over three hundred parameters is three hundred small graphs side by side, of which few differ. Calls belong to
one piece when one reads the other's result, or when both read a tensor of more than one element (there may then be a pass over
memory to save). What is made from nothing, or from single elements, is cloned into every piece that reads it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx

from .families import family
from .write_out import apart, is_apart

_NUMBERING = re.compile(r"(_\d+)+$")
_CLONED = ("view", "creation")


@dataclass(frozen=True)
class Component:
    """One piece: a graph with canonical names (``x0``, ... for what it is given, ``y0``, ... for its results), and the module
    that holds the attributes it reads, if any.

    ``inputs`` and ``outputs`` map those names to the region's, ``calls`` the names of its calls to the calls they are clones of;
    ``structure`` is equal for pieces that compile to the same program, ``form`` for pieces that may differ in the one ``shape`` that
    all their tensors of more than one element have; it is empty for pieces of several shapes.
    """

    graph: fx.Graph
    owner: fx.GraphModule
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    layouts: tuple[tuple[Sequence[Any], Sequence[Any]], ...]
    calls: Mapping[str, str]
    structure: str
    form: str = ""
    shape: tuple[int, ...] = ()

    def module(self) -> fx.GraphModule:
        return fx.GraphModule(self.owner, self.graph)

    def example_inputs(self) -> list[Any]:
        return [p.meta["val"] for p in self.graph.find_nodes(op="placeholder")]


def described(value: Any) -> str:
    """A node's value as far as it matters to the compiler: dtype, shape and strides."""
    if isinstance(value, (tuple, list)):
        return ", ".join(map(described, value))
    return f"{value.dtype}{tuple(value.shape)}{value.stride()}" if isinstance(value, torch.Tensor) else str(value)


def structure_of(graph: fx.Graph) -> str:
    """Text that is equal for graphs of equal calls on equal values."""
    return "\n".join([str(graph), *(f"{n.name}: {described(n.meta.get('val'))}" for n in graph.nodes)])


def components(module: fx.GraphModule, outputs: Sequence[str],
               layouts: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> list[Component]:  # fmt: skip
    """The pieces of a region's graph, whose results are called ``outputs`` and laid out as ``layouts`` say."""
    graph, origin = apart(module.graph)
    results: tuple[fx.Node, ...] = graph.output_node().args[0]  # type: ignore[assignment]
    named: dict[fx.Node, list[int]] = {}
    for position, node in enumerate(results):
        named.setdefault(node, []).append(position)
    pieces: dict[fx.Node, list[fx.Node]] = {}
    for node, root in _roots(graph, frozenset(results)).items():
        pieces.setdefault(root, []).append(node)
    wanted = [calls for calls in pieces.values() if any(c in named for c in calls)]
    if len(wanted) > 1:
        return [_component(module, calls, named, outputs, layouts, origin) for calls in wanted]
    own = {n: n for n in outputs}
    given = {n.name: n.name for n in module.graph.find_nodes(op="placeholder")}
    if is_apart(module.graph):
        return [Component(module.graph, module, given, own, tuple(layouts), {}, structure_of(module.graph))]
    calls = {n.name: name for n, name in origin.items() if n.op != "placeholder"}
    return [Component(graph, module, given, own, tuple(layouts), calls, structure_of(graph))]


def _roots(graph: fx.Graph, results: frozenset[fx.Node]) -> dict[fx.Node, fx.Node]:
    """Every call that is not to be cloned -> a node that stands for its piece."""
    parent: dict[fx.Node, fx.Node] = {}

    def find(node: fx.Node) -> fx.Node:
        while parent[node] is not node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    cloned: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            if _is_single(node):
                cloned.add(node)
            else:
                parent[node] = node
        elif node.op == "call_function" and node not in results and _is_cloned(node, cloned):
            cloned.add(node)
        elif node.op == "call_function":
            parent[node] = node
            for source in node.all_input_nodes:
                if source not in cloned:
                    parent[find(source)] = find(node)
    return {n: find(n) for n in parent if n.op == "call_function"}


def _is_single(node: fx.Node) -> bool:
    """Whether a node is a number, or a tensor that is known to have one element."""
    value = node.meta["val"]
    return not isinstance(value, torch.Tensor) or (isinstance(value.numel(), int) and value.numel() == 1)


def _is_cloned(node: fx.Node, cloned: set[fx.Node]) -> bool:
    if not all(s in cloned for s in node.all_input_nodes):
        return False
    return isinstance(node.meta.get("val"), torch.Tensor) and (family(node.target) in _CLONED or _is_single(node))


def _component(module: fx.GraphModule, calls: Sequence[fx.Node], named: Mapping[fx.Node, list[int]], outputs: Sequence[str],
               layouts: Sequence[tuple[Sequence[Any], Sequence[Any]]], origin: Mapping[fx.Node, str]) -> Component:  # fmt: skip
    graph = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    given = list(dict.fromkeys(p for call in calls for p in _placeholders(call, set())))
    inputs: dict[str, str] = {}
    for position, source in enumerate(sorted(given, key=lambda p: isinstance(p.meta["val"], torch.SymInt))):
        made[source] = graph.placeholder(f"x{position}")
        made[source].meta = source.meta
        inputs[f"x{position}"] = source.name

    def clone(node: fx.Node) -> fx.Node:
        if node not in made:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), clone)
            made[node] = graph.create_node(node.op, node.target, args, kwargs, name=_NUMBERING.sub("", node.name))
            made[node].meta = node.meta
        return made[node]

    for call in calls:
        clone(call)
    positions = [(made[call], p) for call in calls for p in named.get(call, ())]
    graph.output(tuple(node for node, _ in positions))
    chosen = {f"y{k}": outputs[p] for k, (_, p) in enumerate(positions)}
    mine = tuple(layouts[p] for _, p in positions)
    names = {copy.name: origin[node] for node, copy in made.items() if copy.op != "placeholder"}
    structure = f"{structure_of(graph)}\n{[(_described_sizes(shape), _described_sizes(stride)) for shape, stride in mine]}"
    return Component(graph, module, inputs, chosen, mine, names, structure, *_form(graph, mine))


def _form(graph: fx.Graph, layouts: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> tuple[str, tuple[int, ...]]:
    """The ``form`` and ``shape`` of a piece."""
    values = {n.name: pytree.tree_leaves(n.meta.get("val")) for n in graph.nodes if n.op != "output"}
    tensors = [t for ts in values.values() for t in ts]
    if not all(isinstance(t, torch.Tensor) and all(isinstance(n, int) for n in (*t.shape, *t.stride())) for t in tensors):
        return "", ()
    large = {(tuple(t.shape), tuple(t.stride())) for t in tensors if t.numel() != 1}
    large |= {(tuple(shape), tuple(stride)) for shape, stride in layouts if math.prod(shape) != 1}
    if len(large) != 1 or not all(t.is_contiguous() for t in tensors):
        return "", ()
    ((shape, _),) = large
    parts = [f"{name}: {[(str(t.dtype), t.dim() if t.numel() == 1 else -1) for t in ts]}" for name, ts in values.items()]
    calls = [_without_shape(n, shape) for n in graph.nodes]
    return "\n".join([*calls, *parts, str([math.prod(s) == 1 for s, _ in layouts])]), shape


def _without_shape(node: fx.Node, shape: tuple[int, ...]) -> str:
    """The text of a call; where it makes a tensor of ``shape``, without that."""
    text = f"{node.name} = {node.target}{node.args}{node.kwargs}"
    return text.replace(str(list(shape)), "shape") if family(node.target) == "creation" else text


def _described_sizes(sizes: Sequence[Any]) -> str:
    return ", ".join(map(str, sizes))


def _placeholders(node: fx.Node, seen: set[fx.Node]) -> Iterator[fx.Node]:
    """Placeholders that ``node`` reads, in the order of its arguments."""
    for source in node.all_input_nodes:
        if source in seen:
            continue
        seen.add(source)
        if source.op == "placeholder":
            yield source
        else:
            yield from _placeholders(source, seen)
