"""A reduction whose results are read for several copies of each row, as where a few key heads serve many query heads.

The later nest has an axis that the reduction does not know. Given to the reduction as well, the spaces match: each copy then
computes the reduction for itself, from the elements that the later nest loads for that copy anyway.
"""

from __future__ import annotations

from collections.abc import Collection

from ..ir.index import ONE, Expr, names_in, product, values_in
from ..ir.tile_ir import Atomic, Axis, Load, LoopNest, Store

MOST_COPIES = 8


def repeated(a: LoopNest, b: LoopNest, private: Collection[str]) -> LoopNest | None:
    """``a`` with a further parallel axis for each along which ``b`` copies its rows; None where that is not the case.

    ``private``: buffers that only ``b`` reads and nobody needs afterwards. All stores of ``a`` must be to such, for every copy
    would store the same elements.
    """
    stores = [s for s in a.body if isinstance(s, Store)]
    if not a.reduce or b.reduce or any(isinstance(s, Atomic) for s in a.body):
        return None
    if any(s.mask is not None or s.buffer not in private for s in stores):
        return None
    written = {s.buffer for s in stores}
    loads = [s for s in b.body if isinstance(s, Load)]
    reads = [s.index for s in loads if s.buffer in written]
    if not _along_rows(a) <= {s.buffer for s in loads} or any(values_in(i) for i in reads):
        return None
    used = frozenset().union(*map(names_in, reads))
    rest = [x for x in b.parallel if x.name not in used]
    for cut in range(1, len(rest)):
        copies, row = _count(rest[:cut]), _count(rest[cut:])
        if copies.is_Integer and 2 <= int(copies) <= MOST_COPIES and row == _count(a.reduce):
            names = (n for k in range(len(a.extents()) + cut) if (n := f"copy{k}") not in a.extents())
            return LoopNest(a.name, (*a.parallel, *(Axis(n, x.extent) for n, x in zip(names, rest[:cut], strict=False))),
                            a.reduce, a.body, a.origins)  # fmt: skip
    return None


def _along_rows(nest: LoopNest) -> set[str]:
    """Buffers that the nest loads along its reduce axes."""
    reduce = {x.name for x in nest.reduce}
    return {s.buffer for s in nest.body if isinstance(s, Load) and reduce & names_in(s.index)}


def _count(axes: Collection[Axis]) -> Expr:
    return product(x.extent for x in axes) if axes else ONE
