"""Device descriptions and worker counts."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from helion_inductor import device as device_module
from helion_inductor.device import H200, INTERPRETER, describe
from helion_inductor.errors import HelionError
from helion_inductor.runtime import num_sm
from helion_inductor.runtime.num_sm import get_num_sm, get_num_xcd


@pytest.fixture
def fresh_counts() -> object:
    """The per-device caches, empty before and after: the tests below pretend to be on other machines."""
    num_sm._count.cache_clear()
    num_sm._xcds.cache_clear()
    device_module._describe_cuda.cache_clear()
    yield
    num_sm._count.cache_clear()
    num_sm._xcds.cache_clear()
    device_module._describe_cuda.cache_clear()


def test_the_cpu_is_the_interpreter_with_one_worker() -> None:
    info = describe("cpu")
    assert info is INTERPRETER
    assert (info.kind, info.sm_count, info.max_blocks_per_sm) == ("cpu", 1, 1)
    assert describe(torch.device("cpu")) is info


def test_h200_numbers() -> None:
    assert (H200.sm_count, H200.capability, H200.warp_size) == (132, (9, 0), 32)
    assert H200.shared_per_block == H200.shared_per_sm - 1024
    assert str(H200) == "NVIDIA H200 (cuda 9.0, 132 SMs, 60 MiB L2)"


def test_a_description_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        H200.sm_count = 1  # type: ignore[misc]


def test_other_kinds_are_refused_by_name() -> None:
    with pytest.raises(HelionError, match="no description of meta devices; known kinds: cuda, cpu"):
        describe("meta")


def test_importing_touches_no_cuda() -> None:
    code = (
        "import torch, helion_inductor.device, helion_inductor.runtime.num_sm, helion_inductor.runtime.launcher;"
        "assert not torch.cuda.is_initialized()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_cuda_properties_are_read_from_torch(monkeypatch: pytest.MonkeyPatch, fresh_counts: object) -> None:
    properties = SimpleNamespace(
        name="NVIDIA H200",
        major=9,
        minor=0,
        multi_processor_count=132,
        shared_memory_per_multiprocessor=233472,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048,
        warp_size=32,
        L2_cache_size=60 << 20,
        clock_rate=1_980_000,
        memory_clock_rate=3_201_000,
        memory_bus_width=6144,
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert describe("cuda") == H200
    assert describe("cuda:3") == H200


@pytest.mark.parametrize(
    ("capability", "blocks"), [((8, 0), 32), ((8, 6), 16), ((8, 9), 24), ((9, 0), 32), ((10, 0), 32)]
)
def test_program_limits_by_capability(capability: tuple[int, int], blocks: int) -> None:
    assert device_module._max_blocks_per_sm(capability) == blocks


def test_workers_of_the_cpu() -> None:
    assert get_num_sm("cpu") == 1
    assert get_num_sm("cpu", reserved_sms=5) == 1


def test_workers_of_other_kinds(monkeypatch: pytest.MonkeyPatch, fresh_counts: object) -> None:
    cuda = {0: SimpleNamespace(multi_processor_count=132), 1: SimpleNamespace(multi_processor_count=16)}
    monkeypatch.setattr(torch.cuda, "get_device_properties", cuda.__getitem__)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda index: SimpleNamespace(gpu_subslice_count=64))
    monkeypatch.setattr(torch.backends.mps, "get_core_count", lambda: 10)
    grid = {"max_grid_height": 8, "max_grid_width": 8}
    monkeypatch.setattr(torch.mtia, "get_device_properties", lambda index: grid, raising=False)
    assert get_num_sm("cuda:0") == 132
    assert get_num_sm("cuda") == 16  # the current device
    assert get_num_sm("cuda:0", reserved_sms=4) == 128
    assert get_num_sm("cuda:1", reserved_sms=40) == 1
    assert get_num_sm("xpu:0") == 64
    assert get_num_sm("mps") == 10
    assert get_num_sm("mtia:0") == 64


@pytest.mark.parametrize(("architecture", "units", "xcds"), [
    ("gfx942:sramecc+:xnack-", 304, 8), ("gfx942", 228, 6), ("gfx942", 38, 1), ("gfx950:sramecc+:xnack-", 256, 8),
    ("gfx942", 80, 2), ("gfx942", 72, 2), ("gfx942", 85, 2), ("gfx942", 86, 1), ("gfx942", 57, 1), ("gfx942", 10, 1),
    ("gfx942", 296, 8), ("gfx950", 248, 8), ("gfx951", 256, 8), ("gfx951", 128, 4), ("gfx950", 30, 1),
    ("gfx90a", 104, 1), ("gfx1100", 96, 1), ("gfx1250", 256, 1),
])  # fmt: skip
def test_chiplets_of_amd_parts(architecture: str, units: int, xcds: int, monkeypatch: pytest.MonkeyPatch, fresh_counts: object) -> None:
    part = SimpleNamespace(gcnArchName=architecture, multi_processor_count=units)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: part)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert get_num_xcd("cuda") == get_num_xcd("cuda:3") == xcds


def test_other_devices_have_one_chiplet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", None)
    assert get_num_xcd("cuda:0") == get_num_xcd("cpu") == get_num_xcd("xpu:0") == 1


def test_a_count_is_asked_for_once(monkeypatch: pytest.MonkeyPatch, fresh_counts: object) -> None:
    asked: list[int] = []

    def properties(index: int) -> SimpleNamespace:
        asked.append(index)
        return SimpleNamespace(multi_processor_count=132)

    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    assert [get_num_sm("cuda:0"), get_num_sm(torch.device("cuda", 0), reserved_sms=1)] == [132, 131]
    assert asked == [0]


def test_wrong_requests() -> None:
    with pytest.raises(HelionError, match="workers of a meta device; known kinds: cuda, xpu, mps, mtia, cpu"):
        get_num_sm("meta")
    with pytest.raises(ValueError, match="reserved_sms must not be negative, got -1"):
        get_num_sm("cpu", reserved_sms=-1)
