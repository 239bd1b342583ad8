"""Device memory that belongs to no graph: allocated beside whatever the calling thread is doing, also while it captures."""

from __future__ import annotations

import threading
from typing import Any

import torch

from .capture import relaxed_capture


def allocate_apart(index: int, contents: torch.Tensor) -> torch.Tensor:
    """Memory on CUDA device `index` that holds `contents` (a CPU tensor); ready for use on any stream when this returns.

    Runs in a thread of its own: the memory pool of a graph, and that of a warm-up for one, takes whatever the thread that made
    it allocates. Who lets go of the memory before the device is done with it calls `record_stream` first.
    """
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append(_allocated(index, contents))
        except BaseException as error:  # raised again where it was asked for
            outcome.append(error)

    thread = threading.Thread(target=work, name="helion_inductor device memory")
    thread.start()
    thread.join()
    (found,) = outcome
    if isinstance(found, BaseException):
        raise found
    return found  # type: ignore[no-any-return]


def _allocated(index: int, contents: torch.Tensor) -> torch.Tensor:
    # Streams come from a small pool, and one that is being captured must be left alone.
    with relaxed_capture(), torch.cuda.device(index):
        stream = torch.cuda.Stream(index, priority=-1)
        with torch.cuda.stream(stream):
            if torch.cuda.is_current_stream_capturing():
                return _allocated(index, contents)
            memory = torch.empty_like(contents, device=f"cuda:{index}")
            memory.copy_(contents)
            stream.synchronize()
        return memory
