"""What the compiler did and why: one :class:`Report` over all graphs of a compilation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import fx

from .ir.schedule_ir import KernelSchedule
from .lowering.partition import Refusal
from .pipeline import CompiledRegion
from .runtime.precompile import KernelRequest, Resources, compile_offline_many
from .scheduling.fuse_vertical import FusionDecision
from .scheduling.guard import Prediction
from .scheduling.persistent import Decision
from .scheduling.resources import ResourceEstimate, resources_of
from .scheduling.split_choice import SplitDecision
from .signatures import kernel_request
from .tuning import Tuning


@dataclass(frozen=True)
class KernelReport:
    """One kernel of a region: its name, schedule, and the text of the module it is in. ``predicted_us``: its time on the device,
    launch included, from the cost model; None where it is made for the interpreter."""

    name: str
    schedule: KernelSchedule
    source: str
    region: CompiledRegion
    owner: RegionReport = field(repr=False, compare=False)
    predicted_us: float | None = None

    def estimate(self) -> ResourceEstimate:
        """Registers as the cost model estimates them, without compiling."""
        return resources_of(self.schedule, self.region.program)

    def request(self, path: str, target: str = "sm_90") -> KernelRequest:
        """How to compile this kernel offline from its module at ``path``."""
        return kernel_request(self.region.source, self.region.program, self.schedule, self.name, path, target)

    def resources(self, target: str = "sm_90") -> Resources:
        """Registers, stack, spills and shared memory after compiling for ``target``, without a device."""
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "module.py"
            path.write_text(self.source)
            result = compile_offline_many([self.request(str(path), target)])[0]
        if not isinstance(result, Resources):
            raise RuntimeError(f"{self.name} does not compile for {target}: {result}")
        return result

    def __str__(self) -> str:
        time = "" if self.predicted_us is None else f", predicted {self.predicted_us:.1f} us, about {self.estimate()}"
        return f"{self.name}: {len(self.schedule.tasks())} tasks, {self.schedule.pid_type}{time}"


@dataclass(frozen=True)
class RegionReport:
    """A region that was compiled, whether it was ``taken`` or stays with Inductor, and why. ``prediction``: the times that the
    cost model gives it and Inductor's alternative, None where kernels are made for the interpreter. ``tuning``: what was measured,
    None where nothing was to be. ``graph``: its calls as a graph of their own."""

    compiled: CompiledRegion
    nodes: tuple[str, ...]
    taken: bool
    reason: str
    prediction: Prediction | None = None
    tuning: Tuning | None = None
    graph: fx.GraphModule | None = field(default=None, repr=False, compare=False)

    def kernels(self) -> tuple[KernelReport, ...]:
        region = self.compiled
        times = self.prediction.kernels if self.prediction is not None else (None,) * len(region.schedules)
        return tuple(
            KernelReport(k.name, s, region.source.module, region, self, us)
            for k, s, us in zip(region.source.kernels, region.schedules, times, strict=True)
        )


@dataclass(frozen=True)
class GraphReport:
    """One graph that Inductor compiled: its calls, its regions, what was left, and what is known of its peak memory."""

    name: str
    calls: int
    regions: tuple[RegionReport, ...]
    refusals: tuple[Refusal, ...]
    memory: str = ""


@dataclass
class Report:
    """Grows by one :class:`GraphReport` per compiled graph (inference, or forward and backward)."""

    graphs: list[GraphReport] = field(default_factory=list)

    @property
    def regions(self) -> tuple[RegionReport, ...]:
        return tuple(r for g in self.graphs for r in g.regions if r.taken)

    @property
    def kernels(self) -> tuple[KernelReport, ...]:
        return tuple(k for r in self.regions for k in r.kernels())

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        return tuple(r for g in self.graphs for r in g.refusals)

    @property
    def decisions(self) -> tuple[FusionDecision | Decision | SplitDecision, ...]:
        return tuple(d for g in self.graphs for r in g.regions for d in (*r.compiled.decisions, *r.compiled.splits))

    def nest_count(self) -> int:
        return sum(len(r.compiled.program.nests) for r in self.regions)

    def refusal_counts(self) -> Counter[str]:
        """Refused calls by reason."""
        return Counter(f"{r.code}: {r.detail}" if r.code == "family" else r.code for r in self.refusals)

    def __str__(self) -> str:
        lines: list[str] = []
        for graph in self.graphs:
            taken = sum(r.taken for r in graph.regions)
            lines.append(f"graph {graph.name}: {graph.calls} calls, {taken} regions, {len(graph.refusals)} calls left")
            for region in graph.regions:
                compiled = region.compiled
                state = f"{'taken' if region.taken else 'left'}: {region.reason}"
                lines.append(
                    f"  region {compiled.key[:12]}: {len(region.nodes)} calls, {compiled.lowering.nest_count()} loops, "
                    f"{len(compiled.program.nests)} nests, {len(compiled.schedules)} kernels, {state}"
                )
                if region.prediction is not None:
                    lines.append(f"    {region.prediction}")
                lines += [f"    {line}" for line in str(region.tuning or "").splitlines()]
                lines += [f"    {k}" for k in region.kernels()]
            lines += [f"  {graph.memory}"] if graph.memory else []
            lines += [f"  left {r}" for r in graph.refusals]
        return "\n".join(lines)

    def save(self, folder: str | Path) -> Path:
        """Write the report and, per region, every stage and the generated module. Returns the folder."""
        root = Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        (root / "report.txt").write_text(str(self) + "\n")
        for graph in self.graphs:
            for region in graph.regions:
                save_region(region.compiled, root / f"{graph.name}_{region.compiled.key[:12]}")
        return root


def save_region(region: CompiledRegion, folder: Path) -> None:
    """One file per stage, the decisions, and the module."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, stage in enumerate(region.stages):
        (folder / f"{number}_{stage.name.replace(' ', '_')}.txt").write_text(f"# {stage.seconds * 1e3:.1f} ms\n{stage.text}\n")
    decisions: Sequence[object] = (*region.decisions, *region.splits, *region.in_place)
    (folder / "decisions.txt").write_text("".join(f"{d}\n" for d in decisions))
    (folder / "module.py").write_text(region.source.module)
