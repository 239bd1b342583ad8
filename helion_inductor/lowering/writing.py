"""Writing an op out as calls of simpler ops, in a graph of its own: what Inductor has no loops for becomes what it has loops for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from .inductor_loops import ROW_MAJOR, WITHIN_LOOP

prims = torch.ops.prims


@dataclass
class Writer:
    """Adds calls to a graph, each with its value in ``meta``; equal calls on equal layouts are evaluated once."""

    graph: fx.Graph
    name: str
    seen: dict[Any, Any] = field(default_factory=dict)

    def call(self, target: Any, *args: Any) -> fx.Node:
        node = self.graph.create_node("call_function", target, args, {}, name=self.name)
        values = fx.node.map_arg(args, lambda n: n.meta["val"])
        node.meta = {"val": self._value(target, values), WITHIN_LOOP: True}
        return node

    def create(self, target: Any, like: fx.Node, *args: Any, **kwargs: Any) -> fx.Node:
        """A tensor made from nothing, on the device of ``like``."""
        kwargs["device"] = like.meta["val"].device
        node = self.graph.create_node("call_function", target, args, kwargs, name=self.name)
        with like.meta["val"].fake_mode:
            node.meta = {"val": target(*args, **kwargs), WITHIN_LOOP: True}
        return node

    def row_major(self, node: fx.Node) -> fx.Node:
        """The same, laid out so that the last dimension walks memory if it is stored, whatever the layout of what it reads."""
        node.meta[ROW_MAJOR] = True
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


Rule = Callable[..., fx.Node]
"""Writes out one result of an op: takes a :class:`Writer` and the op's arguments."""
