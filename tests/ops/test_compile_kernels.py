"""Every kernel of these tests compiles for a GPU, also where there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.ops import kernel_source

ROOT = Path(__file__).resolve().parents[2]


def test_all_kernels_compile_for_sm_90(tmp_path: Path) -> None:
    kernels, text = kernel_source.everything()
    (tmp_path / "kernels.py").write_text(text)
    jobs = [(kernel.name, kernel.signature(), constexprs) for kernel, constexprs in kernels]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("TRITON_INTERPRET", None)
    script = Path(__file__).with_name("compile_kernels.py")
    command = [sys.executable, str(script), str(tmp_path / "kernels.py"), str(tmp_path / "jobs.json")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {}
