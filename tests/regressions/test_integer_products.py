"""Products of integers have the type of their operands and keep the low bits of the sum."""

from __future__ import annotations

import pytest
import torch

OPTIONS = {"regions": "all", "on_error": "raise"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="eager multiplies matrices of integers on CPUs only")
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_products(dtype: torch.dtype) -> None:
    def fn(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a @ b, torch.addmm(c, a[0], b[0], beta=3, alpha=2), torch.baddbmm(c, a, b, beta=0), a[0, 0] @ b[0], b[0, :, 0].dot(a[1, 0])

    end = torch.iinfo(dtype)
    a, b, c = (torch.randint(end.min // 2, end.max // 2, s).to(dtype) for s in ((2, 1, 5), (2, 5, 3), (3,)))
    actual, expected = torch.compile(fn, backend="helion", options=OPTIONS)(a, b, c), fn(a, b, c)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
