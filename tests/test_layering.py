# ruff: noqa: E501 (the table of breaches reads best one to a line)
"""The package keeps its floors, and the checker sees each kind of breach planted in a small tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.layering_rules import MAX_LINES, PACKAGE, violations

ROOT = Path(__file__).parents[1]


def test_the_package_keeps_its_floors() -> None:
    problems = violations(ROOT / PACKAGE)
    assert not problems, "\n".join(problems)


def test_test_files_are_of_readable_length() -> None:
    long = [path.name for path in ROOT.glob("tests/**/*.py") if len(path.read_text().splitlines()) > MAX_LINES]
    assert not long


CLEAN = {
    "__init__.py": "",
    "errors.py": "import enum",
    "scalar_math.py": "import math",
    "options.py": "import os\nfrom .errors import OptionError\nos.environ.get('X')",
    "compat.py": "import torch._inductor.config",
    "ir/__init__.py": "",
    "ir/index.py": "import sympy\nfrom ..errors import VerifyError",
    "ir/tile_ir.py": "from .index import Expr\nimport torch",
    "lowering/inductor_loops.py": "from torch._inductor.graph import GraphLowering\nfrom ..ir import tile_ir",
    "scheduling/phases.py": "from helion_inductor.ir.tile_ir import LoopNest\nfrom .. import device",
    "device.py": "import torch",
    "runtime/__init__.py": "",
    "runtime/num_sm.py": "import torch\nfrom ..errors import LaunchRejected",
    "runtime/launcher.py": "import triton\nfrom . import num_sm\nfrom ..scalar_math import cdiv",
    "pipeline.py": "from .lowering import inductor_loops\nfrom .scheduling import phases\nfrom . import report",
    "report.py": "from .errors import HelionError",
    "fx_bridge.py": "from . import pipeline",
    "backend.py": "import torch._dynamo\nfrom .fx_bridge import x",
    "__main__.py": "import transformers\nfrom . import backend",
}


def planted(tmp_path: Path, files: dict[str, str]) -> list[str]:
    package = tmp_path / PACKAGE
    for name, text in (CLEAN | files).items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return violations(package)


def test_clean_tree_passes(tmp_path: Path) -> None:
    assert planted(tmp_path, {}) == []


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("ir/a.py", "from ..pipeline import x", "line 1: imports helion_inductor.pipeline from a higher floor"),
        ("ir/a.py", "def f():\n    from ..lowering import x", "line 2: imports helion_inductor.lowering from a higher floor"),
        ("ir/a.py", "from .. import backend", "line 1: imports helion_inductor.backend from a higher floor"),
        ("ir/a.py", "import helion_inductor", "line 1: imports helion_inductor from a higher floor"),
        ("errors.py", "from .ir import index", "line 1: errors imports helion_inductor.ir.index; it must stand alone"),
        ("scalar_math.py", "from .device import x", "line 1: scalar_math imports helion_inductor.device; it must stand alone"),
        ("device.py", "from .ir import index", "line 1: imports helion_inductor.ir.index from a higher floor"),
        ("fx_bridge.py", "import helion_inductor.backend", "line 1: imports helion_inductor.backend from a higher floor"),
        ("lowering/a.py", "from ..codegen import x", "line 1: imports helion_inductor.codegen, another stage"),
        ("scheduling/a.py", "from ..runtime.launcher import x", "line 1: imports helion_inductor.runtime.launcher, another stage"),
        ("codegen/a.py", "def f():\n  import helion_inductor.lowering.x", "line 2: imports helion_inductor.lowering.x, another stage"),
        ("codegen/a.py", "import importlib\nimportlib.import_module('helion_inductor.scheduling')", "line 2: imports helion_inductor.scheduling, another stage"),
        ("runtime/a.py", "from ..ir import index", "line 1: runtime imports helion_inductor.ir.index; it must stand alone"),
        ("runtime/a.py", "from ..options import Options", "line 1: runtime imports helion_inductor.options; it must stand alone"),
        ("runtime/a.py", "from .. import device", "line 1: runtime imports helion_inductor.device; it must stand alone"),
        ("runtime/a.py", "import sympy", "line 1: imports sympy, not a library that this file may use"),
        ("ir/a.py", "import numpy as np", "line 1: imports numpy, not a library that this file may use"),
        ("pipeline.py", "from transformers import x", "line 1: imports transformers, not a library that this file may use"),
        ("ir/a.py", "import torch._inductor.ir", "line 1: imports torch._inductor.ir, private to torch"),
        ("runtime/a.py", "from torch import _dynamo", "line 1: imports torch._dynamo, private to torch"),
        ("fx_bridge.py", "from torch._higher_order_ops.x import y", "line 1: imports torch._higher_order_ops.x, private to torch"),
        ("codegen/a.py", "__import__('torch._guards')", "line 1: imports torch._guards, private to torch"),
        ("device.py", "import torch\nx = torch._subclasses.fake", "line 2: uses torch._subclasses, private to torch"),
        ("device.py", "import os\nos.environ['X'] = '1'", "line 2: reads the environment"),
        ("device.py", "import os\n\ndef f():\n    return os.getenv('X')", "line 4: reads the environment"),
        ("device.py", "from os import environ", "line 1: reads the environment"),
        ("device.py", "x = 1\n" * 401, "401 lines, over 400"),
        ("novel.py", "", "'novel' is on no floor; give it one in layering_rules.py"),
        ("ir/a.py", "from .. import novel\nfrom ..novel import x", "line 2: imports helion_inductor.novel, which is on no floor"),
    ],
)  # fmt: skip
def test_planted_breaches_are_seen(tmp_path: Path, file: str, text: str, expected: str) -> None:
    assert f"{file}: {expected}" in planted(tmp_path, {file: text})


def test_cycles_are_seen_through_function_local_imports(tmp_path: Path) -> None:
    cycle = {"ir/a.py": "from .b import x", "ir/b.py": "def f():\n    from . import a"}
    (problem,) = planted(tmp_path, cycle)
    assert problem in ("import cycle: ir/a.py -> ir/b.py -> ir/a.py", "import cycle: ir/b.py -> ir/a.py -> ir/b.py")


def test_limits_are_not_off_by_one(tmp_path: Path) -> None:
    assert planted(tmp_path, {"device.py": "x = 1\n" * MAX_LINES}) == []
