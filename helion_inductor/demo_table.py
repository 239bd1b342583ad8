"""Numbers of the demo: differences between results, medians of times, and the table that shows them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from .report import Report


@dataclass(frozen=True)
class Difference:
    """The largest difference between two sets of tensors, and the largest relative to the scale of its tensor."""

    absolute: float
    relative: float
    where: str


def difference(got: Mapping[str, torch.Tensor], reference: Mapping[str, torch.Tensor]) -> Difference:
    """Compare tensors of equal names. A tensor's scale is its largest magnitude, and at least a thousandth of the
    largest of all: some gradients are nothing but rounding. NaN, or an infinity that the reference lacks, is an
    infinite difference.
    """
    if got.keys() != reference.keys():
        raise ValueError(f"names differ: {sorted(got.keys() ^ reference.keys())}")
    scales = {name: _largest(t) for name, t in reference.items()}
    floor = max(1e-3 * max(scales.values(), default=0.0), 1e-30)
    worst = Difference(0.0, 0.0, "")
    for name, expected in reference.items():
        a, b = got[name].double(), expected.double()
        error = _largest(torch.where(a == b, 0.0, a - b))
        found = Difference(max(error, worst.absolute), error / max(scales[name], floor), name)
        worst = found if found.relative >= worst.relative else Difference(found.absolute, worst.relative, worst.where)
    return worst


def _largest(t: torch.Tensor) -> float:
    if not t.numel():
        return 0.0
    value = float(t.double().abs().max())
    return value if value == value else float("inf")


@dataclass(frozen=True)
class Row:
    """One case. ``times`` are medians in milliseconds by compiler, where taken; ``allowed`` bounds the relative
    difference.
    """

    name: str
    report: Report
    difference: Difference
    allowed: float
    times: Mapping[str, float]
    saved: Path

    @property
    def passed(self) -> bool:
        return self.difference.relative <= self.allowed


def table(rows: Sequence[Row]) -> str:
    """The rows, then per case what was left to Inductor and why, and where its kernels are."""
    clocks = list(dict.fromkeys(name for row in rows for name in row.times))
    body = [[*COLUMNS, *(f"{name} ms" for name in clocks)], *(_cells(row, clocks) for row in rows)]
    widths = [max(len(line[k]) for line in body) for k in range(len(body[0]))]
    lines = [_aligned(line, widths) for line in body]
    lines.insert(1, "  ".join("-" * w for w in widths))
    for row in rows:
        lines += ["", f"{row.name}: {_verdict(row)}"]
        lines += [
            f"  left to Inductor, {count}: {reason}" for reason, count in row.report.refusal_counts().most_common()
        ]
        lines.append(f"  kernels and every stage: {row.saved}")
    return "\n".join(lines)


COLUMNS = ("case", "graphs", "regions", "nests", "kernels", "left", "max abs diff", "max rel diff", "allowed")


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (cell.rjust(w) for cell, w in zip(line, widths, strict=True))
    return "  ".join([line[0].ljust(len(first)), *others])


def _cells(row: Row, clocks: Sequence[str]) -> list[str]:
    r, d = row.report, row.difference
    counts = [len(r.graphs), len(r.regions), r.nest_count(), len(r.kernels), len(r.refusals)]
    times = [f"{row.times[name]:.3f}" if name in row.times else "-" for name in clocks]
    return [row.name, *map(str, counts), f"{d.absolute:.1e}", f"{d.relative:.1e}", f"{row.allowed:.1e}", *times]


def _verdict(row: Row) -> str:
    if row.passed:
        return "agrees with eager"
    return f"DIFFERS from eager: {row.difference.where} by {row.difference.relative:.1e} of its largest element"


def median_ms(run: Callable[[], object], repeats: int = 30) -> float:
    """Median time of ``run`` on the current CUDA device in milliseconds, launches included, after three calls to warm
    up.
    """
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)
