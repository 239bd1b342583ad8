"""Families: tasks of one kernel whose nests have one form become one task, with one copy of the body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..ir.family import Family, Form, common_form, in_all, signature, touched
from ..ir.index import FloorDiv, Mod, names_in
from ..ir.schedule_ir import Task
from ..ir.tile_ir import LoopNest, TileProgram, indices
from .hints import evaluate_size

MAX_POINTERS = 400  # 8 bytes each in a 4 KB parameter space, with room for sizes
TABLE_POINTERS = 48  # above, a member is selected from a table: each argument costs the host, and the compiler, its share
SHORT_ROW = 256  # elements of a block that takes no longer to reduce than a shorter one
WORTH_DIVIDING = 4  # members for which divisors, constants of each body apart, become variables


def form_families(tasks: Sequence[Task], program: TileProgram) -> tuple[Task, ...]:
    """The same tasks with those of one form joined, where they stood first.

    Members must have the same reduce blocks, unless a program of theirs folds a single short row; of such rows, and of their
    parallel blocks, which differ only for nests too small to fill one, they take the largest. Members are in the order of falling
    numbers of tiles, so that equal numbers stand side by side.
    """
    nests, buffers = {n.name: n for n in program.nests}, program.by_name()
    groups: dict[Form, list[Task]] = {}
    for task in tasks:
        single = all(d.block <= (1 if d.kind == "parallel" else SHORT_ROW) and d.kind != "looped" for d in task.dims)
        kept = tuple((d.name, d.axes, d.kind, 0 if single or d.kind == "parallel" else d.block) for d in task.dims)
        groups.setdefault((signature(nests[task.nest], buffers), kept, task.pid_map, task.dot), []).append(task)
    result: list[Task] = []
    for group in groups.values():
        if len(group) > 1:
            joined = _joined(group, nests, program)
            if len(group) >= WORTH_DIVIDING or not _divides_by_parameter(joined, common_form([nests[n] for n in joined.nests()], program)):
                result.append(joined)
                continue
        result += group
    order = {t.nest: k for k, t in enumerate(tasks)}
    return tuple(sorted(result, key=lambda t: min(order[n] for n in t.nests())))


def _joined(group: Sequence[Task], nests: Mapping[str, LoopNest], program: TileProgram) -> Task:
    dims = tuple(replace(same[0], block=max(d.block for d in same)) for same in zip(*(t.dims for t in group), strict=True))
    wide = True if any(t.wide is True for t in group) else None if any(t.wide is None for t in group) else False
    task, hints = replace(group[0], dims=dims, wide=wide), program.hints()
    tiles = {t.nest: task.tiles(nests[t.nest]) for t in group}
    first, *others = sorted(tiles, key=lambda n: (-evaluate_size(tiles[n], hints), str(tiles[n])))
    task = replace(task, nest=first, members=tuple(others))
    return replace(task, select="table" if len(task_buffers(task, nests)) > TABLE_POINTERS else "arguments")


def task_buffers(task: Task, nests: Mapping[str, LoopNest]) -> frozenset[str]:
    """Buffers that the nests of ``task`` touch."""
    return frozenset(b for n in task.nests() for b in (*nests[n].reads(), *nests[n].writes()))


def _divides_by_parameter(task: Task, family: Family) -> bool:
    own, nest = set(family.symbols), family.template
    extents = nest.extents()
    inner = (extents[a] for d in task.dims for a in d.axes[1:])
    divisors = (q.args[1] for s in nest.body for e in indices(s) for q in e.atoms(FloorDiv, Mod))
    return any(own & names_in(e) for e in (*inner, *divisors))


def within_pointer_limit(tasks: Sequence[Task], program: TileProgram) -> list[tuple[Task, ...]]:
    """The tasks in as few kernels as their pointers allow; a kernel has one for all its tables.

    Where they do not fit one kernel, families select from tables, those of most pointers first.
    """
    nests = {n.name: n for n in program.nests}
    chosen = {t.nest: t for t in tasks}
    pointers = {t.nest: _pointers(t, nests) for t in tasks}
    for task in sorted((t for t in tasks if t.members and t.select != "table"), key=lambda t: -len(pointers[t.nest])):
        if len(frozenset().union(*pointers.values())) > MAX_POINTERS:
            chosen[task.nest] = replace(task, select="table")
            pointers[task.nest] = _pointers(chosen[task.nest], nests)
    kernels: list[list[Task]] = []
    named: frozenset[str] = frozenset()
    for task in chosen.values():
        if not kernels or len(named | pointers[task.nest]) > MAX_POINTERS:
            kernels.append([])
            named = frozenset()
        kernels[-1].append(task)
        named |= pointers[task.nest]
    return [tuple(k) for k in kernels]


def _pointers(task: Task, nests: Mapping[str, LoopNest]) -> frozenset[str]:
    """Buffers whose pointers are arguments of the kernel."""
    if task.select == "table":
        return frozenset(in_all([touched(nests[n]) for n in task.nests()]).values())
    return task_buffers(task, nests)
