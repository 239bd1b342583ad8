"""Range-based simplification of index expressions.

``Ranges`` says what is known: each axis lies in ``[0, extent - 1]`` and each size symbol is at least ``lower``.
The rewrites are the textbook ones for mixed-radix arithmetic; each is valid for negative dividends too, because
division floors::

    floordiv(q*d + r, d) -> q + floordiv(r, d)        floordiv(r, d) -> 0  when 0 <= r < d
    mod(q*d + r, d)      -> mod(r, d)                 mod(r, d)      -> r  when 0 <= r < d
    floordiv(a + floordiv(b, c), d) -> floordiv(a*c + b, c*d)         mod(mod(a, b*c), b) -> mod(a, b)
    floordiv(mod(a, b*c), b) -> mod(floordiv(a, b), c)
    floordiv(r, d) -> q  and  mod(r, d) -> r - q*d     when q*d <= r < (q + 1)*d
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import sympy

from .index import ONE, ZERO, Expr, FloorDiv, Mod


@dataclass(frozen=True)
class Ranges:
    """Bounds of the names in scope: ``axes`` maps an axis to its extent, ``lower`` a size symbol to its least value.

    ``least`` gives the least value of an axis where that is not 0.
    """

    axes: Mapping[str, Expr]
    lower: Mapping[str, int] = field(default_factory=dict)
    least: Mapping[str, Expr] = field(default_factory=dict)
    # Expressions share subexpressions: without these tables the walks below take time exponential in their depth.
    known_bounds: dict[Expr, tuple[Expr | None, Expr | None]] = field(default_factory=dict, init=False, compare=False, repr=False)
    known_forms: dict[Expr, Expr] = field(default_factory=dict, init=False, compare=False, repr=False)

    def of(self, name: str) -> tuple[Expr | None, Expr | None]:
        """(least, greatest) value of a name, None where unknown."""
        if name in self.axes:
            return self.least.get(name, ZERO), self.axes[name] - 1
        if name.startswith("%"):
            return None, None
        return sympy.Integer(self.lower.get(name, 0)), None


def bounds(e: Expr, r: Ranges) -> tuple[Expr | None, Expr | None]:
    """Inclusive bounds of ``e`` as expressions in size symbols; None where nothing is known."""
    if e not in r.known_bounds:
        r.known_bounds[e] = _bounds(e, r)
    return r.known_bounds[e]


def _bounds(e: Expr, r: Ranges) -> tuple[Expr | None, Expr | None]:
    if e.is_Integer:
        return e, e
    if e.is_Symbol:
        lo, hi = r.of(e.name)
        if e.name not in r.axes and lo is not None:
            return e, e
        return lo, hi
    if e.is_Add:
        parts = [bounds(a, r) for a in e.args]
        return _total([lo for lo, _ in parts]), _total([hi for _, hi in parts])
    if e.is_Mul:
        return _product_bounds(e, r)
    if e.is_Pow:
        lo, hi = bounds(e.base, r)
        return (None, None) if lo is None or not nonnegative(lo, r) else (lo**e.exp, None if hi is None else hi**e.exp)
    if isinstance(e, FloorDiv):
        lo, hi = bounds(e.args[0], r)
        if not positive(e.args[1], r):
            return None, None
        return (ZERO if lo is not None and nonnegative(lo, r) else None), _divide(hi, e.args[1])
    if isinstance(e, Mod) and positive(e.args[1], r):
        return ZERO, e.args[1] - 1
    return None, None


def _total(parts: list[Expr | None]) -> Expr | None:
    known = [p for p in parts if p is not None]
    return sum(known, ZERO) if len(known) == len(parts) else None


def _divide(hi: Expr | None, d: Expr) -> Expr | None:
    if hi is None:
        return None
    if hi.is_Integer and d.is_Integer:
        return sympy.Integer(int(hi) // int(d))
    q, rest = _split(hi + 1, d)
    return q - 1 if rest == 0 else None


def _product_bounds(e: Expr, r: Ranges) -> tuple[Expr | None, Expr | None]:
    coefficient, rest = e.as_coeff_Mul()
    if coefficient != 1:
        lo, hi = bounds(rest, r)
        if coefficient < 0:
            lo, hi = hi, lo
        return (None if lo is None else coefficient * lo), (None if hi is None else coefficient * hi)
    lo_all: Expr | None = ONE
    hi_all: Expr | None = ONE
    for a in e.args:
        lo, hi = bounds(a, r)
        if lo is None or not nonnegative(lo, r):
            return None, None
        lo_all = None if lo_all is None else lo_all * lo
        hi_all = None if hi is None or hi_all is None else hi_all * hi
    return lo_all, hi_all


def nonnegative(e: Expr, r: Ranges) -> bool:
    """True only when ``e``, a polynomial in size symbols, is provably >= 0 for all sizes in range."""
    e = sympy.expand(e)
    if e.is_Integer:
        return bool(e >= 0)
    shift: dict[Expr, Expr] = {}
    for atom in e.atoms(FloorDiv, Mod):
        if not any(s.name in r.axes or s.name.startswith("%") for s in atom.free_symbols) and _never_negative(atom, r):
            shift[atom] = sympy.Dummy()  # an opaque non-negative unknown
    e = sympy.expand(e.xreplace(shift))
    shift = {}
    for s in sorted(e.free_symbols, key=str):
        if s.name in r.axes or s.name.startswith("%"):
            lo, _ = bounds(e, r)
            return lo is not None and not (lo.free_symbols & e.free_symbols & {s}) and nonnegative(lo, r)
        shift[s] = s + r.lower.get(s.name, 0)
    e = sympy.expand(e.xreplace(shift))
    if e.is_Integer:
        return bool(e >= 0)
    try:
        coefficients = sympy.Poly(e, *sorted(e.free_symbols, key=str)).coeffs()
    except sympy.PolynomialError:
        return False
    return all(c.is_number and c >= 0 for c in coefficients)


def _never_negative(atom: Expr, r: Ranges) -> bool:
    a, d = atom.args
    return positive(d, r) and (isinstance(atom, Mod) or nonnegative(a, r))


def positive(e: Expr, r: Ranges) -> bool:
    return nonnegative(e - 1, r)


def less(a: Expr, b: Expr, r: Ranges) -> bool:
    """Provably a < b."""
    return nonnegative(b - a - 1, r)


def _split(e: Expr, d: Expr) -> tuple[Expr, Expr]:
    """(q, rest) with e == q*d + rest, q collecting the terms that d divides exactly."""
    quotient: Expr = ZERO
    rest: Expr = ZERO
    for term in sympy.Add.make_args(sympy.expand(e)):
        q = _exact(term, d)
        if q is None and term.is_Integer and d.is_Integer and abs(int(term)) >= int(d) > 0:
            quotient, rest = quotient + int(term) // int(d), rest + int(term) % int(d)
        elif q is None:
            rest = rest + term
        else:
            quotient = quotient + q
    return quotient, rest


def _exact(term: Expr, d: Expr) -> Expr | None:
    if d.is_Integer:
        coefficient, other = term.as_coeff_Mul()
        return (coefficient // d) * other if coefficient.is_Integer and coefficient % d == 0 else None
    factors = list(sympy.Mul.make_args(term))
    for wanted in sympy.Mul.make_args(d):
        if wanted in factors:
            factors.remove(wanted)
        elif wanted.is_Integer and factors and factors[0].is_Integer and factors[0] % wanted == 0:
            factors[0] = factors[0] // wanted
        else:
            return None
    return sympy.Mul(*factors)


def exact_quotient(a: Expr, d: Expr) -> Expr | None:
    """a / d when d divides every term of a; else None."""
    q, rest = _split(a, d)
    return q if rest == 0 else None


def simplify(e: Expr, r: Ranges) -> Expr:
    """Apply the rewrites bottom-up until nothing changes."""
    if e.is_Integer or e.is_Symbol:
        return e
    if e not in r.known_forms:
        r.known_forms[e] = _simplify(e, r)
    return r.known_forms[e]


def _simplify(e: Expr, r: Ranges) -> Expr:
    if not e.has(FloorDiv, Mod):
        return sympy.expand(e)
    args = [simplify(a, r) for a in e.args]
    rebuilt = e.func(*args)
    if isinstance(rebuilt, FloorDiv):
        return _floordiv(rebuilt.args[0], rebuilt.args[1], r)
    if isinstance(rebuilt, Mod):
        return _mod(rebuilt.args[0], rebuilt.args[1], r)
    rebuilt = sympy.expand(rebuilt) if rebuilt.is_Mul or rebuilt.is_Add or rebuilt.is_Pow else rebuilt
    return _recombine(rebuilt, r) if rebuilt.is_Add else rebuilt


def _within(rest: Expr, d: Expr, r: Ranges) -> bool:
    lo, hi = bounds(rest, r)
    return lo is not None and hi is not None and nonnegative(lo, r) and less(hi, d, r)


def _known_quotient(rest: Expr, d: Expr, r: Ranges) -> Expr | None:
    """floordiv(rest, d) when it is that of the least value of ``rest`` throughout."""
    lo, _ = bounds(rest, r)
    quotient = ZERO if lo is None else _split(lo, d)[0]
    return quotient if quotient != 0 and _within(rest - quotient * d, d, r) else None


def _floordiv(a: Expr, d: Expr, r: Ranges) -> Expr:
    quotient, rest = _split(a, d)
    if _within(rest, d, r):
        return quotient
    if (multiple := _known_quotient(rest, d, r)) is not None:
        return quotient + multiple
    if (common := _common(rest, d, r)) is not None:
        return quotient + _floordiv(common[0], common[1], r)
    if (inner := _lone_quotient(rest)) is not None and positive(inner.args[1], r) and positive(d, r):
        dividend, divisor = inner.args
        return quotient + _floordiv(sympy.expand((rest - inner) * divisor + dividend), divisor * d, r)
    if isinstance(rest, Mod):
        other = exact_quotient(rest.args[1], d)
        if other is not None:
            return quotient + _mod(_floordiv(rest.args[0], d, r), other, r)
    return quotient + FloorDiv(rest, d)


def _lone_quotient(e: Expr) -> Expr | None:
    """The only division among the terms of ``e``, where it stands there once and alone."""
    quotients = [t for t in sympy.Add.make_args(e) if t.has(FloorDiv, Mod)]
    return quotients[0] if len(quotients) == 1 and isinstance(quotients[0], FloorDiv) else None


def _mod(a: Expr, d: Expr, r: Ranges) -> Expr:
    _, rest = _split(a, d)
    if _within(rest, d, r):
        return rest
    if (multiple := _known_quotient(rest, d, r)) is not None:
        return sympy.expand(rest - multiple * d)
    if (common := _common(rest, d, r)) is not None:
        m, c, g, low = common
        return sympy.expand(g * _mod(m, c, r) + low)
    if isinstance(rest, Mod) and exact_quotient(rest.args[1], d) is not None:
        return _mod(rest.args[0], d, r)
    return Mod(rest, d)


def _common(rest: Expr, d: Expr, r: Ranges) -> tuple[Expr, Expr, Expr, Expr] | None:
    """(m, c, g, low) with rest == m*g + low and d == c*g for an integer g > 1, where 0 <= low < g: floordiv(rest, d) is
    floordiv(m, c) then, and mod(rest, d) is mod(m, c)*g + low."""
    if not d.is_Integer or not rest.is_Add and not rest.is_Mul:
        return None
    terms = [(t.as_coeff_Mul()[0], t) for t in sympy.Add.make_args(rest)]
    if not all(c.is_Integer for c, _ in terms):
        return None
    for g in sorted({int(sympy.igcd(d, c)) for c, _ in terms} | {int(sympy.igcd(d, *(c for c, _ in terms)))}, reverse=True):
        low = sympy.Add(*[t for c, t in terms if c % g != 0])
        if g > 1 and (low == 0 or (low != rest and _within(low, sympy.Integer(g), r))):
            return sympy.expand((rest - low) / g), sympy.Integer(int(d) // g), sympy.Integer(g), low
    return None


def _recombine(e: Expr, r: Ranges) -> Expr:
    """d*floordiv(x, d) + mod(x, d) -> x, for any common factor."""
    terms = frozenset(sympy.Add.make_args(e))
    for term in terms:
        inner = next((f for f in sympy.Mul.make_args(term) if isinstance(f, Mod)), None)
        if inner is not None:
            x, d = inner.args
            factor = term / inner
            partner = sympy.expand(factor * d * _floordiv(x, d, r))
            if partner != 0 and terms.issuperset(sympy.Add.make_args(partner)):
                return simplify(sympy.expand(e - term - partner + factor * x), r)
    return e
