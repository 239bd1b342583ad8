"""Memory for kernels that ask Triton for a workspace at launch, such as those that make tensor descriptors on the device."""

from __future__ import annotations

import torch
import triton
from triton.runtime import _allocation

from ..errors import HelionError

_ALIGNMENT = 512  # bytes: what torch's allocators give for every tensor


def set_triton_allocator() -> None:
    """Let Triton take workspaces from torch, unless an allocator was set already, which is left alone.

    Triton keeps its allocator in a context variable, so this holds for the calling thread (or task), and for what inherits its
    context; launch from other threads after a call of their own. Releases before 3.4 keep one for all.
    """
    current = _allocation._allocator
    current = current.get() if hasattr(current, "get") else current
    if isinstance(current, _allocation.NullAllocator):
        triton.set_allocator(_allocate)


def _allocate(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """`size` bytes on the current device; Triton lets go of them when the launch is in the stream, which is early enough."""
    if alignment > _ALIGNMENT:
        raise HelionError(f"a kernel asks for a workspace aligned to {alignment} bytes; torch's memory is aligned to {_ALIGNMENT}")
    return torch.empty(size, dtype=torch.uint8, device="cuda")
