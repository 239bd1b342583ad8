"""Sums over the GPUs of this machine: values, graphs, and times beside NCCL's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")]


def test_sums_equal_those_of_nccl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = 2
    command = [sys.executable, str(ROOT / "tests/distributed/all_reduce.py")]
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    ranks = [subprocess.Popen([*command, str(r), str(world), str(tmp_path / "store")], **pipes) for r in range(world)]  # type: ignore[call-overload]
    try:
        ended = [process.communicate(timeout=300) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    for process, (_, errors) in zip(ranks, ended):
        assert process.returncode == 0, errors[-3000:]
    rows = [json.loads(line) for line in ended[0][0].splitlines() if line.startswith("{")]
    with capsys.disabled():
        print(*rows, sep="\n")
    middle = [row for row in rows if 8 << 10 <= row["bytes"] <= 256 << 10]
    assert len(middle) == 6 and all(row["eager_norm_us"] > row["symmetric_norm_us"] for row in middle)
