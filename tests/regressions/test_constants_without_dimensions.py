"""A constant of no dimensions is a number where Inductor calls an operator: its value goes into the region."""

from __future__ import annotations

import pytest
import torch

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
