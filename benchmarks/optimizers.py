"""Loops over many tensors on one GPU: AdamW steps and gradient clipping, beside eager PyTorch (foreach and fused) and Inductor.

    python benchmarks/optimizers.py [--only ROW ...] [--out FILE] [--budget SECONDS]

A compiled step is ``torch.compile(lambda: optimizer.step(), fullgraph=False)``. Times are as in horizontal.py. The error is
that of four calls against a float64 run: of the parameters' change and of both moments, or of the clipped gradients.
Compiling 300 tensors takes a minute and more for some peers: give that row a budget of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the repository, in place of this folder

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from benchmarks import harness, measuring
from benchmarks.measuring import Bench, Subject, Trial
from benchmarks.peers import USUAL, Peer, compiled

Shapes = tuple[tuple[int, ...], ...]
CALLS = 4
"""Calls before results are compared; under reduce-overhead the second records and those after it replay."""
MAX_NORM = 0.01
"""Below the norm of the gradients here, of any size: all are scaled."""
POWER_SLACK = 2e-5
"""beta2 ** 4 = 0.996 is known in float32 to 3e-8, so 1 - beta2 ** 4 = 0.004 to 7.5e-6 of itself; a power may be off by twice that.
Compiled steps and capturable ones compute it in float32, the others in Python's floats."""


def vit_b_shapes(width: int = 768, layers: int = 12, classes: int = 1000, patch: int = 16, tokens: int = 197) -> Shapes:
    """The parameters of a vision transformer, by default ViT-B/16: 152 tensors of 86.6 million elements together."""
    layer: Shapes = ((width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,), (width,), (width,),
                     (4 * width, width), (4 * width,), (width, 4 * width), (width,))  # fmt: skip
    start: Shapes = ((1, 1, width), (width, 3, patch, patch), (width,), (1, tokens, width))
    return (*start, *layer * layers, (width,), (width,), (classes, width), (classes,))


def small_shapes(count: int) -> Shapes:
    """Matrices of 2 to 25 thousand elements: 2.6 million elements in 300 of them."""
    return tuple((32 + 8 * (i % 13), 64 + 16 * (i % 7)) for i in range(count))


def parameters(shapes: Shapes, device: str, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Weights of the usual scale with gradients; equal arguments, equal values (rounded to float32 before ``dtype``)."""
    torch.manual_seed(0)
    made = []
    for shape in shapes:
        weight = torch.nn.Parameter((torch.randn(shape, device=device) * 0.02).to(dtype))
        weight.grad = (torch.randn(shape, device=device) * 0.01).to(dtype)
        made.append(weight)
    return made


def adamw(params: Sequence[Tensor], fused: bool = False) -> torch.optim.AdamW:
    """One whose steps can be recorded in a CUDA graph; but for float64, which computes with Python's floats throughout."""
    capturable = params[0].is_cuda and params[0].dtype != torch.float64
    return torch.optim.AdamW(params, lr=1e-3, weight_decay=0.01, capturable=capturable, foreach=not fused, fused=fused)


@dataclass(frozen=True)
class Step:
    """AdamW over parameters of ``shapes``."""

    shapes: Shapes

    def make(self, device: str, dtype: torch.dtype, peer: Peer) -> tuple[Callable[[], Any], Callable[[], list[Tensor]]]:
        """What a call does, uncompiled, and what it has come to since the start."""
        params = parameters(self.shapes, device, dtype)
        start = [p.detach().clone() for p in params]
        optimizer = adamw(params, fused=peer.name == "eager-fused")

        def outcome() -> list[Tensor]:
            moved = [(p.detach().double() - s.double()) for p, s in zip(params, start, strict=True)]
            moments = [optimizer.state[p][name] for name in ("exp_avg", "exp_avg_sq") for p in params]
            return [*moved, *moments]

        return lambda: optimizer.step(), outcome


@dataclass(frozen=True)
class Clip:
    """clip_grad_norm_ over gradients of ``shapes``."""

    shapes: Shapes

    def make(self, device: str, dtype: torch.dtype, peer: Peer) -> tuple[Callable[[], Any], Callable[[], list[Tensor]]]:
        params = parameters(self.shapes, device, dtype)
        call = lambda: clip_grad_norm_(params, MAX_NORM, foreach=True)  # noqa: E731

        def outcome() -> list[Tensor]:
            return [p.grad for p in params if p.grad is not None]

        return call, outcome


def joined(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of one kind as one long vector, so that tiny ones do not decide: a third each, or as they are."""
    return [torch.cat([t.detach().double().flatten() for t in tensors])]


def outcome_error(actual: Sequence[Tensor], exact: Sequence[Tensor], kinds: int) -> float:
    """Largest error over ``kinds`` equal stretches of the tensors, each taken as one vector."""
    size = len(exact) // kinds
    parts = [slice(k * size, (k + 1) * size if k + 1 < kinds else None) for k in range(kinds)]
    return max(measuring.largest_error(joined(actual[p]), joined(exact[p])) for p in parts)


def measure(bench: Bench, work: Step | Clip) -> None:
    eager = Peer("eager")
    call, outcome = work.make(bench.device, torch.float64, eager)
    for _ in range(CALLS):
        call()
    exact = [t.clone() for t in outcome()]
    kinds = 3 if isinstance(work, Step) else 1

    def start(peer: Peer) -> Trial:
        call, outcome = work.make(bench.device, torch.float32, peer)
        run = compiled(call, peer, bench.device)

        def error() -> float:
            for _ in range(CALLS - 1):
                run()
            return outcome_error(outcome(), exact, kinds)

        return Trial(run, error)

    slack = POWER_SLACK if isinstance(work, Step) else None
    measuring.measure(bench, Subject(start, torch.float32, grad=True, slack=slack))


def _row(title: str, kind: type[Step] | type[Clip], full: Shapes, tiny: Shapes) -> harness.Row:
    peers = ("eager", "eager-fused", *USUAL[1:]) if kind is Step else USUAL
    return harness.Row(title, peers, lambda bench: measure(bench, kind(tiny if bench.smoke else full)), ("helion-all-ro",))


TINY_VIT = vit_b_shapes(8, 1, 4, 2, 5)
SUITE = harness.Suite(
    "optimizers",
    __doc__ or "",
    {
        "clip-vit-b": _row("clip_grad_norm_, ViT-B's 152 gradients", Clip, vit_b_shapes(), TINY_VIT),
        "adamw-vit-b": _row("AdamW step, ViT-B's 152 parameters", Step, vit_b_shapes(), TINY_VIT[:9]),
        "adamw-300-small": _row("AdamW step, 300 small tensors", Step, small_shapes(300), small_shapes(3)),
    },
)

if __name__ == "__main__":
    sys.exit(harness.main(SUITE))
