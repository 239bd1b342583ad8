"""Choosing kernels by measuring, on a GPU: right results, within the budget, remembered by the next process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from helion_inductor.backend import helion
from helion_inductor.report import GraphReport

pytestmark = pytest.mark.gpu


def loops(x: torch.Tensor, y: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.softmax(-1), (y * 2 + 1).sin(), y[index].cos()


def arguments() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return torch.randn(600, 1000, device="cuda"), torch.randn(3000, 70, device="cuda"), torch.randint(0, 3000, (1100,), device="cuda")


@pytest.mark.parametrize("level", ["quick", "full"])
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_what_is_chosen_is_right_and_no_slower(level: str, mode: str | None) -> None:
    torch._dynamo.reset()
    reports: list[GraphReport] = []
    options: dict[str, Any] = {"autotune": level, "autotune_budget_s": 40, "on_error": "raise", "inductor": {"force_disable_caches": True}}
    options["inductor"] |= {"triton.cudagraphs": mode is not None}
    start = time.monotonic()
    args = arguments()
    with helion.recording(reports.append):
        result = torch.compile(loops, backend="helion", options=options)(*args)
    assert time.monotonic() - start < 40 + 30
    torch.testing.assert_close(result, loops(*args))
    (region,) = reports[0].regions
    tuning = region.tuning
    assert tuning is not None and tuning.chosen is not None and tuning.graph is not None, str(tuning)
    assert tuning.graph.us is not None, str(tuning)
    times = [t.us for t in tuning.trials if t.us is not None]
    assert len(times) >= 4 and tuning.chosen.us is not None and tuning.chosen.us <= times[0], str(tuning)
    assert "measured" in region.reason
    print(level, mode, region.taken, region.reason, tuning)


def test_the_next_process_measures_nothing(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import torch
        from helion_inductor.backend import helion
        from tests.gpu.test_autotune_gpu import arguments, loops
        reports = []
        with helion.recording(reports.append):
            torch.compile(loops, backend="helion", options={"autotune": "quick", "inductor": {"fx_graph_cache": False}})(*arguments())
        print("remembered", reports[0].regions[0].tuning.remembered, reports[0].regions[0].compiled.key)
    """)
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "PYTHONPATH": ".", "PATH": "/usr/bin:/bin"}
    said = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | environment, timeout=200)
        for _ in range(2)
    ]  # fmt: skip
    lines = [line.split() for run in said for line in run.stdout.splitlines() if line.startswith("remembered")]
    assert [line[1] for line in lines] == ["False", "True"], [run.stderr[-2000:] for run in said]
    assert lines[0][2] == lines[1][2]
