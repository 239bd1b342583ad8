"""Training through the backend gives what eager gives: gradients, optimizers, transforms, mixed precision, whole loops."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

OPTIONS = {"regions": "all", "on_error": "raise"}


def helion(fn: Any, **settings: Any) -> Any:
    return torch.compile(fn, backend="helion", options=OPTIONS, **settings)


class MLP(torch.nn.Module):
    def __init__(self, width: int = 8, recompute: bool = False) -> None:
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(width, 2 * width), torch.nn.LayerNorm(2 * width), torch.nn.Linear(2 * width, 3)
        self.recompute = recompute

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(self.norm(self.first(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(checkpoint(self.body, x, use_reentrant=False) if self.recompute else self.body(x))


class Attention(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))


class GPT(torch.nn.Module):
    def __init__(self, tokens: int = 17, width: int = 16) -> None:
        super().__init__()
        self.embed, self.places = torch.nn.Embedding(tokens, width), torch.nn.Parameter(torch.randn(8, width) * 0.1)
        self.mix, self.mlp = Attention(width, 2), torch.nn.Sequential(torch.nn.LayerNorm(width), torch.nn.Linear(width, 2 * width),
                                                                      torch.nn.GELU(), torch.nn.Linear(2 * width, width))  # fmt: skip
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.mix(self.embed(ids) + self.places)
        return F.linear(self.norm(x + self.mlp(x)), self.embed.weight)


class ResNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # No bias: in front of a normalisation its gradient is rounding noise, which Adam makes steps of.
        self.stem, self.conv = (torch.nn.Conv2d(n, 8, 3, padding=1, bias=False) for n in (3, 8))
        self.norms, self.head = torch.nn.ModuleList([torch.nn.BatchNorm2d(8) for _ in range(2)]), torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.norms[0](self.stem(x)).relu(), 2)
        return self.head((x + self.norms[1](self.conv(x))).relu().mean((2, 3)))


def same(model: torch.nn.Module) -> tuple[torch.nn.Module, torch.nn.Module]:
    return model, copy.deepcopy(model)


def gradients(model: torch.nn.Module) -> list[torch.Tensor]:
    return [p.grad for p in model.parameters()]


def close(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("recompute", [False, True])
def test_gradients_add_up_over_batches(recompute: bool, device: str) -> None:
    torch.manual_seed(0)
    ours, theirs = same(MLP(recompute=recompute).to(device))
    run = helion(ours)
    for _ in range(3):
        x = torch.randn(5, 8, device=device)
        run(x).square().mean().backward()
        theirs(x).square().mean().backward()
    close(gradients(ours), gradients(theirs))


def test_transforms(device: str) -> None:
    torch.manual_seed(0)
    model = MLP().to(device)
    weights, x = dict(model.named_parameters()), torch.randn(5, 8, device=device)

    def loss(weights: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, weights, (row,)).square().sum()

    functions: list[Callable[..., Any]] = [
        lambda w, x: torch.func.grad(loss)(w, x),
        lambda w, x: torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(w, x),
        lambda w, x: torch.func.jvp(lambda x: torch.tanh(x).square().sum(0), (x,), (x * 2,)),
        lambda w, x: torch.func.vjp(lambda x: F.softmax(x, -1), x)[1](x),
        lambda w, x: torch.func.vmap(torch.func.jacrev(lambda row: F.layer_norm(row, (8,))))(x),
    ]
    for fn in functions:
        close(helion(fn)(weights, x), fn(weights, x))


@pytest.mark.parametrize("make", [
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), weight_decay=0.1, amsgrad=True),
    lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True),
], ids=["sgd", "adam", "adamw", "rmsprop"])  # fmt: skip
def test_compiled_optimizers(make: Callable[..., torch.optim.Optimizer], device: str) -> None:
    torch.manual_seed(0)
    ours, theirs = same(MLP().to(device))
    optimizers = [make(m.parameters()) for m in (ours, theirs)]
    for o in optimizers:
        for group in o.param_groups:
            group["lr"] = group["lr"].to(device) if isinstance(group["lr"], torch.Tensor) else group["lr"]
    step = helion(optimizers[0].step)
    for number in range(3):
        x = torch.randn(5, 8, device=device)
        for model, optimizer in zip((ours, theirs), optimizers):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            if isinstance(lr := optimizer.param_groups[0]["lr"], torch.Tensor):
                lr.mul_(0.5)  # a schedule that must not be compiled in
        step() if number != 1 else optimizers[0].step()
        optimizers[1].step()
    close(ours.state_dict(), theirs.state_dict())
    close(optimizers[0].state_dict()["state"], optimizers[1].state_dict()["state"])


def test_autocast(device: str) -> None:
    torch.manual_seed(0)
    ours, theirs = same(MLP(16).to(device))
    run, x = helion(ours), torch.randn(9, 16, device=device)
    results = []
    for call in (run, theirs):
        with torch.autocast(device, torch.bfloat16):
            y = call(x)
            loss = F.cross_entropy(y, torch.arange(9, device=device) % 3)
        loss.backward()
        results.append((y, loss))
    assert results[0][0].dtype == results[1][0].dtype == torch.bfloat16 and results[0][1].dtype == torch.float32
    torch.testing.assert_close(results[0], results[1], rtol=3e-2, atol=3e-2)
    torch.testing.assert_close(gradients(ours), gradients(theirs), rtol=5e-2, atol=5e-2)


def test_scaled_gradients(device: str) -> None:
    """Loss scaling: a step with an overflow changes nothing but the scale, as in eager."""
    torch.manual_seed(0)
    ours, theirs = same(MLP().to(device))
    runs, scalers = (helion(ours), theirs), [torch.amp.GradScaler(device, init_scale=2.0**10, growth_interval=2) for _ in range(2)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (ours, theirs)]
    for number in range(4):
        x = torch.randn(5, 8, device=device) * (float("inf") if number == 1 else 1)
        for run, scaler, optimizer in zip(runs, scalers, optimizers):
            optimizer.zero_grad()
            scaler.scale(run(x).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
        assert scalers[0].get_scale() == scalers[1].get_scale()
    close(ours.state_dict(), theirs.state_dict())


def _losses(model: torch.nn.Module, run: Any, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(run(x).flatten(0, -2), y.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def check_steps(name: str, device: str, steps: int) -> None:
    """As many steps of AdamW with clipped gradients: losses, and running statistics, as in eager."""
    torch.manual_seed(0)
    ours, theirs = same((GPT() if name == "gpt" else ResNet()).to(device))
    if name == "gpt":
        ids = [(torch.arange(9)[None] * (k % 3 + 1) + torch.arange(4)[:, None]).remainder(17).to(device) for k in range(steps)]
        batches = [(i[:, :-1], i[:, 1:]) for i in ids]
    else:
        batches = [(torch.randn(4, 3, 8, 8, device=device), torch.arange(4, device=device) + k % 2) for k in range(steps)]
    expected, actual = _losses(theirs, theirs, batches), _losses(ours, helion(ours), batches)
    torch.testing.assert_close(actual, expected, rtol=1e-2, atol=1e-3)
    assert actual[-1] < actual[0]
    if name == "resnet":
        torch.testing.assert_close(dict(ours.named_buffers()), dict(theirs.named_buffers()), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("name", ["gpt", "resnet"])
def test_a_loop_of_steps(name: str, device: str) -> None:
    check_steps(name, device, 20)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["gpt", "resnet"])
def test_a_long_loop_of_steps(name: str, device: str) -> None:
    check_steps(name, device, 200)


def test_double_backward_is_refused_as_by_inductor(device: str) -> None:
    x = torch.randn(7, device=device, requires_grad=True)
    (gradient,) = torch.autograd.grad((helion(torch.tanh)(x) * x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        gradient.sum().backward()
