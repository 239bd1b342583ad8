"""Products whose operands are products, of one row or column: what they are made of may be one buffer seen several times."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

OPTIONS = {"regions": "all", "on_error": "raise"}
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "chain": lambda x: (x @ x.mT) @ x,
    "attention": lambda x: torch.softmax(x @ x.mT, -1) @ x,
    "of a norm": lambda x: torch.softmax((n := F.rms_norm(x, x.shape[-1:]))[..., -1:, :] @ n.mT, -1) @ n,
    "square": lambda x: (x.mT @ x) @ (x.mT @ x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(1, 4), (2, 1), (1, 1), (3, 1, 5)])
def test_products(name: str, shape: tuple[int, ...], device: str) -> None:
    x = torch.randn(shape, device=device)
    run = torch.compile(FUNCTIONS[name], backend="helion", options=OPTIONS)
    torch.testing.assert_close(run(x), FUNCTIONS[name](x), rtol=1e-4, atol=1e-5)
