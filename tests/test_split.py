"""Reductions that are split mean what they meant whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given, note
from hypothesis import strategies as st

from helion_inductor.backend import helion
from helion_inductor.device import H200
from helion_inductor.errors import VerifyError
from helion_inductor.ir.interpret import interpret
from helion_inductor.ir.parser import parse_program
from helion_inductor.ir.tile_ir import TileProgram
from helion_inductor.ir.verify import verify_program
from helion_inductor.ir.verify_schedule import verify_schedules
from helion_inductor.pipeline import collapse
from helion_inductor.report import GraphReport
from helion_inductor.scheduling.dependence import levels, storage
from helion_inductor.scheduling.fuse_vertical import fuse_vertical
from helion_inductor.scheduling.inline import inline_producers
from helion_inductor.scheduling.persistent import build_schedules
from helion_inductor.scheduling.split_choice import SplitDecision, choose_cut, split_reductions
from helion_inductor.scheduling.tile_sizes import TileTarget
from tests.codegen.generated import of_few_tiles, run_module
from tests.strategies import Case, cases

INTERPRETER, DEVICE = TileTarget(1, interpreter=True), TileTarget(H200.sm_count)
CHUNKS = st.sampled_from([2, 3, 4, 5, 8, 16])


def split(program: TileProgram, chunk: int) -> tuple[TileProgram, tuple[SplitDecision, ...]]:
    result, decisions = split_reductions(program, INTERPRETER, chunk=chunk)
    verify_program(result)
    return result, decisions


def fused(case: Case) -> TileProgram:
    return collapse(fuse_vertical(inline_producers(case.program))[0])


@given(cases(scatter=False), CHUNKS)
def test_a_split_program_means_the_same(case: Case, chunk: int) -> None:
    """Every reduction of random programs that can be cut, at ragged and exact chunks, static and dynamic."""
    result, decisions = split(case.program, chunk)
    assume(any(d.split for d in decisions))
    note(str(result))
    case.check(case.outputs(interpret(result, case.inputs(), case.sizes)))


@given(cases(scatter=False, updates=False), CHUNKS)
def test_a_fused_program_that_is_split_means_the_same(case: Case, chunk: int) -> None:
    result, decisions = split(fused(case), chunk)
    assume(any(d.split for d in decisions))
    note(str(result))
    case.check(case.outputs(interpret(result, case.inputs(), case.sizes)))


@given(cases(max_points=500, scatter=False, updates=False), CHUNKS)
def test_kernels_of_a_split_program(case: Case, chunk: int) -> None:
    program, decisions = split(fused(case), chunk)
    assume(any(d.split for d in decisions))
    kernels, _ = build_schedules(program, INTERPRETER)
    verify_schedules(kernels, program)
    note("\n".join(map(str, (program, *kernels))))
    case.check(run_module(case, program, of_few_tiles(kernels, case, program), 3))


# ---- each kind of reduction, on values that are hard for it
KINDS = {
    "sum": torch.float32, "prod": torch.float32, "max": torch.float32, "min": torch.float32, "any": torch.bool,
    "xor_sum": torch.int64, "argmax": torch.float32, "argmin": torch.float32,
}  # fmt: skip
SHORT = {torch.float32: "f32", torch.bool: "bool", torch.int64: "i64", torch.int32: "i32"}


def row_program(kind: str, dtype: torch.dtype, *, dynamic: bool, rows_last: bool = False) -> TileProgram:
    """One reduction of each row of x0; ``rows_last``: the reduced axis is not the contiguous one."""
    result = torch.int64 if kind.startswith("arg") else dtype
    rows, length = ("s0", "s1") if dynamic else ("3", "37")
    at = f"{rows} * r0 + p0" if rows_last else f"{length} * p0 + r0"
    shape = f"{length}, {rows}" if rows_last else f"{rows}, {length}"
    sizes = " sizes(s0>=0~3, s1>=0~37)" if dynamic else ""
    return parse_program(f"""
        program @row(in x0: {SHORT[dtype]}[{shape}], out y0: {SHORT[result]}[{rows}]){sizes}
          nest @n0 parallel(p0: {rows}) reduce(r0: {length})
            %0: {SHORT[dtype]} = load x0[{at}]
            %1: {SHORT[result]} = reduce {kind}(r0) %0
            store y0[p0] %1
        """)


def run(program: TileProgram, x: torch.Tensor, sizes: dict[str, int]) -> torch.Tensor:
    return interpret(program, {"x0": x}, sizes)["y0"]


@pytest.mark.parametrize("rows_last", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("kind", "dtype"), [*KINDS.items(), ("argmax", torch.bool), ("argmin", torch.int32), ("max", torch.int64),
                                             ("sum", torch.int32)])  # fmt: skip
def test_every_kind(kind: str, dtype: torch.dtype, dynamic: bool, rows_last: bool) -> None:
    """Ties, NaN, infinities, and rows shorter and longer than the chunk they were compiled for."""
    whole = row_program(kind, dtype, dynamic=dynamic, rows_last=rows_last)
    cut, (decision,) = split(whole, 8)
    assert decision.split and len(cut.nests) == 2 and {b.name for b in cut.buffers} > {b.name for b in whole.buffers}
    generator = torch.Generator().manual_seed(3)
    for length in (37, 1, 7, 8, 9, 64) if dynamic else (37,):
        x = torch.randint(-2, 3, (3, length), generator=generator).to(dtype)
        if dtype.is_floating_point:
            x[0, length // 2] = float("nan") if kind.endswith(("max", "min")) else 0.5
            x[1] = float("-inf")
        given_x = x.t().contiguous() if rows_last else x
        sizes = {"s0": 3, "s1": length} if dynamic else {}
        torch.testing.assert_close(run(cut, given_x, sizes), run(whole, given_x, sizes), equal_nan=True)


@pytest.mark.parametrize("kind", ["sum", "prod", "any", "xor_sum"])
def test_rows_without_elements(kind: str) -> None:
    whole = row_program(kind, KINDS[kind], dynamic=True)
    cut, _ = split(whole, 8)
    x = torch.empty((3, 0), dtype=KINDS[kind])
    want = {"sum": 0, "prod": 1, "any": False, "xor_sum": 0}[kind]
    if kind != "xor_sum":  # torch has no such reduction, and the interpreter starts from the first element
        assert run(cut, x, {"s0": 3, "s1": 0}).tolist() == [want] * 3


SOFTMAX = """
    program @softmax(in x0: f32[4, {n}], out y0: f32[4, {n}], out y1: f32[4])
      nest @n0 parallel(p0: 4) reduce(r0: {n})
        %0: f32 = load x0[{n} * p0 + r0]
        %1: f32 = reduce max(r0) %0
        %2: f32 = sub(%0, %1)
        %3: f32 = exp(%2)
        %4: f32 = reduce sum(r0) %3
        store y1[p0] %1
        %5: f32 = truediv(%3, %4)
        store y0[{n} * p0 + r0] %5
    """


@pytest.mark.parametrize("n", [40, 41])
def test_a_chain_of_reductions_takes_two_nests_for_each(n: int) -> None:
    program = parse_program(SOFTMAX.format(n=n))
    cut, _ = split(program, 8)
    assert [len(nest.reduce) for nest in cut.nests] == [1, 1, 1, 1, 0] and [n.name for n in cut.nests] == [f"n0_{k}" for k in range(1, 6)]
    x = torch.randn((4, n), generator=torch.Generator().manual_seed(0))
    got = interpret(cut, {"x0": x}, {})
    torch.testing.assert_close(got["y0"], x.softmax(-1))
    torch.testing.assert_close(got["y1"], x.amax(-1))


# ---- where it is cut
@given(st.lists(st.integers(1, 50), min_size=1, max_size=3), st.integers(2, 100))
def test_a_cut_covers_the_axes(extents: list[int], elements: int) -> None:
    axes = ", ".join(f"r{k}: {n}" for k, n in enumerate(extents))
    nest = parse_program(f"""
        program @p(in x0: f32[1], out y0: f32[1])
          nest @n0 parallel() reduce({axes})
            %0: f32 = load x0[0]
            %1: f32 = reduce sum({', '.join(f'r{k}' for k in range(len(extents)))}) %0
            store y0[0] %1
        """).nests[0]  # fmt: skip
    cut = choose_cut(nest, elements, {})
    total = torch.Size(extents).numel()
    if cut is None:
        assert total <= elements
        return
    inner = torch.Size(extents[cut.position + 1 :]).numel()
    assert inner <= elements and (cut.length * inner <= elements or cut.length == 2)
    assert (int(cut.chunks(nest)) - 1) * cut.length < extents[cut.position] <= int(cut.chunks(nest)) * cut.length


def test_chunks_that_divide_the_axis_are_preferred() -> None:
    assert [_chunk(n) for n in (2359296, 589824, 151296, 768000)] == [16384, 16384, 12608, 16000]
    assert [_chunk(n) for n in (1000003, 5 * 16383)] == [16384] * 2  # a prime; a divisor that would tear accesses apart


def _chunk(n: int) -> int:
    cut = choose_cut(_program_of(n, 1).nests[0], 16384, {})
    assert cut is not None
    return cut.length


def _program_of(n: int, rows: int) -> TileProgram:
    return parse_program(f"""
        program @p(in x0: f32[{rows}, {n}], out y0: f32[{rows}])
          nest @n0 parallel(p0: {rows}) reduce(r0: {n})
            %0: f32 = load x0[{n} * p0 + r0]
            %1: f32 = reduce sum(r0) %0
            store y0[p0] %1
        """)


@pytest.mark.parametrize(("rows", "n", "expected"), [
    (1, 16 << 20, True), (4, 1 << 20, True), (64, 1 << 20, True), (1, 768, False), (512, 1000, False), (4096, 1 << 14, False),
])  # fmt: skip
def test_few_long_rows_are_split_on_a_device_and_never_in_the_interpreter(rows: int, n: int, expected: bool) -> None:
    program = _program_of(n, rows)
    cut, decisions = split_reductions(program, DEVICE)
    assert [d.split for d in decisions if d.split] == [True] * expected and (len(cut.nests) == 2) is expected
    assert split_reductions(program, INTERPRETER) == (program, ())
    if expected:
        assert "us split, by 1 more kernels, against" in decisions[0].reason and str(decisions[0]).startswith("n0: split in chunks of ")


def test_what_stays_whole_and_why() -> None:
    scan = parse_program("""
        program @p(in x0: f32[64], out y0: f32[64], out y1: f32[1])
          nest @n0 parallel() reduce(r0: 64)
            %0: f32 = load x0[r0]
            %1: f32 = scan sum(r0) %0
            %2: f32 = reduce sum(r0) %1
            store y0[r0] %1
            store y1[0] %2
        """)
    update = parse_program("""
        program @p(in x0: f32[64], out y0: f32[64] aliases x0)
          nest @n0 parallel() reduce(r0: 64)
            %0: f32 = load x0[r0]
            %1: f32 = reduce sum(r0) %0
            %2: f32 = sub(%0, %1)
            store y0[r0] %2
        """)
    for program, why in ((scan, "it scans or adds atomically"), (update, "it reads what it overwrites")):
        same, (decision,) = split(program, 8)
        assert same == program and str(decision) == f"n0: whole: {why}"


def test_partial_results_share_a_buffer_and_their_nests_a_kernel() -> None:
    nests = "".join(f"""
          nest @n{k} parallel() reduce(r0: {64 * (k + 1)})
            %0: f32 = load x{k}[r0]
            %1: f32 = reduce sum(r0) %0
            store y0[{k}] %1""" for k in range(5))  # fmt: skip
    given_ = ", ".join(f"in x{k}: f32[{64 * (k + 1)}]" for k in range(5))
    program, _ = split(parse_program(f"program @p({given_}, out y0: f32[5]){nests}"), 16)
    assert [b.name for b in program.buffers if b.kind == "temp"] == ["part0"]
    kernels, _ = build_schedules(program, INTERPRETER)
    verify_schedules(kernels, program)
    assert [[len(t.nests()) for t in k.tasks()] for k in kernels] == [[5], [5]]
    xs = {f"x{k}": torch.randn(64 * (k + 1), generator=torch.Generator().manual_seed(k)) for k in range(5)}
    torch.testing.assert_close(interpret(program, xs, {})["y0"], torch.stack([x.sum() for x in xs.values()]))
    early = replace(kernels[0], phases=(replace(kernels[0].phases[0], tasks=(*kernels[0].tasks(), *kernels[1].tasks())),))
    with pytest.raises(VerifyError, match="share a phase: read after write of part0"):
        verify_schedules((early,), program)


# ---- through torch.compile
def full(x: torch.Tensor) -> Any:
    return x.sum(), x.mean(), x.abs().amax(), x.argmax(), x.var()


def rows(x: torch.Tensor) -> Any:
    return x.amax(-1), x.softmax(-1), x / x.norm(dim=-1, keepdim=True), x.argmin(-1)


def columns(x: torch.Tensor) -> Any:
    return x.sum(0), (x * x).mean(0), x.sum((0, 1)), x.any(0), x.argmax(0)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("fn", [full, rows, columns])
def test_compiled_functions(fn: Callable[..., Any], dynamic: bool, device: str) -> None:
    """Sizes that are whole numbers of chunks and others, smaller and larger than what was compiled for."""
    options = {"regions": "all", "on_error": "raise", "split_reductions": 16, "inductor": {"force_disable_caches": True}}
    graphs: list[GraphReport] = []
    run = torch.compile(fn, backend="helion", options=options, dynamic=dynamic)
    generator = torch.Generator().manual_seed(0)
    for shape in ((9, 50), (40, 64), (3, 7), (100, 33)) if dynamic else ((9, 50), (40, 64)):
        x = torch.randn(shape, generator=generator).to(device)
        if dynamic:
            torch._dynamo.mark_dynamic(x, (0, 1))
        with helion.recording(graphs.append):
            torch.testing.assert_close(run(x), fn(x))
    assert len(graphs) == (1 if dynamic else 2) and all(any(d.split for r in g.regions for d in r.compiled.splits) for g in graphs)


# ---- parts of a buffer
def _nests(*bodies: str) -> TileProgram:
    text = "".join(f"\n          nest @n{k} {head}\n            %0: f32 = load x0[0]\n            store y0[{at}] %0"
                   for k, (head, at) in enumerate(b.split(" | ") for b in bodies))  # fmt: skip
    return parse_program(f"program @p(in x0: f32[1], out y0: f32[64]){text}")


@pytest.mark.parametrize(("first", "second", "expected"), [
    ("parallel(p0: 4) | p0", "parallel(p0: 4) | p0 + 4", True),
    ("parallel(p0: 4) | p0", "parallel(p0: 4) | p0 + 3", False),
    ("parallel(p0: 4, p1: 3) | 8 * p0 + p1", "parallel(p0: 4, p1: 5) | 8 * p0 + p1 + 3", True),
    ("parallel(p0: 4, p1: 3) | 8 * p0 + p1", "parallel(p0: 4, p1: 5) | 8 * p0 + p1 + 2", False),
    ("parallel(p0: 4, p1: 3) | 8 * p0 + p1", "parallel(p0: 4, p1: 6) | 8 * p0 + p1 + 3", False),
    ("parallel(p0: 4, p1: 3) | 8 * p0 + p1", "parallel(p0: 4) | 8 * p0 + 7", True),
    ("parallel(p0: 2) | 2 * p0", "parallel(p0: 2) | 2 * p0 + 1", True),
    ("parallel(p0: 4) | 2 * p0", "parallel(p0: 2) | 3 * p0 + 1", False),
    ("parallel(p0: 4) | 2 * p0", "parallel(p0: 4) | mod(p0, 2)", False),
])  # fmt: skip
def test_nests_that_write_parts_of_a_buffer(first: str, second: str, expected: bool) -> None:
    program = _nests(first, second)
    assert (levels(program.nests, storage(program)) == [0, 0]) is expected
