"""Results of a region that are the same call made again: stored once, never where somebody could tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import helion_inductor
from helion_inductor.report import Report

OPTIONS = {"regions": "all", "on_error": "raise"}


def bias_of_each_layer(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A bias that is copied, because it is expanded, for every product that adds it."""
    bias = w.sin()[None].expand(3, -1, -1)
    return torch.baddbmm(bias.contiguous(), x, x), torch.baddbmm(bias.contiguous(), x, x + 1)


def masks(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    a = torch.where(w > 0, 0.0, -1.0).expand(3, -1, -1)
    b = torch.where(w > 0, 0.0, -1.0).expand(3, -1, -1)
    return torch.bmm(x, a.clone()) + torch.bmm(x.cos(), b.clone())


def signed_zeros(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.atan2(w * 0.0, w) @ w, torch.atan2(w * -0.0, w) @ w


def random_numbers(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.rand_like(w) @ w, torch.rand_like(w) @ w


def returned(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Tensors that a caller may write to, one by one."""
    return w.sin().clone(), w.sin().clone()


def returned_and_multiplied(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    a, b, c = w.sin().clone(), w.sin().clone(), w.sin().clone()
    return a, b @ w, c @ w.t()


def copied_into_an_input(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    a, b = w.sin().clone(), w.sin().clone()
    product = b @ x[0]
    w.copy_(a)
    return product, a @ x[1]


def outputs(report: Report) -> int:
    return sum(b.kind == "out" for r in report.regions for b in r.compiled.program.buffers)


@pytest.mark.parametrize(("fn", "stored"), [(bias_of_each_layer, 2), (masks, 3)])
def test_equal_results_are_stored_once(device: str, fn: Callable[..., Any], stored: int) -> None:
    x, w = torch.randn(3, 8, 8, device=device), torch.randn(8, 8, device=device)
    report = helion_inductor.explain(fn, x, w, options=OPTIONS)
    assert outputs(report) == stored
    torch.testing.assert_close(torch.compile(fn, backend="helion", options=OPTIONS)(x, w), fn(x, w))


@pytest.mark.parametrize("fn", [signed_zeros, returned, returned_and_multiplied, copied_into_an_input])
def test_results_that_can_be_told_apart_stay_apart(device: str, fn: Callable[..., Any]) -> None:
    x, w = torch.randn(3, 8, 8, device=device), torch.randn(8, 8, device=device)
    theirs, ours = w.clone(), w.clone()
    expected = fn(x, theirs)
    result = torch.compile(fn, backend="helion", options=OPTIONS)(x, ours)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(ours, theirs)
    assert len({t.data_ptr() for t in result}) == len(result)


def test_random_numbers_stay_apart(device: str) -> None:
    w = torch.eye(16, device=device)
    first, second = torch.compile(random_numbers, backend="helion", options=OPTIONS)(w, w)
    assert not torch.equal(first, second)
