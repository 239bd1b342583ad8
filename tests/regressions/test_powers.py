"""Powers at the edge: what eager refuses is refused."""

from __future__ import annotations

import pytest
import torch

OPTIONS = {"regions": "all", "on_error": "fallback"}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8])
def test_negative_powers_of_integers(dtype: torch.dtype, device: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return (x + 1) ** -1

    x = torch.arange(1, 5, device=device).to(dtype)
    with pytest.raises(RuntimeError, match="negative integer powers"):
        fn(x)
    run = torch.compile(fn, backend="helion", options=OPTIONS)
    with pytest.raises(Exception, match="raises integers to the power of -1"):
        run(x)
    torch.testing.assert_close(run(x.float()), fn(x.float()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_reciprocal_roots(dtype: torch.dtype, device: str) -> None:
    """The power of -0.5 is that of rsqrt, also of what has no root."""
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x**-0.5, x**0.5, x**-1.0, torch.float_power(x, -0.5)

    x = torch.tensor([-torch.inf, torch.inf, torch.nan, 0.0, -0.0, 4.0, -4.0], device=device).to(dtype)
    torch.testing.assert_close(torch.compile(fn, backend="helion", options=OPTIONS)(x), fn(x), equal_nan=True)
