"""A nest that updates an input in place loads what it needs of it before it stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from helion_inductor.ir.parser import parse_program
from helion_inductor.scheduling.in_place import grant_in_place

OPTIONS = {"regions": "all", "on_error": "raise"}


def under_a_mask(x):
    tripled = x * 3
    x[..., 1:].fill_(3)
    narrow = tripled.to(torch.int8)
    left, right = narrow.tensor_split(2, -1)
    left[0].mul_(2)
    narrow[0].add_(1)
    return right % 5, left


def padded(x):
    wide = torch.nn.functional.pad(x, (0, 2))
    x.mul_(2)
    return wide[..., :3] * 5, x + 1


@pytest.mark.parametrize("fn", [under_a_mask, padded], ids=lambda f: f.__name__)
def test_functions(fn: Callable[..., Any], device: str) -> None:
    ours = torch.randint(-9, 10, (1, 3, 3), generator=torch.Generator().manual_seed(0), dtype=torch.int16).to(device)
    theirs = ours.clone()
    results = torch.compile(fn, backend="helion", options=OPTIONS)(ours)
    torch.testing.assert_close((results, ours), (fn(theirs), theirs), rtol=0, atol=0)


def test_the_store_moves_behind_the_loads() -> None:
    program = parse_program("""program @p(in x: f32[8], out y: f32[8], out z: f32[8])
  nest @n parallel(p0: 8)
    %0: f32 = load x[p0]
    %1: f32 = add(%0, %0)
    store y[p0] %1
    %2: i64 = index p0
    %3: i64 = const 4
    %4: bool = lt(%2, %3)
    %5: f32 = load x[p0] mask %4 else 0.0
    store z[p0] %5
""")
    granted, decisions = grant_in_place(program, [("y", "x")])
    assert decisions[0].granted
    kinds = [type(s).__name__ + getattr(s, "buffer", "") for s in granted.nests[0].body]
    assert kinds == ["Loadx", "Map", "Index", "Const", "Map", "Loadx", "Storey", "Storez"]
