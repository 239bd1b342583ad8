"""Hypothesis strategies for tile programs and schedules.

``cases()`` draws programs that are valid, run without NaN or overflow, and come with sizes, inputs and tolerances::

    @given(cases())
    def test_kernels(case):
        got = ...                                   # run case.program on case.inputs("cuda")
        case.check(got)                             # compare its outputs with the interpreter's

``schedule_strategies`` draws kernels for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from hypothesis import strategies as st

from helion_inductor.ir.index import Expr, FloorDiv, Mod, integer, product, symbol
from helion_inductor.ir.interpret import allocate, evaluate_int, interpret
from helion_inductor.ir.tile_ir import Axis, Buffer, LoopNest, Size, TileProgram
from tests.nest_builder import NestBuilder, Tensor, Value, stored_error
from tests.strategy_steps import FLOAT_LIMIT, fold_steps, pointwise_steps, value_of

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 33)
DTYPES = (torch.float32, torch.float32, torch.bfloat16, torch.int64, torch.int32, torch.bool)
BOUNDS = {torch.int64: 8, torch.int32: 8, torch.bool: 1}
MAX_POINTS = 1500


@dataclass(frozen=True)
class Case:
    """A program, the values of its size symbols, the bounds of its inputs and the errors that its outputs may have."""

    program: TileProgram
    sizes: Mapping[str, int]
    bounds: Mapping[str, int]
    errors: Mapping[str, float]
    seed: int

    def __repr__(self) -> str:
        return f"{self.program}\nat sizes {dict(self.sizes)}, seed {self.seed}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How hypothesis shows a failing case."""
        printer.text(repr(self))

    def inputs(self, device: str = "cpu") -> dict[str, torch.Tensor]:
        """Fresh ``in`` buffers, the same at each call."""
        generator = torch.Generator().manual_seed(self.seed)
        return {b.name: self._input(b, generator).to(device) for b in self.program.buffers if b.kind == "in"}

    def _input(self, b: Buffer, generator: torch.Generator) -> torch.Tensor:
        empty = allocate(b, self.sizes)
        span = 1 + sum((n - 1) * s for n, s in zip(empty.shape, empty.stride()))
        bound = self.bounds[b.name]
        if b.dtype == torch.bool:
            flat = torch.randint(0, 2, (span,), generator=generator)
        elif b.dtype.is_floating_point:
            flat = (torch.rand(span, generator=generator) * 2 - 1) * bound
        else:  # an index has the values -bound .. bound - 1
            flat = torch.randint(-bound, bound, (span,), generator=generator)
        return flat.to(b.dtype).as_strided(empty.shape, empty.stride())

    @cached_property
    def expected(self) -> dict[str, torch.Tensor]:
        """The ``out`` buffers as the interpreter computes them."""
        return self.outputs(interpret(self.program, self.inputs(), self.sizes))

    def outputs(self, buffers: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {b.name: buffers[b.name] for b in self.program.buffers if b.kind == "out"}

    def check(self, got: Mapping[str, torch.Tensor]) -> None:
        """Assert that the ``out`` buffers in ``got`` are as expected, up to what evaluation order may change."""
        for name, want in self.expected.items():
            tolerance = self.errors[name]
            difference = (got[name].cpu().double() - want.double()).abs()
            assert got[name].dtype == want.dtype and got[name].shape == want.shape, name
            worst = difference.max().item() if difference.numel() else 0.0
            assert worst <= tolerance, f"{name} is off by {worst}, more than {tolerance}\n{self!r}"


@dataclass
class _World:
    """A program under construction."""

    draw: st.DrawFn
    extents: dict[str, Expr]
    sizes: list[Size]
    actual: dict[str, int]
    tensors: list[Tensor]
    nests: list[LoopNest]
    bounds: dict[str, int]
    updates: bool

    def length(self, dims: Sequence[str]) -> int:
        return math.prod(evaluate_int(self.extents[d], self.actual) for d in dims)

    def stride(self, dims: Sequence[str], *, expand: bool = False) -> tuple[Expr, ...]:
        """Strides of a random layout: dimensions in any order, perhaps padded or expanded."""
        order = self.draw(st.permutations(dims)) if self.draw(st.booleans()) else list(dims)
        stride: dict[str, Expr] = {}
        step: Expr = integer(1)
        for d in reversed(order):
            if expand and self.draw(st.integers(0, 9)) == 9:
                stride[d] = integer(0)
                continue
            stride[d] = step
            step = step * (self.extents[d] + (self.draw(st.sampled_from([0, 0, 0, 3])) if d != order[0] else 0))
        return tuple(stride[d] for d in dims)

    def new_buffer(self, name: str, dims: Sequence[str], dtype: torch.dtype, kind: str, bound: float, error: float, *,
                   expand: bool = False) -> Tensor:  # fmt: skip
        shape = tuple(self.extents[d] for d in dims)
        t = Tensor(Buffer(name, dtype, shape, self.stride(dims, expand=expand), kind), tuple(dims), bound, error)
        self.tensors.append(t)
        return t

    def new_input(self, dims: Sequence[str], dtype: torch.dtype, bound: int | None = None, *,
                  expand: bool = True) -> Tensor:  # fmt: skip
        name = f"x{len(self.bounds)}"
        self.bounds[name] = BOUNDS.get(dtype, 2) if bound is None else bound
        return self.new_buffer(name, dims, dtype, "in", self.bounds[name], 0, expand=expand)

    def pick(self, dims: Sequence[str]) -> Tensor:
        """A buffer over some of ``dims``, already there or a new input."""
        there = [t for t in self.tensors if set(t.dims) <= set(dims)]
        made = [t for t in there if t.buffer.kind != "in"]
        if made and self.draw(st.booleans()):
            return self.draw(st.sampled_from(made))
        if there and self.draw(st.booleans()):
            return self.draw(st.sampled_from(there))
        some = [d for d in dims if self.draw(st.integers(0, 3)) > 0]
        some = self.draw(st.permutations(some)) if len(some) > 1 else some
        return self.new_input(some, self.draw(st.sampled_from(DTYPES)))

    def builder(self, parallel: Sequence[str], reduce: Sequence[str]) -> NestBuilder:
        """A nest over these dimensions, either group of which may run as one flat axis."""
        axes: dict[str, list[Axis]] = {"p": [], "r": []}
        coords: dict[str, Expr] = {}
        for letter, dims in (("p", parallel), ("r", reduce)):
            if len(dims) > 1 and self.draw(st.integers(0, 4)) == 4:
                axes[letter].append(Axis(f"{letter}0", product(self.extents[d] for d in dims)))
                coords.update(self._digits(symbol(f"{letter}0"), dims))
                continue
            for k, d in enumerate(dims):
                axes[letter].append(Axis(f"{letter}{k}", self.extents[d]))
                coords[d] = symbol(f"{letter}{k}")
        return NestBuilder(tuple(axes["p"]), tuple(axes["r"]), coords, self.length(reduce))

    def _digits(self, flat: Expr, dims: Sequence[str]) -> dict[str, Expr]:
        digits = {}
        for k, d in enumerate(dims):
            quotient = FloorDiv(flat, product(self.extents[e] for e in dims[k + 1 :]))
            digits[d] = Mod(quotient, self.extents[d]) if k else quotient
        return digits

    def store(self, b: NestBuilder, value: Value, dims: Sequence[str], *, out: bool) -> None:
        """Store ``value`` to a new buffer over ``dims``."""
        dtype = value.dtype
        if dtype == torch.float32 and self.draw(st.integers(0, 3)) == 3:
            dtype = torch.bfloat16
        order = self.draw(st.permutations(dims)) if len(dims) > 1 else dims
        kind = "out" if out or self.draw(st.booleans()) else "temp"
        t = self.new_buffer(self.name(), order, dtype, kind, value.bound, stored_error(value, dtype))
        masks = [v for v in b.values if v.dtype == torch.bool and v.exact and v.over <= value.over]
        if masks and self.draw(st.integers(0, 5)) == 5:  # some elements, then the others
            mask = self.draw(st.sampled_from(masks))
            b.store(t, value, mask)
            b.store(t, value, b.map("logical_not", mask))
        else:
            b.store(t, value)

    def update(self, b: NestBuilder, value: Value, dims: Sequence[str]) -> None:
        """Add ``value`` to an input, in place: one that earlier nests may have read, and later ones may."""
        taken = {t.buffer.aliases for t in self.tensors}
        there = [
            t
            for t in self.tensors
            if t.buffer.kind == "in" and t.buffer.dtype == torch.float32 and set(t.dims) == set(dims)
            if 0 not in t.buffer.stride and t.buffer.name not in taken
            if b.loaded.get(t.buffer.name, set()) <= {b.offset(t)}
        ]
        there.append(self.new_input(dims, torch.float32, expand=False))
        target = self.draw(st.sampled_from(there))
        total = b.combine([b.load(target), value], math.inf)
        alias = replace(target.buffer, name=self.name(), kind="out", aliases=target.buffer.name)
        t = Tensor(alias, target.dims, total.bound, total.error)
        b.store(t, total)
        self.tensors[self.tensors.index(target)] = replace(target, bound=total.bound, error=total.error)
        self.tensors.append(t)

    def name(self) -> str:
        return f"t{len(self.tensors)}"


def _result(w: _World, b: NestBuilder, among: Sequence[Value] | None = None) -> Value:
    """A value worth storing: one of the last, or the sum of what nothing has used yet."""
    unused = [v for v in b.unused() if among is None or v in among]
    return b.combine(unused, FLOAT_LIMIT) if unused and w.draw(st.booleans()) else value_of(w.draw, b, among)


def _pointwise(w: _World, dims: Sequence[str], *, last: bool) -> None:
    b = w.builder(dims, ())
    pointwise_steps(w, b, dims, w.draw(st.integers(2, 6)))
    if w.updates and w.draw(st.integers(0, 3)) == 3:
        w.update(b, _result(w, b), dims)
    else:
        w.store(b, _result(w, b), dims, out=last)
        if w.draw(st.integers(0, 3)) == 3:
            w.store(b, value_of(w.draw, b), dims, out=False)
    w.nests.append(b.finish(f"n{len(w.nests)}", ("aten.pointwise",)))


def _reduction(w: _World, dims: Sequence[str], *, last: bool) -> None:
    cut = w.draw(st.integers(0, len(dims) - 1))
    b = w.builder(dims[:cut], dims[cut:])
    pointwise_steps(w, b, dims, w.draw(st.integers(1, 4)))
    for _ in range(w.draw(st.integers(1, 2))):
        fold_steps(w.draw, b)
        pointwise_steps(w, b, dims, w.draw(st.integers(0, 3)))
    rows = [v for v in b.values if not v.over & b.folded]
    whole = w.draw(st.booleans())
    if whole:
        w.store(b, _result(w, b), dims, out=last)
    if not whole or w.draw(st.booleans()):
        w.store(b, _result(w, b, rows), dims[:cut], out=last)
    w.nests.append(b.finish(f"n{len(w.nests)}", ("aten.sum", "aten.reduction")))


def _scatter(w: _World, dims: Sequence[str], *, last: bool) -> None:
    """A buffer of zeros, then values added to it where an index tensor says."""
    target = w.draw(st.sampled_from(sorted(w.extents)))
    t = w.new_buffer(w.name(), (target,), w.draw(st.sampled_from([torch.float32, torch.int64])), "out", 0, 0)
    start = w.builder((target,), ())
    start.store(t, start.const(0, t.buffer.dtype))
    w.nests.append(start.finish(f"n{len(w.nests)}"))
    w.tensors.remove(t)  # so that the second nest does not read what it adds to
    b = w.builder(dims, ())
    n = w.length([target])
    at = b.wrapped(b.load(w.new_input(dims[:1], torch.int64, n)), w.extents[target], n)
    pointwise_steps(w, b, dims, 2)
    value = b.combine(b.unused(), FLOAT_LIMIT) if t.buffer.dtype == torch.float32 else at
    b.atomic_add(t, {target: at}, value)
    w.nests.append(b.finish(f"n{len(w.nests)}", ("aten.index_add",)))
    count = w.length(dims)
    error = count * value.error + (count**2 * value.bound * 2e-6 if t.buffer.dtype == torch.float32 else 0)
    w.tensors.append(Tensor(t.buffer, t.dims, count * value.bound, error))


@st.composite
def cases(draw: st.DrawFn, *, max_nests: int = 4, max_points: int = MAX_POINTS, scatter: bool = True,
          updates: bool = True) -> Case:  # fmt: skip
    """Programs of up to ``max_nests`` nests that feed one another, of at most ``max_points`` points each.

    ``scatter`` allows atomic additions, ``updates`` outputs that alias an input.
    """
    w = _World(draw, {}, [], {}, [], [], {}, updates)
    left = max_points
    for d in "abc"[: draw(st.integers(1, 3))]:
        n = draw(st.sampled_from([e for e in EXTENTS if e <= left]))
        left //= n
        if draw(st.integers(0, 2)) == 2:
            name = f"s{len(w.sizes)}"
            w.sizes.append(Size(name, draw(st.sampled_from([1, n])), draw(st.sampled_from([n, n, 64]))))
            w.actual[name] = n
            w.extents[d] = symbol(name)
        else:
            w.extents[d] = integer(n)
    count = draw(st.integers(1, max_nests))
    for k in range(count):
        dims = [d for d in w.extents if draw(st.integers(0, 3)) > 0] or [sorted(w.extents)[0]]
        dims = draw(st.permutations(dims))
        kinds = [_pointwise, _reduction, _pointwise, _reduction] + ([_scatter] if scatter else [])
        draw(st.sampled_from(kinds))(w, dims, last=k == count - 1)
    used = {b for n in w.nests for b in (*n.reads(), *n.writes())}
    buffers = tuple(t.buffer for t in w.tensors if t.buffer.name in used | {t.buffer.aliases for t in w.tensors})
    program = TileProgram("case", tuple(w.sizes), buffers, tuple(w.nests))
    errors = {t.buffer.name: t.error for t in w.tensors}
    return Case(program, w.actual, w.bounds, errors, draw(st.integers(0, 1000)))
