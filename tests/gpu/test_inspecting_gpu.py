"""Kernels compiled ahead of their first launch: their registers are known, and the launch compiles nothing again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from triton import knobs

from helion_inductor import explain, inspecting

pytestmark = pytest.mark.gpu


def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.sin() * 2.5, y.softmax(-1)


def test_registers_are_known_before_the_first_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.randn(33, 65, device="cuda"), torch.randn(17, 129, device="cuda")
    found: list[Any] = []
    real = inspecting.compiled_kernels
    monkeypatch.setattr(inspecting, "compiled_kernels", lambda *args: found.append(real(*args)) or found[-1])
    compiled: list[str] = []
    fresh: list[str] = []

    def listener(*, src: Any, metadata: Any, metadata_group: Any, times: Any, cache_hit: bool) -> None:
        compiled.append(src.name)
        if not cache_hit:
            fresh.append(src.name)

    monkeypatch.setattr(knobs.compilation, "listener", listener)
    with knobs.cache.scope():
        options = {"regions": "all", "on_error": "raise", "inductor": {"force_disable_caches": True}}
        result = torch.compile(fn, backend="helion", options=options)(x, y)
    torch.testing.assert_close(result, fn(x, y))
    (kernels,) = [f for f in found if f]
    assert all(8 <= k.registers <= 255 and k.spilled == 0 for k in kernels.values())
    ours = [n for n in compiled if n.startswith("_helion_")]
    assert len(ours) == 2 and len([n for n in fresh if n.startswith("_helion_")]) <= 1, (compiled, fresh)


def test_a_report_needs_no_compilation() -> None:
    report = explain(fn, torch.randn(33, 65, device="cuda"), torch.randn(17, 129, device="cuda"), options={"regions": "all"})
    assert report.kernels[0].schedule.name == "k0"
