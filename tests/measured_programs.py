"""Programs of independent loops whose times were measured on an H200 (132 multiprocessors), replayed as CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from helion_inductor.ir.parser import parse_program
from helion_inductor.ir.schedule_ir import KernelSchedule, Phase, Task
from helion_inductor.ir.tile_ir import TileProgram
from helion_inductor.scheduling.tile_sizes import TileTarget, choose_task, points, usual_warps

POINTWISE = """\
  nest @n{k} parallel(p0: {rows}, p1: {width})
    %0: f32 = load x{k}[{width} * p0 + p1]
    %1: f32 = tanh(%0)
    %2: f32 = load w{k}[p1]
    %3: f32 = mul(%1, %2)
    %4: f32 = sin(%0)
    %5: f32 = add(%3, %4)
    store y{k}[{width} * p0 + p1] %5
"""
NORM = """\
  nest @n{k} parallel(p0: {rows}) reduce(r0: {width})
    %0: f32 = load x{k}[{width} * p0 + r0]
    %1: f32 = reduce sum(r0) %0
    %2: f32 = const {width}.0
    %3: f32 = truediv(%1, %2)
    %4: f32 = sub(%0, %3)
    %5: f32 = mul(%4, %4)
    %6: f32 = reduce sum(r0) %5
    %7: f32 = truediv(%6, %2)
    %8: f32 = const 1e-05
    %9: f32 = add(%7, %8)
    %10: f32 = rsqrt(%9)
    %11: f32 = mul(%4, %10)
    %12: f32 = load w{k}[r0]
    %13: f32 = mul(%11, %12)
    %14: f32 = const 0.5
    %15: f32 = mul(%13, %14)
    %16: f32 = const 0.7071067811865476
    %17: f32 = mul(%13, %16)
    %18: f32 = erf(%17)
    %19: f32 = const 1.0
    %20: f32 = add(%18, %19)
    %21: f32 = mul(%15, %20)
    %22: f32 = add(%21, %0)
    store y{k}[{width} * p0 + r0] %22
"""
SUM = """\
  nest @n{k} parallel(p0: {rows}) reduce(r0: {width})
    %0: f32 = load x{k}[{width} * p0 + r0]
    %1: f32 = mul(%0, %0)
    %2: f32 = reduce sum(r0) %1
    store y{k}[p0] %2
"""


def independent(body: str, shapes: Sequence[tuple[int, int]], dtype: str = "f32") -> TileProgram:
    """One nest of ``body`` for each shape, on tensors of its own."""
    return side_by_side([(body, *shape) for shape in shapes], dtype)


def side_by_side(loops: Sequence[tuple[str, int, int]], dtype: str = "f32") -> TileProgram:
    """One nest for each (body, rows, width), on tensors of its own."""
    kinds = {"x": "in x{k}: {d}[{r}, {w}]", "w": "in w{k}: {d}[{w}]", "y": "out y{k}: {d}[{r}, {w}]"}
    buffers: list[str] = []
    for k, (body, r, w) in enumerate(loops):
        used = [kinds[b] for b in "xwy" if f" {b}{{k}}[" in body]
        if " y{k}[p0]" in body:
            used[-1] = "out y{k}: {d}[{r}]"
        buffers += [u.format(k=k, d=dtype, r=r, w=w) for u in used]
    nests = "".join(body.format(k=k, rows=r, width=w) for k, (body, r, w) in enumerate(loops))
    return parse_program(f"program @p({', '.join(buffers)})\n{nests}")


def tasks_of(program: TileProgram) -> tuple[Task, ...]:
    work = sum(points(n, program) for n in program.nests)
    return tuple(choose_task(n, program, TileTarget(132), {}, work) for n in program.nests)


def kernel(program: TileProgram, tasks: Sequence[Task], name: str = "k0") -> KernelSchedule:
    nests = {n.name: n for n in program.nests}
    warps = max(usual_warps(t, nests[n]) for t in tasks for n in t.nests())
    return KernelSchedule(name, "flat", warps, 2, (Phase(tuple(tasks)),))


def separate(program: TileProgram) -> tuple[KernelSchedule, ...]:
    return tuple(kernel(program, [t], f"k{n}") for n, t in enumerate(tasks_of(program)))


def together(program: TileProgram) -> tuple[KernelSchedule, ...]:
    """One kernel with a branch for each nest."""
    return (kernel(program, tasks_of(program)),)


def family(program: TileProgram) -> tuple[KernelSchedule, ...]:
    """One kernel with one body; the nests must be equal but for their buffers."""
    first, *others = tasks_of(program)
    return (kernel(program, [replace(first, members=tuple(t.nest for t in others))]),)


@dataclass(frozen=True)
class Measured:
    """Microseconds of Inductor's kernels, and of ours: ``joined`` in one kernel with a branch each, ``apart`` in one each."""

    title: str
    body: str
    shapes: tuple[tuple[int, int], ...]
    inductor: float
    joined: float | None = None
    apart: float | None = None
    dtype: str = "f32"

    @cached_property
    def program(self) -> TileProgram:
        return independent(self.body, self.shapes, self.dtype)


MEASURED = (
    Measured("64 x [64, 1024]", POINTWISE, ((64, 1024),) * 64, 139.5, joined=26.0),
    Measured("64 of mixed sizes", POINTWISE, tuple((16 + 7 * i, 256 + 64 * (i % 9)) for i in range(64)), 165.4, joined=28.4),
    Measured("32 x [256, 1024]", NORM, ((256, 1024),) * 32, 94.5, joined=27.9),
    Measured("32 of mixed sizes", NORM, tuple((32 + 5 * i, 128 * (1 + i % 8)) for i in range(32)), 84.1, joined=13.1),
    Measured("8 x [8192, 4096] bf16", NORM, ((8192, 4096),) * 8, 645.0, apart=520.7, dtype="bf16"),
)
