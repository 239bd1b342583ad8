"""The tiled Helion IR: a program of loop nests over buffers.

Grammar (text form; ``printer`` writes it, ``parser`` reads it back to an equal value)::

    program  ::= "program @" NAME "(" [buffer {", " buffer}] ")" [" sizes(" size {", " size} ")"] NEWLINE {decl} {nest}
    size     ::= NAME ">=" INT "~" INT                      least value, hint
    buffer   ::= KIND NAME ": " DTYPE "[" exprs "]" [" strides(" exprs ")"] [" aliases " NAME]
    KIND     ::= "in" | "out" | "temp"
    decl     ::= "  " buffer NEWLINE
    nest     ::= "  nest @" NAME " parallel(" axes ")" [" reduce(" axes ")"] ["  # " origin {" " origin}] NEWLINE {stmt}
    axes     ::= [NAME ": " expr {", " NAME ": " expr}]
    stmt     ::= "    " (value | effect) NEWLINE
    value    ::= "%" INT ": " DTYPE " = " rhs
    rhs      ::= "load " NAME "[" expr "]" [" mask %" INT " else " LITERAL]
               | "const " LITERAL | "index " expr
               | OP "(" ["%" INT {", %" INT}] ")" ["{" attr {", " attr} "}"]
               | "reduce " KIND "(" axisnames ") %" INT | "scan " KIND "(" axisname ") %" INT
    attr     ::= DTYPE | LITERAL | STRING                   STRING and LITERAL are Python's, with inf and nan
    effect   ::= "store " NAME "[" expr "] %" INT [" mask %" INT]
               | "atomic " OP " " NAME "[" expr "] %" INT [" mask %" INT]
               | "check %" INT " in [" expr ", " expr ")" [" mask %" INT]

Buffers are in order: those of the first line, then the ``decl`` lines. Without ``strides`` a buffer is row-major
contiguous.

Meaning. A buffer is a strided tensor; a load or store names an element by its *linear offset in elements* from the
buffer's first element, so views need no reshaping. A nest runs its body once for every point of its parallel and
reduce axes; a value varies over the axes that its operands mention, less those that a ``reduce`` folded. Reducing an
axis and then using a value that varies over that axis again makes another *pass* over the axis: the pass of a value
is the number of reductions on its longest path. Values are in compute dtypes (f32, f64, integers, bool): loads of
half and 8-bit floats widen to f32, stores round. A store whose buffer is an ``out`` that aliases an input updates
that input in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from .index import ONE, Expr, values_in
from .text import text

REDUCTIONS = frozenset({"sum", "prod", "max", "min", "any", "xor_sum", "argmax", "argmin"})
SCANS = frozenset({"sum", "prod", "max", "min", "logcumsumexp", "argmax", "argmin"})
ATOMICS = frozenset({"add"})
COMPUTE_DTYPES = frozenset({
    torch.float32, torch.float64, torch.bool, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64,
})  # fmt: skip
Literal = bool | int | float


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which values loaded from a buffer of ``dtype`` are computed with."""
    return dtype if dtype in COMPUTE_DTYPES else torch.float32


@dataclass(frozen=True)
class Axis:
    """One loop: ``extent`` iterations, ``name`` unique within its nest."""

    name: str
    extent: Expr


@dataclass(frozen=True)
class Size:
    """A size symbol: its least possible value, and the value seen at compile time (for choices, never for meaning)."""

    name: str
    lower: int
    hint: int


@dataclass(frozen=True)
class Buffer:
    """A strided tensor of the region. ``kind``: ``in`` (given), ``out`` (given, written) or ``temp`` (made inside)."""

    name: str
    dtype: torch.dtype
    shape: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    kind: str = "temp"
    aliases: str | None = None

    def span(self) -> Expr:
        """Number of elements from the first to the last addressed one, inclusive; meaningless when a size is 0."""
        return sum(((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True)), ONE)


@dataclass(frozen=True)
class Load:
    id: int
    dtype: torch.dtype
    buffer: str
    index: Expr
    mask: int | None = None
    other: Literal = 0


@dataclass(frozen=True)
class Const:
    id: int
    dtype: torch.dtype
    value: Literal


@dataclass(frozen=True)
class Index:
    """An index expression used as a value, exact in ``dtype`` (int64 unless the program asked for less)."""

    id: int
    dtype: torch.dtype
    expr: Expr


@dataclass(frozen=True)
class Map:
    """One scalar op of :mod:`helion_inductor.ir.ops`, applied point by point."""

    id: int
    dtype: torch.dtype
    op: str
    args: tuple[int, ...]
    attrs: tuple[object, ...] = ()


@dataclass(frozen=True)
class Reduce:
    """Fold ``arg`` over ``axes`` (reduce axes of the nest). arg kinds give the row-major int64 position in ``axes``."""

    id: int
    dtype: torch.dtype
    kind: str
    axes: tuple[str, ...]
    arg: int


@dataclass(frozen=True)
class Scan:
    """Inclusive scan along one reduce axis; ``argmax``/``argmin`` give the int64 position of the running extremum."""

    id: int
    dtype: torch.dtype
    kind: str
    axis: str
    arg: int


@dataclass(frozen=True)
class Store:
    buffer: str
    index: Expr
    value: int
    mask: int | None = None


@dataclass(frozen=True)
class Atomic:
    """``buffer[index] += value`` as one indivisible step; order among points is not fixed."""

    buffer: str
    index: Expr
    value: int
    op: str = "add"
    mask: int | None = None


@dataclass(frozen=True)
class Check:
    """Asserts lower <= value < upper where the mask holds: the bounds check of an indirect index."""

    value: int
    lower: Expr
    upper: Expr
    mask: int | None = None


Value = Load | Const | Index | Map | Reduce | Scan
Effect = Store | Atomic | Check
Stmt = Value | Effect


def is_value(stmt: Stmt) -> bool:
    return not isinstance(stmt, (Store, Atomic, Check))


def indices(stmt: Stmt) -> tuple[Expr, ...]:
    """Index expressions that a statement holds."""
    match stmt:
        case Load() | Store() | Atomic():
            return (stmt.index,)
        case Index():
            return (stmt.expr,)
        case Check():
            return (stmt.lower, stmt.upper)
    return ()


def operands(stmt: Stmt) -> tuple[int, ...]:
    """Values that a statement reads, indirect indices and masks included."""
    own: tuple[int, ...] = ()
    match stmt:
        case Map():
            own = stmt.args
        case Reduce() | Scan():
            own = (stmt.arg,)
        case Store() | Atomic() | Check():
            own = (stmt.value,)
    if isinstance(stmt, (Load, Store, Atomic, Check)) and stmt.mask is not None:
        own += (stmt.mask,)
    return own + tuple(v for e in indices(stmt) for v in values_in(e))


@dataclass(frozen=True)
class LoopNest:
    """``parallel`` x ``reduce`` iteration space and its body; ``origins`` name the graph nodes it came from."""

    name: str
    parallel: tuple[Axis, ...]
    reduce: tuple[Axis, ...]
    body: tuple[Stmt, ...]
    origins: tuple[str, ...] = field(default=(), compare=False)

    def extents(self) -> dict[str, Expr]:
        return {a.name: a.extent for a in (*self.parallel, *self.reduce)}

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """What was found out about the nest, which never changes."""
        return {}

    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(s.buffer for s in self.body if isinstance(s, Load)))

    def writes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(s.buffer for s in self.body if isinstance(s, (Store, Atomic))))

    def __str__(self) -> str:
        return text(self)


@dataclass(frozen=True)
class TileProgram:
    """Nests in program order over named buffers."""

    name: str
    sizes: tuple[Size, ...]
    buffers: tuple[Buffer, ...]
    nests: tuple[LoopNest, ...]

    def buffer(self, name: str) -> Buffer:
        return next(b for b in self.buffers if b.name == name)

    def lower(self) -> dict[str, int]:
        return {s.name: s.lower for s in self.sizes}

    def hints(self) -> dict[str, int]:
        return {s.name: s.hint for s in self.sizes}

    def by_name(self) -> Mapping[str, Buffer]:
        return self._by_name

    @cached_property
    def _by_name(self) -> Mapping[str, Buffer]:
        return {b.name: b for b in self.buffers}

    @cached_property
    def memo(self) -> dict[Any, Any]:
        """What was found out about the program, by whoever wants it again: the program itself never changes."""
        return {}

    def __str__(self) -> str:
        return text(self)
