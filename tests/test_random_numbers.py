"""Random numbers: one mask for forward and backward, fresh ones for each call, the same again after the same seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters

OPTIONS: dict[str, Any] = {"regions": "all", "on_error": "raise"}
AS_EAGER = OPTIONS | {"inductor": {"fallback_random": True}}
DRAWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.4) + 1,
    "rand": lambda x: torch.rand_like(x) + x,
    "randn": lambda x: torch.randn(x.shape, device=x.device) * x,
    "bernoulli": lambda x: torch.bernoulli(x * 0.3) + x,
    "randint": lambda x: torch.randint(0, 1000, x.shape, device=x.device) + x,
    "in place": lambda x: x.clone().uniform_(2, 3) + x.clone().normal_(),
    "noise twice": lambda x: torch.rand_like(x) - torch.rand_like(x),
    "rrelu": lambda x: F.rrelu(-x, training=True) + F.alpha_dropout(x, 0.2, training=True),
}


@pytest.mark.parametrize("name", DRAWS)
def test_fresh_numbers_and_the_same_again(name: str, device: str) -> None:
    counters.clear()
    run, x = torch.compile(DRAWS[name], backend="helion", options=OPTIONS), torch.ones(64, 16, device=device)
    torch.manual_seed(3)
    first, second = run(x), run(x)
    torch.manual_seed(3)
    assert torch.equal(run(x), first) and torch.equal(run(x), second)
    assert not torch.equal(first, second)
    assert counters["helion"]["regions"] >= 1


@pytest.mark.parametrize("name", DRAWS)
def test_eager_numbers_where_they_are_asked_for(name: str, device: str) -> None:
    run, x = torch.compile(DRAWS[name], backend="helion", options=AS_EAGER), torch.ones(33, 5, device=device)
    torch.manual_seed(4)
    actual = [run(x), run(x)]
    torch.manual_seed(4)
    torch.testing.assert_close(actual, [DRAWS[name](x), DRAWS[name](x)])


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_backward_has_the_mask_of_the_forward(dynamic: bool, device: str) -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.dropout(torch.relu(F.dropout(x, 0.5) * w), 0.25)

    run = torch.compile(fn, backend="helion", options=OPTIONS, dynamic=dynamic)
    for rows in (40, 24) if dynamic else (40, 40):
        x, w = (torch.ones(s, device=device, requires_grad=True) for s in ((rows, 8), (8,)))
        result = run(x, w)
        result.sum().backward()
        # With ones in, an element's gradient is the product of its two factors, as the element is.
        assert torch.equal(x.grad, result) and {round(v, 4) for v in result.unique().tolist()} == {0.0, 2.6667}
        torch.testing.assert_close(w.grad, result.sum(0))


def test_checkpointed_blocks_draw_once(device: str) -> None:
    def block(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x * 2, 0.5)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) * 1.0

    run, x = torch.compile(fn, backend="helion", options=OPTIONS), torch.ones(256, device=device, requires_grad=True)
    result = run(x)
    result.sum().backward()
    assert torch.equal(x.grad, result) and 0 < (result == 0).sum() < 256


def test_distributions(device: str) -> None:
    """Moments of what is drawn: 3 deviations of the mean and about as much for the variance."""
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.rand_like(x), torch.randn_like(x), torch.bernoulli(x * 0.3), torch.randint_like(x, 0, 10)

    torch.manual_seed(5)
    n = 1 << 16
    drawn = torch.compile(fn, backend="helion", options=OPTIONS)(torch.ones(n, device=device))
    for values, mean, variance in zip(drawn, (0.5, 0.0, 0.3, 4.5), (1 / 12, 1.0, 0.21, 8.25)):
        assert abs(values.mean().item() - mean) < 3.5 * (variance / n) ** 0.5
        assert abs(values.var().item() / variance - 1) < 0.05
    assert drawn[0].min() >= 0 and drawn[0].max() < 1


def test_checkpointed_draws_keep_their_order(device: str) -> None:
    """The first draw waits for a region whose last member stands behind the second one."""
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        first = torch.utils.checkpoint.checkpoint(lambda x: F.dropout(torch.tanh(x), 0.5), x, use_reentrant=False)
        return first + F.dropout(w, 0.5) + torch.tanh(w)

    inputs = [torch.ones(64, device=device, requires_grad=True) for _ in range(2)]
    run, results = torch.compile(fn, backend="helion", options=AS_EAGER), []
    for call in (run, fn):
        torch.manual_seed(6)
        result = call(*inputs)
        results.append((result, *torch.autograd.grad(result.sum(), inputs)))
    torch.testing.assert_close(*results)
