"""Rules about dtypes: what a statement's values, masks, indices and literals must be. See ``verify_nest``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from ..errors import UnsupportedError
from .index import Expr, names_in, values_in
from .ops import INTEGERS, OPS, result_dtype
from .printer import dtype_name, literal_text
from .tile_ir import (
    COMPUTE_DTYPES,
    Atomic,
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
    indices,
)


@dataclass(frozen=True)
class Scope:
    """What one statement may mention. ``dtypes`` and ``over`` hold the dtype and the axes of each earlier value."""

    nest: LoopNest
    buffers: Mapping[str, Buffer]
    names: frozenset[str]
    dtypes: dict[int, torch.dtype]
    over: dict[int, frozenset[str]]

    def axes_of(self, index: Expr) -> frozenset[str]:
        """Axes over which an index expression varies, those of its indirect values included."""
        own = names_in(index) & frozenset(self.nest.extents())
        return own.union(*(self.over[v] for v in values_in(index)))


def value_dtype(stmt: Stmt, scope: Scope) -> str | None:
    """A value has a compute dtype; half and 8-bit floats exist in memory only."""
    if isinstance(stmt, (Store, Atomic, Check)) or stmt.dtype in COMPUTE_DTYPES:
        return None
    return f"{dtype_name(stmt.dtype)} is not a compute dtype"


def mask_is_bool(stmt: Stmt, scope: Scope) -> str | None:
    """A mask is a bool value."""
    if not isinstance(stmt, (Load, Store, Atomic, Check)) or stmt.mask is None:
        return None
    dtype = scope.dtypes[stmt.mask]
    return None if dtype == torch.bool else f"the mask %{stmt.mask} is {dtype_name(dtype)}"


def index_is_i64(stmt: Stmt, scope: Scope) -> str | None:
    """Values that index, or whose bounds are checked, are int64: offsets never wrap."""
    used = [v for e in indices(stmt) for v in values_in(e)] + ([stmt.value] if isinstance(stmt, Check) else [])
    bad = [v for v in used if scope.dtypes[v] != torch.int64]
    return f"%{bad[0]} indexes, but is {dtype_name(scope.dtypes[bad[0]])}" if bad else None


def _expect(what: str, got: torch.dtype, want: torch.dtype) -> str | None:
    return None if got == want else f"{what} is {dtype_name(want)}, not {dtype_name(got)}"


def dtype_of_load(stmt: Stmt, scope: Scope) -> str | None:
    """A load gives the compute dtype of its buffer."""
    if not isinstance(stmt, Load):
        return None
    return _expect(f"a value of {stmt.buffer}", stmt.dtype, compute_dtype(scope.buffers[stmt.buffer].dtype))


def dtype_of_store(stmt: Stmt, scope: Scope) -> str | None:
    """What is stored, or added in memory, has the compute dtype of the buffer."""
    if not isinstance(stmt, (Store, Atomic)):
        return None
    want = compute_dtype(scope.buffers[stmt.buffer].dtype)
    return _expect(f"a value of {stmt.buffer}", scope.dtypes[stmt.value], want)


def dtype_of_index(stmt: Stmt, scope: Scope) -> str | None:
    """An index used as a value is an integer."""
    if isinstance(stmt, Index) and stmt.dtype not in INTEGERS:
        return f"an index is an integer, not {dtype_name(stmt.dtype)}"
    return None


def literal_fits(stmt: Stmt, scope: Scope) -> str | None:
    """A literal is a value of its dtype."""
    if isinstance(stmt, Const) and not _fits(stmt.value, stmt.dtype):
        return f"{literal_text(stmt.value)} is no {dtype_name(stmt.dtype)}"
    if isinstance(stmt, Load) and not _fits(stmt.other, stmt.dtype):
        return f"{literal_text(stmt.other)} is no {dtype_name(stmt.dtype)}"
    return None


def _fits(value: Literal, dtype: torch.dtype) -> bool:
    if dtype == torch.bool:
        return value in (False, True)
    if dtype.is_floating_point:
        return True
    if isinstance(value, float):
        return False
    limits = torch.iinfo(dtype)
    return limits.min <= value <= limits.max


def other_needs_mask(stmt: Stmt, scope: Scope) -> str | None:
    """A load without a mask says nothing about the elements that a mask leaves out."""
    if isinstance(stmt, Load) and stmt.mask is None and (math.isnan(stmt.other) or stmt.other != 0):
        return f"a load without a mask has {literal_text(stmt.other)} for masked elements"
    return None


def op_arity(stmt: Stmt, scope: Scope) -> str | None:
    """An op has as many operands as its table entry says."""
    if not isinstance(stmt, Map) or len(stmt.args) == OPS[stmt.op].arity:
        return None
    return f"{stmt.op} takes {OPS[stmt.op].arity} operands, not {len(stmt.args)}"


def operands_promoted(stmt: Stmt, scope: Scope) -> str | None:
    """The op has a meaning for these dtypes and attributes: operands have been promoted to one dtype beforehand."""
    if not isinstance(stmt, Map):
        return None
    try:
        result_dtype(stmt.op, tuple(scope.dtypes[a] for a in stmt.args), stmt.attrs)
    except UnsupportedError as error:
        return error.reason.detail
    return None


def dtype_of_op(stmt: Stmt, scope: Scope) -> str | None:
    """A Map has the dtype that its op gives for its operands."""
    if not isinstance(stmt, Map):
        return None
    want = result_dtype(stmt.op, tuple(scope.dtypes[a] for a in stmt.args), stmt.attrs)
    return _expect(f"{stmt.op} of these operands", stmt.dtype, want)


def dtype_of_fold(stmt: Stmt, scope: Scope) -> str | None:
    """``argmax`` and ``argmin`` give int64, other reductions and scans what they fold; ``any`` folds bool."""
    if not isinstance(stmt, (Reduce, Scan)):
        return None
    got = scope.dtypes[stmt.arg]
    if stmt.kind == "any" and got != torch.bool:
        return f"any folds bool, not {dtype_name(got)}"
    want = torch.int64 if stmt.kind in ("argmax", "argmin") else got
    return _expect(f"{stmt.kind} of {dtype_name(got)}", stmt.dtype, want)


DTYPE_RULES: tuple[Callable[[Stmt, Scope], str | None], ...] = (
    value_dtype, mask_is_bool, index_is_i64, dtype_of_load, dtype_of_store, dtype_of_index, literal_fits,
    other_needs_mask, op_arity, operands_promoted, dtype_of_op, dtype_of_fold,
)  # fmt: skip
