"""Attention in regions: masks of all kinds, grouped heads, rows of which nothing is seen, and what is left to Inductor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import helion_inductor

from .comparing import OPTIONS, assert_as_exact, run


def heads(device: str, dtype: torch.dtype, rows: int, keys: int, width: int = 16) -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, n, width, generator=g).to(device, dtype) for n in (rows, keys, keys)]


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, **named: Any) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **named)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("mask", ["none", "bool", "float"])
def test_few_rows(device: str, rows: int, dtype: torch.dtype, mask: str) -> None:
    args = heads(device, dtype, rows, 37)
    if mask == "bool":
        args.append(torch.arange(37, device=device)[None, None, None] < 20)
    if mask == "float":
        args.append(torch.linspace(-1, 1, 37, device=device, dtype=dtype).expand(2, 1, rows, 37))
    report = helion_inductor.explain(attention, *args, options=OPTIONS)
    assert report.regions and not [r for r in report.refusals if "attention" in r.code]
    for gpu_tiles in (False, True):
        assert_as_exact(attention, run(attention, *args, gpu_tiles=gpu_tiles), *args)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("keys", [33, 64])
def test_many_rows_of_halves(device: str, causal: bool, keys: int) -> None:
    args = heads(device, torch.bfloat16, 33, keys)

    def fn(*args: Tensor) -> Tensor:
        return attention(*args, is_causal=causal, scale=0.3)

    for gpu_tiles in (False, True):
        assert_as_exact(fn, run(fn, *args, gpu_tiles=gpu_tiles), *args)


def test_heads_that_share_keys(device: str) -> None:
    q, k, v = heads(device, torch.float32, 1, 40)
    q = torch.cat([q, q + 1], 1)

    def fn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (t[:, :, None].expand(-1, -1, 2, -1, -1).reshape(2, 6, 40, 16) for t in (k, v))
        return attention(q, k, v)

    assert_as_exact(fn, run(fn, q, k, v), q, k, v)


@pytest.mark.parametrize(("rows", "dtype"), [(1, torch.float32), (1, torch.bfloat16), (20, torch.bfloat16)])
def test_heads_that_share_keys_inside_the_op(device: str, rows: int, dtype: torch.dtype) -> None:
    """As fused kernels for GPUs take them: fewer heads of keys than of queries."""
    q, k, v = heads(device, dtype, rows, 40)
    q = torch.cat([q, q + 1], 1)

    def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.ops.aten._scaled_dot_product_fused_attention_overrideable(q, k, v)[0]

    def fn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, *(t.repeat_interleave(2, 1) for t in (k, v)))

    assert_as_exact(fn, run(fused, q, k, v), q, k, v)


def test_a_row_that_sees_nothing(device: str) -> None:
    """Fused kernels for attention give zeros there."""
    q, k, v = heads(device, torch.float32, 2, 8)
    mask = torch.ones(2, 1, 2, 8, dtype=torch.bool, device=device)
    mask[0, 0, 1] = False
    got = run(attention, q, k, v, mask)
    assert torch.equal(got[0, :, 1], torch.zeros(3, 16, device=device))
    torch.testing.assert_close(got[1], attention(q, k, v, mask)[1])


def test_large_scores_do_not_overflow(device: str) -> None:
    q, k, v = heads(device, torch.float32, 1, 20)
    assert_as_exact(attention, run(attention, q * 1000, k, v), q * 1000, k, v)


def test_dropout_stays_with_inductor() -> None:
    args = heads("cpu", torch.float32, 1, 20)
    report = helion_inductor.explain(lambda *a: attention(*a, dropout_p=0.5), *args, options=OPTIONS)
    assert not any("scaled_dot_product" in str(n.origins) for r in report.regions for n in r.compiled.program.nests)


def test_written_out_by_hand(device: str) -> None:
    """As the models that up-cast their scores have it: two products with a softmax between them."""

    def fn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = (q.float() @ k.float().transpose(-1, -2)) * 0.25
        return torch.softmax(scores, -1).to(q.dtype) @ v

    args = heads(device, torch.bfloat16, 1, 30)
    report = helion_inductor.explain(fn, *args, options=OPTIONS)
    assert not [r for r in report.refusals if "product" in r.code]
    assert_as_exact(fn, run(fn, *args), *args)
