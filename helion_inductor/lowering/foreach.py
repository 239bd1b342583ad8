"""Ops over lists of tensors, taken apart: a ``_foreach_`` op over n tensors is n ops over one.

Where Inductor has loops for the foreach op, the n ops are foreach ops over a list of one. Where it has none, there are rules that
write them out in ops of one tensor that mean the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from .inductor_loops import has_loop_lowering
from .writing import Rule, Writer

aten = torch.ops.aten


def _wide(dtype: torch.dtype) -> torch.dtype:
    """What eager accumulates norms in."""
    return dtype if dtype.itemsize >= 4 else torch.float32


def _power_sum(w: Writer, x: fx.Node, order: float) -> fx.Node:
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


def _norm(w: Writer, x: fx.Node, order: float = 2, dtype: torch.dtype | None = None) -> fx.Node:
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


def _powsum(w: Writer, x: fx.Node, order: float = 2, dtype: torch.dtype | None = None) -> fx.Node:
    given = w.to(x, dtype) if dtype is not None else x
    result, given = w.dtype(given), w.to(given, _wide(w.dtype(given)))
    return w.to(_power_sum(w, given, order), result)


def _max(w: Writer, x: fx.Node) -> fx.Node:
    return w.call(aten.amax.default, x)


_WRITTEN: Mapping[str, Rule] = {"_foreach_norm.Scalar": _norm, "_foreach_powsum.Scalar": _powsum, "_foreach_max": _max}
_SCALARS: Mapping[str, Any] = {
    "_foreach_add.ScalarList": aten.add.Scalar, "_foreach_sub.ScalarList": aten.sub.Scalar, "_foreach_mul.ScalarList": aten.mul.Scalar,
    "_foreach_div.ScalarList": aten.div.Scalar, "_foreach_pow.ScalarList": aten.pow.Tensor_Scalar,
    "_foreach_clamp_min.ScalarList": aten.clamp_min.default, "_foreach_clamp_max.ScalarList": aten.clamp_max.default,
}  # fmt: skip


def is_foreach(target: object) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target._schema.name.startswith("aten::_foreach_")


def written_out(target: object) -> Rule | None:
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


def own_arguments(node: fx.Node, position: int, made: Mapping[fx.Node, fx.Node]) -> tuple[Any, ...]:
    """Arguments for one of its tensors: every list among the arguments of such an op has an entry for each tensor."""
    parameters = node.target._schema.arguments  # type: ignore[union-attr]
    given = dict(zip((a.name for a in parameters), node.args, strict=False)) | node.kwargs
    args = (given.get(a.name, a.default_value) for a in parameters)
    own = tuple(a[position] if isinstance(a, (list, tuple)) else a for a in args)
    return fx.node.map_arg(own, made.__getitem__)  # type: ignore[return-value]


def one_of(graph: fx.Graph, node: fx.Node, position: int, made: Mapping[fx.Node, fx.Node]) -> fx.Node:
    """The op over a list of one of its tensors."""

    def own(argument: Any) -> Any:
        return [argument[position]] if isinstance(argument, (list, tuple)) else argument

    args, kwargs = tuple(map(own, node.args)), {k: own(v) for k, v in node.kwargs.items()}
    one = graph.create_node(node.op, node.target, *fx.node.map_arg((args, kwargs), made.__getitem__), name=node.name)
    one.meta = {**node.meta, "val": [node.meta["val"][position]]}
    return one
