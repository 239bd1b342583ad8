"""Regions in, one node out: builds a region's sub-graph from an FX graph, and puts the compiled region's call in its place."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from .fx_sizes import SizeNodes
from .lowering.components import structure_of
from .lowering.families import VIEWS
from .lowering.partition import RegionNodes, draws, is_view, tensors_of

aten = torch.ops.aten
CPU = torch.device("cpu")


@dataclass(frozen=True)
class SubGraph:
    """A region as a graph of its own, all on CPU fake tensors.

    Its names say nothing of where the region stood, so that equal stretches of a model (layers) give equal sub-graphs:
    placeholders ``x0``, ``x1``, ... for the tensors ``inputs``, then ``n0``, ... for the SymInts ``scalars``; ``original`` maps
    the name of every other node to the node it was cloned from.
    """

    module: fx.GraphModule
    inputs: tuple[fx.Node, ...]
    scalars: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    device: torch.device
    fake_mode: Any
    original: Mapping[str, str]

    def structure(self) -> str:
        """Text that is equal for regions that compile to the same kernels: ops, arguments, dtypes, shapes and strides."""
        return f"{self.device.type}\n{structure_of(self.module.graph)}"


def fake_mode_of(graph: fx.Graph) -> Any:
    """The fake tensor mode of the graph's values, None when it has none."""
    for node in graph.nodes:
        for t in tensors_of(node):
            if hasattr(t, "fake_mode"):
                return t.fake_mode
    return None


class _OnCpu:
    """Fake tensors of the same layout on the CPU; equal layouts of constant sizes are one tensor, for making them takes time."""

    def __init__(self, fake_mode: Any) -> None:
        self.fake_mode = fake_mode
        self.made: dict[Any, torch.Tensor] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(map(self, value))
        return self._tensor(value) if isinstance(value, torch.Tensor) else value

    def _tensor(self, t: torch.Tensor) -> torch.Tensor:
        layout = (t.dtype, tuple(t.shape), tuple(t.stride()))
        constant = all(isinstance(n, int) for n in (*layout[1], *layout[2]))
        if constant and layout in self.made:
            return self.made[layout]
        with self.fake_mode:
            result = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cpu")
        if constant:
            self.made[layout] = result
        return result


def sub_graph(region: RegionNodes) -> SubGraph:
    """Clone the region, and the views it reads through, onto CPU."""
    members = set(region.members)
    first = tensors_of(region.members[0])[0]
    fake_mode = first.fake_mode  # type: ignore[attr-defined]
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    on_cpu = _OnCpu(fake_mode)
    scalars = _scalar_inputs(region, members)
    for prefix, sources in (("x", region.inputs), ("n", scalars)):
        for position, source in enumerate(sources):
            env[source] = graph.placeholder(f"{prefix}{position}")
            env[source].meta = {"val": on_cpu(source.meta["val"])}

    def clone(node: fx.Node) -> fx.Node:
        if node not in env:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), clone)
            args, kwargs = _map_devices(args), _map_devices(kwargs)
            env[node] = graph.create_node(node.op, node.target, args, kwargs, name=re.sub(r"(_\d+)+$", "", node.name))
            env[node].meta = {**node.meta, "val": on_cpu(node.meta["val"])}
        return env[node]

    for node in region.members:
        clone(node)
    graph.output(tuple(env[o] for o in region.outputs))
    graph.eliminate_dead_code()
    owner = region.members[0].graph.owning_module
    module = fx.GraphModule(owner if owner is not None else {}, graph)
    original = {env[n].name: n.name for n in env if env[n].op != "placeholder"}
    return SubGraph(module, region.inputs, scalars, region.outputs, first.device, fake_mode, original)


def _map_devices(value: Any) -> Any:
    if isinstance(value, torch.device):
        return CPU
    if isinstance(value, (tuple, list)):
        return type(value)(_map_devices(v) for v in value)
    return {k: _map_devices(v) for k, v in value.items()} if isinstance(value, dict) else value


def _scalar_inputs(region: RegionNodes, members: set[fx.Node]) -> tuple[fx.Node, ...]:
    found: dict[fx.Node, None] = {}
    seen: set[fx.Node] = set()
    stack = list(reversed(region.members))
    given = set(region.inputs)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        for source in node.all_input_nodes:
            if not tensors_of(source):
                found[source] = None
            elif source not in members and source not in given:
                stack.append(source)
    return tuple(found)


def in_place_candidates(graph: fx.Graph, region: RegionNodes) -> dict[fx.Node, fx.Node]:
    """Region output -> the graph input that a ``copy_`` overwrites with it, where nothing else the region reads may alias it."""
    result: dict[fx.Node, fx.Node] = {}
    roots = [r for r in region.inputs if r.op != "placeholder"]
    members = set(region.members)
    for node in graph.find_nodes(op="call_function", target=aten.copy_.default):
        target, source = node.args[0], node.args[1]
        if not (isinstance(target, fx.Node) and isinstance(source, fx.Node)) or target.op != "placeholder":
            continue
        if source not in region.outputs or source in result or target in result.values() or len(node.args) > 2:
            continue
        if any(alias_root(r) is target for r in roots) or not _read_only_inside(target, node, members):
            continue
        result[source] = target
    return result


def _read_only_inside(target: fx.Node, copy: fx.Node, members: set[fx.Node]) -> bool:
    """Whether nothing but the region, and the copy itself, uses ``target``.

    A call that stands before the region is no exception: Inductor computes pointwise calls when their results are needed, and
    would then read what the region has written.
    """
    stack = list(target.users)
    while stack:
        user = stack.pop()
        if is_view(user):
            stack.extend(user.users)
        elif user is not copy and user not in members:
            return False
    return True


def alias_root(node: fx.Node) -> fx.Node:
    """The node whose storage ``node`` may share, through any op whose schema says that it returns an alias."""
    while node.op == "call_function" and node.args and isinstance(node.args[0], fx.Node):
        target = node.target
        aliasing = target is operator.getitem or (
            isinstance(target, torch._ops.OpOverload) and any(r.alias_info is not None for r in target._schema.returns)
        )
        if not (aliasing or target in VIEWS):
            break
        node = node.args[0]
    return node


def replace_region(graph: fx.Graph, region: RegionNodes, key: str, inputs: Sequence[fx.Node], targets: Mapping[fx.Node, fx.Node],
                   sizes: Sequence[Any], nodes: SizeNodes, op: Any) -> dict[fx.Node, fx.Node]:  # fmt: skip
    """Put one call of ``op`` (through ``auto_functionalized``) where the region was.

    ``inputs`` are the tensors it reads, ``targets`` the outputs written onto a graph input, ``sizes`` the size expressions it
    takes; ``nodes`` gives these and the outputs' shapes. The members are erased; the caller sorts the graph.
    Returns what became of each output.
    """
    anchor = region.members[-1]
    with graph.inserting_before(anchor):
        outputs = [targets[o] if o in targets else _empty_like(graph, o, nodes) for o in region.outputs]
        values = [o.meta["val"] for o in outputs]
        arguments: dict[str, Any] = {"key": key, "inputs": list(inputs), "outputs": outputs, "sizes": [nodes.node(e) for e in sizes]}
        call = graph.call_function(torch.ops.higher_order.auto_functionalized, (op,), arguments)
        call.meta["val"] = (None, values)
        results = graph.call_function(operator.getitem, (call, 1))
        results.meta["val"] = values
        new = []
        for position, value in enumerate(values):
            item = graph.call_function(operator.getitem, (results, position))
            item.meta["val"] = value
            new.append(item)
    members = set(region.members)
    for old, item in zip(region.outputs, new, strict=True):
        old.replace_all_uses_with(item, delete_user_cb=lambda user: user not in members)
    moved = dict(zip(region.outputs, new, strict=True))
    for twin, output in region.twins.items():
        moved[twin] = moved[output]
        twin.replace_all_uses_with(moved[output], delete_user_cb=lambda user: user not in members)
    _erase(graph, region)
    return moved


def _erase(graph: fx.Graph, region: RegionNodes) -> None:
    for node in reversed(region.members):
        for user in list(node.users):
            _erase_views(graph, user)
        if not node.users:
            graph.erase_node(node)


def _erase_views(graph: fx.Graph, node: fx.Node) -> None:
    if is_view(node):
        for user in list(node.users):
            _erase_views(graph, user)
        if not node.users:
            graph.erase_node(node)


def dense_like(t: torch.Tensor) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Shape and strides for a fresh tensor in place of ``t``: its own strides, or row-major ones where elements overlap."""
    shape, stride = tuple(t.shape), tuple(t.stride())
    if any(isinstance(s, int) and s == 0 and not (isinstance(n, int) and n <= 1) for n, s in zip(shape, stride, strict=True)):
        running: Any = 1
        dense = []
        for n in reversed(shape):
            dense.append(running)
            running = running * n
        stride = tuple(reversed(dense))
    return shape, stride


def _empty_like(graph: fx.Graph, node: fx.Node, nodes: SizeNodes) -> fx.Node:
    t = node.meta["val"]
    shape, stride = dense_like(t)
    kwargs = {"dtype": t.dtype, "device": t.device}
    sizes, steps = [nodes.node(n) for n in shape], [nodes.node(s) for s in stride]
    made = graph.call_function(aten.empty_strided.default, (sizes, steps), kwargs)
    with t.fake_mode:
        made.meta["val"] = torch.empty_strided(shape, stride, **kwargs)
    return made


def sort_graph(graph: fx.Graph) -> None:
    """Stable topological order: a node moves down only when one of its inputs stands below it. Calls that draw random numbers keep
    their order, for which each waits for the one before."""
    drawing = [n for n in graph.nodes if draws(n)]
    before = dict(zip(drawing[1:], drawing, strict=False))
    placed: set[fx.Node] = set()
    waiting: dict[fx.Node, list[fx.Node]] = {}
    last: fx.Node | None = None

    def place(node: fx.Node) -> None:
        nonlocal last
        stack = [node]
        while stack:
            n = stack.pop()
            awaited = [*n.all_input_nodes, before[n]] if n in before else n.all_input_nodes
            blocker = next((s for s in awaited if s not in placed), None)
            if blocker is not None:
                waiting.setdefault(blocker, []).append(n)
                continue
            if last is not None:
                last.append(n)
            last = n
            placed.add(n)
            stack.extend(reversed(waiting.pop(n, [])))

    for node in list(graph.nodes):
        place(node)
    if waiting:
        raise ValueError(f"the graph has a cycle through {next(iter(waiting))}")
    _sink_allocations(graph)


def _sink_allocations(graph: fx.Graph) -> None:
    """Move tensors that are made without values down to the first call that reads them.

    They wait for nothing, so that a sort leaves them where they stood, above what their readers wait for; Inductor would
    allocate them there.
    """
    order = {node: position for position, node in enumerate(graph.nodes)}
    for node in graph.find_nodes(op="call_function", target=aten.empty_strided.default):
        if node.users:
            min(node.users, key=order.__getitem__).prepend(node)


def copy_graph(graph: fx.Graph) -> fx.Graph:
    """The same nodes once more, in a graph of their own; values in ``meta`` are shared."""
    return _fill(fx.Graph(), graph)


def restore_graph(graph: fx.Graph, before: fx.Graph) -> None:
    """Make ``graph``, whatever became of it, what it was when `copy_graph` gave ``before``."""
    for node in list(graph.nodes):
        node.args, node.kwargs = (), {}
    for node in list(graph.nodes):
        graph.erase_node(node)
    _fill(graph, before)


def _fill(graph: fx.Graph, source: fx.Graph) -> fx.Graph:
    made: dict[fx.Node, fx.Node] = {}
    for node in source.nodes:
        made[node] = graph.node_copy(node, made.__getitem__)
    return graph
