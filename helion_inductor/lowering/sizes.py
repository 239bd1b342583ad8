"""Names for sizes: what index arithmetic may take apart, and what it had better not look into.

A size of a traced graph is an expression over the graph's size symbols. Sums and products of symbols simplify well; quotients
and the like (what a strided convolution makes of an image's height) do not: two of them inside one index polynomial are enough
for its simplification to take minutes. Each such subexpression therefore becomes a size of its own, ``z0``, ``z1``, ...: the
region is told its value with every call, as it is told those of the symbols.

What gets the name is, where possible, a whole dimension: with ``z0 = floordiv(s - 1, 2) + 1`` an area is the monomial
``z0**2``, which divides and cancels, while ``(z0 + 1)**2`` would not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sympy

from ..errors import Unsupported, UnsupportedError
from ..ir.index import Expr, FloorDiv, Mod, symbol


class SizeNames:
    """Converts one region's index arithmetic, and keeps the names it gave.

    ``lower`` maps every size symbol to its least value and grows with the names given; ``least`` bounds any expression over
    the graph's symbols from below; ``dimensions`` are the sizes that names are given to first.
    """

    def __init__(self, lower: Mapping[str, int], least: Callable[[Any], int], dimensions: Iterable[Any] = ()) -> None:
        self.lower = dict(lower)
        self._plain = frozenset(lower)
        self._least = least
        self._values: dict[str, Any] = {}
        self._named: dict[Any, Expr] = {}
        self._converted: dict[Any, Expr] = {}
        for size in dimensions:
            offset, rest = sympy.sympify(size).as_coeff_Add()
            if rest.is_Function and rest not in self._named:
                self._named[rest] = self._name(size) - offset

    def values(self) -> dict[str, Any]:
        """Given name -> what it stands for, over the graph's symbols."""
        return dict(self._values)

    def of_size(self, size: Any) -> Expr:
        """A Python int or SymInt as an index expression."""
        return self.convert(size if isinstance(size, int) else size.node.expr)

    def convert(self, e: Any) -> Expr:
        """Inductor's index arithmetic (or a plain int) -> ours.

        Raises ``UnsupportedError`` for a function of axes that the grammar lacks.
        """
        e = sympy.sympify(e)
        if e not in self._converted:
            self._converted[e] = self._convert(e)
        return self._converted[e]

    def _convert(self, e: Any) -> Expr:
        if e.is_Integer or e.is_Symbol:
            return symbol(e.name) if e.is_Symbol else e
        name = e.func.__name__
        if name == "Identity":
            return self.convert(e.args[0])
        if e.is_Add or e.is_Mul or (e.is_Pow and e.exp.is_Integer and int(e.exp) > 0):
            return sympy.expand(e.func(*map(self.convert, e.args)))
        if e.is_integer and all(s.name in self._plain for s in e.free_symbols):
            if e not in self._named:
                self._named[e] = self._name(e)
            return self._named[e]
        args = [self.convert(a) for a in e.args]
        if name == "ModularIndexing":
            return Mod(FloorDiv(args[0], args[1]), args[2])
        if name in ("FloorDiv", "CleanDiv"):
            return FloorDiv(args[0], args[1])
        if name in ("Mod", "PythonMod"):
            return Mod(args[0], args[1])
        if name in ("Min", "Max"):
            return getattr(sympy, name)(*args)
        if name == "Abs":
            return sympy.Max(args[0], -args[0])
        raise UnsupportedError(Unsupported("index-function", f"index expression uses {name}"))

    def _name(self, e: Any) -> sympy.Symbol:
        name = symbol(f"z{len(self._values)}")
        self._values[name.name] = e
        self.lower[name.name] = self._least(e)
        return name
