"""Extents that data decides: regions take them as arguments like other sizes, for any value, 0 and 1 included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from helion_inductor.backend import helion
from helion_inductor.report import GraphReport

PID_TYPES = ("flat", "persistent_blocked", "persistent_interleaved")


@pytest.fixture(autouse=True)
def captured() -> Iterator[None]:
    """Graphs go on where a size comes from data, instead of breaking there."""
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        torch.compiler.reset()
        yield
    torch.compiler.reset()


def after_nonzero(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    at = x.nonzero()
    return (at * 2 + 1).float().sigmoid(), torch.softmax(at.float(), -1)


def gathered(x: torch.Tensor) -> torch.Tensor:
    return x.flatten()[x.flatten().nonzero().squeeze(-1)].tanh() * 2


def selected(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x[x > 0]
    return y.exp(), y.sum(), torch.cat([y, y * 2])


def counted(n: torch.Tensor) -> torch.Tensor:
    k = n[0].item()
    torch._check(k >= 0)
    return torch.arange(k, device=n.device).float() * 2 + 1


def cut(n: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    k = n[0].item()
    torch._check(k >= 0)
    torch._check(k <= x.shape[0])
    return torch.softmax(torch.tanh(x[:k]), 0), x[:k].sum(-1), x[:k].t().contiguous() * 2


def rectangle(n: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows, columns = n[0].item(), n[1].item()
    torch._check(rows >= 0)
    torch._check(columns >= 0)
    grid = torch.zeros(rows, columns, device=n.device) + torch.arange(columns, device=n.device)
    return grid, torch.full((rows + columns,), 3.0, device=n.device) * 2


def _sparse(*hits: int) -> torch.Tensor:
    x = torch.zeros(6, 5)
    x.view(-1)[list(hits)] = torch.arange(1.0, 1 + len(hits))
    return x


def _ints(*values: int) -> torch.Tensor:
    return torch.tensor(values)


NONE, ONE, MANY = _sparse(), _sparse(7), _sparse(0, 3, 8, 9, 21, 29)
CASES: list[tuple[Callable[..., Any], list[tuple[torch.Tensor, ...]]]] = [
    (after_nonzero, [(MANY,), (NONE,), (ONE,)]),
    (gathered, [(MANY,), (NONE,), (ONE,)]),
    (selected, [(MANY,), (NONE,), (ONE,)]),
    (counted, [(_ints(7),), (_ints(0),), (_ints(1),), (_ints(3000),)]),
    (cut, [(_ints(3), MANY), (_ints(1), MANY), (_ints(6), MANY)]),
    (rectangle, [(_ints(3, 4),), (_ints(1, 0),), (_ints(0, 5),), (_ints(1, 1),), (_ints(70, 40),)]),
]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(("fn", "calls"), CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_one_region_for_all_values(fn: Callable[..., Any], calls: list[tuple[torch.Tensor, ...]], dynamic: bool | None,
                                   device: str) -> None:  # fmt: skip
    graphs: list[GraphReport] = []
    counters.clear()
    run = torch.compile(fn, backend="helion", options={"regions": "all", "on_error": "raise", "inductor": {"force_disable_caches": True}},
                        dynamic=dynamic, fullgraph=True)  # fmt: skip
    with helion.recording(graphs.append):
        for call in calls:
            arguments = [t.to(device) for t in call]
            torch.testing.assert_close(run(*arguments), fn(*arguments))
    (graph,) = graphs  # nothing is compiled again for another value
    assert graph.regions and all(r.taken for r in graph.regions) and not counters["helion"]["errors"]
    sizes = {s.name for r in graph.regions for s in r.compiled.program.sizes}
    assert any(name.startswith("u") for name in sizes), "a size of a region comes from data"
    assert not any(r.code == "compiler-error" for r in graph.refusals)


@pytest.mark.parametrize("pid_type", PID_TYPES)
def test_any_pid_type_and_numbering(pid_type: str, device: str) -> None:
    options = {"regions": "all", "on_error": "raise", "pid_type": pid_type, "l2_grouping": 2, "loop_order": ["x", "y"], "xcd_remap": True,
               "block_sizes": {"x": 2, "y": 2}, "inductor": {"force_disable_caches": True}}  # fmt: skip
    run = torch.compile(cut, backend="helion", options=options, fullgraph=True)
    for k in (3, 1, 6):
        n, x = _ints(k).to(device), MANY.to(device)
        torch.testing.assert_close(run(n, x), cut(n, x))


def test_what_depends_on_data_itself_stays_with_a_reason(device: str) -> None:
    graphs: list[GraphReport] = []
    run = torch.compile(selected, backend="helion", options={"regions": "all", "inductor": {"force_disable_caches": True}}, fullgraph=True)
    with helion.recording(graphs.append):
        run(MANY.to(device))
    (graph,) = graphs
    assert {r.node: r.code for r in graph.refusals}["index"] == "data-dependent"
