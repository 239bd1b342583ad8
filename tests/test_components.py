"""Regions in pieces: equal ones compile once, all of them run, and what they share does not hold them together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

import helion_inductor
from helion_inductor import pipeline
from helion_inductor.lowering.components import Component


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[Component]:
    """The pieces that were lowered, one of each kind."""
    seen: list[Component] = []
    real = pipeline.lower_component

    def spy(name: str, component: Component, *args: Any) -> Any:
        seen.append(component)
        return real(name, component, *args)

    monkeypatch.setattr(pipeline, "lower_component", spy)
    return seen


def _agrees(fn: Callable[..., Any], *args: Any, **settings: Any) -> None:
    options = {"regions": "all", "on_error": "raise", "inductor": {"force_disable_caches": True}}
    result = torch.compile(fn, backend="helion", options=options, **settings)(*args)
    torch.testing.assert_close(result, fn(*args))


def test_equal_pieces_are_lowered_once(device: str, lowered: list[Component]) -> None:
    xs = [torch.randn(5 + k % 2, 7, device=device) for k in range(8)]
    _agrees(lambda xs: [(x.sin() + x.sum(1, keepdim=True)).softmax(-1) for x in xs], xs)
    assert len(lowered) == 2


SHAPES = ((5, 7), (3,), (2, 4, 3), (5, 7), (1,), (35,), (2, 1, 6))


def _scaled(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sin().add_(torch.full_like(x, 0.5))


def _with_sizes(x: torch.Tensor) -> torch.Tensor:
    return x.sin() / x.numel()


def _ramp(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + torch.arange(x.numel(), device=x.device).view(x.shape)


def _turned(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + x.flip(0)


def _with_first(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * x.flatten()[0]


@pytest.mark.parametrize(("fn", "times"), [(_scaled, 2), (_with_sizes, 5), (_ramp, 6), (_turned, 6)])
def test_what_is_done_to_every_element_is_lowered_once_for_all_shapes(
    device: str, lowered: list[Component], fn: Callable[[torch.Tensor], torch.Tensor], times: int
) -> None:
    """And once for single elements; what knows of sizes or places is lowered for each shape."""
    _agrees(lambda xs: [fn(x) for x in xs], [torch.randn(shape, device=device) for shape in SHAPES])
    assert len(lowered) == times


@pytest.mark.parametrize("fn", [_with_first, lambda x: x + x.mean(), lambda x: x.t().sin() + x.t() if x.dim() == 2 else x.cos()])
def test_other_shapes_give_right_results(device: str, fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    _agrees(lambda xs: [fn(x) for x in xs], [torch.randn(shape, device=device) for shape in (*SHAPES, (4, 4), (6, 6))])


def test_an_optimizer_is_lowered_once_for_all_shapes(device: str, lowered: list[Component]) -> None:
    shapes = [(4 + k, 3) for k in range(6)] + [(5,), (2, 3, 4)]
    params, theirs = ([torch.nn.Parameter(torch.full(s, 0.5, device=device)) for s in shapes] for _ in range(2))
    ours, reference = (torch.optim.AdamW(ps, lr=0.1, foreach=True, capturable=device == "cuda") for ps in (params, theirs))
    step = torch.compile(lambda: ours.step(), backend="helion", options={"regions": "all", "on_error": "raise"})
    torch.manual_seed(0)
    for _ in range(3):
        for p, q in zip(params, theirs, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        step()
        reference.step()
    torch.testing.assert_close(params, theirs)
    assert len(lowered) <= 2, "the first step makes its state, and may be a graph of its own"


def test_a_foreach_op_is_as_many_pieces_as_tensors(device: str, lowered: list[Component]) -> None:
    xs, ys = ([torch.randn(3 + k % 3, device=device) for k in range(9)] for _ in range(2))
    _agrees(lambda xs, ys: torch._foreach_addcmul(xs, ys, torch._foreach_exp(ys), 0.5), xs, ys)
    assert len(lowered) == 1
    _agrees(lambda xs: torch._foreach_mul(xs, [1.0 + k for k in range(9)]), xs)


def test_a_tensor_read_by_two_holds_them_together_and_a_number_does_not(device: str, lowered: list[Component]) -> None:
    x, y, scale = torch.randn(6, 5, device=device), torch.randn(6, 5, device=device), torch.tensor(2.0, device=device)
    _agrees(lambda x: (x.sum(), x.amax(1)), x)
    assert len(lowered) == 1
    lowered.clear()
    _agrees(lambda x, y, s: (x * (s + 1), (y * (s + 1)).sum()), x, y, scale)
    assert len(lowered) == 2


def test_what_is_refused_in_one_piece_is_refused_in_its_likes(device: str, lowered: list[Component]) -> None:
    xs = [torch.randn(9000, device=device) for _ in range(4)]

    def fn(xs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [(x * 2).cumsum(0) + 1 for x in xs]

    report = helion_inductor.explain(fn, xs, options={"regions": "all"})
    assert sum(r.code == "scan-length" for r in report.refusals) == 4
    tries = sum(any("cumsum" in n.name for n in c.graph.nodes) for c in lowered)
    assert tries == 1
    _agrees(fn, xs)


def test_sizes_of_several_pieces_keep_apart(device: str) -> None:
    def fn(xs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [torch.nn.functional.max_pool1d(x, 3, 2, 1).relu() + 1 for x in xs]

    options = {"regions": "all", "on_error": "raise"}
    compiled = torch.compile(fn, backend="helion", options=options, dynamic=True)
    for shift in (0, 5):
        xs = [torch.randn(2, 3, 11 + shift, device=device), torch.randn(2, 4, 19 + 2 * shift, device=device)]
        for got, wanted in zip(compiled(xs), fn(xs), strict=True):
            torch.testing.assert_close(got, wanted)
    assert counters["helion"]["regions"] and not counters["helion"]["errors"]


def test_an_input_that_later_loops_read_is_overwritten_by_the_last(device: str) -> None:
    """The counter is read by the other loop, and still updated without a copy of it."""

    def fn(x: torch.Tensor, step: torch.Tensor) -> None:
        step.add_(1)
        x.mul_(step)

    x, step = torch.randn(40, device=device), torch.tensor(3.0, device=device)
    expected = x * 4
    report = helion_inductor.explain(fn, x.clone(), step.clone(), options={"regions": "all"})
    (graph,) = report.graphs
    assert [d.granted for d in graph.regions[0].compiled.in_place] == [True, True]
    assert not report.refusals
    torch.compile(fn, backend="helion", options={"regions": "all", "on_error": "raise"})(x, step)
    torch.testing.assert_close(x, expected)
    assert step.item() == 4


def read_directly(x: torch.Tensor) -> torch.Tensor:
    u = x * 2
    x.add_(u.sum() + 1)
    return u.relu()


def read_through_another(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    u = x * 2
    w = u * 3
    x.add_(w.sum() + 1)
    return u.relu(), (u * 5).relu(), w


def read_and_kept(x: torch.Tensor) -> torch.Tensor:
    u = (x * 2).relu()
    x.add_((u * 3).sum())
    return u * 7


def read_by_a_product(x: torch.Tensor) -> torch.Tensor:
    y = x @ x.t()
    x.mul_(y.sum() + 1)
    return y.relu()


@pytest.mark.parametrize("fn", [read_directly, read_through_another, read_and_kept, read_by_a_product])
def test_an_input_that_others_read_before_the_region_keeps_its_value_for_them(device: str, fn: Callable[..., Any]) -> None:
    """Multiplications and relu stay with Inductor, which computes them when somebody asks: after the region, as it may be."""
    x = torch.randn(12, 12, device=device)
    ours, theirs = x.clone(), x.clone()
    address = ours.data_ptr()
    options = {"regions": "all", "on_error": "raise", "ops": {"aten.mul": False, "aten.relu": False}}
    result = torch.compile(fn, backend="helion", options=options)(ours)
    torch.testing.assert_close(result, fn(theirs))
    torch.testing.assert_close(ours, theirs)
    assert ours.data_ptr() == address and counters["helion"]["regions"]
