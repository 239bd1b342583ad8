"""One of several processes with a GPU each: sums in symmetric memory beside NCCL's, checked and timed.

    python tests/distributed/all_reduce.py RANK WORLD STORE

Rank 0 prints a line of JSON for each size: bytes, microseconds of a sum by NCCL and by one launch, and of the sum with a residual and
an RMS norm after it, eagerly and in one launch. Times are those of replayed CUDA graphs. Any wrong value ends the process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist

from helion_inductor.runtime import symmetric
from helion_inductor.runtime.symmetric import all_reduce, all_reduce_norm

DTYPE = torch.bfloat16
SIZES = [1 << k for k in range(10, 27)]  # bytes: 1 KB to 64 MB
ROW = 4096  # elements of a row that is normalised
COUNT = 20  # calls in a graph


def graph_us(call: Callable[[], object]) -> float:
    """Microseconds of a call, the median of five replays of a graph of COUNT."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(COUNT):
            call()
    times = []
    for _ in range(7):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        dist.barrier()
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * start.elapsed_time(end) / COUNT)
    return sorted(times[2:])[2]


def nccl(x: torch.Tensor) -> torch.Tensor:
    out = x.clone()
    dist.all_reduce(out)
    return out


def nccl_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    residual += nccl(x)
    wide = residual.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * weight.float()).to(x.dtype)


def same_everywhere(out: torch.Tensor) -> None:
    theirs = out.clone()
    dist.broadcast(theirs, 0)
    assert torch.equal(out, theirs), "ranks have other bits"


def check(group: str, rank: int) -> None:
    """Values, call after call, over both ways and several dtypes; then a graph that is replayed."""
    torch.manual_seed(rank)
    for dtype in symmetric.DTYPES:
        for n in (1, 7, 1000, 65536, 65536 * 4 + 5, 1 << 20):
            for _ in range(5):
                x = torch.randn(n, device="cuda").to(dtype)
                out, expected = all_reduce(x, group), nccl(x.float())
                torch.testing.assert_close(out.float(), expected, rtol=1e-2, atol=1e-2)
                same_everywhere(out)
    x, total = torch.randn(5000, device="cuda"), torch.zeros(5000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total += all_reduce(x, group)
    for _ in range(1000):
        graph.replay()
    torch.testing.assert_close(total, 1000 * nccl(x), rtol=1e-3, atol=1e-2)
    for rows, size in ((1, 64), (33, 4096), (5, 5000)):
        x, weight = torch.randn(rows, size, device="cuda").to(DTYPE), torch.ones(size, device="cuda").to(DTYPE)
        ours = torch.zeros(rows, size, device="cuda", dtype=DTYPE)
        theirs = ours.clone()
        for _ in range(3):
            torch.testing.assert_close(all_reduce_norm(x, ours, weight, group), nccl_norm(x, theirs, weight), rtol=3e-2, atol=3e-2)
            torch.testing.assert_close(ours, theirs, rtol=3e-2, atol=3e-2)
            same_everywhere(ours)


def measure(group: str, rank: int) -> None:
    weight = torch.ones(ROW, device="cuda", dtype=DTYPE)
    for size in SIZES:
        x = torch.randn(size // DTYPE.itemsize, device="cuda").to(DTYPE)
        found = {"bytes": size, "nccl_us": graph_us(lambda x=x: nccl(x))}
        if size <= symmetric.CAPACITY:
            found["symmetric_us"] = graph_us(lambda x=x: all_reduce(x, group))
        if ROW * DTYPE.itemsize <= size <= symmetric.CAPACITY:
            rows, residual = x.view(-1, ROW), torch.zeros_like(x).view(-1, ROW)
            found["eager_norm_us"] = graph_us(lambda r=rows, k=residual: nccl_norm(r, k, weight))
            found["symmetric_norm_us"] = graph_us(lambda r=rows, k=residual: all_reduce_norm(r, k, weight, group))
        if rank == 0:
            print(json.dumps(found), flush=True)


def main(rank: int, world: int, store: str) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    group = dist.group.WORLD.group_name  # type: ignore[union-attr]
    check(group, rank)
    measure(group, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
