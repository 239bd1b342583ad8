"""Sizes as they were seen while tracing: good enough for choices, never for meaning."""

from __future__ import annotations

from collections.abc import Mapping

from ..ir.index import Expr, integer


def evaluate_size(e: Expr, hints: Mapping[str, int]) -> int:
    """``e`` at the hinted sizes."""
    if e.is_Integer:
        return int(e)
    return int(e.xreplace({s: integer(hints.get(s.name, 1)) for s in e.free_symbols}))
