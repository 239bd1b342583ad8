"""Text form and value are the same thing: ``parse(str(x)) == x``, down to literals' signs and types."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given

from helion_inductor.ir.parser import parse_nest, parse_program, parse_schedule
from helion_inductor.ir.printer import DTYPES, dtype_name
from helion_inductor.ir.schedule_ir import KernelSchedule, PidMap
from helion_inductor.ir.tile_ir import Const, LoopNest, TileProgram
from tests.ir import arbitrary
from tests.strategies import Case, cases

SOFTMAX = """\
program @softmax(in x: bf16[M, K] strides(K + 8, 1), out y: f32[M, K]) sizes(M>=1~64, K>=2~1000)
  nest @n0 parallel(m: M) reduce(k: K)  # aten._softmax aten.clone
    %0: f32 = load x[k + (K + 8) * m]
    %1: f32 = reduce max(k) %0
    %2: f32 = sub(%0, %1)
    %3: f32 = exp(%2)
    %4: f32 = reduce sum(k) %3
    %5: f32 = truediv(%3, %4)
    store y[K * m + k] %5"""

EVERYTHING = """\
program @everything(in x: f32[8], out y: f8e4m3fn[8] strides(2), out z: i64[] aliases w)
  temp t: f32[floordiv(s0, 2), 3]
  in w: i64[]
  nest @n0 parallel()
  nest @n1 parallel(i: 8, j: 3 * s0) reduce(r: 5, q: 7)
    %0: f32 = const -0.0
    %1: f32 = const inf
    %2: f32 = const -inf
    %3: bool = const True
    %4: u64 = const 18446744073709551615
    %5: i64 = index 2 - i
    %6: f32 = load x[i - 1] mask %3 else -1e-05
    %7: f32 = load x[i] mask %3 else 0
    %8: i64 = cast(%6){i64}
    %9: f32 = odd(){bf16, 1, 1.0, True, -inf, 'a, "b"', "it's\\n"}
    %10: f32 = reduce sum(r, q) %6
    %11: f32 = scan logcumsumexp(r) %6
    check %8 in [0, max(8, s0)) mask %3
    check %8 in [-5, 8)
    store y[%8 + 2 * i] %6 mask %3
    atomic add z[0] %8
    atomic add z[mod(%8, 4) * i] %8 mask %3"""

KERNELS = """\
kernel @_helion_softmax  pid_type=persistent_blocked  num_warps=4  num_stages=2  sm_multiplier=2  reserved_sms=3  xcd_remap
  phase 0
    task nest @n0 pid_map row_major(a, b) tile(a[m]=1 parallel, b[n, p]=64 parallel, r[k]=1024 persistent)  wide
    task nest @n1 pid_map row_major() tile(r[k]=1024 looped)  narrow
    task nest @n8 pid_map grouped_l2(b, a, group=8) tile(a[m]=1 parallel, b[n, p]=64 parallel)  weight=7  narrow
    task nest @n9 pid_map row_major(c, a, b) tile(a[m]=1 parallel, b[n]=2 parallel, c[p]=4 parallel)
  phase 1
    task nest @n2 pid_map row_major(a) tile(a[m]=16 parallel)
    task nest @n3 @n4 @n5 pid_map row_major(a) tile(a[m]=16 parallel)
    task nest @n6 @n7 pid_map row_major(a) tile(a[m]=16 parallel)  select=table  wide"""


@pytest.mark.parametrize("text", [SOFTMAX, EVERYTHING])
def test_written_programs(text: str) -> None:
    assert str(parse_program(text)) == text


def test_written_schedule() -> None:
    assert str(parse_schedule(KERNELS)) == KERNELS
    tasks = parse_schedule(KERNELS).tasks()
    assert tasks[4].wide is None and tasks[5].nests() == ("n3", "n4", "n5") and tasks[6].select == "table"
    assert [t.pid_map for t in tasks[1:4]] == [PidMap(), PidMap(("b", "a"), 8), PidMap(("c", "a", "b"))] and tasks[2].weight == 7


@pytest.mark.parametrize(("old", "new", "words"), [
    ("grouped_l2(b, a, group=8)", "snake(a, b)", "not a pid map"),
    ("grouped_l2(b, a, group=8)", "grouped_l2(a, b)", "not a pid map"),
    ("grouped_l2(b, a, group=8)", "row_major(a)", "covers \\(a\\), the parallel dimensions are \\(a, b\\)"),
    ("grouped_l2(b, a, group=8)", "grouped_l2(b, a, group=1)", "groups of one row are row_major"),
])  # fmt: skip
def test_wrong_pid_maps(old: str, new: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_schedule(KERNELS.replace(old, new))


def test_literals_keep_sign_and_type() -> None:
    constants = [s.value for s in parse_program(EVERYTHING).nests[1].body if isinstance(s, Const)]
    assert [type(c) for c in constants] == [float, float, float, bool, int]
    assert math.copysign(1, constants[0]) == -1
    nan = "  nest @n parallel()\n    %0: f32 = const nan\n    %1: f32 = load x[0] mask %2 else nan"
    assert str(parse_nest(nan)) == nan


def test_long_headers_put_buffers_on_lines_of_their_own() -> None:
    text = "program @p()\n" + "\n".join(f"  in a_long_name_{k}: f32[100]" for k in range(8))
    assert str(parse_program(text)) == text


def test_layout_of_the_text_does_not_matter() -> None:
    loose = SOFTMAX.replace("    ", "\t").replace("\n", "\n\n") + "\n\n"
    assert parse_program(loose) == parse_program(SOFTMAX)


def test_origins_are_read_back() -> None:
    nest = parse_program(SOFTMAX).nests[0]
    assert nest.origins == ("aten._softmax", "aten.clone")


@given(arbitrary.programs)
def test_any_program(program: TileProgram) -> None:
    text = str(program)
    again = parse_program(text)
    assert again == program and str(again) == text
    assert [n.origins for n in again.nests] == [n.origins for n in program.nests]


@given(arbitrary.nests)
def test_any_nest(nest: LoopNest) -> None:
    assert parse_nest(str(nest)) == nest


@given(arbitrary.kernels)
def test_any_schedule(kernel: KernelSchedule) -> None:
    assert parse_schedule(str(kernel)) == kernel and str(parse_schedule(str(kernel))) == str(kernel)


@given(cases())
def test_sensible_programs(case: Case) -> None:
    assert parse_program(str(case.program)) == case.program


def test_dtype_names() -> None:
    assert [dtype_name(d) for d in (torch.half, torch.bfloat16, torch.int8, torch.uint16, torch.bool)] == [
        "f16",
        "bf16",
        "i8",
        "u16",
        "bool",
    ]
    assert dtype_name(torch.float8_e4m3fn) == "f8e4m3fn"
    assert all(DTYPES[dtype_name(d)] is d for d in DTYPES.values())


@pytest.mark.parametrize(("line", "text", "message"), [
    (1, "", "ends too early"),
    (1, "programme @p()", "not a program"),
    (1, "program @p(in x f32[4])", "not a buffer: 'in x f32\\[4\\]'"),
    (1, "program @p() sizes(M>1)", "not a size: 'M>1'"),
    (2, "program @p()\n  temp t: f33[4]", "not a dtype: 'f33'"),
    (2, "program @p()\n  temp t: f32[4", "not a buffer"),
    (3, "program @p()\n\n  nest n0 parallel()", "not a nest"),
    (2, "program @p()\n  nest @n parallel(i)", "not an axis: 'i'"),
    (2, "program @p()\n  nest @n parallel(i: 1 +)", "not an index expression: '1 \\+'"),
    (3, "program @p()\n  nest @n parallel()\n    hello", "not a statement"),
    (3, "program @p()\n  nest @n parallel()\n    %0: f32 = hello", "not a value"),
    (3, "program @p()\n  nest @n parallel()\n    %0: f32 = add(%1, 2)", "not a value: '2'"),
    (3, "program @p()\n  nest @n parallel()\n    %0: f32 = const twelve", "could not convert"),
    (3, "program @p()\n  nest @n parallel()\n    %0: f32 = cast(%1){f32, 'a}", "not an attribute"),
    (3, "program @p()\n  nest @n parallel()\n    %0: f32 = scan sum(a, b) %0", "a scan has one axis"),
    (3, "program @p()\n  nest @n parallel()\n    check %0 in [1, 2, 3)", "a lower and an upper bound"),
])  # fmt: skip
def test_nonsense_programs(line: int, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^line {line}: .*{message}"):
        parse_program(text)


@pytest.mark.parametrize(("line", "text", "message"), [
    (1, "kernel @k  pid_type=flat", "not a kernel"),
    (2, "kernel @k  pid_type=flat  num_warps=4  num_stages=1\n  phase 1", "phase 0 comes next"),
    (2, "kernel @k  pid_type=flat  num_warps=4  num_stages=1\n  task", "not a phase"),
    (3, "kernel @k  pid_type=flat  num_warps=4  num_stages=1\n  phase 0\n    task nest @n", "not a task"),
    (3, KERNELS.replace("row_major(a, b)", "row_major(a)"), "parallel dimensions are \\(a, b\\)"),
    (3, KERNELS.replace("a[m]=1 ", "a[m]=x "), "not a tile dimension"),
])  # fmt: skip
def test_nonsense_schedules(line: int, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^line {line}: .*{message}"):
        parse_schedule(text)


def test_errors_show_the_line() -> None:
    with pytest.raises(ValueError, match=r"line 3: .*\n    %0: f32 = hello$"):
        parse_program("program @p()\n  nest @n parallel()\n    %0: f32 = hello\n")


def test_one_nest_means_one() -> None:
    with pytest.raises(ValueError, match="line 2: the text should end here"):
        parse_nest("nest @a parallel()\nnest @b parallel()")
