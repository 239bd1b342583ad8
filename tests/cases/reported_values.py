"""NaN and infinity, arg-reductions, integers that wrap, bools."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.cases.case_kit import INF, NAN, T, case, ri, rn


@case(
    "argmax_nan_first",
    "pytorch/pytorch#118266",
    "argmax/argmin return the index of the first NaN",
    lambda d: (T([[1.0, NAN, 5.0, NAN], [-2.0, 0.5, 0.5, 0.1]], d),),
    "equal",
    "nan argmax",
)
def _(x):
    return torch.argmax(x, 1), torch.argmin(x, 1), torch.argmax(torch.log1p(x))


@case(
    "argmax_ties_and_size1",
    "triton-lang/triton#802",
    "all-equal rows, size-1 rows, width-20 rows: index in range and first tie",
    lambda d: (torch.ones(32, 20, device=d), torch.ones(7, 1, device=d), rn(32, 20, device=d)),
    "equal",
    "argmax ties tail-mask",
)
def _(a, b, c):
    return a.argmax(1), b.argmax(1), c.argmin(1), a.argmin(0), b.amax(1)


@case(
    "argmin_padded_tail",
    "flagos-ai/Torch-FL#350",
    "argmin over 20 columns of positive values must never return a padded lane",
    lambda d: (rn(32, 20, device=d).abs() + 10,),
    "equal",
    "argmin tail-mask",
)
def _(x):
    return x.argmin(1), (-x).argmax(1), x.amin(1)


@case(
    "mean_padded_tail",
    "torch-spyre/torch-spyre#4390",
    "mean over 9 elements: masked lanes contribute 0, divisor is 9",
    lambda d: (rn(5, 9, device=d) + 4,),
    "allclose",
    "mean tail-mask",
)
def _(x):
    return x.mean(1), x.exp().mean(1), (x * 0 + 1).prod(1), (x + 1).log().sum(1)


@case(
    "amax_abs_small_widths",
    "NVIDIA/TransformerEngine#600",
    "global abs-max for (1024,2),(2048,1),(4096,2): no out-of-range lanes",
    lambda d: tuple(
        rn(*s, seed=i, device=d) * (i + 1) for i, s in enumerate([(1024, 2), (2048, 1), (4096, 2), (1023, 3)])
    ),
    "equal",
    "amax tail-mask horizontal",
)
def _(*xs):
    return [x.abs().max() for x in xs] + [torch.stack([x.abs().amax() for x in xs])]


@case(
    "minmax_nan_and_promotion",
    "pytorch/pytorch#93784",
    "clamp/maximum/minimum/relu propagate NaN from either arg; clamp promotes int+float bound",
    lambda d: (
        T([-3, NAN, -1, 0, 1, 2, NAN], d, torch.float16),
        T([0, 0, NAN, 0, 5, 0, 0], d, torch.float16),
        ri(0, 4, (7,), device=d),
    ),
    "equal",
    "nan clamp promotion",
)
def _(a, b, i):
    return (
        torch.clamp_min(a, 0.5),
        torch.maximum(a, b),
        torch.minimum(a, b),
        F.relu(a),
        a.clamp(-1, 1),
        torch.clamp_min(i, 1.5),
        torch.clamp(a, b, None),
        torch.clamp_max(a, b),
    )


@case(
    "clamp_none_bounds",
    "torch-spyre/torch-spyre#397",
    "clamp with one bound None, min>max, NaN bounds",
    lambda d: (T([-2.0, 0.3, 5.0, NAN, INF, -INF], d), T([0.0, NAN, 1.0, 1.0, 2.0, 0.0], d)),
    "equal",
    "clamp none nan",
)
def _(x, b):
    return x.clamp(min=None, max=1.0), x.clamp(min=-1.0, max=None), x.clamp(2.0, 1.0), x.clamp(max=b)


@case(
    "nan_survives_angle_atan",
    "pytorch/pytorch#143978",
    "NaN from rsqrt of negatives survives angle/atan/sin",
    lambda d: (rn(10, device=d),),
    "allclose",
    "nan",
)
def _(x):
    return torch.sin(torch.atan(torch.angle(torch.rsqrt(x))))


@case(
    "amax_tie_grad",
    "pytorch/pytorch#186799",
    "amax/amin backward splits the gradient evenly among ties, max picks one",
    lambda d: (T([[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, 0.0, -1.0]], d), rn(2, 4, device=d)),
    "allclose",
    "grad ties",
    grad=True,
)
def _(x, w):
    return x.amax(1) * 2, x.amin(0), (x * w).max(1).values


@case(
    "nan_constant_folding",
    "pytorch/pytorch#188225",
    "constants folding to NaN feed a softmax",
    lambda d: (torch.ones(2, 2, device=d),),
    "equal",
    "nan constant",
)
def _(z):
    t = torch.full((2, 2), 1.0, device=z.device)
    t = torch.arccosh(torch.log2(torch.atan2(t, t)))
    return torch.softmax(t, 0) + z


@case(
    "softmax_scaled_1e14",
    "pytorch/pytorch#163932",
    "softmax of x*1e14 is a finite one-hot",
    lambda d: (rn(5, 5, device=d), T(-1.7e14, d)),
    "allclose",
    "softmax overflow pattern",
)
def _(x, s):
    return (x * s).softmax(-1), torch.softmax(x * 1e14, 0)


@case(
    "softmax_fully_masked_row",
    "pytorch/pytorch#103963",
    "fully masked (-inf) row -> NaN in softmax/log_softmax; SDPA defines 0 for bool masks",
    lambda d: (rn(1, 2, 4, 8, device=d), rn(1, 2, 4, 8, seed=1, device=d), rn(1, 2, 4, 8, seed=2, device=d)),
    "allclose",
    "softmax mask sdpa",
    rtol=1e-4,
    atol=1e-5,
)
def _(q, k, v):
    m = torch.ones(4, 4, dtype=torch.bool, device=q.device).tril()
    m[2] = False
    s = (q @ k.mT).masked_fill(~m, -INF)
    return torch.softmax(s, -1), torch.log_softmax(s, -1), F.scaled_dot_product_attention(q, k, v, attn_mask=m)


@case(
    "u8_neg_compare",
    "pytorch/pytorch#93829",
    "neg on uint8 wraps to 250 before comparison",
    lambda d: (T([6, 0, 255], d, torch.uint8),),
    "equal",
    "int wrap uint8",
)
def _(x):
    y = torch.neg(x)
    return y, y < 4, y.float()


@case(
    "i64_arange_mul",
    "pytorch/pytorch#175966",
    "int64 arange * 1.5e9 must not be computed in 32-bit index arithmetic",
    lambda d: (torch.zeros(1, device=d),),
    "equal",
    "int64 index-dtype",
)
def _(x):
    a = torch.arange(0, 11, device=x.device, dtype=torch.int64)
    return a * torch.tensor([1_500_000_000], device=x.device), a * 3_000_000_000, (a + 2**31) // 2


@case(
    "i32_wrap_then_widen",
    "pytorch/pytorch#190764",
    "int32 arithmetic wraps at 32 bits before a cast to int64",
    lambda d: (T([2**31 - 1, -(2**31), 123456789], d, torch.int32),),
    "equal",
    "int wrap int32",
)
def _(x):
    return (x + 1).to(torch.int64), (x * 3).to(torch.int64), (x - 5 + 5).to(torch.int64), (-x).to(torch.int64)


@case(
    "i8_distributive",
    "pytorch/pytorch#109105",
    "int8: c*(x+y) wraps the same as eager",
    lambda d: (
        ri(-128, 128, (4, 5), dtype=torch.int8, device=d),
        ri(-128, 128, (4, 5), seed=1, dtype=torch.int8, device=d),
    ),
    "equal",
    "int wrap int8",
)
def _(x, y):
    return (x + y) * 6, x * 6 + y * 6, ((x + y) * 6).float()


@case(
    "shift_by_bitwidth",
    "pytorch/pytorch#143566",
    "shifts by >= bit width: 0 / sign fill as eager",
    lambda d: (T([1000, -7, 1], d, torch.int64), T([64, 64, 63], d, torch.int64)),
    "equal",
    "int shift",
)
def _(x, s):
    return torch.bitwise_left_shift(x, s), torch.bitwise_right_shift(x, s)


@case(
    "shift_arith_right",
    "pytorch/pytorch#127310",
    "right shift of negative ints is arithmetic, also after a bool/int8 chain",
    lambda d: (ri(-(2**20), 0, (9,), device=d),),
    "equal",
    "int shift",
)
def _(x):
    return x >> 31, (x.to(torch.int8) >> 3), (x.to(torch.int32) >> 5) << 2


@case(
    "i8_and_clampmax_tensor",
    "pytorch/pytorch#97968",
    "bitwise_and then clamp_max(tensor) on int8 with broadcasting",
    lambda d: (
        ri(-5, 5, (5, 10, 1), dtype=torch.int8, device=d),
        ri(-5, 5, (10, 1), seed=1, dtype=torch.int8, device=d),
    ),
    "equal",
    "int8 clamp",
)
def _(x, y):
    t = torch.bitwise_and(x, y)
    return torch.clamp_max(t, y), torch.max(t, y)


@case(
    "bitwise_python_scalars",
    "pytorch/pytorch#93224",
    "bitwise ops with Python int / bool operands, in-place too",
    lambda d: (ri(0, 50, (2, 3), dtype=torch.int32, device=d),),
    "equal",
    "int scalar",
)
def _(x):
    y = torch.bitwise_xor(x, 18)
    z = x.clone()
    z.bitwise_and_(True)
    return y, z, ~y


@case(
    "int_inplace_div_raises",
    "pytorch/pytorch#143717",
    "in-place true division of an int tensor raises",
    lambda d: (T([1, 4], d, torch.int64), T([2, 3], d, torch.int64)),
    "raises",
    "error int",
)
def _(x, y):
    x.div_(y)
    return x


@case(
    "bitwise_float_raises",
    "pytorch/pytorch#144247",
    "bitwise_and on float tensors raises",
    lambda d: (T([-1.0, 2.0], d), T([1.0, 0.0], d)),
    "raises",
    "error dtype upstream-open",
)
def _(x, y):
    return torch.bitwise_and(x, y)


@case(
    "int_floordiv_remainder_signs",
    "pytorch/pytorch#129849",
    "// % fmod div(trunc) for all sign combinations, ints and huge floats",
    lambda d: (
        T([7, -7, 7, -7, 0, -1], d, torch.int64),
        T([3, 3, -3, -3, 5, 2], d, torch.int64),
        T([1e20, -1e7, 5.5], d),
        T([3.0, 0.1, -2.0], d),
    ),
    "equal",
    "int floordiv remainder",
)
def _(a, b, x, y):
    return (
        a // b,
        a % b,
        torch.fmod(a, b),
        torch.div(a, b, rounding_mode="trunc"),
        torch.remainder(x, y),
        torch.fmod(x, y),
        (a.to(torch.int8) // b.to(torch.int8)),
        a / b,
    )


@case(
    "i8_bmm_dtype",
    "pytorch/pytorch#191308",
    "int8 batched matmul keeps int8",
    lambda d: (torch.ones(1, 1, 2, dtype=torch.int8, device=d), torch.ones(1, 2, 2, dtype=torch.int8, device=d)),
    "equal",
    "dtype int8 upstream-open",
)
def _(a, b):
    return torch.matmul(a, b) if a.device.type == "cpu" else torch.mul(a.transpose(1, 2), b).sum(1, dtype=torch.int8)
