"""Whole models: inference and training agree with eager, with static and with dynamic shapes, in float32 and bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch._dynamo.utils import counters

from tests.models.zoo import (
    TINY,
    ZOO,
    build,
    in_float64,
    infer,
    largest_difference,
    make_inputs,
    relative_error,
    train,
)

OPTIONS = {"regions": "all", "on_error": "raise"}
TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def _fresh_counters() -> Iterator[None]:
    counters.clear()
    yield
    counters.clear()


@pytest.mark.parametrize("name", ZOO)
def test_static(name: str, device: str) -> None:
    model, inputs = build(name, TINY, device), make_inputs(name, 2, TINY, device)
    compiled = torch.compile(model, backend="helion", options=OPTIONS, dynamic=False)
    output, _ = largest_difference(infer(compiled, inputs), infer(model, inputs))
    assert output <= TOLERANCE
    output, gradient = largest_difference(train(model, compiled, inputs), train(model, model, inputs))
    assert output <= TOLERANCE and gradient <= TOLERANCE
    # Nothing of the kind stayed with Inductor by accident.
    assert counters["helion"]["graphs"] == 3 and counters["helion"]["kernels"] >= 3
    assert not counters["helion"]["errors"] and not counters["helion"]["regions_left"]


@pytest.mark.parametrize("name", ["bert", "qwen3", "mixtral", "vit", "t5", "gpt2", "llama"])
def test_dynamic(name: str, device: str) -> None:
    model = build(name, TINY, device)
    compiled = torch.compile(model, backend="helion", options=OPTIONS, dynamic=True)
    for batch, tokens in ((2, 8), (5, 8), (3, 6)):
        inputs = make_inputs(name, batch, replace(TINY, tokens=tokens), device)
        output, gradient = largest_difference(train(model, compiled, inputs), train(model, model, inputs))
        assert output <= TOLERANCE and gradient <= TOLERANCE, f"batch {batch} of {tokens} tokens"
    assert counters["stats"]["unique_graphs"] <= 2
    assert counters["helion"]["kernels"] >= 2 and not counters["helion"]["errors"]


@pytest.mark.parametrize("name", ["resnet", "convnext"])
def test_dynamic_batch(name: str, device: str) -> None:
    """Only the batch is dynamic: the sizes of pictures stay constants."""
    model = build(name, TINY, device)
    compiled = torch.compile(model, backend="helion", options=OPTIONS)
    for batch in (2, 5, 3):
        inputs = make_inputs(name, batch, TINY, device)
        torch._dynamo.mark_dynamic(inputs["pixel_values"], 0)
        output, gradient = largest_difference(train(model, compiled, inputs), train(model, model, inputs))
        assert output <= TOLERANCE and gradient <= TOLERANCE, f"batch {batch}"
    assert counters["stats"]["unique_graphs"] <= 2
    assert counters["helion"]["kernels"] >= 2 and not counters["helion"]["errors"]


def test_batch_of_one_after_more(device: str) -> None:
    """Dynamo makes a graph of its own for extents of 1: two graphs, whatever comes afterwards."""
    model = build("t5", TINY, device)
    compiled = torch.compile(model, backend="helion", options=OPTIONS)
    for batch in (1, 3, 2, 1, 4):
        inputs = make_inputs("t5", batch, TINY, device)
        assert largest_difference(infer(compiled, inputs), infer(model, inputs))[0] <= TOLERANCE, f"batch {batch}"
    assert counters["stats"]["unique_graphs"] <= 2


@pytest.mark.parametrize("name", ["bert", "llama", "vit"])
def test_bfloat16(name: str, device: str) -> None:
    model, inputs = build(name, TINY, device, torch.bfloat16), make_inputs(name, 2, TINY, device, torch.bfloat16)
    exact_model, exact_inputs = in_float64(model, inputs)
    exact = train(exact_model, exact_model, exact_inputs)
    compiled = torch.compile(model, backend="helion", options=OPTIONS, dynamic=False)
    ours = relative_error(train(model, compiled, inputs), exact)
    eager = relative_error(train(model, model, inputs), exact)
    assert all(a <= 1.5 * b for a, b in zip(ours, eager)), f"errors {ours}, eager {eager}"


def test_batch_norm_statistics(device: str) -> None:
    """Training mode: running statistics, which the forward updates in place, end as eager's do."""
    model, other = build("resnet", TINY, device).train(), build("resnet", TINY, device).train()
    compiled = torch.compile(model, backend="helion", options=OPTIONS, dynamic=False)
    addresses = {n: b.data_ptr() for n, b in model.named_buffers()}
    for seed in range(2):
        inputs = make_inputs("resnet", 3, TINY, device, seed=seed)
        output, gradient = largest_difference(train(model, compiled, inputs), train(other, other, inputs))
        # A standardised channel divides by its own deviation, which makes errors of sums larger.
        assert output <= 10 * TOLERANCE and gradient <= 10 * TOLERANCE
    for (name, ours), theirs in zip(model.named_buffers(), other.buffers()):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")
    assert addresses == {n: b.data_ptr() for n, b in model.named_buffers()}
