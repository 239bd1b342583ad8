"""Text of reductions and scans over the last dimension of a block."""

from __future__ import annotations

import torch

from ..ir.ops import identity
from ..ir.tile_ir import Reduce, Scan
from .expressions import constant, triton_dtype


def initial(stmt: Reduce, dtype: torch.dtype, shape: str) -> list[str]:
    """Accumulator blocks of a looped reduction."""
    first = constant(identity(stmt.kind, dtype), dtype)
    lines = [f"acc{stmt.id} = tl.full({shape}, {first}, {triton_dtype(dtype)})"]
    if stmt.kind in ("argmax", "argmin"):
        lines.append(f"at{stmt.id} = tl.full({shape}, 9223372036854775807, tl.int64)")
    return lines


def accumulate(stmt: Reduce, argument: str, dim: str) -> list[str]:
    """Fold one block into the accumulator."""
    acc = f"acc{stmt.id}"
    match stmt.kind:
        case "sum":
            return [f"{acc} = {acc} + {argument}"]
        case "prod":
            return [f"{acc} = {acc} * {argument}"]
        case "any":
            return [f"{acc} = {acc} | {argument}"]
        case "xor_sum":
            return [f"{acc} = {acc} ^ {argument}"]
        case "argmax" | "argmin":
            at = f"at{stmt.id}"
            position = f"tl.broadcast_to({dim}.to(tl.int64), {acc}.shape)"
            return [f"{acc}, {at} = dl.{stmt.kind}_combine({acc}, {at}, {argument}, {position})"]
    return [f"{acc} = dl.{stmt.kind}_combine({acc}, {argument})"]


def final(stmt: Reduce, rank: int, argument: str | None = None) -> str:
    """The reduced value, with the reduce dimension kept at extent 1; ``argument`` of a persistent one, else the accumulator."""
    axis = rank - 1
    keep = "[" + ", ".join([":"] * axis + ["None"]) + "]"
    source = argument or f"acc{stmt.id}"
    if stmt.kind in ("argmax", "argmin"):
        position = f"tl.broadcast_to(r.to(tl.int64), {source}.shape)" if argument else f"at{stmt.id}"
        return f"dl.{stmt.kind}({source}, {position}, {axis}){keep}"
    return f"dl.{stmt.kind}({source}, {axis}){keep}"


def scan_text(stmt: Scan, argument: str, positions: str, axis: int) -> str:
    """An inclusive scan of ``argument`` along ``axis``."""
    name = {"sum": "cumsum", "prod": "cumprod", "max": "cummax", "min": "cummin", "logcumsumexp": "logcumsumexp"}.get(stmt.kind)
    if name in ("cummax", "cummin"):
        return f"dl.{name}({argument}, {positions}, {axis})[0]"
    if name is None:
        return f"dl.{'cummax' if stmt.kind == 'argmax' else 'cummin'}({argument}, {positions}, {axis})[1]"
    return f"dl.{name}({argument}, {axis})"
