"""Dependent loops as phases of one kernel: the same values as apart, equal stretches compiled once, and every decision told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import helion_inductor
from helion_inductor.report import Report

from .comparing import OPTIONS, assert_as_exact, run


def clip_by_total(x: Tensor, y: Tensor) -> Tensor:
    total = (x.square().sum() + y.square().sum()).sqrt()
    return torch.cat([x.flatten(), y.flatten()]) / total.clamp_min(1.0)


def batch_statistics(x: Tensor, y: Tensor) -> Tensor:
    return (x - x.mean(0)) * torch.rsqrt(x.var(0, correction=0) + 1e-5) + (y / y.sum(0)).sum()


def layers(x: Tensor, *weights: Tensor) -> Tensor:
    for up, down in zip(weights[::2], weights[1::2], strict=True):
        x = x + F.silu(F.rms_norm(x, x.shape[-1:]) @ up.t()) @ down.t()
    return x


def softmax_of_columns(x: Tensor, y: Tensor) -> Tensor:
    return torch.softmax(x, 0) @ torch.softmax(y, 0).sum(1)


CASES: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "clip": (clip_by_total, [(30, 40), (17,)]),
    "statistics": (batch_statistics, [(50, 24), (50, 24)]),
    "layers": (layers, [(1, 32), *[(48, 32), (32, 48)] * 3]),
    "columns": (softmax_of_columns, [(20, 12), (12, 9)]),
}


def arguments(name: str, device: str) -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=g).mul(0.5).to(device) for shape in CASES[name][1]]


def plan(fn: Callable[..., Any], *args: Tensor, **options: Any) -> Report:
    return helion_inductor.explain(fn, *args, options={**OPTIONS, **options})


@pytest.mark.parametrize("pid_type", ["persistent_interleaved", "persistent_blocked"])
@pytest.mark.parametrize("name", CASES)
def test_values(device: str, name: str, pid_type: str) -> None:
    fn, _ = CASES[name]
    args = arguments(name, device)
    for gpu_tiles in (False, True):
        got = run(fn, *args, gpu_tiles=gpu_tiles, cross_loop="barrier", pid_type=pid_type)
        assert_as_exact(fn, got, *args)
        apart = run(fn, *args, gpu_tiles=gpu_tiles, cross_loop="off")
        torch.testing.assert_close(got, apart, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_dependent_loops_share_a_kernel(name: str) -> None:
    fn, _ = CASES[name]
    args = arguments(name, "cpu")
    together, apart = (plan(fn, *args, cross_loop=wanted).regions[0].compiled for wanted in ("barrier", "off"))
    assert len(together.schedules) < len(apart.schedules)
    assert sum(len(s.phases) for s in together.schedules) <= len(apart.schedules)
    assert all(len(s.phases) == 1 for s in apart.schedules)
    assert "grid_barrier(state_ptr, 0, tl.num_programs(0))" in together.source.module
    assert "grid_barrier" not in apart.source.module


def test_equal_stretches_are_one_kernel() -> None:
    """The first layer begins with what the others have behind the one before."""
    args = [torch.randn(shape) for shape in [(1, 32), *[(48, 32), (32, 48)] * 5]]
    region = plan(layers, *args, cross_loop="barrier").regions[0].compiled
    names = [k.name for k in region.source.kernels]
    assert len(names) > len(set(names))
    for name in set(names):
        assert region.source.module.count(f"def {name}(") == 1


def test_products_are_phases_unasked_and_other_loops_are_not() -> None:
    assert any(len(s.phases) > 1 for s in plan(layers, *arguments("layers", "cpu")).regions[0].compiled.schedules)
    report = plan(clip_by_total, *arguments("clip", "cpu"))
    assert all(len(s.phases) == 1 for s in report.regions[0].compiled.schedules)
    assert "no product among them" in "\n".join(map(str, report.decisions))


def test_decisions_are_told() -> None:
    args = [torch.randn(shape) for shape in [(1, 128), *[(4096, 128), (128, 4096)] * 3]]
    told = "\n".join(map(str, plan(layers, *args).decisions))
    assert "as a phase of k0: yes: predicted" in told and "a stretch begins again that the kernel has had" in told
    assert "n1 + n6: joined" in told


def test_what_all_tiles_need_is_computed_once() -> None:
    """The norm before a product whose programs have several tiles each."""
    g = torch.Generator().manual_seed(0)
    args = [torch.randn(shape, generator=g) for shape in [(1, 512), (2048, 512), (512, 2048)]]
    region = plan(layers, *args).regions[0].compiled
    tasks = [t for s in region.schedules for t in s.tasks()]
    assert any(t.once for t in tasks)
    assert "_once(" in region.source.module
    assert_as_exact(layers, run(layers, *args, gpu_tiles=True, cross_loop="barrier"), *args)


def test_streamed_matrices_are_pipelined() -> None:
    args = [torch.randn(shape, dtype=torch.bfloat16) for shape in [(1, 1024), (4096, 1024), (1024, 4096)]]
    region = plan(layers, *args).regions[0].compiled
    assert any(t.stages > 1 for s in region.schedules for t in s.tasks())
    assert "num_stages=3)" in region.source.module
