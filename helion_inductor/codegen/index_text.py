"""Index expressions as Triton (or Python) text."""

from __future__ import annotations

import sympy

from ..ir.index import Expr, FloorDiv, Mod
from ..ir.simplify import Ranges, bounds, nonnegative


def triton_text(e: Expr, ranges: Ranges, *, wide: bool = False) -> str:
    """Text of ``e`` over variables named like its symbols (``%7`` is ``v7``).

    Triton's integer ``//`` and ``%`` truncate, so they stand only for dividends known to be non-negative. ``wide`` computes
    in 64 bits whatever is computed: axes and sizes are converted before they are added or multiplied.
    """
    if e.is_Integer:
        return str(int(e))
    if e.is_Symbol:
        if e.name.startswith("%"):
            return f"v{e.name[1:]}"
        return f"{e.name}.to(tl.int64)" if wide and e.name in ranges.axes else str(e.name)
    args = [f"tl.cast({a.name}, tl.int64)" if wide and _is_size(a, ranges) else triton_text(a, ranges, wide=wide) for a in _ordered(e)]
    if e.is_Add:
        return f"({' + '.join(args)})"
    if e.is_Mul:
        return f"({' * '.join(args)})"
    if e.is_Pow:
        return f"({' * '.join([args[0]] * int(e.exp))})"
    if isinstance(e, (FloorDiv, Mod)):
        low, _ = bounds(e.args[0], ranges)
        if low is not None and nonnegative(low, ranges):
            return f"({args[0]} {'//' if isinstance(e, FloorDiv) else '%'} {args[1]})"
        return f"dl.{'floor_div' if isinstance(e, FloorDiv) else 'floor_mod'}({args[0]}, {args[1]})"
    if isinstance(e, (sympy.Min, sympy.Max)):
        name = "tl.minimum" if isinstance(e, sympy.Min) else "tl.maximum"
        text = args[0]
        for a in args[1:]:
            text = f"{name}({text}, {a})"
        return text
    raise ValueError(f"not an index expression: {e}")


def _is_size(e: Expr, ranges: Ranges) -> bool:
    return bool(e.is_Symbol) and not e.name.startswith("%") and e.name not in ranges.axes


def _ordered(e: Expr) -> list[Expr]:
    if e.is_Add:
        return sorted(e.args, key=lambda t: (bool(t.is_Integer), str(t)))
    if e.is_Mul:
        return sorted(e.args, key=lambda t: (not t.is_Integer, str(t)))
    return list(e.args[:1]) if e.is_Pow else list(e.args)


def python_text(e: Expr) -> str:
    """Text of an expression in size symbols for the host, where ``//`` floors."""
    if e.is_Integer:
        return str(int(e))
    if e.is_Symbol:
        return str(e.name)
    args = [python_text(a) for a in _ordered(e)]
    if e.is_Add:
        return f"({' + '.join(args)})"
    if e.is_Mul:
        return f"({' * '.join(args)})"
    if e.is_Pow:
        return f"({args[0]} ** {int(e.exp)})"
    if isinstance(e, (FloorDiv, Mod)):
        return f"({args[0]} {'//' if isinstance(e, FloorDiv) else '%'} {args[1]})"
    if isinstance(e, (sympy.Min, sympy.Max)):
        return f"{'min' if isinstance(e, sympy.Min) else 'max'}({', '.join(args)})"
    raise ValueError(f"not an index expression: {e}")


def fits_int32(e: Expr, ranges: Ranges) -> bool:
    """Whether every value of ``e`` is known to lie in 32 bits."""
    low, high = bounds(e, ranges)
    return bool(low is not None and high is not None and low.is_Integer and high.is_Integer and low >= -(2**31) and high < 2**31)
