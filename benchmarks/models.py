"""Whole models on one GPU, bf16 inference with random weights: this backend beside eager and Inductor, in the same process.

    python benchmarks/models.py [--models NAME ...] [--out FILE] [--timeout-s 110] [--budget-s 540] [--dry]

Each model runs in a process of its own. A result's error is the norm of its difference from a float64 eager run of the same
weights, over that run's norm, beside eager's own error. Times are medians of wall ms per call, synchronisation included.
compile_s is the first call, in caches of its own; the recording of CUDA graphs comes after it and is not in it.
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
if "--dry" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton; child processes inherit it

import torch  # noqa: E402

from benchmarks import timing  # noqa: E402

WORSE = 1.5
"""An error this many times eager's own is marked in the table."""
ALL = {"regions": "all"}


@dataclass(frozen=True)
class Variant:
    """``settings`` are arguments of torch.compile (None for eager); ``options`` reach the backend beside a mode."""

    name: str
    settings: dict[str, Any] | None
    options: dict[str, Any] = field(default_factory=dict)
    peer: str | None = None

    @property
    def graphed(self) -> bool:
        return bool(self.settings) and self.settings.get("mode") == "reduce-overhead"


# In the order of interest: what does not fit into the time is left out at the end. The peer is Inductor in the same mode.
VARIANTS = (
    Variant("eager", None),
    Variant("inductor", {}),
    Variant("inductor-ro", {"mode": "reduce-overhead"}),
    Variant("helion-all", {"backend": "helion", "options": ALL}, peer="inductor"),
    Variant("helion-all-ro", {"backend": "helion", "mode": "reduce-overhead"}, ALL, "inductor-ro"),
    Variant("helion-auto", {"backend": "helion"}, peer="inductor"),
    Variant("helion-auto-ro", {"backend": "helion", "mode": "reduce-overhead"}, peer="inductor-ro"),
    Variant("combo", {"options": timing.COMBO}),
)
DRY = ("eager", "helion-all")


def _words(batch: int, tokens: int, **more: Any) -> Callable[[str, torch.dtype], dict[str, Any]]:
    return lambda device, dtype: {"input_ids": torch.randint(0, 1000, (batch, tokens), device=device), **more}


def _pictures(batch: int) -> Callable[[str, torch.dtype], dict[str, Any]]:
    return lambda device, dtype: {"pixel_values": torch.randn(batch, 3, 224, 224, device=device, dtype=dtype)}


def _bert() -> Any:
    import transformers as hf

    return hf.BertModel(hf.BertConfig())


def _qwen3() -> Any:
    import transformers as hf

    shape = dict(hidden_size=1024, intermediate_size=3072, num_attention_heads=16, num_key_value_heads=8, head_dim=128)
    return hf.Qwen3Model(hf.Qwen3Config(num_hidden_layers=12, use_cache=False, **shape))


def _vit() -> Any:
    import transformers as hf

    return hf.ViTModel(hf.ViTConfig())


def _t5() -> Any:
    import transformers as hf

    return hf.T5EncoderModel(hf.T5Config())  # the defaults are t5-small's


MODELS: dict[str, tuple[Callable[[], Any], Callable[[str, torch.dtype], dict[str, Any]]]] = {
    "bert-base-1x128": (_bert, _words(1, 128)),
    "qwen3-0.6b-12l-1x128": (_qwen3, _words(1, 128, use_cache=False)),
    "vit-b-1": (_vit, _pictures(1)),
    "t5-small-encoder-1x128": (_t5, _words(1, 128)),
    "bert-base-32x512": (_bert, _words(32, 512)),
}
TINY = {"bert": "bert", "qwen3": "qwen3", "vit": "vit", "t5": "t5"}


def build(name: str, dry: bool) -> tuple[Any, dict[str, Any]]:
    """The model in evaluation mode and the arguments of its forward, in bf16 on the GPU, or tiny ones in float32 on the CPU."""
    torch.manual_seed(0)
    if dry:
        from tests.models import zoo

        kind = TINY[name.split("-")[0]]
        return zoo.build(kind), zoo.make_inputs(kind, 2)
    make, inputs = MODELS[name]
    model = make().to("cuda", torch.bfloat16).eval()
    return model, inputs("cuda", torch.bfloat16)


def callable_for(model: Any, variant: Variant) -> Callable[..., Any]:
    """A function with a code object of its own: Dynamo keeps compiled code by code object and backend, and variants that
    differ in nothing but the environment would share it."""

    def call(**inputs: Any) -> Any:
        return model(**inputs)

    name = "call_" + variant.name.replace("-", "_")
    own = FunctionType(call.__code__.replace(co_name=name), call.__globals__, name, None, call.__closure__)
    if variant.settings is None:
        return own
    compiled = torch.compile(own, dynamic=False, **variant.settings)
    if not variant.graphed:
        return compiled

    def graphed(**inputs: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(**inputs)

    return graphed


def exact_output(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    wide = {k: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for k, v in inputs.items()}
    return copy.deepcopy(model).double()(**wide)[0].clone()


def own_caches(folder: Path) -> None:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")


def measure(name: str, connection: Any, dry: bool, deadline: float) -> None:
    """The child process: sends one row per variant, then their interleaved times. ``deadline`` is in time.monotonic()'s
    seconds: variants that would start too near to it are left out."""
    import helion_inductor.backend  # noqa: F401  (registers the backend where the package is not installed)

    with tempfile.TemporaryDirectory(prefix="helion-bench-", ignore_cleanup_errors=True) as caches, torch.no_grad():
        own_caches(Path(caches) / "start")
        model, inputs = build(name, dry)
        exact = exact_output(model, inputs)
        if not dry:
            torch.compile(lambda x: x.sin() + 1)(torch.zeros(8, device="cuda"))  # workers and libraries, before any clock runs
        calls: dict[str, Callable[[], Any]] = {}
        longest = 0.0
        for variant in [v for v in VARIANTS if not dry or v.name in DRY]:
            left = deadline - time.monotonic()
            if left < 8 + 1.2 * longest:
                connection.send({"variant": variant.name, "error": f"left out: {left:.0f} s left"})
                continue
            own_caches(Path(caches) / variant.name)
            start = time.monotonic()
            connection.send(one_variant(model, inputs, exact, variant, calls, dry))
            longest = max(longest, time.monotonic() - start)
        connection.send({"times": timing.wall_interleaved(calls, 2 if dry else 15)})


def one_variant(model: Any, inputs: dict[str, Any], exact: torch.Tensor, variant: Variant,
                calls: dict[str, Callable[[], Any]], dry: bool) -> dict[str, Any]:  # fmt: skip
    """Compile, compare, time for a start; a variant that runs is added to ``calls``."""
    row: dict[str, Any] = {"variant": variant.name}
    try:
        compiled = callable_for(model, variant)
        facts = timing.first_call(lambda: compiled(**inputs), variant.options)[1]  # its outputs are let go before a graph is recorded
        for _ in range(3):  # what is compared comes from a replay where there are CUDA graphs
            output = compiled(**inputs)[0].clone()
        row |= {"error_norm": timing.relative_error(output, exact), **(facts if variant.settings is not None else {})}
        row["wall"] = timing.summary(timing.wall_round(lambda: compiled(**inputs), 2 if dry else 10))
    except Exception as error:  # a benchmark goes on with the other variants, and shows what this one said
        return row | {"error": timing.describe_error(error)}
    calls[variant.name] = lambda: compiled(**inputs)
    return row


def run_model(name: str, dry: bool, seconds: float) -> dict[str, Any]:
    """Rows by variant, gathered from a child process that gets ``seconds``."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    end = time.monotonic() + seconds
    child = context.Process(target=measure, args=(name, theirs, dry, end - 6))
    child.start()
    theirs.close()
    result: dict[str, Any] = {"rows": {}}
    try:
        while True:
            if not ours.poll(max(0.0, end - time.monotonic())):
                result["problem"] = f"stopped after {seconds:.0f} s"
                break
            message = ours.recv()
            if "times" in message:
                for variant, times in message["times"].items():
                    result["rows"][variant]["wall"] = times
                break
            print(f"{name:24s} {_short(message)}", flush=True)
            result["rows"][message.pop("variant")] = message
    except EOFError:
        result["problem"] = "its process ended early"
    child.join(2 if "problem" in result else 15)
    if child.is_alive():
        child.kill()
        child.join()
    return result


def _short(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{row['variant']:16s} {row['error'][:160]}"
    counted = " ".join(f"{k} {row[k]}" for k in timing.COUNTED if k in row)
    seconds = f"compile {row['compile_s']:.1f} s" if "compile_s" in row else ""
    return f"{row['variant']:16s} {row['wall']['median']:9.3f} ms  error {row['error_norm']:.2e}  {seconds}  {counted}"


def summarise(results: dict[str, Any]) -> str:
    """The table: every variant with its ratio to Inductor in the same mode, and our best beside Inductor's best."""
    rows: list[list[Any]] = []
    notes: list[str] = []
    for name, result in results.items():
        found = result["rows"]
        ms = {v: r["wall"]["median"] for v, r in found.items() if "wall" in r}
        eager = found.get("eager", {}).get("error_norm")
        for variant in [v for v in VARIANTS if v.name in found]:
            row = found[variant.name]
            worse = timing.ratio(row.get("error_norm"), eager)
            mark = " !" if worse is not None and worse > WORSE and row["error_norm"] > 1e-5 else ""
            compared = timing.ratio(ms.get(variant.name), ms.get(variant.peer)) if variant.peer else None
            rows.append([name, variant.name + mark, ms.get(variant.name), compared, row.get("compile_s"), row.get("regions"),
                         row.get("kernels"), row.get("errors"), row.get("error_norm")])  # fmt: skip
        ours = min((t for v, t in ms.items() if v.startswith("helion")), default=None)
        theirs = min((ms[v] for v in ("inductor", "inductor-ro") if v in ms), default=None)
        overall = timing.ratio(ours, theirs)
        if overall is not None:
            notes.append(f"{name}: best of helion / best of inductor and inductor-ro = {overall:.3f}")
        if "problem" in result:
            notes.append(f"{name}: {result['problem']}")
    head = ("model", "variant", "ms", "/peer", "compile s", "regions", "kernels", "errors", "error norm")
    return "\n".join([timing.table(head, rows), "", "/peer: time over Inductor's in the same mode. !: error over "
                      f"{WORSE} x eager's own.", *notes])  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--out", type=Path, help="result file (default benchmarks/results/models_<gpu>.json)")
    parser.add_argument("--timeout-s", type=float, default=110, help="seconds for one model")
    parser.add_argument("--budget-s", type=float, default=540, help="seconds for everything")
    parser.add_argument("--dry", action="store_true", help="run the flow on the CPU with tiny models, in Triton's interpreter")
    chosen = parser.parse_args()
    if not chosen.dry and not torch.cuda.is_available():
        print(timing.NO_GPU, file=sys.stderr)
        return 2
    out = chosen.out or timing.RESULTS / f"models_{'dry' if chosen.dry else timing.device_slug()}.json"
    content: dict[str, Any] = {"surroundings": timing.surroundings(), "unit": "ms", "models": {}}
    end = time.monotonic() + chosen.budget_s
    for name in chosen.models:
        left = end - time.monotonic()
        if left < 20:
            print(f"{name}: left out, {left:.0f} s of the budget left", flush=True)
            continue
        content["models"][name] = run_model(name, chosen.dry, min(chosen.timeout_s, left))
        timing.save(out, content)
    print(f"\n{summarise(content['models'])}\n{out}")
    complete = [not ("problem" in r or any("error" in row for row in r["rows"].values())) for r in content["models"].values()]
    return 0 if complete and all(complete) else 1


if __name__ == "__main__":
    sys.exit(main())
