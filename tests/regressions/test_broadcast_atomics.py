"""What every element of a row adds to one place is added as often as there are elements, also where it is one value."""

from __future__ import annotations

import torch


def test_one_value_for_a_row(device: str) -> None:
    def fn(target: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return target.index_put((index[:, None].expand(3, 5),), values[:, None].expand(3, 5), accumulate=True)

    arguments = [torch.zeros(4), torch.tensor([1, 3, 1]), torch.tensor([2.0, 4.0, 8.0])]
    arguments = [t.to(device) for t in arguments]
    compiled = torch.compile(fn, backend="helion", options={"regions": "all", "on_error": "raise"})
    torch.testing.assert_close(compiled(*arguments), fn(*arguments))
