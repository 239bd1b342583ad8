"""A barrier of all programs of a grid, for kernels whose phases read what other programs wrote.

The barrier keeps one 32-bit word. Among the n programs of a round the first one adds 2^31 - (n - 1), every other adds 1: the
round is complete when the sum reaches 2^31, that is when the top bit flips, and the 31 bits below are zero again. Nothing needs
resetting between rounds or launches, and n may be another in the next launch. This is the arithmetic of CUDA's cooperative groups.

What is written before the barrier by any program may be read after it by every other, through ordinary loads. Loads that
pass by the generic proxy (TMA) need a proxy fence besides.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from ..errors import HelionError

__all__ = ["DEBUG_POLLS", "grid_barrier"]

DEBUG_POLLS = 1 << 24
"""A bound for the polls of one wait in kernels that are being debugged: more than ten seconds where a poll takes 0.7 us."""

# The first thread arrives and waits for all. Its acquire and the barrier of the program behind it order the loads of all threads.
_ARRIVE_AND_WAIT = tl.constexpr("""{
.reg .pred p;
.reg .b32 before, word;
mov.b32 $0, 1;
mov.u32 word, %tid.x;
setp.ne.u32 p, word, 0;
@p bra DONE;
atom.global.gpu.acq_rel.add.u32 before, [$1], $2;
AGAIN:
ld.acquire.gpu.global.b32 word, [$1];
xor.b32 word, word, before;
setp.ge.s32 p, word, 0;
@p bra AGAIN;
DONE:
}""")
_ARRIVE_AND_WAIT_BOUNDED = tl.constexpr("""{
.reg .pred p;
.reg .b32 before, word, left;
mov.b32 $0, 1;
mov.b32 left, $3;
mov.u32 word, %tid.x;
setp.ne.u32 p, word, 0;
@p bra DONE;
atom.global.gpu.acq_rel.add.u32 before, [$1], $2;
AGAIN:
ld.acquire.gpu.global.b32 word, [$1];
xor.b32 word, word, before;
setp.lt.s32 p, word, 0;
@p bra DONE;
add.s32 left, left, -1;
setp.gt.s32 p, left, 0;
@p bra AGAIN;
mov.b32 $0, 0;
DONE:
}""")
_TRAP_IF_ZERO = tl.constexpr("{ .reg .pred p; setp.eq.s32 p, $1, 0; mov.b32 $0, $1; @p trap; }")


@tl.core.builtin
def for_nvidia(_semantic: Any = None) -> tl.constexpr:
    """Which assembly to write: triton.language.target_info asks for a device, and there may be none."""
    return tl.constexpr(_semantic.builder.options.backend_name == "cuda")


@triton.jit
def grid_barrier(state_ptr, slot, num_programs, POLLS: tl.constexpr = 0):
    """Wait until all `num_programs` programs of a one-dimensional grid have come here; all of them must be resident.

    `state_ptr` points to int32 words that were zero before their first use; all barriers of a kernel may use the same `slot`,
    as long as every program comes to all of them. With `POLLS` above 0 a wait gives up after so many polls and traps; under the
    launch option `debug` it also prints this line and the program that waited.
    """
    tl.debug_barrier()
    word_ptr = state_ptr + slot
    # 2^31 - (n - 1), written so that nothing overflows.
    step = tl.where(tl.program_id(0) == 0, (1 - num_programs) ^ -2147483648, 1).to(tl.int32)
    if POLLS == 0:
        _arrive_and_wait(word_ptr, step)
    else:
        complete = _arrive_and_wait_bounded(word_ptr, step, POLLS)
        tl.device_assert(complete != 0, "a grid barrier waited in vain: some programs never came, or were never resident")
        _trap_if_zero(complete)
    tl.debug_barrier()


@triton.jit
def _arrive_and_wait(word_ptr, step):
    if for_nvidia():
        tl.inline_asm_elementwise(_ARRIVE_AND_WAIT, "=r,l,r,~{memory}", [word_ptr, step], tl.int32, is_pure=False, pack=1)
    else:
        before = tl.atomic_add(word_ptr, step, sem="acq_rel", scope="gpu")
        word = before
        while (word ^ before) >= 0:
            word = tl.atomic_add(word_ptr, 0, sem="acquire", scope="gpu")


@triton.jit
def _arrive_and_wait_bounded(word_ptr, step, POLLS: tl.constexpr):
    """1 where the round was completed, else 0; on NVIDIA only the first thread knows, the others say 1."""
    if for_nvidia():
        polls = tl.full([], POLLS, tl.int32)
        text: tl.constexpr = _ARRIVE_AND_WAIT_BOUNDED
        return tl.inline_asm_elementwise(text, "=r,l,r,r,~{memory}", [word_ptr, step, polls], tl.int32, is_pure=False, pack=1)
    else:
        before = tl.atomic_add(word_ptr, step, sem="acq_rel", scope="gpu")
        word = before
        left = tl.full([], POLLS, tl.int32)
        while ((word ^ before) >= 0) & (left > 0):
            word = tl.atomic_add(word_ptr, 0, sem="acquire", scope="gpu")
            left -= 1
        return ((word ^ before) < 0).to(tl.int32)


@triton.jit
def _trap_if_zero(complete):
    if for_nvidia():
        tl.inline_asm_elementwise(_TRAP_IF_ZERO, "=r,r,~{memory}", [complete], tl.int32, is_pure=False, pack=1)
    else:
        if complete == 0:
            tl.inline_asm_elementwise("s_trap 2", "=v,v", [complete], tl.int32, is_pure=False, pack=1)


def _interpreted(state_ptr: Any, slot: Any, num_programs: Any, POLLS: Any = 0) -> None:
    """Triton's interpreter runs programs one after another: the first would wait for ever."""
    count = int(num_programs.handle.data.item()) if isinstance(num_programs, tl.tensor) else int(num_programs)
    if count != 1:
        raise HelionError(
            f"a grid barrier of {count} programs cannot be interpreted: Triton's interpreter runs programs one after another. "
            "Launch the phases one by one"
        )


if triton.knobs.runtime.interpret:
    grid_barrier = _interpreted
