"""Ops over lists of tensors, taken apart: a ``_foreach_`` op over n tensors is n ops over one.

Where Inductor has loops for the foreach op, the n ops are foreach ops over a list of one. Where it has none, they are written
out in ops of one tensor that mean the same.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from .inductor_loops import WITHIN_LOOP, has_loop_lowering

aten = torch.ops.aten
prims = torch.ops.prims


@dataclass
class _Writer:
    """Adds calls to a graph, each with its value in ``meta``; equal calls on equal layouts are evaluated once."""

    graph: fx.Graph
    name: str
    seen: dict[Any, Any] = field(default_factory=dict)

    def call(self, target: Any, *args: Any) -> fx.Node:
        node = self.graph.create_node("call_function", target, args, {}, name=self.name)
        values = fx.node.map_arg(args, lambda n: n.meta["val"])
        node.meta = {"val": self._value(target, values), WITHIN_LOOP: True}
        return node

    def done(self, node: fx.Node) -> fx.Node:
        """The result of what was written, which other calls may read."""
        node.meta.pop(WITHIN_LOOP, None)
        return node

    def _value(self, target: Any, values: tuple[Any, ...]) -> Any:
        key = (target, *(_layout(v) for v in values))
        if any(isinstance(n, torch.SymInt) for v in values if isinstance(v, torch.Tensor) for n in (*v.shape, *v.stride())):
            return target(*values)
        if key not in self.seen:
            self.seen[key] = target(*values)
        return self.seen[key]

    def dtype(self, node: fx.Node) -> torch.dtype:
        return node.meta["val"].dtype  # type: ignore[no-any-return]

    def to(self, node: fx.Node, dtype: torch.dtype) -> fx.Node:
        return node if self.dtype(node) == dtype else self.call(prims.convert_element_type.default, node, dtype)


def _layout(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), tuple(value.stride())
    return repr(value)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """What eager accumulates norms in."""
    return dtype if dtype.itemsize >= 4 else torch.float32


def _power_sum(w: _Writer, x: fx.Node, order: float) -> fx.Node:
    """Sum of ``abs(x) ** order``; of the elements that are not 0 where the order is 0."""
    if order == 0:
        powers = w.to(w.call(aten.ne.Scalar, x, 0), w.dtype(x))
    elif order == 1:
        powers = w.call(aten.abs.default, x)
    elif order == 2:
        powers = w.call(aten.mul.Tensor, x, x)
    else:
        powers = w.call(aten.pow.Tensor_Scalar, w.call(aten.abs.default, x), order)
    return w.call(aten.sum.default, powers)


def _norm(w: _Writer, x: fx.Node, order: float = 2, dtype: torch.dtype | None = None) -> fx.Node:
    """``torch.linalg.vector_norm`` of all elements."""
    given = w.to(x, dtype) if dtype is not None else x
    result, given = w.dtype(given), w.to(given, _wide(w.dtype(given)))
    if math.isinf(order):
        extremum = aten.amax.default if order > 0 else aten.amin.default
        return w.to(w.call(extremum, w.call(aten.abs.default, given)), result)
    total = _power_sum(w, given, order)
    if order == 2:
        total = w.call(aten.sqrt.default, total)
    elif order not in (0, 1):
        total = w.call(aten.pow.Tensor_Scalar, total, 1 / order)
    return w.to(total, result)


def _powsum(w: _Writer, x: fx.Node, order: float = 2, dtype: torch.dtype | None = None) -> fx.Node:
    given = w.to(x, dtype) if dtype is not None else x
    result, given = w.dtype(given), w.to(given, _wide(w.dtype(given)))
    return w.to(_power_sum(w, given, order), result)


def _max(w: _Writer, x: fx.Node) -> fx.Node:
    return w.call(aten.amax.default, x)


_Written = Callable[..., fx.Node]
_WRITTEN: Mapping[str, _Written] = {"_foreach_norm.Scalar": _norm, "_foreach_powsum.Scalar": _powsum, "_foreach_max": _max}
_SCALARS: Mapping[str, Any] = {
    "_foreach_add.ScalarList": aten.add.Scalar, "_foreach_sub.ScalarList": aten.sub.Scalar, "_foreach_mul.ScalarList": aten.mul.Scalar,
    "_foreach_div.ScalarList": aten.div.Scalar, "_foreach_pow.ScalarList": aten.pow.Tensor_Scalar,
    "_foreach_clamp_min.ScalarList": aten.clamp_min.default, "_foreach_clamp_max.ScalarList": aten.clamp_max.default,
}  # fmt: skip


def is_foreach(target: object) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target._schema.name.startswith("aten::_foreach_")


def written_out(target: object) -> _Written | None:
    """How to write one of the n ops that a foreach op without loops of its own stands for; None where there is no way."""
    if not isinstance(target, torch._ops.OpOverload) or not is_foreach(target) or has_loop_lowering(target):
        return None
    name = target._schema.name.removeprefix("aten::") + (f".{target._overloadname}" if target._overloadname != "default" else "")
    if name in _WRITTEN:
        return _WRITTEN[name]
    one = _SCALARS.get(name)
    if len(target._schema.arguments) == 1:  # a function of each element: the op of the same name
        one = getattr(getattr(aten, name.removeprefix("_foreach_"), None), "default", None)
    if one is None or not has_loop_lowering(one):
        return None
    return lambda w, *args: w.call(one, *args)


def apart(graph: fx.Graph) -> tuple[fx.Graph, dict[fx.Node, str]]:
    """The same calls in a new graph, with ops over lists taken apart, and the call that each node of the new graph comes from."""
    result = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    origin: dict[fx.Node, str] = {}
    single: dict[fx.Node, list[fx.Node]] = {}
    values: dict[Any, Any] = {}
    for node in graph.nodes:
        source = node.args[0] if node.target is operator.getitem else None
        first = len(result.nodes)
        if is_foreach(node.target) and all(u.target is operator.getitem for u in node.users):
            one = written_out(node.target)
            count = len(node.meta["val"])
            single[node] = [
                _one_of(result, node, k, made) if one is None else _written(_Writer(result, node.name, values), one, _own(node, k, made))
                for k in range(count)
            ]
        elif source in single and written_out(source.target) is not None:
            made[node] = single[source][node.args[1]]
        elif source in single:
            made[node] = result.call_function(operator.getitem, (single[source][node.args[1]], 0))
            made[node].meta = node.meta
        else:
            made[node] = result.node_copy(node, made.__getitem__)
        if len(result.nodes) > first:
            origin |= dict.fromkeys(_last(result, len(result.nodes) - first), node.name)
    return result, origin


def _written(w: _Writer, one: _Written, args: tuple[Any, ...]) -> fx.Node:
    return w.done(one(w, *args))


def _last(graph: fx.Graph, count: int) -> list[fx.Node]:
    """The ``count`` nodes that were added last."""
    nodes = []
    backwards = iter(reversed(graph.nodes))
    for _ in range(count):
        nodes.append(next(backwards))
    return nodes


def _own(node: fx.Node, position: int, made: Mapping[fx.Node, fx.Node]) -> tuple[Any, ...]:
    """Arguments for one of its tensors: every list among the arguments of such an op has an entry for each tensor."""
    parameters = node.target._schema.arguments  # type: ignore[union-attr]
    given = dict(zip((a.name for a in parameters), node.args, strict=False)) | node.kwargs
    args = (given.get(a.name, a.default_value) for a in parameters)
    own = tuple(a[position] if isinstance(a, (list, tuple)) else a for a in args)
    return fx.node.map_arg(own, made.__getitem__)  # type: ignore[return-value]


def _one_of(graph: fx.Graph, node: fx.Node, position: int, made: Mapping[fx.Node, fx.Node]) -> fx.Node:
    """The op over a list of one of its tensors."""

    def own(argument: Any) -> Any:
        return [argument[position]] if isinstance(argument, (list, tuple)) else argument

    args, kwargs = tuple(map(own, node.args)), {k: own(v) for k, v in node.kwargs.items()}
    one = graph.create_node(node.op, node.target, *fx.node.map_arg((args, kwargs), made.__getitem__), name=node.name)
    one.meta = {**node.meta, "val": [node.meta["val"][position]]}
    return one
