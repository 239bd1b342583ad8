"""What outlives a process: Inductor's caches and the store of regions, together and apart."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import CUDA

SCRIPT = """
import json, sys
import torch
from torch._dynamo.utils import counters

def fn(x, w):
    return torch.softmax(x, -1) * w + x.sum(0)

x = torch.arange(40.0, device=sys.argv[1]).sin().view(8, 5).requires_grad_()
w = torch.arange(5.0, device=sys.argv[1])
result = torch.compile(fn, backend="helion", options={"regions": "all", "on_error": "raise"})(x, w)
result.square().sum().backward()
gradient, x.grad = x.grad, None
expected = fn(x, w)
expected.square().sum().backward()
print(json.dumps({
    "right": torch.allclose(result, expected, atol=1e-5) and torch.allclose(gradient, x.grad, atol=1e-4),
    "helion": counters["helion"],
    "found": counters["aot_autograd"]["autograd_cache_hit"],
    "missed": counters["aot_autograd"]["autograd_cache_miss"],
    "graphs_found": counters["inductor"]["fxgraph_cache_hit"],
}))
"""


def run(cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_INTERPRET": "0" if CUDA else "1"} | environment
    inherited = {k: v for k, v in os.environ.items() if k not in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS")}
    command = [sys.executable, "-c", SCRIPT, "cuda" if CUDA else "cpu"]
    return subprocess.run(
        command, cwd=Path(__file__).parents[1], env=inherited | settings, capture_output=True, text=True
    )


def answer(cache: Path, **environment: str) -> dict:
    done = run(cache, **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["right"]
    return result


def test_a_second_process_finds_graphs_and_regions(tmp_path: Path) -> None:
    cache, trace = tmp_path / "cache", tmp_path / "trace"
    first = answer(cache, TORCH_TRACE=str(trace))
    assert (first["found"], first["missed"]) == (0, 1)
    assert first["helion"]["graphs"] == 2 and first["helion"]["regions"] == 2 and first["helion"]["kernels"] >= 2
    _check_trace(trace, regions=2)

    second = answer(cache)
    assert (second["found"], second["missed"], second["graphs_found"]) == (1, 0, 2)
    assert second["helion"] == {}  # our compiler did not run

    _lose_the_store(cache)
    third = answer(cache)  # found by nobody, so compiled anew
    assert (third["found"], third["missed"]) == (0, 1)
    assert third["helion"]["regions"] == 2

    _lose_single_regions(cache)
    fourth = run(cache)
    assert fourth.returncode != 0
    assert "KernelNotFound: kernel" in fourth.stderr and "is missing in the kernel store" in fourth.stderr
    assert "Run the program again: its graphs will be compiled anew" in fourth.stderr
    assert answer(cache)["helion"]["regions"] == 2


def _check_trace(trace: Path, regions: int) -> None:
    (log,) = trace.glob("*.log")
    names = [line for line in log.read_text().splitlines() if '"artifact"' in line and '"name": "helion_graph' in line]
    assert len(names) == regions
    assert "@triton.jit" in log.read_text()


def _lose_the_store(cache: Path) -> None:
    shutil.rmtree(cache / "helion_inductor")


def _lose_single_regions(cache: Path) -> None:
    entries = [p for p in (cache / "helion_inductor").iterdir() if p.name != "token"]
    assert entries
    for entry in entries:
        shutil.rmtree(entry)
