"""Deterministic mode: no additions in an order that chance decides, and no two stores to one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F

import helion_inductor

OPTIONS = {"regions": "all", "on_error": "raise"}
SCATTERS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "index_add": lambda x, i: x.new_zeros(3, 4).index_add(0, i, x),
    "scatter_add": lambda x, i: x.new_zeros(3, 4).scatter_add(0, i[:, None].expand(5, 4), x),
    "accumulate": lambda x, i: x.new_zeros(3, 4).index_put((i,), x, accumulate=True),
    "put": lambda x, i: x.new_zeros(3, 4).index_put((i,), x),
    "scatter": lambda x, i: x.new_zeros(3, 4).scatter(0, i[:, None].expand(5, 4), x),
    "gradient of a lookup": lambda x, i: F.embedding(i % 3, x).sin(),
}


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def _run(call: Callable[..., torch.Tensor], x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.clone().requires_grad_()
    result = call(x * 2, i)
    return result.detach(), torch.autograd.grad(result.square().sum(), x)[0]


@pytest.mark.parametrize("name", SCATTERS)
def test_scatters(name: str, deterministic: None, device: str) -> None:
    fn, x = SCATTERS[name], torch.randn(5, 4, device=device)
    i = torch.tensor([0, 1, 0, 2, 1], device=device)
    sources = [kernel.source for kernel in helion_inductor.explain(fn, x.clone().requires_grad_(), i, options=OPTIONS).kernels]
    assert sources and not any("atomic" in source for source in sources)
    run = torch.compile(fn, backend="helion", options=OPTIONS)
    first, second, expected = _run(run, x, i), _run(run, x, i), _run(fn, x, i)
    torch.testing.assert_close(first, expected)
    assert all(torch.equal(a, b) for a, b in zip(first, second))


def test_the_mode_is_guarded(device: str) -> None:
    """What was compiled without the mode is compiled anew under it."""
    x, i = torch.randn(5, 4, device=device), torch.tensor([0, 1, 0, 2, 1], device=device)
    run, reports = torch.compile(SCATTERS["index_add"], backend="helion", options=OPTIONS), []
    with helion_inductor.backend.helion.recording(reports.append):
        for wanted in (False, True):
            torch.use_deterministic_algorithms(wanted)
            try:
                run(x, i)
            finally:
                torch.use_deterministic_algorithms(False)
    atomic = [any("atomic" in r.compiled.source.module for r in report.regions) for report in reports]
    assert atomic == [True, False]
