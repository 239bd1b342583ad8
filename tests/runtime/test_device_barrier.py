"""The grid barrier: its arithmetic over any sequence of grids, and its code for GPUs that are not here."""

from __future__ import annotations

import random
import re

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st
from triton import knobs

from helion_inductor.errors import HelionError
from helion_inductor.runtime.device_barrier import grid_barrier
from helion_inductor.runtime.precompile import CompileFailure, KernelRequest, Resources, compile_offline_many

SOURCE = """
import triton
import triton.language as tl
from helion_inductor.runtime import device_lib as dl

@triton.jit
def kernel(x, out, state, BLOCK: tl.constexpr, POLLS: tl.constexpr = 0):
    pid, count = tl.program_id(0), tl.num_programs(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) + 1)
    dl.grid_barrier(state, 0, count, POLLS)
    j = (count - 1 - pid) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(out + j) * 2)

@triton.jit
def without(x, out, BLOCK: tl.constexpr):
    pid, count = tl.program_id(0), tl.num_programs(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) + 1)
    j = (count - 1 - pid) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(out + j) * 2)
"""
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942", "gfx950")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Resources]:
    path = tmp_path_factory.mktemp("barrier") / "kernels.py"
    path.write_text(SOURCE)
    signature = {"x": "*fp32", "out": "*fp32", "state": "*i32"}

    def request(target: str, polls: int = 0) -> KernelRequest:
        return KernelRequest(str(path), "kernel", signature, {"BLOCK": 1024, "POLLS": polls}, target, launch_cooperative_grid=True)

    requests = {target: request(target) for target in TARGETS}
    requests |= {f"{target} bounded": request(target, 1000) for target in ("sm_90", "gfx942")}
    requests["without"] = KernelRequest(str(path), "without", {"x": "*fp32", "out": "*fp32"}, {"BLOCK": 1024})
    results = compile_offline_many(list(requests.values()), workers=2)
    failed = [result.message for result in results if isinstance(result, CompileFailure)]
    assert not failed
    return dict(zip(requests, results))  # type: ignore[arg-type]


def test_the_first_thread_arrives_and_polls_between_two_barriers_of_the_program(compiled: dict[str, Resources]) -> None:
    ptx = compiled["sm_90"].ptx
    order = r"bar\.sync.*setp\.ne\.u32 p.*atom\.global\.gpu\.acq_rel\.add.*ld\.acquire\.gpu\.global.*@p bra AGAIN.*bar\.sync"
    assert re.search(order, ptx, re.DOTALL)
    stores, loads = [m.start() for m in re.finditer(r"st\.global", ptx)], [m.start() for m in re.finditer(r"ld\.global", ptx)]
    first, last = (m.start() for m in re.finditer(r"bar\.sync", ptx))
    assert any(s < first for s in stores) and any(s > last for s in stores) and any(load > last for load in loads)
    assert not any(first < place < last for place in (*stores, *loads))
    assert "ld.global.nc" not in ptx and "trap" not in ptx


def test_it_costs_few_registers_and_no_shared_memory(compiled: dict[str, Resources]) -> None:
    with_barrier, without = compiled["sm_90"], compiled["without"]
    assert with_barrier.registers <= without.registers + 8
    assert with_barrier.shared_bytes == with_barrier.stack_bytes == 0


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_has_one(compiled: dict[str, Resources], target: str) -> None:
    assert compiled[target].stack_bytes == 0
    if target.startswith("gfx"):
        text = compiled[target].ptx
        assert "buffer_inv sc1" in text and "buffer_wbl2 sc1" in text and text.count("global_atomic_add") == 1 and "s_barrier" in text


def test_a_bounded_wait_traps(compiled: dict[str, Resources]) -> None:
    assert "@p trap" in compiled["sm_90 bounded"].ptx and "s_trap 2" in compiled["gfx942 bounded"].ptx


def _arrive(word: int, program: int, count: int) -> int:
    """What `grid_barrier` adds, in the kernel's own arithmetic."""
    step = (1 - count) ^ -(2**31) if program == 0 else 1
    assert -(2**31) <= step < 2**31
    return (word + step) % 2**32


@given(st.lists(st.one_of(st.integers(1, 300), st.just(2**16)), min_size=1, max_size=6), st.integers(0, 2**32))
def test_a_round_is_complete_exactly_when_all_have_come(grids: list[int], seed: int) -> None:
    word, order = 0, random.Random(seed)
    for count in grids:
        before = word
        programs = list(range(count))
        order.shuffle(programs)
        for come, program in enumerate(programs, start=1):
            word = _arrive(word, program, count)
            assert bool((word ^ before) >> 31) == (come == count)
        assert word & 0x7FFFFFFF == 0  # as it was found, but for the top bit


@pytest.mark.skipif(not knobs.runtime.interpret, reason="runs in Triton's interpreter")
def test_the_interpreter_takes_one_program_only() -> None:
    @triton.jit
    def kernel(out, state):
        grid_barrier(state, 0, tl.num_programs(0))
        tl.store(out + tl.program_id(0), 1)

    out, state = torch.zeros(2), torch.zeros(1, dtype=torch.int32)
    kernel[(1,)](out, state)
    assert out.tolist() == [1, 0]
    with pytest.raises(triton.runtime.errors.InterpreterError) as caught:
        kernel[(2,)](out, state)
    root: BaseException = caught.value
    while root.__cause__ is not None:
        root = root.__cause__
    assert isinstance(root, HelionError) and "grid barrier of 2 programs cannot be interpreted" in str(root)
