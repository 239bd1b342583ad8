"""``explain``: the whole report, without a GPU, without the interpreter, and without a trace left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

import helion_inductor
from helion_inductor import Report, explain
from helion_inductor.errors import OptionError

ALL = {"regions": "all", "on_error": "raise"}


def softmax_and_sum(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1) * w + x.sum(0)


def names(report: Report) -> list[str]:
    return [g.name for g in report.graphs]


def test_forward_and_backward_are_reported() -> None:
    x, w = torch.randn(64, 128), torch.randn(128, requires_grad=True)
    report = explain(softmax_and_sum, x, w, options=ALL)
    assert names(report) == ["0 forward", "0 backward"]
    assert len(report.regions) == 2 and all(r.taken for r in report.regions)
    assert {d.code for d in report.refusals} <= {"not-a-tensor"}
    assert w.grad is None
    text = str(report)
    for kernel in report.kernels:
        assert kernel.name in text and f"def {kernel.name}(" in kernel.source
        assert "tile(" in str(kernel.schedule)


def test_gradients_off_means_inference() -> None:
    with torch.no_grad():
        report = explain(softmax_and_sum, torch.randn(4, 8), torch.randn(8, requires_grad=True), options=ALL)
    assert names(report) == ["0 inference"]


def test_tensors_on_the_cpu_are_scheduled_as_for_a_gpu() -> None:
    """Many programs of a GPU's size, not the few large ones that suit the interpreter."""
    (kernel,) = explain(torch.relu, torch.randn(1 << 20), options=ALL).kernels
    (task,) = kernel.schedule.tasks()
    assert task.dims[0].block <= 1024


def test_what_does_not_pay_is_refused_with_its_reason() -> None:
    report = explain(lambda x: x + 1, torch.randn(8))
    assert not report.regions and not report.kernels
    assert {r.code for r in report.refusals} == {"does-not-pay"} and report.graphs[0].regions[0].reason


def test_resources_and_saving(tmp_path: Path) -> None:
    report = explain(softmax_and_sum, torch.randn(64, 128), torch.randn(128), options=ALL)
    used = report.kernels[0].resources("sm_90")
    assert used.target == "sm_90" and used.registers > 0 and used.spill_stores == 0
    folder = report.save(tmp_path / "report")
    assert (folder / "report.txt").read_text() == f"{report}\n"
    (region,) = [p for p in folder.iterdir() if p.is_dir()]
    assert (region / "module.py").read_text() == report.kernels[0].source
    assert any("lower" in p.name for p in region.iterdir()) and report.decisions is not None


def test_nothing_is_changed() -> None:
    """Arguments, buffers, parameters, random state; and views of one storage are that while the function runs."""
    model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.5))
    seen: list[bool] = []

    def fn(x: torch.Tensor, row: torch.Tensor, by_key: dict[str, torch.Tensor]) -> torch.Tensor:
        row.add_(1)
        by_key["y"].mul_(2)
        torch._dynamo.graph_break()
        seen.append(bool(x[0].eq(row).all()))
        x[1:].zero_()
        return model(x)

    x, y = torch.randn(5, 6), torch.randn(3)
    before = [t.clone() for t in (x, y, *model.state_dict().values())]
    random = torch.get_rng_state()
    report = explain(fn, x, x[0], {"y": y}, options=ALL)
    torch.testing.assert_close([x, y, *model.state_dict().values()], before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), random)
    assert seen == [True] and all(p.grad is None for p in model.parameters())
    assert len({name.split()[0] for name in names(report)}) >= 2


def test_it_is_put_right_when_the_function_raises() -> None:
    def fn(x: torch.Tensor) -> None:
        x.add_(1)
        torch._dynamo.graph_break()
        raise KeyError("planted")

    x = torch.zeros(3)
    with pytest.raises(KeyError, match="planted"):
        explain(fn, x)
    assert not x.any()


def test_each_call_starts_afresh() -> None:
    """No graph is found from before, no size has become dynamic, no limit is met, and nothing is compiled for later."""
    for rows in range(3, 14):
        report = explain(softmax_and_sum, torch.randn(rows, 8), torch.randn(8), options={"regions": "none"})
        assert names(report) == ["0 inference"]
    report = explain(softmax_and_sum, torch.randn(9, 8), torch.randn(8), options=ALL)
    assert not report.regions[0].compiled.program.sizes
    calls: list[int] = []

    def backend(gm: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        calls.append(1)
        return gm

    torch.compile(softmax_and_sum, backend=backend)(torch.randn(9, 8), torch.randn(8))
    assert calls == [1]


def test_more_than_the_recompile_limit_with_graph_breaks() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    for _ in range(10):
        assert len(explain(fn, torch.randn(4), options={"regions": "none"}).graphs) == 2


def test_counters_stay_as_they_are() -> None:
    counters.clear()
    explain(softmax_and_sum, torch.randn(4, 8), torch.randn(8), options=ALL)
    assert not counters["helion"]


def test_keywords_go_to_the_function_and_options_are_checked() -> None:
    report = explain(softmax_and_sum, torch.randn(4, 8), w=torch.randn(8), options=ALL)
    assert len(report.graphs) == 1
    with pytest.raises(OptionError, match="regoins"):
        explain(softmax_and_sum, torch.randn(4, 8), torch.randn(8), options={"regoins": "all"})


def test_without_the_interpreter(tmp_path: Path) -> None:
    code = """
import torch, helion_inductor, helion_inductor.doctor
report = helion_inductor.explain(lambda x: torch.softmax(x, -1), torch.randn(4, 8), options={"regions": "all"})
import triton
print(len(report.kernels), triton.knobs.runtime.interpret)
"""
    command = ["/usr/bin/env", "-u", "TRITON_INTERPRET", sys.executable, "-c", code]
    run = subprocess.run(command, cwd=Path(helion_inductor.__file__).parents[1], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["1", "False"]
