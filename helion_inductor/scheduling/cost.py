"""First-order cost facts: bytes a nest must move, and whether a region is worth taking from Inductor."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.index import names_in, product, values_in
from ..ir.schedule_ir import KernelSchedule
from ..ir.tile_ir import Atomic, Load, LoopNest, Store, TileProgram
from .fuse_vertical import FEW_ROWS, LONG_ROW
from .hints import evaluate_size

SMALL_NEST_BYTES = 8 << 20


def nest_bytes(nest: LoopNest, program: TileProgram) -> int:
    """Least bytes ``nest`` moves at the hinted sizes: each access counted once per element of the axes it mentions, at most the
    whole buffer for loads."""
    hints, buffers, extents = program.hints(), program.by_name(), nest.extents()
    seen: dict[tuple[str, str], int] = {}
    for s in nest.body:
        if not isinstance(s, (Load, Store, Atomic)):
            continue
        buffer = buffers[s.buffer]
        axes = extents if values_in(s.index) else {a: e for a, e in extents.items() if a in names_in(s.index)}
        touched = evaluate_size(product(axes.values()), hints)
        whole = evaluate_size(product(buffer.shape), hints)
        size = min(touched, whole) * buffer.dtype.itemsize
        key = (type(s).__name__, s.buffer)
        seen[key] = max(seen.get(key, 0), size)
    return sum(seen.values())


def program_bytes(program: TileProgram) -> int:
    return sum(nest_bytes(n, program) for n in program.nests)


def region_pays(program: TileProgram, schedules: Sequence[KernelSchedule], *, captured: bool) -> tuple[bool, str]:
    """Whether the region is predicted to beat Inductor, which launches about one kernel per fused nest.

    It pays when sharing kernels saves launches of nests that are short beside a launch, and no nest runs on so few programs that
    it would be slower than Inductor's split reductions. A region's call costs the host about one of Inductor's launches; where
    graphs are ``captured`` the host's time does not count, and a region of one nest is as good as Inductor's kernel.
    """
    saved = len(program.nests) - len(schedules)
    if saved < (0 if captured else 1):
        return False, f"saves {max(saved, 0)} launches of {len(program.nests)}"
    hints = program.hints()
    for nest in program.nests:
        rows = evaluate_size(product(a.extent for a in nest.parallel), hints)
        length = evaluate_size(product(a.extent for a in nest.reduce), hints)
        if nest.reduce and rows < FEW_ROWS and length > LONG_ROW:
            return False, f"@{nest.name} reduces {rows} rows of {length} on {rows} programs"
    large = [n.name for n in program.nests if nest_bytes(n, program) > SMALL_NEST_BYTES]
    if len(large) * 2 > len(program.nests):
        return False, f"{len(large)} of {len(program.nests)} nests are bound by memory bandwidth"
    return True, f"saves {saved} launches of {len(program.nests)}"
