"""The meaning of kernel schedules on CPU tensors: programs one after another, each its virtual pids, each the points of its tile.

Blocks are not rounded up and no tails are masked: a tile has the points that lie in the nest. Used by tests to show that a
schedule runs every point once, in any order of programs, without a kernel being generated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from .interpret import Environment, Points, Tensors, environment, evaluate_int, run_points
from .pid_map import program_pids, remapped
from .schedule_ir import KernelSchedule, Phase, Task
from .tile_ir import LoopNest, TileProgram


def interpret_schedules(kernels: Sequence[KernelSchedule], program: TileProgram, tensors: Tensors, sizes: Environment, *,
                        programs: int = 1, xcds: int = 1, shuffle: int | None = None) -> dict[str, torch.Tensor]:  # fmt: skip
    """Run ``kernels`` in order, persistent ones by ``programs`` programs at most; returns every buffer, as ``interpret`` does.

    ``xcds``: chiplets of the device. ``shuffle``: the programs of a phase, and the virtual pids of each, in an order drawn from
    this seed; by number where None.

    Raises:
        IndexError: as ``interpret``.
    """
    env = environment(program, tensors, sizes)
    generator = None if shuffle is None else torch.Generator().manual_seed(shuffle)
    nests = {n.name: n for n in program.nests}
    for kernel in kernels:
        for phase in kernel.phases:
            for task, name, pid in phase_tiles(kernel, phase, nests, sizes, programs=programs, xcds=xcds, generator=generator):
                _run_tile(task, nests[name], pid, env, sizes)
    return env


def phase_tiles(kernel: KernelSchedule, phase: Phase, nests: Mapping[str, LoopNest], sizes: Environment, *, programs: int, xcds: int = 1,
                generator: torch.Generator | None = None) -> Iterator[tuple[Task, str, int]]:  # fmt: skip
    """(task, nest, virtual pid within the nest) in the order in which programs, taken one after another, run them."""
    owners = [(task, name, evaluate_int(task.tiles(nests[name]), sizes)) for task in phase.tasks for name in task.nests()]
    tiles = [evaluate_int(task.all_tiles(nests), sizes) for task in phase.tasks]
    total = sum(tiles)
    grid = total if kernel.pid_type == "flat" else min(total, programs)
    for number in _order(range(grid), generator):
        worker = remapped(number, grid, xcds) if kernel.xcd_remap else number
        for pid in _order(program_pids(kernel.pid_type, worker, grid, tiles, [t.weight for t in phase.tasks]), generator):
            for task, name, count in owners:
                if pid < count:
                    yield task, name, pid
                    break
                pid -= count


def _order(numbers: range, generator: torch.Generator | None) -> Sequence[int]:
    return numbers if generator is None else [numbers[k] for k in torch.randperm(len(numbers), generator=generator).tolist()]


def _run_tile(task: Task, nest: LoopNest, pid: int, env: Tensors, sizes: Environment) -> None:
    dims = task.parallel()
    extents = {d.name: evaluate_int(d.extent(nest), sizes) for d in dims}
    tile = task.pid_map.tile(pid, {d.name: -(-extents[d.name] // d.block) for d in dims})
    along: dict[str, tuple[int, torch.Tensor]] = {}
    lengths: list[int] = []
    for position, dim in enumerate(dims):
        first = tile[dim.name] * dim.block
        flat = torch.arange(first, min(first + dim.block, extents[dim.name]))
        lengths.append(len(flat))
        for axis in reversed(dim.axes):
            n = evaluate_int(nest.extents()[axis], sizes)
            along[axis] = position, flat % n
            flat = flat // n
    for reduced in nest.reduce:
        n = evaluate_int(reduced.extent, sizes)
        along[reduced.name] = len(lengths), torch.arange(n)
        lengths.append(n)
    run_points(nest, env, sizes, Points(along, tuple(lengths), len(dims)))
