"""Families: the template stands for every member, in form and in meaning."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, note

from helion_inductor.ir.family import common_form, signature
from helion_inductor.ir.interpret import allocate, evaluate_int, interpret, run_nest
from helion_inductor.ir.parser import parse_program
from helion_inductor.ir.tile_ir import LoopNest, TileProgram, indices
from tests.family_strategies import SIZES, member_cases
from tests.strategies import Case

PAIR = """
    program @p(in x: f32[10, 7] strides(20, 1), in w: f32[7], out y: f32[10, 7], in u: f32[5, 9], in v: f32[9], out z: f32[5, 9])
      nest @a parallel(p: 70)
        %0: f32 = load x[20 * floordiv(p, 7) + mod(p, 7)]
        %1: f32 = load w[mod(p, 7)]
        %2: f32 = const 1.5
        %3: f32 = add(%0, %1)
        %4: f32 = mul(%3, %2)
        store y[p] %4
      nest @b parallel(p: 45)
        %0: f32 = load u[mod(p, 9) + 9 * floordiv(p, 9)]
        %1: f32 = load v[mod(p, 9)]
        %2: f32 = const 1.5
        %3: f32 = add(%0, %1)
        %4: f32 = mul(%3, %2)
        store z[p] %4
    """


def same(text: str) -> bool:
    """Whether the two nests of a program have one form."""
    program = parse_program(text)
    a, b = (signature(n, program.by_name()) for n in program.nests)
    return a == b and hash(a) == hash(b)


def test_what_differs_becomes_parameters() -> None:
    program = parse_program(PAIR)
    family = common_form(program.nests, program)
    assert str(family.template) == """\
  nest @a parallel(p: c0)
    %0: f32 = load b0[mod(p, c2) + floordiv(p, c2) * c1]
    %1: f32 = load b1[mod(p, c2)]
    %2: f32 = const 1.5
    %3: f32 = add(%0, %1)
    %4: f32 = mul(%3, %2)
    store b2[p] %4"""
    assert family.buffers == (("x", "w", "y"), ("u", "v", "z"))
    assert family.parameters == ((70, 20, 7), (45, 9, 9)) and family.lower == (45, 9, 7)
    assert [family.multiple(k) for k in range(3)] == [5, 1, 1]
    assert [family.member(k) for k in range(2)] == list(program.nests)


def test_equal_integers_stay() -> None:
    program = parse_program(PAIR.replace("p: 45", "p: 70").replace("9 * floordiv(p, 9)", "20 * floordiv(p, 9)"))
    family = common_form(program.nests, program)
    assert family.symbols == ("c0",) and family.parameters == ((7,), (9,))
    assert str(family.template.parallel[0].extent) == "70"


@pytest.mark.parametrize(("old", "new", "equal"), [
    ("p: 45", "p: 46", True),
    ("load v[mod(p, 9)]", "load v[mod(p, 5)]", True),
    ("load v[mod(p, 9)]", "load v[0]", False),  # other axes
    ("load v[mod(p, 9)]", "load v[2 * mod(p, 9)]", False),  # no longer walked element by element
    ("add(%0, %1)\n        %4: f32 = mul(%3, %2)\n        store z", "sub(%0, %1)\n        %4: f32 = mul(%3, %2)\n        store z", False),
    ("add(%0, %1)\n        %4: f32 = mul(%3, %2)\n        store z", "add(%1, %0)\n        %4: f32 = mul(%3, %2)\n        store z", False),
    ("const 1.5\n        %3: f32 = add(%0, %1)\n        %4: f32 = mul(%3, %2)\n        store z",
     "const 2.5\n        %3: f32 = add(%0, %1)\n        %4: f32 = mul(%3, %2)\n        store z", False),
    ("in v: f32[9]", "in v: bf16[9]", False),  # dtypes of buffers
    ("load v[mod(p, 9)]", "load u[mod(p, 9)]", False),  # one buffer twice
    ("out z: f32[5, 9]", "out z: f32[5, 9] aliases u", False),
    ("store z[p] %4", "store z[p + 4] %4", True),
    ("store z[p] %4", "store z[p + 1] %4", False),  # no longer on multiples of 16 bytes
])  # fmt: skip
def test_forms(old: str, new: str, equal: bool) -> None:
    assert old in PAIR and same(PAIR) and same(PAIR.replace(old, new)) == equal


@pytest.mark.parametrize(("a", "b"), [("0.0", "-0.0"), ("1.0", "1"), ("True", "1"), ("1e-05", "2e-05")])
def test_literals_differ_by_sign_and_type(a: str, b: str) -> None:
    text = """
        program @p(out y: f32[4], out z: f32[4])
          nest @a parallel(p: 4)
            %0: f32 = const {}
            store y[p] %0
          nest @b parallel(p: 4)
            %0: f32 = const {}
            store z[p] %0
        """
    assert not same(text.format(a, b)) and same(text.format(a, a))


def test_nan_is_nan() -> None:
    nest = "nest @{0} parallel(p: 4)\n %0: f32 = const nan\n store {0}[p] %0\n"
    assert same("program @p(out y: f32[4], out z: f32[4])\n" + nest.format("y") + nest.format("z"))


def test_sizes_are_parameters_too() -> None:
    text = PAIR.replace("p: 70", "p: 10 * M").replace("p: 45", "p: N").replace("z: f32[5, 9])", "z: f32[5, 9]) sizes(M>=2~7, N>=3~45)")
    program = parse_program(text)
    family = common_form(program.nests, program)
    assert list(map(str, (row[0] for row in family.parameters))) == ["10*M", "N"]
    assert family.lower[0] == 3 and family.multiple(0) == 1


def test_unlike_nests_have_no_common_form() -> None:
    program = parse_program(PAIR.replace("in v: f32[9]", "in v: bf16[9]"))
    with pytest.raises(ValueError, match="no common form: a, b"):
        common_form(program.nests, program)


def groups(program: TileProgram) -> list[list[LoopNest]]:
    found: dict[object, list[LoopNest]] = {}
    for n in program.nests:
        found.setdefault(signature(n, program.by_name()), []).append(n)
    return list(found.values())


@given(member_cases())
def test_members_are_what_the_template_says(case: Case) -> None:
    assume(any(len(g) > 1 for g in groups(case.program)))
    for group in groups(case.program):
        family = common_form(group, case.program)
        note(str(family.template))
        for k, nest in enumerate(group):
            mine = family.member(k)
            assert mine.extents() == nest.extents() and mine.name == nest.name
            for a, b in zip(mine.body, nest.body, strict=True):
                assert all((x - y).expand() == 0 for x, y in zip(indices(a), indices(b), strict=True)), f"{a} is not {b}"
        for s, low in family.ranges().items():
            column = [row[family.symbols.index(s)] for row in family.parameters]
            assert all(evaluate_int(e, SIZES) >= low for e in column)


@given(member_cases())
def test_the_template_computes_every_member(case: Case) -> None:
    """The template's nest, run on a member's buffers with the member's integers as sizes, does what the member does."""
    want = interpret(case.program, case.inputs(), case.sizes)
    got: dict[str, torch.Tensor] = dict(case.inputs())
    for b in case.program.buffers:
        if b.kind == "out":
            got[b.name] = got[b.aliases] if b.aliases else allocate(b, case.sizes)
    for group in groups(case.program):
        family = common_form(group, case.program)
        for buffers, parameters in zip(family.buffers, family.parameters):
            names = {a.name: got[b] for a, b in zip(family.arguments, buffers)}
            values = {s: evaluate_int(e, SIZES) for s, e in zip(family.symbols, parameters)}
            run_nest(family.template, names, {**case.sizes, **values})
    for name in case.outputs(want):
        assert torch.equal(got[name], want[name]), name
