"""The demo on a real device, as a user starts it: in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu
pytest.importorskip("transformers")

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_agrees_with_eager_and_is_timed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "helion_inductor", "--device", "cuda", "--quick", "--out", str(tmp_path / "kernels")]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-3000:]
    assert finished.stdout.count("agrees with eager") == 4 and "DIFFERS" not in finished.stdout
    assert "eager ms" in finished.stdout and "times are medians" in finished.stdout
    assert len(list((tmp_path / "kernels").glob("*/*/module.py"))) >= 4
