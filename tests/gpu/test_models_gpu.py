"""Whole models on a real device, every supported op in a region: inference and training in float32 and bfloat16."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
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
NAMES = ("bert", "qwen3", "vit", "t5")
TOLERANCE = 1e-4


@pytest.fixture(autouse=True)
def _exact_products() -> Iterator[None]:
    """Float32 products without TF32, whose rounding would hide that of kernels; and counters from zero."""
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = False
    counters.clear()
    yield
    products.allow_tf32, convolutions.allow_tf32 = before


def check_float32(name: str, device: str, size: Size = MEDIUM) -> None:
    model, inputs = build(name, size, device), make_inputs(name, 2, size, device)
    compiled = torch.compile(model, backend="helion", options=OPTIONS, dynamic=False)
    output, gradient = largest_difference(train(model, compiled, inputs), train(model, model, inputs))
    assert output <= TOLERANCE and gradient <= TOLERANCE, f"output {output}, gradients {gradient}"
    assert counters["helion"]["graphs"] == 2 and counters["helion"]["kernels"] >= 2 and not counters["helion"]["errors"]


def check_bfloat16(name: str, device: str, size: Size = MEDIUM) -> None:
    model, inputs = build(name, size, device, torch.bfloat16), make_inputs(name, 2, size, device, torch.bfloat16)
    exact_model, exact_inputs = in_float64(model, inputs)
    exact = infer(exact_model, exact_inputs)
    compiled = torch.compile(model, backend="helion", options=OPTIONS, dynamic=False)
    ours, eager = (relative_error(infer(call, inputs), exact)[0] for call in (compiled, model))
    assert ours <= 1.5 * eager, f"error {ours}, eager's {eager}"
    assert counters["helion"]["kernels"] >= 1


def check_dynamic(name: str, device: str, size: Size = MEDIUM) -> None:
    model = build(name, size, device)
    compiled = torch.compile(model, backend="helion", options=OPTIONS, dynamic=True)
    for batch in (2, 5, 3, 8):
        inputs = make_inputs(name, batch, size, device)
        output, gradient = largest_difference(train(model, compiled, inputs), train(model, model, inputs))
        assert output <= TOLERANCE and gradient <= TOLERANCE, f"batch {batch}: output {output}, gradients {gradient}"
    assert counters["stats"]["unique_graphs"] <= 2 and counters["helion"]["kernels"] >= 2


def check_auto(name: str, device: str, mode: str | None, size: Size = MEDIUM) -> None:
    """Whatever is taken and whatever is left, with the default options: the graph was looked at, and the result is eager's."""
    model = build(name, size, device)
    compiled = torch.compile(model, backend="helion", mode=mode, dynamic=False)
    for seed in range(3):
        torch.compiler.cudagraph_mark_step_begin()
        inputs = make_inputs(name, 2, size, device, seed=seed)
        assert largest_difference(infer(compiled, inputs), infer(model, inputs))[0] <= TOLERANCE
    found = counters["helion"]
    assert found["graphs"] == 1 and found["regions"] + found["regions_left"] >= 1 and not found["errors"]


@pytest.mark.parametrize("name", NAMES)
def test_float32(name: str) -> None:
    check_float32(name, "cuda")


@pytest.mark.parametrize("name", NAMES)
def test_bfloat16(name: str) -> None:
    check_bfloat16(name, "cuda")


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("name", ["bert", "t5"])
def test_auto(name: str, mode: str | None) -> None:
    check_auto(name, "cuda", mode)


def test_dynamic() -> None:
    check_dynamic("bert", "cuda")


def test_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under CUDA graphs, with other inputs at every call."""
    monkeypatch.setenv("HELION_INDUCTOR_OPTIONS", '{"regions": "all", "on_error": "raise"}')
    model = build("qwen3", MEDIUM, "cuda")
    compiled = torch.compile(model, backend="helion", mode="reduce-overhead", dynamic=False)
    for seed in range(5):
        torch.compiler.cudagraph_mark_step_begin()
        inputs = make_inputs("qwen3", 2, MEDIUM, "cuda", seed=seed)
        assert largest_difference(infer(compiled, inputs), infer(model, inputs))[0] <= TOLERANCE
    assert counters["helion"]["kernels"] >= 1
