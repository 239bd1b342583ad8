"""The process that runs candidates and times them, so that one that crashes or hangs takes nothing with it.

    python -m helion_inductor.runtime.measure

Protocol: a request a line on stdin, an answer a line on stdout, both JSON objects. A request asks for one function::

    kind      "region": ``module`` is a generated module, whose ``run(inputs, outputs, sizes)`` is called;
              "graph": ``module`` defines ``graph(*inputs)``, which is compiled by Inductor and returns the outputs
    tensors   specifications by name: {"dtype", "shape", "stride", "seed", "below": least number that an integer must not reach,
              "restore": whether every call is to find it as it was made, for it is updated in place and may index}
    inputs    names of the tensors that are read
    outputs   names of the tensors that are written; what is updated in place is among these alone
    sizes     integers
    device    "cuda" or "cpu"
    same_as   path at which the first answer's outputs are kept, to compare the others with: None for no comparison

and the answer is {"us": median time of a call on the device} or {"error": why there is none}. A device's time is that of a CUDA
graph of the call, replayed back to back; the CPU's is wall time.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

ROUNDS = 5
ROUND_US = 2000.0  # length of a round, from which the number of calls in it follows
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Of the greatest element: sums in another order, or rounded once more, differ by less."""


def made(spec: Mapping[str, Any], device: str) -> torch.Tensor:
    """A tensor of the given layout: normal numbers, integers from 0 up to ``below``, or booleans; the same for equal seeds."""
    generator = torch.Generator().manual_seed(spec["seed"])
    dtype, shape, stride = getattr(torch, spec["dtype"]), spec["shape"], spec["stride"]
    if dtype == torch.bool:
        values = torch.randint(0, 2, shape, generator=generator).bool()
    elif dtype.is_floating_point:
        values = torch.randn(shape, generator=generator).to(dtype)
    else:
        values = torch.randint(0, max(1, spec["below"]), shape, generator=generator).to(dtype)
    result = torch.empty_strided(shape, stride, dtype=dtype, device=device)
    result.copy_(values)
    return result


def loaded(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"helion_inductor_measured_{Path(path).stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def call_of(request: Mapping[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any] | None, Callable[[], list[torch.Tensor]]]:
    """The call to be timed, what must come before each one, if anything, and one that makes a first call on fresh tensors and gives its
    outputs."""
    device, specs = request["device"], request["tensors"]

    def fresh() -> dict[str, Any]:
        return {n: made(s, device) for n, s in specs.items()}

    module = loaded(request["module"])
    if request["kind"] == "graph":
        compiled = torch.compile(module.graph, dynamic=False)

        def run(tensors: Mapping[str, Any]) -> list[torch.Tensor]:
            with torch.no_grad():
                return list(compiled(*(tensors[i] for i in request["inputs"])))
    else:

        def run(tensors: Mapping[str, Any]) -> list[torch.Tensor]:
            outputs = [tensors[n] for n in request["outputs"]]
            module.run([tensors[n] for n in request["inputs"]], outputs, request["sizes"])
            return outputs

    kept = fresh()
    first = {n: kept[n].clone() for n, s in specs.items() if s.get("restore") and n in request["outputs"]}

    def restore() -> None:
        for name, value in first.items():
            kept[name].copy_(value)

    return lambda: run(kept), restore if first else None, lambda: run(fresh())


def timed_us(call: Callable[[], Any], before: Callable[[], Any] | None, device: str) -> float:
    """Microseconds of ``call``; where ``before`` must come first, what both take without what it takes alone."""
    if before is None:
        return median_us(call, device)

    def both() -> None:
        before()
        call()

    return max(0.0, median_us(both, device) - median_us(before, device))


def median_us(call: Callable[[], Any], device: str) -> float:
    """Microseconds of a call: the median over rounds."""
    if device == "cpu":
        times = []
        for _ in range(ROUNDS):
            before = time.perf_counter()
            call()
            times.append(1e6 * (time.perf_counter() - before))
        return statistics.median(times)
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def replayed(count: int) -> float:
        start.record()
        for _ in range(count):
            graph.replay()
        end.record()
        end.synchronize()
        return float(1e3 * start.elapsed_time(end) / count)

    count = max(3, int(ROUND_US / max(1.0, replayed(3))))
    return statistics.median(replayed(count) for _ in range(ROUNDS))


def differs(actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> str | None:
    """What is wrong with results, None where they agree."""
    for position, (a, e) in enumerate(zip(actual, expected, strict=True)):
        a, e = a.cpu(), e.cpu()
        if not e.is_floating_point():
            if not torch.equal(a, e):
                return f"output {position} differs"
            continue
        wide, good = (t.double() for t in (a, e))
        both = wide.isfinite() & good.isfinite()
        if not torch.equal(wide.isnan(), good.isnan()) or not torch.equal(wide[~both].sign(), good[~both].sign()):
            return f"output {position} is not finite elsewhere"
        scale = float(good[both].abs().max()) if bool(both.any()) else 0.0
        error = float((wide[both] - good[both]).abs().max()) if bool(both.any()) else 0.0
        if error > TOLERANCE.get(e.dtype, 1e-1) * max(scale, 1e-30):
            return f"output {position} differs by {error:.3g} of {scale:.3g}"
    return None


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    call, before, first = call_of(request)
    outputs = first()
    if request["same_as"] is not None:
        path = Path(request["same_as"])
        if not path.exists():
            torch.save([o.cpu().clone() for o in outputs], path)
        elif request["kind"] == "region" and (problem := differs(outputs, torch.load(path))) is not None:
            return {"error": f"wrong result: {problem}"}
    return {"us": timed_us(call, before, request["device"])}


def main() -> None:
    """The process: answers until stdin ends."""
    # Compilers print, some of them past Python; nothing of that may get between the answers.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        lost = False
        try:
            result = answer(request)
        except Exception as error:  # whatever a candidate raises, compiling or running, is an answer about that candidate
            result = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
            lost = request["device"] == "cuda" and _context_is_lost()
        out.write(json.dumps(result) + "\n")
        out.flush()
        if lost:
            sys.exit(f"the device can no longer be used: {result['error']}")


def _context_is_lost() -> bool:
    """Whether a failed assertion or an illegal access left nothing to go on with: another process must take over."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


if __name__ == "__main__":
    main()
