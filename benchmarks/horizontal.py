"""Many independent loops on one GPU: how well kernels are shared, beside eager, Inductor and its combo kernels.

    python benchmarks/horizontal.py [--cases NAME ...] [--out FILE] [--budget-s 140] [--dry]

gpu us: replay of a CUDA graph of one call, with a cold L2 cache; host us: wall time per call of back-to-back calls. The error
is the largest over the outputs of the norm of the difference from a float64 run, over that run's norm.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
if "--dry" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks import timing  # noqa: E402


def pointwise(xs: Sequence[Tensor], ws: Sequence[Tensor]) -> list[Tensor]:
    return [torch.tanh(x) * w + torch.sin(x) for x, w in zip(xs, ws, strict=True)]


def normalised(xs: Sequence[Tensor], ws: Sequence[Tensor]) -> list[Tensor]:
    return [F.gelu(F.layer_norm(x, (x.shape[-1],)) * w) + x for x, w in zip(xs, ws, strict=True)]


@dataclass(frozen=True)
class Case:
    fn: Callable[[Sequence[Tensor], Sequence[Tensor]], list[Tensor]]
    shapes: tuple[tuple[int, int], ...]
    dtype: torch.dtype = torch.float32

    def data(self, device: str) -> tuple[list[Tensor], list[Tensor]]:
        torch.manual_seed(0)
        xs = [torch.randn(s, device=device, dtype=self.dtype) for s in self.shapes]
        return xs, [torch.randn(s[-1], device=device, dtype=self.dtype) for s in self.shapes]


CASES = {
    "pointwise 64x[64,1024]": Case(pointwise, ((64, 1024),) * 64),
    "pointwise 64 mixed": Case(pointwise, tuple((16 + 7 * i, 256 + 64 * (i % 9)) for i in range(64))),
    "ln-gelu 32x[256,1024]": Case(normalised, ((256, 1024),) * 32),
    "ln-gelu 32 mixed": Case(normalised, tuple((32 + 5 * i, 128 * (1 + i % 8)) for i in range(32))),
    "ln-gelu 8x[8192,4096] bf16": Case(normalised, ((8192, 4096),) * 8, torch.bfloat16),
}
TINY = {"pointwise 3 mixed": Case(pointwise, ((4, 16), (3, 20), (2, 7))), "ln-gelu 2": Case(normalised, ((4, 16),) * 2)}


def _ours(**options: Any) -> dict[str, Any]:
    return {"backend": "helion", "options": {"on_error": "raise", **options}}


# In the order of interest: what does not fit into the time is left out at the end.
VARIANTS: dict[str, dict[str, Any] | None] = {
    "eager": None,
    "inductor": {},
    "helion-auto": _ours(regions="auto"),
    "helion-all flat": _ours(regions="all", pid_type="flat"),
    "combo": {"options": timing.COMBO},
    "helion-all blocked": _ours(regions="all", pid_type="persistent_blocked"),
    "helion-all interleaved": _ours(regions="all", pid_type="persistent_interleaved"),
}
DRY = [name for name in VARIANTS if name == "eager" or name.startswith("helion-all")]


def host_us(call: Callable[[], Any], calls: int) -> float:
    for _ in range(3):
        call()
    timing.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    timing.synchronize()
    return (time.perf_counter() - start) / calls * 1e6


def run_case(name: str, case: Case, dry: bool, end: float) -> dict[str, dict[str, Any]]:
    """Rows by variant; ``end`` in time.monotonic()'s seconds, past which no further variant is compiled."""
    device = "cpu" if dry else "cuda"
    xs, ws = case.data(device)
    exact = case.fn([x.double() for x in xs], [w.double() for w in ws])
    rows: dict[str, dict[str, Any]] = {}
    calls: dict[str, Callable[[], Any]] = {}
    replays: dict[str, Callable[[], Any]] = {}
    for variant in DRY if dry else VARIANTS:
        if time.monotonic() > end and variant != "eager":
            rows[variant] = {"error": "left out: no time left"}
            continue
        try:
            rows[variant], calls[variant] = _prepare(case, VARIANTS[variant], xs, ws, exact)
            if not dry:
                replays[variant] = timing.graph_replay(calls[variant])
        except Exception as error:  # a benchmark goes on with the other variants, and shows what this one said
            rows[variant] = {"error": timing.describe_error(error)}
            print(f"{name:28s} {variant:24s} {rows[variant]['error'][:200]}", flush=True)
    del exact
    _measure(rows, calls, replays, dry)
    for variant in calls:
        print(f"{name:28s} {variant:24s} {_short(rows[variant])}", flush=True)
    return rows


def _prepare(case: Case, settings: dict[str, Any] | None, xs: list[Tensor], ws: list[Tensor],
             exact: list[Tensor]) -> tuple[dict[str, Any], Callable[[], Any]]:  # fmt: skip
    fn = case.fn if settings is None else torch.compile(case.fn, dynamic=False, **settings)
    outputs, facts = timing.first_call(lambda: fn(xs, ws))
    error = max(timing.relative_error(a, e) for a, e in zip(outputs, exact, strict=True))
    return {"error_norm": error, **(facts if settings is not None else {})}, lambda: fn(xs, ws)


def _measure(rows: dict[str, Any], calls: dict[str, Callable[[], Any]], replays: dict[str, Callable[[], Any]], dry: bool) -> None:
    gpu: dict[str, list[float]] = {v: [] for v in replays}
    host: dict[str, list[float]] = {v: [] for v in calls}
    for _ in range(1 if dry else 3):  # in turn, so that drift meets all alike
        for variant, call in calls.items():
            host[variant].append(host_us(call, 2 if dry else 30))
            if variant in replays:
                from triton.testing import do_bench

                gpu[variant].append(do_bench(replays[variant], warmup=5, rep=40, return_mode="median") * 1e3)
    for variant, times in host.items():
        rows[variant]["host_us"] = round(statistics.median(times), 1)
        if gpu.get(variant):
            rows[variant]["gpu_us"] = round(statistics.median(gpu[variant]), 2)


def _short(row: dict[str, Any]) -> str:
    counted = " ".join(f"{k} {row[k]}" for k in timing.COUNTED if k in row)
    times = f"gpu {row.get('gpu_us', float('nan')):8.1f} us  host {row['host_us']:8.0f} us"
    seconds = f"compile {row['compile_s']:5.1f} s" if "compile_s" in row else " " * 15
    return f"{times}  {seconds}  error {row['error_norm']:.1e}  {counted}"


def summarise(results: dict[str, dict[str, Any]]) -> str:
    rows = []
    for name, found in results.items():
        best = min((found[v]["gpu_us"] for v in ("inductor", "combo") if "gpu_us" in found.get(v, {})), default=None)
        for variant, row in found.items():
            compared = timing.ratio(row.get("gpu_us"), best) if variant.startswith("helion") else None
            rows.append([name, variant, row.get("gpu_us"), compared, row.get("host_us"), row.get("compile_s"), row.get("regions"),
                         row.get("kernels"), row.get("error_norm")])  # fmt: skip
    head = ("case", "variant", "gpu us", "/best", "host us", "compile s", "regions", "kernels", "error norm")
    return timing.table(head, rows) + "\n\n/best: gpu time over the better of inductor and combo"


def main() -> int:
    start = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES))
    parser.add_argument("--out", type=Path, help="result file (default benchmarks/results/horizontal_<gpu>.json)")
    parser.add_argument("--budget-s", type=float, default=140, help="seconds for everything")
    parser.add_argument("--dry", action="store_true", help="run the flow on the CPU with tiny sizes, in Triton's interpreter")
    chosen = parser.parse_args()
    if not chosen.dry and not torch.cuda.is_available():
        print(timing.NO_GPU, file=sys.stderr)
        return 2
    import helion_inductor.backend  # noqa: F401  (registers the backend where the package is not installed)

    cases = TINY if chosen.dry else {n: CASES[n] for n in chosen.cases or CASES}
    out = chosen.out or timing.RESULTS / f"horizontal_{'dry' if chosen.dry else timing.device_slug()}.json"
    content: dict[str, Any] = {"surroundings": timing.surroundings(), "cases": {}}
    with tempfile.TemporaryDirectory(prefix="helion-bench-", ignore_cleanup_errors=True) as caches, torch.no_grad():
        os.environ["TORCHINDUCTOR_CACHE_DIR"], os.environ["TRITON_CACHE_DIR"] = caches, os.path.join(caches, "triton")
        if not chosen.dry:
            torch.compile(lambda x: x.sin() + 1)(torch.zeros(8, device="cuda"))  # workers and libraries, before any clock runs
        for number, (name, case) in enumerate(cases.items()):
            torch.compiler.reset()
            left = start + chosen.budget_s - time.monotonic()
            share = left / (len(cases) - number) - 6  # a case that compiles past its share still has to be timed
            content["cases"][name] = run_case(name, case, chosen.dry, time.monotonic() + share)
            timing.save(out, content)
    print(f"\n{summarise(content['cases'])}\n{out}")
    return 1 if any("error" in row for rows in content["cases"].values() for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
