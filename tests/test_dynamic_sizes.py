"""Sizes that are quotients of symbols stay with Inductor, and a symbol that a graph cannot give is never needed."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters


def test_convolved_sizes_are_left_and_the_gradient_is_right(device: str) -> None:
    def fn(x, w):
        return F.conv2d(x, w).relu().mean((2, 3)) * 2

    x, w = torch.randn(2, 3, 8, 8, device=device), torch.randn(8, 3, 3, 3, device=device, requires_grad=True)
    compiled = torch.compile(fn, backend="helion", options={"regions": "all", "on_error": "raise"}, dynamic=True)
    (expected,) = torch.autograd.grad(fn(x, w).sum(), w)
    (actual,) = torch.autograd.grad(compiled(x, w).sum(), w)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
    assert not counters["helion"]["errors"]


def test_strided_pooling_compiles_in_little_time_and_agrees(device: str) -> None:
    def fn(x):
        return F.max_pool2d(F.max_pool2d(x + 1, 3, 2, 1).relu(), 3, 2, 1).relu()

    compiled = torch.compile(fn, backend="helion", options={"regions": "all", "on_error": "raise"}, dynamic=True)
    for size in (17, 24):
        x = torch.randn(2, 3, size, size + 3, device=device)
        torch.testing.assert_close(compiled(x), fn(x))
