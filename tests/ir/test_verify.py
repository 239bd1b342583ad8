"""Each rule is broken once, in a program that is right otherwise; the error names the rule and marks the line."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from helion_inductor.errors import VerifyError
from helion_inductor.ir.parser import parse_program
from helion_inductor.ir.tile_ir import Load
from helion_inductor.ir.verify import DECLARATION_RULES, FLOW_RULES, verify_program
from helion_inductor.ir.verify_nest import BODY_RULES, HEAD_RULES, STATEMENT_RULES, rule_name
from tests.strategies import Case, cases

PROGRAM = """\
program @p(in x: bf16[M, 8], in i: i64[M], in c: f32[M], out y: f32[M, 8], out s: f32[4]) sizes(M>=1~64)
  out d: f32[M] aliases c
  temp t: f32[M]
  temp none: f32[0]
  nest @rows parallel(m: M) reduce(k: 8)
    %0: f32 = load x[8 * m + k]
    %1: f32 = reduce sum(k) %0
    %2: f32 = truediv(%0, %1)
    store y[8 * m + k] %2
    store t[m] %1
  nest @scan parallel(m: M) reduce(k: 8)
    %0: f32 = load y[8 * m + k]
    %1: f32 = scan sum(k) %0
    %2: f32 = load c[m]
    %3: f32 = mul(%1, %2)
    %4: f32 = reduce max(k) %3
    store d[m] %4
  nest @zero parallel(m: 4)
    %0: f32 = const 0.0
    store s[m] %0
  nest @add parallel(m: M, one: 1)
    %0: i64 = load i[m]
    check %0 in [0, 4)
    %1: i64 = index m
    %2: bool = lt(%0, %1)
    %3: f32 = load t[m] mask %2 else -1.0
    %4: i64 = cast(%3){i64}
    atomic add s[%0] %3 mask %2
    store t[m] %3"""

# rule, a text in PROGRAM, what takes its place, what the marked line holds
BROKEN = [
    ("name-unique", "temp t: f32[M]\n", "temp t: f32[M]\n  temp t: f32[M]\n", "temp t: f32[M]"),
    ("name-unique", "nest @zero", "nest @scan", "nest @scan parallel(m: 4)"),
    ("name-unique", "M>=1~64)", "M>=1~64, M>=1~2)", "program @p"),
    ("buffer-rank", "temp t: f32[M]\n", "temp t: f32[M] strides(8, 1)\n", "temp t"),
    ("buffer-sizes", "temp t: f32[M]\n", "temp t: f32[M] strides(Q)\n", "temp t"),
    ("alias-known", "f32[M] aliases c", "f32[M] aliases t", "out d"),
    ("alias-known", "temp none: f32[0]", "temp none: f32[0] aliases c", "temp none"),
    ("alias-known", "f32[M] aliases c", "bf16[M] aliases c", "out d"),
    ("axis-unique", "parallel(m: M, one: 1)", "parallel(m: M, m: 1)", "nest @add"),
    ("axis-unique", "parallel(m: M, one: 1)", "parallel(m: M, M: 1)", "nest @add"),
    ("known-size", "nest @zero parallel(m: 4)", "nest @zero parallel(m: N)", "nest @zero"),
    ("ssa-order", "%2: f32 = truediv(%0, %1)", "%2: f32 = truediv(%0, %3)", "truediv(%0, %3)"),
    ("ssa-order", "%2: f32 = truediv(%0, %1)", "%1: f32 = truediv(%0, %1)", "%1: f32 = truediv"),
    ("known-buffer", "load c[m]", "load e[m]", "load e[m]"),
    ("known-axis", "load c[m]", "load c[p]", "load c[p]"),
    ("known-kind", "truediv(", "divide(", "divide("),
    ("known-kind", "reduce sum(k)", "reduce mean(k)", "reduce mean"),
    ("known-kind", "scan sum(k)", "scan any(k)", "scan any"),
    ("known-kind", "atomic add", "atomic max", "atomic max"),
    ("value-dtype", "%0: f32 = load x", "%0: bf16 = load x", "bf16 = load x"),
    ("mask-is-bool", "load t[m] mask %2", "load t[m] mask %0", "mask %0"),
    ("index-is-i64", "atomic add s[%0]", "atomic add s[%3]", "s[%3]"),
    ("index-is-i64", "check %0 in [0, 4)", "%9: i32 = cast(%0){i32}\n    check %9 in [0, 4)", "check %9"),
    ("dtype-of-load", "%0: i64 = load i", "%0: i32 = load i", "i32 = load i"),
    ("dtype-of-store", "atomic add s[%0] %3", "atomic add s[%0] %4", "%4"),
    ("dtype-of-index", "%1: i64 = index m", "%1: f32 = index m", "index m"),
    ("literal-fits", "const 0.0", "const 0.0\n    %1: i64 = const 0.5", "const 0.5"),
    ("literal-fits", "const 0.0", "const 0.0\n    %1: u8 = const 256", "const 256"),
    ("literal-fits", "const 0.0", "const 0.0\n    %1: bool = const 2", "const 2"),
    ("op-arity", "truediv(%0, %1)", "truediv(%0)", "truediv(%0)"),
    ("operands-promoted", "%2: bool = lt(%0, %1)", "%9: f32 = const 1.0\n    %2: bool = lt(%0, %9)", "lt(%0, %9)"),
    ("dtype-of-op", "%2: bool = lt(%0, %1)", "%2: i64 = lt(%0, %1)", "i64 = lt"),
    ("dtype-of-fold", "%1: f32 = reduce sum(k)", "%1: i64 = reduce sum(k)", "i64 = reduce"),
    ("dtype-of-fold", "reduce max(k) %3", "reduce any(k) %3", "reduce any"),
    ("dtype-of-fold", "%4: f32 = reduce max(k) %3", "%4: f32 = reduce argmax(k) %3", "reduce argmax"),
    ("reduce-all-axes", "reduce max(k) %3", "reduce max(k, k) %3", "reduce max"),
    ("scan-one-axis", "scan sum(k)", "scan sum(m)", "scan sum(m)"),
    ("store-covers-parallel", "store s[m]", "store s[0]", "store s[0]"),
    ("store-covers-value", "store t[m] %1", "store t[m] %2", "store t[m] %2"),
    ("atomic-outside-reduction", "parallel(m: M, one: 1)", "parallel(m: M) reduce(one: 1)", "atomic add"),
    ("in-place-same-element", "store t[m] %3", "store t[M - 1 - m] %3", "store t[M - m - 1]"),
    ("in-place-same-element", "load t[m] mask", "load s[m] mask", "atomic add s"),
    ("in-not-written", "store d[m]", "store c[m]", "store c[m]"),
    ("out-written", "store d[m]", "store t[m]", "out d"),
    ("temp-written-before-read", "    store t[m] %1\n", "", "load t[m]"),
    ("temp-written-before-read", "    store s[m] %0\n", "", "atomic add s"),
]  # fmt: skip


RULES = [r for group in (DECLARATION_RULES, HEAD_RULES, STATEMENT_RULES, BODY_RULES, FLOW_RULES) for r in group]


def test_the_whole_program_is_right() -> None:
    verify_program(parse_program(PROGRAM))


@pytest.mark.parametrize(("rule", "old", "new", "marked"), BROKEN)
def test_program_rule(rule: str, old: str, new: str, marked: str) -> None:
    program = parse_program(PROGRAM.replace(old, new, 1))
    with pytest.raises(VerifyError) as caught:
        verify_program(program)
    assert caught.value.rule == rule, str(caught.value)
    assert str(caught.value).startswith(f"[{rule}] ")
    (line,) = [line for line in caught.value.neighbourhood.splitlines() if line.startswith(">")]
    assert marked in line, str(caught.value)


def test_a_buffer_kind_that_no_text_can_say() -> None:
    program = parse_program(PROGRAM)
    buffers = (*program.buffers[:-1], replace(program.buffers[-1], kind="scratch"))
    with pytest.raises(VerifyError, match="buffer-kind"):
        verify_program(replace(program, buffers=buffers))


def test_a_masked_value_that_no_text_can_say() -> None:
    program = parse_program(PROGRAM)
    load = program.nests[0].body[0]
    assert isinstance(load, Load)
    nest = replace(program.nests[0], body=(replace(load, other=float("nan")), *program.nests[0].body[1:]))
    with pytest.raises(VerifyError, match="other-needs-mask"):
        verify_program(replace(program, nests=(nest, *program.nests[1:])))


def test_every_rule_is_tested_and_documented() -> None:
    assert {rule_name(r) for r in RULES} == {rule for rule, *_ in BROKEN} | {"buffer-kind", "other-needs-mask"}
    assert all(r.__doc__ for r in RULES)


def test_the_message_shows_three_lines_around() -> None:
    with pytest.raises(VerifyError) as caught:
        verify_program(parse_program(PROGRAM.replace("truediv(%0, %1)", "truediv(%0, %3)")))
    assert (
        str(caught.value)
        == """\
[ssa-order] %3 is used before it is defined
     4 |   nest @rows parallel(m: M) reduce(k: 8)
     5 |     %0: f32 = load x[8 * m + k]
     6 |     %1: f32 = reduce sum(k) %0
>    7 |     %2: f32 = truediv(%0, %3)
     8 |     store y[8 * m + k] %2
     9 |     store t[m] %1
    10 |   nest @scan parallel(m: M) reduce(k: 8)"""
    )


def test_what_is_allowed() -> None:
    """A scatter need not cover the parallel axes; an empty out need not be written, nor an empty temp."""
    verify_program(parse_program("""
        program @p(in i: i64[1], out y: f32[9], out e: f32[3, 0])
          temp t: f32[0]
          nest @a parallel(m: 4)
            %0: i64 = load i[0]
            %1: bool = const False
            %2: f32 = load t[0] mask %1 else inf
            store y[%0] %2
        """))  # fmt: skip


@given(cases())
def test_drawn_programs_are_right(case: Case) -> None:
    verify_program(case.program)
