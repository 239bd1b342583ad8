"""Random products with what comes before and after them, on random tiles, as phases or apart: all as exact as eager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from .comparing import HALVES, assert_as_exact, run

BEFORE = ("nothing", "norm", "gelu", "cast", "gather")
AFTER = ("nothing", "bias", "residual", "row sums", "product")


@dataclass(frozen=True)
class Program:
    """``x[rows, k] @ w[columns, k].t()`` for each of ``batch`` matrices, after ``before`` and followed by ``after``."""

    batch: int
    rows: int
    columns: int
    k: int
    before: str
    after: str
    transposed: bool

    def __call__(self, x: Tensor, w: Tensor, bias: Tensor, order: Tensor) -> Tensor:
        match self.before:
            case "norm":
                x = F.rms_norm(x, x.shape[-1:])
            case "gelu":
                x = F.gelu(x)
            case "cast":
                x = (x.float() * 0.3).to(x.dtype)
            case "gather":
                x = x[:, order]
        right = w if self.transposed else w.transpose(-1, -2)
        y = torch.bmm(x, right) if self.batch > 1 else (x[0] @ right[0])[None]
        match self.after:
            case "bias":
                y = torch.relu(y + bias)
            case "residual":
                y = y + y.roll(1, -1) * 0.5
            case "row sums":
                y = y.float().sum(-1)
            case "product":
                y = torch.bmm(y, y.transpose(-1, -2))
        return y

    def arguments(self, dtype: torch.dtype, device: str) -> list[Tensor]:
        g = torch.Generator().manual_seed(self.rows + 7 * self.columns)
        right = (self.batch, self.k, self.columns) if self.transposed else (self.batch, self.columns, self.k)
        made = [torch.randn(s, generator=g) for s in ((self.batch, self.rows, self.k), right, (self.columns,))]
        order = torch.randint(0, self.rows, (self.rows,), generator=g)
        return [*((t / self.k**0.25).to(device, dtype) for t in made), order.to(device)]


programs = st.builds(
    Program, st.sampled_from([1, 1, 3]), st.integers(1, 40), st.integers(2, 70), st.integers(2, 150), st.sampled_from(BEFORE),
    st.sampled_from(AFTER), st.booleans(),
)  # fmt: skip
blocks = st.none() | st.fixed_dictionaries({n: st.sampled_from([16, 32, 64]) for n in "mnk"})


@settings(max_examples=20)
@given(programs, st.sampled_from(HALVES), blocks, st.sampled_from(["barrier", "off"]), st.booleans())
def test_products(program: Program, dtype: torch.dtype, tiles: dict[str, int] | None, cross_loop: str, gpu_tiles: bool) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    args = program.arguments(dtype, device)
    options: dict[str, Any] = {} if tiles is None else {"block_sizes": tiles}
    got = run(program, *args, gpu_tiles=gpu_tiles, cross_loop=cross_loop, **options)
    assert_as_exact(program, got, *args)
