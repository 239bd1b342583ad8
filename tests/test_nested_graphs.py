"""Graphs that operators call: control flow and attention with a score function keep them, nested compile regions are taken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters
from torch._higher_order_ops import while_loop
from torch.nn.attention.flex_attention import flex_attention

import helion_inductor
from helion_inductor.fx_nested import caller_of, mark_nested

OPTIONS = {"regions": "all", "on_error": "raise"}


def branches(x: torch.Tensor) -> torch.Tensor:
    y = torch.cond(x.sum() > 0, lambda x: x.sin().softmax(-1) + 1, lambda x: x.cos() * x.mean(), (x,))
    return torch.tanh(y) + x


def loop(x: torch.Tensor) -> torch.Tensor:
    count = torch.zeros((), dtype=torch.int64, device=x.device)
    _, y = while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, torch.tanh(x) * 2 + x.mean()), (count, x * 2))
    return y.softmax(-1)


def scored(x: torch.Tensor) -> torch.Tensor:
    q = F.normalize(x, dim=-1).expand(1, 2, 8, 16).contiguous()
    return flex_attention(q, q * 2, q + 1, score_mod=lambda s, b, h, i, j: torch.tanh(s * 0.5) + (i - j))  # type: ignore[return-value]


@torch.compiler.nested_compile_region
def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.layer_norm(x, (16,)) * w) + x


def blocks(x: torch.Tensor) -> torch.Tensor:
    w = x[0] * 2
    for _ in range(3):
        x = block(x, w)
    return x


@pytest.mark.parametrize("fn", [branches, loop, scored, blocks], ids=lambda f: f.__name__)
def test_results(fn: Callable[[torch.Tensor], torch.Tensor], device: str) -> None:
    counters.clear()
    run = torch.compile(fn, backend="helion", options=OPTIONS)
    for sign in (1, -1):
        x = sign * torch.randn(8, 16, generator=torch.Generator().manual_seed(1)).abs().to(device)
        torch.testing.assert_close(run(x), fn(x), rtol=1e-4, atol=1e-4)
    assert counters["helion"]["regions"] >= 1


@pytest.mark.parametrize("fn", [branches, blocks], ids=lambda f: f.__name__)
def test_gradients(fn: Callable[[torch.Tensor], torch.Tensor], device: str) -> None:
    x = torch.randn(8, 16, device=device, requires_grad=True)
    run = torch.compile(fn, backend="helion", options=OPTIONS)
    (ours,), (theirs,) = (torch.autograd.grad(f(x).square().sum(), x) for f in (run, fn))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_the_report_says_why(device: str) -> None:
    refusals = helion_inductor.explain(branches, torch.ones(8, 16, device=device), options=OPTIONS).refusals
    inside = [r for r in refusals if r.code == "nested"]
    assert len(inside) >= 4 and all(r.detail == "in a graph that cond calls" for r in inside)


def test_marks_go_all_the_way_down() -> None:
    """A graph within a branch is the branch's, whatever calls it there; one in a nested region is as free as the region."""
    def holder(target: object, child: torch.fx.GraphModule) -> torch.fx.GraphModule:
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        graph.output(graph.call_function(target, (x, graph.create_node("get_attr", "child"))))
        return torch.fx.GraphModule({"child": child}, graph)

    ops = torch.ops.higher_order
    leaf = torch.fx.symbolic_trace(lambda x: x + 1)
    middle = holder(ops.invoke_subgraph, leaf)
    for target, expected in ((ops.cond, "cond"), (ops.invoke_subgraph, None)):
        leaf.meta.clear(), middle.meta.clear()
        mark_nested(holder(target, middle))
        assert caller_of(middle.graph) == caller_of(leaf.graph) == expected
