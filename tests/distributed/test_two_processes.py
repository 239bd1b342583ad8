"""DDP, FSDP2 and tensor parallelism in two processes: compiled training has the losses of eager training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.training import STEPS, WORLD

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def _train(form: str, folder: Path) -> list[dict[str, Any]]:
    """What each process printed."""
    processes = []
    for rank in range(WORLD):
        environment = dict(os.environ, PYTHONPATH=str(ROOT), TORCHINDUCTOR_CACHE_DIR=str(folder / f"cache{rank}"), OMP_NUM_THREADS="1")
        if torch.cuda.device_count() < WORLD:
            environment |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, str(HERE / "training.py"), form, str(rank), str(folder / "store")]
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    try:
        ended = [process.communicate(timeout=400) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, ended, strict=True):
        assert process.returncode == 0, errors[-3000:]
    return [json.loads(output.splitlines()[-1]) for output, _ in ended]


@pytest.mark.parametrize("form", ["ddp", "fsdp2", "dtensor"])
def test_compiled_training_has_the_losses_of_eager_training(form: str, tmp_path: Path) -> None:
    for found in _train(form, tmp_path):
        assert len(found["eager"]) == STEPS
        torch.testing.assert_close(found["compiled"], found["eager"], rtol=1e-4, atol=1e-6)
        assert found["eager"][0] > 2 * min(found["eager"])  # it learns something
        assert found["counters"].get("regions", 0) >= 2, found["counters"]
