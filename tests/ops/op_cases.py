"""Every application of an opcode that the table accepts, with operands that hold the dtype's special values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from helion_inductor.errors import UnsupportedError
from helion_inductor.ir.ops import ANY, FLOATS, INTEGERS, OPS, result_dtype

LOW = (torch.float16, torch.bfloat16, torch.float8_e4m3fn)
_BY_WIDTH = (
    (torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn),
    (torch.int16, torch.uint16, torch.float16, torch.bfloat16),
    (torch.int32, torch.uint32, torch.float32),
    (torch.int64, torch.uint64, torch.float64),
)


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def ordered(dtypes: frozenset[torch.dtype]) -> list[torch.dtype]:
    return sorted(dtypes, key=name_of)


@dataclass(frozen=True)
class Case:
    """One opcode applied to operands of given dtypes."""

    op: str
    dtypes: tuple[torch.dtype, ...]
    attrs: tuple[object, ...] = ()

    @property
    def result(self) -> torch.dtype:
        return result_dtype(self.op, self.dtypes, self.attrs)

    def evaluate(self, *operands: torch.Tensor) -> torch.Tensor:
        return OPS[self.op].evaluate(*operands, attrs=self.attrs, dtype=self.result)

    def __str__(self) -> str:
        attrs = "{" + ", ".join(name_of(a) for a in self.attrs) + "}" if self.attrs else ""
        return f"{self.op}({', '.join(map(name_of, self.dtypes))}){attrs}"


def _attributes(op: str, dtypes: tuple[torch.dtype, ...]) -> Iterator[tuple[object, ...]]:
    if op == "cast":
        yield from ((d,) for d in ordered(ANY))
    elif op == "round_to":
        yield from ((d,) for d in LOW)
    elif op.endswith("_to_int"):
        yield from ((d,) for d in ordered(INTEGERS))
    elif op == "int_truediv":
        yield from ((), (torch.float32,), (torch.float64,))
    elif op == "bitcast":
        yield from (pair for same in _BY_WIDTH for pair in itertools.product(same, same))
    elif op in ("rand", "randn"):
        yield from ((), (4,))
    else:
        yield ()


def _operand_dtypes(op: str) -> Iterator[tuple[torch.dtype, ...]]:
    arity = OPS[op].arity
    yield from ((d,) * arity for d in ordered(ANY))
    if op == "where":
        yield from ((torch.bool, d, d) for d in ordered(ANY - {torch.bool}))
    if op == "ldexp":
        yield from itertools.product(ordered(FLOATS), (torch.int32, torch.int64))
    if op in ("rand", "randn"):
        yield torch.int64, torch.int32
    if op in ("lshift", "rshift"):
        yield torch.int32, torch.int64
        yield torch.uint8, torch.int64
    if op == "logical_and":
        yield torch.bool, torch.float32


def accepted(op: str) -> Iterator[Case]:
    """The cases of `op` that the table gives a meaning."""
    for dtypes in _operand_dtypes(op):
        for attrs in _attributes(op, dtypes):
            try:
                result_dtype(op, dtypes, attrs)
            except UnsupportedError:
                continue
            yield Case(op, dtypes, attrs)


def all_cases() -> list[Case]:
    return [case for op in OPS for case in accepted(op)]


def special_values(dtype: torch.dtype) -> torch.Tensor:
    """Extremes, signs of zero, denormals, halves, small and large numbers; 1-d."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        limits = [info.max, info.tiny, info.tiny / 4, info.smallest_normal * 1.5, info.eps]
        plain = [0.0, 0.1, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 5.3, 7.0, 100.0, 255.0, 1000.5, 1e6, 3e9, torch.inf]
        positive = torch.tensor([*plain, *limits], dtype=torch.float64)
        return torch.cat([positive, -positive, torch.tensor([torch.nan], dtype=torch.float64)]).to(dtype)
    info = torch.iinfo(dtype)
    near = [0, 1, 2, 3, 5, 7, 8, 10, 31, 33, 64, 100]
    numbers = [*near, *(-n for n in near), info.min, info.min + 1, info.max, info.max - 1, info.max // 2 + 1, 77777]
    return torch.tensor(sorted({n for n in numbers if info.min <= n <= info.max}), dtype=dtype)


def degrees(case: Case) -> tuple[int, list[float]] | None:
    """The operand that is a degree or an order, and what it may be; time is linear in it."""
    if "polynomial" in case.op:
        return 1, [-1.0, 0.0, 1.0, 2.0, 5.0]
    return (0, [0.0, 1.0, 2.0, 4.0]) if case.op == "polygamma" else None


def operands(case: Case) -> list[torch.Tensor]:
    """One tensor an operand, all of one length: every combination of special values (of some, for three and more).

    Values that a conversion from float to integer leaves undefined are left out.
    """
    columns = [special_values(d) for d in case.dtypes]
    if (limited := degrees(case)) is not None:
        columns[limited[0]] = torch.tensor(limited[1], dtype=case.dtypes[0])
    if len(columns) > 2:
        columns = [c if len(c) < 3 else c[:: max(1, len(c) * len(columns) // 33)] for c in columns]
    grid = torch.meshgrid(*(torch.arange(len(c)) for c in columns), indexing="ij")
    values = [c[index.flatten()] for c, index in zip(columns, grid)]
    bounds = _conversion_bounds(case)
    if bounds is not None:
        values[0] = torch.where((values[0].double() > bounds[0]) & (values[0].double() < bounds[1]), values[0], 3.25)
    return values


def _conversion_bounds(case: Case) -> tuple[float, float] | None:
    if not (case.op == "cast" or case.op.endswith("_to_int")) or case.dtypes[0] not in FLOATS:
        return None
    target = case.result
    if target not in INTEGERS:
        return None
    info = torch.iinfo(target)
    if target == torch.uint64 and case.op == "floor_to_int":
        return -5e-324, info.max  # -0.5 is -1 by then
    # Eager wraps in uint8, and only there.
    return (-200, 1000) if target == torch.uint8 else (info.min - 1 if info.min == 0 else info.min, info.max)


def same(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """Equal to the bit, except that NaNs are alike; -0.0 is not 0.0."""
    return bool(_alike(actual, expected).all())


def differences(actual: torch.Tensor, expected: torch.Tensor, inputs: list[torch.Tensor], limit: int = 4) -> str:
    """The first few elements that are not alike, with the operands that gave them."""
    where = (~_alike(actual, expected)).nonzero().flatten().tolist()
    shown = [f"{[x[i].item() for x in inputs]} -> {actual[i].item()}, not {expected[i].item()}" for i in where[:limit]]
    return f"{len(where)} of {len(expected)}: " + "; ".join(shown)


def _alike(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    assert actual.dtype == expected.dtype, f"{actual.dtype}, not {expected.dtype}"
    if not expected.dtype.is_floating_point:
        return actual == expected
    nan = actual.isnan() & expected.isnan()
    return nan | ((actual == expected) & (actual.signbit() == expected.signbit()))


def close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> torch.Tensor:
    """Which elements agree within `tolerance` relative to the greater of 1e-30 and the expected magnitude."""
    assert actual.dtype == expected.dtype, f"{actual.dtype}, not {expected.dtype}"
    if not expected.dtype.is_floating_point:
        return actual == expected
    exact = (actual == expected) | (actual.isnan() & expected.isnan())
    return exact | ((actual - expected).abs() <= tolerance * expected.abs().clamp(min=1e-30))
