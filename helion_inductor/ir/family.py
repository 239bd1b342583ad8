"""Families: nests whose bodies are equal up to the buffers they touch and the integers of their extents and indices.

``signature`` is equal for nests that can be one family; ``common_form`` writes them as one template with parameters.

An index expression is read as a sum of monomials, each a coefficient (integers and sizes) times axes, loaded values and
divisions; the arguments of a division are read the same way. Nests agree when their monomials do: coefficients, constants,
divisors and extents may differ. What a kernel's speed hangs on must agree too: coefficients of 1, where memory is walked
element by element, and there also whether the other terms keep the access on a multiple of 16 bytes.

Sympy orders the terms of a sum by their value, so expressions are never compared term by term in its order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count

import sympy

from .index import ONE, ZERO, Expr, FloorDiv, Mod, names_in, product, substitute, symbol
from .tile_ir import Atomic, Axis, Buffer, Check, Index, Load, LoopNest, Stmt, Store, TileProgram, indices

Form = tuple[object, ...]
"""What is equal among members, as nested tuples of strings and integers. An expression's is ("sum", monomial...), a
monomial's (its unit coefficient or 0, (factor, power)...), a factor's a name or (function, expression...)."""
Slots = tuple[Expr, ...]
"""What may differ, in the order in which the form is walked."""

_FUNCTIONS: tuple[tuple[type[sympy.Function], str], ...] = (
    (FloorDiv, "floordiv"), (Mod, "mod"), (sympy.Min, "min"), (sympy.Max, "max"),
)  # fmt: skip
_LINE_BYTES = 16  # of the widest load or store
_UNKNOWN = -(2**62)


@dataclass(frozen=True)
class Family:
    """``template`` over stand-in ``arguments`` and parameter ``symbols``; one row of ``buffers`` and ``parameters`` per member.

    ``lower`` holds the least value of each parameter over all members.
    """

    template: LoopNest
    arguments: tuple[Buffer, ...]
    symbols: tuple[str, ...]
    lower: tuple[int, ...]
    members: tuple[str, ...]
    buffers: tuple[tuple[str, ...], ...]
    parameters: tuple[tuple[Expr, ...], ...]

    def ranges(self) -> dict[str, int]:
        return dict(zip(self.symbols, self.lower, strict=True))

    def multiple(self, parameter: int) -> int:
        """The greatest integer known to divide a parameter in every member; 0 where it is 0 in all."""
        column = [row[parameter] for row in self.parameters]
        return math.gcd(*map(int, column)) if all(e.is_Integer for e in column) else 1

    def member(self, number: int) -> LoopNest:
        """The nest that the template stands for."""
        values = {symbol(s): e for s, e in zip(self.symbols, self.parameters[number], strict=True)}
        rename = {a.name: b for a, b in zip(self.arguments, self.buffers[number], strict=True)}
        nest = self.template

        def axes(old: tuple[Axis, ...]) -> tuple[Axis, ...]:
            return tuple(Axis(a.name, substitute(a.extent, values)) for a in old)

        body = tuple(_with(s, rename, [substitute(e, values) for e in indices(s)]) for s in nest.body)
        return replace(nest, name=self.members[number], parallel=axes(nest.parallel), reduce=axes(nest.reduce), body=body)


def touched(nest: LoopNest) -> tuple[str, ...]:
    """Buffers in the order in which the body first mentions them."""
    return tuple(dict.fromkeys(s.buffer for s in nest.body if isinstance(s, (Load, Store, Atomic))))


def in_all(rows: Sequence[Sequence[str]]) -> dict[int, str]:
    """Columns, by position, in which all rows have one buffer: a table of weights, say, that every member reads."""
    return {k: column[0] for k, column in enumerate(zip(*rows, strict=True)) if len(set(column)) == 1}


def signature(nest: LoopNest, buffers: Mapping[str, Buffer]) -> Form:
    """Equal for nests of one form, and hashable; ``buffers`` are those of the program, by name."""
    known = nest.memo.get("form")
    if known is None or known[0] is not buffers:
        known = nest.memo["form"] = buffers, _signature(nest, buffers)
    form: Form = known[1]
    return form


def _signature(nest: LoopNest, buffers: Mapping[str, Buffer]) -> Form:
    names = touched(nest)
    storages = [buffers[b].aliases or b for b in names]
    axes = frozenset(nest.extents())
    stand_in = {b: f"b{k}" for k, b in enumerate(names)}
    body = []
    for s in nest.body:
        forms = tuple(_read(e, axes)[0] for e in indices(s))
        aligned = _alignment(s.index, axes, buffers[s.buffer]) if isinstance(s, (Load, Store, Atomic)) else ()
        # The repr holds all that is neither buffer nor index: literals with sign and type, dtypes, operands.
        body.append((repr(_with(s, stand_in, [ZERO] * len(forms))), forms, aligned))
    return (
        tuple(a.name for a in nest.parallel), tuple(a.name for a in nest.reduce), tuple(body),
        tuple((buffers[b].dtype, storages.index(s)) for b, s in zip(names, storages, strict=True)),
        _even_extents(nest, buffers),
    )  # fmt: skip


def common_form(nests: Sequence[LoopNest], program: TileProgram) -> Family:
    """The family of nests of one signature, in this order; raises ``ValueError`` where signatures differ."""
    by_name, lower = program.by_name(), program.lower()
    if len({signature(n, by_name) for n in nests}) != 1:
        raise ValueError(f"no common form: {', '.join(n.name for n in nests)}")
    first = nests[0]
    rows = [_slots(n) for n in nests]
    taken = {s.name for row in rows for e in row for s in e.free_symbols} | set(first.extents())
    fresh = (name for name in (f"c{k}" for k in count()) if name not in taken)
    columns: dict[Slots, str] = {}
    common: list[Expr] = []
    for column in zip(*rows, strict=True):
        same = all(e == column[0] for e in column)
        common.append(column[0] if same else symbol(columns[column] if column in columns else columns.setdefault(column, next(fresh))))
    rename = {b: f"b{k}" for k, b in enumerate(touched(first))}
    return Family(
        template=_rebuilt(first, rename, iter(common)),
        arguments=tuple(replace(by_name[b], name=name, aliases=None) for b, name in rename.items()),
        symbols=tuple(columns.values()),
        lower=tuple(min(_least(e, lower) for e in column) for column in columns),
        members=tuple(n.name for n in nests),
        buffers=tuple(map(touched, nests)),
        parameters=tuple(zip(*columns, strict=True)) or ((),) * len(nests),
    )


def with_buffers(nest: LoopNest, rename: Mapping[str, str]) -> LoopNest:
    """``nest`` on other buffers."""
    return replace(nest, body=tuple(_with(s, rename, indices(s)) for s in nest.body))


def _with(stmt: Stmt, rename: Mapping[str, str], exprs: Sequence[Expr]) -> Stmt:
    match stmt:
        case Load() | Store() | Atomic():
            return replace(stmt, buffer=rename[stmt.buffer], index=exprs[0])
        case Index():
            return replace(stmt, expr=exprs[0])
        case Check():
            return replace(stmt, lower=exprs[0], upper=exprs[1])
    return stmt


def _slots(nest: LoopNest) -> Slots:
    axes = frozenset(nest.extents())
    inside = (slot for s in nest.body for e in indices(s) for slot in _read(e, axes)[1])
    return (*nest.extents().values(), *inside)


def _rebuilt(nest: LoopNest, rename: Mapping[str, str], slots: Iterator[Expr]) -> LoopNest:
    """``nest`` with other buffers and slots; an expression whose slots stay as they are keeps its form."""
    axes = frozenset(nest.extents())
    parallel, reduce = (tuple(Axis(a.name, next(slots)) for a in group) for group in (nest.parallel, nest.reduce))

    def again(e: Expr) -> Expr:
        form, own = _read(e, axes)
        mine = tuple(next(slots) for _ in own)
        return e if mine == own else _write(form, iter(mine))

    body = tuple(_with(s, rename, [again(e) for e in indices(s)]) for s in nest.body)
    return replace(nest, parallel=parallel, reduce=reduce, body=body)


def _varies(e: Expr, axes: frozenset[str]) -> bool:
    return any(s.name in axes or s.name.startswith("%") for s in e.free_symbols)


def _monomials(e: Expr, axes: frozenset[str]) -> dict[Expr, Expr]:
    """What varies -> its coefficient; the constant term is that of 1."""
    found: dict[Expr, Expr] = {ONE: ZERO}
    for term in sympy.Add.make_args(sympy.expand(e)):
        factors = sympy.Mul.make_args(term)
        varying = sympy.Mul(*[f for f in factors if _varies(f, axes)])
        found[varying] = found.get(varying, ZERO) + product(f for f in factors if not _varies(f, axes))
    return found


@lru_cache(maxsize=65536)
def _read(e: Expr, axes: frozenset[str]) -> tuple[Form, Slots]:
    """The form of an expression, and its slots: the constant term, then coefficient and inner slots of each monomial."""
    monomials = _monomials(e, axes)
    constant = monomials.pop(ONE)
    parts: list[tuple[Form, Slots]] = []
    for varying, coefficient in monomials.items():
        factors, inner = _read_factors(varying, axes)
        unit = int(coefficient) if coefficient in (1, -1) else 0
        parts.append(((unit, *factors), inner if unit else (coefficient, *inner)))
    parts.sort(key=lambda part: (repr(part[0]), [str(s) for s in part[1]]))
    return ("sum", *(form for form, _ in parts)), (constant, *(s for _, slots in parts for s in slots))


def _read_factors(varying: Expr, axes: frozenset[str]) -> tuple[Form, Slots]:
    parts: list[tuple[Form, Slots]] = []
    for factor in sympy.Mul.make_args(varying):
        base, power = factor.as_base_exp()
        name = next((n for kind, n in _FUNCTIONS if isinstance(base, kind)), None)
        if base.is_Symbol:
            parts.append(((base.name, int(power)), ()))
            continue
        if name is None:
            raise ValueError(f"not an index expression: {varying}")
        read = [_read(a, axes) for a in base.args]
        if name in ("min", "max"):
            read.sort(key=lambda part: (repr(part[0]), [str(s) for s in part[1]]))
        parts.append((((name, *(form for form, _ in read)), int(power)), tuple(s for _, slots in read for s in slots)))
    parts.sort(key=lambda part: (repr(part[0]), [str(s) for s in part[1]]))
    return tuple(form for form, _ in parts), tuple(s for _, slots in parts for s in slots)


def _write(form: Form, slots: Iterator[Expr]) -> Expr:
    """The inverse of ``_read``."""
    total = next(slots)
    for monomial in form[1:]:
        assert isinstance(monomial, tuple)
        unit, *factors = monomial
        total = total + product([unit if unit else next(slots), *(_write_factor(f, p, slots) for f, p in factors)])
    return total


def _write_factor(factor: str | Form, power: int, slots: Iterator[Expr]) -> Expr:
    if isinstance(factor, str):
        return symbol(factor) ** power
    kind = next(kind for kind, name in _FUNCTIONS if name == factor[0])
    return kind(*[_write(a, slots) for a in factor[1:] if isinstance(a, tuple)]) ** power


def _alignment(index: Expr, axes: frozenset[str], buffer: Buffer) -> Form:
    """Where an axis walks memory element by element: for each other term, whether it is a whole number of widest accesses."""
    monomials = sorted(_monomials(index, axes).items(), key=lambda m: str(m[0]))
    others = [c for e, c in monomials if not (c == 1 and e.is_Symbol and e.name in axes)]
    return tuple(_even(c, buffer.dtype.itemsize) for c in others) if len(others) < len(monomials) else ()


def _even(e: Expr, itemsize: int) -> bool | None:
    return int(e) * itemsize % _LINE_BYTES == 0 if e.is_Integer else None


def _even_extents(nest: LoopNest, buffers: Mapping[str, Buffer]) -> Form:
    """For parallel and reduce axes, where one of them walks memory element by element: whether masks cut whole accesses off."""
    axes = frozenset(nest.extents())
    accesses = [s for s in nest.body if isinstance(s, (Load, Store, Atomic))]
    walked = {e.name for s in accesses for e, c in _monomials(s.index, axes).items() if c == 1 and e.is_Symbol}
    smallest = min((buffers[s.buffer].dtype.itemsize for s in accesses), default=_LINE_BYTES)
    return tuple(
        tuple(_even(product(a.extent for a in part), smallest) for part in (group, group[-1:])) if walked & {a.name for a in group} else ()
        for group in (nest.parallel, nest.reduce)
    )


def _least(e: Expr, lower: Mapping[str, int]) -> int:
    """A lower bound of an expression in sizes; very small where none is known."""
    shifted = sympy.expand(substitute(e, {symbol(n): symbol(n) + lower.get(n, 0) for n in names_in(e)}))
    coefficients = shifted.as_coefficients_dict()
    constant = coefficients.pop(ONE, ZERO)
    rises = all(c >= 0 for c in coefficients.values()) and not shifted.has(FloorDiv, Mod, sympy.Min, sympy.Max)
    return int(constant) if rises else _UNKNOWN
