"""Running a tile program as its generated module, on the device that tests run on."""

from __future__ import annotations

import atexit
import linecache
import shutil
import tempfile
import types
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch

from helion_inductor.codegen.triton_host import region_source
from helion_inductor.ir.interpret import evaluate_int
from helion_inductor.ir.schedule_ir import KernelSchedule, Phase, Task
from helion_inductor.ir.tile_ir import LoopNest, TileProgram
from helion_inductor.scheduling.tile_sizes import reach
from tests.strategies import Case

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MOST_TILES = 24  # of one task: the interpreter takes milliseconds for each


def one_phase_each(kernels: Sequence[KernelSchedule]) -> tuple[KernelSchedule, ...]:
    """Every phase as a kernel of its own: what a kernel of several phases means, for kernels of one phase."""
    return tuple(
        replace(kernel, name=f"{kernel.name}_{number}" if number else kernel.name, phases=(phase,))
        for kernel in kernels
        for number, phase in enumerate(kernel.phases)
    )


def of_few_tiles(kernels: Sequence[KernelSchedule], case: Case, program: TileProgram) -> tuple[KernelSchedule, ...]:
    """Parallel blocks doubled, the outermost first, until no task has more than ``MOST_TILES`` tiles."""
    nests = {n.name: n for n in program.nests}

    def grown(task: Task) -> Task:
        turn = 0
        while max(evaluate_int(task.tiles(nests[n]), case.sizes) for n in task.nests()) > MOST_TILES:
            dims = list(task.dims)
            if dims[turn].kind == "parallel":
                dims[turn] = replace(dims[turn], block=2 * dims[turn].block)
            task, turn = replace(task, dims=tuple(dims)), (turn + 1) % len(dims)
        return task

    return tuple(replace(k, phases=tuple(Phase(tuple(map(grown, p.tasks))) for p in k.phases)) for k in kernels)


def run_module(case: Case, program: TileProgram, kernels: Sequence[KernelSchedule], workers: int,
               xcds: int = 1) -> dict[str, torch.Tensor]:  # fmt: skip
    """The ``out`` buffers that the module of ``program`` writes, on the inputs of ``case`` and ``workers`` multiprocessors of
    ``xcds`` chiplets.

    ``program`` is that of the case, or one that means the same.
    """
    given = case.inputs(DEVICE)
    buffers = {b.name: b for b in program.buffers}
    outputs = {b.name: given[b.aliases] if b.aliases else _garbage(case, b.name, program) for b in buffers.values() if b.kind == "out"}
    overwritten = {b.aliases for b in buffers.values()}
    inputs = [b.name for b in buffers.values() if b.kind == "in" and b.name not in overwritten]
    source = region_source(program, kernels, inputs, tuple(outputs), _reaches(program.nests, program))
    module = _imported(source.module)
    module.get_num_sm = lambda device, **_: workers  # type: ignore[attr-defined]
    module.get_num_xcd = lambda device: xcds  # type: ignore[attr-defined]
    module.run([given[n] for n in inputs], list(outputs.values()), [case.sizes[s.name] for s in program.sizes])
    return outputs


@cache
def _folder() -> Path:
    folder = tempfile.mkdtemp(prefix="helion-generated-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _imported(text: str) -> types.ModuleType:
    """The module of this text, always at the same path: hypothesis takes errors in different files for different ones."""
    path = _folder() / "module.py"
    path.write_text(text, encoding="utf-8")
    linecache.cache.pop(str(path), None)
    module = types.ModuleType("generated")
    module.__file__ = str(path)
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def _garbage(case: Case, name: str, program: TileProgram) -> torch.Tensor:
    """A buffer in which an element that no kernel stores shows."""
    b = program.buffer(name)
    shape, stride = ([evaluate_int(e, case.sizes) for e in es] for es in (b.shape, b.stride))
    span = 1 + sum((n - 1) * s for n, s in zip(shape, stride))
    flat = torch.full((span,), 77, dtype=b.dtype, device=DEVICE)
    return flat.as_strided(shape, stride)


def _reaches(nests: Sequence[LoopNest], program: TileProgram) -> dict:
    return {n.name: reach(n, program) for n in nests}
