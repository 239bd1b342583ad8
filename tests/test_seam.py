"""The seam with torch.compile: in-place updates, options, counters, logs, resets, and the AOTAutograd compiler."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from functorch.compile import aot_function
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code

import helion_inductor
from helion_inductor.backend import Backend, fx_compiler, helion
from helion_inductor.errors import OptionError
from helion_inductor.report import GraphReport

ALL = {"regions": "all", "on_error": "raise", "inductor": {"force_disable_caches": True}}


@pytest.fixture(autouse=True)
def _fresh_counters() -> None:
    counters.clear()


def compiled(fn: Callable[..., Any], **more: Any) -> Callable[..., Any]:
    return torch.compile(fn, backend="helion", options=ALL | more)


def softmax_and_sum(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1) * w + x.sum(0)


def add_one(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def update(p: torch.Tensor, g: torch.Tensor) -> None:
    p.add_(g, alpha=-0.1)


def momentum(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor) -> None:
    m.mul_(0.9).add_(g)
    p.sub_(m * 0.1)


def set_rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[1:] = y
    return x.sum()


def add_to_view(x: torch.Tensor) -> torch.Tensor:
    x.view(-1)[2:5].mul_(3)
    return x.cos()


def cross(x: torch.Tensor, y: torch.Tensor) -> None:
    before = x.clone()
    x.copy_(y + 1)
    y.copy_(before * 2)


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (add_one, [(5, 7)]),
        (update, [(33,), (33,)]),
        (momentum, [(6, 8), (6, 8), (6, 8)]),
        (set_rows, [(5, 4), (4, 4)]),
        (add_to_view, [(3, 4)]),
        (cross, [(9,), (9,)]),
    ],
)
def test_what_is_updated_in_place_stays_in_place(
    fn: Callable[..., Any], shapes: list[tuple[int, ...]], device: str
) -> None:
    torch.manual_seed(0)
    arguments = [torch.randn(s, device=device) for s in shapes]
    expected = copy.deepcopy(arguments)
    addresses = [t.data_ptr() for t in arguments]
    run = compiled(fn)
    for _ in range(2):  # the second call shows whether the first left anything behind
        result, wanted = run(*arguments), fn(*expected)
        torch.testing.assert_close((result, arguments), (wanted, expected))
    assert [t.data_ptr() for t in arguments] == addresses
    assert counters["helion"]["regions"] >= 1 and not counters["helion"]["errors"]


def test_running_statistics_are_updated_in_place(device: str) -> None:
    torch.manual_seed(0)
    own = torch.nn.BatchNorm1d(6, device=device)
    reference = copy.deepcopy(own)
    address = own.running_var.data_ptr()
    run = compiled(own)
    for _ in range(2):
        x = torch.randn(10, 6, device=device)
        torch.testing.assert_close(run(x), reference(x))
    torch.testing.assert_close(own.state_dict(), reference.state_dict())
    assert own.num_batches_tracked == 2 and own.running_var.data_ptr() == address


def test_unknown_options_are_refused(device: str) -> None:
    with pytest.raises(Exception, match="unknown option 'opss', did you mean 'ops'|unknown option 'opss'") as caught:
        torch.compile(add_one, backend="helion", options={"opss": {}})(torch.ones(3, device=device))
    causes = [caught.value, caught.value.__cause__, getattr(caught.value, "inner_exception", None)]
    assert any(isinstance(c, OptionError) for c in causes)


def test_no_regions(device: str) -> None:
    graphs: list[GraphReport] = []
    x = torch.randn(4, 5, device=device)
    with helion.recording(graphs.append):
        result = compiled(softmax_and_sum, regions="none")(x, x)
    torch.testing.assert_close(result, softmax_and_sum(x, x))
    (graph,) = graphs
    assert not graph.regions and {r.code for r in graph.refusals} == {"not-opted-in"}
    assert counters["helion"]["graphs"] == 1 and not counters["helion"]["regions"] and not counters["helion"]["kernels"]


def test_recording_hears_of_forward_and_backward(device: str) -> None:
    graphs: list[GraphReport] = []
    x = torch.randn(4, 5, device=device, requires_grad=True)
    with helion.recording(graphs.append):
        result = compiled(softmax_and_sum)(x, x)
    assert len(graphs) == 1
    result.sum().backward()
    assert len(graphs) == 2
    compiled(add_one)(torch.ones(3, device=device))
    assert len(graphs) == 2
    assert counters["helion"]["graphs"] == 3
    assert counters["helion"]["kernels"] >= sum(len(r.kernels()) for g in graphs for r in g.regions)


@pytest.mark.parametrize("dynamic", [False, True])
def test_as_an_autograd_compiler(device: str, dynamic: bool) -> None:
    compiler = partial(fx_compiler, options=ALL)
    run = aot_function(softmax_and_sum, fw_compiler=compiler, bw_compiler=compiler, dynamic=dynamic)
    for rows in (4, 7) if dynamic else (4,):
        torch.manual_seed(rows)
        inputs = [torch.randn(s, device=device, requires_grad=True) for s in ((rows, 5), (5,))]
        reference = [t.detach().clone().requires_grad_() for t in inputs]
        result, expected = run(*inputs), softmax_and_sum(*reference)
        result.square().sum().backward()
        expected.square().sum().backward()
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close([t.grad for t in inputs], [t.grad for t in reference])
    assert counters["helion"]["graphs"] == 2 and counters["helion"]["regions"] == 2


def test_two_models_in_one_process(device: str) -> None:
    torch.manual_seed(0)
    one = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)).to(device)
    two = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.LayerNorm(8)).to(device)
    runs = [(m, compiled(m)) for m in (one, two)]
    for seed in range(2):
        torch.manual_seed(seed)
        x = torch.randn(6, 5, device=device)
        for model, run in runs:
            torch.testing.assert_close(run(x), model(x))
    assert counters["helion"]["graphs"] == 2 and counters["helion"]["regions"] >= 2


def test_reset_forgets_and_compiles_anew(device: str) -> None:
    x = torch.randn(4, 5, device=device)
    run = compiled(softmax_and_sum)
    run(x, x)
    helion.reset()  # a region that was dropped is found again in the store
    torch.testing.assert_close(run(x, x), softmax_and_sum(x, x))
    assert counters["helion"]["graphs"] == 1
    torch.compiler.reset()
    torch.testing.assert_close(run(x, x), softmax_and_sum(x, x))
    assert counters["helion"]["graphs"] == 2


def test_log_records(device: str, caplog: pytest.LogCaptureFixture) -> None:
    def with_matmul(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ x) + 1

    with caplog.at_level(logging.DEBUG, logger="helion_inductor"):
        compiled(with_matmul)(torch.randn(4, 4, device=device))
    own = [(r.levelname, r.getMessage()) for r in caplog.records if r.name.startswith("helion_inductor")]
    assert [text for level, text in own if level == "INFO"] == ["graph0: 3 calls, 1 regions, 1 left"]
    (left,) = [text for level, text in own if level == "DEBUG" and text.startswith("left")]
    assert left.startswith("left mm: product-rows: a product of 4 rows")
    assert not [r for r in own if r[0] in ("WARNING", "ERROR")]


def test_an_error_of_the_compiler_falls_back(
    device: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("planted")

    monkeypatch.setattr("helion_inductor.backend.plan_graph", broken)
    graphs: list[GraphReport] = []
    x = torch.randn(4, 5, device=device)
    with caplog.at_level(logging.WARNING, logger="helion_inductor"), helion.recording(graphs.append):
        result = compiled(softmax_and_sum, on_error="fallback")(x, x)
    torch.testing.assert_close(result, softmax_and_sum(x, x))
    assert "graph0 stays with Inductor: ValueError: planted" in caplog.text
    assert counters["helion"]["errors"] == 1
    assert {r.code for r in graphs[0].refusals} == {"error"} and not graphs[0].regions
    torch.compiler.reset()
    with pytest.raises(Exception, match="planted"):
        compiled(softmax_and_sum)(x, x)


def test_a_graph_whose_rewriting_fails_is_put_back(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("planted")

    monkeypatch.setattr("helion_inductor.region_pass.sort_graph", broken)
    x = torch.randn(4, 5, device=device)
    torch.testing.assert_close(compiled(softmax_and_sum, on_error="fallback")(x, x), softmax_and_sum(x, x))
    assert counters["helion"] == {"errors": 1}
    torch.compiler.reset()
    with pytest.raises(Exception, match="planted"):
        compiled(softmax_and_sum)(x, x)


def test_wrappers_call_regions_past_the_dispatcher(device: str) -> None:
    x = torch.randn(4, 5, device=device)
    _, (code,) = run_and_get_code(compiled(softmax_and_sum), x, x)
    assert "torch.ops.helion_inductor.call_region('" in code and "run_region.default(" not in code


def test_where_no_kernels_can_be_made_it_says_so_once(
    device: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helion_inductor.backend.device_kinds", frozenset)
    own = Backend()
    x = torch.randn(4, 4, device=device)
    with caplog.at_level(logging.INFO, logger="helion_inductor"):
        for fn in (lambda x: x @ x, lambda x: x @ x.T):
            torch.testing.assert_close(torch.compile(fn, backend=own, options=ALL)(x), fn(x))
    said = [r.getMessage() for r in caplog.records if r.levelname == "WARNING" and r.name.startswith("helion_inductor")]
    assert said == ["helion: no GPU and no Triton interpreter (TRITON_INTERPRET=1): graphs go to Inductor untouched"]
    assert counters["helion"] == {"graphs": 2}


def test_public_names() -> None:
    assert helion_inductor.fx_compiler is fx_compiler
    assert {"explain", "fx_compiler", "Options", "Report"} <= set(dir(helion_inductor))
    assert helion_inductor.Options(regions="all").regions == "all"
    with pytest.raises(AttributeError, match="no attribute 'helium'"):
        _ = helion_inductor.helium
