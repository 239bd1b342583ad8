"""Sizes that are quotients of symbols: computed with where they can be, and nothing is ever asked of a graph that it cannot give."""

from __future__ import annotations

import operator

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch import fx
from torch._dynamo.utils import counters
from torch.utils._sympy.functions import FloorDiv as Quotient

from helion_inductor.errors import InternalError
from helion_inductor.fx_sizes import SizeNodes
from helion_inductor.ir.index import FloorDiv, Mod, symbol
from helion_inductor.ir.simplify import Ranges, simplify
from helion_inductor.lowering.sizes import SizeNames

ALL = {"regions": "all", "on_error": "raise"}


def test_convolved_sizes_compile_and_the_gradient_is_right(device: str) -> None:
    def fn(x, w):
        return F.conv2d(x, w).relu().mean((2, 3)) * 2

    x, w = torch.randn(2, 3, 8, 8, device=device), torch.randn(8, 3, 3, 3, device=device, requires_grad=True)
    compiled = torch.compile(fn, backend="helion", options=ALL, dynamic=True)
    (expected,) = torch.autograd.grad(fn(x, w).sum(), w)
    (actual,) = torch.autograd.grad(compiled(x, w).sum(), w)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    assert not counters["helion"]["errors"]


def test_strided_pooling_runs_in_a_region_for_any_size(device: str) -> None:
    def fn(x):
        return F.max_pool2d(F.max_pool2d(x + 1, 3, 2, 1).relu(), 3, 2, 1).relu().sum((2, 3))

    counters.clear()
    compiled = torch.compile(fn, backend="helion", options=ALL, dynamic=True)
    for size in (17, 24):
        x = torch.randn(2, 3, size, size + 3, device=device)
        torch.testing.assert_close(compiled(x), fn(x))
    assert counters["helion"]["regions"] == 1 and not counters["helion"]["regions_left"]


def test_a_dimension_is_named_whole_and_its_quotient_by_it() -> None:
    s = sympy.Symbol("s0", integer=True)
    height = Quotient(s - 1, 2) + 1
    names = SizeNames({"s0": 2}, lambda e: 1, [height])
    z = symbol("z0")
    assert names.values() == {"z0": height} and names.lower["z0"] == 1
    assert names.convert(sympy.expand(height**2)) == z**2
    assert names.convert(Quotient(s - 1, 2) * symbol("p0")) == sympy.expand((z - 1) * symbol("p0"))
    assert names.convert(s + 1) == symbol("s0") + 1


def test_taking_a_point_apart_and_putting_it_together_is_nothing() -> None:
    z, p, q = symbol("z0"), symbol("p0"), symbol("q")
    ranges = Ranges({"p0": 16 * z**2}, {"z0": 1, "q": -100})
    for x in (p, 2 * p - z + q):  # the second is not known to lie in the shape
        parts = 16 * z**2 * FloorDiv(x, 16 * z**2) + z**2 * Mod(FloorDiv(x, z**2), 16) + z * Mod(FloorDiv(x, z), z) + Mod(x, z)
        assert simplify(parts, ranges) == x


def _graph_with(*values: torch.SymInt) -> fx.Graph:
    graph = fx.Graph()
    for number, value in enumerate(values):
        graph.placeholder(f"n{number}").meta["val"] = value
    return graph


def _symints() -> tuple[torch.SymInt, torch.SymInt]:
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

    env = ShapeEnv()
    made = []
    for name, value in (("a", 12), ("b", 35)):
        source = ConstantSource(name)
        known = env.create_symbol(value, source, dynamic_dim=DimDynamic.DYNAMIC)
        made.append(env.create_symintnode(known, hint=value, source=source))
    return made[0], made[1]


def test_sizes_are_found_computed_or_solved_for() -> None:
    a, b = _symints()
    whole = _graph_with(a, b)
    assert SizeNodes(whole).node(a).name == "n0"
    computed = SizeNodes(whole).node(a * b + 3)
    assert computed.meta["val"].node.expr == a.node.expr * b.node.expr + 3
    only_sum = SizeNodes(_graph_with(a // 2 + 1, b))
    quotient = only_sum.node(a // 2)
    assert quotient.target is operator.sub and quotient.meta["val"].node.expr == (a // 2).node.expr
    assert only_sum.missing([a, b, a // 2]) == [str(a.node.expr)]
    with pytest.raises(InternalError, match="carries the size"):
        only_sum.node(a)
