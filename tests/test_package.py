"""The installed package as others meet it: found by name, light to import."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest


def fresh_python(code: str, folder: Path) -> str:
    """What ``code`` prints in a new process started in ``folder``, where only an installed package can be imported."""
    run = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_the_backend_is_listed_without_importing_the_package(tmp_path: Path) -> None:
    code = """
import sys, torch._dynamo
print("helion" in torch._dynamo.list_backends(), [name for name in sys.modules if name.startswith("helion_inductor")])
"""
    assert fresh_python(code, tmp_path) == "True []"


def test_the_backend_is_found_by_name(tmp_path: Path) -> None:
    code = """
import torch._dynamo
from torch._dynamo.backends.registry import lookup_backend
backend = lookup_backend("helion")
import helion_inductor.backend
print(backend is helion_inductor.backend.helion, callable(backend.reset))
"""
    assert fresh_python(code, tmp_path) == "True True"


@pytest.mark.parametrize("module", ["helion_inductor", "helion_inductor.options", "helion_inductor.errors"])
def test_importing_is_light(tmp_path: Path, module: str) -> None:
    code = f"""
import sys, {module}
print("triton" in sys.modules, "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized())
"""
    assert fresh_python(code, tmp_path) == "False False"


def test_the_sample_text_is_package_data() -> None:
    text = resources.files("helion_inductor").joinpath("data/sample.txt").read_text(encoding="utf-8")
    assert 60 <= len(text.splitlines()) <= 100
