"""The Triton text of scalar operations, constants and conversions.

The text means what `helion_inductor.ir.ops` says the operation means, both to the GPU compiler and to Triton's
interpreter. Where a plain operator or `tl` function has that meaning in both, it is used; elsewhere `dl`, as generated
modules name `helion_inductor.runtime.device_lib`, supplies a function.

Constraints behind the choices: Triton divides integers as C does and f32 approximately; its unary minus turns 0.0 into
0.0; a Python int is an int32 and a Python float an f32 unless the other operand of an operator says more; the
interpreter truncates to bf16.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch

from ..errors import Unsupported, UnsupportedError
from ..ir.tile_ir import Buffer, LoopNest, Map
from ..scalar_math import compute_dtype

TRITON_DTYPES: Mapping[torch.dtype, str] = MappingProxyType({
    torch.bool: "tl.int1",
    torch.int8: "tl.int8",
    torch.int16: "tl.int16",
    torch.int32: "tl.int32",
    torch.int64: "tl.int64",
    torch.uint8: "tl.uint8",
    torch.uint16: "tl.uint16",
    torch.uint32: "tl.uint32",
    torch.uint64: "tl.uint64",
    torch.float16: "tl.float16",
    torch.bfloat16: "tl.bfloat16",
    torch.float32: "tl.float32",
    torch.float64: "tl.float64",
    torch.float8_e4m3fn: "tl.float8e4nv",  # not e5m2: its conversion came out wrong on an H200 with Triton 3.6
})  # fmt: skip
_UNSIGNED = frozenset({torch.uint8, torch.uint16, torch.uint32, torch.uint64})


def triton_dtype(dtype: torch.dtype) -> str:
    """Triton's name of a dtype, such as "tl.float32".

    Raises:
        UnsupportedError: a dtype that kernels neither compute in nor load.
    """
    name = TRITON_DTYPES.get(dtype)
    if name is None:
        raise UnsupportedError(Unsupported("dtype", f"kernels have no {dtype}"))
    return name


def constant(value: bool | int | float, dtype: torch.dtype) -> str:
    """A scalar of exactly `dtype`, a compute dtype. Integers wrap into it, floats round to it.

    Raises:
        ValueError, OverflowError: NaN or an infinity as an integer.
    """
    name = triton_dtype(dtype)
    if dtype == torch.bool:
        return f"tl.full([], {bool(value)}, tl.int1)"
    if not dtype.is_floating_point:
        return f"tl.full([], {_wrapped(int(value), dtype)}, {name})"
    number = torch.tensor(value, dtype=dtype).item()
    if math.isnan(number) or math.isinf(number):
        return f'tl.full([], float("{number}"), {name})'
    if number == 0 and math.copysign(1.0, number) < 0:
        # Triton makes any zero a positive one.
        width = 8 * dtype.itemsize
        return f"tl.full([], {1 << (width - 1):#x}, tl.uint{width}).to({name}, bitcast=True)"
    return f"tl.full([], {float(value)!r}, {name})"


def _wrapped(value: int, dtype: torch.dtype) -> int:
    low, width = torch.iinfo(dtype).min, 8 * dtype.itemsize
    return (value - low) % (1 << width) + low


def from_memory(text: str, memory_dtype: torch.dtype) -> str:
    """A value loaded from a buffer of `memory_dtype`, in its compute dtype."""
    if compute_dtype(memory_dtype) == memory_dtype:
        return text
    if memory_dtype == torch.float16:
        return f"{_atom(text)}.to(tl.float32)"
    triton_dtype(memory_dtype)
    return f"dl.widen({text})"


def to_memory(text: str, memory_dtype: torch.dtype) -> str:
    """A value in the compute dtype of `memory_dtype`, rounded to what a buffer of it stores."""
    if compute_dtype(memory_dtype) == memory_dtype:
        return text
    if memory_dtype == torch.float16:
        return f"{_atom(text)}.to(tl.float16)"
    return f"dl.narrow({text}, {triton_dtype(memory_dtype)})"


def emit(
    op: str, args: Sequence[str], arg_dtypes: Sequence[torch.dtype], dtype: torch.dtype, attrs: tuple[object, ...] = ()
) -> str:
    """The text of `op` applied to operands whose texts are `args`.

    The operands and `dtype`, the result's, are as `ir.ops.result_dtype` accepts and gives them. Operand texts are put
    into parentheses where precedence asks for it; the result has none around it. An operand may appear twice.

    Raises:
        UnsupportedError: `op` is not in `SUPPORTED`, or a dtype is not in `TRITON_DTYPES`.
    """
    writer = _WRITERS.get(op)
    if writer is None:
        raise UnsupportedError(Unsupported("opcode", f"no kernel code for {op}"))
    return writer(_Application(op, tuple(args), tuple(arg_dtypes), dtype, attrs))


@dataclass(frozen=True)
class _Application:
    op: str
    texts: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    dtype: torch.dtype
    attrs: tuple[object, ...]

    @property
    def x(self) -> str:
        return _atom(self.texts[0])

    @property
    def y(self) -> str:
        return _atom(self.texts[1])

    @property
    def on_floats(self) -> bool:
        return self.dtypes[0].is_floating_point

    @property
    def on_bools(self) -> bool:
        return self.dtypes[0] == torch.bool

    def call(self, function: str) -> str:
        return f"{function}({', '.join(self.texts)})"

    def attr_dtype(self, position: int = 0) -> torch.dtype:
        dtype = self.attrs[position]
        assert isinstance(dtype, torch.dtype)
        return dtype


def _atom(text: str) -> str:
    """The text, in parentheses unless it binds more tightly than any operator."""
    if text.isidentifier():
        return text
    node = ast.parse(text, mode="eval").body
    return text if isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)) else f"({text})"


_Writer = Callable[[_Application], str]


def _infix(symbol: str) -> _Writer:
    return lambda a: f"{a.x} {symbol} {a.y}"


def _device(name: str | None = None) -> _Writer:
    return lambda a: a.call(f"dl.{name or a.op}")


def _by_kind(floats: _Writer, integers: _Writer, bools: _Writer | None = None) -> _Writer:
    def write(a: _Application) -> str:
        if a.on_floats:
            return floats(a)
        return bools(a) if bools is not None and a.on_bools else integers(a)

    return write


def _unchanged(a: _Application) -> str:
    return a.texts[0]


def _divide(a: _Application) -> str:
    return a.call("tl.div_rn") if a.dtype == torch.float32 else f"{a.x} / {a.y}"


def _reciprocal(a: _Application) -> str:
    return f"tl.div_rn(1.0, {a.texts[0]})" if a.dtype == torch.float32 else f"1.0 / {a.x}"


def _int_truediv(a: _Application) -> str:
    name = triton_dtype(a.dtype)
    x, y = f"{a.x}.to({name})", f"{a.y}.to({name})"
    return f"tl.div_rn({x}, {y})" if a.dtype == torch.float32 else f"{x} / {y}"


def _signbit(a: _Application) -> str:
    return f"{a.x}.to(tl.int{8 * a.dtypes[0].itemsize}, bitcast=True) < 0" if a.on_floats else f"{a.x} < 0"


def _complement(a: _Application) -> str:
    if a.dtype in _UNSIGNED:  # the interpreter has no unsigned number of all ones to invert with
        return f"{a.x} ^ {constant(-1, a.dtype)}"
    return f"~{a.x}"


def _cast_text(text: str, source: torch.dtype, target: torch.dtype) -> str:
    if source == target:
        return text
    if target == torch.bool:
        return f"{_atom(text)} != 0"
    # The conversion of a negative float to an unsigned integer is undefined.
    through = ".to(tl.int64)" if source.is_floating_point and target in _UNSIGNED - {torch.uint64} else ""
    return f"{_atom(text)}{through}.to({triton_dtype(target)})"


def _bitcast(a: _Application) -> str:
    source, target = a.attr_dtype(0), a.attr_dtype(1)
    if source == target:
        return to_from_memory(a.texts[0], source)
    bits = f"{a.x}.to(tl.uint8)" if source == torch.bool else _atom(to_memory(a.texts[0], source))
    if target == torch.bool:
        return f"{bits}.to(tl.uint8, bitcast=True) != 0"
    return from_memory(f"{bits}.to({triton_dtype(target)}, bitcast=True)", target)


def to_from_memory(text: str, memory_dtype: torch.dtype) -> str:
    """A value after a round trip through a buffer of `memory_dtype`."""
    return from_memory(to_memory(text, memory_dtype), memory_dtype)


def _then_to_int(rounding: _Writer) -> _Writer:
    def write(a: _Application) -> str:
        rounded = rounding(a) if a.on_floats else a.texts[0]
        return _cast_text(rounded, a.dtypes[0], a.attr_dtype())

    return write


def _logical(symbol: str) -> _Writer:
    def write(a: _Application) -> str:
        x, y = (_atom(_cast_text(t, d, torch.bool)) for t, d in zip(a.texts, a.dtypes, strict=True))
        return f"{x} {symbol} {y}"

    return write


def _random(name: str) -> _Writer:
    return lambda a: a.call(f"dl.{name}_lanes" if a.attrs else f"dl.{name}")


def _tl(name: str) -> _Writer:
    return lambda a: a.call(f"tl.{name}")


_FLOAT_FUNCTIONS = """
    acos acosh airy_ai asin asinh atan atan2 atanh bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t
    chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w copysign cos cosh digamma erf erfc erfcx
    erfinv exp exp2 expm1 fma frexp_exponent frexp_mantissa hermite_polynomial_h hermite_polynomial_he hypot i0 i0e i1
    i1e laguerre_polynomial_l ldexp legendre_polynomial_p lgamma log log10 log1p log2 log_ndtr modified_bessel_k0
    modified_bessel_k1 ndtr ndtri nextafter polygamma rsqrt scaled_modified_bessel_k0 scaled_modified_bessel_k1
    shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v
    shifted_chebyshev_polynomial_w sigmoid sin sinh spherical_bessel_j0 tan tanh zeta"""

_WRITERS: Mapping[str, _Writer] = MappingProxyType({
    **{name: _device() for name in _FLOAT_FUNCTIONS.split()},
    "abs": _tl("abs"),
    "add": _by_kind(_infix("+"), _infix("+"), _infix("|")),
    "and_": _infix("&"),
    "bitcast": _bitcast,
    "bitwise_and": _infix("&"),
    "bitwise_left_shift": _device("left_shift"),
    "bitwise_not": _complement,
    "bitwise_or": _infix("|"),
    "bitwise_right_shift": _device("right_shift"),
    "bitwise_xor": _infix("^"),
    "cast": lambda a: _cast_text(a.texts[0], a.dtypes[0], a.dtype),
    "ceil": _by_kind(_tl("ceil"), _unchanged),
    "ceil_to_int": _then_to_int(_tl("ceil")),
    "div_rn": _divide,
    "eq": _infix("=="),
    "floor": _by_kind(_tl("floor"), _unchanged),
    "floor_to_int": _then_to_int(_tl("floor")),
    "floordiv": _by_kind(_device("floor_divide"), _device("floor_div")),
    "fmod": _by_kind(_device("fmod"), _device("trunc_mod")),
    "ge": _infix(">="),
    "gt": _infix(">"),
    "identity": _unchanged,
    "int_truediv": _int_truediv,
    "isinf": _by_kind(lambda a: f'tl.abs({a.texts[0]}) == float("inf")', lambda a: f"{a.x} != {a.x}"),
    "isnan": lambda a: f"{a.x} != {a.x}",
    "le": _infix("<="),
    "logical_and": _logical("&"),
    "logical_not": lambda a: f"~{a.x}" if a.on_bools else f"{a.x} == 0",
    "logical_or": _logical("|"),
    "logical_xor": _logical("^"),
    "lshift": _device("left_shift"),
    "lt": _infix("<"),
    "maximum": _by_kind(_device(), _device(), _infix("|")),
    "minimum": _by_kind(_device(), _device(), _infix("&")),
    "mod": _by_kind(_device("fmod"), _device("trunc_mod")),
    "modified_bessel_i0": _device("i0"),
    "modified_bessel_i1": _device("i1"),
    "mul": _by_kind(_infix("*"), _infix("*"), _infix("&")),
    "mul_rn": _by_kind(_device(), _infix("*"), _infix("&")),
    "ne": _infix("!="),
    "neg": _by_kind(lambda a: f"{a.x} * -1.0", lambda a: f"-{a.x}"),
    "or_": _infix("|"),
    "pow": _by_kind(_device(), _device("int_pow")),
    "rand": _random("rand"),
    "randint64": _device(),
    "randn": _random("randn"),
    "reciprocal": _reciprocal,
    "relu": _device(),
    "remainder": _by_kind(_device(), _device("floor_mod")),
    "round": _by_kind(_device(), _unchanged),
    "round_to": lambda a: to_from_memory(a.texts[0], a.attr_dtype()),
    "round_to_int": _then_to_int(_device("round")),
    "rshift": _device("right_shift"),
    "sign": _device(),
    "signbit": _signbit,
    "sqrt": lambda a: a.call("tl.sqrt_rn" if a.dtype == torch.float32 else "tl.sqrt"),
    "square": lambda a: f"{a.x} * {a.x}",
    "sub": _infix("-"),
    "truediv": _divide,
    "trunc": _by_kind(_device(), _unchanged),
    "trunc_to_int": _then_to_int(_unchanged),
    "truncdiv": _by_kind(lambda a: f"dl.trunc({_divide(a)})", _device("trunc_div")),
    "where": _tl("where"),
    "xor": _infix("^"),
})  # fmt: skip

SUPPORTED: frozenset[str] = frozenset(_WRITERS)
"""Opcodes that kernels can hold. A node that needs another one stays with Inductor."""


def obstacle(nest: LoopNest, buffers: Mapping[str, Buffer]) -> Unsupported | None:
    """The first thing in ``nest`` that kernels cannot hold: an opcode, or the dtype of a buffer; None when all of it fits."""
    for name in (*nest.reads(), *nest.writes()):
        if buffers[name].dtype not in TRITON_DTYPES:
            return Unsupported("dtype", f"kernels have no {buffers[name].dtype}")
    for stmt in nest.body:
        if isinstance(stmt, Map):
            if stmt.op not in SUPPORTED:
                return Unsupported("opcode", f"no kernel code for {stmt.op}")
            unknown = [a for a in stmt.attrs if isinstance(a, torch.dtype) and a not in TRITON_DTYPES]
            if unknown:
                return Unsupported("dtype", f"kernels have no {unknown[0]}")
    return None
