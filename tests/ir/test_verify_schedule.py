"""Each rule about schedules is broken once, in a kernel that is right otherwise; the error marks the task."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helion_inductor.errors import VerifyError
from helion_inductor.ir.parser import parse_program, parse_schedule
from helion_inductor.ir.schedule_ir import Phase, PidMap
from helion_inductor.ir.verify_nest import rule_name
from helion_inductor.ir.verify_schedule import KERNEL_RULES, verify_schedule, verify_schedules
from tests.ir.test_verify import PROGRAM
from tests.schedule_strategies import schedules
from tests.strategies import Case, cases

KERNEL = """\
kernel @k  pid_type=flat  num_warps=4  num_stages=2
  phase 0
    task nest @rows pid_map row_major(a) tile(a[m]=1 parallel, r[k]=8 persistent)  narrow
    task nest @zero pid_map row_major(a) tile(a[m]=4 parallel)
  phase 1
    task nest @scan pid_map row_major(a) tile(a[m]=16 parallel, r[k]=8 persistent)
    task nest @add pid_map row_major(a, b) tile(a[m]=64 parallel, b[one]=1 parallel)"""

BROKEN = [
    ("known-pid-type", "pid_type=flat", "pid_type=round", "kernel @k"),
    ("launch-settings", "num_warps=4", "num_warps=6", "kernel @k"),
    ("launch-settings", "num_warps=4", "num_warps=64", "kernel @k"),
    ("launch-settings", "num_stages=2", "num_stages=0", "kernel @k"),
    ("phase-not-empty", KERNEL[KERNEL.index("    task nest @scan") :], "", "kernel @k"),
    ("phase-not-empty", KERNEL[KERNEL.index("  phase 0") :], "", "kernel @k"),
    ("known-nest", "nest @zero", "nest @other", "nest @other"),
    ("nest-once", "nest @add pid_map row_major(a, b) tile(a[m]=64 parallel, b[one]=1 parallel)",
                  "nest @zero pid_map row_major(a) tile(a[m]=4 parallel)", "nest @zero"),
    ("dim-names", "row_major(a, b) tile(a[m]=64 parallel, b[one]",
                  "row_major(a, a) tile(a[m]=64 parallel, a[one]", "@add"),
    ("dim-names", "r[k]=8 persistent)  narrow", "r[k]=8 unrolled)  narrow", "@rows"),
    ("dims-cover-axes", "row_major(a, b) tile(a[m]=64 parallel, b[one]=1 parallel)",
                        "row_major(a) tile(a[m]=64 parallel)", "@add"),
    ("dims-cover-axes", "tile(a[m]=64 parallel, b[one]=1 parallel)",
                        "tile(a[one]=64 parallel, b[m]=1 parallel)", "@add"),
    ("dims-cover-axes", ", r[k]=8 persistent)  narrow", ")", "@rows"),
    ("dims-cover-axes", "tile(a[m]=1 parallel, r[k]=8 persistent)",
                        "tile(r[k]=8 persistent, a[m]=1 parallel)", "@rows"),
    ("dims-cover-axes", "@zero pid_map row_major(a) tile(a[m]=4 parallel)",
                        "@zero pid_map row_major() tile(a[m]=4 looped)", "@zero"),
    ("pid-map-group", "@zero pid_map row_major(a)", "@zero pid_map grouped_l2(a, group=4)", "@zero"),
    ("pid-map-group", "@add pid_map row_major(a, b)", "@add pid_map grouped_l2(a, b, group=0)", "@add"),
    ("pid-map-group", "@add pid_map row_major(a, b)", "@add pid_map grouped_l2(a, b, group=2147483648)", "@add"),
    ("task-weight", "r[k]=8 persistent)  narrow", "r[k]=8 persistent)  weight=0  narrow", "@rows"),
    ("task-weight", "r[k]=8 persistent)  narrow", "r[k]=8 persistent)  weight=1025  narrow", "@rows"),
    ("task-stages", "r[k]=8 persistent)  narrow", "r[k]=8 persistent)  narrow  stages=9", "@rows"),
    ("dot-multiplies", "r[k]=8 persistent)  narrow", "r[k]=8 persistent)  narrow  dot", "@rows"),
    ("once-is-narrow", "r[k]=8 persistent)  narrow", "r[k]=8 persistent)  wide  once", "@rows"),
    ("block-power-of-two", "a[m]=16", "a[m]=12", "@scan"),
    ("block-power-of-two", "a[m]=16", "a[m]=0", "@scan"),
    ("persistent-holds-all", "r[k]=8 persistent)  narrow", "r[k]=4 persistent)  narrow", "@rows"),
    ("scan-not-looped", "a[m]=16 parallel, r[k]=8 persistent", "a[m]=16 parallel, r[k]=8 looped", "@scan"),
    ("phase-independent", "  phase 1\n", "", "@scan"),
    ("dependence-order", KERNEL[KERNEL.index("  phase 0") :], """\
  phase 0
    task nest @scan pid_map row_major(a) tile(a[m]=16 parallel, r[k]=8 persistent)
  phase 1
    task nest @rows pid_map row_major(a) tile(a[m]=1 parallel, r[k]=8 persistent)""", "@rows"),
]  # fmt: skip


FAMILY_PROGRAM = """\
program @p(in x: f32[8, 4], in u: f32[8, 8], in v: f32[8, 8], out y: f32[8], out z: f32[8], out w: f32[8])
  nest @a parallel(m: 8) reduce(k: 4)
    %0: f32 = load x[4 * m + k]
    %1: f32 = reduce sum(k) %0
    store y[m] %1
  nest @b parallel(m: 8) reduce(k: 8)
    %0: f32 = load u[8 * m + k]
    %1: f32 = reduce sum(k) %0
    store z[m] %1
  nest @c parallel(m: 8) reduce(k: 8)
    %0: f32 = load v[8 * m + k]
    %1: f32 = reduce max(k) %0
    store w[m] %1"""
FAMILY = """\
kernel @k  pid_type=flat  num_warps=4  num_stages=2
  phase 0
    task nest @a @b pid_map row_major(x) tile(x[m]=2 parallel, r[k]=8 persistent)  select=table
    task nest @c pid_map row_major(x) tile(x[m]=2 parallel, r[k]=8 persistent)"""
BROKEN_FAMILY = [
    ("known-select", "select=table", "select=guess", "@a @b"),
    ("known-nest", "@a @b", "@a @d", "@a @d"),
    ("nest-once", "@a @b", "@a @b @a", "@a @b"),
    ("nest-once", "@a @b", "@a @b @c", "nest @c"),
    ("family-form", FAMILY[FAMILY.index("@b pid_map") :], FAMILY[FAMILY.index("@b pid_map") :].split("\n")[0].replace("@b", "@b @c"),
                    "@a @b @c"),
    ("persistent-holds-all", "r[k]=8 persistent)  select", "r[k]=4 persistent)  select", "@a @b"),
]  # fmt: skip


def test_the_family_is_right() -> None:
    verify_schedules([parse_schedule(FAMILY)], parse_program(FAMILY_PROGRAM))


@pytest.mark.parametrize(("rule", "old", "new", "marked"), BROKEN_FAMILY)
def test_family_rule(rule: str, old: str, new: str, marked: str) -> None:
    assert old in FAMILY
    with pytest.raises(VerifyError) as caught:
        verify_schedule(parse_schedule(FAMILY.replace(old, new, 1)), parse_program(FAMILY_PROGRAM))
    assert caught.value.rule == rule, str(caught.value)
    (line,) = [line for line in caught.value.neighbourhood.splitlines() if line.startswith(">")]
    assert marked in line, str(caught.value)


def test_members_of_a_family_are_independent() -> None:
    """@b reads what @a writes: one form, but not one phase."""
    program = parse_program("""
        program @p(in x: f32[4], out y: f32[4], out z: f32[4])
          nest @a parallel(m: 4)
            %0: f32 = load x[m]
            store y[m] %0
          nest @b parallel(m: 4)
            %0: f32 = load y[m]
            store z[m] %0
        """)
    kernel = parse_schedule("""
        kernel @k  pid_type=flat  num_warps=4  num_stages=2
          phase 0
            task nest @a @b pid_map row_major(x) tile(x[m]=4 parallel)
        """)
    with pytest.raises(VerifyError, match="@a and @b share a phase: read after write of y"):
        verify_schedule(kernel, program)


def test_the_whole_kernel_is_right() -> None:
    verify_schedule(parse_schedule(KERNEL), parse_program(PROGRAM))
    verify_schedules([parse_schedule(KERNEL)], parse_program(PROGRAM))


@pytest.mark.parametrize(("rule", "old", "new", "marked"), BROKEN)
def test_schedule_rule(rule: str, old: str, new: str, marked: str) -> None:
    with pytest.raises(VerifyError) as caught:
        verify_schedule(parse_schedule(KERNEL.replace(old, new, 1)), parse_program(PROGRAM))
    assert caught.value.rule == rule, str(caught.value)
    (line,) = [line for line in caught.value.neighbourhood.splitlines() if line.startswith(">")]
    assert marked in line, str(caught.value)


@pytest.mark.parametrize("order", [("a", "b"), ("a",), ("b", "c"), ("b", "b"), ("b", "a", "r")])
def test_pid_map_order(order: tuple[str, ...]) -> None:
    """What text cannot say: an order of other dimensions, or the one that the tile has anyway."""
    kernel = parse_schedule(KERNEL)
    zero, add = kernel.phases[1].tasks
    wrong = replace(kernel, phases=(kernel.phases[0], Phase((zero, replace(add, pid_map=PidMap(order))))))
    with pytest.raises(VerifyError, match="the tile has") as caught:
        verify_schedule(wrong, parse_program(PROGRAM))
    assert caught.value.rule == "pid-map-order"


def test_every_rule_is_tested_and_documented() -> None:
    assert {rule_name(r) for r in KERNEL_RULES} == {rule for rule, *_ in BROKEN + BROKEN_FAMILY} | {"pid-map-order"}
    assert all(r.__doc__ for r in KERNEL_RULES)


def _kernels(*phases: str) -> list[str]:
    tasks = {line.split("@")[1].split()[0]: line for line in KERNEL.splitlines() if "task" in line}
    head = KERNEL.splitlines()[0]
    return ["\n".join([head, "  phase 0", *(tasks[name] for name in names.split())]) for names in phases]


@pytest.mark.parametrize(("kernels", "rule", "detail"), [
    (("rows zero", "scan"), "nest-once", "no kernel runs @add"),
    (("rows zero", "scan add", "rows"), "nest-once", "@rows runs in another kernel too"),
    (("zero scan", "rows", "add"), "dependence-order", "@scan runs before @rows, yet follows it in the program"),
    (("rows zero", "add", "scan"), None, ""),
])  # fmt: skip
def test_rules_across_kernels(kernels: tuple[str, ...], rule: str | None, detail: str) -> None:
    parsed = [parse_schedule(text) for text in _kernels(*kernels)]
    if rule is None:
        verify_schedules(parsed, parse_program(PROGRAM))
        return
    with pytest.raises(VerifyError, match=detail) as caught:
        verify_schedules(parsed, parse_program(PROGRAM))
    assert caught.value.rule == rule


def test_in_place_updates_share_storage() -> None:
    """@scan writes d, which aliases c; a reader of c in the same phase races with it."""
    program = parse_program("""
        program @p(in c: f32[4], out d: f32[4] aliases c, out y: f32[4])
          nest @read parallel(m: 4)
            %0: f32 = load c[m]
            store y[m] %0
          nest @write parallel(m: 4)
            %0: f32 = const 1.0
            store d[m] %0
        """)
    kernel = parse_schedule("""
        kernel @k  pid_type=flat  num_warps=4  num_stages=2
          phase 0
            task nest @read pid_map row_major(a) tile(a[m]=4 parallel)
            task nest @write pid_map row_major(a) tile(a[m]=4 parallel)
        """)
    with pytest.raises(VerifyError, match="share a phase: write after read of d"):
        verify_schedule(kernel, program)


@given(st.data(), cases())
def test_drawn_schedules_are_right(data: st.DataObject, case: Case) -> None:
    kernels = data.draw(schedules(case.program, case.sizes))
    verify_schedules(kernels, case.program)
    assert all(parse_schedule(str(k)) == k for k in kernels)
