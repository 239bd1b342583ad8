"""What the reported cases are written with: the ``Case`` record, its decorator, and makers of inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

INF, NAN = float("inf"), float("nan")
Check = str | Callable[[Any, Any, Any, Any], bool]


@dataclass(frozen=True)
class Case:
    """One function and its inputs; eager PyTorch on the same device says what is right.

    ``source`` is the public report that the input was distilled from.  ``check`` is "equal", "allclose" (with ``rtol``
    and ``atol``; NaN equals NaN), "raises" (the compiled function must raise where eager does), or a predicate of
    eager's outputs, the compiled outputs, and the inputs after either call.  ``strides`` compares the outputs' strides
    too, ``grad`` the input gradients of a weighted sum of the outputs.  ``more_inputs`` gives further inputs for the
    same compiled function, ``calls`` is how often each is called.  ``heavy`` needs gigabytes.
    """

    id: str
    source: str
    summary: str
    fn: Callable[..., Any]
    make_inputs: Callable[[str], tuple]
    check: Check = "allclose"
    tags: tuple[str, ...] = ()
    rtol: float = 1e-5
    atol: float = 1e-6
    strides: bool = False
    grad: bool = False
    dynamic: bool | None = None
    more_inputs: Callable[[str], Sequence[tuple]] | None = None
    calls: int = 2
    cuda_only: bool = False
    cpu_only: bool = False
    heavy: bool = False
    note: str = ""


CASES: list[Case] = []


def case(
    id: str,
    source: str,
    summary: str,
    make_inputs: Callable[[str], tuple],
    check: Check = "allclose",
    tags: str = "",
    **settings: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the decorated function to ``CASES``; ``tags`` are separated by blanks."""

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        CASES.append(Case(id, source, summary, fn, make_inputs, check, tuple(tags.split()), **settings))
        return fn

    return decorate


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32, device: str = "cpu") -> torch.Tensor:
    """Normal random numbers, the same on every device."""
    return torch.randn(*shape, generator=generator(seed)).to(dtype=dtype, device=device)


def ri(
    low: int, high: int, shape: tuple[int, ...], seed: int = 0, dtype: torch.dtype = torch.int64, device: str = "cpu"
) -> torch.Tensor:
    """Random integers of [low, high), the same on every device."""
    return torch.randint(low, high, shape, generator=generator(seed)).to(dtype=dtype, device=device)


def T(values: Any, device: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device=device)
