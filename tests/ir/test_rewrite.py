"""Rewrites keep the meaning of random programs, and do what they are for on small ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helion_inductor.ir.body import effect_depth, flow
from helion_inductor.ir.index import Expr, integer, symbol
from helion_inductor.ir.interpret import interpret
from helion_inductor.ir.parser import parse_nest
from helion_inductor.ir.rewrite import collapse_axes, cse, dce, next_value, reaxis, shift_values
from helion_inductor.ir.tile_ir import Axis, LoopNest, Scan, Store
from helion_inductor.ir.verify import verify_program
from tests.strategies import Case, cases


def outputs(case: Case, change: Callable[[LoopNest], LoopNest]) -> dict[str, torch.Tensor]:
    """What the program gives once every nest has been changed; the changed program is right, too."""
    program = replace(case.program, nests=tuple(change(n) for n in case.program.nests))
    verify_program(program)
    return case.outputs(interpret(program, case.inputs(), case.sizes))


def assert_same(case: Case, got: dict[str, torch.Tensor]) -> None:
    for name, want in case.expected.items():
        assert torch.equal(got[name], want), f"{name}\n{case!r}"


@given(cases())
def test_cse_keeps_the_meaning(case: Case) -> None:
    assert_same(case, outputs(case, cse))


@given(cases())
def test_dce_keeps_the_meaning(case: Case) -> None:
    assert_same(case, outputs(case, dce))


@given(cases())
def test_collapse_axes_keeps_the_meaning(case: Case) -> None:
    case.check(outputs(case, lambda n: collapse_axes(n, case.program.lower())))


@given(cases())
def test_all_together_keep_the_meaning(case: Case) -> None:
    case.check(outputs(case, lambda n: dce(cse(collapse_axes(n, case.program.lower())))))


@given(cases())
def test_shifted_values_keep_the_meaning(case: Case) -> None:
    assert_same(case, outputs(case, lambda n: replace(n, body=shift_values(n.body, 100))))


@given(cases(), st.data())
def test_reaxis_keeps_the_meaning(case: Case, data: st.DataObject) -> None:
    """Axes split in two where their extents allow, and parallel axes in any order."""

    def change(nest: LoopNest) -> LoopNest:
        changes: dict[str, Expr] = {}
        reduced: dict[str, tuple[str, ...]] = {}
        scanned = {s.axis for s in nest.body if isinstance(s, Scan)}
        runs: dict[str, list[Axis]] = {}
        for a in (*nest.parallel, *nest.reduce):
            outer, inner = Axis(f"{a.name}_o", a.extent), Axis(f"{a.name}_i", integer(1))
            factors = [f for f in (2, 3, 4, 13) if a.extent.is_Integer and int(a.extent) % f == 0]
            if factors:
                f = data.draw(st.sampled_from(factors))
                outer, inner = Axis(outer.name, integer(int(a.extent) // f)), Axis(inner.name, integer(f))
            split = [outer, inner] if factors and a.name not in scanned else [Axis(f"{a.name}_x", a.extent)]
            runs[a.name] = split
            whole = [symbol(x.name) for x in split]
            changes[a.name] = whole[0] * inner.extent + whole[1] if len(whole) == 2 else whole[0]
            reduced[a.name] = tuple(x.name for x in split)
        parallel = data.draw(st.permutations([x for a in nest.parallel for x in runs[a.name]]))
        reduce = [x for a in nest.reduce for x in runs[a.name]]
        return reaxis(nest, parallel, reduce, changes, reduced, case.program.lower())

    case.check(outputs(case, change))


@given(cases())
def test_flow_knows_axes_and_passes(case: Case) -> None:
    """An effect runs in the last pass of what it reads, and what it reads varies over axes of the nest."""
    for nest in case.program.nests:
        known = flow(nest)
        assert all(over <= set(nest.extents()) for over in known.axes.values())
        assert all(effect_depth(s, known) >= known.depth[s.value] for s in nest.body if isinstance(s, Store))


def body(nest: LoopNest) -> list[str]:
    return [line.strip() for line in str(nest).splitlines()[1:]]


def test_cse_joins_equal_statements() -> None:
    nest = parse_nest("""
        nest @n parallel(i: 8)
          %0: f32 = load x[i]
          %1: f32 = load x[i]
          %2: f32 = load z[i]
          %3: f32 = add(%0, %2)
          %4: f32 = add(%2, %1)
          %5: f32 = sub(%3, %4)
          store y[i] %5
        """)
    assert body(cse(nest)) == [
        "%0: f32 = load x[i]", "%2: f32 = load z[i]", "%3: f32 = add(%0, %2)", "%5: f32 = sub(%3, %3)", "store y[i] %5",
    ]  # fmt: skip


@pytest.mark.parametrize(("first", "second"), [
    ("%1: f32 = const 0.0", "%2: f32 = const -0.0"),
    ("%1: f32 = const 1.0", "%2: f64 = const 1.0"),
    ("%1: i64 = const 1", "%2: bool = const True"),
    ("%1: f32 = sub(%0, %3)", "%2: f32 = sub(%3, %0)"),
    ("%1: f32 = load x[i] mask %4 else 0.0", "%2: f32 = load x[i] mask %4 else -0.0"),
    ("%1: f32 = load x[i]", "store x[i] %0\n    %2: f32 = load x[i]"),
    ("%1: f32 = scale(%0){1}", "%2: f32 = scale(%0){1.0}"),
    ("%1: f32 = scale(%0){0.0}", "%2: f32 = scale(%0){-0.0}"),
])  # fmt: skip
def test_cse_keeps_different_statements_apart(first: str, second: str) -> None:
    nest = parse_nest(f"""
        nest @n parallel(i: 8)
          %0: f32 = load z[i]
          %3: f32 = load w[i]
          %4: bool = load m[i]
          {first}
          {second}
          store y[i] %1
          store u[i] %2
        """)
    assert cse(nest) == nest


def test_dce_drops_what_no_effect_needs_and_renumbers() -> None:
    nest = parse_nest("""
        nest @n parallel(i: 8)
          %3: f32 = load x[i]
          %5: i64 = load j[i]
          %6: f32 = exp(%3)
          check %5 in [0, 8)
          %9: f32 = load z[%5]
          store y[i] %9
          store t[i] %6
        """)
    assert body(dce(nest, frozenset({"t"}))) == [
        "%0: i64 = load j[i]", "check %0 in [0, 8)", "%1: f32 = load z[%0]", "store y[i] %1",
    ]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), [
    # dense: one axis
    ("parallel(i: M, j: 8)|%0: f32 = load x[8 * i + j]|store y[8 * i + j] %0",
     "parallel(i: 8 * M)|%0: f32 = load x[i]|store y[i] %0"),
    # a padded row keeps its axis
    ("parallel(i: M, j: 8)|%0: f32 = load x[9 * i + j]|store y[8 * i + j] %0",
     "parallel(i: M, j: 8)|%0: f32 = load x[9 * i + j]|store y[8 * i + j] %0"),
    # the inner two of three
    ("parallel(i: M, j: 4, k: 8)|%0: f32 = load x[40 * i + 8 * j + k]|store y[32 * i + 8 * j + k] %0",
     "parallel(i: M, j: 32)|%0: f32 = load x[40 * i + j]|store y[32 * i + j] %0"),
    # reduce axes that are folded together
    ("parallel(i: M) reduce(j: 4, k: 8)|%0: f32 = load x[32*i + 8*j+k]|%1: i64 = reduce argmax(j, k) %0|store y[i] %1",
     "parallel(i: M) reduce(j: 32)|%0: f32 = load x[32*i + j]|%1: i64 = reduce argmax(j) %0|store y[i] %1"),
])  # fmt: skip
def test_collapse_axes(before: str, after: str) -> None:
    nest, wanted = (parse_nest("nest @n " + text.replace("|", "\n")) for text in (before, after))
    assert collapse_axes(nest, {"M": 1}) == wanted


def test_next_value() -> None:
    assert next_value(parse_nest("nest @n parallel()\n%7: f32 = const 0.0\nstore y[0] %7").body) == 8
    assert next_value(()) == 0
