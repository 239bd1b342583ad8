"""Launching in the interpreter, and what every launch checks before it reaches a device."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs

from helion_inductor.errors import HelionError, LaunchRejected
from helion_inductor.runtime.default_launcher import default_launcher
from helion_inductor.runtime.launcher import Launcher

interpreted = pytest.mark.skipif(not knobs.runtime.interpret, reason="runs in Triton's interpreter")


@triton.jit
def _add_kernel(x, y, out, n, BLOCK: tl.constexpr, NEGATE: tl.constexpr = False):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask)
    if NEGATE:
        total = -total
    tl.store(out + offsets, total, mask=mask)


@triton.jit
def _where_kernel(out, GRID_X: tl.constexpr, GRID_Y: tl.constexpr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    tl.store(out + (z * GRID_Y + y) * GRID_X + x, x + 10 * y + 100 * z)


def _compiled_later(function: Callable[..., None]) -> triton.JITFunction:
    """The function as a kernel for a GPU, whatever this process does with kernels."""
    return triton.JITFunction(getattr(function, "fn", function))


@interpreted
@pytest.mark.parametrize("n", [1, 16, 100, 257])
def test_a_kernel_runs_on_cpu_tensors(n: int) -> None:
    x, y = torch.randn(n), torch.randn(n)
    out = torch.empty(n)
    launch = Launcher(_add_kernel, num_warps=4, num_stages=3, launch_cooperative_grid=True, debug=False, maxnreg=64)
    launch((triton.cdiv(n, 64),), x, y, out, n, BLOCK=64)
    torch.testing.assert_close(out, x + y)
    launch((triton.cdiv(n, 128),), x, y, out, n, NEGATE=True, BLOCK=128)
    torch.testing.assert_close(out, -(x + y))


@interpreted
def test_constexprs_may_be_positional() -> None:
    x, y, out = torch.randn(64), torch.randn(64), torch.empty(64)
    Launcher(_add_kernel)((1,), x, y, out, 64, 64, True)
    torch.testing.assert_close(out, -(x + y))


@interpreted
def test_views_and_offsets_are_written_in_place() -> None:
    base = torch.zeros(40)
    ones = torch.ones(8)
    Launcher(_add_kernel)((1,), ones, ones, base[3:11], 8, BLOCK=8)
    assert base.nonzero().flatten().tolist() == list(range(3, 11))


@interpreted
@pytest.mark.parametrize("grid", [(3,), (3, 2), (3, 2, 4)])
def test_grids_of_one_to_three_dimensions(grid: tuple[int, ...]) -> None:
    x, y, z = (*grid, 1, 1)[:3]
    out = torch.full((z, y, x), -1)
    Launcher(_where_kernel)(grid, out, GRID_X=x, GRID_Y=y)
    expected = torch.arange(x) + 10 * torch.arange(y)[:, None] + 100 * torch.arange(z)[:, None, None]
    assert torch.equal(out, expected)


@interpreted
@pytest.mark.parametrize("grid", [(0,), (0, 5), (5, 0), (5, 5, 0), (0, 70000, 1)])
def test_an_empty_grid_launches_nothing(grid: tuple[int, ...]) -> None:
    out = torch.full((1,), -1)
    Launcher(_where_kernel)(grid, out, GRID_X=1, GRID_Y=1)
    assert out.item() == -1


@pytest.mark.parametrize(
    ("grid", "number", "limit", "words"),
    [
        ((2**31,), 2**31, 2**31 - 1, "along grid dimension x"),
        ((1, 65536), 65536, 65535, "put the tiles of all axes on grid dimension x"),
        ((1, 1, 65536), 65536, 65535, "along grid dimension z"),
        ((2**20, 2**12), 2**32, 2**31 - 1, "1048576 x 4096 x 1 = 4294967296 programs"),
        ((5, -1), -1, 2**31 - 1, "negative grid"),
    ],
)
def test_a_grid_that_no_device_takes_is_rejected(grid: tuple[int, ...], number: int, limit: int, words: str) -> None:
    with pytest.raises(LaunchRejected) as caught:
        Launcher(_where_kernel)(grid, torch.zeros(1), GRID_X=1, GRID_Y=1)
    assert (caught.value.required, caught.value.available) == (number, limit)
    text = str(caught.value)
    assert words in text and str(number) in text and "_where_kernel" in text
    if number > 0:
        assert "use larger tiles" in text and "pid_type='persistent_interleaved'" in text


@interpreted
def test_an_unknown_argument_is_named() -> None:
    with pytest.raises(TypeError, match="_where_kernel has no parameter SIZE; it has out, GRID_X, GRID_Y"):
        Launcher(_where_kernel)((1,), torch.zeros(1), SIZE=3)


def test_cpu_tensors_without_the_interpreter_are_a_clear_error() -> None:
    launch = Launcher(_compiled_later(_where_kernel))
    with pytest.raises(
        HelionError, match="_where_kernel got CPU tensors.*TRITON_INTERPRET=1 before triton is imported"
    ):
        launch((1,), torch.zeros(1), GRID_X=1, GRID_Y=1)


def test_constructing_touches_no_device_and_shows_its_options() -> None:
    launch = Launcher(_compiled_later(_where_kernel), num_warps=8, maxnreg=128, launch_cooperative_grid=True)
    assert repr(launch) == (
        "Launcher(_where_kernel, num_warps=8, num_stages=2, launch_cooperative_grid=True, maxnreg=128)"
    )
    assert Launcher(_where_kernel).options == {"num_warps": 4, "num_stages": 2}


@interpreted
def test_default_launcher_runs_a_kernel() -> None:
    x, y, out = torch.randn(50), torch.randn(50), torch.empty(50)
    default_launcher(
        _add_kernel, (2,), x, y, out, 50, 32, num_warps=4, num_stages=2, launch_cooperative_grid=True, NEGATE=True
    )
    torch.testing.assert_close(out, -(x + y))


def test_default_launcher_needs_the_compile_options() -> None:
    with pytest.raises(TypeError, match="num_warps"):
        default_launcher(_add_kernel, (1,))  # type: ignore[call-arg]


@interpreted
def test_threads_may_launch_at_once() -> None:
    results: dict[int, torch.Tensor] = {}
    launch = Launcher(_add_kernel)

    def work(seed: int) -> None:
        x = torch.full((64,), float(seed))
        for _ in range(3):
            out = torch.empty(64)
            launch((4,), x, x, out, 64, BLOCK=16)
            results[seed] = out

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(4):
        assert torch.equal(results[seed], torch.full((64,), 2.0 * seed))
