"""What a graph says wrongly by the time it reaches our pass, put right before regions are carved.

AOTAutograd ends a graph with a ``copy_`` for each input that the program updated. Everywhere else the graph is functional: a
placeholder means the value that the input had on entry. A copy that reads an input must therefore run before the copy that
overwrites it, which the order of the inputs alone does not give.

A constant of no dimensions (``x[mask] = 2`` makes one) is a number by the time that Inductor calls an operator, and a region is
given tensors: as ``full`` its value goes into the region. Such a number made on the CPU may be combined with tensors of any
device: whoever reads it has one made where its own tensors are.
"""

from __future__ import annotations

import torch
from torch import fx

from .errors import ProgramError
from .fx_bridge import alias_root, fake_mode_of
from .lowering.families import family
from .lowering.partition import tensors_of

aten = torch.ops.aten


def repair_graph(graph: fx.Graph) -> None:
    """Order the copies at the end and write constants out; raises ProgramError where the program can only fail."""
    order_copies(graph)
    for node in graph.find_nodes(op="get_attr"):
        _write_out(graph, node)
    for node in graph.find_nodes(op="call_function", target=aten.full.default):
        _follow_readers(graph, node)
    for node in graph.find_nodes(op="call_function", target=aten._unsafe_index.Tensor):
        _check_source(node)
    for node in graph.find_nodes(op="call_function", target=aten.pow.Tensor_Scalar):
        _check_power(node)


def order_copies(graph: fx.Graph) -> None:
    """Let each copy into an input read what inputs held on entry; where copies wait for one another, values are set aside."""
    copies = [c for c in graph.find_nodes(op="call_function", target=aten.copy_.default, sort=True) if _updates_input(c)]
    first: dict[object, int] = {}
    for position, copy in enumerate(copies):
        first.setdefault(copy.args[0], position)
    if not any(first.get(_read_by(copy), position) < position for position, copy in enumerate(copies)):
        return
    waiting, ordered = list(copies), list[fx.Node]()
    while waiting:
        free = next((c for c in waiting if not any(_reads(other, c) for other in waiting if other is not c)), None)
        if free is None:
            free = waiting[0]
            for reader in (other for other in waiting if other is not free and _reads(other, free)):
                _set_aside(graph, reader, copies[0])
        waiting.remove(free)
        ordered.append(free)
    end = copies[-1].next
    for copy in ordered:
        end.prepend(copy)


def _updates_input(copy: fx.Node) -> bool:
    target, source = copy.args[:2]
    return isinstance(target, fx.Node) and target.op == "placeholder" and isinstance(source, fx.Node) and not copy.users


def _reads(copy: fx.Node, other: fx.Node) -> bool:
    """Whether ``copy`` reads, directly or through views, the input that ``other`` overwrites."""
    return _read_by(copy) is other.args[0]


def _read_by(copy: fx.Node) -> fx.Node:
    """What ``copy`` reads, through views."""
    source = copy.args[1]
    assert isinstance(source, fx.Node)
    return alias_root(source)


def _set_aside(graph: fx.Graph, copy: fx.Node, before: fx.Node) -> None:
    source = copy.args[1]
    assert isinstance(source, fx.Node)
    value = source.meta["val"]
    with graph.inserting_before(before):
        clone = graph.call_function(aten.clone.default, (source,))
        with value.fake_mode:
            clone.meta["val"] = value.clone()
    copy.args = (copy.args[0], clone, *copy.args[2:])


def _check_source(node: fx.Node) -> None:
    """An index into a dimension without elements has nothing to give, and kernels of this overload check no index."""
    source, indices = node.args[:2]
    assert isinstance(source, fx.Node) and isinstance(indices, (list, tuple))
    value, result = source.meta["val"], node.meta["val"]
    empty = [d for d, i in enumerate(indices) if i is not None and _is_zero(value.shape[d])]
    if empty and not any(_is_zero(n) for n in result.shape):
        raise ProgramError(f"{node.name} reads dimension {empty[0]} of a tensor of shape {tuple(value.shape)}: it has no elements")


def _check_power(node: fx.Node) -> None:
    base, exponent = node.args[:2]
    assert isinstance(base, fx.Node)
    dtype = base.meta["val"].dtype
    if isinstance(exponent, int) and exponent < 0 and not (dtype.is_floating_point or dtype.is_complex):
        raise ProgramError(f"{node.name} raises integers to the power of {exponent}: only floats have negative powers")


def _write_out(graph: fx.Graph, node: fx.Node) -> None:
    value = getattr(graph.owning_module, str(node.target), None)
    mode = fake_mode_of(graph)
    if type(value) is not torch.Tensor or value.dim() or value.dtype.is_complex or mode is None:
        return
    with graph.inserting_before(node):
        made = graph.call_function(aten.full.default, ([], value.item()), {"dtype": value.dtype, "device": value.device})
    with mode:
        made.meta["val"] = torch.empty((), dtype=value.dtype, device=value.device)
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _follow_readers(graph: fx.Graph, node: fx.Node) -> None:
    value, mode = node.meta.get("val"), fake_mode_of(graph)
    if not isinstance(value, torch.Tensor) or value.dim() or value.device.type != "cpu" or mode is None:
        return
    made: dict[torch.device, fx.Node] = {}
    for reader in list(node.users):
        devices = {t.device for t in tensors_of(reader)}
        elementwise = torch.Tag.pointwise in getattr(reader.target, "tags", ()) or family(reader.target) == "scatter"
        if not elementwise or len(devices) != 1 or (device := devices.pop()).type == "cpu":
            continue
        if device not in made:
            with graph.inserting_before(node), mode:
                made[device] = graph.call_function(aten.full.default, node.args, {**node.kwargs, "device": device})
                made[device].meta["val"] = torch.empty((), dtype=value.dtype, device=device)
        reader.replace_input_with(node, made[device])
    if not node.users:
        graph.erase_node(node)


def _is_zero(n: object) -> bool:
    return isinstance(n, int) and n == 0
