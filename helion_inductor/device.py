"""What the compiler knows about a device: plain numbers, read once. Importing this file initialises no device."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from .errors import HelionError


@dataclass(frozen=True)
class DeviceInfo:
    """Numbers of one device that tile sizes, worker counts and occupancy estimates are made from.

    `kind` is torch's device type; memory is in bytes; `capability` is (major, minor), (0, 0) where there is none.
    `sm_count` counts the units that run programs side by side. `clock_hz` is the highest clock of the multiprocessors,
    `memory_bytes_per_s` what the memory's pins can carry; both are 0 where torch does not report them.
    """

    kind: str
    name: str
    sm_count: int
    capability: tuple[int, int]
    shared_per_sm: int
    shared_per_block: int
    registers_per_sm: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    warp_size: int
    l2_bytes: int
    clock_hz: float = 0.0
    memory_bytes_per_s: float = 0.0

    def __str__(self) -> str:
        major, minor = self.capability
        return f"{self.name} ({self.kind} {major}.{minor}, {self.sm_count} SMs, {self.l2_bytes >> 20} MiB L2)"


H200 = DeviceInfo(
    kind="cuda",
    name="NVIDIA H200",
    sm_count=132,
    capability=(9, 0),
    shared_per_sm=228 * 1024,
    shared_per_block=227 * 1024,
    registers_per_sm=65536,
    max_threads_per_sm=2048,
    max_blocks_per_sm=32,
    warp_size=32,
    l2_bytes=60 * 1024 * 1024,
    clock_hz=1.98e9,
    memory_bytes_per_s=6144 / 8 * 2 * 3.201e9,
)
"""The device that offline estimates (reports and tests made without a GPU) are for."""

INTERPRETER = DeviceInfo(
    kind="cpu",
    name="Triton interpreter",
    sm_count=1,
    capability=(0, 0),
    shared_per_sm=H200.shared_per_sm,
    shared_per_block=H200.shared_per_block,
    registers_per_sm=H200.registers_per_sm,
    max_threads_per_sm=H200.max_threads_per_sm,
    max_blocks_per_sm=1,
    warp_size=32,
    l2_bytes=H200.l2_bytes,
)
"""The CPU under Triton's interpreter: programs run one after another, so there is one worker and no real limit."""


def describe(device: torch.device | str) -> DeviceInfo:
    """The numbers of `device`: a CUDA (or ROCm) device, or "cpu", which means Triton's interpreter.

    Raises HelionError for other device kinds. For "cuda" without an index the current device is described; only then
    is CUDA initialised.
    """
    device = torch.device(device)
    if device.type == "cpu":
        return INTERPRETER
    if device.type != "cuda":
        raise HelionError(f"no description of {device.type} devices; known kinds: cuda, cpu")
    return _describe_cuda(torch.cuda.current_device() if device.index is None else device.index)


@functools.cache
def _describe_cuda(index: int) -> DeviceInfo:
    props = torch.cuda.get_device_properties(index)
    # ROCm builds of torch leave several of these out; the fallbacks are the numbers of CDNA compute units.
    shared_per_block = getattr(props, "shared_memory_per_block_optin", getattr(props, "shared_memory_per_block", 65536))
    return DeviceInfo(
        kind="cuda",
        name=props.name,
        sm_count=props.multi_processor_count,
        capability=(props.major, props.minor),
        shared_per_sm=getattr(props, "shared_memory_per_multiprocessor", shared_per_block),
        shared_per_block=shared_per_block,
        registers_per_sm=getattr(props, "regs_per_multiprocessor", 65536),
        max_threads_per_sm=props.max_threads_per_multi_processor,
        max_blocks_per_sm=_max_blocks_per_sm((props.major, props.minor)),
        warp_size=props.warp_size,
        l2_bytes=props.L2_cache_size,
        clock_hz=1e3 * getattr(props, "clock_rate", 0),
        # Two transfers in a clock, on every line of the bus.
        memory_bytes_per_s=2e3 * getattr(props, "memory_clock_rate", 0) * getattr(props, "memory_bus_width", 0) / 8,
    )


def _max_blocks_per_sm(capability: tuple[int, int]) -> int:
    """Hardware limit by compute capability; torch does not report it."""
    if capability in ((8, 6), (8, 7), (7, 5)):
        return 16
    return 24 if capability in ((8, 9), (12, 0), (12, 1)) else 32
