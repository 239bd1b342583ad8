"""Which nests are products of matrices, and what their rows, columns and batch are."""

from __future__ import annotations

import pytest
import torch

from helion_inductor.ir.dots import dot_plan
from helion_inductor.ir.parser import parse_program

PLAIN = """
program @p(in a: bf16[8, 32], in b: bf16[16, 32], in s: f32[8], out y: bf16[8, 16])
  nest @n0 parallel(m: 8, n: 16) reduce(k: 32)
    %0: f32 = load a[32 * m + k]
    %1: f32 = load b[32 * n + k]
    %2: f32 = mul(%0, %1)
    %3: f32 = reduce sum(k) %2
    store y[16 * m + n] %3
"""


def plan(text: str):  # type: ignore[no-untyped-def]
    program = parse_program(text.strip())
    return dot_plan(program.nests[0], program.by_name())


def test_rows_and_columns() -> None:
    found = plan(PLAIN)
    assert (found.batch, found.rows, found.columns, found.kept) == ((), ("m",), ("n",), ())
    (dot,) = found.dots
    assert (dot.value, dot.left, dot.right, dot.dtype) == (3, 0, 1, torch.bfloat16)


def test_columns_are_where_stores_walk_memory() -> None:
    found = plan(PLAIN.replace("mul(%0, %1)", "mul(%1, %0)"))
    assert (found.rows, found.columns) == (("m",), ("n",))
    assert (found.dots[0].left, found.dots[0].right) == (0, 1)


def test_an_axis_of_both_factors_numbers_matrices() -> None:
    text = PLAIN.replace("a: bf16[8, 32]", "a: bf16[3, 8, 32]").replace("y: bf16[8, 16]", "y: bf16[3, 8, 16]")
    text = text.replace("b: bf16[16, 32]", "b: bf16[3, 16, 32]").replace("parallel(m: 8", "parallel(z: 3, m: 8")
    for old, new in (("a[32 * m", "a[256 * z + 32 * m"), ("b[32 * n", "b[512 * z + 32 * n"), ("y[16 * m", "y[128 * z + 16 * m")):
        text = text.replace(old, new)
    found = plan(text)
    assert (found.batch, found.rows, found.columns) == (("z",), ("m",), ("n",))


def test_a_norm_before_the_product_is_kept_where_it_is_needed_after() -> None:
    norm = """    %0: f32 = load a[32 * m + k]
    %4: f32 = mul(%0, %0)
    %5: f32 = reduce sum(k) %4
    %6: f32 = mul(%0, %5)
    %7: f32 = round_to(%6){bf16}
"""
    text = PLAIN.replace("    %0: f32 = load a[32 * m + k]\n", norm).replace("mul(%0, %1)", "mul(%7, %1)")
    assert plan(text).kept == ()
    text = text.replace("    store y", "    %8: f32 = add(%3, %5)\n    store y").replace("n] %3", "n] %8")
    assert plan(text).kept == (5,)


@pytest.mark.parametrize(("old", "new"), [
    ("a: bf16", "a: f32"),  # a factor that is no half
    ("in b: bf16", "in b: f16"),  # halves of two kinds
    ("reduce sum", "reduce max"),
    ("mul(%0, %1)", "add(%0, %1)"),
    ("b[32 * n + k]", "b[k]"),  # no columns
    ("b[32 * n + k]", "b[32 * n]"),  # not summed over
    ("    store y", "    %4: f32 = add(%3, %0)\n    store y"),  # a factor is needed element by element
])  # fmt: skip
def test_what_is_no_product(old: str, new: str) -> None:
    text = PLAIN.replace(old, new)
    if "%4: f32 = add" in new:
        text = text.replace("n] %3", "n] %3").replace("store y[16 * m + n] %3", "store y[16 * m + n] %4")
    assert plan(text) is None
