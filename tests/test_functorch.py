"""Without Dynamo: ``fx_compiler`` as the forward and backward compiler of functorch's ``aot_function`` and ``aot_module``."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import aot_function, aot_module, min_cut_rematerialization_partition, nop
from torch._dynamo.utils import counters
from torch.fx.experimental.proxy_tensor import make_fx

from helion_inductor import fx_compiler
from helion_inductor.errors import OptionError

COMPILER = partial(fx_compiler, options={"regions": "all", "on_error": "raise"})


@pytest.fixture(autouse=True)
def _fresh_counters() -> None:
    counters.clear()


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.batch = torch.nn.Linear(5, 8), torch.nn.LayerNorm(8), torch.nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.batch(F.gelu(self.norm(self.first(x))))


def test_a_module_trains_as_in_eager(device: str) -> None:
    """Parameters, gradients and running statistics over steps of SGD: the module given is the one that is trained."""
    torch.manual_seed(0)
    model = Block().to(device)
    reference = copy.deepcopy(model)
    run = aot_module(model, fw_compiler=COMPILER, bw_compiler=COMPILER)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, reference)]
    for _ in range(3):
        x = torch.randn(6, 5, device=device)
        for call, optimizer in zip((run, reference), optimizers):
            optimizer.zero_grad()
            (call(x) - x.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
    torch.testing.assert_close(model.state_dict(), reference.state_dict(), rtol=1e-4, atol=1e-5)
    assert model.batch.num_batches_tracked == 3
    assert counters["helion"]["graphs"] == 2 and counters["helion"]["regions"] >= 2


def _grads(fn: Callable[..., Any], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    mine = [t.detach().clone().requires_grad_() for t in inputs]
    return list(torch.autograd.grad(fn(*mine).square().sum(), mine))


@pytest.mark.parametrize("more", [
    {"bw_compiler": COMPILER},
    {"bw_compiler": nop},
    {},  # the forward's compiler compiles the backward as well
    {"bw_compiler": COMPILER, "partition_fn": min_cut_rematerialization_partition},
    {"bw_compiler": COMPILER, "decompositions": torch._decomp.core_aten_decompositions()},
], ids=["both", "forward", "default", "min-cut", "decomposed"])  # fmt: skip
def test_gradients(more: dict[str, Any], device: str) -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax(F.layer_norm(x, (5,), w), 0) * torch.tanh(x)

    torch.manual_seed(1)
    inputs = [torch.randn(4, 5, device=device), torch.randn(5, device=device)]
    torch.testing.assert_close(_grads(aot_function(fn, fw_compiler=COMPILER, **more), inputs), _grads(fn, inputs), rtol=1e-4, atol=1e-5)
    assert counters["helion"]["graphs"] == (1 if more.get("bw_compiler") is nop else 2)


def test_updates_and_views_of_inputs(device: str) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.add_(1)
        part = x.view(-1)[1:4]
        part.mul_(y)
        return x * 2, x.t(), part

    x, y = torch.randn(3, 4, device=device), torch.tensor(3.0, device=device)
    other = x.clone()
    results, expected = aot_function(fn, fw_compiler=COMPILER)(x, y), fn(other, y)
    torch.testing.assert_close((results, x), (expected, other))
    assert [r.stride() for r in results] == [e.stride() for e in expected]
    assert all(r.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for r in results[1:])


def test_the_mask_of_a_dropout_is_that_of_its_backward(device: str) -> None:
    run = aot_function(lambda x: F.dropout(x, 0.5), fw_compiler=COMPILER, bw_compiler=COMPILER)
    x = torch.ones(64, device=device, requires_grad=True)
    torch.manual_seed(0)
    first = run(x)
    first.sum().backward()
    assert torch.equal(x.grad, first) and set(first.tolist()) == {0.0, 2.0}
    second = run(x)
    torch.manual_seed(0)
    assert torch.equal(run(x), first) and not torch.equal(second, first)


def test_transforms_inside(device: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(torch.func.grad(lambda row: torch.tanh(row).square().sum()))(x)

    x = torch.randn(3, 4, device=device)
    torch.testing.assert_close(aot_function(fn, fw_compiler=COMPILER)(x), fn(x))


@pytest.mark.parametrize("single", [True, False])
def test_a_graph_of_ones_own_drops_its_inputs(single: bool, device: str) -> None:
    """The callable takes one list and empties it, so that tensors nobody else holds are freed as soon as they are read."""

    def fn(x: torch.Tensor) -> Any:
        result = torch.softmax(x, -1) + 1
        return result if single else (result, x.sum())

    x = torch.randn(4, 3, device=device)
    run = COMPILER(make_fx(fn, tracing_mode="fake")(x), [x])
    inputs = [x.clone()]
    alive = weakref.ref(inputs[0])
    torch.testing.assert_close(run(inputs), fn(x) if single else list(fn(x)))
    assert not inputs and alive() is None


def test_options_are_checked(device: str) -> None:
    with pytest.raises(OptionError, match="regions"):
        aot_function(torch.tanh, fw_compiler=partial(fx_compiler, options={"regions": "some"}))(torch.ones(3, device=device))
