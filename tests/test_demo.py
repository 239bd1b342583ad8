"""The demo: two of its rows for real, its numbers and table, and what its command line says when it cannot run."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
import torch

import helion_inductor.__main__ as command
from helion_inductor import demo, demo_models
from helion_inductor.demo import Progress, run_demo
from helion_inductor.demo_models import SIZES, Case, cases, sample_tokens
from helion_inductor.demo_table import Difference, Row, difference, table
from helion_inductor.errors import HelionError, OptionError
from helion_inductor.report import Report

pytest.importorskip("transformers")


def small_cases(device: str, quick: bool) -> tuple[Case, ...]:
    """BertModel, and the optimizer on a model of a few parameters."""
    bert = cases(device, quick)[1]

    def step(compile: demo_models.Compile, dtype: torch.dtype) -> demo_models.Runner:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3, dtype=dtype, device=device)
        model(torch.ones(2, 4, dtype=dtype, device=device)).square().sum().backward()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        compiled = compile(optimizer.step)

        def run() -> dict[str, torch.Tensor]:
            compiled()
            return {name: p.detach() for name, p in model.named_parameters()}

        return run

    return bert, Case("SGD step", torch.float32, step)


def test_rows_agree_with_eager(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "cases", small_cases)
    stream = io.StringIO()
    assert run_demo(device, tmp_path, quick=True, stream=stream) == 0, stream.getvalue()
    text = stream.getvalue()
    assert re.search(r"BertModel, inference: graph 1 of \d+ calls gave \d+ kernels", text)
    assert text.count("agrees with eager") == 2 and "DIFFERS" not in text
    assert "left to Inductor" in text and "product-rows" in text
    assert ("eager ms" in text) == (device == "cuda")
    for name in ("bertmodel_inference", "sgd_step"):
        assert (tmp_path / name / "report.txt").exists()
        assert any((tmp_path / name).glob("*/module.py")), text


def test_a_difference_is_the_exit_status(device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = iter([2.0, 3.0, 3.0])  # eager's, then the others'

    def planted(compile: demo_models.Compile, dtype: torch.dtype) -> demo_models.Runner:
        value = next(results)
        return lambda: {"y": torch.full((3,), value)}

    monkeypatch.setattr(demo, "cases", lambda *_: (Case("planted", torch.float32, planted),))
    monkeypatch.setattr(demo, "median_ms", lambda _: 1.0)
    stream = io.StringIO()
    assert run_demo(device, tmp_path, quick=True, stream=stream) == 1
    assert "planted: DIFFERS from eager: y by 5.0e-01 of its largest element" in stream.getvalue()


def test_every_size_makes_its_models() -> None:
    for (device, quick), size in SIZES.items():
        assert size.hidden % size.heads == 0 and (size.hidden // size.heads) % 2 == 0 and size.heads % 2 == 0
        tokens = sample_tokens(size)
        assert tokens.shape == (size.rows, size.length) and int(tokens.min()) > 0 and int(tokens.max()) < 256
        if device == "cpu":
            assert [c.name.split(",")[0] for c in cases(device, quick)][:2] == ["Qwen3ForCausalLM", "BertModel"]


def test_equal_runners_start_from_equal_weights() -> None:
    case = cases("cpu", True)[2]
    one, two = (case.runner(lambda fn: fn, torch.float32)() for _ in range(2))
    assert one.keys() == two.keys() and "loss" in one and len(one) > 10
    assert all(torch.equal(one[name], two[name]) for name in one)
    precise = case.runner(lambda fn: fn, torch.float64)()
    assert difference(one, precise).relative < 1e-4


def test_difference() -> None:
    a, noise = torch.tensor([1.0, 2.0]), torch.tensor([1e-9, 0.0])
    found = difference({"a": a + 0.5, "n": noise}, {"a": a, "n": -noise})
    assert found == Difference(absolute=0.5, relative=0.25, where="a")
    assert difference({"n": noise, "a": a}, {"n": -noise, "a": a}).relative == pytest.approx(1e-6, rel=1e-3)
    infinite, nan = torch.tensor([float("inf"), 1.0]), torch.tensor([float("nan"), 1.0])
    assert difference({"a": infinite}, {"a": infinite}).absolute == 0
    assert difference({"a": infinite}, {"a": a}).relative == float("inf")
    assert difference({"a": nan}, {"a": a}).relative == float("inf")
    assert difference({"a": a[:0]}, {"a": a[:0]}).relative == 0
    with pytest.raises(ValueError, match=r"names differ: \['b'\]"):
        difference({"a": a, "b": a}, {"a": a})


def test_table(tmp_path: Path) -> None:
    rows = [
        Row("one", Report(), Difference(1e-7, 2e-7, "y"), 1e-4, {"eager": 1.5, "helion": 0.25}, tmp_path),
        Row("another", Report(), Difference(1.0, 0.5, "y"), 1e-4, {}, tmp_path),
    ]
    lines = table(rows).splitlines()
    assert lines[0].split()[-4:] == ["eager", "ms", "helion", "ms"] and lines[2].split()[-2:] == ["1.500", "0.250"]
    assert lines[3].split()[-2:] == ["-", "-"]
    assert len({len(line) for line in lines[:4]}) == 1
    assert (
        "one: agrees with eager" in lines
        and "another: DIFFERS from eager: y by 5.0e-01 of its largest element" in lines
    )


def test_progress_writes_over_one_line_on_a_terminal_only() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, newlines in ((Terminal(), 0), (io.StringIO(), 2)):
        progress = Progress(stream)
        progress.say("one")
        progress.say("two")
        progress.close()
        assert stream.getvalue().count("\n") == newlines and "two" in stream.getvalue()


def test_transformers_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(HelionError, match=r"pip install 'helion_inductor\[models\]'"):
        cases("cpu", True)


def test_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(["--help"])
    assert stopped.value.code == 0 and "--device {auto,cpu,cuda}" in capsys.readouterr().out
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command.main(["--device", "cuda"]) == 2
    assert "there is no CUDA device" in capsys.readouterr().err
    with pytest.raises(OptionError, match="triton has been imported already"):
        command._device("auto")
    monkeypatch.setattr(demo, "cpp_compiler", lambda: None)
    with pytest.raises(HelionError, match="the demo needs a C[+][+] compiler"):
        run_demo("cpu", Path("unused"), quick=True)
