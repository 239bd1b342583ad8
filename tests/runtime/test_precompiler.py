"""Compiling before a launch: for the same specialisation as the launch, into the cache where it looks, in processes that may die."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st
from triton._C.libtriton import native_specialize_impl
from triton.backends.compiler import BaseBackend

from helion_inductor.errors import HelionError
from helion_inductor.runtime.compile_pool import apart
from helion_inductor.runtime.launcher import Launcher
from helion_inductor.runtime.phased import PhasedLauncher
from helion_inductor.runtime.precompiler import POINTER_TYPES, _type_of, make_precompiler


@triton.jit
def _shift_kernel(x, out, n, by, state, FIRST: tl.constexpr, LAST: tl.constexpr, BLOCK: tl.constexpr = 64):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if FIRST <= 0:
        tl.store(out + offsets, tl.load(x + offsets, offsets < n) + by, offsets < n)
    if LAST > 1:
        tl.atomic_add(state, 1)


_NUMBERS = st.one_of(
    st.sampled_from([0, 1, 2, 16, -16, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63, 2**64 - 16]),
    st.integers(-(2**63), 2**64 - 1), st.floats(), st.booleans(), st.none(),
)  # fmt: skip


@given(_NUMBERS)
def test_numbers_have_the_types_that_triton_gives_them(value: Any) -> None:
    kind, key = native_specialize_impl(BaseBackend, value, False, True, True)
    assert _type_of("n", value) == (kind, key == "D" and kind != "constexpr")


@pytest.mark.parametrize("dtype", POINTER_TYPES)
@pytest.mark.parametrize("offset", [0, 1])
def test_tensors_have_the_types_that_triton_gives_them(dtype: torch.dtype, offset: int) -> None:
    tensor = torch.zeros(64, dtype=torch.uint8)[offset * dtype.itemsize :][: 16 * dtype.itemsize].view(dtype)
    kind, key = native_specialize_impl(BaseBackend, tensor, False, True, True)
    assert _type_of("x", tensor) == (kind, key == "D")
    assert _type_of("x", dtype) == (kind, True)


def test_requests_are_those_of_the_launches() -> None:
    launch = PhasedLauncher(_shift_kernel, 2, num_warps=8, debug=True)
    x = torch.zeros(65)
    whole, first, second = make_precompiler(launch, "sm_90").requests(x, x[1:], 48, 1, BLOCK=32)
    assert whole.kernel == "_shift_kernel" and Path(whole.module) == Path(__file__)
    assert whole.signature == {"x": "*fp32", "out": "*fp32", "n": "i32", "state": "*i32"}
    assert whole.constexprs == {"by": 1, "FIRST": 0, "LAST": 2, "BLOCK": 32}
    assert whole.divisible_by_16 == ("x", "n", "state")
    assert (whole.num_warps, whole.num_stages, whole.launch_cooperative_grid, whole.target) == (8, 2, True, "sm_90")
    assert whole.options == {"debug": True, "sanitize_overflow": False}
    phases = [(r.constexprs["FIRST"], r.constexprs["LAST"], r.launch_cooperative_grid) for r in (first, second)]
    assert phases == [(0, 1, False), (1, 2, False)]


def test_what_no_kernel_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    precompile = make_precompiler(Launcher(_shift_kernel, state_words=1), "sm_90")
    with pytest.raises(HelionError, match="out: cannot compile for an argument of type list"):
        precompile.requests(torch.float32, [1], 3, 4)
    with pytest.raises(HelionError, match="x: no kernel takes tensors of torch.complex64"):
        precompile.requests(torch.complex64)
    with pytest.raises(HelionError, match="_shift_kernel takes 8 arguments, got 9"):
        precompile.requests(*[torch.float32] * 8)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(HelionError, match="there is no GPU to compile for: name a target"):
        make_precompiler(Launcher(_shift_kernel))


_KERNEL = """
import triton
import triton.language as tl
from helion_inductor.runtime.launcher import Launcher

@triton.jit
def add_kernel(x, out, n, by, state, BLOCK: tl.constexpr = 64):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, offsets < n) + by, offsets < n)
    tl.atomic_add(state, 1)

@triton.jit
def broken_kernel(x):
    tl.store(x, no_such_name)

launch = Launcher(add_kernel, num_warps=2, num_stages=3, launch_cooperative_grid=True, debug=True, maxnreg=64, state_words=1)
"""
_COMPARE = """
import os, sys, torch, triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
import kernels
from helion_inductor.runtime.launcher import Launcher
from helion_inductor.runtime.precompiler import make_precompiler
from helion_inductor.errors import HelionError

class Driver:
    def get_current_device(self): return 0
    def get_current_stream(self, index): return 0
    def get_current_target(self): return GPUTarget("cuda", 90, 32)

cache = os.environ["TRITON_CACHE_DIR"]
(found,) = make_precompiler(kernels.launch, "sm_90")(torch.float16, torch.float32, 1000, 1.5)
assert found.num_warps == 2 and found.registers <= 64, found
before = set(os.listdir(cache))
assert before
driver._active = Driver()
launch = kernels.launch
compiled = launch.jit_fn.warmup(torch.float16, torch.float32, 1000, 1.5, torch.int32, grid=(1,), **launch.options)
assert compiled is not None and set(os.listdir(cache)) == before, "the launch would have compiled again"
launch.jit_fn.warmup(torch.float16, torch.float32, 1008, 1.5, torch.int32, grid=(1,), **launch.options)
assert set(os.listdir(cache)) > before
try:
    make_precompiler(Launcher(kernels.broken_kernel), "sm_90")(torch.float16)
except HelionError as error:
    assert "broken_kernel does not compile for sm_90" in str(error) and "no_such_name" in str(error), error
else:
    raise AssertionError
print("as it should be")
"""


def test_a_launch_finds_what_was_compiled_before(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(_KERNEL)
    root = str(Path(__file__).parents[2])
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": f"{root}:{tmp_path}"}
    done = subprocess.run([sys.executable, "-c", _COMPARE], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "as it should be" in done.stdout, done.stderr[-3000:]


def _work(number: int) -> int:
    if number == 3:
        os._exit(11)  # what a crash of the compiler comes to
    return 10 * number


@pytest.mark.parametrize("workers", [1, 2])
def test_a_process_that_dies_takes_one_piece_of_work_with_it(workers: int) -> None:
    assert apart(_work, [1, 2, 3, 4, 5], workers, lambda number: -number) == [10, 20, -3, 40, 50]
    assert apart(_work, [], workers, lambda number: -number) == []


def test_what_the_work_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        apart(_divide, [0], 1, str)


def _divide(number: int) -> float:
    return 1 / number
