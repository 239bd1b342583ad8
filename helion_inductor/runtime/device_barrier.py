"""A barrier of all programs of a cooperative launch, as a device function.

The protocol is the one that NVIDIA publishes for grids of cooperative groups. One word of memory serves for ever: of n programs,
n - 1 add 1 and one adds 2^31 - (n - 1), so that each barrier flips the highest bit and leaves the others as they were. A program
waits until that bit differs from what it saw when it arrived. Launches of other numbers of programs may follow; launches that run
at the same time need words of their own.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def grid_barrier(state_ptr, slot, num_programs):
    """Wait until all ``num_programs`` programs, numbered along dimension x of the grid, have come here.

    What any of them wrote to global memory before is seen by all of them afterwards. ``state_ptr + slot`` points to an int32 that
    was 0 at first. All programs must be resident at the same time, or none goes on.
    """
    word = state_ptr + slot
    tl.debug_barrier()  # the whole program has written what it has to write
    share = tl.where(tl.program_id(0) == 0, -2147483648 - (num_programs - 1), 1)
    arrived = tl.atomic_add(word, share, sem="acq_rel", scope="gpu")
    seen = tl.atomic_add(word, 0, sem="acquire", scope="gpu")
    while (arrived ^ seen) >= 0:
        seen = tl.atomic_add(word, 0, sem="acquire", scope="gpu")
    tl.debug_barrier()
