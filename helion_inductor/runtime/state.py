"""Words of device memory that outlive launches: the states of barriers.

A word is zeroed once, before it is handed out, and restores itself (``device_barrier``); no launch waits for a memset. Launches
that may run at the same time must not share one: words belong to a device, a stream and a launcher, and while a CUDA graph is being
captured to that capture too, for graphs that were captured from one stream may be replayed on several.

The memory comes from the driver, not from torch's allocator: what is allocated during a capture would belong to the graph's pool,
and might be handed to another tensor of the graph.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import torch

from ..errors import HelionError
from .capture import relaxed_capture
from .occupancy import cuda_driver

SLOT_BYTES = 128  # a line of the L2 cache, so that no two barriers share one
CHUNK_SLOTS = 512
_NON_BLOCKING = 1


class _Memory:
    """Device memory, as ``torch.as_tensor`` takes it."""

    def __init__(self, address: int, words: int) -> None:
        self.__cuda_array_interface__ = {"shape": (words,), "typestr": "<i4", "data": (address, False), "version": 3}


class StateStore:
    """Hands out int32 tensors of ``SLOT_BYTES``, zeroed; safe to use from several threads."""

    def __init__(self) -> None:
        self._slots: dict[Any, torch.Tensor] = {}
        self._free: dict[int, list[torch.Tensor]] = {}
        self._lock = threading.Lock()

    def get(self, owner: object, device: int, stream: int) -> torch.Tensor:
        """The state of ``owner`` on a stream of a CUDA device (its index): always the same, but for captures, each of which has
        another. Raises HelionError where the driver has no memory."""
        key = (owner, device, stream, _capture(stream) if torch.cuda.is_current_stream_capturing() else 0)
        slot = self._slots.get(key)
        if slot is None:
            with self._lock:
                slot = self._slots.setdefault(key, self._take(device))
        return slot

    def _take(self, device: int) -> torch.Tensor:
        free = self._free.setdefault(device, [])
        if not free:
            words = SLOT_BYTES // 4
            with torch.cuda.device(device), relaxed_capture():
                chunk = torch.as_tensor(_Memory(_zeroed(CHUNK_SLOTS * SLOT_BYTES), CHUNK_SLOTS * words), device=f"cuda:{device}")
            free += chunk.split(words)
        return free.pop()


STATES = StateStore()


def _zeroed(size: int) -> int:
    """The address of ``size`` new bytes of the current device, all 0. They are never given back."""
    driver = cuda_driver()
    address, stream = ctypes.c_uint64(0), ctypes.c_void_p(0)
    _checked("cuMemAlloc", driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)))
    # On a stream of its own: the default one waits for others, which may be in the middle of a capture.
    _checked("cuStreamCreate", driver.cuStreamCreate(ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING)))
    _checked("cuMemsetD8Async", driver.cuMemsetD8Async(address, ctypes.c_ubyte(0), ctypes.c_size_t(size), stream))
    _checked("cuStreamSynchronize", driver.cuStreamSynchronize(stream))
    _checked("cuStreamDestroy", driver.cuStreamDestroy_v2(stream))
    return address.value


def _capture(stream: int) -> int:
    """The number of the capture that ``stream`` takes part in."""
    status, number = ctypes.c_int(0), ctypes.c_uint64(0)
    driver = cuda_driver()
    result = driver.cuStreamGetCaptureInfo_v2(
        ctypes.c_void_p(stream), ctypes.byref(status), ctypes.byref(number), None, None, None
    )  # fmt: skip
    _checked("cuStreamGetCaptureInfo", result)
    return number.value


def _checked(name: str, status: int) -> None:
    if status != 0:
        raise HelionError(f"{name} failed with CUDA driver error {status}")
