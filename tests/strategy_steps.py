"""The statements that ``strategies`` puts into a nest, a few at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from hypothesis import strategies as st

from helion_inductor.ir.index import Expr, integer, value_symbol
from tests.nest_builder import (
    BOOL_BINARY,
    COMPARISONS,
    FLOAT_BINARY,
    FLOAT_UNARY,
    INT_BINARY,
    INT_UNARY,
    NestBuilder,
    Tensor,
    Value,
    normalize,
    softmax,
)

FLOAT_LIMIT = 100.0
INT_LIMIT = 2.0**20
CONSTANTS = {
    torch.float32: (0.0, -0.0, 0.5, -2.0, 1e-3),
    torch.int64: (0, 1, -1, 7),
    torch.int32: (0, 1, -1, 7),
    torch.bool: (True, False),
}


class World(Protocol):
    """The part of a program under construction that statements are drawn from."""

    draw: st.DrawFn
    extents: dict[str, Expr]

    def length(self, dims: Sequence[str]) -> int: ...
    def pick(self, dims: Sequence[str]) -> Tensor: ...
    def new_input(self, dims: Sequence[str], dtype: torch.dtype, bound: int | None = None) -> Tensor: ...


def value_of(draw: st.DrawFn, b: NestBuilder, among: Sequence[Value] | None = None) -> Value:
    """One of the values so far, late ones more often."""
    values = list(b.values if among is None else among)
    if not values:
        return b.const(1.0, torch.float32)
    return values[-1 - min(draw(st.integers(0, 5)), len(values) - 1)]


def _of(draw: st.DrawFn, b: NestBuilder, dtype: torch.dtype, *, exact: bool = False) -> Value:
    """A value of ``dtype``: one that is there, a cast of one, or a constant."""
    fits = [v for v in b.values if v.dtype == dtype and (v.exact or not exact)]
    if fits and draw(st.integers(0, 4)) > 0:
        return value_of(draw, b, fits)
    others = [v for v in b.values if v.dtype != dtype and v.exact and not v.dtype.is_floating_point]
    if dtype != torch.bool and others:
        return b.cast(value_of(draw, b, others), dtype)
    return b.const(draw(st.sampled_from(CONSTANTS[dtype])), dtype)


def pointwise_steps(w: World, b: NestBuilder, dims: Sequence[str], count: int) -> None:
    """``count`` random statements, loads among them; the first gives a value if there is none."""
    for _ in range(count):
        if not b.values or w.draw(st.integers(0, 2)) == 0:
            w.draw(st.sampled_from([_plain_load, _plain_load, _padded_load, _masked_load, _gather]))(w, b, dims)
        else:
            w.draw(st.sampled_from([_arithmetic, _arithmetic, _compare, _select, _coordinate, _logic]))(w, b, dims)


def _plain_load(w: World, b: NestBuilder, dims: Sequence[str]) -> None:
    b.load(w.pick(dims))


def _masked_load(w: World, b: NestBuilder, dims: Sequence[str]) -> None:
    t = w.pick(dims)
    dtype = torch.float32 if t.buffer.dtype.is_floating_point else t.buffer.dtype
    b.load(t, mask=_of(w.draw, b, torch.bool, exact=True), other=w.draw(st.sampled_from(CONSTANTS[dtype])))


def _padded_load(w: World, b: NestBuilder, dims: Sequence[str]) -> None:
    """An element some steps away along one dimension, a constant where there is none."""
    t = w.pick(dims)
    if not t.dims:
        return _plain_load(w, b, dims)
    d = w.draw(st.sampled_from(t.dims))
    at = b.coords[d] + integer(w.draw(st.integers(-2, 2)))
    mask = b.within(at, w.extents[d], w.length([d]) + 2)
    dtype = torch.float32 if t.buffer.dtype.is_floating_point else t.buffer.dtype
    b.load(t, {d: at}, mask=mask, other=w.draw(st.sampled_from(CONSTANTS[dtype])))
    return None


def _gather(w: World, b: NestBuilder, dims: Sequence[str]) -> None:
    """An element that an index tensor names along one dimension; that dimension need not be one of the nest's."""
    d = w.draw(st.sampled_from(sorted(w.extents)))
    n = w.length([d])
    over = [e for e in dims if w.draw(st.booleans())]
    index = b.wrapped(b.load(w.new_input(over, torch.int64, n)), w.extents[d], n)
    table = w.new_input([d, *[e for e in dims if e != d and w.draw(st.booleans())]], torch.float32)
    b.load(table, {d: value_symbol(index.id)}, over=index.over)


def _arithmetic(w: World, b: NestBuilder, dims: Sequence[str]) -> None:
    x = value_of(w.draw, b)
    if x.dtype == torch.bool:
        x = b.cast(x, w.draw(st.sampled_from([torch.float32, torch.int64, torch.int32])))
    is_float = x.dtype.is_floating_point
    unary, binary = (FLOAT_UNARY, FLOAT_BINARY) if is_float else (INT_UNARY, INT_BINARY)
    limit = FLOAT_LIMIT if is_float else INT_LIMIT
    if w.draw(st.booleans()):
        b.apply(unary, w.draw(st.sampled_from(sorted(unary))), x, limit=limit)
        return
    op = w.draw(st.sampled_from(sorted(binary)))
    y = b.const(w.draw(st.integers(1, 9)), x.dtype) if op in ("floordiv", "remainder") else _of(w.draw, b, x.dtype)
    b.apply(binary, op, x, y, limit=limit)


def _compare(w: World, b: NestBuilder, dims: Sequence[str]) -> None:
    exact = [v for v in b.values if v.exact]
    x = value_of(w.draw, b, exact)
    y = _of(w.draw, b, x.dtype, exact=True)
    b.map(w.draw(st.sampled_from(COMPARISONS)), x, y)


def _select(w: World, b: NestBuilder, dims: Sequence[str]) -> None:
    x = value_of(w.draw, b)
    b.where(_of(w.draw, b, torch.bool, exact=True), x, _of(w.draw, b, x.dtype))


def _coordinate(w: World, b: NestBuilder, dims: Sequence[str]) -> None:
    d = w.draw(st.sampled_from(list(dims)))
    b.index(b.coords[d] + integer(w.draw(st.integers(-1, 1))), w.length([d]))


def _logic(w: World, b: NestBuilder, dims: Sequence[str]) -> None:
    x, y = (_of(w.draw, b, torch.bool) for _ in range(2))
    if w.draw(st.integers(0, 3)) == 0:
        b.map("logical_not", x)
    else:
        b.map(w.draw(st.sampled_from(BOOL_BINARY)), x, y)


def fold_steps(draw: st.DrawFn, b: NestBuilder) -> None:
    """A reduction, a scan, or a pattern of several reductions over the reduce axes."""
    x = value_of(draw, b)
    if x.dtype == torch.float32 and x.bound <= FLOAT_LIMIT and draw(st.booleans()):
        pattern = draw(st.sampled_from([softmax, normalize]))
        pattern(b, x)
        return
    scans = len(b.reduce) == 1 and x.dtype != torch.bool and draw(st.integers(0, 3)) == 3
    if scans:
        b.scan(draw(st.sampled_from(["sum", "max", "min"])), x)
        return
    kinds = ["any"] if x.dtype == torch.bool else ["sum", "max", "min"]
    if x.dtype in (torch.int64, torch.int32):
        kinds += ["xor_sum"]
    if x.exact and x.dtype != torch.bool:
        kinds += ["argmax", "argmin"]
    b.fold(draw(st.sampled_from(kinds)), x)
