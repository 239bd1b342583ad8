"""Hypothesis strategy for programs of independent nests that share a body: what families are made of.

One ``Body`` is drawn, then members of it with extents, strides and offsets of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from helion_inductor.ir.index import Expr, FloorDiv, Mod, integer, product, symbol
from helion_inductor.ir.interpret import evaluate_int
from helion_inductor.ir.tile_ir import Axis, Buffer, LoopNest, Size, TileProgram
from tests.nest_builder import FLOAT_BINARY, FLOAT_UNARY, NestBuilder, Tensor, Value, normalize, softmax, stored_error
from tests.strategies import Case

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 24, 32, 33)
UNARY = ("tanh", "sin", "abs", "neg", "sigmoid")
BINARY = ("add", "sub", "mul", "maximum")
FOLDS = ("sum", "max", "softmax", "normalize")
INPUTS = (torch.float32, torch.float32, torch.bfloat16, torch.int32, torch.bool)
SIZES = {"M": 5, "N": 16}
NAMES = "abc"


@dataclass(frozen=True)
class Body:
    """Choices that all members share. ``inputs``: (dimensions, dtype); ``steps``: (operation, operands, counted from the last)."""

    rank: int
    rows: int
    flat: bool
    inputs: tuple[tuple[str, torch.dtype], ...]
    gather: bool
    masked: bool
    steps: tuple[tuple[str, int, int], ...]
    fold: str
    dtype: torch.dtype
    in_place: bool


@st.composite
def bodies(draw: st.DrawFn) -> Body:
    rank = draw(st.integers(1, 3))
    rows = draw(st.integers(0, rank))
    dims = NAMES[:rank]
    inputs = [dims] + draw(st.lists(st.sampled_from([dims[k:] for k in range(rank)] + [dims[:1]]), max_size=2))
    steps = st.tuples(st.sampled_from(UNARY + BINARY), st.integers(0, 3), st.integers(0, 3))
    return Body(
        rank, rows, rows == rank and draw(st.booleans()), tuple((d, draw(st.sampled_from(INPUTS))) for d in inputs),
        draw(st.booleans()), draw(st.booleans()), tuple(draw(st.lists(steps, min_size=1, max_size=4))),
        draw(st.sampled_from(FOLDS)), draw(st.sampled_from([torch.float32, torch.bfloat16])), draw(st.booleans()),
    )  # fmt: skip


@dataclass
class _Member:
    """Writes one member: ``pads`` are what its inputs are wider by, each at the start of their last dimension."""

    body: Body
    number: int
    extents: dict[str, Expr]
    pads: Sequence[int]
    buffers: list[Buffer]
    bounds: dict[str, int]
    errors: dict[str, float]

    def length(self, dims: str) -> int:
        return math.prod(evaluate_int(self.extents[d], SIZES) for d in dims)

    def builder(self) -> NestBuilder:
        dims = NAMES[: self.body.rank]
        if not self.body.flat:
            axes = [Axis(d, self.extents[d]) for d in dims]
            rows = self.body.rows
            return NestBuilder(tuple(axes[:rows]), tuple(axes[rows:]), {d: symbol(d) for d in dims}, self.length(dims[rows:]))
        coords = {}
        for k, d in enumerate(dims):
            quotient = FloorDiv(symbol("p"), product(self.extents[e] for e in dims[k + 1 :]))
            coords[d] = Mod(quotient, self.extents[d]) if k else quotient
        return NestBuilder((Axis("p", product(self.extents[d] for d in dims)),), (), coords, 1)

    def tensor(self, dims: str, dtype: torch.dtype, kind: str, bound: float, error: float, pad: int = 0) -> Tensor:
        name = f"{'x' if kind == 'in' else 'y'}{len(self.buffers)}"
        shape = [self.extents[d] + (pad if d == dims[-1] else 0) for d in dims]
        stride = [product(shape[k + 1 :]) for k in range(len(shape))]
        buffer = Buffer(name, dtype, tuple(shape), tuple(stride), kind)
        self.buffers.append(buffer)
        self.errors[name] = error
        if kind == "in":
            self.bounds[name] = int(bound)
        return Tensor(buffer, tuple(dims), bound, error)

    def inputs(self, b: NestBuilder) -> list[Value]:
        values = []
        for (dims, dtype), pad in zip(self.body.inputs, self.pads):
            t = self.tensor(dims, dtype, "in", 1 if dtype == torch.bool else 2, 0, pad)
            d = dims[-1]
            mask = b.within(b.coords[d], self.extents[d] - 1, 99) if self.body.masked else None
            other = 0 if mask is None else False if dtype == torch.bool else 1
            loaded = b.load(t, {d: b.coords[d] + pad}, mask=mask, other=other)
            values.append(b.cast(loaded, torch.float32))
        if self.body.gather:
            d = NAMES[0]
            n = self.length(d)
            index = b.wrapped(b.load(self.tensor(d, torch.int64, "in", n, 0)), self.extents[d], n)
            values.append(b.load(self.tensor(d, torch.float32, "in", 2, 0), {d: symbol(f"%{index.id}")}, over=index.over))
        return values

    def nest(self) -> LoopNest:
        b = self.builder()
        values = self.inputs(b)
        for op, i, j in self.body.steps:
            x, y = values[-1 - i % len(values)], values[-1 - j % len(values)]
            values.append(b.apply(FLOAT_UNARY, op, x, limit=math.inf) if op in UNARY else b.apply(FLOAT_BINARY, op, x, y, limit=math.inf))
        value, dims = values[-1], NAMES[: self.body.rank]
        if b.reduce:
            wide = b.apply(FLOAT_BINARY, "add", b.apply(FLOAT_UNARY, "tanh", value, limit=math.inf), values[0], limit=math.inf)
            patterns = {"softmax": softmax, "normalize": normalize}
            value = patterns[self.body.fold](b, wide) if self.body.fold in patterns else b.fold(self.body.fold, wide)
            dims = dims if self.body.fold in patterns else dims[: self.body.rows]
        self.store(b, value, dims)
        return b.finish(f"n{self.number}", ("aten.member",))

    def store(self, b: NestBuilder, value: Value, dims: str) -> None:
        if self.body.in_place and not b.reduce:
            t = self.tensor(dims, torch.float32, "in", 2, 0)
            total = b.apply(FLOAT_BINARY, "add", b.load(t), value, limit=math.inf)
            alias = Buffer(f"y{len(self.buffers)}", torch.float32, t.buffer.shape, t.buffer.stride, "out", t.buffer.name)
            self.buffers.append(alias)
            self.errors[alias.name] = total.error
            b.store(Tensor(alias, t.dims, total.bound, total.error), total)
        else:
            b.store(self.tensor(dims, self.body.dtype, "out", value.bound, stored_error(value, self.body.dtype)), value)


@st.composite
def member_cases(draw: st.DrawFn, *, sizes: bool = True) -> Case:
    """Programs of 2 to 7 nests that share a body; ``sizes`` lets some extents be size symbols."""
    body = draw(bodies())
    buffers: list[Buffer] = []
    bounds: dict[str, int] = {}
    errors: dict[str, float] = {}
    kinds = [draw(st.sampled_from([True, True, True, False])) or not sizes for _ in range(body.rank)]
    nests = []
    for number in range(draw(st.integers(2, 7))):
        extents: dict[str, Expr] = {}
        for d, literal in zip(NAMES, kinds):
            if literal:
                extents[d] = integer(draw(st.sampled_from(EXTENTS)))
            else:
                extents[d] = draw(st.sampled_from([1, 2])) * symbol(draw(st.sampled_from("MN")))
        pads = [draw(st.sampled_from([0, 0, 1, 4])) for _ in body.inputs]
        nests.append(_Member(body, number, extents, pads, buffers, bounds, errors).nest())
    used = tuple(Size(n, 1, v) for n, v in SIZES.items())
    return Case(TileProgram("members", used, tuple(buffers), tuple(nests)), SIZES, bounds, errors, draw(st.integers(0, 1000)))
