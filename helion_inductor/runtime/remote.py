"""Arguments of kernels that talk to other GPUs of a node: where their signal words are on each rank.

Both kinds of words are told to a kernel as an int64 tensor of addresses, one for each rank of the group, in order; a rank's words
are uint32 and zero before their first use. Words of program p start at p * slots.

- Copy signals say that a copy into a destination is complete. They lie at the end of the signal pad that comes with the
  destination's symmetric memory; torch's own collectives use the start of it.
- Barrier signals are for programs of the same number on all ranks that wait for one another. A barrier has two phases (come, and
  go), each with a word for every pair of ranks: 2 * world size words for a slot. They are in memory of their own.

Whatever is set up here is set up by all ranks together, and waits for all of them; a problem that can be foreseen is an error before
that. Not tried on hardware with more than one GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary
from triton.runtime.driver import driver

from ..errors import HelionError
from .device_memory import allocate_apart

WORD = 4
TORCH_PAD_BYTES = 1024
"""What torch's collectives use of a signal pad: a word for each rank and program, of at most 24 programs on 8 ranks, and some more."""

_LOCK = threading.RLock()
_COPY: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # destination -> {(group, words): addresses}
_BARRIER: dict[tuple[str, int, int], torch.Tensor] = {}  # (group, device, words) -> addresses
_KEPT: list[Any] = []  # memory of barriers, and what torch knows of it
_SCRATCH: dict[tuple[ScratchSpec, int, int, int], torch.Tensor] = {}


@dataclass(frozen=True)
class ScratchSpec:
    """Device memory of `numel` elements that a launch may use as it likes; what is in it at first is undefined."""

    numel: int
    dtype: torch.dtype = torch.int32


def copy_signal(destination: torch.Tensor | None, programs: int, slots: int, group: str | None) -> torch.Tensor:
    """Addresses of `slots` completion words for each of `programs` programs, behind `destination` on each rank.

    Raises HelionError where an argument is missing, the pad is too small, or a graph is being captured at the first call.
    """
    if destination is None:
        raise HelionError(f"_remote_copy_signal_slots_per_program={slots} needs _remote_copy_signal_dst, the tensor copied to")
    if slots <= 0:
        raise HelionError("_remote_copy_signal_dst needs _remote_copy_signal_slots_per_program, a number above 0")
    if not group:
        raise HelionError("_remote_copy_signal_dst needs _remote_copy_process_group_name, the group of its symmetric memory")
    words = programs * slots
    with _LOCK:
        known = _COPY.setdefault(destination, {})
        if (group, words) not in known:
            symmetric = symmetric_memory()
            size = symmetric.get_signal_pad_size()
            if words * WORD > size - TORCH_PAD_BYTES:
                raise HelionError(
                    f"{programs} programs x {slots} signal slots take {words * WORD} bytes of the signal pad, which has {size} bytes, "
                    f"{TORCH_PAD_BYTES} of them torch's: launch fewer programs, or call set_signal_pad_size("
                    f"{words * WORD + TORCH_PAD_BYTES}) of torch.distributed._symmetric_memory before anything is allocated"
                )
            refuse_under_capture("the copy signals of a destination")
            handle = symmetric.rendezvous(destination, group)
            known[group, words] = _addresses(handle.signal_pad_ptrs, size - words * WORD, destination.device)
        return known[group, words]


def barrier_signal(programs: int, slots: int, group: str | None, device: torch.device) -> torch.Tensor:
    """Addresses of the words of `slots` two-phase barriers for each of `programs` programs, on each rank of `group`.

    Raises HelionError where an argument is missing, or a graph is being captured at the first call.
    """
    if not group:
        raise HelionError(f"_remote_barrier_signal_slots_per_program={slots} needs _remote_barrier_process_group_name")
    if slots <= 0:
        raise HelionError("_remote_barrier_process_group_name needs _remote_barrier_signal_slots_per_program, a number above 0")
    with _LOCK:
        key = group, device.index, programs * slots
        if key not in _BARRIER:
            symmetric = symmetric_memory()
            refuse_under_capture("the barrier signals of a group")
            c10d: Any = torch.distributed.distributed_c10d
            ranks = c10d._resolve_process_group(group).size()
            memory = symmetric.empty(2 * ranks * programs * slots, dtype=torch.int32, device=device)
            handle = symmetric.rendezvous(memory, group)
            memory.zero_()
            handle.barrier()  # nobody signals before all words are zero
            _KEPT.append((memory, handle))
            _BARRIER[key] = _addresses(handle.buffer_ptrs, 0, device)
        return _BARRIER[key]


def scratch(specs: Sequence[ScratchSpec], device: torch.device) -> list[torch.Tensor]:
    """A tensor for each spec, for a launch on the current stream of `device`.

    Launches on one stream use the same memory one after another. What a captured launch uses is the graph's.
    """
    if device.type == "cpu" or torch.cuda.is_current_stream_capturing():
        return [torch.empty(spec.numel, dtype=spec.dtype, device=device) for spec in specs]
    stream = driver.active.get_current_stream(device.index)
    found = []
    for place, spec in enumerate(specs):
        key = spec, place, device.index, stream
        if key not in _SCRATCH:
            memory = allocate_apart(device.index, torch.zeros(spec.numel, dtype=spec.dtype))
            memory.record_stream(torch.cuda.current_stream(device.index))
            _SCRATCH[key] = memory
        found.append(_SCRATCH[key])
    return found


def drop_scratch() -> None:
    """Give scratch memory back; whoever gets it comes after the launches that are pending."""
    _SCRATCH.clear()


def symmetric_memory() -> Any:
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        raise HelionError("kernels that signal other GPUs need torch.distributed: call init_process_group first")
    import torch.distributed._symmetric_memory as symmetric_memory

    return symmetric_memory


def refuse_under_capture(what: str) -> None:
    if torch.cuda.is_current_stream_capturing():
        raise HelionError(f"{what} cannot be set up while a graph is captured: run once before capture")


def _addresses(bases: Sequence[int], offset: int, device: torch.device) -> torch.Tensor:
    return torch.tensor([base + offset for base in bases], dtype=torch.int64, device=device)
