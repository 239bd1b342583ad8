"""One of two processes that train the same small model twice, compiled and eagerly, under one form of parallelism.

    python training.py FORM RANK STORE

Prints the losses of both as JSON, and what helion_inductor took.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

STEPS = 20
WIDTH = 32
WORLD = 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(Block(), Block(), nn.Linear(WIDTH, 1))


def data_parallel(device: str) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model().to(device))


def fully_sharded(device: str) -> nn.Module:
    whole = model().to(device)
    mesh = init_device_mesh(device, (WORLD,))
    for block in whole:
        fully_shard(block, mesh=mesh)
    return fully_shard(whole, mesh=mesh)


def tensor_parallel(device: str) -> nn.Module:
    whole = model().to(device)
    mesh = init_device_mesh(device, (WORLD,))
    for block in whole[:2]:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return whole


FORMS: dict[str, Callable[[str], nn.Module]] = {"ddp": data_parallel, "fsdp2": fully_sharded, "dtensor": tensor_parallel}


def losses(form: str, rank: int, device: str, backend: str | None) -> list[float]:
    """Losses of a training run; each process has data of its own, but for tensor parallelism, where all have the same."""
    trained = FORMS[form](device)
    forward = trained if backend is None else torch.compile(trained, backend=backend, options={"regions": "all"})
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.02, momentum=0.9)
    generator = torch.Generator().manual_seed(100 if form == "dtensor" else rank)
    found = []
    for _ in range(STEPS):
        x = torch.randn(8, WIDTH, generator=generator).to(device)
        loss = F.mse_loss(forward(x), x.mean(-1, keepdim=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def main(form: str, rank: int, store: str) -> None:
    cuda = torch.cuda.device_count() >= WORLD
    if cuda:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if cuda else "gloo", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    device = "cuda" if cuda else "cpu"
    eager = losses(form, rank, device, None)
    compiled = losses(form, rank, device, "helion")
    counters = dict(torch._dynamo.utils.counters["helion"])
    print(json.dumps({"eager": eager, "compiled": compiled, "counters": counters}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
