"""Promotion, scalars, casts, rounding, division, signed zero."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.cases.case_kit import INF, NAN, T, case, ri, rn


@case(
    "promo_cpu_scalar_tensor",
    "pytorch/pytorch#100191",
    "0-dim CPU tensor combines with a device tensor like a Python number",
    lambda d: (torch.ones(5, device=d),),
    "equal",
    "promotion mixed-device 0dim",
)
def _(x):
    return x * torch.as_tensor(2) + torch.tensor(0.5)


@case(
    "promo_ldexp_dtype",
    "pytorch/pytorch#197091",
    "ldexp promotes mantissa and exponent dtypes",
    lambda d: (torch.ones(3, dtype=torch.bool, device=d), rn(3, dtype=torch.float16, device=d), rn(3, device=d)),
    "allclose",
    "promotion upstream-open",
    rtol=2e-3,
    atol=2e-3,
)
def _(b, h, f):
    return torch.ldexp(b, h), torch.ldexp(h, f)


@case(
    "f64_sub_alpha",
    "pytorch/pytorch#95181",
    "float64.sub(python int, alpha=2)",
    lambda d: (rn(4, dtype=torch.float64, device=d),),
    "allclose",
    "scalar alpha",
)
def _(x):
    return x.sub(1, alpha=2), torch.add(x, 3, alpha=0.5), torch.rsub(x, 2)


@case(
    "fp8_scale_chain_bf16",
    "pytorch/pytorch#136181",
    "abs-max -> clamp -> 448/x in bf16 then to f32 (scale rounds to bf16 in eager)",
    lambda d: (rn(16, 16, 96, dtype=torch.bfloat16, device=d),),
    "allclose",
    "fp8 bf16 rounding",
    rtol=4e-3,
    atol=0,
    note="eager rounds the scale to bf16, compilers keep float32 by default; hence the tolerance",
)
def _(x):
    a = torch.abs(torch.max(x))
    return (448.0 / torch.clamp(a, min=1e-12)).to(torch.float32)


@case(
    "fp8_cast_values",
    "pytorch/ao#904",
    "x*scale, clamp to +-448, cast to e4m3 and back; and unclamped cast overflow",
    lambda d: (rn(64, 33, device=d) * 300,),
    "equal",
    "fp8 cast",
)
def _(x):
    q = (x * 1.0).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
    return q.to(torch.float32), (x * 0.5).to(torch.float8_e5m2).float()


@case(
    "where_scalars",
    "pytorch/pytorch#126169",
    "torch.where with Python scalars of int/float/bool kind keeps eager's result dtype; silu in half",
    lambda d: (
        ri(0, 2, (6,), dtype=torch.bool, device=d),
        ri(0, 9, (6,), device=d),
        rn(6, dtype=torch.float16, device=d),
    ),
    "allclose",
    "where promotion",
    rtol=2e-3,
    atol=2e-3,
)
def _(m, i, h):
    return torch.where(m, i, 0.5), torch.where(m, h, 2.0), torch.where(m, 1, 0), torch.where(m, i, True), F.silu(h)


@case(
    "floordiv_inf_is_nan",
    "pytorch/pytorch#188048",
    "inf floor-div finite is NaN; finite floor-div inf",
    lambda d: (T([NAN, INF, -INF, 1.0], d, torch.float64), T([1.0, 1.0, 1.0, INF], d, torch.float64)),
    "equal",
    "floordiv inf",
)
def _(a, b):
    return torch.div(a, b, rounding_mode="floor"), torch.div(b, a, rounding_mode="floor"), a // 0.0


@case(
    "signed_zero_frac",
    "pytorch/pytorch#183606",
    "sign of frac(-0.0) decides the sign of 1/frac",
    lambda d: (T([-0.0, 0.0, -1.5], d),),
    "equal",
    "signed-zero",
)
def _(x):
    return 1.0 / torch.frac(x), torch.signbit(torch.frac(x))


@case(
    "signbit_f64_neg_zero",
    "pytorch/pytorch#187935",
    "signbit(-0.0) is True in every float dtype",
    lambda d: (T([1.0, -0.0, 0.0, -2.0], d, torch.float64),),
    "equal",
    "signed-zero",
)
def _(x):
    return (
        torch.signbit(x),
        torch.signbit(x.half()),
        torch.copysign(torch.ones_like(x), x),
        torch.sign(x),
        torch.sgn(-x),
    )


@case(
    "addcdiv_after_norms",
    "pytorch/pytorch#181694",
    "addcdiv fed by group_norm + constant: well conditioned variant",
    lambda d: (rn(2, 6, 5, device=d), rn(2, 6, 5, seed=1, device=d)),
    "allclose",
    "norm addcdiv",
    rtol=1e-4,
    atol=1e-5,
)
def _(x, y):
    g = F.group_norm(x, 3)
    return torch.addcdiv(x, g, y.abs() + 1, value=0.5), torch.addcmul(x, g, y, value=-2)
