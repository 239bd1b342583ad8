"""Reductions over no elements, and reads where there are none."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

OPTIONS = {"regions": "all", "on_error": "raise"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_statistics_of_nothing(dtype: torch.dtype, device: str) -> None:
    def fn(a, b, c):
        return (*torch.var_mean(a), *torch.var_mean(b, 0, keepdim=True), *torch.var_mean(c, (0, 1), correction=0), *torch.std_mean(b, 0),
                *torch.var_mean(c, 0), a.sum(), a.prod(), c.mean(1), b.var(0), c.logsumexp(1), c.any(1), c.all(1), a.nansum())  # fmt: skip

    inputs = [torch.empty(shape, dtype=dtype, device=device) for shape in ((0,), (0, 3), (3, 0))]
    actual, expected = torch.compile(fn, backend="helion", options=OPTIONS)(*inputs), fn(*inputs)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def test_where_there_is_nothing_to_read_it_raises(device: str) -> None:
    """Whatever ``on_error`` is: the program is at fault, and eager raises too."""
    x = torch.rand(1, 2, 0, 4, device=device)
    for fn in (lambda x: F.interpolate(x, size=(3, 3), mode="nearest"), lambda x: F.interpolate(x, size=(3, 3), mode="bilinear")):
        with pytest.raises(RuntimeError):
            fn(x)
        with pytest.raises(Exception, match="reads dimension 2 of a tensor of shape .1, 2, 0, 4.: it has no elements"):
            torch.compile(fn, backend="helion", options={"regions": "all", "on_error": "fallback"})(x)


def test_nothing_read_from_nothing(device: str) -> None:
    x = torch.rand(2, 0, 4, device=device)
    index = torch.empty(0, dtype=torch.int64, device=device)
    result = torch.compile(lambda x, i: x[:, i].relu() + 1, backend="helion", options=OPTIONS)(x, index)
    assert result.shape == (2, 0, 4)
