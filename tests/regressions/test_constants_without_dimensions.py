"""A constant of no dimensions is a number where Inductor calls an operator: its value goes into the region."""

from __future__ import annotations

import pytest
import torch
from torch import fx
from torch._subclasses import FakeTensorMode

from helion_inductor.fx_repairs import repair_graph
from helion_inductor.lowering.partition import partition
from helion_inductor.options import Options

OPTIONS = {"regions": "all", "on_error": "raise"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
def test_masked_assignment(dtype: torch.dtype, device: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x[x > 0] = 2
        return x * 3

    x = torch.arange(-3, 4, device=device).to(dtype)
    other = x.clone()
    assert torch.equal(torch.compile(fn, backend="helion", options=OPTIONS)(x), fn(other)) and torch.equal(x, other)


def test_values_are_told_apart(device: str) -> None:
    """Two regions that are equal but for a constant."""

    def fn(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = x.clone(), x.clone()
        a[a > 0] = 2
        b[b > 0] = 5
        return a, b

    x = torch.randn(9, device=device)
    torch.testing.assert_close(torch.compile(fn, backend="helion", options=OPTIONS)(x), fn(x))


def test_made_from_a_number(device: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor(0.1, device=x.device, dtype=torch.float64) + torch.tensor(float("inf"), device=x.device)

    x = torch.randn(9, device=device)
    torch.testing.assert_close(torch.compile(fn, backend="helion", options=OPTIONS)(x), fn(x))


def test_numbers_made_on_the_cpu_go_to_the_device_of_their_readers() -> None:
    """Needs no GPU: only fake tensors say that there is one."""
    aten, graph = torch.ops.aten, fx.Graph()
    with FakeTensorMode():
        x, index = torch.empty(5, device="cuda"), torch.empty(3, dtype=torch.int64, device="cuda")
        number = torch.empty(())
    nodes = {name: graph.placeholder(name) for name in ("x", "index")}
    made = graph.call_function(aten.full.default, ([], 0.5), {"dtype": torch.float32, "device": torch.device("cpu")})
    scaled = graph.call_function(aten.mul.Tensor, (nodes["x"], made))
    stored = graph.call_function(aten.index_put.default, (scaled, [nodes["index"]], made))
    moved = graph.call_function(torch.ops.prims.device_put.default, (made, torch.device("cuda")))
    for node, value in zip(graph.nodes, (x, index, number, x, x, number), strict=True):
        node.meta["val"] = value
    graph.output((stored, moved))
    repair_graph(graph)
    graph.lint()
    (region,) = partition(graph, Options(regions="all"), {}, {"cuda"}).regions
    assert [n.name for n in region.members] == [scaled.name, stored.name]
    assert moved.args[0] is made and [n.name for n in region.inputs] == ["x", "index"]
