"""What a sweep says as a whole: its table, and the class of every op as text that can be kept and compared."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Mapping

from tests.opinfo.outcome import LOOP_ONLY, Outcome

COLUMNS = {
    "in region": ("region",), "views only": ("nothing",), "no graph": ("untraced",), "extern": ("extern",), "refused": ("refused",),
    "upstream": ("upstream",), "wrong": ("wrong",), "crashed": ("crash", "timeout"),
}  # fmt: skip
Rows = Mapping[str, Mapping[str, Outcome]]


def table(rows: Rows) -> str:
    """One line for each row, an op counted once in it, as ``worst`` of its samples; then how many of them were compared."""
    lines = [f"{'':10}{'ops':>6}{'loop-only':>11}" + "".join(f"{c:>12}" for c in COLUMNS)]
    for row, by_op in rows.items():
        counts = Counter(o.status for o in by_op.values())
        loops = sum(counts[s] for s in LOOP_ONLY)
        numbers = (sum(counts[s] for s in statuses) for statuses in COLUMNS.values())
        lines.append(f"{row:10}{len(by_op):>6}{loops:>11}" + "".join(f"{n:>12}" for n in numbers))
    for row, by_op in rows.items():
        mixed = [o for o in by_op.values() if o.status == "extern" and o.compared]
        lines.append(f"{row}: {len(mixed)} of those with extern kernels have regions too, and were run and compared")
    return "\n".join(lines)


def classes(rows: Rows) -> str:
    """JSON: row -> column -> names of ops, sorted."""
    blocks = []
    for row, by_op in rows.items():
        parts = []
        for column, statuses in COLUMNS.items():
            names = ", ".join(json.dumps(n) for n in sorted(by_op) if by_op[n].status in statuses)
            filled = textwrap.fill(names, 120, initial_indent="   ", subsequent_indent="   ", break_on_hyphens=False)
            parts.append(f"  {json.dumps(column)}: [\n{filled}\n  ]")
        blocks.append(f" {json.dumps(row)}: {{\n" + ",\n".join(parts) + "\n }")
    return "{\n" + ",\n".join(blocks) + "\n}\n"
