"""Floor division of floats is not the floor of a quotient: infinities, signs of zero, quotients rounded up to a whole number."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

OPTIONS = {"regions": "all", "on_error": "raise"}
VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, 0.6, 0.2, -0.2, 3.0, -3.0, float("inf"), -float("inf"), float("nan"), 7.5, 0.1, 0.3]
FUNCTIONS = {
    "tensors": lambda x, y: (torch.div(x, y, rounding_mode="floor"), x // y, torch.floor_divide(x, y), x.clone().floor_divide_(y)),
    "scalars": lambda x, y: (x // 0.2, x // -3, x // 0.0, x // float("inf"), torch.div(x, -0.3, rounding_mode="floor")),
    "integer divisors": lambda x, y: (x // y.nan_to_num(0, 5, -5).int(), x.nan_to_num(0, 5, -5).int() // y),
    "integers": lambda x, y: (x.nan_to_num(0, 5, -5).int() // 3, 7 // x.nan_to_num(0, 5, -5).int().abs().add(1)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS)
def test_every_pair(fn: Callable[..., tuple[torch.Tensor, ...]], dtype: torch.dtype, device: str) -> None:
    values = torch.tensor(VALUES, dtype=dtype, device=device)
    x, y = torch.meshgrid(values, values, indexing="ij")
    for actual, expected in zip(torch.compile(fn, backend="helion", options=OPTIONS)(x, y), fn(x, y), strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(torch.signbit(actual) | actual.isnan(), torch.signbit(expected) | expected.isnan())
