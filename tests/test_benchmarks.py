"""The benchmarks' flow, in smoke mode: every row and every peer reaches the result file, compared with float64."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import decode, harness, horizontal, host_overhead, measuring, models, optimizers, plot, result_file, table, timing
from benchmarks.harness import Bench, Row, Suite
from benchmarks.peers import PEERS, USUAL, settings_for
from helion_inductor.options import Options

ROOT = Path(__file__).resolve().parents[1]
SUITES = {module.SUITE.name: module.SUITE for module in (horizontal, optimizers, models, decode, host_overhead)}
# A row of each kind: the others differ in sizes alone.
TRIED = {
    "horizontal": ("norm-8-large", "towers-26"),
    "optimizers": ("adamw-300-small",),
    "decode": ("qwen3-12l",),
    "models": ("t5-small-encoder-1x128", "resnet50-1"),
    "host_overhead": ("one-kernel", "members-2"),
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny kernels of several threads wait for one another more than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run(suite: Suite, out: Path, device: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    status = harness.main(suite, ["--device", device, "--smoke", "--in-process", "--out", str(out), *arguments])
    return status, json.loads(out.read_text())


@pytest.mark.parametrize("name", TRIED)
def test_every_peer_of_every_row_is_there_and_right(name: str, device: str, tmp_path: Path) -> None:
    if name in ("models", "decode"):
        pytest.importorskip("transformers")
    suite = SUITES[name]
    status, content = run(suite, tmp_path / "result.json", device, "--only", *TRIED[name])
    assert content["benchmark"] == name and content["smoke"] and content["surroundings"]["torch"] == torch.__version__
    assert list(content["rows"]) == [row for row in suite.rows if row in TRIED[name]]
    missing = "not run: timm is not installed"
    done = {row: found for row, found in content["rows"].items() if found["status"] != missing}
    assert len(done) >= len(TRIED[name]) - (name == "models")
    for row, found in done.items():
        assert found["status"] == "done" and tuple(found["peers"]) == suite.rows[row].peers
        for peer, facts in found["peers"].items():
            assert 0 <= facts["error_norm"] <= facts["error_limit"] < 0.01, (row, peer, facts)
            times = {n: t for n, t in facts.items() if n.endswith("_us")}
            assert times and all(0 < t["least"] <= t["median"] and t["rounds"] for n, t in times.items() if n != "to_launch_us")
            assert ("peak_mb" in facts or name == "host_overhead") and (not PEERS[peer].ours or facts["kernels"] >= 1)
    assert status == (1 if len(done) < len(content["rows"]) else 0)
    text = table.markdown(content)
    assert all(found["title"] in text for found in content["rows"].values()) and "failed" not in text


@pytest.mark.parametrize("name", SUITES)
def test_without_time_every_row_says_so(name: str, device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, content = run(SUITES[name], tmp_path / "result.json", device, "--budget", "0")
    assert status == 1 and list(content["rows"]) == list(SUITES[name].rows)
    assert all(row["status"] == "not run: the time was up" and not row["peers"] for row in content["rows"].values())
    assert f"{next(iter(SUITES[name].rows))}: not run" in capsys.readouterr().out


def test_a_command_line_measures_in_a_process_of_its_own(device: str, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    command = [sys.executable, "benchmarks/horizontal.py", "--device", device, "--smoke", "--out", str(out)]
    command += ["--only", "pointwise-64", "--peers", "eager", "helion-flat"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr[-2000:]
    row = json.loads(out.read_text())["rows"]["pointwise-64"]
    assert row["status"] == "done" and list(row["peers"]) == ["eager", "helion-flat"]


def subject(start: Callable[..., measuring.Trial]) -> measuring.Subject:
    return measuring.Subject(start, torch.float32)


def failing_suite() -> Suite:
    """A peer that fails, one that is wrong, one that is right; and a row that fails as a whole."""

    def start(peer: Any) -> measuring.Trial:
        if peer.name == "combo":
            raise RuntimeError("no such combination")
        errors = {"eager": 1e-7, "inductor": 1.0}
        return measuring.Trial(lambda: None, lambda: errors.get(peer.name, 1e-7))

    def measure(bench: Bench) -> None:
        measuring.measure(bench, subject(start))

    def broken(bench: Bench) -> None:
        bench.report("eager", {"error_norm": 0.5})
        raise ValueError("no such row")

    peers = ("eager", "inductor", "combo", "helion-all")
    return Suite("horizontal", "", {"mixed": Row("Mixed", peers, measure), "broken": Row("Broken", (), broken)})


def test_failures_are_recorded_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horizontal, "SUITE", failing_suite())
    status, content = run(failing_suite(), tmp_path / "result.json", "cpu")
    mixed, broken = content["rows"]["mixed"]["peers"], content["rows"]["broken"]
    assert status == 1 and content["rows"]["mixed"]["status"] == "done"
    assert mixed["combo"] == {"error": "RuntimeError: no such combination"} and "host_us" in mixed["helion-all"]
    assert broken["status"] == "stopped: ValueError: no such row" and broken["peers"] == {"eager": {"error_norm": 0.5}}
    found = "\n".join(result_file.problems(content))
    assert "mixed, inductor: error 1.00e+00 is over the limit" in found and "helion-all" not in found
    assert "| failed |" in table.markdown(content, ["host_us"])


def test_a_process_that_dies_costs_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = Suite("horizontal", "", {name: Row(name, ("eager",), lambda bench: None) for name in "abcd"})
    plan = harness.Plan("horizontal", tuple("abcd"), None, "cpu", True, time.monotonic() + 100, 50)
    record = harness.Record(suite, plan, tmp_path / "result.json")
    # It dies in the second row; before any row; and not at all.
    lives = iter([[("a", "begun"), ("a", "done"), ("b", "begun")], [], [("d", "begun"), ("d", "done")]])
    given: list[tuple[str, ...]] = []

    def child(plan: harness.Plan, record: harness.Record) -> list[str]:
        given.append(plan.rows)
        said = next(lives)
        for row, status in said:
            record.take({"row": row, "status": status})
        return [row for row, status in said if status == "begun"]

    monkeypatch.setattr(harness, "_one_child", child)
    harness.supervise(plan, record)
    assert given == [("a", "b", "c", "d"), ("c", "d"), ("d",)]
    found = [row["status"][:7] for row in json.loads((tmp_path / "result.json").read_text())["rows"].values()]
    assert found == ["done", "stopped", "stopped", "done"]


def test_what_torch_compile_captures_is_not_captured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With clocks that need no GPU: which peers get which times, and what a recording that fails leaves."""
    facts: dict[str, dict[str, Any]] = {}
    calls = {name: (lambda name=name: name) for name in ("eager", "inductor", "inductor-ro", "helion-all")}

    def record(call: Callable[[], str]) -> Callable[[], str]:
        if call() == "eager":
            raise RuntimeError("it synchronises")
        return lambda: f"replay of {call()}"

    monkeypatch.setattr(timing, "graph_replay", record)
    monkeypatch.setattr(timing, "cold_replay", lambda call: [float(len(call()))])
    monkeypatch.setattr(timing, "on_stream", lambda call, calls: [float(len(call()))])
    bench = Bench("cuda", True, 0.0, USUAL, Path("unused"), lambda peer, found: facts.setdefault(peer, {}).update(found))
    measuring._time(bench, measuring.Subject(lambda peer: None, torch.float32, latency=True), calls)
    assert all("wall_us" in facts[peer] for peer in calls)
    assert facts["eager"]["gpu_problem"] == "RuntimeError: it synchronises"
    assert {peer for peer, found in facts.items() if "gpu_us" in found} == {"inductor", "helion-all"}
    stream = {peer: found["stream_us"]["median"] for peer, found in facts.items() if "stream_us" in found}
    assert stream == {"inductor": len("replay of inductor"), "inductor-ro": len("inductor-ro"), "helion-all": len("replay of helion-all")}


def test_no_peer_starts_when_the_time_is_up() -> None:
    facts: dict[str, dict[str, Any]] = {}

    def start(peer: Any) -> measuring.Trial:
        return measuring.Trial(lambda: None, lambda: 0.0)

    bench = Bench("cpu", True, time.monotonic() + 1, USUAL, Path("unused"), lambda peer, found: facts.setdefault(peer, {}).update(found))
    measuring.measure(bench, subject(start))
    assert "host_us" in facts["eager"] and list(facts) == list(USUAL)
    assert all("not_run" in facts[peer] for peer in USUAL[1:])


def test_rows_of_an_earlier_run_are_kept_only_if_they_fit(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    new = {"benchmark": "models", "smoke": False, "surroundings": {"device": "A"}, "rows": {"x": {"status": "new"}}}
    assert result_file.rows_to_keep(out, new) == {}
    result_file.save(out, {**new, "rows": {"x": {"status": "old"}, "y": {"status": "old"}}})
    assert result_file.rows_to_keep(out, new) == {"y": {"status": "old"}}
    with pytest.raises(result_file.Unusable, match="its surroundings is .*'A'.*leave out --keep"):
        result_file.rows_to_keep(out, {**new, "surroundings": {"device": "B"}})
    out.write_text("{}")
    with pytest.raises(result_file.Unusable, match="not a result file"):
        result_file.load(out)


def test_times_without_a_gpu_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert harness.main(models.SUITE, ["--device", "cpu"]) == 2
    assert "--device cpu goes with --smoke" in capsys.readouterr().err


def test_settings_are_options_of_the_backend() -> None:
    for peer in PEERS.values():
        if peer.ours:
            settings = settings_for(peer, "cuda")
            Options.from_mapping(settings.get("options"), settings.get("mode"))
        assert peer.rival is None or PEERS[peer.rival].graphed == peer.graphed
        assert peer.caches_of is None or peer.caches_of in PEERS
    assert settings_for(PEERS["combo"], "cuda")["options"]["combo_kernels"] is True


def test_parameters_are_those_of_the_model() -> None:
    shapes = optimizers.vit_b_shapes()
    assert len(shapes) == 152 and sum(torch.Size(s).numel() for s in shapes) == 86_567_656
    assert len(optimizers.small_shapes(300)) == 300


def test_errors_name_what_came_before() -> None:
    try:
        try:
            raise ValueError("the cause")
        finally:
            raise RuntimeError("the end")
    except RuntimeError as error:
        assert timing.describe_error(error) == "RuntimeError: the end | after ValueError: the cause"


def example() -> dict[str, Any]:
    def facts(*rounds: float, **more: Any) -> dict[str, Any]:
        return {"wall_us": timing.figure([[t] for t in rounds]), **more}

    peers = {"eager": facts(4000), "inductor": facts(2000, 1000, 3000, compile_s=3.0), "helion-all": facts(1000, 1000, 3000)}
    rows = {"a": {"title": "A", "status": "done", "peers": peers}, "b": {"title": "B", "status": "not run: late", "peers": {}}}
    where = {"device": "some GPU", "torch": "2", "triton": "3"}
    return {"benchmark": "models", "smoke": False, "surroundings": where, "rows": rows}


def test_a_table_shows_ratios_with_their_spread() -> None:
    text = table.markdown(example())
    assert "| row | eager | inductor | helion-all |" in text and "| A | 4 | 2 | 1 (1.00; 0.50 to 1.00) |" in text
    assert "| B | not run: late |  |  |" in text


def test_a_plot_needs_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    result_file.save(tmp_path / "r.json", example())
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert plot.main([str(tmp_path / "r.json")]) == 2
    assert "plot.py needs matplotlib, which this project does not depend on" in capsys.readouterr().err


def test_bars_are_ratios_to_inductor() -> None:
    titles, series = plot.bars(example(), "wall_us", absolute=False)
    assert titles == ["A"] and series["eager"] == [(2.0, 2.0, 2.0)] and series["helion-all"] == [(0.5, 0.5, 1.5)]
    titles, series = plot.bars(example(), "wall_us", absolute=True)
    assert series["inductor"] == [(2.0, 1.0, 3.0)]


def test_plots_are_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result_file.save(tmp_path / "r.json", example())
    assert plot.main([str(tmp_path / "r.json"), "--out", str(tmp_path / "plots")]) == 0
    pictures = list((tmp_path / "plots").glob("r_*.png"))
    assert pictures and all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)


def test_the_phases_of_a_first_call_add_up() -> None:
    spent = {
        "_compile.compile_inner": [6.0, 3.0], "OutputGraph.call_user_compiler": [7.0], "compile_fx_inner": [4.0, 0.5],
        "pass.post_grad_passes.post_grad_custom_post_pass": [1.0, 0.25], "async_compile.wait": [1.5],
    }  # fmt: skip
    parts = timing.compile_parts(10.0, spent)
    assert tuple(sorted(parts)) == tuple(sorted(timing.PARTS)) and sum(parts.values()) == pytest.approx(10.0)
    assert (parts["dynamo_s"], parts["aot_s"], parts["inductor_s"], parts["regions_s"], parts["running_s"]) == (2.0, 2.5, 1.75, 1.25, 1.0)
    assert timing.compile_parts(1.0, {}) == {}, "nothing was compiled"


def test_a_first_call_is_taken_apart() -> None:
    torch.compiler.reset()
    compiled = torch.compile(lambda x: torch.sin(x) + 1, backend="helion", options={"regions": "all"})
    facts = timing.first_call(lambda: compiled(torch.randn(8)))
    assert sum(facts[part] for part in timing.PARTS) == pytest.approx(facts["compile_s"], abs=0.05)
    assert facts["regions_s"] > 0 and "regions_s" not in timing.first_call(lambda: compiled(torch.randn(8)))


def test_a_table_shows_the_phases() -> None:
    content = example()
    content["rows"]["a"]["peers"]["inductor"] |= dict.fromkeys(timing.PARTS, 1.0)
    shown = table.markdown(content)
    assert "First call by phase" in shown and "| 1.0 / 1.0 / 1.0 / 1.0 / 1.0 / 1.0 |" in shown
