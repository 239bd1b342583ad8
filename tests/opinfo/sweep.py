"""Every op of torch's OpInfo database through the backend.

    python -m tests.opinfo.sweep [--ops add softmax ...] [--dtypes float32 second] [--samples 3] [--partial]
                                 [--log out/opinfo.jsonl] [--fresh] [--save] [--timeout 120]

Each (op, dtype) runs in a forked child, so that neither a crash nor an endless loop ends the sweep, and its outcomes are added to
the log. A sweep that was stopped goes on where the log ends when it is started again; entries that were made by other code, or
of other versions of torch and Triton, are made anew. Prints one line for each (op, dtype) that is not simply in a region, and the
table. ``--save`` also writes the classes to ``swept.json``. ``outcome.py`` says how results are classed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Before anything imports triton, which reads the first one once.
    os.environ["TRITON_INTERPRET"] = "1"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="helion-opinfo-")
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

import torch

from tests.opinfo.outcome import ORDER, Outcome, run_sample, samples, second_dtype
from tests.opinfo.table import classes, table

SWEPT = Path(__file__).with_name("swept.json")
ROOT = Path(__file__).parents[2]


def op_database() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def dtype_of(op: Any, wanted: str) -> torch.dtype | None:
    """The dtype that ``wanted`` names ("second" by the op) if the op supports it."""
    dtype = second_dtype(op) if wanted == "second" else getattr(torch, wanted)
    return dtype if dtype in op.supported_dtypes("cpu") else None


def dtypes_of(op: Any, wanted: Sequence[str]) -> list[torch.dtype]:
    """The dtypes that ``wanted`` names ("second" by the op) as far as the op supports them."""
    return [d for d in dict.fromkeys(dtype_of(op, name) for name in wanted) if d is not None]


@contextlib.contextmanager
def warmed_up() -> Iterator[None]:
    """Import in the parent what every child needs, and let Dynamo see through the random ops' wrappers.

    The wrappers seed the generator within a context manager, on which Dynamo gives up; seeds are set around the calls anyway.
    Settings of torch's are afterwards what they were.
    """
    import torch._inductor.config as inductor_config
    from torch.testing._internal import common_methods_invocations as invocations

    from helion_inductor import backend

    wrapper, threads = invocations.wrapper_set_seed, torch.get_num_threads()
    invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    torch.set_num_threads(1)  # a forked child has none of its parent's threads, of either kind
    # sign and sgn are one graph, and one that is found in a cache has no report
    try:
        with inductor_config.patch(compile_threads=1, force_disable_caches=True):
            torch.compile(lambda x: x.exp().sum(), backend=backend.helion, options={"regions": "all"})(torch.ones(4))
            yield
    finally:
        torch.set_num_threads(threads)
        invocations.wrapper_set_seed = wrapper


def run_op(op: Any, dtype: torch.dtype, count: int, *, partial: bool) -> list[Outcome]:
    """Outcomes of the samples of one op, in this process."""
    with torch.no_grad():
        chosen = samples(op, dtype, count)
        if not chosen:
            return [Outcome(op.full_name, str(dtype).removeprefix("torch."), -1, "nothing", ("no sample has elements",))]
        return [run_sample(op, dtype, number, sample, partial=partial) for number, sample in chosen]


def _child(pipe: Any, op: Any, dtype: torch.dtype, count: int, partial: bool) -> None:
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)
    try:
        pipe.send(run_op(op, dtype, count, partial=partial))
    # Whatever it is, it is this op's outcome, and the sweep goes on.
    except Exception as error:
        reason = f"eager: {type(error).__name__}: {error}"[:300]
        pipe.send([Outcome(op.full_name, str(dtype).removeprefix("torch."), -1, "untraced", (reason,))])
    finally:
        pipe.close()
        os._exit(0)


def run_in_child(op: Any, dtype: torch.dtype, count: int, *, partial: bool, timeout: float) -> list[Outcome]:
    """As ``run_op``, in a forked child; death and slowness of the child are outcomes too."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(there, op, dtype, count, partial))
    process.start()
    there.close()
    name = str(dtype).removeprefix("torch.")
    try:
        if not here.poll(timeout):
            return [Outcome(op.full_name, name, -1, "timeout", (f"after {timeout:.0f} s",))]
        return here.recv()
    except EOFError:
        process.join()
        return [Outcome(op.full_name, name, -1, "crash", (f"the process ended with code {process.exitcode}",))]
    finally:
        process.kill()
        process.join()
        here.close()


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome that stands for several samples: the worst, except that "nothing" gives way to others, and "untraced" to all."""
    listed = list(outcomes)
    traced = [o for o in listed if o.status != "untraced"] or listed
    telling = [o for o in traced if o.status != "nothing"] or traced
    return min(telling, key=lambda o: ORDER.index(o.status))


def fingerprint(count: int, partial: bool) -> str:
    """Changes with the code that is swept, the code that sweeps, the versions of torch and Triton, and what is asked for."""
    import triton

    digest = hashlib.sha256(f"{torch.__version__} {triton.__version__} {count} {partial}".encode())
    for path in sorted([*(ROOT / "helion_inductor").rglob("*.py"), *Path(__file__).parent.glob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def read_log(log: Path, made_by: str) -> dict[tuple[str, str], list[Outcome]]:
    """Outcomes by (op, row) that this very code wrote. A line that was cut off is dropped, and ended."""
    done: dict[tuple[str, str], list[Outcome]] = {}
    text = log.read_text() if log.exists() else ""
    if text and not text.endswith("\n"):
        log.write_text(text + "\n")
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:  # the process ended while it wrote
            continue
        if entry["made_by"] == made_by:
            done[entry["op"], entry["row"]] = [Outcome(**o) for o in entry["outcomes"]]
    return done


def sweep(ops: Sequence[Any], row: str, chosen: argparse.Namespace, done: Mapping[tuple[str, str], list[Outcome]],
          made_by: str) -> dict[str, Outcome]:  # fmt: skip
    """One row of the table: the worst outcome of every op, from the log or from a child, which adds it to the log."""
    found: dict[str, Outcome] = {}
    for op in ops:
        if (dtype := dtype_of(op, row)) is None:
            continue
        start = time.perf_counter()
        outcomes = done.get((op.full_name, row))
        if outcomes is None:
            outcomes = run_in_child(op, dtype, chosen.samples, partial=chosen.partial, timeout=chosen.timeout)
            entry = {"made_by": made_by, "op": op.full_name, "row": row, "outcomes": [o.record() for o in outcomes]}
            with chosen.log.open("a") as log:
                log.write(json.dumps(entry) + "\n")
        outcome = found[op.full_name] = worst(outcomes)
        if outcome.status not in ("region", "extern", "nothing"):
            print(f"{outcome.op} {outcome.dtype} #{outcome.sample} {outcome.status} [{time.perf_counter() - start:.0f} s]: "
                  f"{' | '.join(outcome.reasons)}", flush=True)  # fmt: skip
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", nargs="*", help="names, as op.name or op.full_name")
    parser.add_argument("--dtypes", nargs="*", default=["float32", "second"], help="rows of the table")
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--partial", action="store_true", help="run graphs too whose rest takes a C++ compiler")
    parser.add_argument("--log", type=Path, default=ROOT / "out" / "opinfo.jsonl")
    parser.add_argument("--fresh", action="store_true", help="forget the log")
    parser.add_argument("--save", action="store_true", help=f"write {SWEPT.name}")
    parser.add_argument("--timeout", type=float, default=120)
    chosen = parser.parse_args(arguments)
    ops = [op for op in op_database() if not chosen.ops or op.name in chosen.ops or op.full_name in chosen.ops]
    chosen.log.parent.mkdir(parents=True, exist_ok=True)
    if chosen.fresh:
        chosen.log.unlink(missing_ok=True)
    made_by = fingerprint(chosen.samples, chosen.partial)
    done = read_log(chosen.log, made_by)
    with warmed_up():
        rows = {row: sweep(ops, row, chosen, done, made_by) for row in chosen.dtypes}
    print(table(rows))
    if chosen.save:
        SWEPT.write_text(classes(rows))
    return int(any(o.status in ("crash", "timeout", "wrong") for outcomes in rows.values() for o in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
