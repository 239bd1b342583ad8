"""Compiling for GPUs that are not here, from a process that may be interpreting kernels itself."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import triton
import triton.language as tl

from helion_inductor.errors import HelionError
from helion_inductor.runtime import precompile
from helion_inductor.runtime.precompile import (
    CompileFailure,
    KernelRequest,
    Resources,
    compile_offline,
    compile_offline_many,
    compile_offline_source,
)

SOURCE = """
import triton
import triton.language as tl
from helion_inductor.runtime.launcher import Launcher


@triton.jit
def copy_kernel(x, out, n, BLOCK: tl.constexpr, DTYPE: tl.constexpr = None):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n)
    if DTYPE is not None:
        value = value.to(DTYPE).to(tl.float32)
    tl.store(out + offsets, value, mask=offsets < n)


@triton.jit
def spilling_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b, c = tl.load(x + i), tl.load(x + BLOCK + i), tl.load(x + 2 * BLOCK + i)
    total = a * b
    for j in range(n):
        total = total + tl.sum(a * total) * b + tl.load(x + j) * c
    tl.store(out + i, total + a + b + c)


@triton.jit
def dot_kernel(x, out, N: tl.constexpr):
    i = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + i, tl.dot(tl.load(x + i), tl.load(x + i)))


@triton.jit
def barrier_kernel(flag, BLOCK: tl.constexpr):
    tl.atomic_add(flag, 1, sem="acq_rel", scope="gpu")
    while tl.atomic_add(flag, 0, sem="acquire", scope="gpu") < tl.num_programs(0):
        pass


@triton.jit
def broken_kernel(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), there_is_no_such_name)


print("modules may print")
_launch_0 = Launcher(copy_kernel)
"""

SIGNATURE = {"x": "*fp32", "out": "*fp32", "n": "i32"}
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942", "gfx950")


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("offline") / "kernels.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture(scope="module")
def results(module: Path) -> dict[str, Resources | CompileFailure]:
    """Every kernel of these tests, compiled in one process by two workers."""
    copy = KernelRequest(str(module), "copy_kernel", SIGNATURE, {"BLOCK": 1024})
    requests = {target: dataclasses.replace(copy, target=target) for target in TARGETS}
    requests |= {
        "aligned": dataclasses.replace(copy, divisible_by_16=("x", "out", "n")),
        "dtype": dataclasses.replace(copy, constexprs={"BLOCK": 1024, "DTYPE": tl.float16}),
        "warps": dataclasses.replace(copy, num_warps=8, maxnreg=32),
        "spilling": dataclasses.replace(copy, kernel="spilling_kernel", constexprs={"BLOCK": 4096}, maxnreg=32),
        "spilling on AMD": dataclasses.replace(
            copy, kernel="spilling_kernel", constexprs={"BLOCK": 32768}, target="gfx942"
        ),
        "dot": KernelRequest(str(module), "dot_kernel", {"x": "*fp16", "out": "*fp32"}, {"N": 128}),
        "cooperative": KernelRequest(
            str(module), "barrier_kernel", {"flag": "*i32"}, {"BLOCK": 1}, launch_cooperative_grid=True
        ),
        "broken": KernelRequest(str(module), "broken_kernel", {"x": "*fp32"}, {"BLOCK": 16}),
        "no kernel": KernelRequest(str(module), "absent_kernel", {}, {}),
        "no module": KernelRequest(str(module.parent / "absent.py"), "copy_kernel", {}, {}),
        "no type": KernelRequest(str(module), "copy_kernel", {"x": "*fp32"}, {"BLOCK": 16}),
        "no parameter": KernelRequest(str(module), "copy_kernel", SIGNATURE, {"BLOCK": 16, "SIZE": 1}),
        "no target": dataclasses.replace(copy, target="sm_12"),
    }
    return dict(zip(requests, compile_offline_many(list(requests.values()), workers=2)))


def _resources(results: dict[str, Resources | CompileFailure], name: str) -> Resources:
    found = results[name]
    assert isinstance(found, Resources), found
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_compiles_without_a_gpu(results: dict[str, Resources | CompileFailure], target: str) -> None:
    found = _resources(results, target)
    assert found.target == target and found.num_warps == 4
    assert 0 < found.registers < 100
    assert (found.stack_bytes, found.spill_stores, found.spill_loads, found.shared_bytes) == (0, 0, 0, 0)
    assert found.occupancy == (None if target.startswith("gfx") else 16)
    assert "copy_kernel" in found.ptx and "ttg" in found.ttgir


def test_divisibility_gives_wide_loads(results: dict[str, Resources | CompileFailure]) -> None:
    assert "v4.b32" in _resources(results, "aligned").ptx
    assert "v4.b32" not in _resources(results, "sm_90").ptx


def test_constexprs_of_every_kind_arrive(results: dict[str, Resources | CompileFailure]) -> None:
    assert "f16" in _resources(results, "dtype").ptx
    assert "f16" not in _resources(results, "sm_90").ptx
    for value in (True, 3, 0.5, -0.0, math.inf, "name", None, tl.bfloat16, (1, (tl.int8, "a"))):
        assert precompile._decode(precompile._encode(value)) == value
    with pytest.raises(HelionError, match="cannot send a constexpr of type list to the compile process"):
        precompile._encode([1])


def test_options_are_passed_on(results: dict[str, Resources | CompileFailure]) -> None:
    found = _resources(results, "warps")
    assert found.num_warps == 8 and found.registers <= 32 and found.occupancy == 8
    assert ".maxnreg 32" in found.ptx
    assert _resources(results, "cooperative").registers > 0


def test_spills_are_counted(results: dict[str, Resources | CompileFailure]) -> None:
    found = _resources(results, "spilling")
    assert found.registers <= 32 and found.stack_bytes > 0
    assert found.spill_stores and found.spill_loads
    assert _resources(results, "spilling on AMD").spill_stores


def test_shared_memory_limits_occupancy(results: dict[str, Resources | CompileFailure]) -> None:
    found = _resources(results, "dot")
    assert found.shared_bytes >= 2 * 128 * 128
    assert found.occupancy is not None and 1 <= found.occupancy <= 228 * 1024 // found.shared_bytes


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("broken", "there_is_no_such_name is not defined"),
        ("no kernel", "has no attribute 'absent_kernel'"),
        ("no module", "FileNotFoundError"),
        ("no type", "copy_kernel: no type or value for out, n; its parameters are x, out, n, BLOCK, DTYPE"),
        ("no parameter", "copy_kernel: no parameter SIZE; its parameters are x, out, n, BLOCK, DTYPE"),
        ("no target", "cannot compile for 'sm_12'; known targets: sm_80, sm_90, sm_100, gfx942, gfx950"),
    ],
)
def test_a_kernel_that_does_not_compile_leaves_the_others_alone(
    results: dict[str, Resources | CompileFailure], name: str, words: str
) -> None:
    found = results[name]
    assert isinstance(found, CompileFailure)
    assert words in found.message


def test_one_kernel_by_its_source(module: Path) -> None:
    found = compile_offline_source(
        module, "copy_kernel", SIGNATURE, {"BLOCK": 64}, num_warps=1, divisible_by_16={"x", "out"}
    )
    assert (found.target, found.num_warps, found.occupancy) == ("sm_90", 1, 32)
    with pytest.raises(
        HelionError, match=r"(?s)broken_kernel of .*kernels.py does not compile for sm_80: .*no_such_name"
    ):
        compile_offline_source(module, "broken_kernel", {"x": "*fp32"}, {"BLOCK": 16}, target="sm_80")


def test_nothing_asked_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompile, "subprocess", None)
    assert compile_offline_many([]) == []


def test_the_compile_process_may_fail(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = KernelRequest(str(module), "copy_kernel", SIGNATURE, {"BLOCK": 64})

    def crash(command: object, **options: object) -> SimpleNamespace:
        return SimpleNamespace(returncode=-11, stdout="", stderr="Segmentation fault")

    def hang(command: object, **options: object) -> SimpleNamespace:
        raise subprocess.TimeoutExpired("python", 5)

    timeout = subprocess.TimeoutExpired
    monkeypatch.setattr(precompile, "subprocess", SimpleNamespace(run=crash, TimeoutExpired=timeout))
    with pytest.raises(HelionError, match="compile process for copy_kernel ended with -11:\nSegmentation fault"):
        compile_offline_many([request])
    monkeypatch.setattr(precompile, "subprocess", SimpleNamespace(run=hang, TimeoutExpired=timeout))
    with pytest.raises(HelionError, match="compiling 1 kernels took longer than 5 s"):
        compile_offline_many([request], timeout_s=5)


def test_an_interpreted_function_is_refused_with_the_way_out() -> None:
    def kernel(x):
        pass

    interpreted = SimpleNamespace(fn=kernel, __name__="kernel")
    with pytest.raises(HelionError, match="kernel is an interpreted function .*use compile_offline_source"):
        compile_offline(interpreted, {"x": "*fp32"}, {})


def test_unknown_targets_are_refused_at_once() -> None:
    def kernel(x):
        pass

    with pytest.raises(HelionError, match="cannot compile for 'sm_12'"):
        compile_offline(triton.JITFunction(kernel), {"x": "*fp32"}, {}, target="sm_12")


def test_an_assembler_report_that_does_not_match_gives_no_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    report = "16 bytes stack frame, 24 bytes spill stores, 32 bytes spill loads\nUsed 40 registers"
    run = SimpleNamespace(run=lambda *command, **options: SimpleNamespace(stderr=report))
    monkeypatch.setattr(precompile, "subprocess", run)
    assert precompile._spills("", "sm_90", registers=40, stack=16) == (24, 32)
    assert precompile._spills("", "sm_90", registers=41, stack=16) == (None, None)


def test_tools_that_fail_say_so() -> None:
    with pytest.raises(HelionError, match="absent-tool failed: .*No such file"):
        precompile._output(["/nowhere/absent-tool"])
    with pytest.raises(HelionError, match="failed: on stderr"):
        precompile._output([sys.executable, "-c", "import sys; sys.exit('on stderr')"])


def test_disassembly_without_numbers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = SimpleNamespace(name="k", asm={"cubin": b"", "amdgcn": "nothing"}, metadata=None)
    monkeypatch.setattr(precompile, "_output", lambda command: "no usage")
    with pytest.raises(HelionError, match="cuobjdump does not say what k uses:\nno usage"):
        precompile._resources_nvidia(compiled, "sm_90")
    with pytest.raises(HelionError, match="assembly of k for gfx942 does not say its vgpr_spill_count"):
        precompile._resources_amd(compiled, "gfx942")
