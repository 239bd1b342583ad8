"""A reduction over few rows is computed anew by each nest that reads along those rows: the norm before a matrix product, say.

Before::

    nest @a reduce(r0: K)                   store s[0] = reduce sum x[r0] * x[r0]
    nest @b parallel(p0: N) reduce(r0: K)   store y[p0] = reduce sum (x[r0] * rsqrt(s[0])) * w[K*p0 + r0]

After, ``@b`` folds ``x[r0] * x[r0]`` in a pass of its own before it multiplies, and ``@a`` is gone once nobody reads ``s``. A
program does so once for its tile, not for each of its columns, and finds the row near by; what is saved is a kernel, or a
barrier, between the two. Legal where ``@b`` has all axes of ``@a`` and reduces over rows of the same length, and nothing that
``@a`` reads is written between the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..ir.index import names_in, product, values_in
from ..ir.rewrite import cse, dce
from ..ir.tile_ir import Atomic, Axis, Load, LoopNest, Scan, Store, TileProgram
from .fuse_vertical import FusionDecision, join_on_axes
from .hints import evaluate_size
from .inline import MAX_BODY, drop_dead
from .tile_sizes import points

MOST_POINTS = 65536  # of the nest that is repeated
FEW_COLUMNS, MANY_POINTS = 128, 2**24  # columns that a tile or two hold; points then
LEAST_READER = 8  # times as many points has the nest that repeats it


def repeat_rows(program: TileProgram) -> tuple[TileProgram, tuple[FusionDecision, ...]]:
    """One sweep in program order; see the module docstring."""
    nests = list(program.nests)
    decisions: list[FusionDecision] = []
    writers: dict[str, list[int]] = {}
    for position, nest in enumerate(nests):
        for b in nest.writes():
            writers.setdefault(b, []).append(position)
    for position in range(len(nests)):
        tried: set[str] = set()
        while (source := _source(nests, position, writers, program, tried)) is not None:
            tried.add(source.name)
            result = _repeated(source, nests[position], program)
            joined = result is not None
            reason = "its rows are computed anew" if joined else "its rows cannot be computed where they are read"
            decisions.append(FusionDecision(source.name, nests[position].name, joined, reason))
            if result is not None:
                nests[position] = dce(cse(result))
    return replace(program, nests=drop_dead(nests, program.by_name())), tuple(decisions)


def _source(nests: list[LoopNest], position: int, writers: Mapping[str, list[int]], program: TileProgram,
            tried: set[str]) -> LoopNest | None:  # fmt: skip
    """A nest not ``tried`` yet that the one at ``position`` may compute anew."""
    mine = nests[position]
    if not mine.reduce or any(isinstance(s, Scan) for s in mine.body):
        return None
    for buffer in mine.reads():
        at = writers.get(buffer, [])
        if len(at) != 1 or at[0] >= position or program.by_name()[buffer].kind == "in":
            continue
        source = nests[at[0]]
        if source.name in tried or not source.reduce or len(source.body) + len(mine.body) > MAX_BODY:
            continue
        if any(isinstance(s, (Atomic, Scan)) or (isinstance(s, Store) and s.mask is not None) for s in source.body):
            continue
        if any(at[0] < w < position for b in source.reads() for w in writers.get(b, ())):
            continue
        if points(source, program) <= min(_most_points(mine, buffer, program), points(mine, program) // LEAST_READER):
            return source
    return None


def _most_points(reader: LoopNest, buffer: str, program: TileProgram) -> int:
    """Points of a nest that writes ``buffer`` up to which ``reader`` may repeat it: many where few columns do so."""
    used = frozenset().union(*(names_in(s.index) for s in reader.body if isinstance(s, Load) and s.buffer == buffer))
    columns = evaluate_size(product(x.extent for x in reader.parallel if x.name not in used), program.hints())
    return MANY_POINTS if columns <= FEW_COLUMNS else MOST_POINTS


def _repeated(source: LoopNest, reader: LoopNest, program: TileProgram) -> LoopNest | None:
    """``reader``, computing what ``source`` stores; None where the axes do not match."""
    written = set(source.writes())
    reads = [s.index for s in reader.body if isinstance(s, Load) and s.buffer in written]
    if any(values_in(i) for i in reads):
        return None
    used = frozenset().union(*map(names_in, reads))
    rest = [x for x in reader.parallel if x.name not in used and evaluate_size(x.extent, program.hints()) != 1]
    names = (n for k in range(len(source.extents()) + len(rest)) if (n := f"copy{k}") not in source.extents())
    copies = replace(source, parallel=(*source.parallel, *(Axis(n, x.extent) for n, x in zip(names, rest, strict=False))))
    result = join_on_axes(copies, reader, program)
    if not isinstance(result, LoopNest):
        return None
    kept = set(reader.writes())
    body = tuple(s for s in result.body if not (isinstance(s, Store) and s.buffer in written - kept))
    return replace(result, name=reader.name, body=body)
