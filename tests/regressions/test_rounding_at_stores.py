"""Half results are rounded to nearest, ties to even, where they are stored, with no cast in the program before."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_product_of_halves(dtype: torch.dtype, device: str) -> None:
    x, y = (torch.randn(1000, generator=torch.Generator().manual_seed(k)).to(device, dtype) for k in (0, 1))
    compiled = torch.compile(torch.mul, backend="helion", options={"regions": "all", "on_error": "raise"})
    assert torch.equal(compiled(x, y), x * y)
