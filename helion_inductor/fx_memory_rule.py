"""What is left to Inductor so that a graph holds no more memory than it may: whole regions, or nests that stand alone in one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .fx_memory import Calls, GraphMemory

MOST = 1.05  # of Inductor's peak for the same graph
SLACK = 1 << 14  # bytes that are too few to give up loops for: partial results of split reductions, say
FEW_PARTS = 8  # of a region, to be looked at one by one; of more, only stretches
MB = 1e6


@dataclass(frozen=True)
class Peak:
    """Estimated bytes that the graph holds at most, with its regions and without any; ``given``: of what it is given, where that
    counts.

    Phases of one kernel hold all that they exchange, where Inductor reuses memory from kernel to kernel. Beside the matrices that
    such kernels read it is little, so where a call multiplies, the bytes of the graph's inputs count on both sides.
    """

    ours: int
    inductor: int
    given: int = 0

    @property
    def fits(self) -> bool:
        return self.ours + self.given <= max(MOST * (self.inductor + self.given), self.inductor + self.given + SLACK)

    def __str__(self) -> str:
        return f"estimated peak of {self.ours / MB:.2f} MB against {self.inductor / MB:.2f} MB of Inductor's"


@dataclass(frozen=True)
class Cut:
    """Equal regions by their numbers, the nests that leave their calls (all, or a part), and the peaks before and after."""

    regions: tuple[int, ...]
    nests: frozenset[str]
    whole: bool
    before: Peak
    after: Peak

    def __str__(self) -> str:
        return f"{self.before}; {self.after.ours / MB:.2f} MB without it"


def peak_of(memory: GraphMemory, calls: Calls) -> Peak:
    ours = memory.peak(calls)
    return Peak(ours, memory.peak({}) if calls else ours, memory.given_bytes() if memory.multiplies(calls) else 0)


def next_cut(memory: GraphMemory, groups: Sequence[tuple[int, ...]], gains: Mapping[int, float], *, parts: bool = True) -> Cut | None:
    """What is to leave the calls of the regions in ``groups``, equal ones together; None where the peak is low enough, or nothing
    lowers it.

    Of what brings the peak below the limit alone, that which loses least of the regions' ``gains``, of which nests have equal shares;
    else what lowers it most. ``parts``: whether a part of a region may go.
    """
    regions = memory.regions
    calls = {k: regions[k].nests() for group in groups for k in group}
    before = peak_of(memory, calls)
    if before.fits:
        return None
    found: list[tuple[float, Cut]] = []
    for group, nests in _choices(memory, groups, parts):
        whole = nests == calls[group[0]]
        rest = {k: c - nests if k in group else c for k, c in calls.items()}
        after = replace(before, ours=memory.peak(rest))
        lost = sum(max(0.0, gains[k]) for k in group) * len(nests) / len(calls[group[0]])
        if after.ours < before.ours:
            found.append((lost, Cut(group, nests, whole, before, after)))
    enough = [f for f in found if f[1].after.fits]
    if enough:
        return min(enough, key=lambda f: f[0])[1]
    return min(found, key=lambda f: (f[1].after.ours, f[0]))[1] if found else None


def _choices(memory: GraphMemory, groups: Sequence[tuple[int, ...]], parts: bool) -> Iterator[tuple[tuple[int, ...], frozenset[str]]]:
    """What may leave the calls of which regions: all of it, one part, or the parts from some size of their results on."""
    for group in groups:
        region = memory.regions[group[0]]
        yield group, region.nests()
        apart = sorted(region.parts(), key=region.bytes_made) if parts else []
        if len(apart) < 2:
            continue
        sizes = [region.bytes_made(part) for part in apart]
        from_size = {k for k in range(1, len(apart)) if sizes[k] >= 2 * sizes[k - 1]} | {len(apart) // 2, len(apart) // 4}
        stretches = [frozenset[str]().union(*apart[k:]) for k in sorted(from_size - {0})]
        single = apart if len(apart) <= FEW_PARTS else []
        for nests in dict.fromkeys([*single, *stretches]):
            if all(memory.regions[k].calls_of(nests) for k in group):
                yield group, nests
