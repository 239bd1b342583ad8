"""Many small tensors through ``torch.compile``: few tasks, right values wherever the tensors lie, wide accesses."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from helion_inductor.backend import helion
from helion_inductor.report import GraphReport, KernelReport
from helion_inductor.runtime.precompile import Resources, compile_offline_many
from tests.golden.functions import adamw_step, foreach, many_layer_norm_gelu, many_pointwise, report, towers

OPTIONS: dict[str, Any] = {"regions": "all", "on_error": "raise", "inductor": {"force_disable_caches": True}}
PID_TYPES = ("flat", "persistent_blocked", "persistent_interleaved")
SHAPES = ((8, 24), (5,), (16, 16), (1, 40), (7, 9), (5,), (33,), (64,), (3, 5, 7), (16, 16), (128,), (4, 4), (2, 48), (8, 8), (9,),
          (1,), (6, 6), (24, 8))  # fmt: skip


def randn(shapes: Sequence[tuple[int, ...]], device: str, seed: int = 0, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=generator).to(dtype).to(device) for s in shapes]


def compiled(fn: Callable[..., Any], *, dynamic: bool = False, **options: Any) -> tuple[Callable[..., Any], list[GraphReport]]:
    """The compiled function, and the reports that its compilations will add."""
    graphs: list[GraphReport] = []
    run = torch.compile(fn, backend="helion", options={**OPTIONS, **options}, dynamic=dynamic)

    def call(*args: torch.Tensor) -> Any:
        with helion.recording(graphs.append), torch.no_grad():
            return run(*args)

    return call, graphs


def kernels(graphs: list[GraphReport]) -> list[KernelReport]:
    return [k for g in graphs for r in g.regions for k in r.kernels()]


def members(graphs: list[GraphReport]) -> list[list[int]]:
    return [[len(t.nests()) for t in k.schedule.tasks()] for k in kernels(graphs)]


@pytest.mark.parametrize("pid_type", PID_TYPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pointwise_loops_of_many_sizes(pid_type: str, dtype: torch.dtype, device: str) -> None:
    run, graphs = compiled(many_pointwise, pid_type=pid_type)
    given = randn(SHAPES * 2, device, dtype=dtype)
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-5  # eager rounds after each operation
    torch.testing.assert_close(run(*given), many_pointwise(*given), rtol=tolerance, atol=tolerance)
    (kernel,) = kernels(graphs)
    assert {t.select for t in kernel.schedule.tasks()} <= {"table", "arguments"} and len(kernel.schedule.tasks()) <= 4
    assert sum(len(t.nests()) for t in kernel.schedule.tasks()) == len(SHAPES)


@pytest.mark.parametrize("pid_type", PID_TYPES)
def test_an_optimizer_step(pid_type: str, device: str) -> None:
    run, graphs = compiled(adamw_step, pid_type=pid_type)
    given = [t.abs() for t in randn(SHAPES * 4, device)]
    want = [t.clone() for t in given]
    for _ in range(3):
        run(*given)
        adamw_step(*want)
        torch.testing.assert_close(given, want, rtol=1e-5, atol=1e-6)
    assert len(members(graphs)) == 1 and sum(members(graphs)[0]) == len(SHAPES) and len(members(graphs)[0]) <= 4


def test_foreach_ops(device: str) -> None:
    run, graphs = compiled(foreach)
    given = randn(SHAPES * 2, device)
    torch.testing.assert_close(run(*given), foreach(*given), rtol=1e-5, atol=1e-6)
    assert len(kernels(graphs)) == 1


def test_reductions_that_share_weights(device: str) -> None:
    run, graphs = compiled(many_layer_norm_gelu)
    given = randn([(48,), (48,), *((n, 48) for n in (5, 8, 8, 2, 17, 3))], device)
    torch.testing.assert_close(run(*given), many_layer_norm_gelu(*given), rtol=1e-4, atol=1e-5)
    assert members(graphs) == [[6]]


def test_towers_of_embeddings(device: str) -> None:
    tables = randn([(11 + k, 24) for k in range(5)], device)
    ids = torch.randint(0, 11, (9, 5), generator=torch.Generator().manual_seed(1)).to(device)
    run, graphs = compiled(towers)
    given = [ids, *randn([(24,), (24,)], device), *tables]
    torch.testing.assert_close(run(*given), towers(*given), rtol=1e-4, atol=1e-5)
    assert any(5 in tasks for tasks in members(graphs))


def masks_and_ints(*xs: torch.Tensor) -> list[torch.Tensor]:
    return [F.pad(x, (1, 2), value=3)[..., ::2] % 5 > 1 for x in xs]


def test_integers_masks_and_bools(device: str) -> None:
    run, graphs = compiled(masks_and_ints)
    for seed in range(2):
        given = [(9 * t).to(torch.int32) for t in randn([(k + 2, 9) for k in range(6)], device, seed)]
        got = run(*given)
        assert all(torch.equal(g, w) for g, w in zip(got, masks_and_ints(*given), strict=True))
    assert max(n for k in members(graphs) for n in k) > 1


def test_sizes_may_change(device: str) -> None:
    """Tables hold the sizes of each call."""
    shapes = [[(rows, 8 * k) for k in range(1, 18)] for rows in (4, 9, 4, 7)]
    run, graphs = compiled(many_pointwise, dynamic=True)
    first = randn(shapes[0] * 2, device)
    for t in first:
        torch._dynamo.mark_dynamic(t, 0)
    run(*first)
    for n, some in enumerate(shapes):
        given = randn(some * 2, device, n)
        torch.testing.assert_close(run(*given), many_pointwise(*given), rtol=1e-5, atol=1e-6)
    assert len(graphs) == 1 and [len(t.nests()) for k in kernels(graphs) for t in k.schedule.tasks() if t.select == "table"]


def test_tensors_may_move(device: str) -> None:
    """Wherever the tensors of a table lie, aligned or not, before and after others came and went."""
    run, graphs = compiled(many_pointwise)
    shapes = [(4, 8 * k) for k in range(1, 18)] * 2
    sets = [randn(shapes, device, seed) for seed in range(3)]
    odd = [torch.empty(t.numel() + 1, device=device)[1:].view(t.shape).copy_(t) for t in sets[2]]
    for given in (sets[0], sets[1], sets[0], odd, sets[2], sets[1], odd, sets[0]):
        torch.testing.assert_close(run(*given), many_pointwise(*given), rtol=1e-5, atol=1e-6)
    sets[0][5].copy_(sets[1][5])
    sets[0][6] = sets[1][6]
    torch.testing.assert_close(run(*sets[0]), many_pointwise(*sets[0]), rtol=1e-5, atol=1e-6)
    assert [t.select for k in kernels(graphs) for t in k.schedule.tasks()] == ["table"]


def test_more_pointers_than_a_kernel_takes(device: str) -> None:
    run, graphs = compiled(many_pointwise)
    given = randn([(3 + k % 4, 8) for k in range(150)] * 2, device)
    torch.testing.assert_close(run(*given), many_pointwise(*given), rtol=1e-5, atol=1e-6)
    (kernel,) = kernels(graphs)
    assert len({b.name for b in kernel.region.program.buffers}) > 400 and [len(t.nests()) for t in kernel.schedule.tasks()] == [150]


def _resources(kernel: KernelReport, path: Path, **constexprs: object) -> tuple[Resources, float]:
    path.write_text(kernel.source, encoding="utf-8")
    request = kernel.request(str(path))
    start = time.perf_counter()
    (result,) = compile_offline_many([replace(request, constexprs={**request.constexprs, **constexprs})])
    assert isinstance(result, Resources), str(result)
    return result, time.perf_counter() - start


@pytest.mark.parametrize("name", ["family_of_64", "family_of_mixed_sizes", "family_foreach", "family_layer_norm_gelu"])
def test_accesses_are_wide(name: str, tmp_path: Path) -> None:
    """For sm_90: every load and store of a member moves 16 bytes a thread, whichever way members are selected."""
    (kernel,) = report(name).kernels
    used, seconds = _resources(kernel, tmp_path / "module.py")
    body = [t for t in kernel.schedule.tasks()][0]
    nest = next(n for n in kernel.region.program.nests if n.name == body.nest)
    blocks = 1
    for d in body.dims:
        blocks *= d.block
    wide = blocks * min(kernel.region.program.buffer(b).dtype.itemsize for b in nest.writes()) // (32 * kernel.schedule.num_warps * 16)
    assert wide > 0 and len(re.findall(r"st\.global\S*\.v4", used.ptx)) >= wide * len(nest.writes())
    assert len(re.findall(r"ld\.global\S*\.v4", used.ptx)) >= wide * len(nest.reads())
    assert used.spill_stores == 0 and used.spill_loads == 0 and used.stack_bytes == 0 and seconds < 60


def test_accesses_of_unaligned_members_are_narrow(tmp_path: Path) -> None:
    (kernel,) = report("family_of_64").kernels
    (aligned,) = (name for name in kernel.request("").constexprs if name.startswith("ALIGNED"))
    used, _ = _resources(kernel, tmp_path / "module.py", **{aligned: False})
    assert not re.findall(r"(ld|st)\.global\S*\.v4", used.ptx)
