"""What a call costs the host, layer by layer: from the compiled function down to the driver's launch.

    python benchmarks/host_overhead.py [--only ROW ...] [--out FILE] [--budget SECONDS]

Tensors are tiny, so that the GPU never holds the host up; the clock stops before the synchronisation. Each layer is timed
alone, with the tensors that the layer above it passes:

    compiled_us   the compiled function: Dynamo's guards and all below
    graph_us      what the backend returned for the graph: AOTAutograd's and Inductor's wrappers and all below
    call_us       what Inductor's wrapper calls: finds the region by its key, and all below
    op_us         the same through the dispatcher, as torch.ops.helion_inductor.run_region
    run_us        the region's run(inputs, outputs, sizes): grids, temporaries, and all below
    launcher_us   the launcher of each kernel: arguments, specialisation; for Inductor, its own launchers
    driver_us     the launch of each compiled kernel alone
    to_launch_us  call_us without driver_us: from the wrapper's call to the driver's launch

helion-all runs one kernel for any number of members; Inductor one each, combo kernels one for a few. In "one-kernel" all have
one. "launches" counts kernels per call.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the repository, in place of this folder

import torch
from torch import Tensor

from benchmarks import harness, measuring, timing
from benchmarks.measuring import Bench
from benchmarks.peers import PEERS, Peer, caches, compiled, own_code, settings_for
from benchmarks.timing import Call

Fn = Callable[[Sequence[Tensor]], list[Tensor]]
Layers = dict[str, Call]
CALLS = 200
MEMBERS = (2, 4, 8, 16, 32, 64)


def neighbours(xs: Sequence[Tensor]) -> list[Tensor]:
    """As many outputs as inputs; each reads two inputs, so that Inductor too puts all into one kernel."""
    return [torch.sin(x) * y for x, y in zip(xs, [*xs[1:], xs[0]], strict=True)]


def independent(xs: Sequence[Tensor]) -> list[Tensor]:
    return [torch.sin(x) * 2 for x in xs]


def one_shape(count: int, device: str) -> list[Tensor]:
    return [torch.randn(64, device=device) for _ in range(count)]


def many_shapes(count: int, device: str) -> list[Tensor]:
    return [torch.randn(16 * (8 + i), device=device) for i in range(count)]


def graph_of(fn: Fn, peer: Peer, xs: Sequence[Tensor], device: str) -> Call:
    """What the peer's backend returns for the graph of ``fn``, called with the tensors that Dynamo calls it with."""
    settings = dict(settings_for(peer, device))
    compiler = torch._dynamo.lookup_backend(settings.pop("backend", "inductor"))
    found: list[Call] = []

    def backend(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if peer.ours or device == "cpu":
            graph = compiler(gm, inputs, **settings)
        else:
            graph = compiler(gm, inputs, config_patches=settings.get("options"))

        def note(*args: Any) -> Any:
            found.append(partial(graph, *args))
            return graph(*args)

        return note

    torch.compile(own_code(fn, f"{peer.name}_graph"), backend=backend, dynamic=False)(xs)
    return found[0]


def region_layers(graph: Call) -> Layers:
    """The layers of the one region that ``graph`` calls; kernels of a region are launched in order."""
    from helion_inductor.backend import kernel_store
    from helion_inductor.runtime.region_op import DIRECT, RegionRunner

    with mock.patch.object(torch.ops.helion_inductor, DIRECT) as called:
        graph()
    (((key, inputs, outputs, sizes), _),) = called.call_args_list
    module = kernel_store().load(key)
    look_up = RegionRunner(kernel_store)
    look_up(key, inputs, outputs, sizes)  # loads the region, from the store of the moment
    op = torch.ops.helion_inductor.run_region.default
    layers: Layers = {
        "op_us": lambda: op(key, inputs, outputs, sizes),
        "call_us": lambda: look_up(key, inputs, outputs, sizes),
        "run_us": lambda: module.run(inputs, outputs, sizes),
    }
    launches = launches_of(module, layers["run_us"])
    layers["launcher_us"] = in_order([partial(launcher, grid, *a, **k) for launcher, grid, a, k in launches])
    if torch.cuda.is_available():
        layers["driver_us"] = in_order([driver_launch(*launch) for launch in launches])
    return layers


def in_order(calls: list[Call]) -> Call:
    def run() -> None:
        for call in calls:
            call()

    run.launches = len(calls)  # type: ignore[attr-defined]
    return run if len(calls) != 1 else _counted(calls[0])


def _counted(call: Call) -> Call:
    """A partial of the call itself: the loop of ``in_order`` would be timed with it."""
    alone = partial(call)
    alone.launches = 1  # type: ignore[attr-defined]
    return alone


def launches_of(module: ModuleType, run: Call) -> list[tuple[Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]]]:
    """(launcher, grid, arguments, constexprs) of each launch of a region's module."""
    from helion_inductor.runtime.launcher import Launcher

    noted: list[tuple[Any, tuple[int, ...], tuple[Any, ...], dict[str, Any]]] = []

    def noting(launcher: Launcher) -> Callable[..., None]:
        def launch(grid: tuple[int, ...], *args: Any, **constexprs: Any) -> None:
            noted.append((launcher, grid, args, constexprs))
            launcher(grid, *args, **constexprs)

        return launch

    launchers = {name: noting(value) for name, value in vars(module).items() if isinstance(value, Launcher)}
    with mock.patch.multiple(module, **launchers):
        run()
    return noted


def driver_launch(launcher: Any, grid: tuple[int, ...], args: Sequence[Any], constexprs: dict[str, Any]) -> Call:
    """The launch of the compiled kernel, with nothing left to look up: what no launcher can be faster than."""
    jit = launcher.jit_fn
    kernel = jit.warmup(*args, grid=grid, **constexprs, **launcher.options)
    kernel = kernel.result() if hasattr(kernel, "result") else kernel
    rest = [constexprs.get(name, jit.signature.parameters[name].default) for name in jit.arg_names[len(args) :]]
    values = [a.data_ptr() if isinstance(a, Tensor) else a for a in args] + rest
    x, y, z = (*grid, 1, 1)[:3]
    stream = torch.cuda.current_stream().cuda_stream
    return partial(kernel.run, x, y, z, stream, kernel.function, kernel.packed_metadata, None, None, None, *values)


def inductor_launches(graph: Call) -> Call:
    """Inductor's launchers of all kernels of ``graph``, in order."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    noted: list[Call] = []
    original = CachingAutotuner.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        noted.append(partial(original, self, *args, **kwargs))
        return original(self, *args, **kwargs)

    with mock.patch.object(CachingAutotuner, "run", run):
        graph()
    if not noted:
        raise RuntimeError("this version of Inductor launches in a way that this benchmark does not know")
    return in_order(noted)


def prepare(bench: Bench, fn: Fn, xs: list[Tensor], exact: list[Tensor], peer: Peer) -> tuple[dict[str, Any], Layers]:
    whole = compiled(fn, peer, bench.device)
    facts = timing.first_call(lambda: whole(xs))
    facts["error_norm"] = measuring.largest_error(whole(xs), exact)
    graph = graph_of(fn, peer, xs, bench.device)
    layers: Layers = {"compiled_us": lambda: whole(xs), "graph_us": graph}
    if peer.ours:
        layers |= region_layers(graph)
    elif bench.device == "cuda":
        layers["launcher_us"] = inductor_launches(graph)
    if "launcher_us" in layers:  # not where another compiler stands in for Inductor
        facts["launches"] = layers["launcher_us"].launches  # type: ignore[attr-defined]
    return facts, layers


def measure(bench: Bench, fn: Fn, make: Callable[[int, str], list[Tensor]], count: int) -> None:
    torch.manual_seed(0)
    xs = make(min(count, 4) if bench.smoke else count, bench.device)
    exact = fn([x.double() for x in xs])
    limit = timing.WORSE * measuring.largest_error(fn(xs), exact) + timing.SLACK[torch.float32]
    every: dict[tuple[str, str], Call] = {}
    with torch.no_grad():
        for name in bench.peers:
            try:
                with caches(bench.folder, PEERS[name]):
                    facts, layers = prepare(bench, fn, xs, exact, PEERS[name])
            except Exception as error:  # a benchmark goes on with the other peers, and shows what this one said
                bench.report(name, {"error": timing.describe_error(error)})
                continue
            bench.report(name, facts | {"error_limit": limit})
            every |= {(name, layer): call for layer, call in layers.items()}
        clock = partial(timing.issue, calls=1 if bench.smoke else max(10, CALLS // count))
        times = timing.interleaved(clock, every, 1 if bench.smoke else 7)
    figures = {name: {layer: timing.figure(t) for (n, layer), t in times.items() if n == name} for name in bench.peers}
    for name, found in figures.items():
        bench.report(name, found)
        if "driver_us" in found:
            pairs = zip(found["call_us"]["rounds"], found["driver_us"]["rounds"], strict=True)
            bench.report(name, {"to_launch_us": timing.figure([[call - driver] for call, driver in pairs])})


def describe(row: dict[str, Any]) -> str:
    """Where the time of a call goes, by differences of the medians of neighbouring layers."""
    lines = []
    order = ("compiled_us", "graph_us", "call_us", "run_us", "launcher_us", "driver_us")
    for peer, facts in row["peers"].items():
        present = [(n[:-3], statistics.median(facts[n]["rounds"])) for n in order if n in facts]
        steps = [f"{a} {x - y:.1f}" for (a, x), (_, y) in zip(present, present[1:], strict=False)]
        steps += [f"{name} {value:.1f}" for name, value in present[-1:]]
        lines.append(f"    {peer:12s} {facts.get('launches', '?')} launches: {', '.join(steps)} (us, each layer without those below)")
    return "\n".join(lines)


NAMES = ("helion-all", "inductor", "combo")
SUITE = harness.Suite(
    "host_overhead",
    __doc__ or "",
    {
        "one-kernel": harness.Row("One kernel of 10 tensors", NAMES, lambda b: measure(b, neighbours, one_shape, 5)),
        **{
            f"members-{n}": harness.Row(f"{n} independent loops", NAMES, partial(measure, fn=independent, make=many_shapes, count=n))
            for n in MEMBERS
        },
    },
    describe,
)

if __name__ == "__main__":
    sys.exit(harness.main(SUITE))
