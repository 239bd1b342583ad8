"""The launcher on a real device: streams, bound launches, captured graphs, residency, threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs

from helion_inductor.device import H200, describe
from helion_inductor.errors import HelionError, LaunchRejected
from helion_inductor.runtime.default_launcher import default_launcher
from helion_inductor.runtime.launcher import Launcher
from helion_inductor.runtime.num_sm import get_num_sm
from helion_inductor.runtime.occupancy import estimate_occupancy, resident_programs

pytestmark = pytest.mark.gpu


@triton.jit
def _add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@triton.jit
def _add_number_kernel(x, out, number, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets) + number)


@triton.jit
def _barrier_kernel(arrived, out):
    tl.atomic_add(arrived, 1, sem="acq_rel", scope="gpu")
    while tl.atomic_add(arrived, 0, sem="acquire", scope="gpu") < tl.num_programs(0):
        pass
    tl.store(out + tl.program_id(0), 1)


@triton.jit
def _where_kernel(out, GRID_X: tl.constexpr, GRID_Y: tl.constexpr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tl.store(out + (z * GRID_Y + y) * GRID_X + x, x + 10 * y + 100 * z)


class _JitCalls:
    """A kernel of its own for each test, and how often launches of it went through Triton's JIT."""

    def __init__(self, function: Any) -> None:
        self.kernel: Any = triton.JITFunction(function.fn)
        self.count = 0
        run = self.kernel.run

        def counted(*args: Any, **options: Any) -> Any:
            self.count += 1
            return run(*args, **options)

        self.kernel.run = counted


@pytest.fixture
def jit() -> Iterator[_JitCalls]:
    torch.cuda.synchronize()
    yield _JitCalls(_add_kernel)
    torch.cuda.synchronize()


def _add(launch: Launcher, x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    launch((triton.cdiv(x.numel(), 128),), x, y, out, x.numel(), BLOCK=128)


def _check_add(launch: Launcher, n: int, offset: int = 0) -> None:
    x, y = torch.randn(n + offset, device="cuda")[offset:], torch.randn(n + offset, device="cuda")[offset:]
    out = torch.full((n + offset,), float("nan"), device="cuda")
    _add(launch, x, y, out[offset:])
    torch.testing.assert_close(out[offset:], x + y)
    assert out[:offset].isnan().all()


def test_a_second_launch_takes_new_tensors_and_sizes(jit: _JitCalls) -> None:
    launch = Launcher(jit.kernel)
    _check_add(launch, 1000)
    _check_add(launch, 1000)
    _check_add(launch, 999)
    _check_add(launch, 77)
    assert jit.count == 1


def test_alignment_is_checked_on_every_launch(jit: _JitCalls) -> None:
    launch = Launcher(jit.kernel, num_warps=1)
    _check_add(launch, 1000)
    for offset in (1, 2, 3):
        _check_add(launch, 1000, offset)
    _check_add(launch, 1000, 4)  # 16 bytes: aligned again
    assert jit.count == 2


def test_sizes_of_another_specialisation(jit: _JitCalls) -> None:
    launch = Launcher(jit.kernel)
    for n in (1, 1, 1024, 1040, 1025, 1):
        _check_add(launch, n)
    assert jit.count == 3  # equal to 1, divisible by 16, neither


def test_dtypes_are_told_apart(jit: _JitCalls) -> None:
    launch = Launcher(jit.kernel)
    for dtype in (torch.float32, torch.float16, torch.int64, torch.float32):
        x = torch.arange(200, device="cuda").to(dtype)
        out = torch.empty_like(x)
        _add(launch, x, x, out)
        torch.testing.assert_close(out, x + x)
    assert jit.count == 3


def test_wide_numbers_stay_wide() -> None:
    jit = _JitCalls(_add_number_kernel)
    launch = Launcher(jit.kernel)
    x = torch.arange(32, device="cuda")
    numbers = (3, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**40, 2**40 + 1, -(2**31), -(2**31) - 1, -(2**40) - 1, 5)
    for number in numbers:
        out = torch.zeros_like(x)
        launch((1,), x, out, number, BLOCK=32)
        assert torch.equal(out, x + number), number


@pytest.mark.parametrize("grid", [(3,), (3, 2), (3, 2, 4)])
def test_grids_of_one_to_three_dimensions(grid: tuple[int, ...]) -> None:
    x, y, z = (*grid, 1, 1)[:3]
    launch = Launcher(_where_kernel)
    expected = torch.arange(x) + 10 * torch.arange(y)[:, None] + 100 * torch.arange(z)[:, None, None]
    for _ in range(2):
        out = torch.full((z, y, x), -1, device="cuda")
        launch(grid, out, GRID_X=x, GRID_Y=y)
        assert torch.equal(out.cpu(), expected)


def test_empty_and_too_large_grids(jit: _JitCalls) -> None:
    launch = Launcher(jit.kernel)
    x = torch.zeros(8, device="cuda")
    launch((0,), x, x, x, 8, BLOCK=128)
    assert jit.count == 0
    for grid in ((2**31,), (1, 65536), (1, 1, 65536), (2**20, 2**12)):
        with pytest.raises(LaunchRejected, match="the limit is"):
            launch(grid, x, x, x, 8, BLOCK=128)
    launch((70000,), x, x, x, 8, BLOCK=128)  # past 65535 along x is fine
    torch.cuda.synchronize()


def test_launches_follow_the_current_stream(jit: _JitCalls) -> None:
    launch = Launcher(jit.kernel)
    _check_add(launch, 4096)
    weights = torch.eye(2048, device="cuda")
    for _ in range(2):
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.ones(2048, 2048, device="cuda")
            for _ in range(50):  # keeps this stream busy: a launch on another stream would come too early
                x = x @ weights
            out = torch.zeros(2048 * 2048, device="cuda")
            _add(launch, x.view(-1), x.view(-1), out)
        stream.synchronize()
        assert torch.equal(out, torch.full_like(out, 2.0))


def test_a_bound_launch_is_captured_and_replayed(jit: _JitCalls) -> None:
    launch = Launcher(jit.kernel)
    x, y, out = (torch.randn(1000, device="cuda") for _ in range(3))
    _add(launch, x, y, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _add(launch, x, y, out)
    assert jit.count == 1
    x.fill_(3.0)
    y.fill_(4.0)
    out.zero_()
    graph.replay()
    assert torch.equal(out, torch.full_like(out, 7.0))


def test_the_first_launch_of_a_specialisation_may_be_captured(jit: _JitCalls) -> None:
    launch = Launcher(jit.kernel)
    x, y = torch.ones(1000, device="cuda"), torch.ones(1000, device="cuda")
    out = torch.zeros(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _add(launch, x, y, out)
    torch.cuda.synchronize()
    graph.replay()
    assert torch.equal(out, torch.full_like(out, 2.0))
    assert jit.count == 1


def test_hooks_are_called_also_after_binding(jit: _JitCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launcher(jit.kernel)
    _check_add(launch, 100)
    names: list[str] = []
    hook = knobs.runtime.launch_enter_hook

    def listen(metadata: Any) -> None:
        names.append(metadata.get()["name"])

    hook.add(listen)
    try:
        _check_add(launch, 100)
    finally:
        hook.remove(listen)
    _check_add(launch, 100)
    assert names == ["_add_kernel"] and jit.count == 2


def test_residency_agrees_with_the_estimate() -> None:
    x = torch.zeros(1024, device="cuda")
    info = describe("cuda")
    for num_warps in (1, 4, 8, 16):
        compiled = _add_kernel.warmup(x, x, x, 1024, BLOCK=1024, grid=(1,), num_warps=num_warps)
        programs = resident_programs(compiled, "cuda")
        estimate = estimate_occupancy(compiled.n_regs, compiled.metadata.shared, num_warps, info)
        assert programs == estimate * get_num_sm("cuda")
        assert resident_programs(compiled, "cuda", reserved_sms=2) == estimate * (get_num_sm("cuda") - 2)


def test_a_cooperative_grid_may_be_as_large_as_fits_and_no_larger() -> None:
    launch = Launcher(_barrier_kernel, num_warps=4, launch_cooperative_grid=True)

    def barrier(programs: int) -> None:
        arrived = torch.zeros(1, dtype=torch.int32, device="cuda")
        out = torch.zeros(programs, dtype=torch.int32, device="cuda")
        launch((programs,), arrived, out)
        assert int(out.sum()) == programs

    barrier(2)
    with pytest.raises(LaunchRejected) as caught:
        launch((10**6,), torch.zeros(1, dtype=torch.int32, device="cuda"), torch.zeros(8, device="cuda").int())
    fits = caught.value.available
    assert fits >= get_num_sm("cuda") and fits % get_num_sm("cuda") == 0
    assert caught.value.required == 10**6 and caught.value.registers
    barrier(fits)  # every program waits for every other: it ends only if all are resident
    with pytest.raises(LaunchRejected):
        launch((fits + 1,), torch.zeros(1, dtype=torch.int32, device="cuda"), torch.zeros(8, device="cuda").int())


def test_a_cooperative_launch_is_captured() -> None:
    launch = Launcher(_barrier_kernel, launch_cooperative_grid=True)
    programs = get_num_sm("cuda")
    arrived = torch.zeros(1, dtype=torch.int32, device="cuda")
    out = torch.zeros(programs, dtype=torch.int32, device="cuda")
    launch((programs,), arrived, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        arrived.zero_()
        launch((programs,), arrived, out)
    for _ in range(3):
        out.zero_()
        graph.replay()
        assert int(out.sum()) == programs


def test_default_launcher_checks_the_minimum(jit: _JitCalls) -> None:
    x = torch.ones(256, device="cuda")
    out = torch.zeros(256, device="cuda")
    options = dict(num_warps=4, num_stages=2)
    default_launcher(jit.kernel, (2,), x, x, out, 256, 128, **options, _minimum_resident_programs=2)
    assert torch.equal(out, x + x)
    count = jit.count
    default_launcher(jit.kernel, (2,), x, x, out, 256, BLOCK=128, **options, _minimum_resident_programs=2)
    default_launcher(jit.kernel, (2,), x, x, out, 256, 128, **options)
    assert jit.count == count + 2  # by name is another key: compiled for the check, then launched
    with pytest.raises(LaunchRejected, match="must be resident at once"):
        default_launcher(jit.kernel, (2,), x, x, out, 256, 128, **options, _minimum_resident_programs=10**6)


def test_two_threads_launch_at_once(jit: _JitCalls) -> None:
    launch = Launcher(jit.kernel)
    start = threading.Barrier(2)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            stream = torch.cuda.Stream()
            start.wait()  # both meet a specialisation that is not compiled yet
            with torch.cuda.stream(stream):
                for step in range(200):
                    n = 1 + (seed * 37 + step * 113) % 3000
                    x = torch.full((n,), float(step), device="cuda")
                    out = torch.empty_like(x)
                    _add(launch, x, x, out)
                    assert torch.equal(out, x + x)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_tensors_elsewhere_are_refused(jit: _JitCalls) -> None:
    launch = Launcher(jit.kernel)
    here, there = torch.zeros(8, device="cuda"), torch.zeros(8)
    with pytest.raises(HelionError, match="got CPU tensors"):
        _add(launch, there, there, there)
    _add(launch, here, here, here)
    with pytest.raises(HelionError, match="different devices: argument 0 on cuda:0, argument 1 on cpu"):
        _add(launch, here, there, here)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_launches_go_to_the_device_of_the_tensors(jit: _JitCalls) -> None:
    launch = Launcher(jit.kernel)
    for _ in range(2):
        for index in (0, 1):
            x = torch.randn(1000, device=f"cuda:{index}")
            out = torch.empty_like(x)
            _add(launch, x, x, out)
            torch.testing.assert_close(out, x + x)
    assert jit.count == 2
    assert torch.cuda.current_device() == 0


def test_the_device_description() -> None:
    info = describe("cuda")
    assert info.kind == "cuda" and info.sm_count == get_num_sm("cuda") > 0
    assert info.shared_per_block <= info.shared_per_sm and info.l2_bytes > 0
    if info.name == H200.name:  # whose memory is clocked a few percent apart from machine to machine
        assert info.memory_bytes_per_s == pytest.approx(H200.memory_bytes_per_s, rel=0.05)
        assert replace(info, memory_bytes_per_s=H200.memory_bytes_per_s) == H200
