"""Training on a real device, every supported op in a region: bfloat16 gradients, captured steps, batch norm, dynamic batches."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters

import helion_inductor.backend  # noqa: F401  (registers the backend where the package is not installed)

pytest.importorskip("transformers")

from tests.models.zoo import (  # noqa: E402
    MEDIUM,
    Size,
    build,
    in_float64,
    infer,
    largest_difference,
    make_inputs,
    relative_error,
    train,
)

pytestmark = pytest.mark.gpu

OPTIONS = {"regions": "all", "on_error": "raise"}
TOLERANCE = 1e-4


@pytest.fixture(autouse=True)
def _exact_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Float32 products without TF32, whose rounding would hide that of kernels; and counters from zero."""
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    counters.clear()


def check_bfloat16_gradients(name: str, device: str, size: Size = MEDIUM) -> None:
    """Half precision may cost the compiled gradients no more than it costs eager's."""
    model, inputs = build(name, size, device, torch.bfloat16), make_inputs(name, 2, size, device, torch.bfloat16)
    wide, wide_inputs = in_float64(model, inputs)
    exact = train(wide, wide, wide_inputs)
    compiled = torch.compile(model, backend="helion", options=OPTIONS, dynamic=False)
    ours, eager = (relative_error(train(model, call, inputs), exact) for call in (compiled, model))
    assert all(0 < e < 0.1 for e in eager), f"eager's errors {eager}"
    assert all(o <= 1.5 * e for o, e in zip(ours, eager)), f"errors {ours}, eager's {eager}"
    assert counters["helion"]["graphs"] == 2 and counters["helion"]["kernels"] >= 2


def check_captured_steps(name: str, device: str, size: Size = MEDIUM) -> None:
    """Forward and backward under CUDA graphs, with other inputs and weights at every step."""
    model = build(name, size, device)
    other = copy.deepcopy(model)
    compiled = torch.compile(model, backend="helion", mode="reduce-overhead", dynamic=False)
    for seed in range(5):
        inputs = make_inputs(name, 2, size, device, seed=seed)
        torch.compiler.cudagraph_mark_step_begin()
        ours, theirs = train(model, compiled, inputs), train(other, other, inputs)
        output, gradient = largest_difference(ours, theirs)
        assert output <= TOLERANCE and gradient <= TOLERANCE, f"step {seed}: output {output}, gradients {gradient}"
        with torch.no_grad():
            for m in (model, other):
                for parameter, (parameter_name, _) in zip(m.parameters(), m.named_parameters()):
                    if parameter_name in theirs.gradients:
                        parameter -= 1e-3 * theirs.gradients[parameter_name]
    assert counters["helion"]["graphs"] == 2 and counters["helion"]["kernels"] >= 2 and not counters["helion"]["errors"]
    assert device == "cpu" or not counters["inductor"]["cudagraph_skips"]


def check_convolutional(model: nn.Module, x: torch.Tensor) -> None:
    """Training mode: gradients, and the statistics that batch norm updates in place, beside a float64 run."""

    def step(own: nn.Module, call: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
        output = call(x)
        weights = torch.linspace(-1, 1, output.numel(), device=x.device).reshape(output.shape)
        gradients = torch.autograd.grad(output, list(own.parameters()), weights.to(output.dtype))
        statistics = [b.double() for name, b in own.named_buffers() if "running" in name]
        return [torch.cat([t.detach().double().flatten() for t in group]) for group in ([output], gradients, statistics)]

    wide, ours, eager = copy.deepcopy(model).double(), copy.deepcopy(model), copy.deepcopy(model)
    exact = step(wide, wide, x.double())
    compiled = torch.compile(ours, backend="helion", options=OPTIONS, dynamic=False)
    actual, expected = step(ours, compiled, x), step(eager, eager, x)
    # A value next to zero may come out on the other side of a relu, and then its gradient is there or not.
    for a, e, t, slack in zip(actual, expected, exact, (1e-5, 1e-3, 1e-5), strict=True):
        error, limit = float((a - t).norm() / t.norm()), float((e - t).norm() / t.norm())
        assert error <= 2 * limit + slack, f"error {error}, eager's {limit}"
    assert counters["helion"]["kernels"] >= 2 and not counters["helion"]["errors"]
    tracked = [b for name, b in ours.named_buffers() if "num_batches" in name]
    assert tracked and all(int(b) == 1 for b in tracked)


def check_dynamic_inference(name: str, device: str, size: Size = MEDIUM, batches: tuple[int, ...] = (2, 64, 7, 33)) -> None:
    """One compilation serves every batch size."""
    model = build(name, size, device)
    compiled = torch.compile(model, backend="helion", options=OPTIONS, dynamic=True)
    for batch in batches:
        inputs = make_inputs(name, batch, size, device)
        assert largest_difference(infer(compiled, inputs), infer(model, inputs))[0] <= TOLERANCE, f"batch {batch}"
    assert counters["stats"]["unique_graphs"] == 1 and counters["helion"]["kernels"] >= 1


def check_dynamic_training(device: str, batches: tuple[int, ...] = (64, 3, 129, 1024)) -> None:
    """A small classifier whose batch grows and shrinks; the loss averages over it."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(40, 96), nn.LayerNorm(96), nn.GELU(), nn.Linear(96, 10)).to(device)

    def loss(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(layers(x), labels)

    compiled = torch.compile(loss, backend="helion", options=OPTIONS, dynamic=True)
    parameters = list(layers.parameters())
    for batch in batches:
        x, labels = torch.randn(batch, 40, device=device), torch.randint(0, 10, (batch,), device=device)
        ours, theirs = (torch.autograd.grad(call(x, labels), parameters) for call in (compiled, loss))
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
    assert counters["stats"]["unique_graphs"] == 1 and counters["helion"]["kernels"] >= 2


@pytest.mark.parametrize("name", ["bert", "qwen3"])
def test_bfloat16_gradients(name: str) -> None:
    check_bfloat16_gradients(name, "cuda")


def test_captured_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELION_INDUCTOR_OPTIONS", '{"regions": "all", "on_error": "raise"}')
    check_captured_steps("bert", "cuda")


def test_timm_resnet() -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model("resnet18", num_classes=10).to("cuda").train()
    check_convolutional(model, torch.randn(8, 3, 96, 96, device="cuda"))


def test_timm_resnet_inference() -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model, x = timm.create_model("resnet18").to("cuda").eval(), torch.randn(2, 3, 160, 160, device="cuda")
    with torch.no_grad():
        actual = torch.compile(model, backend="helion", options=OPTIONS, dynamic=False)(x)
        torch.testing.assert_close(actual, model(x), rtol=1e-3, atol=1e-4)
    assert counters["helion"]["kernels"] >= 1


@pytest.mark.parametrize("name", ["qwen3", "t5"])
def test_dynamic_inference(name: str) -> None:
    check_dynamic_inference(name, "cuda")


def test_dynamic_training() -> None:
    check_dynamic_training("cuda")
