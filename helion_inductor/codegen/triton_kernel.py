"""A kernel schedule -> the text of its Triton functions.

Each task becomes one small ``@triton.jit`` function; the kernel numbers the virtual pids of all tasks of a phase one after
another and dispatches by a balanced if/else over the boundaries::

    for pid_shared in tl.range(tl.program_id(0), total, tl.num_programs(0)):     # persistent_interleaved
        if pid_shared < end0:
            _k0_n3(pid_shared, ...)
        else:
            _k0_n4(pid_shared - end0, ...)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.index import names_in
from ..ir.schedule_ir import KernelSchedule, Phase, Task
from ..ir.simplify import Ranges
from ..ir.tile_ir import LoopNest, TileProgram, indices
from .index_text import triton_text
from .task_body import INDENT, TaskBody


@dataclass(frozen=True)
class KernelText:
    """``name`` of the jit function, its ``source``, and its parameters: buffers, sizes, and whether it takes ``WIDE``."""

    name: str
    source: str
    buffers: tuple[str, ...]
    sizes: tuple[str, ...]
    takes_wide: bool


def kernel_name(schedule: KernelSchedule, nests: Sequence[LoopNest]) -> str:
    """``_helion_<ops>_<kernel>``: named after the graph nodes it came from."""
    words: list[str] = []
    for nest in nests:
        for origin in nest.origins:
            word = re.sub(r"(_default|_tensor)?(_\d+)?$", "", origin.lower())
            if word not in words:
                words.append(re.sub(r"\W", "_", word))
    return f"_helion_{'_'.join(words[:5])}_{schedule.name}" if words else f"_helion_{schedule.name}"


def _task_names(nest: LoopNest, program: TileProgram) -> tuple[tuple[str, ...], tuple[str, ...]]:
    used = set(nest.reads()) | set(nest.writes())
    buffers = tuple(b.name for b in program.buffers if b.name in used)
    mentioned = frozenset().union(
        *(names_in(e) for s in nest.body for e in indices(s)),
        *(names_in(a.extent) for a in (*nest.parallel, *nest.reduce)),
    )
    return buffers, tuple(s.name for s in program.sizes if s.name in mentioned)


def _signature(buffers: Sequence[str], sizes: Sequence[str], wide: bool, *, typed: bool) -> list[str]:
    return [f"{b}_ptr" for b in buffers] + list(sizes) + ([f"WIDE{': tl.constexpr' if typed else ''}"] if wide else [])


def _task_function(name: str, nest: LoopNest, task: Task, program: TileProgram) -> list[str]:
    buffers, sizes = _task_names(nest, program)
    parameters = ", ".join(["pid", *_signature(buffers, sizes, task.wide is None, typed=True)])
    body = TaskBody(nest, task, dict(program.by_name()), program.lower()).run()
    origin = f"{INDENT}# nest @{nest.name}: {' '.join(nest.origins)}"
    return ["@triton.jit", f"def {name}({parameters}):", origin[:160], *body, "", ""]


def _dispatch(leaves: Sequence[str], ends: Sequence[str], first: int, last: int, depth: int) -> list[str]:
    pad = INDENT * depth
    if last - first == 1:
        return [pad + leaves[first]]
    middle = (first + last) // 2
    return [
        f"{pad}if pid_shared < {ends[middle - 1]}:",
        *_dispatch(leaves, ends, first, middle, depth + 1),
        f"{pad}else:",
        *_dispatch(leaves, ends, middle, last, depth + 1),
    ]


def _phase_lines(prefix: str, phase: Phase, pid_type: str, program: TileProgram) -> list[str]:
    nests = {n.name: n for n in program.nests}
    ranges = Ranges({}, program.lower())
    lines: list[str] = []
    leaves: list[str] = []
    ends: list[str] = []
    for k, task in enumerate(phase.tasks):
        nest = nests[task.nest]
        tiles = triton_text(task.tiles(nest), ranges)
        before = ends[-1] if ends else None
        ends.append(f"end{k}")
        lines.append(f"{INDENT}end{k} = {before + ' + ' if before else ''}{tiles}")
        buffers, sizes = _task_names(nest, program)
        arguments = _signature(buffers, sizes, task.wide is None, typed=False)
        pid = f"pid_shared - {before}" if before else "pid_shared"
        leaves.append(f"{prefix}_{task.nest}({', '.join([pid, *arguments])})")
    total = ends[-1]
    if pid_type == "flat":
        lines += [f"{INDENT}pid_shared = tl.program_id(0)", *_dispatch(leaves, ends, 0, len(leaves), 1)]
        return lines if len(leaves) > 1 else lines[1:]
    if pid_type == "persistent_blocked":
        lines += [
            f"{INDENT}share = ({total} + tl.num_programs(0) - 1) // tl.num_programs(0)",
            f"{INDENT}first = tl.program_id(0) * share",
            f"{INDENT}for pid_shared in tl.range(first, tl.minimum(first + share, {total})):",
        ]
    else:
        lines.append(f"{INDENT}for pid_shared in tl.range(tl.program_id(0), {total}, tl.num_programs(0)):")
    return lines + _dispatch(leaves, ends, 0, len(leaves), 2)


def kernel_text(schedule: KernelSchedule, program: TileProgram) -> KernelText:
    """All functions of one kernel. Kernels of several phases are not generated here yet: the schedule must have one."""
    (phase,) = schedule.phases
    by_name = {n.name: n for n in program.nests}
    nests = [by_name[t.nest] for t in phase.tasks]
    name = kernel_name(schedule, nests)
    prefix = f"_{schedule.name}"
    lines: list[str] = []
    for task, nest in zip(phase.tasks, nests, strict=True):
        lines += _task_function(f"{prefix}_{nest.name}", nest, task, program)
    used = [_task_names(n, program) for n in nests]
    buffers = tuple(b.name for b in program.buffers if any(b.name in u[0] for u in used))
    sizes = tuple(s.name for s in program.sizes if any(s.name in u[1] for u in used))
    wide = any(t.wide is None for t in phase.tasks)
    lines += ["@triton.jit", f"def {name}({', '.join(_signature(buffers, sizes, wide, typed=True))}):"]
    lines += _phase_lines(prefix, phase, schedule.pid_type, program)
    return KernelText(name, "\n".join(lines) + "\n", buffers, sizes, wide)
