"""What every benchmark does around its rows: options, time limits, a process that may die, and the result file.

Rows run one after another in a child process. Where it dies, hangs or spoils its CUDA context, the row at fault keeps what it
found so far and a new process goes on with the next.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from benchmarks import measuring, result_file, table
from benchmarks.measuring import Bench, NotHere
from benchmarks.peers import allow_many_compilations

GRACE = 25.0
"""Seconds after the end of the budget until a process that still measures is stopped."""
NO_GPU = "no CUDA device here: these benchmarks measure a GPU (--device cpu --smoke tries the flow in Triton's interpreter)"
Message = dict[str, Any]
DONE: Message = {"status": "done"}
"""The last message of a process, about no row."""


@dataclass(frozen=True)
class Row:
    title: str
    peers: tuple[str, ...]
    measure: Callable[[Bench], None]
    more: tuple[str, ...] = ()
    """Peers that are measured only if they are asked for."""


@dataclass(frozen=True)
class Suite:
    """A benchmark; it is the global SUITE of the module ``benchmarks.<name>``. ``rows`` are in the order of interest.

    ``describe`` may say more about a finished row than its times.
    """

    name: str
    about: str
    rows: Mapping[str, Row]
    describe: Callable[[dict[str, Any]], str] | None = None


@dataclass(frozen=True)
class Plan:
    """What a process is told to do, in plain values. ``end`` in time.monotonic()'s seconds, which processes share."""

    suite: str
    rows: tuple[str, ...]
    peers: tuple[str, ...] | None
    device: str
    smoke: bool
    end: float
    row_timeout: float

    def peers_of(self, row: Row) -> tuple[str, ...]:
        return row.peers if self.peers is None else tuple(p for p in (*row.peers, *row.more) if p in self.peers)


def parser(suite: Suite) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=suite.about, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers = dict.fromkeys(p for row in suite.rows.values() for p in (*row.peers, *row.more))
    result.add_argument("--only", nargs="+", choices=list(suite.rows), metavar="ROW", help=f"of {', '.join(suite.rows)}")
    result.add_argument("--peers", nargs="+", choices=list(peers), metavar="PEER", help=f"of {', '.join(peers)}")
    result.add_argument("--out", type=Path, metavar="FILE", help="result file (default benchmarks/results/<benchmark>_<gpu>.json)")
    result.add_argument("--keep", action="store_true", help="keep the rows of FILE that are not measured now")
    result.add_argument("--budget", type=float, default=540, metavar="SECONDS", help="what starts later is not run (default 540)")
    result.add_argument("--row-timeout", type=float, default=300, metavar="SECONDS", help="for one row (default 300)")
    result.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    result.add_argument("--smoke", action="store_true", help="tiny sizes and hardly a call: tries the flow, measures nothing")
    result.add_argument("--in-process", action="store_true", help="measure in this process, which then cannot be stopped")
    return result


def main(suite: Suite, arguments: Sequence[str] | None = None) -> int:
    """Run a benchmark from its command line. Returns 0 if all ran and agreed, 1 if not, 2 if it could not start."""
    options = parser(suite).parse_args(arguments)
    if options.device == "cpu":
        if not options.smoke:
            print("times of Triton's interpreter mean nothing: --device cpu goes with --smoke", file=sys.stderr)
            return 2
        if os.environ.get("TRITON_INTERPRET") != "1":
            from helion_inductor.options import interpret_kernels

            interpret_kernels()
    elif not torch.cuda.is_available():
        print(NO_GPU, file=sys.stderr)
        return 2
    end = time.monotonic() + options.budget
    peers = tuple(options.peers) if options.peers else None
    rows = tuple(name for name in suite.rows if name in (options.only or suite.rows))
    plan = Plan(suite.name, rows, peers, options.device, options.smoke, end, options.row_timeout)
    out = options.out or result_file.default_path(suite.name, options.device, options.smoke)
    record = Record(suite, plan, out)
    if options.keep:
        try:
            record.content["rows"] |= result_file.rows_to_keep(out, record.content)
        except result_file.Unusable as error:
            print(error, file=sys.stderr)
            return 2
    record.save()
    if options.in_process:
        work(plan, record.take)
    else:
        supervise(plan, record)
    found = result_file.problems(record.content)
    print("", table.markdown(record.content), *found, f"written to {out}", sep="\n")
    return 1 if found else 0


class Record:
    """The result file as it grows; every message is written down at once."""

    def __init__(self, suite: Suite, plan: Plan, path: Path) -> None:
        self._suite, self._path = suite, path
        rows = {n: {"title": suite.rows[n].title, "status": "not run: the time was up", "peers": {}} for n in plan.rows}
        where = result_file.surroundings(plan.device)
        self.content: dict[str, Any] = {"benchmark": suite.name, "smoke": plan.smoke, "surroundings": where, "rows": rows}
        self._start = time.monotonic()

    def save(self) -> None:
        result_file.save(self._path, self.content)

    def take(self, message: Message) -> None:
        """A message from the process that measures: facts of a peer, or a row's new status."""
        row = self.content["rows"][message["row"]]
        if "peer" in message:
            facts = row["peers"].setdefault(message["peer"], {})
            facts |= message["facts"]
            if message["facts"].keys() & {"error", "not_run", "error_norm", "gpu_problem"}:
                print(f"{time.monotonic() - self._start:6.1f} s  {message['row']:20s} {table.line(message['peer'], facts)}", flush=True)
        else:
            row["status"] = message["status"]
            if message["status"] == "done":
                print(table.summary(message["row"], row), flush=True)
                if self._suite.describe:
                    print(self._suite.describe(row), flush=True)
        self.save()


def work(plan: Plan, send: Callable[[Message], None]) -> None:
    """Measure the rows of ``plan`` in this process; stops early where the process is spoilt."""
    suite: Suite = importlib.import_module(f"benchmarks.{plan.suite}").SUITE
    import helion_inductor.backend  # noqa: F401  (registers the backend where the package is not installed)

    allow_many_compilations()
    with tempfile.TemporaryDirectory(prefix="helion-bench-", ignore_cleanup_errors=True) as folder:
        if plan.device == "cuda":
            torch.compile(lambda x: x.sin() + 1)(torch.zeros(8, device="cuda"))  # workers and libraries, before any clock runs
        for name in plan.rows:
            if time.monotonic() >= plan.end:
                return
            _row(plan, name, suite.rows[name], Path(folder) / name, send)
            measuring.forget_row()
            if not measuring.fit():
                return


def _row(plan: Plan, name: str, row: Row, folder: Path, send: Callable[[Message], None]) -> None:
    def report(peer: str, facts: dict[str, Any]) -> None:
        send({"row": name, "peer": peer, "facts": facts})

    send({"row": name, "status": "begun"})
    end = min(plan.end, time.monotonic() + plan.row_timeout - GRACE)
    try:
        row.measure(Bench(plan.device, plan.smoke, end, plan.peers_of(row), folder, report))
    except NotHere as missing:
        send({"row": name, "status": f"not run: {missing}"})
        return
    except Exception as error:  # the rows after this one are still worth their time
        send({"row": name, "status": f"stopped: {measuring.timing.describe_error(error)}"})
        return
    send({"row": name, "status": "done"})


def _child(plan: Plan, connection: Connection) -> None:
    work(plan, connection.send)
    connection.send(DONE)


def supervise(plan: Plan, record: Record) -> None:
    """Measure in child processes, a new one wherever the one before ended early."""
    rows = list(plan.rows)
    while rows and time.monotonic() < plan.end:
        begun = _one_child(replace(plan, rows=tuple(rows)), record)
        for name in begun or rows[:1]:
            if record.content["rows"][name]["status"] == "begun" or not begun:
                record.take({"row": name, "status": "stopped: its process ended early or ran out of time"})
            rows.remove(name)


def _one_child(plan: Plan, record: Record) -> list[str]:
    """Start a process, take its messages until it ends or must be ended; returns the rows that it began."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(plan, theirs))
    child.start()
    theirs.close()
    begun: list[str] = []
    done = False
    for message in _messages(ours, plan):
        done = message == DONE
        if message.get("status") == "begun":
            begun.append(message["row"])
        if not done:
            record.take(message)
    child.join(20 if done else 1)
    if child.is_alive():
        child.kill()
        child.join()
    return begun


def _messages(connection: Connection, plan: Plan) -> Iterator[Message]:
    """What a child says, until it is done, gone, or silent past the end of the budget or of its row."""
    row_end = time.monotonic() + plan.row_timeout
    while connection.poll(max(0.0, min(row_end, plan.end + GRACE) - time.monotonic())):
        try:
            message = connection.recv()
        except EOFError:
            return
        if message.get("status") == "begun":
            row_end = time.monotonic() + plan.row_timeout
        yield message
        if message == DONE:
            return
