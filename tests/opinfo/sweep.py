"""Every op of torch's OpInfo database through the backend.

    python -m tests.opinfo.sweep [--ops add softmax ...] [--dtypes float32 second] [--samples 3] [--partial]
                                 [--shard i/n] [--json out.json] [--timeout 120]

Each (op, dtype) runs in a forked child, so that neither a crash nor an endless loop ends the sweep.  Prints one line for each
that is not simply in a region, and the table.  ``outcome.py`` says how results are classed and what "loop-only" means.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Before anything imports triton, which reads the first one once.
    os.environ["TRITON_INTERPRET"] = "1"
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="helion-opinfo-")
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

import torch

from tests.opinfo.outcome import LOOP_ONLY, ORDER, Outcome, run_sample, samples, second_dtype


def op_database() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def dtypes_of(op: Any, wanted: Sequence[str]) -> list[torch.dtype]:
    """The dtypes that ``wanted`` names ("second" by the op) as far as the op supports them."""
    known = op.supported_dtypes("cpu")
    named = [second_dtype(op) if name == "second" else getattr(torch, name) for name in wanted]
    return [d for d in dict.fromkeys(named) if d in known]


def warm_up() -> None:
    """Import in the parent what every child needs, and let Dynamo see through the random ops' wrappers.

    The wrappers seed the generator within a context manager, on which Dynamo gives up; seeds are set around the calls anyway.
    """
    import torch._inductor.config as inductor_config
    from torch.testing._internal import common_methods_invocations as invocations

    from helion_inductor import backend

    invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

    torch.set_num_threads(1)  # a forked child has none of its parent's threads, of either kind
    inductor_config.compile_threads = 1
    inductor_config.force_disable_caches = True  # sign and sgn are one graph, and one that is found in a cache has no report
    torch.compile(lambda x: x.exp().sum(), backend=backend.helion, options={"regions": "all"})(torch.ones(4))


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
    """The outcome that stands for several samples: the worst, except that "nothing" and "untraced" give way to others."""
    listed = list(outcomes)
    telling = [o for o in listed if o.status not in ("nothing", "untraced")] or listed
    return min(telling, key=lambda o: ORDER.index(o.status))


def table(results: dict[tuple[str, str], Outcome]) -> str:
    """Counts by dtype, and by op (the worst of its dtypes)."""
    lines = [f"{'':12}{'total':>7}{'loop-only':>11}" + "".join(f"{s:>10}" for s in reversed(ORDER))]
    by_op: dict[str, list[Outcome]] = {}
    for (op, _), outcome in results.items():
        by_op.setdefault(op, []).append(outcome)
    groups = {d: [o for (_, dd), o in results.items() if dd == d] for d in dict.fromkeys(d for _, d in results)}
    groups["all ops"] = [worst(os) for os in by_op.values()]
    for name, outcomes in groups.items():
        counts = Counter(o.status for o in outcomes)
        loops = sum(counts[s] for s in LOOP_ONLY)
        lines.append(f"{name:12}{len(outcomes):>7}{loops:>11}" + "".join(f"{counts[s]:>10}" for s in reversed(ORDER)))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", nargs="*", help="names, as op.name or op.full_name")
    parser.add_argument("--dtypes", nargs="*", default=["float32", "second"])
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--partial", action="store_true", help="run graphs too that are only partly in regions")
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--timeout", type=float, default=120)
    chosen = parser.parse_args(arguments)
    index, shards = map(int, chosen.shard.split("/"))
    ops = [op for op in op_database() if not chosen.ops or op.name in chosen.ops or op.full_name in chosen.ops][index::shards]
    warm_up()
    results: dict[tuple[str, str], Outcome] = {}
    records: list[dict[str, Any]] = []
    for op in ops:
        for dtype in dtypes_of(op, chosen.dtypes):
            start = time.perf_counter()
            outcomes = run_in_child(op, dtype, chosen.samples, partial=chosen.partial, timeout=chosen.timeout)
            records += [o.record() for o in outcomes]
            outcome = worst(outcomes)
            results[outcome.op, outcome.dtype] = outcome
            if outcome.status not in ("region", "extern", "nothing"):
                print(f"{outcome.op} {outcome.dtype} #{outcome.sample} {outcome.status} [{time.perf_counter() - start:.0f} s]: "
                      f"{' | '.join(outcome.reasons)}", flush=True)  # fmt: skip
            if chosen.json:
                chosen.json.write_text(json.dumps(records, indent=1))
    print(table(results))
    return int(any(o.status in ("crash", "timeout", "wrong") for o in results.values()))


if __name__ == "__main__":
    sys.exit(main())
