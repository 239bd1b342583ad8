"""Choosing kernels by measuring them: candidates beside what the cost model chose, and beside what Inductor makes of the same.

A region's inputs are made up (its shapes, strides and dtypes are known while a graph is compiled, its values are not); everything
runs in a process of its own (``runtime/measure.py``). What was found is kept in the kernel store, by device and version; a search
that was cut short leaves its best so far, from which the next one goes on.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx

from .ir.parser import parse_schedule
from .ir.schedule_ir import KernelSchedule
from .ir.tile_ir import TileProgram
from .pipeline import CompiledRegion, rescheduled
from .runtime.kernel_store import KernelStore
from .scheduling.candidates import Candidate, candidates
from .scheduling.device_model import DeviceModel
from .scheduling.hints import evaluate_size
from .scheduling.index_bounds import index_bounds

log = logging.getLogger(__name__)

QUICK = 8  # candidates of a region beside the kernels that the cost model chose
MARGIN = 0.97  # of the time so far that a candidate must not pass: medians of equal kernels differ by less
FILE = "tuning.json"
_IMPORTS = {"torch": "import torch", "device": "from torch import device", "inf": "from math import inf", "nan": "from math import nan"}
"""What the text of a graph may name."""
Ask = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class Trial:
    """A candidate, by what it changes, and its microseconds on the device, or why it has none."""

    change: str
    us: float | None
    error: str = ""

    def __str__(self) -> str:
        return f"{self.change}: " + (f"{self.us:.1f} us" if self.us is not None else f"skipped: {self.error}")


@dataclass(frozen=True)
class Tuning:
    """What was measured of a region: ``trials`` begins with the kernels that the cost model chose; ``chosen`` is the one that was
    kept, None where nothing could be measured; ``graph`` is Inductor's version. ``stopped``: why the search ended early."""

    trials: tuple[Trial, ...]
    chosen: Trial | None
    graph: Trial | None
    stopped: str = ""
    remembered: bool = False

    def __str__(self) -> str:
        lines = [f"{'  -> ' if t == self.chosen else '     '}{t}" for t in self.trials]
        lines += [f"     Inductor: {self.graph.us:.1f} us" if self.graph.us is not None else f"     {self.graph}"] if self.graph else []
        head = "measured earlier" if self.remembered else "measured"
        return "\n".join([f"{head}{f', stopped: {self.stopped}' if self.stopped else ''}:", *lines])


class Tuner:
    """Tunes the regions of one compilation within ``budget_s`` seconds.

    ``ask`` sends a request to the process that measures and returns its answer; with None only what was measured earlier counts.
    ``device`` is "cuda", or "cpu" under Triton's interpreter; ``surroundings`` is text that tells devices and versions apart;
    ``level`` is "quick" or "full"; ``fixed`` names options that were given and stay as they are.
    """

    def __init__(self, ask: Ask | None, store: KernelStore, level: str, budget_s: float, device: str, surroundings: str,
                 fixed: Collection[str], model: DeviceModel) -> None:  # fmt: skip
        self.ask, self.store, self.level, self.device = ask, store, level, device
        self.surroundings, self.fixed, self.model = surroundings, tuple(sorted(fixed)), model
        self.end = time.monotonic() + budget_s
        self.stopped = ""

    def tune(self, region: CompiledRegion, graph: GraphVersion | None, position: str = "") -> tuple[CompiledRegion, Tuning]:
        """The region on the fastest kernels found, and what was measured. ``graph``: for Inductor, None where there is none.

        Ctrl-C ends the search for this and all further regions, which keep the best so far.
        """
        known = self.store.get(self._key(region))
        if known is not None:
            return self._remembered(region, json.loads((known / FILE).read_text()))
        number, begun = self._begun(region)
        if begun is not None and (self.ask is None or self.left_s() <= 0):
            return self._remembered(region, begun)
        if self.ask is None or self.left_s() <= 0:
            over = self.stopped or "autotune_budget_s is used up"
            return region, Tuning((), None, None, over if self.ask is not None else "a report measures nothing")
        with tempfile.TemporaryDirectory() as folder:
            search = _Search(self, region, Path(folder), position)
            try:
                search.run(graph, None if begun is None else tuple(map(parse_schedule, begun["schedules"])))
            except KeyboardInterrupt:
                self.stopped = "interrupted"
                log.warning("helion: tuning was interrupted; what was fastest so far is kept")
            result = Tuning(tuple(search.trials), search.best, search.graph, self.stopped)
        _end_line()
        log.info("helion: region %s: %s", region.key[:12], result)
        chosen = search.schedules
        if search.best is not None:
            key = f"{self._key(region)}-part{number}" if self.stopped else self._key(region)
            self.store.put(key, {FILE: json.dumps(_plain(result, chosen))})
        return (rescheduled(region, chosen) if chosen != region.schedules else region), result

    def _begun(self, region: CompiledRegion) -> tuple[int, Mapping[str, Any] | None]:
        """How often a search for the region was cut short, and what the last one found."""
        number, found = 0, None
        while (entry := self.store.get(f"{self._key(region)}-part{number}")) is not None:
            number, found = number + 1, json.loads((entry / FILE).read_text())
        return number, found

    def left_s(self) -> float:
        """Seconds until the budget is used up; 0 once the search was stopped."""
        return 0.0 if self.stopped else max(0.0, self.end - time.monotonic())

    def _key(self, region: CompiledRegion) -> str:
        text = "\n".join([region.key, self.level, self.device, self.surroundings, *self.fixed])
        return f"tuned-{hashlib.sha256(text.encode()).hexdigest()[:32]}"

    def _remembered(self, region: CompiledRegion, plain: Mapping[str, Any]) -> tuple[CompiledRegion, Tuning]:
        trials = tuple(Trial(**t) for t in plain["trials"])
        graph = Trial(**plain["graph"]) if plain["graph"] else None
        schedules = tuple(map(parse_schedule, plain["schedules"]))
        tuning = Tuning(trials, Trial(**plain["chosen"]), graph, plain["stopped"], remembered=True)
        return (rescheduled(region, schedules) if schedules != region.schedules else region), tuning


def _plain(tuning: Tuning, schedules: Sequence[KernelSchedule]) -> dict[str, Any]:
    assert tuning.chosen is not None
    return {
        "trials": [asdict(t) for t in tuning.trials], "chosen": asdict(tuning.chosen),
        "graph": asdict(tuning.graph) if tuning.graph else None, "schedules": list(map(str, schedules)),
        "stopped": tuning.stopped,
    }  # fmt: skip


class _Search:
    """The search for one region: ``best`` of the ``trials`` so far, and its ``schedules``."""

    def __init__(self, tuner: Tuner, region: CompiledRegion, folder: Path, position: str) -> None:
        self.tuner, self.region, self.folder, self.position = tuner, region, folder, position
        self.tensors = specifications(region.program)
        self.trials: list[Trial] = []
        self.best: Trial | None = None
        self.graph: Trial | None = None
        self.schedules = region.schedules
        self.seen = {region.schedules}

    def run(self, graph: GraphVersion | None, begun: tuple[KernelSchedule, ...] | None = None) -> None:
        """``begun``: the best of an earlier search that was cut short."""
        self._try(Candidate("as the cost model chose", self.region.schedules))
        if self.best is None:
            return
        if begun is not None and begun not in self.seen and self.tuner.left_s() > 0:
            self._try(Candidate("the best of an earlier search", begun))
        if graph is not None and self.tuner.left_s() > 0:
            tensors = {n: self.tensors.get(n, spec) for n, spec in graph.tensors.items()}
            names = {"kind": "graph", "tensors": tensors, "inputs": list(tensors), "outputs": []}
            self.graph = self._measured("Inductor", graph.module, names)
        improved = True
        while improved:
            base = self.schedules
            for candidate in self._more():
                if self.tuner.left_s() <= 0:
                    self.tuner.stopped = self.tuner.stopped or "autotune_budget_s is used up"
                    return
                self._try(candidate)
            improved = self.tuner.level == "full" and self.schedules != base

    def _more(self) -> Iterator[Candidate]:
        found = candidates(self.schedules, self.region.program, self.tuner.fixed, self.tuner.model)
        new = [c for c in found if c.schedules not in self.seen]
        yield from new if self.tuner.level == "full" else new[:QUICK]

    def _try(self, candidate: Candidate) -> None:
        self.seen.add(candidate.schedules)
        module = rescheduled(self.region, candidate.schedules).source.module
        region = self.region
        names = {"kind": "region", "inputs": list(region.inputs), "outputs": list(region.outputs)}
        trial = self._measured(candidate.change, module, names)
        self.trials.append(trial)
        if trial.us is not None and (self.best is None or trial.us < MARGIN * (self.best.us or 0.0)):
            self.best, self.schedules = trial, candidate.schedules
        self._show()

    def _measured(self, name: str, module: str, names: Mapping[str, Any]) -> Trial:
        path = self.folder / f"{names['kind']}_{len(self.trials)}.py"
        path.write_text(module)
        program = self.region.program
        request = {
            "module": str(path), "tensors": self.tensors, "sizes": [s.hint for s in program.sizes],
            "device": self.tuner.device, "same_as": str(self.folder / "expected.pt"), **names,
        }  # fmt: skip
        assert self.tuner.ask is not None
        answer = self.tuner.ask(request)
        return Trial(name, answer.get("us"), answer.get("error", ""))

    def _show(self) -> None:
        """One line that is written over, on a terminal."""
        if sys.stderr.isatty() and self.best is not None:
            text = f"helion: tuning {self.position}: {len(self.trials)} tried, best {self.best.us:.1f} us, {self.tuner.left_s():.0f} s left"
            sys.stderr.write(f"\r{text:<100}")
            sys.stderr.flush()


def _end_line() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\n")


@dataclass(frozen=True)
class GraphVersion:
    """A module whose ``graph`` makes the calls of a region, and specifications of the tensors that it takes, in order."""

    module: str
    tensors: Mapping[str, Mapping[str, Any]]


def specifications(program: TileProgram) -> dict[str, dict[str, Any]]:
    """Tensors to measure with, by buffer: layouts at the hinted sizes. An output in an input's place starts as that input."""
    hints, below = program.hints(), index_bounds(program)
    result = {}
    for b in program.buffers:
        if b.kind != "temp":
            first = b.aliases or b.name
            shape, stride = ([evaluate_size(e, hints) for e in es] for es in (b.shape, b.stride))
            result[b.name] = _specification(first, b.dtype, shape, stride, below.get(first, 2))
            # Repeated calls would count on, and out of range.
            result[b.name]["restore"] = b.aliases is not None and not b.dtype.is_floating_point
    return result


def _specification(name: str, dtype: torch.dtype, shape: Sequence[int], stride: Sequence[int], below: int = 2) -> dict[str, Any]:
    return {
        "dtype": str(dtype).removeprefix("torch."), "shape": list(shape), "stride": list(stride), "seed": zlib.crc32(name.encode()),
        "below": below, "restore": False,
    }  # fmt: skip


def graph_version(module: fx.GraphModule, device: str) -> GraphVersion | None:
    """A region's graph for Inductor to compile on ``device``; None where it needs what text cannot carry: attributes, or sizes that
    are not known."""
    code = module.graph.python_code("self")
    given = module.graph.find_nodes(op="placeholder")
    if any(n.op == "get_attr" for n in module.graph.nodes) or not all(isinstance(p.meta["val"], torch.Tensor) for p in given):
        return None
    if not all(isinstance(n, int) for p in given for n in (*p.meta["val"].shape, *p.meta["val"].stride())):
        return None
    if not set(code.globals) <= {*_IMPORTS, "NoneType", "fx_pytree", "pytree"}:
        return None
    body = code.src.replace("device(type='cpu')", f"device(type='{device}')")
    text = "\n".join([*_IMPORTS.values(), body, "def graph(*inputs):", "    return forward(None, *inputs)", ""])
    values = {p.name: p.meta["val"] for p in given}
    return GraphVersion(text, {n: _specification(n, v.dtype, v.shape, v.stride()) for n, v in values.items()})
