"""The seam with torch.compile: the backend function, and the graph pass that Inductor runs for us.

Inductor keeps AOTAutograd, decompositions, its own passes, memory planning, CUDA graphs and caches; our pass runs at the end of
its post-grad passes, on inference, forward and backward graphs alike, and turns regions into calls of one custom op.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._inductor import list_mode_options
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.runtime.cache_dir_utils import cache_dir

from . import compat
from .device import describe
from .errors import HelionError
from .options import Options
from .region_pass import PassSettings, PlannedRegion, plan_graph, rewrite_graph
from .report import GraphReport, save_region
from .runtime.kernel_store import KernelStore
from .runtime.region_op import RegionRunner, define
from .scheduling.tile_sizes import TileTarget

log = logging.getLogger(__name__)
_SOURCES = Path(__file__).parent


def kernel_store() -> KernelStore:
    """The store of the moment: under Inductor's cache folder, so that both are cleared together."""
    return KernelStore(Path(cache_dir()) / "helion_inductor")


_RUNNER = RegionRunner(kernel_store)
_RUN_REGION, _LIBRARY = define(_RUNNER)


def device_kinds() -> frozenset[str]:
    """Kinds of device that kernels can be made for in this process."""
    kinds = {"cuda"} if torch.cuda.is_available() else set()
    return frozenset(kinds | ({"cpu"} if compat.interpreting() else set()))


def tile_target(device: torch.device) -> TileTarget:
    return TileTarget(1, interpreter=True) if device.type == "cpu" else TileTarget(describe(device).sm_count)


def source_hash() -> str:
    """Hash of every file of the package, so that caches never outlive the compiler that filled them."""
    digest = hashlib.sha256()
    for path in sorted(_SOURCES.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class RegionPass(CustomGraphPass):
    """Runs on every post-grad graph; ``uuid`` names everything that its result depends on besides the graph."""

    def __init__(self, options: Options, listener: Callable[[GraphReport], None] | None = None, *, dry: bool = False) -> None:
        self.options = options
        self.listener = listener
        self.dry = dry
        self._numbers = itertools.count()

    def __call__(self, graph: fx.Graph) -> None:
        name = f"graph{next(self._numbers)}"
        settings = PassSettings(self.options, frozenset({"cpu", "cuda"}) if self.dry else device_kinds(), tile_target)
        try:
            planned, report = plan_graph(name, graph, settings)
        except Exception as error:
            # The one net of the compiler: with on_error="fallback" a bug of ours costs speed, never the user's run.
            if self.options.on_error == "raise":
                raise
            log.warning("helion: %s stays with Inductor: %s: %s", name, type(error).__name__, error, exc_info=error)
            compat.count("errors")
            return
        self._record(planned, report)
        if not self.dry:
            store = kernel_store()
            for region in planned:
                if region.taken:
                    store.put(region.compiled.key, {"module.py": region.compiled.source.module})
                    _RUNNER.adopt(region.compiled.key, store)
            rewrite_graph(graph, planned, _RUN_REGION)

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
        if self.listener is not None:
            self.listener(report)

    def uuid(self) -> Any:
        capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
        return ("helion_inductor", source_hash(), self.options.canonical(), compat.versions(), capability, compat.interpreting())


def config_patches(options: Options, graph_pass: RegionPass) -> dict[str, Any]:
    """Inductor's settings for one compilation: those of the mode, the user's own, and our pass."""
    patches: dict[str, Any] = dict(list_mode_options(options.mode)) if options.mode else {}
    return patches | dict(options.inductor) | {"post_grad_custom_post_pass": graph_pass}


class Backend:
    """``torch.compile(..., backend="helion")``: one object per process, so that Dynamo sees the same backend every time."""

    __name__ = "helion"

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None,
                 options: Mapping[str, Any] | None = None) -> Any:  # fmt: skip
        """Compile one graph; raises ``OptionError`` for options that are not valid."""
        chosen = Options.from_mapping(options, mode)
        self._say_once(example_inputs)
        return compile_fx(gm, list(example_inputs), config_patches=config_patches(chosen, RegionPass(chosen)))

    def _say_once(self, example_inputs: Sequence[Any]) -> None:
        if not device_kinds() and not getattr(self, "_said", False):
            self._said = True
            log.warning("helion: no GPU and no Triton interpreter (TRITON_INTERPRET=1): graphs go to Inductor untouched")

    def reset(self) -> None:
        """Forget loaded regions; called by ``torch.compiler.reset()``."""
        _RUNNER.forget()


helion = Backend()


def fx_compiler(gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Any:
    """The same road as an AOTAutograd compiler: ``functorch.compile.aot_function(fn, fw_compiler=helion_inductor.fx_compiler)``.

    The graph is one that AOTAutograd traced (functional ATen). Returns a boxed-convention callable for it.
    """
    from torch._inductor import config

    chosen = Options.from_mapping(options)
    with config.patch(config_patches(chosen, RegionPass(chosen))):
        return compile_fx_inner(gm, list(example_inputs))


__all__ = ["Backend", "HelionError", "RegionPass", "config_patches", "fx_compiler", "helion", "kernel_store"]
