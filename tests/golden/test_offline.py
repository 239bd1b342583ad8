"""Every golden kernel compiles for sm_90 without a device, and neither spills nor needs a stack."""

from __future__ import annotations

from pathlib import Path

from helion_inductor.runtime.precompile import CompileFailure, compile_offline_many
from tests.golden.functions import FUNCTIONS, report

PER_THREAD = 255  # registers that a thread can have at most
SHARED = 227 * 1024  # bytes of shared memory that a program can have at most


def test_golden_kernels_compile_without_spills(tmp_path: Path) -> None:
    names, requests = [], []
    for name in FUNCTIONS:
        for kernel in report(name).kernels:
            module = tmp_path / f"{name}.py"
            module.write_text(kernel.source, encoding="utf-8")
            names.append(f"{name}: {kernel.name}")
            requests.append(kernel.request(str(module), "sm_90"))
    wrong = []
    for name, result in zip(names, compile_offline_many(requests), strict=True):
        if isinstance(result, CompileFailure):
            wrong.append(f"{name} does not compile: {result.message}")
        elif result.spill_stores or result.spill_loads or result.stack_bytes:
            wrong.append(f"{name} spills {result.spill_stores} bytes, stack {result.stack_bytes}")
        elif not 0 < result.registers <= PER_THREAD or not 0 <= result.shared_bytes <= SHARED or not result.occupancy:
            wrong.append(f"{name}: {result.registers} registers, {result.shared_bytes} bytes shared, {result.occupancy} programs")
    assert len(requests) >= len(FUNCTIONS) and not wrong, "\n".join(wrong)
