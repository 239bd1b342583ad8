"""Carve convex regions out of a post-grad FX graph.

Note [Levels]: every supported node gets a level such that all supported nodes of one level form one convex region.  A supported
node's level is the largest of: the levels of its supported inputs, and, for each unsupported input, one more than the level of
any region that input waits for.  A path that leaves a region through an unsupported node can then only come back at a higher
level.  Independent work of the whole graph lands in as few regions as the unsupported nodes allow, in one linear walk.

Calls outside of regions that draw from a generator keep their order: each waits for the one before, as for an input.

Views belong to no region: a region clones the view chains it reads through, and a view of a region's result stays outside,
where Inductor makes it free.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx

from ..errors import Unsupported
from ..options import Options
from .equal_values import equal_results
from .families import LEFT_TO_INDUCTOR, PRODUCTS, VIEWS, family, overload_name
from .inductor_loops import has_loop_lowering
from .products import refusal
from .write_out import rule_of

_HINTS = {
    "recomputed": "regions='all' stores it",
    "peak-memory": "regions='all' takes it anyway",
    "not-opted-in": "set ops={...: True}",
    "family": "convolutions and collectives are left to Inductor",
    "product-rows": "ops={'matmul': True} takes it anyway",
    "attention-rows": "ops={'attention': True} takes it anyway",
}


@dataclass(frozen=True)
class Refusal:
    """A node left to Inductor: why (``code``), which, what exactly, and what to change if anything."""

    code: str
    node: str
    detail: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.node}: {self.code}: {self.detail}" + (f" ({self.hint})" if self.hint else "")


@dataclass(frozen=True)
class RegionNodes:
    """Nodes of one region in graph order, its tensor inputs, and the members that the rest of the graph reads; ``twins`` maps
    further such members to the output whose value they share."""

    members: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]
    twins: Mapping[fx.Node, fx.Node] = field(default_factory=dict)


@dataclass(frozen=True)
class PartitionPlan:
    """Regions in level order, and a refusal for every call left out."""

    regions: tuple[RegionNodes, ...]
    refusals: tuple[Refusal, ...]

    def __str__(self) -> str:
        lines = [f"region {k}: {' '.join(n.name for n in r.members)}" for k, r in enumerate(self.regions)]
        return "\n".join(lines + [f"left {r}" for r in self.refusals])


def tensors_of(node: fx.Node) -> list[torch.Tensor]:
    """Fake tensors that a node yields."""
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else [value]
    return [v for v in values if isinstance(v, torch.Tensor)]


def is_view(node: fx.Node) -> bool:
    """A view op, or a member of a tuple of views."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and is_view(node.args[0])
    return node.target in VIEWS


def draws(node: fx.Node) -> bool:
    """Whether a call takes numbers from a device's generator, so that it matters which call comes first; attention without
    dropout does not, and what calls another operator does if that one does."""
    target: object = node.target
    args = node.args
    if isinstance(target, torch._ops.HigherOrderOperator):
        called = next((k for k, a in enumerate(args) if isinstance(a, torch._ops.OpOverload)), None)
        if called is None:
            return False
        target, args = args[called], args[called + 1 :]
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    names = [a.name for a in target._schema.arguments]
    given = dict(zip(names, args, strict=False)) | dict(node.kwargs)
    return "dropout_p" not in names or bool(given.get("dropout_p", 0.0) != 0.0)


def unsupported(node: fx.Node, options: Options) -> Unsupported | None:
    """Why a call cannot be part of a region; None when it can."""
    target = node.target
    if target is operator.getitem:
        source = node.args[0]
        return unsupported(source, options) if isinstance(source, fx.Node) else Unsupported("not-an-op", "getitem of a constant")
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return Unsupported("not-an-op", f"{target} is not an aten or prims op")
    kind = family(target)
    if kind in LEFT_TO_INDUCTOR:
        return Unsupported("family", f"{kind}: {overload_name(target)}")
    if (chosen := options.op_choice(_names(node), (kind,))) is False:
        return Unsupported("not-opted-in", f"{overload_name(target)} is switched off by the option ops")
    if chosen is None and target is torch.ops.prims.inductor_seeds.default:
        return Unsupported("no-lowering", "the seeds of a graph are drawn once, by the graph")
    if target._schema.is_mutable:
        return Unsupported("mutation", f"{overload_name(target)} writes to an argument")
    if not has_loop_lowering(target) and rule_of(target) is None:
        return Unsupported("no-lowering", f"{overload_name(target)} has no loop lowering")
    if kind in PRODUCTS and (why := refusal(node, opted_in=chosen is True)) is not None:
        return why
    return _bad_values(node)


def _names(node: fx.Node) -> list[str]:
    original = node.meta.get("original_aten")
    return [overload_name(node.target)] + ([overload_name(original)] if original is not None else [])


def _bad_values(node: fx.Node) -> Unsupported | None:
    results = tensors_of(node)
    if not results:
        return Unsupported("not-a-tensor", "yields no tensor")
    if node.meta.get("unbacked_bindings"):
        return Unsupported("data-dependent", "its size depends on data")
    devices = {t.device for t in results}
    for source in node.all_input_nodes:
        devices |= {t.device for t in tensors_of(source)}
        if _is_constant(source):
            return Unsupported("constant", "reads a tensor that the program writes down, which Inductor may turn into a number")
        if isinstance(source.meta.get("val"), (torch.SymFloat, torch.SymBool)):
            return Unsupported("symbolic-scalar", "an argument is a symbolic float or bool")
    if len(devices) > 1:
        return Unsupported("mixed-devices", f"touches {', '.join(sorted(map(str, devices)))}")
    for t in [*results, *(t for s in node.all_input_nodes for t in tensors_of(s))]:
        if t.dtype.is_complex or t.layout is not torch.strided or t.is_quantized:
            return Unsupported("dtype", f"{t.dtype} {t.layout} is not computed in kernels")
    if any(isinstance(n, int) and n == 0 for t in results for n in t.shape):
        return Unsupported("empty", "has no elements")
    return None


def _is_constant(node: fx.Node) -> bool:
    """An attribute of the graph's module, or a view of one: no buffer stands behind it that a region could be handed."""
    while is_view(node):
        node = node.all_input_nodes[0]
    return node.op == "get_attr"


def partition(graph: fx.Graph, options: Options, refused: Mapping[str, Unsupported], devices: Iterable[str]) -> PartitionPlan:
    """Regions of ``graph`` on ``devices`` (types). ``refused`` adds reasons found by trying to lower, by node name."""
    level: dict[fx.Node, int] = {}
    ready: dict[fx.Node, int] = {}
    refusals: list[Refusal] = []
    wanted = set(devices)
    made = made_nodes(graph, options, refused)
    known: dict[fx.Node, Unsupported | None] = {}
    drawn = 0  # the level that the latest draw outside of regions waited for
    for node in graph.nodes:
        sources = node.all_input_nodes
        if node.op != "call_function":
            ready[node] = max((ready.get(s, 0) for s in sources), default=0)
            continue
        waits = max((level[s] + 1 if s in level else ready[s] for s in sources), default=0)
        if is_view(node):
            inner = sources[0]
            ready[node] = waits
            if inner in level:
                level[node] = level[inner]
            continue
        if node in made and options.regions == "auto":
            ready[node] = waits
            continue
        reason = _reason(node, options, refused, wanted, known)
        if reason is not None:
            if draws(node):
                waits = drawn = max(waits, drawn)
            ready[node] = waits
            if node.target is not operator.getitem:
                refusals.append(Refusal(reason.code, node.name, reason.detail, _HINTS.get(reason.code, "")))
            continue
        level[node] = max((level[s] if s in level else ready[s] for s in sources), default=0)
        ready[node] = level[node] + 1
    regions: dict[tuple[int, torch.device], list[fx.Node]] = {}
    for node, at in level.items():
        if not is_view(node) and (node not in made or _needed_outside(node, level, options)):
            regions.setdefault((at, tensors_of(node)[0].device), []).append(node)
    ordered = sorted(regions, key=lambda k: (k[0], str(k[1])))
    refusals += [
        Refusal("recomputed", n.name, "made from sizes and constants; whoever reads it outside of regions makes it", _HINTS["recomputed"])
        for n in made if not is_view(n) and options.regions == "auto" and _escapes(n, set(level))
    ]  # fmt: skip
    return PartitionPlan(tuple(_region(regions[k], made) for k in ordered), tuple(refusals))


def _needed_outside(node: fx.Node, level: Mapping[fx.Node, int], options: Options) -> bool:
    """Whether a made node is to be stored by a region, for calls outside of regions to read."""
    return options.regions == "all" and _escapes(node, set(level))


def _reason(node: fx.Node, options: Options, refused: Mapping[str, Unsupported], devices: set[str],
            known: dict[fx.Node, Unsupported | None]) -> Unsupported | None:  # fmt: skip
    """Why a call stays out; a member of a tuple stays with the call that yields it, about which ``known`` remembers."""
    source = node.args[0] if node.target is operator.getitem else node
    if not isinstance(source, fx.Node):
        return Unsupported("not-an-op", "getitem of a constant")
    for name in (source.name, node.name):
        if name in refused:
            return refused[name]
    if source not in known:
        known[source] = unsupported(source, options)
    reason = known[source]
    if reason is None and tensors_of(node)[0].device.type not in devices:
        return Unsupported("device", f"no kernels are made for {tensors_of(node)[0].device}")
    return reason


def _roots(node: fx.Node, inside: set[fx.Node], made: set[fx.Node]) -> list[fx.Node]:
    """Tensors that a region must be given to have ``node``: it clones views and made nodes, and has its members."""
    if node in inside or not tensors_of(node):
        return []
    if not is_view(node) and node not in made:
        return [node]
    return [root for source in node.all_input_nodes for root in _roots(source, inside, made)]


def made_nodes(graph: fx.Graph, options: Options, refused: Mapping[str, Unsupported]) -> set[fx.Node]:
    """Nodes computed from nothing but sizes and constants by creation and pointwise ops (masks, ramps, fills).

    Like views they belong to no region: recomputing one where it is read is cheaper than storing it and reading it back.
    """
    made: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem or not tensors_of(node):
            continue
        tensors = [s for s in node.all_input_nodes if tensors_of(s)]
        if not all(s in made for s in tensors):
            continue
        kind = family(node.target)
        if kind == "creation" or (tensors and (kind == "view" or torch.Tag.pointwise in getattr(node.target, "tags", ()))):
            if node.name not in refused and (is_view(node) or unsupported(node, options) is None):
                made.add(node)
    return made


def _region(members: Sequence[fx.Node], made: set[fx.Node]) -> RegionNodes:
    inside = set(members)
    inputs: dict[fx.Node, None] = {}
    outputs = []
    for node in members:
        for source in node.all_input_nodes:
            inputs.update(dict.fromkeys(_roots(source, inside, made)))
        if isinstance(node.meta.get("val"), torch.Tensor) and _escapes(node, inside):
            outputs.append(node)
    twins = equal_results(outputs, inside | made)
    return RegionNodes(tuple(members), tuple(inputs), tuple(o for o in outputs if o not in twins), twins)


def _escapes(node: fx.Node, inside: set[fx.Node]) -> bool:
    """Whether a call outside the region, or the graph's output, reads ``node``, directly or through views."""
    for user in node.users:
        if user in inside:
            continue
        if not is_view(user) or _escapes(user, inside):
            return True
    return False
