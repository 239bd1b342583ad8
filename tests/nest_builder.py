"""Builds loop nests statement by statement and knows, of each value, how large it gets and how far off it may be.

``bound`` is the greatest absolute value; ``error`` the greatest difference to another correct evaluation of the
program (other order of summation, contracted multiply-add, half-precision intermediates kept wide). A value with
error 0 is reproduced to the bit, so it may be compared, rounded or used as an index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from helion_inductor.ir.index import ZERO, Expr, names_in, product, value_symbol
from helion_inductor.ir.ops import result_dtype
from helion_inductor.ir.tile_ir import (
    Atomic,
    Axis,
    Buffer,
    Check,
    Const,
    Index,
    Literal,
    Load,
    LoopNest,
    Map,
    Reduce,
    Scan,
    Stmt,
    Store,
    compute_dtype,
    operands,
)

EPS = 2e-6  # of one f32 operation, library functions of devices included
HALF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


@dataclass(frozen=True)
class Value:
    """An SSA value; ``over`` names the axes it varies over."""

    id: int
    dtype: torch.dtype
    bound: float
    error: float
    over: frozenset[str]

    @property
    def exact(self) -> bool:
        return self.error == 0


@dataclass(frozen=True)
class Tensor:
    """A buffer whose dimensions are named by ``dims``, with what is known of its elements."""

    buffer: Buffer
    dims: tuple[str, ...]
    bound: float
    error: float


Effect = Callable[..., tuple[float, float]]  # values -> (bound, error)

FLOAT_UNARY: Mapping[str, Effect] = {
    "neg": lambda a: (a.bound, a.error),
    "abs": lambda a: (a.bound, a.error),
    "relu": lambda a: (a.bound, a.error),
    "tanh": lambda a: (1, a.error + EPS),
    "sigmoid": lambda a: (1, a.error + EPS),
    "sin": lambda a: (1, a.error + EPS * (1 + a.bound)),
    "cos": lambda a: (1, a.error + EPS * (1 + a.bound)),
    "square": lambda a: (a.bound**2, (2 * a.bound + a.error) * a.error + EPS * a.bound**2),
    "exp": lambda a: (math.exp(min(a.bound, 50)), math.exp(min(a.bound, 50)) * (2 * a.error + EPS * (1 + a.bound))),
}
FLOAT_BINARY: Mapping[str, Effect] = {
    "add": lambda a, b: (a.bound + b.bound, a.error + b.error + EPS * (a.bound + b.bound)),
    "sub": lambda a, b: (a.bound + b.bound, a.error + b.error + EPS * (a.bound + b.bound)),
    "mul": lambda a, b: (
        a.bound * b.bound,
        a.bound * b.error + b.bound * a.error + a.error * b.error + EPS * a.bound * b.bound,
    ),
    "maximum": lambda a, b: (max(a.bound, b.bound), max(a.error, b.error)),
    "minimum": lambda a, b: (max(a.bound, b.bound), max(a.error, b.error)),
}
INT_UNARY: Mapping[str, Effect] = {"neg": lambda a: (a.bound, 0), "abs": lambda a: (a.bound, 0)}
INT_BINARY: Mapping[str, Effect] = {
    "add": lambda a, b: (a.bound + b.bound, 0),
    "sub": lambda a, b: (a.bound + b.bound, 0),
    "mul": lambda a, b: (a.bound * b.bound, 0),
    "maximum": lambda a, b: (max(a.bound, b.bound), 0),
    "minimum": lambda a, b: (max(a.bound, b.bound), 0),
    "bitwise_and": lambda a, b: (2 * max(a.bound, b.bound) + 1, 0),
    "bitwise_or": lambda a, b: (2 * max(a.bound, b.bound) + 1, 0),
    "bitwise_xor": lambda a, b: (2 * max(a.bound, b.bound) + 1, 0),
    "floordiv": lambda a, b: (a.bound + 1, 0),
    "remainder": lambda a, b: (b.bound, 0),
}
BOOL_BINARY = ("logical_and", "logical_or", "logical_xor", "eq", "ne")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


@dataclass
class NestBuilder:
    """A nest under construction. ``coords`` gives the coordinate along each named dimension in terms of the axes."""

    parallel: tuple[Axis, ...]
    reduce: tuple[Axis, ...]
    coords: Mapping[str, Expr]
    points: int  # greatest number of points that the reduce axes have
    body: list[Stmt] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    loaded: dict[str, set[Expr]] = field(default_factory=dict)

    def finish(self, name: str, origins: tuple[str, ...] = ()) -> LoopNest:
        return LoopNest(name, self.parallel, self.reduce, tuple(self.body), origins)

    def add(self, make: Callable[[int], Stmt], dtype: torch.dtype, bound: float, error: float,
            over: frozenset[str]) -> Value:  # fmt: skip
        value = Value(len(self.values), dtype, float(bound), float(error), over)
        self.body.append(make(value.id))
        self.values.append(value)
        return value

    def axes_in(self, *exprs: Expr) -> frozenset[str]:
        names = {a.name for a in (*self.parallel, *self.reduce)}
        return frozenset().union(*(names_in(e) & names for e in exprs))

    @property
    def folded(self) -> frozenset[str]:
        return frozenset(a.name for a in self.reduce)

    # ---- leaves
    def const(self, value: Literal, dtype: torch.dtype) -> Value:
        return self.add(lambda v: Const(v, dtype, value), dtype, abs(value), 0, frozenset())

    def index(self, e: Expr, bound: float) -> Value:
        return self.add(lambda v: Index(v, torch.int64, e), torch.int64, bound, 0, self.axes_in(e))

    def offset(self, t: Tensor, at: Mapping[str, Expr] | None = None) -> Expr:
        """Linear offset of the element at the nest's coordinates, or at those of ``at`` where it names a dimension."""
        coords = {**self.coords, **(at or {})}
        return sum((coords[d] * s for d, s in zip(t.dims, t.buffer.stride)), ZERO)

    def load(self, t: Tensor, at: Mapping[str, Expr] | None = None, over: frozenset[str] = frozenset(),
             mask: Value | None = None, other: Literal = 0) -> Value:  # fmt: skip
        """Load an element of ``t``; ``over`` names the axes of indirect coordinates."""
        index, dtype = self.offset(t, at), compute_dtype(t.buffer.dtype)
        self.loaded.setdefault(t.buffer.name, set()).add(index)
        over = over | self.axes_in(index) | (mask.over if mask else frozenset())
        number = mask.id if mask else None
        return self.add(lambda v: Load(v, dtype, t.buffer.name, index, number, other), dtype,
                        max(t.bound, abs(other)), t.error, over)  # fmt: skip

    def within(self, e: Expr, extent: Expr, bound: float) -> Value:
        """0 <= e < extent, as a value."""
        at, zero, end = self.index(e, bound), self.const(0, torch.int64), self.index(extent, bound)
        return self.map("logical_and", self.map("ge", at, zero), self.map("lt", at, end))

    def wrapped(self, index: Value, extent: Expr, bound: float) -> Value:
        """A gather's index: negative ones count from the end, and the result is checked."""
        zero, n = self.const(0, torch.int64), self.index(extent, bound)
        moved = self.map("add", index, n, bound=bound)
        shifted = self.map("where", self.map("lt", index, zero), moved, index, bound=bound)
        self.body.append(Check(shifted.id, ZERO, extent))
        return shifted

    # ---- operations
    def map(self, op: str, *args: Value, attrs: tuple[object, ...] = (), bound: float = 1, error: float = 0) -> Value:
        dtype = result_dtype(op, tuple(a.dtype for a in args), attrs)
        over = frozenset().union(*(a.over for a in args))
        return self.add(lambda v: Map(v, dtype, op, tuple(a.id for a in args), attrs), dtype, bound, error, over)

    def apply(self, table: Mapping[str, Effect], op: str, *args: Value, limit: float) -> Value:
        """The op, unless its values could pass ``limit``: then the first operand as it was."""
        bound, error = table[op](*args)
        return self.map(op, *args, bound=bound, error=error) if bound <= limit else args[0]

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        if value.dtype == dtype:
            return value
        return self.map("cast", value, attrs=(dtype,), bound=max(value.bound, 1), error=value.error)

    def unused(self) -> list[Value]:
        """Values that no statement reads yet."""
        read = {v for s in self.body for v in operands(s)}
        return [v for v in self.values if v.id not in read]

    def combine(self, values: Sequence[Value], limit: float) -> Value:
        """The f32 sum of ``values``, less those that would take it past ``limit``."""
        total = self.const(0.0, torch.float32)
        for v in values:
            if total.bound + v.bound <= limit or limit == math.inf:
                total = self.apply(FLOAT_BINARY, "add", total, self.cast(v, torch.float32), limit=math.inf)
        return total

    def where(self, condition: Value, a: Value, b: Value) -> Value:
        return self.map("where", condition, a, b, bound=max(a.bound, b.bound), error=max(a.error, b.error))

    def fold(self, kind: str, value: Value) -> Value:
        """Reduce over all reduce axes."""
        axes, n = tuple(a.name for a in self.reduce), self.points
        dtype = torch.int64 if kind.startswith("arg") else value.dtype
        bound, error = value.bound, value.error
        if kind == "sum":
            bound, error = n * bound, n * error + (n * n * EPS * bound if value.dtype.is_floating_point else 0)
        elif kind == "xor_sum":
            bound = 2 * bound + 1
        elif kind.startswith("arg"):
            bound = n
        return self.add(lambda v: Reduce(v, dtype, kind, axes, value.id), dtype, bound, error, value.over - self.folded)

    def scan(self, kind: str, value: Value) -> Value:
        (axis,) = self.reduce
        n = self.points if kind == "sum" else 1
        error = n * value.error + (n * n * EPS * value.bound if n > 1 and value.dtype.is_floating_point else 0)
        over = value.over | self.folded
        return self.add(lambda v: Scan(v, value.dtype, kind, axis.name, value.id), value.dtype,
                        n * value.bound, error, over)  # fmt: skip

    # ---- effects
    def store(self, t: Tensor, value: Value, mask: Value | None = None) -> None:
        self.body.append(Store(t.buffer.name, self.offset(t), value.id, mask.id if mask else None))

    def atomic_add(self, t: Tensor, at: Mapping[str, Value], value: Value) -> None:
        index = self.offset(t, {d: value_symbol(v.id) for d, v in at.items()})
        self.body.append(Atomic(t.buffer.name, index, value.id))


def stored_error(value: Value, dtype: torch.dtype) -> float:
    """Error of what a buffer of ``dtype`` holds: whether a half is read back rounded or kept wide is left open."""
    return value.error + (value.bound + value.error) * HALF.get(dtype, 0.0)


def softmax(b: NestBuilder, x: Value) -> Value:
    """exp(x - max x) / sum exp(x - max x): two reductions, three passes."""
    centred = b.map("sub", x, b.fold("max", x), bound=2 * x.bound, error=2 * x.error + EPS * x.bound)
    e = b.map("exp", centred, bound=1, error=2 * centred.error + EPS * (1 + centred.bound))
    total = b.fold("sum", e)
    return b.map("truediv", e, total, bound=1, error=e.error + total.error + EPS)


def normalize(b: NestBuilder, x: Value) -> Value:
    """(x - mean) * rsqrt(variance + 1): two sums, three passes."""
    n = b.cast(b.index(product(a.extent for a in b.reduce), b.points), torch.float32)
    total = b.fold("sum", x)
    mean = b.map("truediv", total, n, bound=x.bound, error=total.error + EPS * x.bound)
    centred = b.apply(FLOAT_BINARY, "sub", x, mean, limit=math.inf)
    squares = b.fold("sum", b.apply(FLOAT_UNARY, "square", centred, limit=math.inf))
    variance = b.map("truediv", squares, n, bound=centred.bound**2, error=squares.error + EPS * centred.bound**2)
    more = b.apply(FLOAT_BINARY, "add", variance, b.const(1.0, torch.float32), limit=math.inf)
    scale = b.map("rsqrt", more, bound=1, error=more.error + EPS)
    return b.apply(FLOAT_BINARY, "mul", centred, scale, limit=math.inf)
