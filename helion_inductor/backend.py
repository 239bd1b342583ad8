"""The seam with torch.compile: the backend function, and the graph pass that Inductor runs for us.

Inductor keeps AOTAutograd, decompositions, its own passes, memory planning, CUDA graphs and caches; our pass runs at the end of
its post-grad passes, on inference, forward and backward graphs alike, and turns regions into calls of one custom op.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
import logging
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch._dynamo.config as dynamo_config
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from torch import fx
from torch._dynamo import list_backends, register_backend
from torch._dynamo.utils import GmWrapper
from torch._inductor import list_mode_options
from torch._inductor.compile_fx import (
    _recursive_post_grad_passes,
    compile_fx,
    compile_fx_inner,
    fake_tensor_prop,
    view_to_reshape,
)
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.exc import InvalidCxxCompiler
from torch._inductor.runtime.cache_dir_utils import cache_dir
from torch._inductor.virtualized import V

from . import compat
from .device import H200, describe
from .errors import HelionError, InternalError, KernelNotFound, ProgramError
from .fx_nested import caller_of, mark_nested
from .fx_repairs import repair_graph
from .inspecting import regrouped
from .options import Options
from .region_pass import PassSettings, PlannedRegion, failed_graph, left_graph, plan_graph, rewrite_graph
from .report import GraphReport, save_region
from .runtime.kernel_store import KernelStore
from .runtime.measurer import Measurer
from .runtime.region_op import DIRECT, NAMESPACE, RegionRunner, define
from .runtime.remote import drop_scratch
from .runtime.state import drop_state
from .scheduling.device_model import device_model
from .scheduling.tile_sizes import TileTarget
from .tuning import Tuner

log = logging.getLogger(__name__)
_SOURCES = Path(__file__).parent
_TOKEN = "token"


def kernel_store() -> KernelStore:
    """The store of the moment: under Inductor's cache folder, so that both are cleared together."""
    return KernelStore(Path(cache_dir()) / "helion_inductor")


def store_token() -> str:
    """A word made with the store's folder and lost with it.

    It is part of the key of Inductor's caches, so that a graph which outlived its regions (a cleared store, a cache
    shared between machines) is compiled anew instead of being found.
    """
    return (kernel_store().put(_TOKEN, {"token.txt": uuid.uuid4().hex}) / "token.txt").read_text()


class _Runner(RegionRunner):
    """Knows what to do about regions that the store does not have, or has no more."""

    def forget(self) -> None:
        """Drop regions that would be found again: callables of ``fx_compiler`` outlive a reset, and a store may not."""
        store = kernel_store()
        self._loaded = {key: run for key, run in self._loaded.items() if store.get(key) is None}

    def find(self, key: str) -> Callable[..., None]:
        try:
            return super().find(key)
        except KernelNotFound as error:
            # Without the token the next process recompiles, instead of finding the graph and failing again.
            shutil.rmtree(kernel_store().root / _TOKEN, ignore_errors=True)
            hint = "a cached graph needs it. Run the program again: its graphs will be compiled anew"
            raise KernelNotFound(f"{error}; {hint}") from None


_RUNNER = _Runner(kernel_store)
_RUN_REGION, _LIBRARY = define(_RUNNER)
compat.name_in_wrappers(_RUN_REGION, f"torch.ops.{NAMESPACE}.{DIRECT}")


def device_kinds() -> frozenset[str]:
    """Kinds of device that kernels can be made for in this process."""
    kinds = {"cuda"} if torch.cuda.is_available() else set()
    return frozenset(kinds | ({"cpu"} if compat.interpreting() else set()))


def cpp_compiler() -> str | None:
    """The C++ compiler that Inductor would use on the CPU, None where it finds none."""
    try:
        return str(get_cpp_compiler())
    except InvalidCxxCompiler:
        return None


def tile_target(device: torch.device) -> TileTarget:
    return TileTarget(1, interpreter=True) if device.type == "cpu" else TileTarget(describe(device).sm_count)


def offline_target(device: torch.device) -> TileTarget:
    """The target of a dry run: the GPU where there is one, else the one that offline estimates are for."""
    return tile_target(device) if device.type != "cpu" else TileTarget(H200.sm_count)


def source_hash() -> str:
    """Hash of every file of the package, so that caches never outlive the compiler that filled them."""
    digest = hashlib.sha256()
    for path in sorted(_SOURCES.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


Listener = Callable[[GraphReport], Any]


def _keep(planned: Sequence[PlannedRegion]) -> None:
    """Put the modules of taken regions into the store, and load them."""
    store = kernel_store()
    for region in planned:
        if region.taken:
            store.put(region.compiled.key, {"module.py": region.compiled.source.module})
            _RUNNER.adopt(region.compiled.key, store)


class RegionPass(CustomGraphPass):
    """Runs on every post-grad graph; ``uuid`` names everything that its result depends on besides the graph."""

    def __init__(self, options: Options, listener: Listener | None = None, *, dry: bool = False) -> None:
        self.options = options
        self.listener = listener
        self.dry = dry
        self._numbers = itertools.count()
        self._budget_s = options.autotune_budget_s

    def __call__(self, graph: fx.Graph) -> None:
        name = f"graph{next(self._numbers)}"
        if (caller := caller_of(graph)) is not None:
            self._listen(left_graph(name, graph, caller))
            return
        kinds, target = (frozenset({"cpu", "cuda"}), offline_target) if self.dry else (device_kinds(), tile_target)
        settings = PassSettings(self.options, kinds, target) if self.dry else PassSettings(self.options, kinds, target, regrouped)
        try:
            if kinds and self.options.regions != "none":
                repair_graph(graph)
            with self._tuner() as tuner:
                planned, report = plan_graph(name, graph, replace(settings, tuner=tuner))
            if not self.dry:
                _keep(planned)
                rewrite_graph(graph, planned, _RUN_REGION)
        except Exception as error:
            # The one net of the compiler: with on_error="fallback" a bug of ours costs speed, never the user's run.
            if self.options.on_error == "raise" or isinstance(error, ProgramError):
                raise
            log.warning("helion: %s stays with Inductor: %s: %s", name, type(error).__name__, error, exc_info=error)
            compat.count("errors")
            self._listen(failed_graph(name, graph, error))
            return
        if not self.dry:
            self._record(planned, report)
        self._listen(report)

    @contextlib.contextmanager
    def _tuner(self) -> Iterator[Tuner | None]:
        """What chooses by measuring, for one graph; all graphs of a compilation share the budget. A dry run only remembers."""
        options = self.options
        if options.autotune == "off" or not torch.cuda.is_available():
            if options.autotune != "off":
                log.info("helion: autotune=%r measures nothing: there is no GPU", options.autotune)
            yield None
            return
        given: dict[str, Any] = {"num_warps": options.num_warps, "block_sizes": options.block_sizes}
        given |= {name: None if getattr(options, name) == "auto" else getattr(options, name) for name in ("pid_type", "loop_order")}
        given["l2_grouping"] = None if options.l2_grouping == 1 else options.l2_grouping
        fixed = {name for name, value in given.items() if value is not None}
        device = describe("cuda")
        text = f"{compat.versions()} {device.name} {device.capability} driver {compat.driver_version()} {source_hash()}"
        # A candidate that hangs must not use up much more than the budget.
        with Measurer(timeout_s=max(10.0, min(60.0, self._budget_s))) as measurer:
            ask = None if self.dry else measurer.ask
            tuner = Tuner(ask, kernel_store(), options.autotune, self._budget_s, "cuda", text, fixed, device_model(device))
            yield tuner
            self._budget_s = tuner.left_s()

    def _listen(self, report: GraphReport) -> None:
        if self.listener is not None:
            self.listener(report)

    def _record(self, planned: Sequence[PlannedRegion], report: GraphReport) -> None:
        compat.count("graphs")
        for region in planned:
            compat.count("regions" if region.taken else "regions_left")
            compat.count("kernels", len(region.compiled.schedules) if region.taken else 0)
            compat.trace_artifact(f"helion_{report.name}_{region.compiled.key[:12]}", region.compiled.source.module)
            if self.options.dump is not None:
                save_region(region.compiled, Path(self.options.dump) / f"{report.name}_{region.compiled.key[:12]}")
        for refusal in report.refusals:
            log.debug("left %s", refusal)
        log.info("%s: %d calls, %d regions, %d left", report.name, report.calls, sum(p.taken for p in planned), len(report.refusals))

    def uuid(self) -> Any:
        capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
        surroundings = (compat.versions(), capability, compat.interpreting())
        return ("helion_inductor", source_hash(), store_token(), self.options.canonical(), *surroundings)


def config_patches(options: Options, graph_pass: RegionPass) -> dict[str, Any]:
    """Inductor's settings for one compilation: those of the mode, the user's own, and our pass."""
    patches: dict[str, Any] = dict(list_mode_options(options.mode)) if options.mode else {}
    return patches | dict(options.inductor) | {"post_grad_custom_post_pass": graph_pass}


def _compile_inner(gm: fx.GraphModule, example_inputs: Sequence[Any], **settings: Any) -> Any:
    mark_nested(gm)
    return compile_fx_inner(gm, example_inputs, **settings)


class Backend:
    """``torch.compile(..., backend="helion")``: one object per process, so that Dynamo sees the same backend every time."""

    __name__ = "helion"

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None,
                 options: Mapping[str, Any] | None = None) -> Any:  # fmt: skip
        """Compile one graph; raises ``OptionError`` for options that are not valid."""
        chosen = Options.from_mapping(options, mode)
        self._say_once(example_inputs)
        patches = config_patches(chosen, RegionPass(chosen, self._tell()))
        return compile_fx(gm, list(example_inputs), inner_compile=_compile_inner, config_patches=patches)

    def _tell(self) -> Listener | None:
        """One listener for those of the moment; a graph keeps it for the backward that is compiled later."""
        listeners = tuple(self._listeners)
        return (lambda report: [listen(report) for listen in listeners]) if listeners else None

    @contextlib.contextmanager
    def recording(self, listener: Listener) -> Iterator[None]:
        """Give ``listener`` the report of every graph whose compilation starts within, and of its backward, whenever that
        is.

        Graphs that come from Inductor's caches are not compiled, so nothing is said of them.
        """
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def _say_once(self, example_inputs: Sequence[Any]) -> None:
        if not device_kinds() and not getattr(self, "_said", False):
            self._said = True
            log.warning("helion: no GPU and no Triton interpreter (TRITON_INTERPRET=1): graphs go to Inductor untouched")

    def reset(self) -> None:
        """Forget loaded regions and the state of their kernels; called by ``torch.compiler.reset()``."""
        _RUNNER.forget()
        drop_state()
        drop_scratch()


helion = Backend()
if helion.__name__ not in list_backends(exclude_tags=()):  # run from a source tree, without an entry point
    register_backend(helion, name=helion.__name__)


def dry_compile(gm: fx.GraphModule, example_inputs: Sequence[Any], options: Options, listener: Listener) -> None:
    """Take a graph from Dynamo, and its backward if it has one, through all that happens up to our pass and no further.

    ``listener`` gets a report for each post-grad graph, named "inference", "forward" or "backward". ``gm`` stays as it
    is.
    """

    def analyse(
        graph: fx.GraphModule, inputs: Sequence[Any], *, is_backward: bool = False, is_inference: bool = False, **_: Any
    ) -> Any:
        kind = "backward" if is_backward else "inference" if is_inference else "forward"
        dry_pass = RegionPass(options, lambda report: listener(replace(report, name=kind)), dry=True)
        mark_nested(graph)
        with inductor_config.patch(config_patches(options, dry_pass)), torch.no_grad():
            view_to_reshape(graph)
            with V.set_fake_mode(fake_tensor_prop(graph, inputs)):
                _recursive_post_grad_passes(graph, is_inference)
        return _never_run

    patches = config_patches(options, RegionPass(options, dry=True)) | {"force_disable_caches": True}
    with functorch_config.patch(force_non_lazy_backward_lowering=True, enable_autograd_cache=False):
        compile_fx(copy.deepcopy(gm), list(example_inputs), inner_compile=analyse, config_patches=patches)


def _never_run(_: Sequence[Any]) -> None:
    raise InternalError("a graph of a dry compilation was run", rule="dry-run")


_never_run._boxed_call = True  # type: ignore[attr-defined]


def many_recompiles() -> Any:
    """Context in which Dynamo's limit on recompilations of one function is out of reach."""
    return dynamo_config.patch(recompile_limit=1 << 20, accumulated_recompile_limit=1 << 20)


def fx_compiler(gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Any:
    """The same road as an AOTAutograd compiler: ``functorch.compile.aot_function(fn, fw_compiler=helion_inductor.fx_compiler)``.

    The graph is one that AOTAutograd traced, decomposed or not. Returns a callable for it that takes one list and
    empties it. Raises OptionError for options that are not valid.
    """
    chosen = Options.from_mapping(options)
    patches = config_patches(chosen, RegionPass(chosen, helion._tell()))
    (returned,) = next(iter(gm.graph.find_nodes(op="output"))).args
    # In a wrapper the graph's callable takes one list and drops it; as it is, one argument for each tensor, held for the call.
    model: Any = GmWrapper(gm, _as_it_is) if isinstance(returned, (tuple, list)) else gm
    # Inductor traces the graph once more, for its decompositions; its notes must not get into the trace around us.
    with torch.no_grad(), torch._guards.tracing(None):
        compiled: Any = compile_fx(model, list(example_inputs), inner_compile=_compile_inner, config_patches=patches)

    def run(inputs: list[Any]) -> Any:
        return compiled(inputs) if model is not gm else compiled(*_emptied(inputs))

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _as_it_is(inputs: Any) -> Any:
    return inputs


def _emptied(inputs: list[Any]) -> list[Any]:
    given = list(inputs)
    inputs.clear()
    return given


__all__ = ["Backend", "HelionError", "RegionPass", "config_patches", "dry_compile", "fx_compiler", "helion", "kernel_store"]
