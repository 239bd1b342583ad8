"""An output that is a part of a loop's buffer has memory of its own: the loop would write past its end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

OPTIONS = {"regions": "all", "on_error": "raise"}


@pytest.mark.parametrize("part", [
    lambda t: t.as_strided((2,), (1,)), lambda t: t.as_strided((3, 4), (4, 1)), lambda t: t.as_strided((2, 2), (1, 1)),
    lambda t: t.as_strided((7, 7), (7, 1)), lambda t: t.unfold(-1, 2, 1), lambda t: t.diagonal(), lambda t: t.t(),
], ids=["first", "rows", "overlapping", "whole", "windows", "diagonal", "transposed"])  # fmt: skip
@pytest.mark.parametrize("both", [True, False])
def test_parts(part: Callable[[torch.Tensor], torch.Tensor], both: bool, device: str) -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.log1p(x.abs())
        return (part(y), y.sum(0), y) if both else (part(y),)

    x = torch.randn(7, 7, device=device)
    compiled = torch.compile(fn, backend="helion", options=OPTIONS)
    for _ in range(2):
        results = compiled(x)
        torch.testing.assert_close(results, fn(x))
        assert [r.stride() for r in results] == [r.stride() for r in fn(x)]
