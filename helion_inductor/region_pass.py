"""The pass over one post-grad graph: partition, compile each region, keep what pays, put the calls in place."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from . import compat
from .device import H200, describe
from .errors import Unsupported
from .fx_bridge import (
    SubGraph,
    copy_graph,
    dense_like,
    fake_mode_of,
    in_place_candidates,
    replace_region,
    restore_graph,
    sort_graph,
    sub_graph,
)
from .fx_memory import GraphMemory, Placed
from .fx_memory_rule import Peak, next_cut, peak_of
from .fx_sizes import SizeNodes, symbol_hints
from .lowering.inductor_loops import LoopRefused
from .lowering.partition import PartitionPlan, Refusal, RegionNodes, made_nodes, partition
from .options import Options
from .pipeline import CompiledRegion, RegionInput, compile_region
from .report import GraphReport, RegionReport
from .scheduling.device_model import DeviceModel, device_model
from .scheduling.guard import Prediction, pays, predict
from .scheduling.tile_sizes import TileTarget
from .tuning import Tuner, Tuning, graph_version

CAPTURED_MODES = ("reduce-overhead", "max-autotune")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PassSettings:
    """What the pass needs of its surroundings: options, device kinds it makes kernels for, tile targets by device, what is done to
    a region that was compiled for a device (nothing in a dry run), and what chooses by measuring, if anything."""

    options: Options
    devices: frozenset[str]
    target: Callable[[torch.device], TileTarget]
    finish: Callable[[CompiledRegion, torch.device, DeviceModel], CompiledRegion] = lambda region, device, model: region
    tuner: Tuner | None = None


@dataclass(frozen=True)
class PlannedRegion:
    """A region of a graph with what it compiled to; ``in_place`` maps the name of an output to the graph input it is written on,
    ``prediction`` is None where kernels are made for the interpreter; not ``possible`` where the graph cannot hold its call;
    ``original`` maps names of the region's own graph, ``module``, to those of the whole one, ``code`` is that of the refusals where
    not ``taken``."""

    nodes: RegionNodes
    compiled: CompiledRegion
    in_place: dict[str, fx.Node]
    taken: bool
    reason: str
    prediction: Prediction | None = None
    possible: bool = True
    tuning: Tuning | None = None
    original: Mapping[str, str] = field(default_factory=dict)
    module: fx.GraphModule | None = None
    code: str = "does-not-pay"

    def gain_us(self) -> float:
        """Predicted microseconds of a call that the region saves."""
        t = self.prediction
        return 0.0 if t is None else max(t.inductor, t.inductor_host) - max(t.region, t.host)


_Weighed = tuple[list[PlannedRegion], dict[str, Unsupported], Peak | None]


def calls_of(graph: fx.Graph) -> list[fx.Node]:
    return [n for n in graph.nodes if n.op == "call_function"]


def plan_graph(name: str, graph: fx.Graph, settings: PassSettings) -> tuple[list[PlannedRegion], GraphReport]:
    """Compile all regions of ``graph``, leaving it as it is. Nodes that turn out not to be loops are refused, and the rest is
    carved anew, until every region compiles."""
    options = settings.options
    refused: dict[str, Unsupported] = {}
    calls = len(calls_of(graph))
    if options.regions == "none" or fake_mode_of(graph) is None:
        reason = "regions is 'none'" if options.regions == "none" else "the graph holds no fake tensors"
        left = tuple(Refusal("not-opted-in", n.name, reason) for n in calls_of(graph))
        return [], GraphReport(name, calls, (), left)
    done: dict[tuple[str, ...], PlannedRegion] = {}
    equal: dict[str, CompiledRegion] = {}
    nodes = SizeNodes(graph)
    apart: list[Placed] = []
    while True:
        plan = partition(graph, options, refused, settings.devices)
        found: dict[str, Unsupported] = {}
        planned: list[PlannedRegion] = []
        for region in plan.regions:
            member_names = tuple(n.name for n in region.members)
            try:
                if member_names not in done:
                    done[member_names] = _plan_region(graph, region, settings, equal, nodes)
                planned.append(done[member_names])
            except LoopRefused as refusal:
                names = [n for n in (refusal.node, *refusal.others) if n in member_names]
                found.update({n: refusal.reason for n in names or member_names})
        if not found:
            made = made_nodes(graph, options, refused)
            planned, found, peak = _within_memory(graph, planned, made, settings, apart)
        if not found:
            if settings.tuner is not None:
                planned, _, peak = _within_memory(graph, _tuned(planned, settings), made, settings, apart, parts=False)
            return planned, _report(name, calls, planned, plan, graph, peak)
        refused |= found


def failed_graph(name: str, graph: fx.Graph, error: Exception) -> GraphReport:
    """The report of a graph that stays with Inductor because the compiler failed on it."""
    calls = calls_of(graph)
    why = f"{type(error).__name__}: {error}".splitlines()[0]
    return GraphReport(name, len(calls), (), tuple(Refusal("error", n.name, why, "on_error='raise' shows where") for n in calls))


def left_graph(name: str, graph: fx.Graph, caller: str) -> GraphReport:
    """The report of a graph that an operator calls, which stays with Inductor."""
    calls = calls_of(graph)
    return GraphReport(name, len(calls), (), tuple(Refusal("nested", n.name, f"in a graph that {caller} calls") for n in calls))


def _within_memory(graph: fx.Graph, planned: Sequence[PlannedRegion], made: set[fx.Node], settings: PassSettings,
                   apart: list[Placed], *, parts: bool = True) -> _Weighed:  # fmt: skip
    """The regions without those that would hold too much memory, or nodes to be left out, for which the graph is to be carved anew.
    Only what was predicted to pay is weighed so: the option that takes all regions takes them all. ``apart`` has the parts of regions
    that were left out before, and gets those that are now."""
    left = list(planned)
    if settings.options.regions != "auto" or not any(p.taken and p.prediction is not None for p in left):
        return left, {}, None
    memory = GraphMemory(graph, [Placed(p.nodes, p.compiled, p.original, p.in_place) for p in left] + apart, made)
    gains = {k: p.gain_us() for k, p in enumerate(left)}
    while True:
        alike: dict[str, list[int]] = {}
        for k, p in enumerate(left):
            if p.taken:
                alike.setdefault(p.compiled.key, []).append(k)
        cut = next_cut(memory, [*map(tuple, alike.values())], gains, parts=parts)
        if cut is None:
            return left, {}, peak_of(memory, {k: memory.regions[k].nests() for ks in alike.values() for k in ks})
        if not cut.whole:
            nodes = [n for k in cut.regions for n in memory.regions[k].calls_of(cut.nests)]
            apart += [memory.regions[k].left_out(cut.nests) for k in cut.regions]
            return left, dict.fromkeys(nodes, Unsupported("peak-memory", str(cut))), None
        for k in cut.regions:
            left[k] = replace(left[k], taken=False, reason=str(cut), code="peak-memory")


def _report(name: str, calls: int, planned: list[PlannedRegion], plan: PartitionPlan, graph: fx.Graph,
            peak: Peak | None) -> GraphReport:  # fmt: skip
    regions = tuple(
        RegionReport(p.compiled, tuple(n.name for n in p.nodes.members), p.taken, p.reason, p.prediction, p.tuning, p.module)
        for p in planned
    )
    hint = "regions='all' takes it anyway"
    unpaid = [Refusal(p.code, n.name, p.reason, hint) for p in planned if not p.taken for n in p.nodes.members]
    in_place = _written_in_place(planned, graph)
    refusals = (*(r for r in plan.refusals if r.node not in in_place), *unpaid)
    return GraphReport(name, calls, regions, refusals, "" if peak is None else str(peak))


def _written_in_place(planned: list[PlannedRegion], graph: fx.Graph) -> set[str]:
    """Names of the ``copy_`` calls that have nothing left to copy, because a region writes to their target itself."""
    pairs = {(output, target.name) for p in planned if p.taken for output, target in p.in_place.items()}
    copies = graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    return {n.name for n in copies if (str(n.args[1]), str(n.args[0])) in pairs}


def _plan_region(graph: fx.Graph, region: RegionNodes, settings: PassSettings, equal: dict[str, CompiledRegion],
                 nodes: SizeNodes) -> PlannedRegion:  # fmt: skip
    sub = sub_graph(region)
    wanted = in_place_candidates(graph, region)
    outputs = {o: f"y{k}" for k, o in enumerate(region.outputs)}
    inputs = {n: f"x{k}" for k, n in enumerate(region.inputs)}
    pairs = tuple((outputs[o], inputs[target]) for o, target in wanted.items() if target in inputs)
    compiled = _compile(sub, tuple(outputs.values()), pairs, settings, equal)
    granted = {d.output for d in compiled.in_place if d.granted}
    unread = {outputs[o] for o, t in wanted.items() if t not in inputs and _same_layout(o, t)}
    targets = {o.name: t for o, t in wanted.items() if outputs[o] in granted | unread}
    plan = PlannedRegion(region, compiled, targets, *_judge(compiled, sub.device, settings), original=sub.original, module=sub.module)
    if missing := nodes.missing([*_sizes(compiled, nodes), *_output_sizes(plan.nodes)]):
        return replace(plan, taken=False, possible=False, reason=f"no node of the graph carries the size {missing[0]}")
    for node in plan.nodes.outputs:
        if not compat.can_compare_strides(sub.fake_mode.shape_env, dense_like(node.meta["val"])[1]):
            return replace(plan, taken=False, possible=False, reason=f"Inductor cannot reason about the strides of {node.name}")
    return plan


def _model_of(device: torch.device) -> DeviceModel:
    """What times are predicted for; tensors on the CPU are taken to be on an H200."""
    return device_model(describe(device) if device.type == "cuda" else H200)


def _judge(compiled: CompiledRegion, device: torch.device, settings: PassSettings) -> tuple[bool, str, Prediction | None]:
    """(whether the region is taken, why (not), the times predicted for it)"""
    if settings.target(device).interpreter:
        return True, "the interpreter runs every region", None
    times = predict(compiled.program, compiled.schedules, _model_of(device), compiled.fused)
    return *_decide(times, settings), times


def _decide(times: Prediction, settings: PassSettings) -> tuple[bool, str]:
    if settings.options.regions != "auto":
        return True, f"regions='{settings.options.regions}'"
    return pays(times, captured=settings.options.mode in CAPTURED_MODES)


def _tuned(planned: list[PlannedRegion], settings: PassSettings) -> list[PlannedRegion]:
    """The regions on the fastest kernels that were measured; equal ones are measured once, those of most time first."""
    tuner = settings.tuner
    if tuner is None:
        return planned
    alike: dict[str, list[PlannedRegion]] = {}
    for p in planned:
        if p.possible and p.prediction is not None:
            alike.setdefault(p.compiled.key, []).append(p)
    order = sorted(alike.values(), key=lambda ps: -len(ps) * (ps[0].prediction.region if ps[0].prediction else 0.0))
    found: dict[int, PlannedRegion] = {}
    for number, group in enumerate(order):
        graph = graph_version(sub_graph(group[0].nodes).module, tuner.device)
        compiled, tuning = tuner.tune(group[0].compiled, graph, f"region {number + 1} of {len(order)}")
        for p in group:
            found[id(p)] = _with_times(replace(p, compiled=compiled, tuning=tuning), settings)
    return [found.get(id(p), p) for p in planned]


def _with_times(plan: PlannedRegion, settings: PassSettings) -> PlannedRegion:
    """The decision about a region once more, with the times that were measured in place of those predicted."""
    tuning, times = plan.tuning, plan.prediction
    if times is None or tuning is None or tuning.chosen is None or tuning.chosen.us is None:
        return plan
    theirs = tuning.graph.us if tuning.graph is not None else None
    count = len(plan.compiled.schedules)
    times = replace(
        times, kernels=(tuning.chosen.us / count,) * count, measured=True, inductor=times.inductor if theirs is None else theirs,
        filling_us=times.filling_us if theirs is None else 0.0,
    )  # fmt: skip
    taken, reason = _decide(times, settings)
    return replace(plan, prediction=times, taken=taken, reason=reason)


def _compile(sub: SubGraph, outputs: tuple[str, ...], pairs: tuple[tuple[str, str], ...], settings: PassSettings,
             equal: dict[str, CompiledRegion]) -> CompiledRegion:  # fmt: skip
    """Compile a sub-graph, once for all that are equal to it."""
    structure = f"{sub.structure()}\n{pairs}"
    if structure not in equal:
        layouts = tuple(dense_like(o.meta["val"]) for o in sub.outputs)
        hints = symbol_hints(sub.module.graph.nodes)
        region = RegionInput("region", sub.module, sub.fake_mode, outputs, layouts, hints, pairs)
        try:
            model = _model_of(sub.device)
            compiled = compile_region(region, settings.options, settings.target(sub.device), model)
            equal[structure] = settings.finish(compiled, sub.device, model)
        except LoopRefused as refusal:
            first, *others = (sub.original.get(n, n) for n in (refusal.node, *refusal.others))
            raise LoopRefused(first, refusal.reason, others) from refusal
    return equal[structure]


def _same_layout(a: fx.Node, b: fx.Node) -> bool:
    x, y = a.meta["val"], b.meta["val"]
    return x.dtype == y.dtype and tuple(x.shape) == tuple(y.shape) and tuple(x.stride()) == tuple(y.stride())


def _sizes(compiled: CompiledRegion, nodes: SizeNodes) -> list[Any]:
    """The size arguments of a region's call, as expressions over the graph's symbols."""
    return [compiled.size_values.get(s.name, nodes.symbol(s.name)) for s in compiled.program.sizes]


def _output_sizes(region: RegionNodes) -> list[Any]:
    layouts = [dense_like(o.meta["val"]) for o in region.outputs]
    return [n for shape, stride in layouts for n in (*shape, *stride)]


def rewrite_graph(graph: fx.Graph, planned: list[PlannedRegion], op: Any) -> None:
    """Replace every taken region by its call; a graph for which that fails is left as it was."""
    before = copy_graph(graph)
    try:
        _rewrite(graph, planned, op)
    except Exception:
        restore_graph(graph, before)
        raise


def _rewrite(graph: fx.Graph, planned: list[PlannedRegion], op: Any) -> None:
    moved: dict[fx.Node, fx.Node] = {}
    nodes = SizeNodes(graph)
    for plan in planned:
        if not plan.taken:
            continue
        compiled = plan.compiled
        by_name = {f"x{k}": moved.get(n, n) for k, n in enumerate(plan.nodes.inputs)}
        inputs = [by_name[n] for n in compiled.inputs]
        targets = {o: plan.in_place[o.name] for o in plan.nodes.outputs if o.name in plan.in_place}
        moved |= replace_region(graph, plan.nodes, compiled.key, inputs, targets, _sizes(compiled, nodes), nodes, op)
    sort_graph(graph)
    graph.eliminate_dead_code()
    graph.lint()
