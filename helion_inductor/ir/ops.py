"""The scalar opcodes of the tile IR: their arities, result dtypes and meaning.

`OPS` is sealed at import. Names are those of Inductor's scalar operations, and these of our own:

    cast{dtype}              `x.to(dtype)` between compute dtypes
    bitcast{source, target}  bits of x as they are in memory in dtype `source`, read as `target` of the same width
    round_to{low}            f32 rounded through a half or 8-bit float dtype, as f32
    frexp_mantissa, frexp_exponent   the two results of frexp (the exponent is int32)

Attributes of Inductor's: `*_to_int{dtype}`; `int_truediv{}` or `{dtype}` (f32 or f64); `rand{}`, `randn{}`, or `{4}`
where four neighbouring offsets share one counter (see `helion_inductor.random_math`).

Operands of arithmetic and comparisons have been promoted to one dtype. `where` takes (bool, a, b). A shift's amount may
have an integer dtype of its own; `ldexp` takes (float, integer); `polygamma` takes (order, x).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch

from ..errors import Unsupported, UnsupportedError
from ..scalar_math import FORMULAS, compute_dtype

Dtypes = tuple[torch.dtype, ...]
Attrs = tuple[object, ...]
ResultRule = Callable[[Dtypes, Attrs], torch.dtype]

FLOATS = frozenset({torch.float32, torch.float64})
INTEGERS = frozenset({
    torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
})  # fmt: skip
NUMBERS = FLOATS | INTEGERS
ANY = NUMBERS | {torch.bool}


@dataclass(frozen=True)
class Op:
    """One opcode. `result(operand dtypes, attrs)` is the dtype of its value, and raises `UnsupportedError` where the
    operands or attributes have no meaning; `evaluate(*tensors, attrs=..., dtype=...)` is its meaning on CPU tensors."""

    name: str
    arity: int
    result: ResultRule
    evaluate: Callable[..., torch.Tensor]


def result_dtype(name: str, arg_dtypes: Dtypes, attrs: Attrs = ()) -> torch.dtype:
    """Dtype of the value of `name` applied to operands of these dtypes.

    Raises:
        UnsupportedError: an unknown opcode, or operands or attributes that it has no meaning for.
    """
    op = OPS.get(name)
    if op is None:
        raise _refuse("opcode", f"no opcode {name}")
    if len(arg_dtypes) != op.arity:
        raise _refuse("arity", f"{name} takes {op.arity} operands, not {len(arg_dtypes)}")
    try:
        return op.result(arg_dtypes, attrs)
    except _Mismatch as mismatch:
        operands = ", ".join(str(d).removeprefix("torch.") for d in arg_dtypes)
        shown = "{" + ", ".join(map(str, attrs)) + "}" if attrs else ""
        raise _refuse("operand-dtype", f"{name}({operands}){shown}: {mismatch}") from None


class _Mismatch(Exception):
    """Says in its message what a rule wanted."""


def identity(kind: str, dtype: torch.dtype) -> bool | int | float:
    """The value that leaves a reduction or scan of ``kind`` unchanged, in ``dtype``."""
    if kind in ("sum", "xor_sum", "any"):
        return False if dtype == torch.bool else 0.0 if dtype.is_floating_point else 0
    if kind == "prod":
        return True if dtype == torch.bool else 1.0 if dtype.is_floating_point else 1
    low = kind in ("max", "argmax", "logcumsumexp")
    if dtype == torch.bool:
        return not low
    if dtype.is_floating_point:
        return float("-inf") if low else float("inf")
    info = torch.iinfo(dtype)
    return info.min if low else info.max


def _refuse(code: str, detail: str) -> UnsupportedError:
    return UnsupportedError(Unsupported(code, detail))


def _require(condition: bool, wanted: str) -> None:
    if not condition:
        raise _Mismatch(wanted)


def _same(domain: frozenset[torch.dtype], result: torch.dtype | None = None) -> ResultRule:
    """Operands of one dtype out of `domain`; the result has it too, unless a fixed dtype is given."""

    def rule(dtypes: Dtypes, attrs: Attrs) -> torch.dtype:
        names = "any dtype" if domain == ANY else ", ".join(sorted(str(d).removeprefix("torch.") for d in domain))
        _require(not attrs, "takes no attributes")
        _require(dtypes[0] in domain, f"operands must have one of: {names}")
        _require(len(set(dtypes)) == 1, "operands must have one dtype")
        return dtypes[0] if result is None else result

    return rule


def _dtype_attr(attrs: Attrs, position: int, count: int) -> torch.dtype:
    _require(len(attrs) == count, f"takes {count} attribute{'s' * (count != 1)}")
    dtype = attrs[position]
    if not isinstance(dtype, torch.dtype):
        raise _Mismatch("attributes must be dtypes")
    return dtype


def _logical(dtypes: Dtypes, attrs: Attrs) -> torch.dtype:
    _require(set(dtypes) <= ANY and not attrs, "operands must have compute dtypes")
    return torch.bool


def _shift(dtypes: Dtypes, attrs: Attrs) -> torch.dtype:
    _require(set(dtypes) <= INTEGERS and not attrs, "operands must be integers")
    return dtypes[0]


def _ldexp(dtypes: Dtypes, attrs: Attrs) -> torch.dtype:
    _require(dtypes[0] in FLOATS and dtypes[1] in INTEGERS and not attrs, "operands must be a float and an integer")
    return dtypes[0]


def _where(dtypes: Dtypes, attrs: Attrs) -> torch.dtype:
    _require(dtypes[0] == torch.bool and not attrs, "the condition must be bool")
    _require(dtypes[1] == dtypes[2] and dtypes[1] in ANY, "both values must have one compute dtype")
    return dtypes[1]


def _cast(dtypes: Dtypes, attrs: Attrs) -> torch.dtype:
    target = _dtype_attr(attrs, 0, 1)
    _require(dtypes[0] in ANY and target in ANY, "casts between compute dtypes")
    return target


def _bitcast(dtypes: Dtypes, attrs: Attrs) -> torch.dtype:
    source, target = _dtype_attr(attrs, 0, 2), _dtype_attr(attrs, 1, 2)
    _require(compute_dtype(source) == dtypes[0], f"values of {source} are computed in {compute_dtype(source)}")
    _require(source.itemsize == target.itemsize and compute_dtype(target) in ANY, "dtypes must have one width")
    return compute_dtype(target)


def _round_to(dtypes: Dtypes, attrs: Attrs) -> torch.dtype:
    low = _dtype_attr(attrs, 0, 1)
    _require(dtypes[0] == torch.float32 and low.is_floating_point and low.itemsize < 4, "rounds f32 to a shorter float")
    return torch.float32


def _to_int(dtypes: Dtypes, attrs: Attrs) -> torch.dtype:
    target = _dtype_attr(attrs, 0, 1)
    _require(dtypes[0] in NUMBERS and target in INTEGERS, "turns a number into an integer dtype")
    return target


def _int_truediv(dtypes: Dtypes, attrs: Attrs) -> torch.dtype:
    target = _dtype_attr(attrs, 0, 1) if attrs else torch.float32
    _require(set(dtypes) <= INTEGERS and target in FLOATS, "divides integers, giving f32 or f64")
    return target


def _random(dtypes: Dtypes, attrs: Attrs) -> torch.dtype:
    _require(dtypes[0] == torch.int64 and dtypes[1] in INTEGERS, "operands must be an int64 seed and an integer offset")
    _require(attrs in ((), (4,)), "attributes must be none or 4")
    return torch.float32


def _randint64(dtypes: Dtypes, attrs: Attrs) -> torch.dtype:
    _require(set(dtypes) <= INTEGERS and not attrs, "operands must be integers")
    _require(dtypes[0] == torch.int64, "the seed must be int64")
    return torch.int64


_RULES: tuple[tuple[int, ResultRule, str], ...] = (
    (1, _same(FLOATS), """
        acos acosh airy_ai asin asinh atan atanh bessel_j0 bessel_j1 bessel_y0 bessel_y1 cos cosh digamma erf erfc erfcx
        erfinv exp exp2 expm1 frexp_mantissa i0 i0e i1 i1e lgamma log log10 log1p log2 log_ndtr modified_bessel_i0
        modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 ndtr ndtri reciprocal rsqrt scaled_modified_bessel_k0
        scaled_modified_bessel_k1 sigmoid sin sinh spherical_bessel_j0 sqrt tan tanh"""),
    (1, _same(FLOATS, torch.int32), "frexp_exponent"),
    (1, _same(NUMBERS), "abs ceil floor neg relu round sign square trunc"),
    (1, _same(ANY), "identity"),
    (1, _same(ANY, torch.bool), "isinf isnan"),
    (1, _same(NUMBERS, torch.bool), "signbit"),
    (1, _same(INTEGERS | {torch.bool}), "bitwise_not"),
    (1, _logical, "logical_not"),
    (1, _to_int, "ceil_to_int floor_to_int round_to_int trunc_to_int"),
    (1, _cast, "cast"),
    (1, _bitcast, "bitcast"),
    (1, _round_to, "round_to"),
    (2, _same(FLOATS), """
        atan2 chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w copysign
        div_rn gammainc gammaincc hermite_polynomial_h hermite_polynomial_he hypot igamma igammac laguerre_polynomial_l
        legendre_polynomial_p nextafter polygamma shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u
        shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w truediv zeta"""),
    (2, _same(NUMBERS), "floordiv fmod mod pow remainder sub truncdiv"),
    (2, _same(ANY), "add maximum minimum mul mul_rn"),
    (2, _same(ANY, torch.bool), "eq ge gt le lt ne"),
    (2, _same(INTEGERS | {torch.bool}), "and_ bitwise_and bitwise_or bitwise_xor or_ xor"),
    (2, _logical, "logical_and logical_or logical_xor"),
    (2, _shift, "bitwise_left_shift bitwise_right_shift lshift rshift"),
    (2, _ldexp, "ldexp"),
    (2, _int_truediv, "int_truediv"),
    (2, _random, "rand randn"),
    (3, _same(FLOATS), "fma"),
    (3, _where, "where"),
    (4, _randint64, "randint64"),
)  # fmt: skip


def _table(rules: Iterable[tuple[int, ResultRule, str]]) -> Mapping[str, Op]:
    ops = {n: Op(n, arity, rule, _evaluator(n)) for arity, rule, names in rules for n in names.split()}
    return MappingProxyType(dict(sorted(ops.items())))


def _evaluator(name: str) -> Callable[..., torch.Tensor]:
    formula = FORMULAS[name]

    def evaluate(*operands: torch.Tensor, attrs: Attrs = (), dtype: torch.dtype) -> torch.Tensor:
        value = formula(*operands, *attrs)
        assert value.dtype == dtype, f"{name} gave {value.dtype}, not {dtype}"
        return value

    return evaluate


OPS: Mapping[str, Op] = _table(_RULES)
