"""The demo: real models compiled by this backend, checked against eager PyTorch and, on a GPU, timed."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import torch

from .backend import cpp_compiler, helion
from .demo_models import Case, cases
from .demo_table import Row, difference, median_ms, table
from .errors import HelionError
from .report import GraphReport, Report

# Caches are off so that every graph is compiled, and counted, each time.
OPTIONS: Any = {"regions": "all", "on_error": "raise", "inductor": {"force_disable_caches": True}}
ALLOWED = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
"""Relative difference from the reference that is put down to rounding, by dtype of the weights."""


class Progress:
    """What is going on: one line that is written over on a terminal, a line each elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._start = time.monotonic()

    def say(self, text: str) -> None:
        line = f"{time.monotonic() - self._start:6.1f} s  {text}"
        self._stream.write(f"\r\x1b[K{line}" if self._live else f"{line}\n")
        self._stream.flush()

    def close(self) -> None:
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def run_demo(device: str, out: Path, quick: bool, stream: TextIO | None = None) -> int:
    """Run every case on ``device`` ("cpu" or "cuda"), print the table to ``stream``, save kernels under ``out``.

    Returns 0 if every result agrees with eager, 1 if one does not. Raises HelionError where something needed is
    missing.
    """
    stream = stream or sys.stdout
    if device == "cpu" and cpp_compiler() is None:
        raise HelionError(
            "the demo needs a C++ compiler: Inductor uses it for what this backend leaves to it on the CPU"
        )
    torch._logging.set_logs(dynamo=logging.ERROR)  # Dynamo warns about a profiler range inside every optimizer
    progress = Progress(stream)
    rows = [run_case(case, device, out, progress) for case in cases(device, quick)]
    progress.close()
    print(_heading(device), table(rows), sep="\n\n", file=stream)
    return 0 if all(row.passed for row in rows) else 1


def run_case(case: Case, device: str, out: Path, progress: Progress) -> Row:
    """Compile one case, compare it with eager, time it on a GPU."""
    progress.say(f"{case.name}: eager")
    eager = case.runner(lambda fn: fn, case.dtype)
    eager_result = _snapshot(eager())
    reference = eager_result
    if case.dtype != torch.float32:
        reference = _snapshot(case.runner(lambda fn: fn, torch.float64)())
    report = Report()

    def listen(graph: GraphReport) -> None:
        report.graphs.append(graph)
        kernels = sum(len(r.kernels()) for r in graph.regions if r.taken)
        progress.say(f"{case.name}: graph {len(report.graphs)} of {graph.calls} calls gave {kernels} kernels; running")

    progress.say(f"{case.name}: compiling")
    compiled = case.runner(lambda fn: torch.compile(fn, backend=helion, options=OPTIONS), case.dtype)
    with helion.recording(listen):
        result = _snapshot(compiled())
    saved = report.save(out / _slug(case.name))
    times: dict[str, float] = {}
    if device == "cuda":
        progress.say(f"{case.name}: timing")
        inductor = case.runner(torch.compile, case.dtype)
        times = {name: median_ms(run) for name, run in (("eager", eager), ("Inductor", inductor), ("helion", compiled))}
    # Where the reference is more precise than eager, as far off as twice eager's own error is no fault either.
    allowed = max(ALLOWED[case.dtype], 2 * difference(eager_result, reference).relative)
    return Row(case.name, report, difference(result, reference), allowed, times, saved)


def _snapshot(result: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: t.detach().clone() for name, t in result.items()}


def _slug(name: str) -> str:
    return "_".join("".join(c if c.isalnum() else " " for c in name).lower().split())


def _heading(device: str) -> str:
    if device == "cuda":
        where: Any = f"{torch.cuda.get_device_name()}, torch {torch.__version__}; times are medians, launches included"
    else:
        where = f"Triton's interpreter on the CPU, torch {torch.__version__}; it is for checking, so nothing is timed"
    return f"helion_inductor on {where}"
