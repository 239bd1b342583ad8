"""Reductions that are read for several copies of each row become one nest with their reader."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import helion_inductor
from helion_inductor.ir.interpret import interpret
from helion_inductor.ir.parser import parse_program
from helion_inductor.ir.tile_ir import TileProgram
from helion_inductor.ir.verify import verify_program
from helion_inductor.scheduling.fuse_vertical import fuse_vertical


def copied(copies: int = 2, *, kind: str = "temp", again: str = "x") -> TileProgram:
    """Sums of rows [12, 8]; every row [3, 4] is scaled by its sum and stored ``copies`` times, as [4, copies, 3, 8]."""
    return parse_program(f"""\
program @p(in x: f32[3, 4, 8], in z: f32[3, 4, 8], out y: f32[4, {copies}, 3, 8], {kind} t: f32[3, 4])
  nest @n0 parallel(p0: 12) reduce(r0: 8)
    %0: f32 = load x[8 * p0 + r0]
    %1: f32 = reduce sum(r0) %0
    store t[p0] %1
  nest @n1 parallel(p0: 4, p1: {copies}, p2: 3, p3: 8)
    %0: f32 = load {again}[32 * p2 + 8 * p0 + p3]
    %1: f32 = load t[4 * p2 + p0]
    %2: f32 = mul(%0, %1)
    store y[8 * p2 + 24 * p1 + {24 * copies} * p0 + p3] %2
""")


@pytest.mark.parametrize("copies", [2, 3, 8])
def test_one_nest_for_a_few_copies(copies: int) -> None:
    program = copied(copies)
    fused, decisions = fuse_vertical(program)
    verify_program(fused)
    assert [d.joined for d in decisions] == [True] and len(fused.nests) == 1
    assert all(b != "t" for b in fused.nests[0].writes())
    x = torch.randn(3, 4, 8)
    given = {"x": x, "z": x}
    expected = (x * x.sum(-1, keepdim=True)).transpose(0, 1)[:, None].expand(4, copies, 3, 8)
    for p in (program, fused):
        torch.testing.assert_close(interpret(p, given, {})["y"], expected)


@pytest.mark.parametrize(
    "program",
    [copied(16), copied(kind="out"), copied(again="z")],
    ids=["many copies", "the sums are wanted", "the reader loads something else"],
)
def test_two_nests_otherwise(program: TileProgram) -> None:
    fused, decisions = fuse_vertical(program)
    assert len(fused.nests) == 2
    assert [(d.joined, d.reason) for d in decisions] == [(False, "iteration spaces do not match")]


def test_keys_of_grouped_queries(device: str) -> None:
    """Normalised and copied to two query heads each: one kernel with the queries' normalisation."""

    def fn(q: torch.Tensor, k: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q = F.rms_norm(q.view(5, 4, 16), (16,), w).transpose(0, 1)
        k = F.rms_norm(k.view(5, 2, 16), (16,), w).transpose(0, 1)
        return q, k[:, None].expand(2, 2, 5, 16).reshape(4, 5, 16)

    q, k, w = torch.randn(5, 64, device=device), torch.randn(5, 32, device=device), torch.randn(16, device=device)
    options = {"regions": "all", "on_error": "raise"}
    report = helion_inductor.explain(fn, q, k, w, options=options)
    assert len(report.kernels) == 1 and len(report.regions[0].compiled.program.nests) == 2
    torch.testing.assert_close(torch.compile(fn, backend="helion", options=options)(q, k, w), fn(q, k, w))
