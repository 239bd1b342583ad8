"""Many independent loops on one GPU: how well kernels are shared, beside eager, Inductor and its combo kernels.

    python benchmarks/horizontal.py [--only ROW ...] [--out FILE] [--budget SECONDS]

gpu_us: replay of a CUDA graph of one call, recorded by hand, with a cold L2 cache. stream_us: calls (under reduce-overhead) or
replays (else) back to back, between events. host_us: wall time of a call among back-to-back calls. The error is the largest
over the outputs of the norm of the difference from a float64 run, over that run's norm.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the repository, in place of this folder

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import harness, measuring
from benchmarks.measuring import Bench, Subject, Trial
from benchmarks.peers import USUAL, Peer, compiled

Make = Callable[[str], tuple[Any, ...]]


def pointwise(xs: Sequence[Tensor], ws: Sequence[Tensor]) -> list[Tensor]:
    return [torch.tanh(x) * w + torch.sin(x) for x, w in zip(xs, ws, strict=True)]


def normalised(xs: Sequence[Tensor], ws: Sequence[Tensor]) -> list[Tensor]:
    return [F.gelu(F.layer_norm(x, (x.shape[-1],)) * w) + x for x, w in zip(xs, ws, strict=True)]


def towers(tables: Sequence[Tensor], ids: Sequence[Tensor], ws: Sequence[Tensor], bs: Sequence[Tensor]) -> list[Tensor]:
    """One embedding with layer norm and relu for each categorical feature, joined; as recommender models begin."""
    rows = [F.embedding(i, t) for i, t in zip(ids, tables, strict=True)]
    return [torch.cat([F.relu(F.layer_norm(r, (r.shape[-1],), w, b)) for r, w, b in zip(rows, ws, bs, strict=True)], 1)]


def _rms_norm(x: Tensor, w: Tensor) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return w * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def norm_and_rope(q: Tensor, k: Tensor, wq: Tensor, wk: Tensor, cos: Tensor, sin: Tensor) -> list[Tensor]:
    """What a Qwen3 layer does to queries and keys between projection and attention. q, k: [1, tokens, heads, head_dim]."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return [_rotated(_rms_norm(x, w).transpose(1, 2), cos, sin) for x, w in ((q, wq), (k, wk))]


def _pairs(shapes: Sequence[tuple[int, int]], dtype: torch.dtype = torch.float32) -> Make:
    def make(device: str) -> tuple[Any, ...]:
        xs = [torch.randn(s, device=device, dtype=dtype) for s in shapes]
        return xs, [torch.randn(s[-1], device=device, dtype=dtype) for s in shapes]

    return make


def _tower_data(count: int, batch: int, entries: int, width: int) -> Make:
    def make(device: str) -> tuple[Any, ...]:
        sizes = [entries * (1 + i % 4) for i in range(count)]
        tables = [torch.randn(n, width, device=device) for n in sizes]
        ids = [torch.randint(0, n, (batch,), device=device) for n in sizes]
        ws, bs = ([torch.randn(width, device=device) for _ in sizes] for _ in range(2))
        return tables, ids, ws, bs

    return make


def _rope_data(tokens: int, heads: tuple[int, int] = (16, 8), width: int = 128, dtype: torch.dtype = torch.bfloat16) -> Make:
    def make(device: str) -> tuple[Any, ...]:
        q, k = (torch.randn(1, tokens, h, width, device=device, dtype=dtype) for h in heads)
        wq, wk = (torch.rand(width, device=device, dtype=dtype) + 0.5 for _ in range(2))
        frequencies = 1e6 ** -(torch.arange(0, width, 2, device=device) / width)
        angles = torch.arange(tokens, device=device)[None, :, None] * torch.cat([frequencies, frequencies])
        return q, k, wq, wk, angles.cos().to(dtype), angles.sin().to(dtype)

    return make


@dataclass(frozen=True)
class Case:
    """``fn(*make(device))`` gives a list of tensors; ``tiny`` replaces ``make`` in smoke runs."""

    title: str
    fn: Callable[..., list[Tensor]]
    make: Make
    tiny: Make
    dtype: torch.dtype = torch.float32

    def measure(self, bench: Bench) -> None:
        torch.manual_seed(0)
        data = (self.tiny if bench.smoke else self.make)(bench.device)
        with torch.no_grad():
            exact = self.fn(*widened(data))

        def start(peer: Peer) -> Trial:
            fn = compiled(self.fn, peer, bench.device)

            def error() -> float:
                for _ in range(2):  # the second call under reduce-overhead records, the third replays
                    fn(*data)
                return measuring.largest_error(fn(*data), exact)

            return Trial(lambda: fn(*data), error)

        measuring.measure(bench, Subject(start, self.dtype))


def widened(value: Any) -> Any:
    """Tensors of floating point in float64, in whatever lists and tuples they stand."""
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    return type(value)(widened(v) for v in value)


BF16 = torch.bfloat16
SMALL, SMALL_MIXED = _pairs(((4, 16),) * 3), _pairs(((4, 16), (3, 20), (2, 7)))
CASES = {
    "pointwise-64": Case("64 x [64, 1024], tanh(x) * w + sin(x)", pointwise, _pairs(((64, 1024),) * 64), SMALL),
    "pointwise-64-mixed": Case(
        "64 of mixed sizes, the same", pointwise, _pairs([(16 + 7 * i, 256 + 64 * (i % 9)) for i in range(64)]), SMALL_MIXED
    ),
    "norm-32": Case("32 x [256, 1024], layer norm, gelu, residual", normalised, _pairs(((256, 1024),) * 32), SMALL),
    "norm-32-mixed": Case(
        "32 of mixed sizes, the same", normalised, _pairs([(32 + 5 * i, 128 * (1 + i % 8)) for i in range(32)]), SMALL_MIXED
    ),
    "norm-8-large": Case(
        "8 x [8192, 4096] bf16, the same", normalised, _pairs(((8192, 4096),) * 8, BF16), _pairs(((9, 32),) * 2, BF16), BF16
    ),
    "towers-26": Case("26 x (embedding, layer norm, relu), batch 512", towers, _tower_data(26, 512, 10_000, 128),
                      _tower_data(2, 5, 7, 16)),
    "qwen3-rope-1": Case("Qwen3 norms of q and k with rope, 1 token", norm_and_rope, _rope_data(1), _rope_data(1, (2, 1), 16), BF16),
    "qwen3-rope-4096": Case(
        "Qwen3 norms of q and k with rope, 4096 tokens", norm_and_rope, _rope_data(4096), _rope_data(3, (2, 1), 16), BF16
    ),
}  # fmt: skip
PID_TYPES = ("helion-flat", "helion-blocked", "helion-interleaved", "helion-all-ro")
SUITE = harness.Suite(
    "horizontal", __doc__ or "", {n: harness.Row(c.title, (*USUAL,), c.measure, PID_TYPES) for n, c in CASES.items()}
)

if __name__ == "__main__":
    sys.exit(harness.main(SUITE))
