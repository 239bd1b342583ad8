"""Indexing, sorting, random numbers, norms, and loops that depend on one another."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.cases.case_kit import T, case, generator, ri, rn


@case(
    "index_select_oob_raises",
    "pytorch/pytorch#121251",
    "index_select out of bounds raises",
    lambda d: (rn(2, 2, 2, device=d), T([2], d, torch.int64)),
    "raises",
    "error index_select",
    cpu_only=True,
)
def _(x, i):
    return torch.index_select(x, 0, i)


@case(
    "empty_nonzero_embedding",
    "pytorch/pytorch#192143",
    "nonzero() finds nothing; empty gather -> embedding -> empty result",
    lambda d: (ri(0, 24, (4, 6), device=d), rn(81, 16, seed=1, device=d)),
    "equal",
    "unbacked empty embedding",
    more_inputs=lambda d: [(ri(0, 60, (4, 6), seed=2, device=d), rn(81, 16, seed=1, device=d))],
)
def _(s, w):
    ix = torch.nonzero(s >= 24, as_tuple=True)
    return F.embedding((s[ix] - 24) // 8 + 1, w)


@case(
    "sort_ties",
    "pytorch/pytorch#174459",
    "sort with many ties: values equal, indices gather back the values and are a permutation",
    lambda d: (ri(1, 3, (8, 33), device=d),),
    lambda e, c, ei, ci: torch.equal(e[0], c[0]) and torch.equal(c[0], c[2]) and torch.equal(c[3], e[3]),
    "sort ties",
)
def _(x):
    v, i = torch.sort(x, dim=-1, descending=True)
    return v, i, x.gather(-1, i), torch.sort(i, -1).values


def _rng_check(e, c, ei, ci):
    x, keep, none, zeros = c[0], c[1], c[2], c[3]
    frac = (x != 0).float().mean().item()
    ok_scale = torch.allclose(x[x != 0], torch.full_like(x[x != 0], 1 / 0.7))
    return (
        abs(frac - 0.7) < 0.02
        and ok_scale
        and bool((keep == 1).all())
        and bool((zeros == 0).all())
        and not torch.equal(x, none)
    )


@case(
    "rng_dropout_stats",
    "pytorch/pytorch#141645",
    "dropout keeps ~1-p, scales by 1/(1-p); p=0 and p=1 exact; two calls differ",
    lambda d: (torch.ones(256, 256, device=d),),
    _rng_check,
    "rng dropout",
    note="equal bits as in eager are not required, only the statistics",
)
def _(x):
    return F.dropout(x, 0.3), F.dropout(x, 0.0), F.dropout(x, 0.3), F.dropout(x, 1.0)


@case(
    "index_reduce_mean_bf16",
    "pytorch/pytorch#139242",
    "index_reduce mean into one bf16 slot (eager result is the oracle, even if poor)",
    lambda d: (
        torch.tensor([0.0, 1.0]).repeat(64).to(torch.bfloat16).to(d),
        torch.zeros(128, dtype=torch.int32, device=d),
    ),
    "allclose",
    "scatter bf16",
    rtol=2e-2,
    atol=2e-2,
)
def _(x, i):
    return torch.zeros(1, dtype=x.dtype, device=x.device).index_reduce(0, i, x, "mean"), x.mean()


@case(
    "indexed_store_mask",
    "pytorch/helion#1243",
    "row-wise scatter with a width that is not a power of two must not write outside the row",
    lambda d: (
        rn(3, 11, device=d),
        torch.stack([torch.randperm(20, generator=generator(i))[:11] for i in range(3)]).to(d),
    ),
    "equal",
    "scatter tail-mask",
)
def _(dy, idx):
    return dy.new_zeros(3, 20).scatter(-1, idx, dy), dy.new_zeros(4, 20).scatter(1, idx[:, :5], 2.0)


@case(
    "rmsnorm_bwd_nonpow2",
    "pytorch/helion#737",
    "RMSNorm forward/backward with H=96 and weight grad reduced over tokens",
    lambda d: (rn(257, 96, device=d), rn(96, seed=1, device=d)),
    "allclose",
    "norm grad nonpow2",
    grad=True,
    rtol=1e-3,
    atol=1e-3,
)
def _(x, w):
    return F.rms_norm(x, (96,), w, 1e-6)


@case(
    "norm_bwd_many_sums",
    "pytorch/pytorch#179494",
    "norm backward plus several weight-grad column sums (over-fusion / register pressure hazard)",
    lambda d: (
        rn(512, 128, device=d),
        rn(128, seed=1, device=d),
        rn(128, seed=2, device=d),
        rn(512, 128, seed=3, device=d),
        rn(512, 1, seed=4, device=d),
    ),
    "allclose",
    "norm grad mix-order",
    grad=True,
    rtol=2e-3,
    atol=2e-3,
)
def _(x, w1, w2, r, s):
    h = F.rms_norm(x + r * s, (128,), w1)
    return F.rms_norm(h * torch.sigmoid(r), (128,), w2) + x, h.mean()


@case(
    "qk_norm_rope",
    "vllm-project/vllm#26682",
    "q and k of different head counts: per-head RMSNorm + RoPE each (horizontal pair)",
    lambda d: (
        rn(5, 8 * 16 + 2 * 2 * 16, device=d),
        rn(16, seed=1, device=d),
        rn(16, seed=2, device=d),
        rn(5, 8, seed=3, device=d),
    ),
    "allclose",
    "horizontal norm rope",
    rtol=1e-4,
    atol=1e-4,
)
def _(qkv, wq, wk, ang):
    q, k, v = qkv.split([128, 32, 32], -1)
    cos, sin = ang.cos()[:, None], ang.sin()[:, None]

    def f(t, w):
        t = F.rms_norm(t.view(5, -1, 16), (16,), w)
        a, b = t.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).flatten(1)

    return f(q, wq), f(k, wk), v * 1


@case(
    "fused_sums_memory",
    "pytorch/pytorch#138685",
    "two independent matmul+row-sum branches (grouping them must not double peak memory)",
    lambda d: (rn(256, 16, device=d), rn(256, 16, seed=1, device=d), rn(16, 256, seed=2, device=d)),
    "allclose",
    "memory horizontal",
    rtol=1e-3,
    atol=1e-3,
)
def _(a, b, c):
    return (a @ c).sum(-1) + (b @ c).sum(-1)


@case(
    "grad_clip_norm",
    "pytorch/pytorch#135305",
    "clip_grad_norm_-like: total norm over many tensors then in-place scaling (dependent second loop)",
    lambda d: tuple(rn(*s, seed=i, device=d) for i, s in enumerate([(300,), (17, 33), (1,), (64, 128), (5, 5, 5)])),
    "allclose",
    "horizontal dependent barrier mutation",
    rtol=1e-4,
    atol=1e-5,
    calls=3,
    note="pattern test motivated by the memory discussion there, not a filed wrong-result",
)
def _(*g):
    total = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(g))))
    coef = torch.clamp(1.0 / (total + 1e-6), max=1.0)
    torch._foreach_mul_(list(g), coef)
    return total


@case(
    "dependent_two_pass",
    "pytorch/pytorch#137756",
    "global statistic then normalisation of the same data (grid-wide dependency; cooperative-reduction shape)",
    lambda d: (rn(3, 70001, device=d),),
    "allclose",
    "dependent barrier reduction",
    rtol=1e-3,
    atol=1e-4,
    calls=3,
    note="pattern test for the cooperative-reduction feature PR, not a filed wrong-result",
)
def _(x):
    y = (x - x.mean()) / (x.std() + 1e-5)
    return y.softmax(-1), y.abs().amax(), (y * y).sum(1)


@case(
    "partial_reduction_chain",
    "pytorch/helion#745",
    "row partial sums -> cross-block total -> second elementwise pass with per-row signal",
    lambda d: (rn(37, 4099, device=d), rn(4099, seed=1, device=d)),
    "allclose",
    "dependent barrier norm",
    rtol=1e-3,
    atol=1e-4,
    calls=3,
)
def _(x, w):
    inv = torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6)
    y = x * inv * w
    return y, inv.squeeze(1), y.sum(0)
