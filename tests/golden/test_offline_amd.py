"""A handful of golden kernels compile for AMD's GPUs without a device. Nothing here says that they run there: that was never tried."""

from __future__ import annotations

import re

import pytest
import torch

import helion_inductor
from helion_inductor import Report
from helion_inductor.runtime.precompile import CompileFailure, Resources, compile_offline_many
from tests.golden.functions import report

# One of each form: reductions, several tasks, families in a table, gathered and scattered elements; and phases with a barrier.
NAMES = ("softmax", "layer_norm", "rms_norm_rope", "two_loops_interleaved", "scatter_add", "family_layer_norm_gelu", "gather_embedding")
PHASED = "two phases"
TARGETS = ("gfx942", "gfx950")
VECTOR_REGISTERS = 512  # of a lane, accumulation registers included
LOCAL_BYTES = {"gfx942": 64 * 1024, "gfx950": 160 * 1024}


def _two_phases(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    first = torch.softmax(x, -1)
    return first, first.t().contiguous().sum(-1)


def _reports() -> dict[str, Report]:
    phased = helion_inductor.explain(_two_phases, torch.zeros(64, 64), options={"regions": "all", "cross_loop": "barrier"})
    return {**{name: report(name) for name in NAMES}, PHASED: phased}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, str], Resources | CompileFailure]:
    """By function, kernel and target."""
    folder, keys, requests = tmp_path_factory.mktemp("amd"), [], []
    for name, made in _reports().items():
        for kernel in made.kernels:
            module = folder / f"{name.replace(' ', '_')}.py"
            module.write_text(kernel.source, encoding="utf-8")
            for target in TARGETS:
                keys.append((name, kernel.name, target))
                requests.append(kernel.request(str(module), target))
    return dict(zip(keys, compile_offline_many(requests, workers=2), strict=True))


def test_kernels_compile_for_waves_of_64_lanes(compiled: dict[tuple[str, str, str], Resources | CompileFailure]) -> None:
    assert {(name, target) for name, _, target in compiled} == {(n, t) for n in (*NAMES, PHASED) for t in TARGETS}
    wrong = []
    for (name, kernel, target), found in compiled.items():
        where = f"{name}: {kernel} for {target}"
        if isinstance(found, CompileFailure):
            wrong.append(f"{where} does not compile: {found.message}")
            continue
        lanes = re.search(r"^\s*\.wavefront_size:\s*(\d+)", found.ptx, re.MULTILINE)
        threads = re.search(r"^\s*\.max_flat_workgroup_size:\s*(\d+)", found.ptx, re.MULTILINE)
        assert lanes and threads
        if int(lanes[1]) != 64 or int(threads[1]) != 64 * found.num_warps or int(threads[1]) > 1024:
            wrong.append(f"{where}: waves of {lanes[1]}, {found.num_warps} of them in {threads[1]} threads")
        if not 0 < found.registers <= VECTOR_REGISTERS or found.spill_stores or found.shared_bytes > LOCAL_BYTES[target]:
            wrong.append(f"{where}: {found.registers} registers, {found.spill_stores} spilled, {found.shared_bytes} bytes of LDS")
    assert not wrong, "\n".join(wrong)


def test_a_kernel_with_phases_has_the_portable_barrier(compiled: dict[tuple[str, str, str], Resources | CompileFailure]) -> None:
    texts = [r.ptx for (name, _, _), r in compiled.items() if name == PHASED and isinstance(r, Resources)]
    assert len(texts) == len(TARGETS)
    for text in texts:
        assert "buffer_wbl2 sc1" in text and "buffer_inv sc1" in text and "global_atomic_add" in text
