"""What turns over at the last bit sees halves as they would be in memory, also where the loops around it are one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

OPTIONS = {"regions": "all", "on_error": "raise"}
HALVES = [torch.float16, torch.bfloat16]

FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "equal to what was cast": lambda x, y: (x * y == (x.float() * y.float()).to(x.dtype), x + y != (x.double() + y).to(x.dtype)),
    "greatest": lambda x, y: ((x * y).argmax(), (x * y).argmin(), (x + y).max(0).indices, (x * y).cummax(0).indices),
    "equal to the greatest": lambda x, y: ((x * y == (x * y).amax()).sum(), x * y),
    "to whole numbers": lambda x, y: (torch.floor(x * y * 8), (x * y * 8).to(torch.int32), torch.round(x * 3), (x + y) // 0.5),
    "remainder": lambda x, y: ((x * y) % 0.25, torch.fmod(x * y, 0.25), torch.trunc(x * y * 8), torch.ceil(x * y * 8)),
    "threshold": lambda x, y: (torch.where(x * y > 0.5, x, y), x * y >= 1, (x * y) != 0, (x * y).bool()),
    "overflow": lambda x, y: (torch.isinf(x * 300 * (y * 300)), x * 300 * (y * 300) < torch.inf),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_eager(name: str, dtype: torch.dtype, device: str) -> None:
    x, y = (torch.randn(2000, generator=torch.Generator().manual_seed(k)).mul(0.75).to(device, dtype) for k in (0, 1))
    x[:20], y[:20] = 1e-5, -2e-5  # their product is no half
    actual, expected = torch.compile(FUNCTIONS[name], backend="helion", options=OPTIONS)(x, y), FUNCTIONS[name](x, y)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
