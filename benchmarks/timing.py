"""Clocks and error norms that the benchmarks share. All times are microseconds.

A clock runs one call a number of times and returns the times of one round. ``interleaved`` goes round all peers again and
again, so that drift of the machine meets all alike; ``figure`` condenses what it returns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

Call = Callable[[], Any]
Clock = Callable[[Call], list[float]]

COUNTED = ("graphs", "regions", "regions_left", "kernels", "errors")
WORSE = 1.5
"""An error this many times eager's own is too large."""
SLACK = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 5e-4}
"""What an error may be beyond that, for results that eager happens to get almost exactly."""


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def relative_error(actual: torch.Tensor, exact: torch.Tensor) -> float:
    """Norm of the error over the norm of ``exact`` (float64); infinite where shapes differ or a value is not finite."""
    if actual.shape != exact.shape:
        return float("inf")
    error = float((actual.double() - exact).norm() / exact.norm())
    return error if error == error else float("inf")


PHASES = {
    "dynamo_s": ("_compile.compile_inner",),
    "aot_s": ("OutputGraph.call_user_compiler",),
    "inductor_s": ("compile_fx_inner",),
    "regions_s": ("pass.post_grad_passes.post_grad_custom_post_pass",),
    "triton_s": ("async_compile.wait",),
}
"""Phases of a first call by the names that Dynamo times them under; each is a part of one before it: see `compile_parts`."""
PARTS = (*PHASES, "running_s")


def compile_parts(total: float, spent: Mapping[str, Sequence[float]] | None = None) -> dict[str, float]:
    """Seconds of a first call of ``total`` by phase, each without what is counted apart; empty where nothing was compiled.

    dynamo_s traces Python and makes guards; aot_s is AOTAutograd with decompositions and joint passes; regions_s is this backend's
    pass; triton_s waits for Triton's compiler, where Inductor starts it; inductor_s is the rest of Inductor; running_s what is left: the
    run itself, with kernels that are compiled when first launched. ``spent``: what Dynamo timed, by default in this process.
    """
    if spent is None:
        from torch._dynamo.utils import compilation_time_metrics

        spent = compilation_time_metrics
    whole = {phase: sum(sum(spent.get(name, ())) for name in names) for phase, names in PHASES.items()}
    if not whole["dynamo_s"]:
        return {}
    own = {
        "dynamo_s": whole["dynamo_s"] - whole["aot_s"],
        "aot_s": whole["aot_s"] - whole["inductor_s"],
        "inductor_s": whole["inductor_s"] - whole["regions_s"] - whole["triton_s"],
        "regions_s": whole["regions_s"],
        "triton_s": whole["triton_s"],
        "running_s": total - whole["dynamo_s"],
    }
    return {phase: round(max(0.0, seconds), 2) for phase, seconds in own.items()}


def first_call(call: Call) -> dict[str, Any]:
    """Run ``call``, which compiles. Returns compile_s (seconds), where they went, and what this backend and Inductor counted meanwhile.

    inductor_kernels are the kernels that Inductor wrote, cudagraph_skips the graphs that it would not capture.
    """
    import torch._inductor.metrics as metrics
    from torch._dynamo.utils import compilation_time_metrics, counters

    counters["helion"].clear()
    counters["inductor"].clear()
    metrics.reset()
    compilation_time_metrics.clear()
    synchronize()
    start = time.perf_counter()
    call()
    synchronize()
    seconds = time.perf_counter() - start
    facts: dict[str, Any] = {"compile_s": round(seconds, 2), **compile_parts(seconds)}
    facts |= {k: counters["helion"][k] for k in COUNTED if k in counters["helion"]}
    facts["inductor_kernels"] = metrics.generated_kernel_count
    if counters["inductor"]["cudagraph_skips"]:
        facts["cudagraph_skips"] = counters["inductor"]["cudagraph_skips"]
    return facts


def _warm(call: Call, calls: int) -> None:
    """Before a round of more than a call, so that it does not time what the round of another peer left cold."""
    for _ in range(2 if calls > 1 else 0):
        call()
    synchronize()


def latency(call: Call, calls: int) -> list[float]:
    """Wall time of each of ``calls`` calls, with the synchronisation that ends it."""
    _warm(call, calls)
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        synchronize()
        times.append((time.perf_counter() - start) * 1e6)
    return times


def back_to_back(call: Call, calls: int) -> list[float]:
    """Wall time of a call among ``calls`` calls in a row, with one synchronisation at the end."""
    _warm(call, calls)
    start = time.perf_counter()
    for _ in range(calls):
        call()
    synchronize()
    return [(time.perf_counter() - start) / calls * 1e6]


def issue(call: Call, calls: int) -> list[float]:
    """Host time of a call among ``calls`` calls in a row; what they launched is waited for outside of the clock."""
    _warm(call, calls)
    start = time.perf_counter()
    for _ in range(calls):
        call()
    elapsed = time.perf_counter() - start
    synchronize()
    return [elapsed / calls * 1e6]


def on_stream(call: Call, calls: int) -> list[float]:
    """Time of a call between two events around ``calls`` calls in a row: the GPU's own, unless the host is slower."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    _warm(call, calls)
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return [begin.elapsed_time(end) / calls * 1e3]


def cold_replay(replay: Call) -> list[float]:
    """Times of replays, each between events of its own, the L2 cache swept before each."""
    from triton.testing import do_bench

    return [t * 1e3 for t in do_bench(replay, warmup=5, rep=40, return_mode="all")]


def interleaved(clock: Clock, calls: Mapping[str, Call], rounds: int) -> dict[str, list[list[float]]]:
    """By name: what ``clock`` returned in each round."""
    times: dict[str, list[list[float]]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(clock(call))
    return times


def figure(rounds: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Median and least of all times, and the median of each round: round k of two peers ran next to one another."""
    everything = [t for times in rounds for t in times]
    medians = [round(statistics.median(times), 3) for times in rounds]
    return {"median": round(statistics.median(everything), 3), "least": round(min(everything), 3), "rounds": medians}


def graph_replay(call: Call) -> Call:
    """``call`` recorded as a CUDA graph; returns its replay."""
    before, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(before)
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    before.wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(before), torch.cuda.graph(graph):  # a recording that fails leaves its own stream current
        call()
    return graph.replay


def peak_mb(call: Call) -> float | None:
    """Peak of the memory that one call allocates beyond what was allocated before, in MB of 10**6 bytes.

    The pool of Inductor's CUDA graphs is allocated before, so under reduce-overhead this is not the whole of it.
    """
    if not torch.cuda.is_available():
        return None
    call()
    synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    synchronize()
    return round((torch.cuda.max_memory_allocated() - before) / 1e6, 3)


def describe_error(error: BaseException) -> str:
    """The error and, where it came while another was handled, that one."""
    root = error.__cause__ or error.__context__
    text = f"{type(error).__name__}: {error}"
    return " | ".join((text if root is None else f"{text[-400:]}\nafter {type(root).__name__}: {root}")[-800:].split("\n"))
