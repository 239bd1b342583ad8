"""At which level of the dependence graph each nest runs: not always at the first at which it could.

Nests of one level are independent and may share kernels. A nest whose results are needed late may run at any level in between:
beside others of its form, so that they become one family, or beside a kernel that leaves the device half empty. Nests of one form
at one level move together, where that lowers the predicted time and no more memory is held than before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..ir.family import Form, signature
from ..ir.index import product
from ..ir.tile_ir import TileProgram
from .dependence import levels, predecessors, storage
from .hints import evaluate_size

MARGIN_US = 0.2  # what a move must gain; predictions tell less apart
MOST_NESTS = 1500  # to be looked at in all trials together: each predicts the kernels of two levels anew, about 2 ms a nest

Positions = tuple[int, ...]


@dataclass(frozen=True)
class PlacementDecision:
    """Nests of one form, the level at which they could run first, the one that was tried, whether they run there, and why."""

    nests: tuple[str, ...]
    first: int
    tried: int
    moved: bool
    reason: str

    def __str__(self) -> str:
        more = f" and {len(self.nests) - 1} more" if len(self.nests) > 1 else ""
        return f"{self.nests[0]}{more} at level {self.tried}, not {self.first}: {'yes' if self.moved else 'no'}: {self.reason}"


def place(program: TileProgram, level_us: Callable[[Positions], float]) -> tuple[list[int], tuple[PlacementDecision, ...]]:
    """The level of each nest, and what was tried.

    ``level_us``: predicted microseconds of the kernels of the nests at the given positions, which are independent.
    """
    depth = levels(program.nests, storage(program))
    if max(depth, default=0) == 0:
        return depth, ()
    search = _Search(program, depth, level_us)
    for group in search.groups():
        search.improve(group)
    return search.level, tuple(search.tried)


class _Search:
    """Moves groups of nests one after another, each to the level that is predicted to be best."""

    def __init__(self, program: TileProgram, level: list[int], level_us: Callable[[Positions], float]) -> None:
        self.program = program
        self.level = level
        self.level_us = level_us
        self.before = predecessors(program.nests, storage(program))
        self.after: list[set[int]] = [set() for _ in level]
        for position, earlier in enumerate(self.before):
            for p in earlier:
                self.after[p].add(position)
        self.tried: list[PlacementDecision] = []
        self.looked_at = 0
        self.gains: dict[object, float] = {}
        self.forms = self._forms()
        self.temporary = self._temporary()

    def _forms(self) -> list[int]:
        """A number for each nest, equal for those of one form and equal extents: in a model, a layer is like the next."""
        buffers, numbers = self.program.by_name(), dict[object, int]()
        keys = [(signature(n, buffers), tuple(n.extents().values())) for n in self.program.nests]
        return [numbers.setdefault(k, len(numbers)) for k in keys]

    def _temporary(self) -> list[tuple[int, list[int]]]:
        """Bytes of each temporary buffer, and the positions of the nests that use it."""
        users: dict[str, list[int]] = {b.name: [] for b in self.program.buffers if b.kind == "temp"}
        for position, nest in enumerate(self.program.nests):
            for name in {*nest.reads(), *nest.writes()} & users.keys():
                users[name].append(position)
        buffers, hints = self.program.by_name(), self.program.hints()
        return [(evaluate_size(product(buffers[b].shape), hints) * buffers[b].dtype.itemsize, at) for b, at in users.items() if at]

    def groups(self) -> list[Positions]:
        """Nests of one form at one level, those that are needed last first, for they make room for what they wait for."""
        buffers = self.program.by_name()
        found: dict[tuple[int, Form], list[int]] = {}
        for position, nest in enumerate(self.program.nests):
            if self._latest((position,)) > self.level[position]:
                found.setdefault((self.level[position], signature(nest, buffers)), []).append(position)
        return [tuple(g) for g in sorted(found.values(), key=lambda g: (-self.level[g[0]], g[0]))]

    def _latest(self, group: Sequence[int]) -> int:
        readers = [self.level[a] - 1 for p in group for a in self.after[p]]
        return min(readers, default=max(self.level))

    def improve(self, group: Positions) -> None:
        now = self.level[group[0]]
        gains: dict[int, float] = {}
        for there in range(now + 1, self._latest(group) + 1):
            gain = self._gain(group, now, there)
            if gain is not None:
                gains[there] = gain
        best = max(gains, key=lambda t: (gains[t], -t), default=now)
        for there, gain in gains.items():
            moves = there == best and gain >= MARGIN_US
            reason = f"predicted {abs(gain):.1f} us {'less' if gain > 0 else 'more'}"
            if moves and self._held(group, there) > self._held(group, now):
                moves, reason = False, f"{reason}, but more memory would be held"
            self.tried.append(PlacementDecision(tuple(self.program.nests[p].name for p in group), now, there, moves, reason))
            if moves:
                for p in group:
                    self.level[p] = there

    def _gain(self, group: Positions, now: int, there: int) -> float | None:
        """Predicted microseconds less; None where too much has been looked at already."""
        moving = set(group)
        here = tuple(p for p, at in enumerate(self.level) if at == now)
        others = tuple(p for p, at in enumerate(self.level) if at == there)
        without = tuple(p for p in here if p not in moving)
        key = tuple(tuple(sorted(self.forms[p] for p in at)) for at in (here, others, group))
        if key not in self.gains:
            if self.looked_at >= MOST_NESTS:
                return None
            self.looked_at += 2 * (len(here) + len(others))
            before, after = (here, others), (without, tuple(sorted(others + group)))
            self.gains[key] = sum(map(self.level_us, before)) - sum(map(self.level_us, after))
        return self.gains[key]

    def _held(self, group: Positions, there: int) -> int:
        """The most bytes of temporary buffers that are alive at one level, with ``group`` at level ``there``."""
        moving = set(group)
        held = [0] * (1 + max(self.level))
        for size, users in self.temporary:
            at = [there if p in moving else self.level[p] for p in users]
            for level in range(min(at), max(at) + 1):
                held[level] += size
        return max(held)
