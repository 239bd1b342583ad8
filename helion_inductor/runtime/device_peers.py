"""Kernels in which the GPUs of a node read and write each other's memory, and the meeting of programs that makes it safe.

All kernels are launched with the same number of programs on all ranks. Program p of a rank meets the programs p of the others, and
no one else. `buffers` and `flags` are tables of addresses, one for each rank; `flags` lead to WORLD words for each program. `epochs` has
a word for each program, in memory of this rank: how far it has come. Each launch raises it by 2, so a meeting has a number of its own,
and a word that was written never has to be cleared, also when a captured graph is replayed.

A buffer has two halves, of which launches take turns. Who meets the others in a launch knows that they have ended the launch before:
kernels of a stream run one after another. So what was written two launches ago may be overwritten, and one meeting a launch is enough.
"""

from __future__ import annotations

import triton
import triton.language as tl

from . import device_lib as dl
from .device_barrier import for_nvidia

_RELEASE = tl.constexpr("""{
.reg .pred p;
setp.ne.s32 p, $3, 0;
@p st.release.sys.global.u32 [$1], $2;
mov.b32 $0, $2;
}""")
_ACQUIRE = tl.constexpr("""{
.reg .pred p;
setp.ne.s32 p, $2, 0;
mov.b32 $0, $3;
@p ld.acquire.sys.global.u32 $0, [$1];
}""")


@triton.jit
def meet(flags, number, RANK: tl.constexpr, WORLD: tl.constexpr):
    """Wait until the program of this number on every rank has come to the meeting `number`.

    What they wrote before, in any memory of the node, is seen afterwards.
    """
    tl.debug_barrier()
    ranks = tl.arange(0, triton.next_power_of_2(WORLD))
    there = ranks < WORLD
    place = tl.program_id(0) * WORLD
    theirs = tl.load(flags + ranks, there, other=0).to(tl.pointer_type(tl.int32)) + place + RANK
    mine = tl.load(flags + RANK).to(tl.pointer_type(tl.int32)) + place + ranks
    if for_nvidia():
        told = number + tl.zeros_like(ranks)
        asked = there.to(tl.int32)
        tl.inline_asm_elementwise(_RELEASE, "=r,l,r,r,~{memory}", [theirs, told, asked], tl.int32, is_pure=False, pack=1)
        least = number - 1
        while least - number < 0:  # a difference, for numbers wrap around; who is ahead may have come to the next meeting
            came = tl.inline_asm_elementwise(_ACQUIRE, "=r,l,r,r,~{memory}", [mine, asked, told], tl.int32, is_pure=False, pack=1)
            least = tl.min(came - number) + number
    else:
        tl.atomic_xchg(theirs, number + tl.zeros_like(ranks), there, sem="release", scope="sys")
        least = number - 1
        while least - number < 0:
            came = tl.atomic_add(mine, tl.zeros_like(ranks), there, sem="acquire", scope="sys")
            least = tl.min(tl.where(there, came - number, 0)) + number
    tl.debug_barrier()


@triton.jit
def _half(buffers, rank, epoch, like, HALF: tl.constexpr, FROM: tl.constexpr = 0):
    """Where the half of this launch in a rank's buffer begins, for elements as of `like`; HALF and FROM in bytes."""
    base = tl.load(buffers + rank) + ((epoch >> 1) & 1).to(tl.int64) * HALF + FROM
    return tl.multiple_of(base.to(tl.pointer_type(like.dtype.element_ty)), 16)


@triton.jit
def one_shot(x, out, n, buffers, flags, epochs, RANK: tl.constexpr, WORLD: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr,
             FIRST: tl.constexpr = 0, LAST: tl.constexpr = 2):  # fmt: skip
    """out = the sum over all ranks of their x [n]: each reads all. In f32, rank by rank, so that all ranks get the same bits."""
    pid, count = tl.program_id(0), tl.num_programs(0)
    epoch = tl.load(epochs + pid)
    if FIRST <= 0:
        mine = _half(buffers, RANK, epoch, x, HALF)
        for start in range(pid * BLOCK, n, count * BLOCK):
            i = start + tl.arange(0, BLOCK)
            tl.store(mine + i, tl.load(x + i, i < n), i < n)
    if LAST > 1:
        if FIRST < 1:
            meet(flags, epoch + 1, RANK, WORLD)
        for start in range(pid * BLOCK, n, count * BLOCK):
            i = start + tl.arange(0, BLOCK)
            total = tl.zeros([BLOCK], tl.float32)
            for rank in tl.static_range(WORLD):
                total += tl.load(_half(buffers, rank, epoch, x, HALF) + i, i < n).to(tl.float32)
            tl.store(out + i, dl.narrow(total, out.dtype.element_ty), i < n)
        tl.store(epochs + pid, epoch + 2)


@triton.jit
def one_shot_norm(x, residual, weight, out, rows, buffers, flags, epochs, size, eps, RANK: tl.constexpr, WORLD: tl.constexpr,
                  HALF: tl.constexpr, BLOCK: tl.constexpr, FIRST: tl.constexpr = 0, LAST: tl.constexpr = 2):  # fmt: skip
    """residual += the sum over all ranks of their x, out = the RMS norm of it times weight [size]; x, residual, out: [rows, size]."""
    pid, count = tl.program_id(0), tl.num_programs(0)
    epoch = tl.load(epochs + pid)
    i = tl.arange(0, BLOCK)
    if FIRST <= 0:
        mine = _half(buffers, RANK, epoch, x, HALF)
        for row in range(pid, rows, count):
            tl.store(mine + row * size + i, tl.load(x + row * size + i, i < size), i < size)
    if LAST > 1:
        if FIRST < 1:
            meet(flags, epoch + 1, RANK, WORLD)
        scale = tl.load(weight + i, i < size, other=0.0).to(tl.float32)
        for row in range(pid, rows, count):
            at = row * size + i
            total = tl.zeros([BLOCK], tl.float32)
            for rank in tl.static_range(WORLD):
                total += tl.load(_half(buffers, rank, epoch, x, HALF) + at, i < size, other=0.0).to(tl.float32)
            # What is kept is rounded as the sum and the addition would be apart.
            kept = dl.narrow(total, x.dtype.element_ty).to(tl.float32) + tl.load(residual + at, i < size, other=0.0).to(tl.float32)
            kept = dl.narrow(kept, residual.dtype.element_ty)
            tl.store(residual + at, kept, i < size)
            wide = kept.to(tl.float32)
            mean = tl.sum(wide * wide) / size
            tl.store(out + at, dl.narrow(wide * tl.rsqrt(mean + eps) * scale, out.dtype.element_ty), i < size)
        tl.store(epochs + pid, epoch + 2)


@triton.jit
def two_shot(x, out, n, share, buffers, flags, epochs, RANK: tl.constexpr, WORLD: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr,
             FIRST: tl.constexpr = 0, LAST: tl.constexpr = 3):  # fmt: skip
    """As `one_shot`: each rank sums one share of `share` elements and writes the sum to all. Less is moved, after one more meeting."""
    pid, count = tl.program_id(0), tl.num_programs(0)
    epoch = tl.load(epochs + pid)
    SUMS: tl.constexpr = HALF // 2  # the second half of a half is for sums
    if FIRST <= 0:
        mine = _half(buffers, RANK, epoch, x, HALF)
        for rank in tl.static_range(WORLD):
            for start in range(pid * BLOCK, share, count * BLOCK):
                i = start + tl.arange(0, BLOCK)
                at = rank * share + i
                tl.store(mine + at, tl.load(x + at, (i < share) & (at < n)), (i < share) & (at < n))
    if FIRST <= 1 and LAST > 1:
        if FIRST < 1:
            meet(flags, epoch + 1, RANK, WORLD)
        for start in range(pid * BLOCK, share, count * BLOCK):
            i = start + tl.arange(0, BLOCK)
            at = RANK * share + i
            inside = (i < share) & (at < n)
            total = tl.zeros([BLOCK], tl.float32)
            for rank in tl.static_range(WORLD):
                total += tl.load(_half(buffers, rank, epoch, x, HALF) + at, inside).to(tl.float32)
            for rank in tl.static_range(WORLD):
                tl.store(_half(buffers, rank, epoch, x, HALF, SUMS) + at, dl.narrow(total, x.dtype.element_ty), inside)
    if LAST > 2:
        if FIRST < 2:
            meet(flags, epoch + 2, RANK, WORLD)
        sums = _half(buffers, RANK, epoch, x, HALF, SUMS)
        for rank in tl.static_range(WORLD):
            for start in range(pid * BLOCK, share, count * BLOCK):
                i = start + tl.arange(0, BLOCK)
                at = rank * share + i
                tl.store(out + at, tl.load(sums + at, (i < share) & (at < n)), (i < share) & (at < n))
        tl.store(epochs + pid, epoch + 2)
