"""Programs per multiprocessor: the estimate against the vendor's rules, and the check that launches go through."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helion_inductor.device import H200
from helion_inductor.errors import HelionError, LaunchRejected
from helion_inductor.runtime import cuda_driver as cuda_driver_module
from helion_inductor.runtime import occupancy
from helion_inductor.runtime.occupancy import Sm, check_residency, estimate_occupancy, resident_programs


@pytest.mark.parametrize(
    ("registers", "shared", "num_warps", "programs"),
    [
        (32, 0, 4, 16),  # 64 warps fill the multiprocessor
        (16, 0, 1, 32),  # at most 32 programs, whatever they need
        (128, 0, 4, 4),  # 65536 registers / (128 * 32) = 16 warps
        (168, 0, 4, 3),  # 12 warps
        (255, 0, 8, 1),  # 8 warps
        (80, 0, 8, 3),  # 25 warps fit the registers, 24 their quarters
        (72, 0, 4, 7),
        (32, 113 * 1024, 4, 2),  # 2 x (113 + 1) KiB = 228 KiB
        (32, 114 * 1024, 4, 1),
        (32, 227 * 1024, 4, 1),
        (32, 228 * 1024, 4, 0),  # more than there is
        (255, 0, 16, 0),  # 16 warps of 255 registers do not fit either
    ],
)
def test_estimates_on_an_h200(registers: int, shared: int, num_warps: int, programs: int) -> None:
    assert estimate_occupancy(registers, shared, num_warps, H200) == programs
    assert estimate_occupancy(registers, shared, num_warps, Sm()) == programs


def test_a_smaller_multiprocessor_holds_less() -> None:
    assert estimate_occupancy(32, 80 * 1024, 4, Sm(shared_per_sm=164 * 1024)) == 2
    assert estimate_occupancy(32, 0, 4, Sm(max_threads_per_sm=1536, max_blocks_per_sm=16)) == 12


@given(
    registers=st.integers(0, 255),
    shared=st.integers(0, 232448),
    num_warps=st.sampled_from([1, 2, 4, 8, 16]),
    more_registers=st.integers(0, 64),
    more_shared=st.integers(0, 65536),
)
def test_using_more_never_fits_more(
    registers: int, shared: int, num_warps: int, more_registers: int, more_shared: int
) -> None:
    small = estimate_occupancy(registers, shared, num_warps, H200)
    large = estimate_occupancy(registers + more_registers, shared + more_shared, num_warps, H200)
    assert 0 <= large <= small <= H200.max_blocks_per_sm
    assert small * num_warps <= 64
    assert small * (shared + 1024) <= H200.shared_per_sm
    assert small * num_warps * registers * 32 <= H200.registers_per_sm


class _Compiled:
    """What occupancy reads of a compiled kernel."""

    def __init__(self) -> None:
        self.function = 1234
        self.n_regs = 168
        self.run = object()
        self.metadata = SimpleNamespace(num_warps=4, shared=98304, target=SimpleNamespace(warp_size=32))


class _Guard:
    def __init__(self, device: object) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *exception: object) -> None: ...


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """A driver that says 2 programs per multiprocessor, of 132; the list records what it was asked."""
    asked: list[tuple[int, int, int]] = []

    def query(function: int, threads: int, shared: int) -> int:
        asked.append((function, threads, shared))
        return 2

    monkeypatch.setattr(occupancy, "_query_driver", query)
    monkeypatch.setattr(occupancy, "get_num_sm", lambda device, *, reserved_sms=0: 132 - reserved_sms)
    monkeypatch.setattr(occupancy, "context_multiprocessors", lambda: None)
    monkeypatch.setattr(occupancy.torch.cuda, "device", _Guard)
    return asked


@pytest.mark.parametrize(
    ("part", "share", "per_sm", "reserved", "programs"),
    [
        (132, None, 2, 0, 264),  # a whole H200
        (132, None, 2, 4, 256),
        (16, None, 2, 0, 32),  # its smallest MIG instance
        (60, None, 3, 10, 150),
        (132, 66, 2, 0, 132),  # half of its threads, under MPS
        (132, 66, 2, 6, 120),
        (132, 140, 2, 0, 264),  # rounded up beyond the device
        (132, 10, 1, 20, 1),  # something is left in any case
        (108, None, 0, 0, 0),  # a kernel that needs more than a multiprocessor has
        (1, None, 32, 5, 32),
    ],
)
def test_residency_over_devices_and_shares_of_them(
    part: int, share: int | None, per_sm: int, reserved: int, programs: int, driver: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(occupancy, "_query_driver", lambda function, threads, shared: per_sm)
    monkeypatch.setattr(occupancy, "get_num_sm", lambda device, *, reserved_sms=0: max(1, part - reserved_sms))
    monkeypatch.setattr(occupancy, "context_multiprocessors", lambda: share)
    compiled = _Compiled()
    assert resident_programs(compiled, "cuda:0", reserved_sms=reserved) == programs
    assert check_residency(compiled, "k", 0, programs, reserved_sms=reserved) == programs
    with pytest.raises(LaunchRejected) as caught:
        check_residency(compiled, "k", 0, programs + 1, reserved_sms=reserved)
    assert (caught.value.required, caught.value.available, len(caught.value.hints)) == (programs + 1, programs, 3)
    assert f"programs of 4 warps each = {programs}" in str(caught.value)


@pytest.mark.parametrize(("status", "count", "expected"), [(0, 66, 66), (0, 0, None), (224, 0, None), (201, 50, None)])
def test_the_share_of_a_context_is_asked_of_the_driver(
    status: int, count: int, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def affinity(pointer: Any, kind: Any) -> int:
        assert kind.value == 0
        pointer._obj.multiprocessors = count
        return status

    monkeypatch.setattr(cuda_driver_module, "cuda_driver", lambda: SimpleNamespace(cuCtxGetExecAffinity=affinity))
    assert cuda_driver_module.context_multiprocessors() == expected


def test_residency_is_queried_once_per_compiled_kernel(driver: list[tuple[int, int, int]]) -> None:
    compiled = _Compiled()
    assert resident_programs(compiled, "cuda:0") == 264
    assert resident_programs(compiled, "cuda:0", reserved_sms=2) == 260
    assert driver == [(1234, 128, 98304)]
    assert resident_programs(_Compiled(), "cuda:0") == 264
    assert len(driver) == 2


def test_a_grid_that_fits_passes(driver: list[tuple[int, int, int]]) -> None:
    assert check_residency(_Compiled(), "k", "cuda:0", 264) == 264
    assert check_residency(_Compiled(), "k", 0, 1) == 264


def test_a_grid_that_does_not_fit_is_rejected_with_the_arithmetic(driver: list[tuple[int, int, int]]) -> None:
    with pytest.raises(LaunchRejected) as caught:
        check_residency(_Compiled(), "k", "cuda:0", 528, reserved_sms=2)
    error = caught.value
    assert (error.required, error.available, error.registers, error.shared_memory) == (528, 260, 168, 98304)
    text = str(error)
    assert "528 programs of k must be resident at once, 260 fit" in text
    assert "130 multiprocessors after reserving 2 x 2 programs of 4 warps each = 260" in text
    assert "launch at most 260 programs" in text
    assert "cross_loop='off'" in text


def test_no_driver_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(cuda_driver_module.ctypes, "CDLL", missing)
    occupancy.cuda_driver.cache_clear()
    with pytest.raises(HelionError, match=r"CUDA driver library did not load \(libcuda.so.1"):
        occupancy.cuda_driver()


def test_a_driver_error_is_reported_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = SimpleNamespace(cuOccupancyMaxActiveBlocksPerMultiprocessor=lambda *args: 400)
    monkeypatch.setattr(occupancy, "cuda_driver", lambda: broken)
    with pytest.raises(
        HelionError, match="cuOccupancyMaxActiveBlocksPerMultiprocessor failed with CUDA driver error 400"
    ):
        occupancy._query_driver(1, 128, 0)


def test_rocm_is_told_what_to_do_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occupancy.torch.version, "hip", "6.0")
    occupancy.cuda_driver.cache_clear()
    with pytest.raises(HelionError, match=r"cannot be queried on ROCm: run phases as separate launches"):
        occupancy.cuda_driver()
