"""A reduced value varies over no more tile dimensions than its argument: blocks of rows do not get into what has no rows."""

from __future__ import annotations

import torch


def test_blocks_of_rows_where_there_is_one(device: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x - x.mean()

    x = torch.arange(7.0, device=device)
    options = {"regions": "all", "on_error": "raise", "block_sizes": {"x": 32}}
    torch.testing.assert_close(torch.compile(fn, backend="helion", options=options)(x), fn(x))
