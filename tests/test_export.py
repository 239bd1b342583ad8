"""Exported files: every form of kernel, run in a process that cannot import this package."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import helion_inductor
from helion_inductor import Report
from helion_inductor.errors import HelionError
from helion_inductor.runtime.precompile import compile_offline_source

_WITHOUT_THE_PACKAGE = """
import runpy, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "helion_inductor":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocked())
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def _run(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _WITHOUT_THE_PACKAGE, str(path)]
    return subprocess.run(command, cwd=path.parent, capture_output=True, text=True, timeout=600)


def _explained(fn: Callable[..., Any], *args: torch.Tensor, **options: Any) -> Report:
    return helion_inductor.explain(fn, *args, options={"regions": "all", **options})


def _pointwise(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.gelu(x + y)


def _two(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.softmax(x, -1), y.exp()


def _dependent(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The second output reads the first across rows."""
    first = torch.softmax(x, -1)
    return first, first.t().contiguous().sum(-1)


def _step(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor) -> None:
    m.mul_(0.9).add_(g)
    p.sub_(0.1 * m.sqrt())


def _lookup(table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return F.embedding(ids, table) * 2


_X, _Y = torch.randn(16, 64), torch.randn(16, 64)
FORMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], dict[str, Any], str]] = {
    "flat": (_pointwise, (_X, _Y), {"pid_type": "flat"}, "Launcher("),
    "persistent": (_two, (_X, _Y), {"pid_type": "persistent_interleaved"}, "get_num_sm("),
    "blocked": (_two, (_X, _Y), {"pid_type": "persistent_blocked"}, "get_num_sm("),
    "multi-phase": (_dependent, (_X,), {"cross_loop": "barrier"}, "PhasedLauncher("),
    "in place": (_step, (_X.clone(), _Y, _X.abs()), {}, "Launcher("),
    "indices": (_lookup, (_X, torch.randint(0, 16, (40,))), {}, "Launcher("),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_exported_file_runs_and_checks_itself(form: str, tmp_path: Path) -> None:
    fn, args, options, words = FORMS[form]
    path = helion_inductor.export(_explained(fn, *args, **options), tmp_path / "exported.py")
    text = path.read_text()
    assert words in text and not re.search(r"^\s*(from|import) helion_inductor", text, re.MULTILINE)
    done = _run(path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "check: all outputs agree with eager" in done.stdout and "time: kernels" in done.stdout


def test_kernels_of_an_exported_file_compile_for_a_gpu(tmp_path: Path) -> None:
    report = _explained(_dependent, _X, cross_loop="barrier")
    path = helion_inductor.export(report.kernels[0], tmp_path / "exported.py")
    request = report.kernels[0].request(str(path))
    found = compile_offline_source(path, request.kernel, request.signature, request.constexprs, divisible_by_16=request.divisible_by_16)
    assert 0 < found.registers < 128 and "ld.acquire.gpu" in found.ptx


def test_a_wrong_kernel_is_found_out(tmp_path: Path) -> None:
    path = helion_inductor.export(_explained(_pointwise, _X, _Y), tmp_path / "exported.py")
    text = path.read_text()
    assert text.count("\ndef reference(*inputs):\n    return forward(None, *inputs)\n") == 1
    wrong = text.replace("    return forward(None, *inputs)\n", "    return [2 * t for t in forward(None, *inputs)]\n")
    path.write_text(wrong)
    done = _run(path)
    assert done.returncode == 1 and "WRONG: output 0 differs" in done.stderr


def test_an_exported_file_can_be_imported_beside_the_package(tmp_path: Path) -> None:
    helion_inductor.export(_explained(_pointwise, _X, _Y), tmp_path / "exported.py")
    code = f"""
import os; os.environ["TRITON_INTERPRET"] = "1"
import sys; sys.path.insert(0, {str(tmp_path)!r})
import torch, exported
x, y, out = torch.randn(16, 64), torch.randn(16, 64), torch.empty(16, 64)
exported.run([x, y], [out], ())
torch.testing.assert_close(out, torch.nn.functional.gelu(x + y))
assert not any(name.split(".")[0] == "helion_inductor" for name in sys.modules)
"""
    if not torch.cuda.is_available():
        subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_what_cannot_be_exported_says_why(tmp_path: Path) -> None:
    def broken_off(x: torch.Tensor) -> torch.Tensor:
        y = torch.softmax(x, -1)
        torch._dynamo.graph_break()
        return y.exp()

    path = tmp_path / "exported.py"
    report = _explained(broken_off, _X)
    with pytest.raises(HelionError, match="the report has 2 regions, and export writes one: give one of report.regions"):
        helion_inductor.export(report, path)
    assert helion_inductor.export(report.regions[1], path) == path
    with pytest.raises(HelionError, match="the report has 0 regions.*print the report to see why"):
        helion_inductor.export(Report(), path)
    with pytest.raises(HelionError, match="must end with .py"):
        helion_inductor.export(report.regions[0], tmp_path / "exported")
    with pytest.raises(HelionError, match="nothing to compare random numbers with"):
        helion_inductor.export(_explained(lambda x: F.dropout(x, 0.5), _X), path)
    x = torch.randn(7, 5)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(HelionError, match="export needs sizes that are known"):
        helion_inductor.export(_explained(_pointwise, x, torch.randn(1, 5)), path)
