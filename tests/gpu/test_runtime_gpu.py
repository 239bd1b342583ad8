"""Grid barriers, state and residency on a real device: many launches, several streams, graphs that are replayed side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import torch
import triton
import triton.language as tl

from helion_inductor.errors import LaunchRejected
from helion_inductor.runtime.device_barrier import grid_barrier
from helion_inductor.runtime.grid_choice import choose_grid
from helion_inductor.runtime.launcher import Launcher
from helion_inductor.runtime.num_sm import get_num_sm
from helion_inductor.runtime.occupancy import context_multiprocessors, resident_programs
from helion_inductor.runtime.phased import PhasedLauncher
from helion_inductor.runtime.state import State, drop_state

pytestmark = pytest.mark.gpu

BLOCK = 128


@triton.jit
def _ring_kernel(x, y, out, state, FIRST: tl.constexpr, LAST: tl.constexpr, BLOCK: tl.constexpr, POLLS: tl.constexpr = 0):
    """One block a program. y = x + 1, then x = y of the next program, then out = 2 * x of the one before: out = 2 * (x + 1)."""
    pid, count = tl.program_id(0), tl.num_programs(0)
    i = tl.arange(0, BLOCK)
    if FIRST <= 0 and LAST > 0:
        tl.store(y + pid * BLOCK + i, tl.load(x + pid * BLOCK + i) + 1)
    if FIRST <= 1 and LAST > 1:
        if FIRST < 1:
            grid_barrier(state, 0, count, POLLS)
        tl.store(x + pid * BLOCK + i, tl.load(y + (pid + 1) % count * BLOCK + i))
    if FIRST <= 2 and LAST > 2:
        if FIRST < 2:
            grid_barrier(state, 0, count, POLLS)
        tl.store(out + pid * BLOCK + i, 2 * tl.load(x + (pid + count - 1) % count * BLOCK + i))


@triton.jit
def _hungry_kernel(x, out, n, state, FIRST: tl.constexpr, LAST: tl.constexpr, SIZE: tl.constexpr):
    """Two phases over n rows of SIZE values, with all values of a row in registers and in shared memory: out = sorted rows + 1."""
    workers = tl.num_programs(0)
    i = tl.arange(0, SIZE)
    if FIRST <= 0 and LAST > 0:
        for row in range(tl.program_id(0), n, workers):
            tl.store(out + row * SIZE + i, tl.sort(tl.load(x + row * SIZE + i)))
    if FIRST <= 1 and LAST > 1:
        if FIRST < 1:
            grid_barrier(state, 0, workers)
        for row in range(tl.program_id(0), n, workers):
            tl.store(x + row * SIZE + i, tl.load(out + (n - 1 - row) * SIZE + i) + 1)


class _Ring:
    """A launch of `_ring_kernel` over tensors of its own, and the check of what it leaves."""

    def __init__(self, programs: int, seed: int = 0) -> None:
        self.programs, self.seed = programs, seed
        self.x, self.y, self.out = (torch.zeros(programs * BLOCK, dtype=torch.int32, device="cuda") for _ in range(3))
        self.start = torch.arange(programs * BLOCK, dtype=torch.int32, device="cuda") + seed

    def run(self, launch: Callable[..., None], **constexprs: int) -> None:
        """As many kernels as it takes to start from fresh values; two of them are not ours."""
        self.x.copy_(self.start)
        launch((self.programs,), self.x, self.y, self.out, BLOCK=BLOCK, **constexprs)

    def wrong(self) -> torch.Tensor:
        """The number of wrong values, on the device."""
        return (self.out != 2 * (self.start + 1)).sum()


@pytest.fixture(autouse=True)
def _finish() -> Iterator[None]:
    yield
    torch.cuda.synchronize()


def _whole() -> Launcher:
    return Launcher(_ring_kernel, num_warps=4, launch_cooperative_grid=True, fixed_dtypes=True, state_words=1)


ALL = {"FIRST": 0, "LAST": 3}


@pytest.mark.parametrize("per_sm", [1, 2, 4, 8])
def test_all_programs_meet_at_each_barrier(per_sm: int) -> None:
    launch = _whole()
    for programs in (1, 2, 3, per_sm * get_num_sm("cuda"), per_sm * get_num_sm("cuda") - 1):
        ring = _Ring(programs)
        for _ in range(20):  # one state for grids of all sizes
            ring.run(launch, **ALL)
            assert int(ring.wrong()) == 0, programs


def test_a_bounded_wait_that_ends_in_time_changes_nothing() -> None:
    launch, ring = _whole(), _Ring(get_num_sm("cuda"))
    for _ in range(5):
        ring.run(launch, **ALL, POLLS=1 << 24)
        assert int(ring.wrong()) == 0


@pytest.mark.parametrize("graphs", [False, True])
def test_ten_thousand_launches_over_four_streams(graphs: bool) -> None:
    """Each grid fills the device, so that two of them are resident together only if one was admitted in part: a hang."""
    launch, end = _whole(), time.monotonic() + 30
    streams = [torch.cuda.Stream() for _ in range(4)]
    rings = [_Ring(programs, seed) for seed, programs in enumerate([get_num_sm("cuda")] * 2 + [2 * get_num_sm("cuda"), 77])]
    wrong = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in streams]

    def step(k: int) -> None:
        rings[k].run(launch, **ALL)
        wrong[k].add_(rings[k].wrong())

    torch.cuda.synchronize()
    captured: list[torch.cuda.CUDAGraph] = []
    for k, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            step(k)
        if graphs:
            captured.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(captured[-1], stream=streams[0]):
                for _ in range(10):
                    step(k)
    torch.cuda.synchronize()
    done = 0
    while done < 10_000 and time.monotonic() < end:
        for k, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                if graphs:
                    captured[k].replay()
                else:
                    step(k)
        done += 40 if graphs else 4
        if done % 400 == 0:
            torch.cuda.synchronize()  # a hang shows here, at a known place
    torch.cuda.synchronize()
    assert [int(w) for w in wrong] == [0, 0, 0, 0] and done >= 2000


def test_graphs_from_one_stream_run_side_by_side() -> None:
    """Small grids, which are resident together: on shared words each would take the other's programs for its own."""
    launch, home = _whole(), torch.cuda.Stream()
    rings, graphs = [_Ring(16, seed) for seed in (1, 2)], []
    wrong = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in rings]
    with torch.cuda.stream(home):
        rings[0].run(launch, **ALL)
    torch.cuda.synchronize()
    for ring, count in zip(rings, wrong):
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1], stream=home):
            for _ in range(20):
                ring.run(launch, **ALL)
                count.add_(ring.wrong())
    streams = [torch.cuda.Stream() for _ in graphs]
    for _ in range(200):
        for graph, stream in zip(graphs, streams):
            with torch.cuda.stream(stream):
                graph.replay()
        with torch.cuda.stream(home):  # and beside both, a launch that is in no graph
            other = _Ring(16, 3)
            other.run(launch, **ALL)
    torch.cuda.synchronize()
    assert [int(w) for w in wrong] == [0, 0] and int(other.wrong()) == 0


def test_state_is_right_before_during_and_after_a_capture() -> None:
    launch, ring = _whole(), _Ring(get_num_sm("cuda"))
    graph = torch.cuda.CUDAGraph()
    ring.run(launch, **ALL)
    with torch.cuda.graph(graph):
        ring.run(launch, **ALL)
    for _ in range(3):
        graph.replay()
        assert int(ring.wrong()) == 0
        ring.run(launch, **ALL)
        assert int(ring.wrong()) == 0
    drop_state()
    torch.compiler.reset()
    for _ in range(3):
        ring.run(launch, **ALL)
        assert int(ring.wrong()) == 0
        graph.replay()  # its words outlive the reset
        assert int(ring.wrong()) == 0


def test_the_first_launch_may_be_captured_and_a_failed_capture_leaves_nothing_behind() -> None:
    launch, ring = _whole(), _Ring(64)
    with pytest.raises(ZeroDivisionError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        ring.run(launch, **ALL)
        raise ZeroDivisionError
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ring.run(launch, **ALL)
    graph.replay()
    assert int(ring.wrong()) == 0
    ring.run(launch, **ALL)
    assert int(ring.wrong()) == 0


def test_the_first_launch_of_a_kernel_with_phases_may_be_captured() -> None:
    kernel = triton.JITFunction(_ring_kernel.fn)  # one that was never loaded
    launch, ring, graph = PhasedLauncher(kernel, 3, fixed_dtypes=True), _Ring(10**4), torch.cuda.CUDAGraph()
    small = _Ring(64)
    with torch.cuda.graph(graph):
        small.run(launch)
    graph.replay()
    assert int(small.wrong()) == 0
    apart = PhasedLauncher(kernel, 3, persistent=False)  # more programs than fit: phase by phase
    for _ in range(2):
        ring.run(apart)
        assert int(ring.wrong()) == 0


def test_words_of_streams_and_captures_are_zero_and_apart() -> None:
    state, streams = State(40), [torch.cuda.Stream() for _ in range(2)]
    index, words = torch.cuda.current_device(), []
    for stream in streams:
        with torch.cuda.stream(stream):
            words.append(state.tensor(index, stream.cuda_stream))
    with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=streams[0]):
        words += [state.tensor(index, streams[0].cuda_stream) for _ in range(3)]
        torch.zeros(1, device="cuda")
    assert all(w.tolist() == [0] * 40 for w in words)
    addresses = sorted(w.data_ptr() for w in words)
    assert all(b - a >= 160 for a, b in zip(addresses, addresses[1:])) and all(a % 128 == 0 for a in addresses)


def test_residency_numbers_and_what_is_done_where_it_does_not_suffice() -> None:
    rows, size = 3000, 4096
    start = torch.randn(rows, size, device="cuda")
    expected = start.sort(-1).values.flip(0) + 1
    whole = Launcher(_hungry_kernel, num_warps=8, launch_cooperative_grid=True, fixed_dtypes=False, state_words=1)
    x, out = start.clone(), torch.empty_like(start)
    constexprs = {"FIRST": 0, "LAST": 2, "SIZE": size}
    with pytest.raises(LaunchRejected) as caught:
        whole((rows,), x, out, rows, **constexprs)
    error = caught.value
    compiled = whole.compiled_for((x, out, rows), constexprs)
    fit = resident_programs(compiled, "cuda")
    assert (error.required, error.available) == (rows, fit) and len(error.hints) == 3
    assert error.registers == compiled.n_regs and error.shared_memory == compiled.metadata.shared
    assert fit % get_num_sm("cuda") == 0 and 0 < fit < rows
    assert torch.equal(x, start)  # nothing was launched
    assert choose_grid(whole, rows, (x, out, rows), constexprs, phases=2) == (fit, True)
    assert choose_grid(whole, rows, (x, out, rows), constexprs, phases=2, persistent=False) == (rows, False)
    for persistent in (True, False):
        x.copy_(start)
        launch = PhasedLauncher(_hungry_kernel, 2, num_warps=8, persistent=persistent)
        for _ in range(2):
            x.copy_(start)
            launch((rows,), x, out, rows, SIZE=size)
            assert torch.equal(x, expected), persistent


def test_a_share_of_the_device_is_no_more_than_the_device() -> None:
    torch.zeros(1, device="cuda")
    share = context_multiprocessors()
    assert share is None or 0 < share <= get_num_sm("cuda")


def test_reserved_multiprocessors_stay_free() -> None:
    ring = _Ring(get_num_sm("cuda"))
    launch = Launcher(_ring_kernel, launch_cooperative_grid=True, state_words=1, reserved_sms=2)
    ring.run(launch, **ALL)
    assert int(ring.wrong()) == 0
    with pytest.raises(LaunchRejected) as caught:
        launch((10**6,), ring.x, ring.y, ring.out, BLOCK=BLOCK, **ALL)
    assert caught.value.available % (get_num_sm("cuda") - 2) == 0


def test_a_wait_in_vain_traps_and_says_where() -> None:
    """In a process of its own, whose device is lost by it."""
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", _IN_VAIN], capture_output=True, text=True, timeout=300)
    assert done.returncode == 7, done.stderr[-2000:]
    assert "a grid barrier waited in vain" in done.stdout + done.stderr


_IN_VAIN = """
import os, torch
import tests.gpu.test_runtime_gpu as here
from helion_inductor.runtime.launcher import Launcher
ring = here._Ring(1)
launch = Launcher(here._alone_kernel, state_words=1, debug=True)
launch((1,), ring.x)
try:
    torch.cuda.synchronize()
except RuntimeError as error:
    print(error, flush=True)
    os._exit(7)
"""


@triton.jit
def _alone_kernel(x, state):
    grid_barrier(state, 0, 2, 1000)
    tl.store(x, 1)
