"""Size expressions as nodes of an FX graph: finds the node that carries a size, or builds one from those that do."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx

from . import compat
from .errors import InternalError

aten = torch.ops.aten
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": operator.add, "Mul": operator.mul, "FloorDiv": operator.floordiv, "CleanDiv": operator.floordiv,
    "Mod": operator.mod, "PythonMod": operator.mod, "Max": torch.sym_max, "Min": torch.sym_min,
}  # fmt: skip


@dataclass(frozen=True)
class _Dim:
    """``node.shape[dim]``"""

    node: fx.Node
    dim: int


@dataclass(frozen=True)
class _Call:
    """``function`` applied to plans, from left to right."""

    function: Callable[..., Any]
    args: tuple[Any, ...]


_Plan = int | fx.Node | _Dim | _Call


@dataclass(frozen=True)
class _Sources:
    """Sizes to derive others from, and those that are being solved for."""

    known: Mapping[sympy.Expr, fx.Node | _Dim]
    solving: frozenset[sympy.Expr] = frozenset()


class SizeNodes:
    """The sizes that one graph can give.

    A size is known when some node has it as value, or some tensor as a dimension: what a graph is handed for its backward
    are often such composite sizes, without the symbols in them. Everything else is computed from known sizes; a symbol, or a
    function of one, is also solved for where a known size is linear in it.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.known: dict[sympy.Expr, fx.Node | _Dim] = {}
        self._given: dict[sympy.Expr, fx.Node | _Dim] = {}
        self._plans: dict[sympy.Expr, _Plan | None] = {}
        self._built: dict[_Plan, fx.Node] = {}
        for node in graph.nodes:
            for e, source in _carried(node):
                self.known.setdefault(e, source)
                if node.op == "placeholder":
                    self._given.setdefault(e, source)

    def missing(self, sizes: Iterable[Any]) -> list[str]:
        """Text of those of ``sizes`` (ints, SymInts or expressions) that the graph cannot give."""
        return [str(e) for e in map(_expression, sizes) if self._plan(e) is None]

    def node(self, size: Any) -> int | fx.Node:
        """An int or a node whose value is ``size``; raises InternalError where `missing` names it."""
        if isinstance(size, int):
            return size
        e = _expression(size)
        plan = self._plan(e)
        if plan is None:
            raise InternalError(f"no node of the graph carries the size {e}", rule="known-size")
        return self._build(plan)

    def symbol(self, name: str) -> sympy.Symbol:
        """The graph's symbol of this name; one that the graph does not know where there is none."""
        return next((s for e in self.known for s in e.free_symbols if s.name == name), sympy.Symbol(name, integer=True))

    def _plan(self, e: sympy.Expr) -> _Plan | None:
        """How to come by ``e``: from what the graph is given if that will do, for a size that is taken from a later node could
        come to depend on the region that asks for it; sizes that come from data can only be had from there."""
        if e not in self._plans:
            plan = self._derive(e, _Sources(self._given))
            self._plans[e] = self._derive(e, _Sources(self.known)) if plan is None else plan
        return self._plans[e]

    def _derive(self, e: sympy.Expr, sources: _Sources) -> _Plan | None:
        if e.is_Integer:
            return int(e)
        # An area like (n + 1)**2 comes expanded; only as a product of dimensions can Inductor divide it by one of them.
        factored = sympy.factor(e) if e.is_Add else e
        if not factored.is_Add and factored is not e and (plan := self._compute(factored, sources)) is not None:
            return plan
        if e in sources.known:
            return sources.known[e]
        return self._compute(e, sources) or self._solve(e, sources)

    def _compute(self, e: sympy.Expr, sources: _Sources) -> _Plan | None:
        if e.is_Pow and e.exp.is_Integer and int(e.exp) > 0:
            base = self._derive(e.base, sources)
            return None if base is None else _Call(operator.mul, (base,) * int(e.exp))
        function = _FUNCTIONS.get(e.func.__name__)
        if function is None or not e.args:
            return None
        args = tuple(self._derive(a, sources) for a in e.args)
        return None if any(a is None for a in args) else _Call(function, args)

    def _solve(self, e: sympy.Expr, sources: _Sources) -> _Plan | None:
        """``e`` from a known size ``c * e + rest`` whose rest can be had without it."""
        if e.is_Add or e.is_Mul or e in sources.solving:
            return None
        for known, source in sources.known.items():
            factor = known.coeff(e, 1) if known.has(e) else sympy.Integer(0)
            rest = sympy.expand(known - factor * e)
            if not factor.is_Integer or factor == 0 or rest.has(e):
                continue
            other = self._derive(rest, _Sources(sources.known, sources.solving | {e}))
            if other is not None:
                left = source if other == 0 else _Call(operator.sub, (source, other))
                return left if factor == 1 else _Call(operator.floordiv, (left, int(factor)))
        return None

    def _build(self, plan: Any) -> int | fx.Node:
        """The plan's node, put at the front or after what it reads; the caller sorts the graph."""
        if isinstance(plan, (int, fx.Node)):
            return plan
        if plan not in self._built:
            self._built[plan] = self._dimension(plan) if isinstance(plan, _Dim) else self._apply(plan)
        return self._built[plan]

    def _dimension(self, plan: _Dim) -> fx.Node:
        with self.graph.inserting_after(plan.node):
            node = self.graph.call_function(aten.sym_size.int, (plan.node, plan.dim))
        node.meta["val"] = plan.node.meta["val"].shape[plan.dim]
        return node

    def _apply(self, plan: _Call) -> Any:
        args = [self._build(a) for a in plan.args]
        result: Any = args[0]
        for a in args[1:]:
            result = self._binary(plan.function, result, a)
        return result

    def _binary(self, function: Callable[..., Any], a: int | fx.Node, b: int | fx.Node) -> fx.Node:
        after = [n for n in (a, b) if isinstance(n, fx.Node)][-1]
        with self.graph.inserting_after(after):
            node = self.graph.call_function(function, (a, b))
        node.meta["val"] = function(*[n.meta["val"] if isinstance(n, fx.Node) else n for n in (a, b)])
        return node


def _expression(size: Any) -> sympy.Expr:
    return sympy.Integer(size) if isinstance(size, int) else size.node.expr if isinstance(size, torch.SymInt) else size


def _carried(node: fx.Node) -> Iterator[tuple[sympy.Expr, fx.Node | _Dim]]:
    """Sizes that a node has as its value, or as a dimension where it is no work that a region may take over."""
    value = node.meta.get("val")
    if isinstance(value, torch.SymInt):
        yield value.node.expr, node
    elif isinstance(value, torch.Tensor) and (node.op == "placeholder" or node.meta.get("unbacked_bindings")):
        shape: tuple[Any, ...] = tuple(value.shape)
        yield from ((n.node.expr, _Dim(node, dim)) for dim, n in enumerate(shape) if isinstance(n, torch.SymInt))


def symbol_hints(nodes: Iterable[fx.Node]) -> dict[str, int]:
    """Size symbol -> its value seen while tracing, of the symbols in the values of ``nodes``; for choices only."""
    result: dict[str, int] = {}
    for found in (n for node in nodes for n in _sizes_in(node.meta.get("val"))):
        for s in found.node.expr.free_symbols:
            if (seen := compat.size_seen(found.node.shape_env, s)) is not None:
                result[s.name] = seen
    return result


def _sizes_in(value: Any) -> Iterator[torch.SymInt]:
    """Symbolic sizes of a node's value: its own, or those in the shapes and strides of its tensors."""
    for v in value if isinstance(value, (tuple, list)) else (value,):
        parts: tuple[Any, ...] = (*v.shape, *v.stride()) if isinstance(v, torch.Tensor) else (v,)
        for n in parts:
            if isinstance(n, torch.SymInt):
                yield n
