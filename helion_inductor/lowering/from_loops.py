"""Loops -> tile IR: each lowered loop becomes one :class:`LoopNest`, its scalar ops replayed into SSA form.

What the loop bodies leave open is fixed here, once: half and 8-bit floats are computed in f32 and rounded where the program
casts or stores, and halves before what turns over at the last bit, such as comparisons; mixed operand dtypes are promoted
explicitly; Welford and online-softmax reductions become chains of plain ones; loads under a mask carry the mask, so nothing
outside it is ever touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from ..errors import Unsupported, UnsupportedError
from ..ir.index import ZERO, Expr, product, symbol, value_symbol
from ..ir.ops import OPS, result_dtype
from ..ir.simplify import Ranges, simplify
from ..ir.tile_ir import (
    REDUCTIONS,
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
)
from .inductor_loops import Layout, Loop, with_handler
from .sizes import SizeNames

_LOW_PRECISION = frozenset(d for d in vars(torch).values() if isinstance(d, torch.dtype) and d.is_floating_point and d.itemsize <= 2)
_HALVES = frozenset({torch.float16, torch.bfloat16})
_OPAQUE = frozenset({torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4})
_SAME_DTYPE = frozenset({
    "add", "sub", "mul", "mul_rn", "truediv", "div_rn", "floordiv", "truncdiv", "mod", "remainder", "fmod", "pow", "maximum",
    "minimum", "eq", "ne", "lt", "le", "gt", "ge", "atan2", "copysign", "hypot", "nextafter", "fma", "bitwise_and",
    "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "lshift", "rshift", "and_", "or_", "xor",
})  # fmt: skip

_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_TURNING = _COMPARISONS | {"ceil", "floor", "floordiv", "fmod", "isinf", "mod", "remainder", "round", "trunc", "truncdiv"}
"""Ops whose result depends on the last bit of an operand."""
MAX_SCAN = 8192


def refuse(code: str, detail: str) -> UnsupportedError:
    return UnsupportedError(Unsupported(code, detail))


def to_buffer(name: str, layout: Layout, sizes: SizeNames, kind: str = "temp") -> Buffer:
    if layout.dtype.is_complex or layout.dtype in _OPAQUE:
        raise refuse("dtype", f"{layout.dtype} is not computed in kernels")
    return Buffer(name, layout.dtype, tuple(map(sizes.convert, layout.size)), tuple(map(sizes.convert, layout.stride)), kind)


def to_nest(loop: Loop, name: str, dtypes: dict[str, torch.dtype], sizes: SizeNames) -> LoopNest:
    """One loop as a nest; ``dtypes`` gives each buffer's memory dtype.

    Raises:
        UnsupportedError: for an opcode, reduction or index function outside the IR.
    """
    iteration = [symbol(f"p{k}") for k in range(len(loop.ranges))]
    reduction = [symbol(f"r{k}") for k in range(len(loop.reduce_ranges))]
    extents = {s.name: sizes.convert(n) for s, n in zip((*iteration, *reduction), (*loop.ranges, *loop.reduce_ranges), strict=True)}
    unit = {symbol(n): ZERO for n, extent in extents.items() if extent == 1}
    builder = BodyBuilder(loop, dtypes, sizes, Ranges(extents, sizes.lower), unit)
    builder.reduce_axes = tuple(s.name for s in reduction)
    loop.replay(builder, iteration, reduction)
    parallel = tuple(Axis(s.name, extents[s.name]) for s in iteration if extents[s.name] != 1)
    reduce = tuple(Axis(s.name, extents[s.name]) for s in reduction if extents[s.name] != 1)
    return LoopNest(name, parallel, reduce, tuple(builder.body), (loop.node,))


@dataclass
class BodyBuilder:
    """Handler of Inductor's scalar ops: every method appends statements and returns the id of the value (or a tuple of ids)."""

    loop: Loop
    dtypes: dict[str, torch.dtype]
    sizes: SizeNames
    ranges: Ranges
    unit: dict[sympy.Symbol, Expr]
    body: list[Stmt] = field(default_factory=list)
    types: dict[int, torch.dtype] = field(default_factory=dict)
    halves: dict[int, torch.dtype] = field(default_factory=dict)
    zeros: set[int] = field(default_factory=set)
    mask: int | None = None
    reduce_axes: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in OPS:
            raise refuse("opcode", f"opcode {name} has no meaning in the tile IR")
        return lambda *args, **kwargs: self.apply(name, args, kwargs)

    # ---- construction
    def emit(self, make: Callable[[int], Any], dtype: torch.dtype) -> int:
        value = len(self.types)
        self.types[value] = dtype
        self.body.append(make(value))
        return value

    def map(self, op: str, args: Sequence[int], attrs: tuple[object, ...] = ()) -> int:
        dtype = result_dtype(op, tuple(self.types[a] for a in args), attrs)
        return self.emit(lambda v: Map(v, dtype, op, tuple(args), attrs), dtype)

    def cast(self, value: int, dtype: torch.dtype) -> int:
        return value if self.types[value] == dtype else self.map("cast", (value,), (dtype,))

    def expr(self, e: Any) -> Expr:
        converted = self.sizes.convert(e).xreplace(self.unit)
        return simplify(converted, self.ranges)

    def apply(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> int:
        values = [a if isinstance(a, int) and not isinstance(a, bool) and a in self.types else None for a in args]
        if kwargs or any(v is None for v in values):
            raise refuse("opcode", f"{name} with arguments {args!r} {kwargs!r}")
        operands = [v for v in values if v is not None]
        if name in _SAME_DTYPE and len({self.types[v] for v in operands}) > 1:
            common = self.types[operands[0]]
            for v in operands[1:]:
                common = torch.promote_types(common, self.types[v])
            operands = [self.cast(v, common) for v in operands]
        if name in _TURNING:
            sign_only = name in _COMPARISONS and not self.zeros.isdisjoint(operands)
            operands = [v if sign_only and self.halves.get(v) == torch.bfloat16 else self.rounded(v) for v in operands]
        return self.map(name, operands)

    def rounded(self, value: int) -> int:
        """An element of a half buffer as it is in memory; where the buffer comes to nothing, the value itself is rounded. Zero is
        as far from other numbers in bfloat16 as in float32, so that a sign needs no rounding there."""
        return self.map("round_to", (value,), (self.halves[value],)) if value in self.halves else value

    # ---- memory
    def name(self, buffer: str) -> str:
        return self.loop.target if buffer == self.loop.name else buffer

    def load(self, name: str, index: Any) -> int:
        dtype = compute_dtype(self.dtypes[self.name(name)])
        at = self.expr(index)
        value = self.emit(lambda v: Load(v, dtype, self.name(name), at, self.mask, False if dtype == torch.bool else 0), dtype)
        if (memory := self.dtypes[self.name(name)]) in _HALVES:
            self.halves[value] = memory
        return value

    def load_seed(self, name: str, index: int) -> int:
        return self.load(name, sympy.Integer(index))

    def store(self, name: str, index: Any, value: int, mode: str | None = None) -> None:
        target = self.name(name)
        memory = self.dtypes[target]
        value = self.cast(value, compute_dtype(memory))
        if mode is None:
            self.body.append(Store(target, self.expr(index), value, self.mask))
        elif mode == "atomic_add":
            if memory.itemsize < 4:  # hardware adds to whole words
                raise refuse("atomic-dtype", f"atomic add into {memory}")
            self.body.append(Atomic(target, self.expr(index), value, "add", self.mask))
        else:
            raise refuse("store-mode", f"store mode {mode}")

    def store_reduction(self, name: str, index: Any, value: int) -> None:
        self.store(name, index, value)

    def indirect_indexing(self, value: int, size: Any, check: bool = True, wrap_neg: bool = True) -> sympy.Symbol:
        index = self.cast(value, torch.int64)
        extent = self.expr(size)
        if wrap_neg:
            n = self.emit(lambda v: Index(v, torch.int64, extent), torch.int64)
            zero = self.constant(0, torch.int64)
            index = self.map("where", (self.map("lt", (index, zero)), self.map("add", (index, n)), index))
        if check:
            self.body.append(Check(index, ZERO, extent, self.mask))
        return value_symbol(index)

    def check_bounds(self, index: Any, size: Any, lower: bool, upper: bool) -> None:
        at, extent = self.expr(index), self.expr(size)
        value = self.emit(lambda v: Index(v, torch.int64, at), torch.int64)
        far = sympy.Integer(2**62)
        self.body.append(Check(value, ZERO if lower else -far, extent if upper else far, self.mask))

    def masked(self, mask: int, body: Callable[[], int], other: Any) -> int:
        outer = self.mask
        self.mask = mask if outer is None else self.map("logical_and", (outer, mask))
        value = body()
        self.mask = outer
        dtype = self.types[value]
        return self.map("where", (mask, value, self.constant(other, dtype)))

    # ---- values
    def constant(self, value: Literal, dtype: torch.dtype) -> int:
        dtype = compute_dtype(dtype)
        literal = bool(value) if dtype == torch.bool else float(value) if dtype.is_floating_point else int(value)
        value_id = self.emit(lambda v: Const(v, dtype, literal), dtype)
        if literal == 0:
            self.zeros.add(value_id)
        return value_id

    def index_expr(self, e: Any, dtype: torch.dtype) -> int:
        at = self.expr(e)
        return self.cast(self.emit(lambda v: Index(v, torch.int64, at), torch.int64), compute_dtype(dtype))

    value_expr = index_expr

    def to_dtype(self, value: int, dtype: torch.dtype, src_dtype: torch.dtype | None = None, use_compute_types: bool = True) -> int:
        if not dtype.is_floating_point:
            value = self.rounded(value)
        value = self.cast(value, compute_dtype(dtype))
        return self.map("round_to", (value,), (dtype,)) if dtype in _LOW_PRECISION else value

    def to_dtype_bitcast(self, value: int, dtype: torch.dtype, src_dtype: torch.dtype) -> int:
        return self.map("bitcast", (value,), (src_dtype, dtype))

    def identity(self, value: int) -> int:
        return value

    def where(self, condition: int, a: int, b: int) -> int:
        common = torch.promote_types(self.types[a], self.types[b])
        return self.map("where", (self.cast(condition, torch.bool), self.cast(a, common), self.cast(b, common)))

    def frexp(self, value: int) -> tuple[int, int]:
        return self.map("frexp_mantissa", (value,)), self.map("frexp_exponent", (value,))

    def _to_int(self, op: str, value: int, dtype: torch.dtype) -> int:
        return self.map(op, (self.rounded(value),), (dtype,))

    def ceil_to_int(self, value: int, dtype: torch.dtype) -> int:
        return self._to_int("ceil_to_int", value, dtype)

    def floor_to_int(self, value: int, dtype: torch.dtype) -> int:
        return self._to_int("floor_to_int", value, dtype)

    def round_to_int(self, value: int, dtype: torch.dtype) -> int:
        return self._to_int("round_to_int", value, dtype)

    def trunc_to_int(self, value: int, dtype: torch.dtype) -> int:
        return self._to_int("trunc_to_int", value, dtype)

    def rand(self, seed: int, offset: int) -> int:
        return self.map("rand", (seed, self.cast(offset, torch.int64)))

    def randn(self, seed: int, offset: int) -> int:
        return self.map("randn", (seed, self.cast(offset, torch.int64)))

    def randint64(self, seed: int, offset: int, low: int, high: int) -> int:
        return self.map("randint64", (seed, self.cast(offset, torch.int64), low, high))

    # ---- reductions and scans
    def reduction(self, dtype: torch.dtype, src_dtype: torch.dtype, kind: str, value: Any) -> Any:
        if kind == "welford_reduce":
            return self._welford(value)
        if kind == "online_softmax_reduce":
            return self._online_softmax(value)
        if kind not in REDUCTIONS:
            raise refuse("reduction", f"reduction {kind}")
        if kind == "any":
            value = self.cast(value, torch.bool)
        elif kind not in ("argmax", "argmin"):
            value = self.cast(value, compute_dtype(dtype))
        else:
            value = self.rounded(value)
        out = torch.int64 if kind in ("argmax", "argmin") else self.types[value]
        return self._reduce(kind, value, out)

    def _reduce(self, kind: str, value: int, dtype: torch.dtype) -> int:
        axes = tuple(a for a in self.reduce_axes if symbol(a) not in self.unit)
        if not axes:  # a reduction over one element
            return self.constant(0, torch.int64) if kind in ("argmax", "argmin") else value
        return self.emit(lambda v: Reduce(v, dtype, kind, axes, value), dtype)

    def _count(self, dtype: torch.dtype) -> int:
        n = product(self.ranges.axes[a] for a in self.reduce_axes)
        return self.cast(self.emit(lambda v: Index(v, torch.int64, n), torch.int64), dtype)

    def _welford(self, value: int) -> tuple[int, int, int]:
        dtype = self.types[value]
        count = self._count(dtype)
        mean = self.map("truediv", (self._reduce("sum", value, dtype), count))
        centred = self.map("sub", (value, mean))
        return mean, self._reduce("sum", self.map("mul", (centred, centred)), dtype), count

    def _online_softmax(self, value: int) -> tuple[int, int]:
        dtype = self.types[value]
        top = self._reduce("max", value, dtype)
        return top, self._reduce("sum", self.map("exp", (self.map("sub", (value, top)),)), dtype)

    def scan(self, dtypes: tuple[torch.dtype, ...], combine: Callable[..., Any], values: tuple[int, ...]) -> tuple[int, ...]:
        kind = scan_kind(combine, len(values))
        axes = tuple(a for a in self.reduce_axes if symbol(a) not in self.unit)
        if kind is None or len(axes) != 1:
            raise refuse("scan", "an associative scan with a combine function of its own")
        extent = self.ranges.axes[axes[0]]
        if not extent.is_Integer or int(extent) > MAX_SCAN:
            raise refuse("scan-length", f"a scan over {extent} elements does not fit one block of at most {MAX_SCAN}")
        first = self.cast(self.rounded(values[0]) if len(values) > 1 else values[0], compute_dtype(dtypes[0]))
        running = self.emit(lambda v: Scan(v, self.types[first], kind, axes[0], first), self.types[first])
        if len(values) == 1:
            return (running,)
        arg = {"max": "argmax", "min": "argmin"}[kind]
        return running, self.emit(lambda v: Scan(v, torch.int64, arg, axes[0], first), torch.int64)


class _Recorder:
    """Replays a scan's combine function symbolically; its op sequence names the scan."""

    def __init__(self) -> None:
        self.ops: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., str]:
        if name.startswith("__"):
            raise AttributeError(name)

        def record(*args: Any, **kwargs: Any) -> str:
            self.ops.append(name)
            return name

        return record


def scan_kind(combine: Callable[..., Any], width: int) -> str | None:
    """``sum`` ``prod`` ``logcumsumexp`` (one value) or ``max`` ``min`` (value with index); None for anything else."""
    recorder = _Recorder()
    with_handler(recorder, lambda: combine(tuple(f"a{k}" for k in range(width)), tuple(f"b{k}" for k in range(width))))
    ops = recorder.ops
    if width == 1:
        if ops in (["add"], ["mul"]):
            return "sum" if ops == ["add"] else "prod"
        return "logcumsumexp" if {"log1p", "exp"} <= set(ops) else None
    return {"gt": "max", "lt": "min"}.get(ops[0]) if width == 2 and "where" in ops else None
