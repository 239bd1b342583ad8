"""Inputs that are copied into one another: a copy reads what its source held on entry, whatever the order of the inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

OPTIONS = {"regions": "all", "on_error": "raise"}


def before_an_update(a, b, c):
    b.copy_(a)
    a.mul_(3)
    return b + 1


def part_before_an_update(a, b, c):
    b[1:] = c[1:]
    c.add_(1)
    return a, b


def through_views(a, b, c):
    c.copy_(a.t())
    a.zero_()


def chain(a, b, c):
    c.copy_(b)
    b.copy_(a)
    a.mul_(2)
    return c.sum()


def swap(a, b, c):
    kept = a.clone()
    a.copy_(b)
    b.copy_(kept)


def rotate(a, b, c):
    kept = a.t().clone()
    a.copy_(b.t())
    b.copy_(c.t())
    c.copy_(kept)
    return a + b


def transpose_itself(a, b, c):
    a.copy_(a.t().clone())
    b.copy_(a)


def computed_from_what_is_updated(a, b, c):
    b.copy_(a.relu())
    c.copy_(b + a)
    a.zero_()


@pytest.mark.parametrize("fn", [before_an_update, part_before_an_update, through_views, chain, swap, rotate, transpose_itself,
                                computed_from_what_is_updated], ids=lambda f: f.__name__)  # fmt: skip
def test_order(fn: Callable[..., Any], device: str) -> None:
    ours = [torch.randn(4, 4, generator=torch.Generator().manual_seed(k)).to(device) for k in range(3)]
    theirs = [t.clone() for t in ours]
    compiled = torch.compile(fn, backend="helion", options=OPTIONS)
    for _ in range(2):
        torch.testing.assert_close((compiled(*ours), ours), (fn(*theirs), theirs), rtol=0, atol=0)
