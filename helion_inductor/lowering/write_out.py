"""A region's graph with the ops that Inductor has no loops for written out: lists of tensors, matrix products, attention."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from . import foreach, products
from .writing import Rule, Writer


def rule_of(target: object) -> Rule | None:
    """How to write out one result of an op without loops of its own; None where there is no way, or no need."""
    if not isinstance(target, torch._ops.OpOverload):
        return None
    return foreach.written_out(target) if foreach.is_foreach(target) else products.written_out(target)


def is_apart(graph: fx.Graph) -> bool:
    """Whether nothing in ``graph`` is to be written out or taken apart."""
    return not any(foreach.is_foreach(n.target) or rule_of(n.target) for n in graph.nodes)


def apart(graph: fx.Graph) -> tuple[fx.Graph, dict[fx.Node, str]]:
    """The same calls in a new graph, with ops over lists taken apart and what has a rule written out, and the call that each
    node of the new graph comes from."""
    result = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    origin: dict[fx.Node, str] = {}
    single: dict[fx.Node, list[fx.Node]] = {}
    values: dict[Any, Any] = {}
    for node in graph.nodes:
        source = node.args[0] if node.target is operator.getitem else None
        first = len(result.nodes)
        rule = rule_of(node.target)
        if foreach.is_foreach(node.target) and all(u.target is operator.getitem for u in node.users):
            count = len(node.meta["val"])
            single[node] = [
                foreach.one_of(result, node, k, made) if rule is None
                else _written(Writer(result, node.name, values), rule, foreach.own_arguments(node, k, made))
                for k in range(count)
            ]  # fmt: skip
        elif rule is not None and isinstance(node.meta["val"], tuple):
            single[node] = [_written(Writer(result, node.name, values), rule, _arguments(node, made))]
        elif rule is not None:
            made[node] = _written(Writer(result, node.name, values), rule, _arguments(node, made))
        elif source in single and rule_of(source.target) is not None:
            made[node] = single[source][node.args[1]]
        elif source in single:
            made[node] = result.call_function(operator.getitem, (single[source][node.args[1]], 0))
            made[node].meta = node.meta
        else:
            made[node] = result.node_copy(node, made.__getitem__)
        if len(result.nodes) > first:
            origin |= dict.fromkeys(_last(result, len(result.nodes) - first), node.name)
    return result, origin


def _written(w: Writer, rule: Rule, args: tuple[Any, ...]) -> fx.Node:
    return w.done(rule(w, *args))


def _arguments(node: fx.Node, made: Mapping[fx.Node, fx.Node]) -> tuple[Any, ...]:
    """All arguments of a call in the order of its schema, those left out as their defaults."""
    parameters = node.target._schema.arguments  # type: ignore[union-attr]
    given = dict(zip((a.name for a in parameters), node.args, strict=False)) | node.kwargs
    args = tuple(given.get(a.name, a.default_value) for a in parameters)
    return fx.node.map_arg(args, made.__getitem__)  # type: ignore[return-value]


def _last(graph: fx.Graph, count: int) -> list[fx.Node]:
    """The ``count`` nodes that were added last."""
    nodes = []
    backwards = iter(reversed(graph.nodes))
    for _ in range(count):
        nodes.append(next(backwards))
    return nodes
