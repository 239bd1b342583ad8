"""Compiled functions beside eager and beside float64, with kernels as they are for a GPU where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch._inductor.config as inductor_config
from torch import Tensor

from helion_inductor import backend
from helion_inductor.device import H200
from helion_inductor.scheduling.tile_sizes import TileTarget

OPTIONS: dict[str, Any] = {"regions": "all", "on_error": "raise"}
HALVES = (torch.float16, torch.bfloat16)


@contextmanager
def tiles_of_a_gpu() -> Iterator[None]:
    """Tiles as for an H200 in kernels for the interpreter, whose own are large."""
    with mock.patch.object(backend, "TileTarget", lambda *args, **kwargs: TileTarget(H200.sm_count)):
        yield


def run(fn: Callable[..., Any], *args: Any, gpu_tiles: bool = False, **options: Any) -> Any:
    """``fn(*args)`` compiled anew."""
    torch.compiler.reset()
    compiled = torch.compile(fn, backend="helion", options={**OPTIONS, **options}, dynamic=False)
    with inductor_config.patch(force_disable_caches=True):
        if not gpu_tiles:
            return compiled(*args)
        with tiles_of_a_gpu():
            return compiled(*args)


def wide(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def errors(fn: Callable[..., Any], got: Any, *args: Any) -> tuple[float, float]:
    """Norms of the differences of ``got`` and of eager from a float64 run, over that run's norm; dtypes and shapes are eager's."""
    eager, exact = fn(*args), fn(*map(wide, args))
    assert (got.dtype, got.shape) == (eager.dtype, eager.shape)
    norm = exact.norm().clamp_min(1e-30)
    return tuple(float((x.double() - exact).norm() / norm) for x in (got, eager))  # type: ignore[return-value]


def assert_as_exact(fn: Callable[..., Any], got: Any, *args: Any) -> None:
    """No worse than 1.5 times eager's own error, or than a rounding at the end."""
    ours, theirs = errors(fn, got, *args)
    rounding = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[got.dtype]
    assert ours <= max(1.5 * theirs, rounding), f"{ours:.2e} from the float64 result, eager {theirs:.2e}"
