"""What the benchmarks share: error norms, interleaved timing, compile seconds with counters, tables, result files."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).resolve().parent / "results"
COMBO = {"combo_kernels": True, "combo_kernel_per_subkernel_blocks": True}
COUNTED = ("graphs", "regions", "regions_left", "kernels", "errors")
VARIABLE = "HELION_INDUCTOR_OPTIONS"
NO_GPU = "no CUDA device here: these benchmarks measure a GPU (--dry runs the flow on the CPU with tiny sizes)"


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def surroundings() -> dict[str, Any]:
    """Versions and the device's name, for the head of a result file."""
    import triton

    found: dict[str, Any] = {"torch": torch.__version__, "triton": triton.__version__, "python": platform.python_version()}
    found["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else f"cpu ({platform.machine()})"
    with contextlib.suppress(ImportError):
        import transformers

        found["transformers"] = transformers.__version__
    return found


def device_slug() -> str:
    """The device's name as part of a file name, such as "nvidia_h200"."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def relative_error(actual: torch.Tensor, exact: torch.Tensor) -> float:
    """Norm of the error over the norm of ``exact`` (float64); infinite where shapes differ or a value is not finite."""
    if actual.shape != exact.shape:
        return float("inf")
    error = float((actual.double() - exact).norm() / exact.norm())
    return error if error == error else float("inf")


@contextlib.contextmanager
def default_options(options: Mapping[str, Any] | None) -> Iterator[None]:
    """Options of the backend for graphs compiled within; ``torch.compile`` does not take options beside a mode."""
    before = os.environ.pop(VARIABLE, None)
    if options:
        os.environ[VARIABLE] = json.dumps(dict(options))
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before


def first_call(call: Callable[[], Any], options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    """Run ``call``, which compiles. Returns its result, and compile_s (seconds) with what the backend counted."""
    from torch._dynamo.utils import counters

    counters["helion"].clear()
    synchronize()
    start = time.perf_counter()
    with default_options(options):
        result = call()
        synchronize()
    seconds = round(time.perf_counter() - start, 2)
    return result, {"compile_s": seconds, **{k: counters["helion"][k] for k in COUNTED if k in counters["helion"]}}


def wall_round(call: Callable[[], Any], calls: int, warmup: int = 3) -> list[float]:
    """Wall times of ``calls`` calls in ms, each with the synchronisation that ends it."""
    for _ in range(warmup):
        call()
    synchronize()
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def wall_interleaved(calls: Mapping[str, Callable[[], Any]], per_round: int = 15, rounds: int = 3) -> dict[str, dict[str, float]]:
    """By name: median and quartiles in ms over all rounds; every round times each call in turn, so that drift meets all alike."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name] += wall_round(call, per_round)
    return {name: summary(t) for name, t in times.items()}


def summary(times: Sequence[float]) -> dict[str, float]:
    ordered = sorted(times)
    quarter = len(ordered) // 4
    return {
        "median": round(statistics.median(ordered), 4),
        "low": round(ordered[quarter], 4),
        "high": round(ordered[-1 - quarter], 4),
        "calls": len(ordered),
    }


def graph_replay(call: Callable[[], Any]) -> Callable[[], Any]:
    """``call`` recorded as a CUDA graph; returns its replay."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def describe_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[-600:].replace("\n", " | ")


def save(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    draft.replace(path)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Aligned text: the first column to the left, the others to the right; None is shown as "-"."""
    lines = [[str(h) for h in head], *[[_cell(c) for c in row] for row in rows]]
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    aligned = [[c.rjust(w) if k else c.ljust(w) for k, (c, w) in enumerate(zip(line, widths, strict=True))] for line in lines]
    return "\n".join("  ".join(line) for line in aligned)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 1000 else f"{value:.0f}" if isinstance(value, float) else str(value)


def ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None
