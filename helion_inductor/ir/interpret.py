"""The meaning of a ``TileProgram`` on CPU tensors: every nest evaluated over its whole index grid with torch ops.

Slow and exact by construction: no tiles, no masks for tails, one tensor per value. Used by tests as the oracle
between eager PyTorch and generated kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy
import torch

from ..scalar_math import narrow
from .index import Expr, FloorDiv, Mod
from .ops import OPS
from .tile_ir import (
    Atomic,
    Buffer,
    Check,
    Const,
    Index,
    Load,
    LoopNest,
    Map,
    Reduce,
    Scan,
    Store,
    TileProgram,
)

# Bits of the same width in place of dtypes that torch does not store through an index on the CPU.
_STORED_AS = {
    torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64, torch.float8_e8m0fnu: torch.uint8,
}  # fmt: skip
_SIGN = torch.iinfo(torch.int64).min

Environment = Mapping[str, int]
Tensors = Mapping[str, torch.Tensor]
Names = Mapping[str, int | torch.Tensor]
Values = Mapping[int, torch.Tensor]


def evaluate_int(e: Expr, sizes: Environment) -> int:
    """An expression in size symbols at concrete sizes."""
    return int(_evaluate(e, dict(sizes), {}))


def _evaluate(e: Expr, names: Names, values: Values) -> int | torch.Tensor:
    if e.is_Integer:
        return int(e)
    if e.is_Symbol:
        return values[int(e.name[1:])] if e.name.startswith("%") else names[e.name]
    args = [_evaluate(a, names, values) for a in e.args]
    result = args[0]
    for a in args[1:]:
        if e.is_Add:
            result = result + a
        elif e.is_Mul:
            result = result * a
        elif e.is_Pow:
            result = result**a
        elif isinstance(e, FloorDiv):
            result = result // a
        elif isinstance(e, Mod):
            result = result % a
        elif isinstance(e, (sympy.Min, sympy.Max)):
            result = _least(result, a) if isinstance(e, sympy.Min) else -_least(-result, -a)
        else:
            raise ValueError(f"not an index expression: {e}")
    return result


def _least(a: int | torch.Tensor, b: int | torch.Tensor) -> int | torch.Tensor:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return torch.minimum(torch.as_tensor(a), torch.as_tensor(b))


def allocate(buffer: Buffer, sizes: Environment) -> torch.Tensor:
    """An uninitialised tensor for ``buffer``; floats are poisoned with NaN so that an unwritten element shows."""
    shape = [evaluate_int(n, sizes) for n in buffer.shape]
    stride = [evaluate_int(n, sizes) for n in buffer.stride]
    t = torch.empty_strided(shape, stride, dtype=buffer.dtype)
    return t.fill_(float("nan")) if buffer.dtype.is_floating_point else t


def environment(program: TileProgram, tensors: Tensors, sizes: Environment) -> dict[str, torch.Tensor]:
    """Every buffer: those of ``tensors``, and fresh ones for the rest."""
    env = dict(tensors)
    for b in program.buffers:
        if b.aliases is not None:
            env[b.name] = env[b.aliases]
        elif b.kind != "in":
            env[b.name] = allocate(b, sizes)
    return env


def interpret(program: TileProgram, tensors: Tensors, sizes: Environment, *,
              order: Sequence[int] | None = None) -> dict[str, torch.Tensor]:  # fmt: skip
    """Run all nests; ``tensors`` gives the ``in`` buffers (aliased ones are updated in place); returns every buffer.

    ``order`` runs the nests in another order than program order.

    Raises:
        IndexError: a ``check`` failed, or an unmasked access lies outside its buffer.
    """
    env = environment(program, tensors, sizes)
    for position in range(len(program.nests)) if order is None else order:
        run_nest(program.nests[position], env, sizes)
    return env


def _flat(t: torch.Tensor) -> torch.Tensor:
    span = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) if t.numel() else 0
    return t.as_strided((span,), (1,), t.storage_offset())


def run_nest(nest: LoopNest, env: Tensors, sizes: Environment) -> None:
    """Evaluate one nest over its whole iteration space, effects in body order."""
    axes = [*nest.parallel, *nest.reduce]
    lengths = [evaluate_int(a.extent, sizes) for a in axes]
    if 0 in lengths[: len(nest.parallel)]:
        return
    points = [torch.arange(n) for n in lengths]
    along = {a.name: (k, points[k]) for k, a in enumerate(axes)}
    run_points(nest, env, sizes, Points(along, tuple(lengths), len(nest.parallel)))


@dataclass(frozen=True)
class Points:
    """A part of an iteration space: tensor dimensions of these ``lengths``, of which those from ``first_reduce`` on are reduced.

    ``along`` gives for each axis the dimension along which it varies, and its values there.
    """

    along: Mapping[str, tuple[int, torch.Tensor]]
    lengths: tuple[int, ...]
    first_reduce: int


def run_points(nest: LoopNest, env: Tensors, sizes: Environment, points: Points) -> None:
    """Evaluate one nest on ``points``, effects in body order."""
    rank, extents = len(points.lengths), points.lengths
    names: dict[str, int | torch.Tensor] = dict(sizes)
    for axis, (dim, at) in points.along.items():
        names[axis] = at.reshape([-1 if k == dim else 1 for k in range(rank)])
    values: dict[int, torch.Tensor] = {}
    reduce_dims = list(range(points.first_reduce, rank))
    for stmt in nest.body:
        match stmt:
            case Load():
                values[stmt.id] = _load(stmt, env, names, values)
            case Const():
                values[stmt.id] = torch.tensor(stmt.value, dtype=stmt.dtype)
            case Index():
                values[stmt.id] = torch.as_tensor(_evaluate(stmt.expr, names, values), dtype=stmt.dtype)
            case Map():
                args = [values[a] for a in stmt.args]
                values[stmt.id] = OPS[stmt.op].evaluate(*args, attrs=stmt.attrs, dtype=stmt.dtype)
            case Reduce():
                full = torch.broadcast_to(values[stmt.arg], extents) if reduce_dims else values[stmt.arg]
                values[stmt.id] = reduce_tensor(stmt.kind, full, reduce_dims, stmt.dtype)
            case Scan():
                values[stmt.id] = scan_tensor(stmt.kind, torch.broadcast_to(values[stmt.arg], extents), points.along[stmt.axis][0])
            case Store() | Atomic():
                _store(stmt, env, names, values, extents)
            case Check():
                _check(stmt, names, values)


def _load(stmt: Load, env: Tensors, names: Names, values: Values) -> torch.Tensor:
    flat = _flat(env[stmt.buffer])
    index = torch.as_tensor(_evaluate(stmt.index, names, values))
    if stmt.mask is None:
        _inside(index, torch.tensor(True), flat, stmt.buffer)
        return flat[index].to(stmt.dtype)
    mask = values[stmt.mask]
    _inside(index, mask, flat, stmt.buffer)
    safe = torch.where(mask, index, 0)
    other = torch.tensor(stmt.other, dtype=stmt.dtype)
    if flat.numel() == 0:
        return other.expand(torch.broadcast_shapes(mask.shape, index.shape))
    return torch.where(mask, flat[safe].to(stmt.dtype), other)


def _inside(index: torch.Tensor, mask: torch.Tensor, flat: torch.Tensor, buffer: str) -> None:
    """Refuse an offset that no element has; a negative one would quietly count from the end."""
    if bool((((index < 0) | (index >= flat.numel())) & mask).any()):
        raise IndexError(f"an offset lies outside {buffer}")


def _store(stmt: Store | Atomic, env: Tensors, names: Names, values: Values, extents: Sequence[int]) -> None:
    target = env[stmt.buffer]
    bits = _STORED_AS.get(target.dtype, target.dtype)
    flat = _flat(target).view(bits)
    index = torch.as_tensor(_evaluate(stmt.index, names, values))
    value = narrow(values[stmt.value], target.dtype).view(bits)
    mask = torch.tensor(True) if stmt.mask is None else values[stmt.mask]
    shape = torch.broadcast_shapes(index.shape, value.shape, mask.shape) if isinstance(stmt, Store) else tuple(extents)
    index, value, mask = (torch.broadcast_to(t, shape) for t in (index, value, mask))
    _inside(index, mask, flat, stmt.buffer)
    if isinstance(stmt, Atomic):
        flat.index_put_((index[mask],), value[mask], accumulate=True)
    else:
        flat[index[mask]] = value[mask]


def _check(stmt: Check, names: Names, values: Values) -> None:
    value = values[stmt.value]
    good = (value >= _evaluate(stmt.lower, names, values)) & (value < _evaluate(stmt.upper, names, values))
    if stmt.mask is not None:
        good = good | ~values[stmt.mask]
    if not bool(good.all()):
        raise IndexError("index out of bounds")


def reduce_tensor(kind: str, value: torch.Tensor, dims: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Fold ``dims`` (trailing) of ``value``; they stay as extent 1."""
    kept = value.shape[: value.dim() - len(dims)]
    flat = value.flatten(len(kept)) if dims else value.unsqueeze(-1)
    work = flat.to(torch.int64) if flat.dtype in (torch.uint16, torch.uint32, torch.uint64) else flat
    flip = _SIGN if flat.dtype == torch.uint64 and kind.endswith(("max", "min")) else 0
    work = work ^ flip if flip else work  # int64 in the order of the uint64 values
    match kind:
        case "sum":
            out = work.sum(-1, dtype=work.dtype)
        case "prod":
            out = work.prod(-1, dtype=work.dtype)
        case "max" | "min":
            out = work.amax(-1) if kind == "max" else work.amin(-1)
            out = out ^ flip if flip else out
        case "any":
            out = work.any(-1)
        case "xor_sum":
            out = work[..., 0]
            for k in range(1, work.shape[-1]):
                out = out ^ work[..., k]
        case _:
            comparable = work.to(torch.int8) if work.dtype == torch.bool else work
            out = comparable.argmax(-1) if kind == "argmax" else comparable.argmin(-1)
    return out.to(dtype).reshape([*kept, *([1] * len(dims))])


def scan_tensor(kind: str, value: torch.Tensor, dim: int) -> torch.Tensor:
    """Inclusive scan along ``dim``."""
    match kind:
        case "sum":
            return value.cumsum(dim, dtype=value.dtype)
        case "prod":
            return value.cumprod(dim, dtype=value.dtype)
        case "logcumsumexp":
            return value.logcumsumexp(dim)
    found = value.cummax(dim) if kind in ("max", "argmax") else value.cummin(dim)
    return found.indices if kind.startswith("arg") else found.values
