"""Atomic additions exist for words of 32 and 64 bits; shorter ones are left out of regions."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.bfloat16])
def test_scatter_add(dtype: torch.dtype, device: str) -> None:
    x, index, source = (torch.tensor(v, device=device) for v in ([1, 2, 3], [0, 2, 2, 0], [250, 1, 1, 7]))
    x, source = x.to(dtype), source.to(dtype)
    compiled = torch.compile(torch.scatter_add, backend="helion", options={"regions": "all", "on_error": "raise"})
    assert torch.equal(compiled(x, 0, index, source), torch.scatter_add(x, 0, index, source))
