"""Balanced if/else over the boundaries of a space of virtual pids."""

from __future__ import annotations

from collections.abc import Sequence

INDENT = "    "


def choose(leaves: Sequence[Sequence[str]], ends: Sequence[str], pid: str, depth: int) -> list[str]:
    """Lines that run leaf ``k`` where ``ends[k - 1] <= pid < ends[k]``; the last end is not looked at."""
    pad = INDENT * depth
    if len(leaves) == 1:
        return [pad + line for line in leaves[0]]
    middle = len(leaves) // 2
    return [
        f"{pad}if {pid} < {ends[middle - 1]}:",
        *choose(leaves[:middle], ends[:middle], pid, depth + 1),
        f"{pad}else:",
        *choose(leaves[middle:], ends[middle:], pid, depth + 1),
    ]
