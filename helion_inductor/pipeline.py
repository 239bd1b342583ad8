"""The compiler on one page: a region's sub-graph in, a generated module out.

    fx.GraphModule --lower--> TileProgram --inline, fuse, collapse, split, in-place--> TileProgram
                   --schedule--> KernelSchedule, ... --generate--> RegionSource

Inlining comes before fusing, for it removes the intermediates that would keep two nests apart; axes are collapsed after fusing,
because fusing matches axes one by one; long reductions are split when it is known what they are fused with; storage is shared
last, when it is known which nest reads an input when.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from torch import fx

from .codegen.expressions import obstacle
from .codegen.triton_host import RegionSource, region_source
from .ir.exact import drop_needless_roundings
from .ir.rewrite import collapse_axes, cse, dce
from .ir.schedule_ir import KernelSchedule
from .ir.tile_ir import TileProgram
from .ir.verify import verify_program
from .ir.verify_schedule import verify_schedules
from .lowering.components import Component, components
from .lowering.inductor_loops import LoopRefused
from .lowering.lower import lower_component
from .options import Options
from .pieces import Pieces, lower_pieces
from .scheduling.device_model import H200_MODEL, DeviceModel
from .scheduling.fuse_vertical import FusionDecision, fuse_vertical
from .scheduling.in_place import InPlaceDecision, grant_in_place
from .scheduling.inline import inline_producers
from .scheduling.persistent import Decision, Settings, build_schedules
from .scheduling.pid_map import TileOrder
from .scheduling.prologue import repeat_rows
from .scheduling.split_choice import SplitDecision, split_reductions
from .scheduling.tile_sizes import TileTarget, memory_order, reach

T = TypeVar("T")


@dataclass(frozen=True)
class RegionInput:
    """What the compiler needs of a region: its sub-graph on CPU fake tensors, and how its results are named and laid out."""

    name: str
    module: fx.GraphModule
    fake_mode: Any
    outputs: tuple[str, ...]
    output_layouts: tuple[tuple[Sequence[Any], Sequence[Any]], ...]
    hints: Mapping[str, int]
    in_place: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class StageRecord:
    """One stage or pass: its name, how long it took in seconds, and its result, whose text is made when it is asked for."""

    name: str
    seconds: float
    result: object

    @property
    def text(self) -> str:
        return str(self.result)


@dataclass(frozen=True)
class CompiledRegion:
    """Everything known about a compiled region. ``fused`` is the program before reductions were split. ``inputs`` and ``outputs``
    name the buffers behind ``run``'s arguments; ``size_values`` says what those of its sizes are that are not symbols of the graph.
    """

    key: str
    lowering: Pieces
    fused: TileProgram
    program: TileProgram
    schedules: tuple[KernelSchedule, ...]
    source: RegionSource
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    size_values: Mapping[str, Any]
    decisions: tuple[FusionDecision | Decision, ...]
    splits: tuple[SplitDecision, ...]
    in_place: tuple[InPlaceDecision, ...]
    stages: tuple[StageRecord, ...]

    @property
    def lowered(self) -> TileProgram:
        """The program before anything was changed."""
        return self.lowering.whole()


class _Timer:
    """Runs stages one after another, keeping the time and text of each."""

    def __init__(self) -> None:
        self.records: list[StageRecord] = []

    def run(self, name: str, stage: Callable[[], T], shown: Callable[[T], object] = lambda result: result) -> T:
        start = time.perf_counter()
        result = stage()
        self.records.append(StageRecord(name, time.perf_counter() - start, shown(result)))
        return result


def compile_region(region: RegionInput, options: Options, target: TileTarget, device: DeviceModel = H200_MODEL) -> CompiledRegion:
    """All stages, each checked; ``device`` is what times are predicted for.

    Raises:
        LoopRefused: when a node of the region turns out not to be loops.
        VerifyError: a bug of ours, with the neighbourhood.
    """
    timer = _Timer()
    pieces = timer.run("lower", lambda: _lower(region))
    lowering = pieces
    pieces = timer.run("inline", lambda: pieces.map(checked(inline_producers)))
    decisions: list[FusionDecision] = []
    pieces = timer.run("fuse", lambda: pieces.map(checked(partial(_fuse, pieces, decisions))))
    pieces = timer.run("collapse", lambda: pieces.map(collapse))
    fused = pieces.whole()
    program, splits = timer.run("split", lambda: _split(fused, options, target, device), lambda r: r[0])
    wanted = tuple(pair for pair in region.in_place if pair[1] in program.by_name())
    program, in_place = timer.run("in place", lambda: grant_in_place(program, wanted), lambda r: r[0])
    verify_program(program)
    settings = _settings(options)
    schedules, joins = timer.run("schedule", lambda: build_schedules(program, target, settings, device), lambda r: _Lines(r[0]))
    source = timer.run("generate", lambda: _generate(program, schedules, region.outputs), lambda r: r.module)
    return CompiledRegion(_key(source), lowering, fused, program, schedules, source, _inputs(program), region.outputs,
                          pieces.size_values, (*decisions, *joins), splits, in_place, tuple(timer.records))  # fmt: skip


def rescheduled(region: CompiledRegion, schedules: tuple[KernelSchedule, ...], decisions: Sequence[Decision] = ()) -> CompiledRegion:
    """The same program on other kernels, and what was decided about them."""
    timer = _Timer()
    source = timer.run("generate", lambda: _generate(region.program, schedules, region.outputs), lambda r: r.module)
    return replace(region, key=_key(source), schedules=schedules, source=source, decisions=(*region.decisions, *decisions),
                   stages=(*region.stages, *timer.records))  # fmt: skip


def _generate(program: TileProgram, schedules: tuple[KernelSchedule, ...], outputs: tuple[str, ...]) -> RegionSource:
    verify_schedules(schedules, program)
    reaches = {n.name: reach(n, program) for n in program.nests}
    return region_source(program, schedules, _inputs(program), outputs, reaches)


def _inputs(program: TileProgram) -> tuple[str, ...]:
    """Buffers that a call is given to read; one that is overwritten is given as an output."""
    overwritten = {b.aliases for b in program.buffers if b.aliases is not None}
    return tuple(b.name for b in program.buffers if b.kind == "in" and b.name not in overwritten)


def _key(source: RegionSource) -> str:
    return hashlib.sha256(source.module.encode()).hexdigest()[:32]


def _settings(options: Options) -> Settings:
    order = TileOrder(() if options.loop_order == "auto" else options.loop_order, options.l2_grouping)
    return Settings(options.pid_type, options.num_sm_multiplier, options.num_warps, options.num_stages, options.block_sizes or {},
                    options.reserved_sms, order, options.xcd_remap, options.cross_loop)  # fmt: skip


class _Lines(tuple[Any, ...]):
    """Shown one per line."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))


def _lower(region: RegionInput) -> Pieces:
    def lower(component: Component) -> tuple[TileProgram, dict[str, Any]]:
        program, values = lower_component(region.name, component, region.fake_mode, region.hints)
        verify_program(program)
        _refuse_unwritable(program)
        return program, values

    given = [n.name for n in region.module.graph.find_nodes(op="placeholder")]
    return lower_pieces(region.name, given, components(region.module, region.outputs, region.output_layouts), lower)


def _refuse_unwritable(program: TileProgram) -> None:
    for nest in program.nests:
        reason = obstacle(nest, program.by_name())
        if reason is not None:
            raise LoopRefused(next(iter(nest.origins), nest.name), reason)


def checked(change: Callable[[TileProgram], TileProgram]) -> Callable[[TileProgram], TileProgram]:
    """``change``, with its result verified."""

    def run(program: TileProgram) -> TileProgram:
        result = change(program)
        verify_program(result)
        return result

    return run


def _split(program: TileProgram, options: Options, target: TileTarget,
           device: DeviceModel) -> tuple[TileProgram, tuple[SplitDecision, ...]]:  # fmt: skip
    """Split long reductions as the option says: where it pays, nowhere, or all into chunks of so many elements."""
    wanted = options.split_reductions
    if wanted == "off":
        return program, ()
    return split_reductions(program, target, device, wanted if isinstance(wanted, int) else None)


def _fuse(pieces: Pieces, decisions: list[FusionDecision], program: TileProgram) -> TileProgram:
    """Fuse one program of the pieces; of equal pieces the first gives its names to the decisions."""
    fused, tried = fuse_vertical(program)
    result, repeated = repeat_rows(fused)
    tried = (*tried, *repeated)
    name = pieces.first(program).nest
    decisions += [replace(d, first=name(d.first), second=name(d.second)) for d in tried]
    return result


def collapse(program: TileProgram) -> TileProgram:
    """Axes in memory order and as few as can be, without repeated or unused values, roundings that change nothing, and buffers
    that nothing touches."""
    exact = (drop_needless_roundings(n, program.by_name()) for n in program.nests)
    nests = tuple(dce(cse(collapse_axes(memory_order(n, program.hints()), program.lower()))) for n in exact)
    touched = {b for n in nests for b in (*n.reads(), *n.writes())}
    buffers = tuple(b for b in program.buffers if b.kind != "temp" or b.name in touched)
    return replace(program, nests=nests, buffers=buffers)
