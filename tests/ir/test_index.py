"""Index expressions keep their value when they are built, printed, parsed, simplified and substituted."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from helion_inductor.ir.index import FloorDiv, Mod, ceil_div, integer, parse, rename_values, symbol, to_text, values_in
from helion_inductor.ir.interpret import evaluate_int
from helion_inductor.ir.simplify import Ranges, bounds, exact_quotient, less, nonnegative, simplify

AXES = ("i", "j", "k")
SIZES = {"M": 1, "N": 2}
Tree = Any  # an int, a name, or (operation, tree, tree)


def _trees(names: tuple[str, ...]) -> st.SearchStrategy[Tree]:
    divisor = st.one_of(
        st.integers(1, 12), st.sampled_from(sorted(SIZES)), st.tuples(st.just("*"), st.integers(2, 4), st.just("N"))
    )
    leaf = st.one_of(st.integers(-20, 20), st.sampled_from(names))

    def grow(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        return st.one_of(
            st.tuples(st.sampled_from("++-*"), inner, inner),
            st.tuples(st.sampled_from(["floordiv", "mod"]), inner, divisor),
            # the shapes that views and reshapes give
            st.builds(lambda a, d, b: ("+", ("*", d, a), b), inner, divisor, inner),
        )

    return st.recursive(leaf, grow, max_leaves=10)


def _build(t: Tree) -> sympy.Expr:
    if isinstance(t, int):
        return integer(t)
    if isinstance(t, str):
        return symbol(t)
    a, b = _build(t[1]), _build(t[2])
    return {"+": a + b, "-": a - b, "*": a * b, "floordiv": FloorDiv(a, b), "mod": Mod(a, b)}[t[0]]


def _value(t: Tree, env: dict[str, int]) -> int:
    if isinstance(t, int):
        return t
    if isinstance(t, str):
        return env[t]
    a, b = _value(t[1], env), _value(t[2], env)
    if t[0] in ("floordiv", "mod"):
        return a // b if t[0] == "floordiv" else a % b
    return {"+": a + b, "-": a - b, "*": a * b}[t[0]]


def _points(extents: dict[str, int]) -> list[dict[str, int]]:
    return [dict(zip(extents, p)) for p in itertools.product(*map(range, extents.values()))]


extents = st.fixed_dictionaries({a: st.integers(1, 6) for a in AXES})
sizes = st.fixed_dictionaries({n: st.integers(lower, lower + 5) for n, lower in SIZES.items()})


@given(_trees((*AXES, *SIZES)), extents, sizes)
def test_simplify_keeps_the_value(tree: Tree, shape: dict[str, int], size: dict[str, int]) -> None:
    e = _build(tree)
    simple = simplify(e, Ranges({a: integer(n) for a, n in shape.items()}, SIZES))
    for point in _points(shape):
        env = {**point, **size}
        assert _value(tree, env) == evaluate_int(e, env) == evaluate_int(simple, env), (
            f"{to_text(e)} -> {to_text(simple)}"
        )


@given(_trees((*AXES, *SIZES)), sizes)
def test_simplify_with_symbolic_extents(tree: Tree, size: dict[str, int]) -> None:
    shape = {"i": symbol("M"), "j": symbol("N"), "k": symbol("M") * symbol("N")}
    e = _build(tree)
    simple = simplify(e, Ranges(shape, SIZES))
    for point in _points({a: evaluate_int(n, size) for a, n in shape.items()}):
        env = {**point, **size}
        assert evaluate_int(e, env) == evaluate_int(simple, env), f"{to_text(e)} -> {to_text(simple)}"


@given(_trees((*AXES, *SIZES)), extents, sizes)
def test_bounds_hold(tree: Tree, shape: dict[str, int], size: dict[str, int]) -> None:
    e, ranges = _build(tree), Ranges({a: integer(n) for a, n in shape.items()}, SIZES)
    low, high = bounds(e, ranges)
    for point in _points(shape):
        value = evaluate_int(e, {**point, **size})
        assert low is None or evaluate_int(low, size) <= value
        assert high is None or value <= evaluate_int(high, size)


@given(_trees((*AXES, *SIZES)), _trees(tuple(SIZES)), extents, sizes)
def test_what_is_proved_is_true(tree: Tree, other: Tree, shape: dict[str, int], size: dict[str, int]) -> None:
    e, limit, ranges = _build(tree), _build(other), Ranges({a: integer(n) for a, n in shape.items()}, SIZES)
    values = [evaluate_int(e, {**point, **size}) for point in _points(shape)]
    assert not nonnegative(e, ranges) or min(values) >= 0
    assert not less(e, limit, ranges) or max(values) < evaluate_int(limit, size)


@given(_trees((*AXES, *SIZES, "%0", "%12")))
def test_text_round_trip(tree: Tree) -> None:
    e = _build(tree)
    assert parse(to_text(e)) == e


@given(_trees((*AXES, *SIZES)), _trees((*AXES, *SIZES)), extents, sizes)
def test_exact_quotient(a: Tree, b: Tree, shape: dict[str, int], size: dict[str, int]) -> None:
    product, divisor = _build(a), _build(b)
    quotient = exact_quotient(product, divisor) if divisor != 0 else None
    if quotient is not None:
        for point in _points(shape):
            env = {**point, **size}
            assert evaluate_int(quotient * divisor, env) == evaluate_int(product, env)


@pytest.mark.parametrize(("before", "after"), [
    ("floordiv(8*i + j, 8)", "i"),
    ("mod(8*i + j, 8)", "j"),
    ("8*floordiv(k, 8) + mod(k, 8)", "k"),
    ("floordiv(N*i + m, N)", "i"),
    ("mod(N*i + m, N)", "m"),
    ("floordiv(floordiv(k, 4), 2)", "floordiv(k, 8)"),
    ("mod(mod(k, 16), 8)", "mod(k, 8)"),
    ("floordiv(mod(k, 64), 8)", "mod(floordiv(k, 8), 8)"),
    ("floordiv(8*k + 4, 8)", "k"),
    ("mod(6*i, 9)", "3*mod(2*i, 3)"),
    ("floordiv(6*i, 9)", "floordiv(2*i, 3)"),
])  # fmt: skip
def test_simplify_finds(before: str, after: str) -> None:
    ranges = Ranges({"i": integer(5), "j": integer(8), "k": integer(100), "m": symbol("N")}, {"N": 1})
    assert simplify(parse(before), ranges) == parse(after)


def test_a_quotient_of_sizes_may_be_negative() -> None:
    assert not nonnegative(parse("floordiv(M - 8, 4)"), Ranges({}, {"M": 1}))
    assert nonnegative(parse("floordiv(M - 8, 4)"), Ranges({}, {"M": 8}))
    assert nonnegative(ceil_div(symbol("M"), integer(4)), Ranges({}, {"M": 1}))


def test_a_product_keeps_its_form() -> None:
    e = 2 * symbol("y") * (symbol("x") + 1)
    assert parse(to_text(e)) == e


def test_values_in_and_rename() -> None:
    e = parse("4*%3 + mod(%11, 5) + i")
    assert values_in(e) == (3, 11)
    assert rename_values(e, {3: 0, 11: 3}) == parse("4*%0 + mod(%3, 5) + i")


@pytest.mark.parametrize("text", [
    "", "a b", "i %3", "i%3", "i / 2", "i // 2", "sin(i)", "mod(i)", "floordiv(1, 2, 3)", "min()", "True", "1.5",
    "i**j", "i**-1", "max(a=1)", "'x'", "i[0]",
])  # fmt: skip
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an index expression"):
        parse(text)
