"""What may be done while a CUDA graph is being captured."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

import torch

from .cuda_driver import cuda_driver


@contextlib.contextmanager
def relaxed_capture() -> Iterator[None]:
    """Lets this thread allocate, load modules and wait while a graph is captured, by it or by another thread.

    Nothing of that becomes part of the graph. On ROCm it does nothing.
    """
    if torch.version.hip is not None:
        yield
        return
    mode = ctypes.c_int(2)  # CU_STREAM_CAPTURE_MODE_RELAXED; each exchange leaves the previous mode in `mode`
    exchange = cuda_driver().cuThreadExchangeStreamCaptureMode
    exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


def capturing() -> bool:
    """Whether the current stream is being captured; False on ROCm, where nothing is relaxed."""
    return torch.version.hip is None and torch.cuda.is_current_stream_capturing()


def relaxed_if_capturing() -> contextlib.AbstractContextManager[None]:
    """`relaxed_capture` where the current stream is being captured, else nothing: it asks the driver twice."""
    return relaxed_capture() if capturing() else contextlib.nullcontext()
