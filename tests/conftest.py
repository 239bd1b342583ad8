"""What every test runs under: device choice, private caches, hypothesis profiles, golden text."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile

import torch

# Decided before anything imports triton, which reads the variable once, when a kernel is decorated.
CUDA = torch.cuda.is_available()
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"

# Every worker has caches of its own, made empty, so that no test passes thanks to what an earlier run left behind.
_CACHE = tempfile.mkdtemp(prefix=f"helion-tests-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}-")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = _CACHE
os.environ["TRITON_CACHE_DIR"] = os.path.join(_CACHE, "triton")
os.environ.pop("HELION_INDUCTOR_OPTIONS", None)
if "PYTEST_XDIST_WORKER" in os.environ:
    # The workers are the parallelism.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    torch.set_num_threads(1)

from collections.abc import Callable, Iterator  # noqa: E402
from pathlib import Path  # noqa: E402

import hypothesis  # noqa: E402
import pytest  # noqa: E402

from tests.golden_text import compare  # noqa: E402

hypothesis.settings.register_profile("fast", max_examples=25, deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("long", max_examples=1000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HELION_TEST_PROFILE", "fast"))

GOLDEN = Path(__file__).parent / "golden" / "expected"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept", action="store_true", help="rewrite the golden text instead of comparing with it")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not CUDA and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def pytest_unconfigure() -> None:
    shutil.rmtree(_CACHE, ignore_errors=True)


@pytest.fixture
def device() -> str:
    """The device that kernels run on here: "cuda", or "cpu" under Triton's interpreter."""
    return "cuda" if CUDA else "cpu"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)`` compares with tests/golden/expected/<name>.txt; ``--accept`` rewrites the file."""
    accept = bool(request.config.getoption("--accept"))

    def check(name: str, text: str) -> None:
        difference = compare(GOLDEN / f"{name}.txt", text, accept)
        if difference:
            command = f"pytest {request.node.nodeid!r} --accept"
            pytest.fail(f"{difference}\nif the new text is right: {command}", pytrace=False)

    return check


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    """Forget compiled functions after each test, where any could exist; never imports dynamo itself."""
    yield
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
