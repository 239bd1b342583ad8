"""Small functions whose every stage is kept as golden text, each with the arguments that it is planned for.

Nothing here runs on a device: ``explain`` plans for an H200 where there is no GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

import helion_inductor
from helion_inductor import Report
from helion_inductor.pipeline import CompiledRegion


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], w, b)


def gelu_residual(x: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    return F.gelu(x) + r


def layer_norm_gelu_residual(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.layer_norm(x, x.shape[-1:], w, b)) + x


def rms_norm_rope(x: torch.Tensor, w: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x: [tokens, heads, head_dim]; cos and sin: [tokens, head_dim / 2]."""
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6) * w
    left, right = y.chunk(2, -1)
    c, s = cos[:, None], sin[:, None]
    return torch.cat([left * c - right * s, right * c + left * s], -1).to(x.dtype)


def grouped_queries(q: torch.Tensor, k: torch.Tensor, w: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """q: [tokens, heads, head_dim], k: [tokens, half as many, head_dim]: normalised and rotated, each key for two queries."""
    k = rms_norm_rope(k, w, cos, sin).transpose(0, 1)
    return rms_norm_rope(q, w, cos, sin), k[:, None].expand(-1, 2, -1, -1).reshape(2 * k.shape[0], *k.shape[1:])


def decoder_layer(x: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor, up: torch.Tensor, down: torch.Tensor, keys: torch.Tensor,
                  values: torch.Tensor, at: torch.Tensor) -> torch.Tensor:  # fmt: skip
    """One token through a layer: x [1, width], qkv [3 * width, width], keys and values [heads, context, head_dim], at [1]."""
    heads, context, head_dim = keys.shape
    q, k, v = F.linear(F.rms_norm(x, x.shape[-1:]), qkv).view(3, heads, 1, head_dim)
    keys.index_copy_(1, at, k)
    values.index_copy_(1, at, v)
    seen = torch.arange(context, device=x.device) <= at
    x = x + F.linear(F.scaled_dot_product_attention(q[None], keys[None], values[None], seen[None, None, None]).reshape(x.shape), out)
    gate, rest = F.linear(F.rms_norm(x, x.shape[-1:]), up).chunk(2, -1)
    return x + F.linear(F.silu(gate) * rest, down)


def encoder_layer(x: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """Some tokens through a layer: x [tokens, width], qkv [3 * width, width]; heads of 64."""
    tokens, width = x.shape
    q, k, v = F.linear(x, qkv).view(1, tokens, 3, width // 64, 64).permute(2, 0, 3, 1, 4)
    y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(tokens, width)
    x = F.layer_norm(x + F.linear(y, out), (width,))
    return F.layer_norm(x + F.linear(F.gelu(F.linear(x, up)), down), (width,))


def cross_entropy_rows(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, labels, reduction="none")


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, labels)


def cat_pad_slice(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.pad(torch.cat([x, y * 2], 1), (1, 2), value=0.5)[:, 3:-1]


def gather_embedding(table: torch.Tensor, ids: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return F.embedding(ids, table) * scale


def scatter_add(x: torch.Tensor, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    return x.scatter_add(0, index, src) + 1


def two_independent_loops(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.relu(x) * 2, torch.softmax(y, -1)


def transposed_and_scaled(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (x.t() * 2).contiguous(), torch.softmax(y, -1)


def adamw(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> None:
    m.lerp_(g, 0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.mul_(1 - 1e-5).addcdiv_(m, v.sqrt() + 1e-8, value=-1e-3)


def dropout(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x, 0.25)


def many_pointwise(*tensors: torch.Tensor) -> list[torch.Tensor]:
    half = len(tensors) // 2
    return [torch.tanh(x) * w + torch.sigmoid(x) for x, w in zip(tensors[:half], tensors[half:])]


def many_layer_norm_gelu(w: torch.Tensor, b: torch.Tensor, *xs: torch.Tensor) -> list[torch.Tensor]:
    return [layer_norm_gelu_residual(x, w, b) for x in xs]


def foreach(*tensors: torch.Tensor) -> list[torch.Tensor]:
    half = len(tensors) // 2
    xs, ys = list(tensors[:half]), list(tensors[half:])
    return torch._foreach_sqrt(torch._foreach_abs(torch._foreach_add(torch._foreach_mul(xs, 0.5), ys)))


def adamw_step(*tensors: torch.Tensor) -> None:
    """Parameters, gradients, and first and second moments, a quarter each."""
    n = len(tensors) // 4
    p, g, m, v = (list(tensors[k * n : (k + 1) * n]) for k in range(4))
    torch._foreach_lerp_(m, g, 0.1)
    torch._foreach_mul_(v, 0.999)
    torch._foreach_addcmul_(v, g, g, 0.001)
    denominator = torch._foreach_sqrt(v)
    torch._foreach_add_(denominator, 1e-8)
    torch._foreach_mul_(p, 1 - 1e-5)
    torch._foreach_addcdiv_(p, m, denominator, -1e-3)


def total(x: torch.Tensor) -> torch.Tensor:
    return x.sum()


def unit_row(x: torch.Tensor) -> torch.Tensor:
    return x / x.norm()


def clip_gradients(*gs: torch.Tensor) -> torch.Tensor:
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gs)))
    torch._foreach_mul_(gs, torch.clamp(1.0 / (norm + 1e-6), max=1.0))
    return norm


def towers(ids: torch.Tensor, w: torch.Tensor, b: torch.Tensor, *tables: torch.Tensor) -> torch.Tensor:
    """ids: [batch, towers]; one embedding table for each tower."""
    rows = [F.relu(layer_norm(F.embedding(ids[:, k], t), w, b)) for k, t in enumerate(tables)]
    return torch.cat(rows, 1)


@dataclass(frozen=True)
class Golden:
    """``nests``: the loop nests that the function must come down to."""

    fn: Callable[..., Any]
    shapes: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    nests: int
    options: dict[str, Any] = field(default_factory=dict)
    dynamic: bool = False

    def arguments(self) -> tuple[torch.Tensor, ...]:
        made = tuple(torch.ones(shape, dtype=dtype) for shape, dtype in self.shapes)
        for t in made if self.dynamic else ():
            for d in range(t.ndim):
                torch._dynamo.mark_dynamic(t, d)
        return made


F32, BF16, I64 = torch.float32, torch.bfloat16, torch.int64
_LOOPS = (((4000,), F32), ((64, 256), F32))
_MIXED = tuple(((16 + 24 * (k % 7), 64 * (1 + k % 3)), F32) for k in range(20))
_PARAMETERS = tuple((shape, F32) for shape in [(768, 96), (96,), (96, 96), (96,), (10, 96), (10,)] * 2)
FUNCTIONS: dict[str, Golden] = {
    "softmax": Golden(softmax, (((512, 1000), F32),), 1),
    "softmax_dynamic": Golden(softmax, (((512, 1000), F32),), 1, dynamic=True),
    "softmax_bf16_long": Golden(softmax, (((64, 20000), BF16),), 1),
    "layer_norm": Golden(layer_norm, (((512, 768), F32), ((768,), F32), ((768,), F32)), 1),
    "gelu_residual": Golden(gelu_residual, (((512, 768), BF16),) * 2, 1),
    "layer_norm_gelu_residual": Golden(layer_norm_gelu_residual, (((512, 768), BF16), ((768,), BF16), ((768,), BF16)), 1),
    "rms_norm_rope": Golden(rms_norm_rope, (((256, 8, 128), BF16), ((128,), F32), ((256, 64), F32), ((256, 64), F32)), 1),
    "grouped_queries": Golden(
        grouped_queries, (((256, 8, 128), BF16), ((256, 4, 128), BF16), ((128,), F32), ((256, 64), F32), ((256, 64), F32)), 2
    ),
    "decoder_layer": Golden(
        decoder_layer, (((1, 1024), BF16), ((3072, 1024), BF16), ((1024, 1024), BF16), ((8192, 1024), BF16), ((1024, 4096), BF16),
                        ((16, 512, 64), BF16), ((16, 512, 64), BF16), ((1,), I64)), 8,
    ),
    "encoder_layer": Golden(
        encoder_layer, (((128, 768), BF16), ((2304, 768), BF16), ((768, 768), BF16), ((3072, 768), BF16), ((768, 3072), BF16)), 9,
    ),
    "large_layer_norms": Golden(many_layer_norm_gelu, (((4096,), BF16),) * 2 + (((8192, 4096), BF16),) * 2, 2),
    "cross_entropy_rows": Golden(cross_entropy_rows, (((512, 2000), F32), ((512,), I64)), 1),
    "cross_entropy": Golden(cross_entropy, (((512, 2000), F32), ((512,), I64)), 2),
    "cat_pad_slice": Golden(cat_pad_slice, (((64, 30), F32), ((64, 17), F32)), 1),
    "gather_embedding": Golden(gather_embedding, (((1000, 64), BF16), ((8, 32), I64), ((64,), F32)), 1),
    "scatter_add": Golden(scatter_add, (((100, 16), F32), ((300, 16), I64), ((300, 16), F32)), 3),
    "two_loops_flat": Golden(two_independent_loops, _LOOPS, 2, {"pid_type": "flat"}),
    "two_loops_blocked": Golden(two_independent_loops, _LOOPS, 2, {"pid_type": "persistent_blocked"}),
    "two_loops_interleaved": Golden(two_independent_loops, _LOOPS, 2, {"pid_type": "persistent_interleaved"}),
    "two_alike_blocked": Golden(lambda x, y: (x.relu() * 2, y.abs() + 1), (((4000,), F32),) * 2, 2, {"pid_type": "persistent_blocked"}),
    "grouped_tiles": Golden(
        transposed_and_scaled, (((500, 300), F32), ((64, 256), F32)), 2,
        {"pid_type": "persistent_interleaved", "loop_order": ["x", "y"], "l2_grouping": 4, "xcd_remap": True},
    ),
    "grouped_tiles_dynamic": Golden(
        transposed_and_scaled, (((500, 300), F32), ((64, 256), F32)), 2, {"pid_type": "persistent_blocked", "l2_grouping": 4}, dynamic=True
    ),
    "adamw": Golden(adamw, (((5000,), F32),) * 4, 1),
    "dropout": Golden(dropout, (((64, 100), F32),), 1),
    "family_of_64": Golden(many_pointwise, (((64, 1024), F32),) * 128, 64),
    "family_of_mixed_sizes": Golden(many_pointwise, _MIXED * 2, 20),
    "family_of_two_sizes_dynamic": Golden(many_pointwise, (((64, 32), F32), ((8, 40), F32)) * 2, 2, dynamic=True),
    "family_layer_norm_gelu": Golden(many_layer_norm_gelu, (((768,), BF16),) * 2 + tuple(((32 * k, 768), BF16) for k in range(1, 9)), 8),
    "family_foreach": Golden(foreach, _MIXED * 2, 20),
    "family_adamw": Golden(adamw_step, _PARAMETERS * 4, 12),
    "split_total": Golden(total, (((4096, 1024), F32),), 2),
    "split_unit_row_ragged": Golden(unit_row, (((1000003,), F32),), 3),
    "split_clip_gradients": Golden(clip_gradients, _PARAMETERS[:6] * 3, 40),
    "family_towers": Golden(towers, (((512, 6), I64), ((64,), F32), ((64,), F32)) + tuple(((1000 + k, 64), F32) for k in range(6)), 7),
}


@cache
def report(name: str) -> Report:
    """What the backend makes of the function called ``name``, without gradients."""
    golden = FUNCTIONS[name]
    options = {"regions": "all", "on_error": "raise"} | golden.options
    with torch.no_grad():
        return helion_inductor.explain(golden.fn, *golden.arguments(), options=options)


def region(name: str) -> CompiledRegion:
    """The only region of the function called ``name``; fails, showing the report, where there are more or none."""
    regions = report(name).regions
    assert len(regions) == 1, str(report(name))
    return regions[0].compiled
