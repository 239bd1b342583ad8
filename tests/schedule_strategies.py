"""Hypothesis strategy for the kernels of a program: any legal cut into phases and kernels, on any tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from helion_inductor.ir.interpret import evaluate_int
from helion_inductor.ir.schedule_ir import PID_TYPES, KernelSchedule, Phase, PidMap, Task, TileDim
from helion_inductor.ir.tile_ir import Axis, LoopNest, Scan, TileProgram
from helion_inductor.ir.verify_schedule import Accesses


def _power_of_two_from(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def _dims(draw: st.DrawFn, nest: LoopNest, sizes: Mapping[str, int], blocks: Sequence[int]) -> tuple[TileDim, ...]:
    def length(axes: Sequence[Axis]) -> int:
        n = 1
        for a in axes:
            n *= evaluate_int(a.extent, sizes)
        return n

    runs: list[list[Axis]] = []
    for axis in nest.parallel:
        if runs and draw(st.integers(0, 2)) == 2:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    dims = [
        TileDim(f"d{k}", tuple(a.name for a in run), draw(st.sampled_from(blocks)), "parallel")
        for k, run in enumerate(runs)
    ]
    if nest.reduce:
        scans = any(isinstance(s, Scan) for s in nest.body)
        names = tuple(a.name for a in nest.reduce)
        if scans or draw(st.booleans()):
            dims.append(TileDim("r", names, _power_of_two_from(length(nest.reduce)), "persistent"))
        else:
            dims.append(TileDim("r", names, draw(st.sampled_from(blocks)), "looped"))
    return tuple(dims)


def _pid_map(draw: st.DrawFn, dims: Sequence[TileDim]) -> PidMap:
    names = [d.name for d in dims if d.kind == "parallel"]
    order = draw(st.permutations(names))
    return PidMap(() if order == names else tuple(order), draw(st.integers(1, 5)) if len(names) > 1 else 1)


@st.composite
def schedules(draw: st.DrawFn, program: TileProgram, sizes: Mapping[str, int],
              blocks: Sequence[int] = (1, 2, 4, 16, 64)) -> tuple[KernelSchedule, ...]:  # fmt: skip
    """Kernels that run ``program`` when launched one after another; persistent blocks are right for ``sizes``."""
    kernels: list[list[list[Task]]] = [[[]]]
    seen = Accesses(program)
    for nest in program.nests:
        clash = any(True for _ in seen.hazards(nest))
        fresh = kernels[-1][-1] and (clash or draw(st.integers(0, 3)) == 3)
        if fresh:
            seen = Accesses(program)
            if draw(st.booleans()):
                kernels.append([[]])
            else:
                kernels[-1].append([])
        wide = draw(st.sampled_from([True, False, None]))
        dims, weight = _dims(draw, nest, sizes, blocks), draw(st.sampled_from([1, 1, 2, 7, 1024]))
        kernels[-1][-1].append(Task(nest.name, dims, wide, _pid_map(draw, dims), weight=weight))
        seen.add(nest)
    return tuple(
        KernelSchedule(
            f"k{k}",
            draw(st.sampled_from(PID_TYPES)),
            draw(st.sampled_from([1, 4, 8])),
            draw(st.integers(1, 4)),
            tuple(Phase(tuple(tasks)) for tasks in phases),
            draw(st.sampled_from([4, 1, 8])),
            xcd_remap=draw(st.booleans()),
        )
        for k, phases in enumerate(kernels)
    )
