"""One row of a benchmark: every peer compiled, compared with float64, and timed in turn with the others."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import timing
from benchmarks.peers import PEERS, Peer, caches
from benchmarks.timing import Call

RESERVE = 6.0
"""Seconds kept for the timing of what has been compiled."""


class NotHere(Exception):
    """A row that cannot run on this machine; the text says what is missing."""


@dataclass(frozen=True)
class Bench:
    """What the measurement of a row is given. ``end`` in time.monotonic()'s seconds: no peer starts past it.

    ``report(peer, facts)`` may be called more than once for a peer; later facts are added to the earlier ones.
    """

    device: str
    smoke: bool
    end: float
    peers: tuple[str, ...]
    folder: Path
    report: Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True)
class Trial:
    """A peer ready to run: ``call`` is what is timed, and compiles when called first; ``error`` runs it a few times more, so
    that graphs are recorded, and returns its error against float64 (a relative norm)."""

    call: Call
    error: Callable[[], float]


@dataclass(frozen=True)
class Subject:
    """What a row compiles. ``start(peer)`` makes a trial; an error may be 1.5 times eager's and ``slack`` more, by default
    what timing.SLACK says of ``dtype``.

    ``latency`` times single calls, each with a synchronisation (wall_us), instead of calls back to back (host_us).
    """

    start: Callable[[Peer], Trial]
    dtype: torch.dtype
    grad: bool = False
    latency: bool = False
    slack: float | None = None


def measure(bench: Bench, subject: Subject) -> None:
    """Compile, compare and time every peer of the row, in order; the first one should be eager."""
    trials: dict[str, Trial] = {}
    eager: float | None = None
    slack = timing.SLACK[subject.dtype] if subject.slack is None else subject.slack
    longest = 0.0
    with torch.set_grad_enabled(subject.grad):
        for name in bench.peers:
            start = time.monotonic()
            if start + longest + RESERVE > bench.end and trials:
                bench.report(name, {"not_run": f"{bench.end - start:.0f} s left"})
                continue
            try:
                with caches(bench.folder, PEERS[name]):
                    facts, trial = _prepare(bench, subject, PEERS[name])
            except Exception as error:  # a benchmark goes on with the other peers, and shows what this one said
                bench.report(name, {"error": timing.describe_error(error)})
                continue
            trials[name] = trial
            longest = max(longest, time.monotonic() - start)
            eager = facts["error_norm"] if name == "eager" else eager
            if eager is not None:
                facts["error_limit"] = timing.WORSE * eager + slack
            bench.report(name, facts)
        _time(bench, subject, {name: trial.call for name, trial in trials.items()})


def _prepare(bench: Bench, subject: Subject, peer: Peer) -> tuple[dict[str, Any], Trial]:
    trial = subject.start(peer)
    facts = timing.first_call(trial.call)
    if peer.eager:
        facts = {}
    elif peer.caches_of is not None:
        facts["compile_warm_s"] = facts.pop("compile_s")
    facts["error_norm"] = trial.error()
    facts["peak_mb"] = timing.peak_mb(trial.call)
    name, clock = _host_clock(bench, subject)
    return facts | {name: timing.figure([clock(trial.call)])}, trial


def _host_clock(bench: Bench, subject: Subject) -> tuple[str, timing.Clock]:
    if subject.latency:
        return "wall_us", partial(timing.latency, calls=1 if bench.smoke else 15)
    return "host_us", partial(timing.back_to_back, calls=1 if bench.smoke else 25)


def _time(bench: Bench, subject: Subject, calls: dict[str, Call]) -> None:
    """The host's time of all peers in turn, then the GPU's.

    Graphs are recorded last: a recording that fails may leave its process unfit for more, but not these times wrong.
    """
    rounds = 1 if bench.smoke else 5
    name, clock = _host_clock(bench, subject)
    _report(bench, name, timing.interleaved(clock, calls, rounds))
    if bench.device == "cpu":
        return
    own = {peer: call for peer, call in calls.items() if PEERS[peer].graphed}
    replays: dict[str, Call] = {}
    # Eager is the likeliest to synchronise, which spoils a recording: it comes last.
    for peer in sorted((p for p in calls if p not in own), key=lambda p: PEERS[p].eager):
        try:
            replays[peer] = timing.graph_replay(calls[peer])
        except Exception as error:
            bench.report(peer, {"gpu_problem": timing.describe_error(error)})
            timing.synchronize()
    in_order = {peer: (own | replays)[peer] for peer in calls if peer in own or peer in replays}
    rounds = 1 if bench.smoke else 3
    _report(bench, "gpu_us", timing.interleaved(timing.cold_replay, {p: c for p, c in in_order.items() if p in replays}, rounds))
    _report(bench, "stream_us", timing.interleaved(partial(timing.on_stream, calls=25), in_order, rounds))


def _report(bench: Bench, name: str, times: dict[str, list[list[float]]]) -> None:
    for peer, rounds in times.items():
        bench.report(peer, {name: timing.figure(rounds)})


def largest_error(actual: Iterable[torch.Tensor], exact: Iterable[torch.Tensor]) -> float:
    return max(timing.relative_error(a, e) for a, e in zip(actual, exact, strict=True))


def forget_row() -> None:
    """Let go of what a row compiled and allocated."""
    torch.compiler.reset()
    gc.collect()
    if torch.cuda.is_available():
        if trees := sys.modules.get("torch._inductor.cudagraph_trees"):
            trees.reset_cudagraph_trees()
        torch.cuda.empty_cache()


def fit() -> bool:
    """Whether this process can go on measuring: a failed kernel or recording may have spoilt its CUDA context."""
    if not torch.cuda.is_available():
        return True
    try:
        torch.randn(8, device="cuda").sum().item()
    except RuntimeError:
        return False
    return True
