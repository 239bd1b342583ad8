"""Sums over the GPUs of a node, in symmetric memory: one launch each, without NCCL and without NVLink's multicast.

`all_reduce(x, group)` and `all_reduce_norm(x, residual, weight, group)` are collectives: all ranks of the group call them in the same
order, with tensors of the same shape and dtype, one at a time. They may be captured into CUDA graphs after a first call outside one.
Tested without GPUs as far as that goes (each phase, and the protocol); not yet on several GPUs.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import Any

import torch
import triton

from ..errors import HelionError
from . import device_peers
from .device_memory import allocate_apart
from .launcher import Launcher
from .remote import refuse_under_capture, symmetric_memory

PROGRAMS = 32
"""Of every launch: each meets the one of its number on all ranks, so there must be as many in each launch."""
CAPACITY = 8 << 20
"""Bytes of one tensor; larger ones are for NCCL, which moves them at the links' full rate."""
ONE_SHOT_BYTES = 256 << 10
"""Up to here every rank reads all of all others; above, the second meeting costs less than what is moved once more."""
DTYPES = (torch.float32, torch.float16, torch.bfloat16)

_LOCK = threading.Lock()
_GROUPS: dict[tuple[str, int], Group] = {}


@dataclass(frozen=True)
class Group:
    """What the ranks of a process group share: addresses of buffers and flags on each, and how far this one has come."""

    rank: int
    world: int
    half: int
    buffers: torch.Tensor
    flags: torch.Tensor
    epochs: torch.Tensor
    kept: tuple[Any, ...] = ()

    def constexprs(self) -> dict[str, int]:
        return {"RANK": self.rank, "WORLD": self.world, "HALF": self.half}


def all_reduce(x: torch.Tensor, group: str) -> torch.Tensor:
    """The sum of `x` over the ranks of the process group of this name, as a new tensor; the same bits on every rank.

    `x` is contiguous, of float32, float16 or bfloat16, and of CAPACITY bytes at most; sums are of float32. Raises HelionError
    for other tensors, and under graph capture where nothing was reduced for this group before.
    """
    _check(x)
    out = torch.empty_like(x)
    if x.numel():
        run_all_reduce(x, out, _group(group, x.device))
    return out


def all_reduce_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, group: str, *, eps: float = 1e-6
) -> torch.Tensor:
    """Adds the sum of `x` over the ranks to `residual`, in place, and returns its RMS norm over the last dimension times `weight`.

    `x` and `residual` are [..., size], `weight` is [size], of at most 16384 elements; otherwise as `all_reduce`.
    """
    _check(x)
    size = x.shape[-1] if x.dim() else 0
    if residual.shape != x.shape or residual.dtype != x.dtype or not residual.is_contiguous() or weight.shape != (size,):
        raise HelionError(f"all_reduce_norm: residual must be as x, {tuple(x.shape)} {x.dtype} and contiguous, and weight ({size},)")
    if size > 16384:
        raise HelionError(f"all_reduce_norm: rows of {size} elements are too long, at most 16384 are kept by a program")
    out = torch.empty_like(x)
    if x.numel():
        run_all_reduce_norm(x, residual, weight, out, eps, _group(group, x.device))
    return out


def run_all_reduce(x: torch.Tensor, out: torch.Tensor, group: Group, **phases: int) -> None:
    """Launch one shot or two, by size. `phases` (FIRST, LAST) are for tests, which run the phases of all ranks in turn."""
    n, size = x.numel(), x.numel() * x.element_size()
    tables = (group.buffers, group.flags, group.epochs)
    if size <= ONE_SHOT_BYTES or group.world == 1:
        _launcher(device_peers.one_shot)((PROGRAMS,), x, out, n, *tables, BLOCK=2048, **group.constexprs(), **phases)
    else:
        # Shares start at multiples of 16 bytes, whatever the dtype.
        share = -(-n // group.world) + 7 & ~7
        _launcher(device_peers.two_shot)((PROGRAMS,), x, out, n, share, *tables, BLOCK=2048, **group.constexprs(), **phases)


def run_all_reduce_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, eps: float, group: Group, **phases: int
) -> None:
    size = x.shape[-1]
    tables = (group.buffers, group.flags, group.epochs)
    block = triton.next_power_of_2(size)
    launch = _launcher(device_peers.one_shot_norm, 4 if block <= 2048 else 8)
    launch(
        (PROGRAMS,), x, residual, weight, out, x.numel() // size, *tables, size, eps, BLOCK=block, **group.constexprs(), **phases
    )  # fmt: skip


@functools.cache
def _launcher(kernel: Any, num_warps: int = 8) -> Launcher:
    return Launcher(kernel, num_warps=num_warps)


def _check(x: torch.Tensor) -> None:
    if x.dtype not in DTYPES:
        raise HelionError(f"sums over GPUs are of float32, float16 and bfloat16, not {x.dtype}")
    if not x.is_contiguous() or x.data_ptr() % 16:
        raise HelionError("sums over GPUs need a contiguous tensor that starts at a multiple of 16 bytes")
    if x.numel() * x.element_size() > CAPACITY:
        raise HelionError(f"{x.numel() * x.element_size()} bytes are too many for symmetric memory, which takes {CAPACITY}: use NCCL")


def _group(name: str, device: torch.device) -> Group:
    key = name, device.index
    found = _GROUPS.get(key)
    if found is None:
        with _LOCK:
            found = _GROUPS.get(key) or _set_up(name, device)
            _GROUPS[key] = found
    return found


def _set_up(name: str, device: torch.device) -> Group:
    """All ranks come here together, at their first call."""
    symmetric = symmetric_memory()
    refuse_under_capture("symmetric memory")
    half = 2 * CAPACITY + 4096  # a tensor and its sum, and room for shares that are rounded up
    words = PROGRAMS * torch.distributed.get_world_size(_resolved(name))
    memory = symmetric.empty(2 * half + 4 * words, dtype=torch.uint8, device=device)
    handle = symmetric.rendezvous(memory, name)
    memory.zero_()
    torch.cuda.synchronize(device)
    handle.barrier()  # nobody writes flags before all are zero
    bases = torch.tensor(handle.buffer_ptrs, dtype=torch.int64)
    buffers, flags = (allocate_apart(device.index, t) for t in (bases, bases + 2 * half))
    epochs = allocate_apart(device.index, torch.zeros(PROGRAMS, dtype=torch.int32))
    return Group(handle.rank, handle.world_size, half, buffers, flags, epochs, kept=(memory, handle))


def _resolved(name: str) -> Any:
    c10d: Any = torch.distributed.distributed_c10d
    return c10d._resolve_process_group(name)
