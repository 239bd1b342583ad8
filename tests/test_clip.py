"""Norms over lists of tensors, and gradient clipping: values against eager, in few kernels, in place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils import clip_grad_norm_

import helion_inductor
from helion_inductor.backend import helion
from helion_inductor.report import GraphReport
from helion_inductor.runtime.precompile import Resources, compile_offline_many

OPTIONS: dict[str, Any] = {"regions": "all", "on_error": "raise", "inductor": {"force_disable_caches": True}}
SHAPES = ((8, 24), (5,), (40, 16), (1, 40), (), (7, 9), (5,), (33,), (64,), (3, 5, 7), (40, 16), (128,), (4, 4), (2, 48), (8, 8), (9,),
          (1,), (6, 6), (24, 80))  # fmt: skip
LONG = tuple((n,) for n in (100000, 50000, 100000, 33000)) + ((64, 768), (768,))


def randn(shapes: Sequence[tuple[int, ...]], device: str, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=generator).to(dtype).to(device) for s in shapes]


def compiled(fn: Callable[..., Any], **options: Any) -> tuple[Callable[..., Any], list[GraphReport]]:
    """The compiled function, and the reports that its compilations will add."""
    graphs: list[GraphReport] = []
    run = torch.compile(fn, backend="helion", options={**OPTIONS, **options})

    def call(*args: Any) -> Any:
        with helion.recording(graphs.append), torch.no_grad():
            return run(*args)

    return call, graphs


# ---- ops over lists
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("order", [2, 1, 0, math.inf, -math.inf, 3, -0.5])
def test_norms(order: float, dtype: torch.dtype, device: str) -> None:
    """In the dtype of the tensors and in wider ones; a tensor without dimensions, one with NaN, one large for half precision."""
    outs = [out for out in (None, torch.float32, torch.float64) if out is None or out.itemsize >= dtype.itemsize]

    def norms(*xs: torch.Tensor) -> list[torch.Tensor]:
        return [norm for out in outs for norm in torch._foreach_norm(xs, order, out)]

    given = randn(((3, 5), (7,), (), (2, 3, 4), (40,)), device, dtype)
    given[1][3] = float("nan")
    given[4] *= 300  # its squares are no longer halves, its norm is
    run, graphs = compiled(norms)
    got, want = run(*given), norms(*given)
    assert [g.dtype for g in got] == [w.dtype for w in want] and not graphs[0].refusals
    torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("order", [2, 1, 0, 3])
def test_norms_of_empty_tensors(order: float, device: str) -> None:
    given = randn(((3, 0), (4,), (0,)), device)
    run, _ = compiled(lambda *xs: torch._foreach_norm(xs, order))
    torch.testing.assert_close(run(*given), list(torch._foreach_norm(given, order)))


def test_norms_of_views_and_of_one_tensor_twice(device: str) -> None:
    x, y = randn(((6, 8), (5, 4)), device)

    def norms(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch._foreach_norm([x.t(), y[:, ::2], x, x[1]])

    run, _ = compiled(norms)
    torch.testing.assert_close(run(x, y), list(norms(x, y)))


OTHERS: dict[str, Callable[..., Any]] = {
    "exp": lambda *xs: torch._foreach_exp(xs),
    "tanh": lambda *xs: torch._foreach_tanh(xs),
    "floor": lambda *xs: torch._foreach_floor(xs),
    "max": lambda *xs: torch._foreach_max(xs),
    "mul by scalars": lambda *xs: torch._foreach_mul(xs, [0.5, -1.0, 2.0]),
    "clamp_min by scalars": lambda *xs: torch._foreach_clamp_min(xs, [0.5, -1.0, 0.0]),
    "pow by scalars": lambda *xs: torch._foreach_pow(torch._foreach_abs(xs), [2.0, 0.5, 3.0]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_foreach_ops_that_inductor_has_no_loops_for(name: str, device: str) -> None:
    given = randn(((6, 8), (5, 4), (3,)), device)
    torch.compiler.allow_in_graph(torch._foreach_max)  # Dynamo does not trace it of its own
    run, graphs = compiled(OTHERS[name])
    torch.testing.assert_close(run(*given), list(OTHERS[name](*given)))
    assert not graphs[0].refusals and len(graphs[0].regions) == 1


# ---- clipping
def gradients(shapes: Sequence[tuple[int, ...]], device: str) -> list[torch.nn.Parameter]:
    params = [torch.nn.Parameter(torch.zeros(s, device=device)) for s in shapes]
    for p, g in zip(params, randn(shapes, device), strict=True):
        p.grad = g
    return params


def grads(params: Sequence[torch.nn.Parameter]) -> list[torch.Tensor]:
    return [p.grad for p in params if p.grad is not None]


@pytest.mark.parametrize("split", ["auto", 32])
@pytest.mark.parametrize("norm_type", [2.0, 1.0, math.inf])
def test_clip_grad_norm(norm_type: float, split: str | int, device: str) -> None:
    params, same = gradients(SHAPES, device), gradients(SHAPES, device)
    run, graphs = compiled(lambda: clip_grad_norm_(params, 0.5, norm_type=norm_type, foreach=True), split_reductions=split)
    where = [g.data_ptr() for g in grads(params)]
    for factor in (1.0, 3.0, 1e-3):  # the last is below the norm: nothing is scaled
        for g, h in zip(grads(params), grads(same), strict=True):
            g *= factor
            h *= factor
        got = run()
        want = clip_grad_norm_(same, 0.5, norm_type=norm_type, foreach=True)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(grads(params), grads(same))
    (region,) = graphs[0].regions
    compiled_region = region.compiled
    assert [d.granted for d in compiled_region.in_place] == [True] * len(SHAPES)
    assert not graphs[0].refusals and where == [g.data_ptr() for g in grads(params)]
    assert sum(b.kind == "temp" for b in compiled_region.program.buffers) <= 3
    assert len(compiled_region.schedules) == (3 if split == "auto" else 4)
    assert sum(d.split for d in compiled_region.splits) == (0 if split == "auto" else sum(math.prod(s) > 32 for s in SHAPES))


def test_gradients_that_are_not_finite(device: str) -> None:
    params, same = gradients(SHAPES[:4], device), gradients(SHAPES[:4], device)
    for some in (params, same):
        grads(some)[2][3, 5] = float("inf")
    run, _ = compiled(lambda: clip_grad_norm_(params, 0.5, foreach=True, error_if_nonfinite=False))
    assert run().isinf() and clip_grad_norm_(same, 0.5, foreach=True).isinf()
    torch.testing.assert_close(grads(params), grads(same), equal_nan=True)


def clip(*gs: torch.Tensor) -> torch.Tensor:
    total = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gs)))
    torch._foreach_mul_(gs, torch.clamp(1.0 / (total + 1e-6), max=1.0))
    return total


def test_long_gradients_are_split_and_share_kernels_with_short_ones(tmp_path: Path) -> None:
    """For a device: partial norms beside the norms of short tensors, in few bodies; then what is left of the long ones; no spills."""
    shapes = (*LONG * 3, *LONG[:2])
    with torch.no_grad():
        report = helion_inductor.explain(clip, *[torch.ones(s) for s in shapes], options=OPTIONS)
    (region,) = report.regions
    long = [s for s in shapes if s != (768,)]
    assert sum(d.split for d in region.compiled.splits) == len(long) and all(d.granted for d in region.compiled.in_place)
    partial, folds, total, scaling = region.compiled.schedules
    assert sum(len(t.nests()) for t in partial.tasks()) == len(shapes) and len(partial.tasks()) <= 4
    assert sum(len(t.nests()) for t in folds.tasks()) == len(long) and len(total.tasks()) == 1
    assert [len(t.nests()) for t in scaling.tasks()] == [len(shapes)]
    assert {d.split for d in report.decisions if hasattr(d, "chunk")} == {True}
    requests = []
    for kernel in region.kernels():
        module = tmp_path / "module.py"
        module.write_text(kernel.source, encoding="utf-8")
        requests.append(kernel.request(str(module), "sm_90"))
    for resources in compile_offline_many(requests):
        assert isinstance(resources, Resources), resources
        assert resources.spill_stores == resources.spill_loads == resources.stack_bytes == 0
        assert "ld.global.v4" in resources.ptx or resources.registers < 32


# ---- a cat of many tensors
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_a_cat_of_many_tensors(dim: int, device: str) -> None:
    """Filled part by part, by the loops that make the parts; empty tensors and other dtypes among them."""
    given = [x.to(torch.bfloat16 if k == 4 else torch.float32) for k, x in enumerate(randn([(3, 4)] * 20, device))]
    given[7] = given[7][:, :0] if dim % 2 else given[7][:0]  # what is bf16 is multiplied by 4, exactly

    def fn(*xs: torch.Tensor) -> torch.Tensor:
        return torch.cat([x * k for k, x in enumerate(xs)], dim) + 1

    run, graphs = compiled(fn)
    torch.testing.assert_close(run(*given), fn(*given))
    (region,) = graphs[0].regions
    assert len(region.compiled.program.nests) == 20 and len(region.compiled.schedules) == 2


def test_a_cat_of_many_tensors_is_a_result(device: str) -> None:
    given = randn([(5,), (1,), (3,)] * 9, device)
    run, graphs = compiled(lambda *xs: torch.cat(xs))
    torch.testing.assert_close(run(*given), torch.cat(given))
    assert not graphs[0].refusals and len(graphs[0].regions[0].compiled.schedules) == 1
