"""Roundings that change nothing: of values that a half float holds already, such as those just loaded from a buffer of that type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch

from .body import remap
from .tile_ir import Buffer, Const, Load, LoopNest, Map, Reduce, Scan, Stmt, is_value

_CHOOSING = frozenset({"neg", "abs", "relu", "maximum", "minimum", "identity"})
_CHOOSING_FOLDS = frozenset({"max", "min"})


def drop_needless_roundings(nest: LoopNest, buffers: Mapping[str, Buffer]) -> LoopNest:
    """``nest`` without each ``round_to`` whose operand has the value of such a float."""
    known: dict[int, set[torch.dtype]] = {}
    rename: dict[int, int] = {}
    body: list[Stmt] = []
    for old in nest.body:
        number = rename.setdefault(old.id, old.id) if is_value(old) else -1  # type: ignore[union-attr]
        stmt = remap(old, rename)
        if isinstance(stmt, Map) and stmt.op == "round_to" and stmt.attrs[0] in known[stmt.args[0]]:
            rename[number] = stmt.args[0]
            continue
        if number >= 0:
            known[number] = _types_that_hold(stmt, known, buffers)
        body.append(stmt)
    return replace(nest, body=tuple(body))


def types_that_hold(nest: LoopNest, buffers: Mapping[str, Buffer]) -> dict[int, set[torch.dtype]]:
    """For each value the dtypes, shorter than its own, of which it is known to be a number."""
    known: dict[int, set[torch.dtype]] = {}
    for stmt in nest.body:
        if is_value(stmt):
            known[stmt.id] = _types_that_hold(stmt, known, buffers)  # type: ignore[union-attr]
    return known


def _types_that_hold(stmt: Stmt, known: Mapping[int, set[torch.dtype]], buffers: Mapping[str, Buffer]) -> set[torch.dtype]:
    match stmt:
        case Load():
            return {buffers[stmt.buffer].dtype}
        case Const():
            return {d for d in (torch.float16, torch.bfloat16) if _representable(float(stmt.value), d)}
        case Map(op="round_to"):
            return {torch.float16, torch.bfloat16} & {stmt.attrs[0]}
        case Map(op="where"):
            return known[stmt.args[1]] & known[stmt.args[2]]
        case Map() if stmt.op in _CHOOSING:
            return set.intersection(*(known[a] for a in stmt.args))
        case Reduce() | Scan() if stmt.kind in _CHOOSING_FOLDS:
            return known[stmt.arg]
    return set()


def _representable(value: float, dtype: torch.dtype) -> bool:
    return math.isnan(value) or torch.tensor(value, dtype=torch.float64).to(dtype).item() == value
