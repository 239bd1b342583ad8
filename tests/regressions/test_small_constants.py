"""Tensors that a program writes down: Inductor makes numbers of small ones, which cannot be handed to a region."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "masked assignment": lambda x: x.masked_fill(x > 3, 0).index_put((x > 5,), torch.tensor(2, dtype=x.dtype)),
    "one number": lambda x: x.float().sin() + torch.tensor(1.5),
    "another number": lambda x: (x.float().sin() + torch.tensor(2.5)) @ torch.ones(6, 6) + torch.tensor(-1.5),
    "a few": lambda x: x.float().cos() * torch.tensor([1.0, -2.0, 3.0, 0.5, 0.25, 7.0]),
    "many": lambda x: x.float().cos()[:, :1] * torch.tensor([float(k * k) for k in range(20)]),
}


def assigned(x: torch.Tensor) -> torch.Tensor:
    x[x > 4] = 2
    return x.float() * 0.5


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32])
def test_constants(name: str, dtype: torch.dtype) -> None:
    x = torch.arange(36).reshape(6, 6).remainder(9).to(dtype)
    counters.clear()
    compiled = torch.compile(FUNCTIONS[name], backend="helion", options={"regions": "all", "on_error": "raise"})
    torch.testing.assert_close(compiled(x), FUNCTIONS[name](x))
    assert counters["helion"]["regions"]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float32])
def test_a_number_assigned_under_a_mask(dtype: torch.dtype) -> None:
    ours = torch.arange(40).reshape(2, 20).remainder(9).to(dtype)
    theirs = ours.clone()
    result = torch.compile(assigned, backend="helion", options={"regions": "all", "on_error": "raise"})(ours)
    torch.testing.assert_close(result, assigned(theirs))
    torch.testing.assert_close(ours, theirs)
