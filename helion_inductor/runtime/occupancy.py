"""How many programs of one compiled kernel can be resident on a device at the same time.

`resident_programs` asks the driver about the exact compiled kernel; `estimate_occupancy` works it out from plain
numbers, for reports and cost models made without a GPU.

Note [Cooperative launches do not wait for each other]: programs that wait for all others of their grid end only if all are
resident. Two such grids on two streams, launched plainly, could each get half of the device and wait for ever. A cooperative
launch cannot come to that: the device starts its programs when there is room for all of them, and not before, so at any time
each waiting grid is either wholly resident, and ends, or holds nothing that another one needs. The same holds under a captured
graph, whose nodes remember that they are cooperative. What it takes, and what is not covered:
- the grid must fit an empty device (that is what `check_residency` asks; the driver refuses it otherwise);
- a kernel of somebody else that was launched plainly and spins for something we are to do may hold room that we need;
- programs waiting for another *kernel* have no such guarantee, only those waiting for their own grid;
- a stream of a green context has fewer multiprocessors than its device: there the driver's refusal is what is reported.
Not tried on hardware: several processes under MPS, and ROCm, where kernels are launched phase by phase instead.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Protocol

import torch

from ..errors import HelionError, LaunchRejected
from .cuda_driver import context_multiprocessors, cuda_driver
from .num_sm import get_num_sm

_REGISTER_UNIT = 256
"""Registers are handed out to a warp in units of this many."""
_WARP_GROUPS = 4
"""A multiprocessor has this many quarters; registers limit the warps of each alike."""
_SHARED_RESERVED = 1024
"""Bytes of shared memory that the system takes for every resident program (capability 8.0 and up)."""
_SHARED_UNIT = 128


class SmLimits(Protocol):
    """What `estimate_occupancy` needs to know of one multiprocessor; `device.DeviceInfo` has it all."""

    @property
    def registers_per_sm(self) -> int: ...
    @property
    def shared_per_sm(self) -> int: ...
    @property
    def max_threads_per_sm(self) -> int: ...
    @property
    def max_blocks_per_sm(self) -> int: ...
    @property
    def warp_size(self) -> int: ...


class Sm(NamedTuple):
    """A stand-alone `SmLimits`. Shared memory in bytes."""

    registers_per_sm: int = 65536
    shared_per_sm: int = 228 * 1024
    max_threads_per_sm: int = 2048
    max_blocks_per_sm: int = 32
    warp_size: int = 32


def estimate_occupancy(registers: int, shared: int, num_warps: int, info: SmLimits) -> int:
    """Programs of a kernel that fit on one multiprocessor at once; 0 means it cannot run at all.

    `registers` is per thread, `shared` in bytes per program. Follows the allocation rules of NVIDIA GPUs of capability
    8.0 to 10.x: registers per warp in units of 256, warps in quarters of a multiprocessor, 1 KiB of shared memory
    reserved per program.
    """
    warps_limit = info.max_threads_per_sm // info.warp_size
    if registers > 0:
        per_warp = _round_up(registers * info.warp_size, _REGISTER_UNIT)
        by_registers = info.registers_per_sm // per_warp // _WARP_GROUPS * _WARP_GROUPS
        warps_limit = min(warps_limit, by_registers)
    by_shared = info.shared_per_sm // _round_up(shared + _SHARED_RESERVED, _SHARED_UNIT)
    return min(warps_limit // num_warps, by_shared, info.max_blocks_per_sm)


def resident_programs(compiled: Any, device: torch.device | str, *, reserved_sms: int = 0) -> int:
    """Programs of `compiled` (what Triton's JIT returns) that `device` holds at once, leaving `reserved_sms` free.

    Programs per multiprocessor are asked of the driver once per compiled kernel; the answer is kept on it. Multiprocessors are
    asked of the context each time: an instance of a divided device (MIG) has fewer, and so may a client of MPS. Programs are
    counted, not clusters of them. The count is what a grid-wide barrier may rely on under a cooperative launch; see
    Note [Cooperative launches do not wait for each other]. Raises HelionError where the driver cannot be asked.
    """
    device = torch.device(device)
    return _programs_per_sm(compiled, device) * multiprocessors(device, reserved_sms=reserved_sms)


def multiprocessors(device: torch.device, *, reserved_sms: int = 0) -> int:
    """Multiprocessors that this process may fill: those of the device or of the context's share of it, less the reserved."""
    count = get_num_sm(device, reserved_sms=reserved_sms)
    if device.type != "cuda":
        return count
    with torch.cuda.device(device):
        share = context_multiprocessors()
    return count if share is None else max(1, min(share - reserved_sms, count))


def check_residency(
    compiled: Any, name: str, device: torch.device | str | int, required: int, *, reserved_sms: int = 0
) -> int:
    """How many programs of `compiled` fit on `device` at once.

    Raises LaunchRejected if that is less than `required`; `name` is what its message calls the kernel.
    """
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    available = resident_programs(compiled, device, reserved_sms=reserved_sms)
    if required > available:
        raise not_resident(compiled, name, device, required, available, reserved_sms=reserved_sms)
    return available


def not_resident(
    compiled: Any, name: str, device: torch.device, required: int, available: int, *, reserved_sms: int = 0
) -> LaunchRejected:
    """The error for `required` programs of which `available` fit: the arithmetic, what the kernel uses, three ways out."""
    workers = multiprocessors(device, reserved_sms=reserved_sms)
    reserved = f" after reserving {reserved_sms}" if reserved_sms else ""
    return LaunchRejected(
        f"{required} programs of {name} must be resident at once, {available} fit",
        required=required,
        available=available,
        arithmetic=f"{workers} multiprocessors{reserved} x {available // workers} programs of "
        f"{compiled.metadata.num_warps} warps each = {available}",
        registers=getattr(compiled, "n_regs", None),
        shared_memory=compiled.metadata.shared,
        hints=(
            f"launch at most {available} programs; a persistent kernel loops over the rest",
            "use smaller tiles, fewer warps or fewer stages, so that more programs fit on a multiprocessor",
            "run the phases as separate launches: cross_loop='off' needs no co-residency",
        ),
    )


def _programs_per_sm(compiled: Any, device: torch.device) -> int:
    # A compiled kernel belongs to one device (Triton caches per device), so one number per kernel is enough.
    cached = vars(compiled).get("_helion_programs_per_sm")
    if cached is None:
        with torch.cuda.device(device):
            _ = compiled.run  # loads the module and sets `function`
            threads = compiled.metadata.num_warps * compiled.metadata.target.warp_size
            cached = _query_driver(compiled.function, threads, compiled.metadata.shared)
        compiled._helion_programs_per_sm = cached
    return cached


def _query_driver(function: int, threads: int, shared: int) -> int:
    blocks = ctypes.c_int(0)
    status = cuda_driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(blocks), ctypes.c_void_p(function), ctypes.c_int(threads), ctypes.c_size_t(shared)
    )
    if status != 0:
        raise HelionError(f"cuOccupancyMaxActiveBlocksPerMultiprocessor failed with CUDA driver error {status}")
    return blocks.value


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
