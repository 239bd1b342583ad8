"""Empty and odd shapes, scans, changing shapes, layouts, strides, complex numbers."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from tests.cases.case_kit import INF, case, ri, rn


@case(
    "scan_0d_constant",
    "pytorch/pytorch#193265",
    "cumsum on a 0-dim in-graph constant",
    lambda d: (torch.zeros((), device=d),),
    "equal",
    "0dim scan constant",
)
def _(x):
    return torch.full((), 5.0, device=x.device).cumsum(0) + x, x.cumprod(-1)


@case(
    "empty_var_mean",
    "pytorch/pytorch#197108",
    "var_mean/std_mean of nothing is (nan, nan); sum 0, prod 1, any False, all True",
    lambda d: (torch.empty(0, device=d), torch.empty(0, 3, device=d), torch.empty(3, 0, device=d)),
    "equal",
    "empty reduction upstream-open",
)
def _(a, b, c):
    return (
        *torch.var_mean(a),
        *torch.std_mean(b, 0),
        a.sum(),
        c.prod(1),
        a.bool().any(),
        a.bool().all(),
        c.mean(1),
        b.sum(1),
        c.logsumexp(1),
    )


@case(
    "empty_amax_raises",
    "pytorch/pytorch#197554",
    "amax over an empty dimension raises (no identity)",
    lambda d: (torch.empty(3, 0, device=d),),
    "raises",
    "empty error",
    note="umbrella issue: compiled path must raise where eager raises",
)
def _(x):
    return x.amax(1)


@case(
    "var_offset_data",
    "pytorch/pytorch#197089",
    "variance of N(1e5,1) needs Welford/two-pass (rel. error < 2e-2); tiny and huge scales finite where eager is",
    lambda d: (rn(64, 1000, device=d) + 1e5, rn(8, 300, device=d) * 1e-12),
    "allclose",
    "var welford",
    rtol=2e-2,
    atol=0,
)
def _(x, t):
    return x.var(1), x.std(), torch.var_mean(x, 0)[0], t.std(1)


@case(
    "linear_zero_features",
    "pytorch/pytorch#104937",
    "linear with zero in_features returns the bias",
    lambda d: (rn(2, 3, 0, device=d), rn(5, 0, device=d), rn(5, seed=1, device=d)),
    "equal",
    "empty matmul",
)
def _(x, w, b):
    return F.linear(x, w, b), x @ w.t(), F.linear(x, w, b).relu().sum(0)


@case(
    "pad_empty_batch",
    "pytorch/pytorch#108043",
    "constant pad on a (0,0,1) tensor and with zero padding",
    lambda d: (torch.rand(0, 0, 1, device=d),),
    "equal",
    "empty pad",
)
def _(x):
    return F.pad(x, (0, 0, 0, 0), value=1.0), F.pad(x, (1, 2)), torch.cat([x, x], 2)


@case(
    "interpolate_empty_raises",
    "pytorch/pytorch#197095",
    "interpolate of a zero-size spatial dim raises",
    lambda d: (torch.rand(1, 2, 0, 4, device=d),),
    "raises",
    "empty error upstream-open",
)
def _(x):
    return F.interpolate(x, size=(3, 3), mode="nearest")


@case(
    "pad_negative_then_linear",
    "pytorch/pytorch#194558",
    "negative (cropping) pad feeding a matmul",
    lambda d: (rn(2, 7, device=d), rn(5, 4, seed=1, device=d)),
    "allclose",
    "pad negative",
)
def _(x, w):
    return F.linear(F.pad(x, (0, -3)), w), F.pad(x, (-1, 2), value=9.0)


@case(
    "pad_chain_then_min",
    "pytorch/pytorch#96484",
    "consecutive pads, one negative, then a min reduction with broadcasting",
    lambda d: (rn(2, device=d), rn(2, seed=1, device=d)),
    "equal",
    "pad chain",
)
def _(a, b):
    c = F.pad(F.pad(a, (1, 1), value=4.0), (0, -3))
    return (c + b).min(0).values, F.pad(F.pad(b, (2, 0)), (0, 2), value=1.0)


@case(
    "slice_scatter_sum_grad",
    "pytorch/pytorch#180164",
    "backward of slice_scatter(...).sum(dim): gradient zero only inside the slice",
    lambda d: (rn(3, 20, 7, device=d), rn(3, 7, 7, seed=1, device=d)),
    "allclose",
    "grad slice_scatter",
    grad=True,
)
def _(x, y):
    return torch.slice_scatter(x, y, 1, 5, 12).sum(1)


@case(
    "large_offset_indexing",
    "pytorch/pytorch#186057",
    "slices beyond element 2**31 (needs 64-bit addressing and constants)",
    lambda d: (torch.zeros(2**31 + 4096, dtype=torch.int8, device=d),),
    "equal",
    "int64 large",
    heavy=True,
    calls=1,
)
def _(x):
    t = x[2**31 :]
    return t[:16] + 1, t.view(64, 64).sum(1), x[-1] + 3


@case(
    "y_grid_overflow",
    "pytorch/pytorch#174354",
    "several independent 2-D (transposing) kernels with > 65535 tiles on one axis",
    lambda d: (rn(8, 70001, device=d), rn(3, 66000, seed=1, device=d), rn(70001, 8, seed=2, device=d)),
    "equal",
    "grid horizontal combo",
)
def _(a, b, c):
    return a.t().contiguous() + 1, b.t().contiguous() * 2, c + a.t()


@case(
    "foreach_then_max",
    "pytorch/pytorch#120857",
    "foreach abs followed by full reductions of each result",
    lambda d: (rn(64, 64, device=d), rn(5, 3, seed=1, device=d)),
    "equal",
    "foreach reduction horizontal",
)
def _(a, b):
    a, b = torch._foreach_abs([a, b])
    return a.max(), b.max(), torch.stack(torch._foreach_norm([a, b], INF))


@case(
    "diff_dynamic",
    "pytorch/pytorch#116493",
    "diff().sum() with changing shapes, including length 1",
    lambda d: (rn(3, 4, device=d),),
    "allclose",
    "dynamic diff",
    more_inputs=lambda d: [(rn(5, 4, device=d),), (rn(5, 9, device=d),), (rn(1, 1, device=d),)],
)
def _(x):
    return torch.diff(x, dim=-1).sum(-1)


@case(
    "shape_in_arithmetic_dynamic",
    "pytorch/pytorch#145587",
    "x.shape[0] used as a value must follow the new shape",
    lambda d: (rn(4, 3, device=d), rn(4, 3, seed=1, device=d)),
    "allclose",
    "dynamic symint",
    dynamic=True,
    more_inputs=lambda d: [(rn(n, 3, device=d), rn(n, 3, seed=1, device=d)) for n in (8, 1, 5)],
)
def _(a, b):
    return a.shape[0] * a * b + 1.0 / a.shape[0], (a + b).mean(0) * math.sqrt(a.shape[0])


@case(
    "full_square_dynamic",
    "pytorch/pytorch#123810",
    "mask construction torch.full((L,L), finfo.min).triu for changing L",
    lambda d: (ri(0, 9, (2, 3), device=d),),
    "equal",
    "dynamic mask",
    dynamic=True,
    more_inputs=lambda d: [(ri(0, 9, (2, n), device=d),) for n in (4, 5, 1)],
)
def _(ids):
    n = ids.shape[1]
    return torch.full((n, n), torch.finfo(torch.float16).min, device=ids.device).triu(1) + ids[:1].float()


@case(
    "topk_fraction_dynamic",
    "pytorch/pytorch#134720",
    "k = int(0.12 * L) recomputed per shape, gather by topk indices",
    lambda d: (rn(2, 50, 4, device=d),),
    "allclose",
    "dynamic topk",
    dynamic=True,
    more_inputs=lambda d: [(rn(2, n, 4, seed=n, device=d),) for n in (100, 17, 33)],
)
def _(x):
    k = int(0.12 * x.shape[1])
    idx = x.sum(-1).topk(k, dim=1).indices.sort(1).values
    return x.gather(1, idx[..., None].expand(-1, -1, x.shape[2]))


@case(
    "layout_as_strided_channels_last",
    "pytorch/pytorch#174963",
    "as_strided over the memory of roll(channels_last) follows eager's layout",
    lambda d: (torch.arange(100, device=d).reshape(2, 5, 2, 5).to(memory_format=torch.channels_last),),
    "equal",
    "layout as_strided upstream-open",
)
def _(x):
    return torch.as_strided(torch.roll(x, -1, 0), (5, 10), (4, 1), 0) * 1


@case(
    "layout_interpolate_permuted",
    "pytorch/pytorch#183771",
    "nearest interpolate of a permuted input keeps eager strides",
    lambda d: (rn(2, 5, 2, 3, 2, device=d).permute(0, 4, 1, 2, 3),),
    "equal",
    "layout",
    strides=True,
)
def _(x):
    return F.interpolate(x, size=(5, 6, 7), mode="nearest")


@case(
    "layout_channel_shuffle_cl",
    "pytorch/pytorch#197109",
    "channel_shuffle on channels_last keeps channels_last",
    lambda d: (rn(2, 6, 4, 5, device=d).to(memory_format=torch.channels_last),),
    "equal",
    "layout upstream-open",
    strides=True,
)
def _(x):
    return F.channel_shuffle(x, 3)


@case(
    "layout_unsqueeze_odd_strides",
    "pytorch/pytorch#186850",
    "unsqueeze/permute/pixel-shuffle chain over a tensor whose layout is not row-major",
    lambda d: (
        torch.empty_strided((2, 8, 3, 4), (96, 3, 1, 24), device=d).copy_(rn(2, 8, 3, 4)),
        rn(1, 2, 6, 8, seed=1, device=d),
    ),
    "allclose",
    "layout view-chain",
)
def _(x, b):
    y = x.unsqueeze(2).reshape(2, 2, 2, 2, 3, 4).permute(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 8)
    return y + b, x.unsqueeze(-1) * 2


@case(
    "layout_noncontig_inputs",
    "pytorch/pytorch#116433",
    "flip, negative-step gather, expand, transposed and sliced inputs in one pointwise+reduction graph",
    lambda d: (rn(6, 10, device=d)[::2, 1::3], rn(4, 3, seed=1, device=d).t(), rn(1, 4, seed=2, device=d).expand(3, 4)),
    "allclose",
    "layout views",
)
def _(a, b, c):
    z = a[:, :3].sum(1)[:, None] + b * c
    return z.flip(1), (z + 1).reshape(-1, 2, 1), torch.roll(z, 1, 1).sum(0), b.flip(0) - c


@case(
    "complex_abs_transposed_grad",
    "pytorch/pytorch#184101",
    "abs() of a transposed complex tensor, backward",
    lambda d: (torch.complex(rn(4, 8, device=d), rn(4, 8, seed=1, device=d)),),
    "allclose",
    "complex grad",
    grad=True,
)
def _(x):
    return x.T.abs().sum()
