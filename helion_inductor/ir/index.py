"""Index expressions: integer arithmetic over axes, size symbols and loaded values.

Grammar (text form, also what :func:`parse` reads back to an equal expression)::

    expr ::= INT | NAME | "%" INT | "-" expr | expr ("+" | "-" | "*") expr | expr "**" INT
           | "floordiv(" expr "," expr ")" | "mod(" expr "," expr ")" | "min(" expr "," expr ")" | "max(" ... ")"

``floordiv`` rounds towards minus infinity and ``mod`` has the sign of its divisor, as in Python.
``%7`` stands for SSA value 7 of the enclosing nest (an indirect index).  Expressions are sympy's, so sums and products
are canonical and equality is structural; only the two division functions are ours.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

import sympy

Expr: TypeAlias = sympy.Expr
ZERO: Expr = sympy.Integer(0)
ONE: Expr = sympy.Integer(1)
_VALUE = re.compile(r"%(\d+)$")


def symbol(name: str) -> sympy.Symbol:
    """The one symbol of this name; ``%3`` for a value, anything else for an axis or a size."""
    return sympy.Symbol(name, integer=True)


def value_symbol(value: int) -> sympy.Symbol:
    """The symbol by which an index expression mentions SSA value ``value``."""
    return symbol(f"%{value}")


def integer(value: int) -> Expr:
    return sympy.Integer(value)


class FloorDiv(sympy.Function):
    """``floordiv(a, b)``: a / b rounded towards minus infinity; b is positive."""

    nargs = (2,)
    is_integer = True

    @classmethod
    def eval(cls, a: Expr, b: Expr) -> Expr | None:
        if b == 1 or a == 0:
            return a
        if a.is_Integer and b.is_Integer and b != 0:
            return sympy.Integer(int(a) // int(b))
        if a == b and b.is_Symbol:
            return ONE
        return None


class Mod(sympy.Function):
    """``mod(a, b)``: a - b * floordiv(a, b); in [0, b) for positive b."""

    nargs = (2,)
    is_integer = True

    @classmethod
    def eval(cls, a: Expr, b: Expr) -> Expr | None:
        if b == 1 or a == 0 or a == b:
            return ZERO
        if a.is_Integer and b.is_Integer and b != 0:
            return sympy.Integer(int(a) % int(b))
        return None


def values_in(expr: Expr) -> tuple[int, ...]:
    """SSA values mentioned by ``expr``, ascending."""
    found = (_VALUE.match(s.name) for s in expr.free_symbols)
    return tuple(sorted(int(m.group(1)) for m in found if m))


def names_in(expr: Expr) -> frozenset[str]:
    """Axes and size symbols mentioned by ``expr``."""
    return frozenset(s.name for s in expr.free_symbols if not s.name.startswith("%"))


def substitute(expr: Expr, mapping: Mapping[sympy.Symbol, Expr]) -> Expr:
    """Simultaneous substitution."""
    hit = {s: mapping[s] for s in expr.free_symbols if s in mapping}
    return expr.xreplace(hit) if hit else expr


def rename_values(expr: Expr, rename: Mapping[int, int]) -> Expr:
    values = values_in(expr)
    return substitute(expr, {value_symbol(v): value_symbol(rename[v]) for v in values}) if values else expr


def product(items: Iterable[Expr]) -> Expr:
    result: Expr = ONE
    for item in items:
        result = result * item
    return result


def ceil_div(a: Expr, b: Expr) -> Expr:
    return FloorDiv(a + b - 1, b)


@lru_cache(maxsize=65536)
def to_text(expr: Expr) -> str:
    """The text form of the grammar above."""
    return _print(expr, 0)


def _negative(term: Expr) -> bool:
    return bool(term.as_coeff_Mul()[0] < 0)


def _print(e: Expr, level: int) -> str:
    if e.is_Integer:
        return str(int(e)) if int(e) >= 0 or level == 0 else f"({int(e)})"
    if e.is_Symbol:
        return str(e.name)
    if e.is_Add:
        first, *rest = sorted(e.args, key=lambda t: (_negative(t), bool(t.is_Integer), str(t)))
        text = _print(first, 1) + "".join(f" - {_print(-t, 1)}" if _negative(t) else f" + {_print(t, 1)}" for t in rest)
        return f"({text})" if level > 1 else text
    if e.is_Mul:
        return " * ".join(_print(t, 2) for t in sorted(e.args, key=lambda t: (not t.is_Integer, str(t))))
    if e.is_Pow and e.exp.is_Integer and int(e.exp) > 0:
        return f"{_print(e.base, 3)}**{int(e.exp)}"
    for kind, name in ((FloorDiv, "floordiv"), (Mod, "mod"), (sympy.Min, "min"), (sympy.Max, "max")):
        if isinstance(e, kind):
            return f"{name}({', '.join(_print(a, 0) for a in e.args)})"
    raise ValueError(f"not an index expression: {e!r}")


_CALLS: Mapping[str, Callable[..., Expr]] = {"floordiv": FloorDiv, "mod": Mod, "min": sympy.Min, "max": sympy.Max}


def parse(text: str) -> Expr:
    """Read the text form; raises ``ValueError`` that shows the offending text."""
    try:
        tree = ast.parse(re.sub(r"%(\d+)", r" _value_\1", text).strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"not an index expression: {text!r}") from error
    return _build(tree, text)


def _factors(node: ast.AST) -> list[ast.AST]:
    match node:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return [*_factors(left), *_factors(right)]
    return [node]


def _build(node: ast.AST, text: str) -> Expr:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return sympy.Integer(value)
        case ast.Name(id=name):
            return symbol("%" + name.removeprefix("_value_") if name.startswith("_value_") else name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_build(operand, text)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _build(left, text) + _build(right, text)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _build(left, text) - _build(right, text)
        case ast.BinOp(op=ast.Mult()):
            # All factors at once: sympy multiplies a lone number into a sum, and 2 * (a + b) * c would lose its form.
            return sympy.Mul(*[_build(factor, text) for factor in _factors(node)])
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(exponent))):
            return _build(left, text) ** exponent
        case ast.Call(func=ast.Name(id=("floordiv" | "mod") as name), args=[a, b], keywords=[]):
            return _CALLS[name](_build(a, text), _build(b, text))
        case ast.Call(func=ast.Name(id=("min" | "max") as name), args=args, keywords=[]) if args:
            return _CALLS[name](*[_build(a, text) for a in args])
    raise ValueError(f"not an index expression: {text!r}")
