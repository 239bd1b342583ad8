"""Choosing kernels by measuring: which candidates there are, what is kept of made-up times, and the process that measures."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from helion_inductor import explain
from helion_inductor.backend import RegionPass
from helion_inductor.fx_bridge import sub_graph
from helion_inductor.ir.parser import parse_program
from helion_inductor.ir.verify_schedule import verify_schedules
from helion_inductor.pipeline import CompiledRegion
from helion_inductor.report import Report
from helion_inductor.runtime import measure
from helion_inductor.runtime.kernel_store import KernelStore
from helion_inductor.runtime.measurer import Measurer
from helion_inductor.scheduling.candidates import AXES, candidates
from helion_inductor.scheduling.device_model import H200_MODEL
from helion_inductor.scheduling.index_bounds import index_bounds
from helion_inductor.tuning import GraphVersion, Tuner, Tuning, graph_version, specifications
from tests.golden.functions import FUNCTIONS, region


def loops(x: torch.Tensor, y: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.softmax(-1), (y * 2 + 1).sin(), y[index].cos()


ARGS = torch.randn(6, 40), torch.randn(30, 7), torch.randint(0, 30, (11,))


@pytest.fixture(scope="module")
def compiled() -> CompiledRegion:
    return explain(loops, *ARGS, options={"regions": "all"}).regions[0].compiled


class Times:
    """Answers with made-up times by what a candidate changes: ``us`` of the first, and factors of it for others."""

    def __init__(self, tuner_change: Mapping[str, Any]) -> None:
        self.answers = tuner_change
        self.asked: list[str] = []

    def __call__(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        text = Path(request["module"]).read_text()
        self.asked.append(text if request["kind"] == "region" else "graph")
        for mark, answer in self.answers.items():
            if mark in self.asked[-1]:
                if isinstance(answer, BaseException):
                    raise answer
                return answer if isinstance(answer, dict) else {"us": answer}
        return {"us": 10.0}


def tuner(ask: Any, folder: Path, level: str = "quick", budget_s: float = 60.0, fixed: tuple[str, ...] = ()) -> Tuner:
    return Tuner(ask, KernelStore(folder), level, budget_s, "cpu", "nowhere", fixed, H200_MODEL)


# ---- candidates
@pytest.mark.parametrize("name", [
    "softmax", "softmax_bf16_long", "two_loops_flat", "family_of_mixed_sizes", "grouped_tiles", "decoder_layer", "encoder_layer",
])  # fmt: skip
def test_candidates_are_legal_and_different(name: str) -> None:
    program, schedules = region(name).program, region(name).schedules
    found = candidates(schedules, program)
    assert len(found) >= 6 and len({c.schedules for c in found} | {schedules}) == len(found) + 1
    for c in found:
        verify_schedules(c.schedules, program)


def test_given_options_stay() -> None:
    program, schedules = region("softmax").program, region("softmax").schedules
    assert not candidates(schedules, program, AXES)
    assert {k.num_warps for c in candidates(schedules, program, ["num_warps"]) for k in c.schedules} == {schedules[0].num_warps}
    assert {k.pid_type for c in candidates(schedules, program, ["pid_type"]) for k in c.schedules} == {"flat"}
    assert {k.tasks() for c in candidates(schedules, program, ["block_sizes"]) for k in c.schedules} == {schedules[0].tasks()}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_specifications_fit_the_region(name: str) -> None:
    """Every tensor that a region's module is called with has one."""
    known = specifications(region(name).program)
    assert {*region(name).inputs, *region(name).outputs} <= known.keys()


def test_indices_stay_below_what_they_index(compiled: CompiledRegion) -> None:
    (index,) = [s for s in specifications(compiled.program).values() if s["dtype"] == "int64"]
    assert index["below"] == 30


@pytest.mark.parametrize(
    ("index", "below"),
    [
        (lambda i: i, 30), (lambda i: i.to(torch.int32), 30), (lambda i: i + 5, 1), (lambda i: i * 2, 1),
        (lambda i: torch.where(i > 3, i + 20, i), 1), (lambda i: torch.clamp(i, 0, 5), 1),
    ],
)  # fmt: skip
def test_indices_that_are_computed_stay_inside(index: Callable[[torch.Tensor], torch.Tensor], below: int) -> None:
    """What is made up for them is a valid index wherever the region uses it."""

    def fn(y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return y[index(i)].cos()

    program = explain(fn, ARGS[1], torch.arange(11) % 5, options={"regions": "all"}).regions[0].compiled.program
    (made,) = [measure.made(s, "cpu") for s in specifications(program).values() if s["dtype"] == "int64"]
    assert int(made.max()) < below
    fn(ARGS[1], made)


def test_indices_are_followed_through_temporaries() -> None:
    program = parse_program(
        """program @p()
  in i: i64[4]
  in x: f32[9]
  temp t: i64[4]
  out y: f32[4]
  nest @a parallel(p0: 4)
    %0: i64 = load i[p0]
    %1: i64 = const 2
    %2: i64 = add(%0, %1)
    store t[p0] %2
  nest @b parallel(p0: 4)
    %0: i64 = load t[p0]
    check %0 in [0, 9)
    %1: f32 = load x[%0]
    store y[p0] %1
"""
    )
    assert index_bounds(program) == {"i": 1}


def test_counters_are_put_back_before_every_call(tmp_path: Path) -> None:
    """An index that every call counts up would soon be out of range."""
    path = tmp_path / "counting.py"
    path.write_text("def run(inputs, outputs, sizes):\n    inputs[0][outputs[0]]\n    outputs[0].add_(3)\n")
    spec = {"dtype": "int64", "shape": [2], "stride": [1], "seed": 0, "below": 1, "restore": True}
    request = {
        "kind": "region", "module": str(path), "inputs": ["x"], "outputs": ["y"], "sizes": [], "device": "cpu", "same_as": None,
        "tensors": {"x": {**spec, "dtype": "float32", "shape": [4], "restore": False}, "y": spec},
    }  # fmt: skip
    assert measure.answer(request)["us"] >= 0
    with pytest.raises(IndexError):
        measure.answer({**request, "tensors": {**request["tensors"], "y": {**spec, "restore": False}}})


def test_a_counter_is_to_be_put_back() -> None:
    def fn(step: torch.Tensor, x: torch.Tensor) -> None:
        step.add_(1)
        x.mul_(2)

    specs = specifications(explain(fn, torch.tensor([1, 2]), torch.randn(4), options={"regions": "all"}).regions[0].compiled.program)
    assert {(s["dtype"], s["restore"]) for s in specs.values()} >= {("int64", True), ("float32", False)}
    assert not any(s["restore"] for s in specs.values() if s["dtype"] == "float32")


def test_loops_that_share_a_kernel_are_tried_apart(compiled: CompiledRegion) -> None:
    joined = next(k for k in [region("two_loops_flat")] if any(len(s.tasks()) > 1 for s in k.schedules))
    (apart,) = [c for c in candidates(joined.schedules, joined.program) if "kernel of its own" in c.change]
    assert [len(s.tasks()) for s in apart.schedules] == [1] * sum(len(s.tasks()) for s in joined.schedules)


def test_tiles_of_two_dimensions_are_tried_in_other_orders() -> None:
    grouped = region("grouped_tiles")
    changes = {c.change for c in candidates(grouped.schedules, grouped.program)}
    assert "tiles in the other order" in changes and "8 rows of tiles at a time" in changes
    assert not {c for c in changes if "tiles" in c} & {c.change for c in candidates(grouped.schedules, grouped.program, AXES)}


# ---- what is kept
def test_the_fastest_is_kept_and_remembered(compiled: CompiledRegion, tmp_path: Path) -> None:
    ask = Times({"num_warps=4,": 4.0, "get_num_sm": 8.0})
    chosen, tuning = tuner(ask, tmp_path).tune(compiled, None)
    assert {s.num_warps for s in chosen.schedules} == {4} and chosen.key != compiled.key
    assert tuning.chosen is not None and tuning.chosen.us == 4.0 and not tuning.stopped
    assert tuning.trials[0].change == "as the cost model chose" and "-> " in str(tuning)
    again, remembered = tuner(Times({"": AssertionError("measured again")}), tmp_path).tune(compiled, None)
    assert again.key == chosen.key and remembered.remembered and remembered.trials == tuning.trials
    _, other = tuner(Times({}), tmp_path, "full").tune(compiled, None)
    assert not other.remembered, "another level is another search"


def test_a_little_faster_is_not_enough(compiled: CompiledRegion, tmp_path: Path) -> None:
    first = compiled.source.module.split("Launcher(")[1].split("num_warps=")[1].split(",")[0]
    ask = Times({f"num_warps={first},": 10.0, "num_warps": 9.9})
    chosen, _ = tuner(ask, tmp_path).tune(compiled, None)
    assert chosen is compiled


def test_what_fails_is_skipped(compiled: CompiledRegion, tmp_path: Path) -> None:
    ask = Times({"num_warps=4,": {"error": "OutOfResources: too much shared memory"}, "get_num_sm": 5.0})
    chosen, tuning = tuner(ask, tmp_path).tune(compiled, None)
    assert chosen.schedules[0].pid_type != "flat"
    assert any(t.us is None and "OutOfResources" in str(t) for t in tuning.trials)


def test_kernels_that_cannot_be_measured_stay(compiled: CompiledRegion, tmp_path: Path) -> None:
    ask = Times({"": {"error": "no memory"}})
    chosen, tuning = tuner(ask, tmp_path).tune(compiled, None)
    assert chosen is compiled and tuning.chosen is None and len(ask.asked) == 1
    assert KernelStore(tmp_path).get("x") is None and not list(tmp_path.iterdir())


def test_a_full_search_goes_on_from_the_best(compiled: CompiledRegion, tmp_path: Path) -> None:
    """Each of two changes helps, both together more: only the wider search finds both."""

    def faster(request: Mapping[str, Any]) -> Mapping[str, Any]:
        text = Path(request["module"]).read_text()
        return {"us": 10.0 / (1 + ("num_warps=4," in text) + ("2 * get_num_sm" in text))}

    quick, _ = tuner(faster, tmp_path).tune(compiled, None)
    full, tuning = tuner(faster, tmp_path, "full").tune(compiled, None)
    assert tuning.chosen is not None and tuning.chosen.us == pytest.approx(10 / 3)
    assert full.schedules[0].num_warps == 4 and full.schedules[0].sm_multiplier == 2
    assert quick.key != full.key


def test_the_budget_ends_the_search(compiled: CompiledRegion, tmp_path: Path) -> None:
    mine = tuner(Times({"get_num_sm": 1.0}), tmp_path)
    real = mine.ask

    def last(request: Mapping[str, Any]) -> Mapping[str, Any]:
        assert real is not None
        mine.end = 0.0
        return real(request)

    mine.ask = last
    chosen, tuning = mine.tune(compiled, None)
    assert chosen is compiled and len(tuning.trials) == 1 and "budget" in tuning.stopped
    _, later = mine.tune(compiled, None)
    assert later.remembered and later.trials == tuning.trials and "budget" in later.stopped


def test_a_search_that_was_cut_short_is_taken_up(compiled: CompiledRegion, tmp_path: Path) -> None:
    answers = iter([{"us": 10.0}, {"us": 5.0}])

    def ask(request: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return next(answers)
        except StopIteration:
            raise KeyboardInterrupt from None

    first, cut = tuner(ask, tmp_path).tune(compiled, None)
    assert cut.stopped == "interrupted" and first.key != compiled.key
    known, remembered = tuner(None, tmp_path).tune(compiled, None)
    assert known.key == first.key and remembered.remembered and remembered.stopped == "interrupted"
    asked = Times({})
    mine = tuner(asked, tmp_path)
    _, full = mine.tune(compiled, None)
    assert [t.change for t in full.trials[:2]] == ["as the cost model chose", "the best of an earlier search"]
    assert asked.asked[1] == first.source.module and not full.stopped and not full.remembered
    _, again = tuner(Times({"": AssertionError("measured again")}), tmp_path).tune(compiled, None)
    assert again.remembered and again.trials == full.trials and not again.stopped


def test_an_interruption_keeps_the_best_so_far(compiled: CompiledRegion, tmp_path: Path) -> None:
    answers = iter([{"us": 10.0}, {"us": 5.0}])

    def ask(request: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return next(answers)
        except StopIteration:
            raise KeyboardInterrupt from None

    mine = tuner(ask, tmp_path)
    chosen, tuning = mine.tune(compiled, None)
    assert tuning.stopped == "interrupted" and mine.left_s() == 0
    assert tuning.chosen is not None and tuning.chosen.us == 5.0 and chosen.key != compiled.key


# ---- the decision about a region
@pytest.mark.parametrize(("ours", "theirs", "taken"), [(5.0, 100.0, True), (100.0, 5.0, False)])
def test_measured_times_decide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ours: float, theirs: float, taken: bool) -> None:
    @contextlib.contextmanager
    def measured(self: RegionPass) -> Iterator[Tuner]:
        yield tuner(lambda request: {"us": ours if request["kind"] == "region" else theirs}, tmp_path)

    monkeypatch.setattr(RegionPass, "_tuner", measured)
    report: Report = explain(loops, *ARGS, options={"regions": "auto"})
    (found,) = report.graphs[0].regions
    assert found.taken == taken and "measured" in found.reason
    assert found.tuning is not None and found.tuning.graph is not None and "Inductor: " in str(report)


# ---- the process
def dumped(folder: Path, name: str, text: str) -> str:
    path = folder / f"{name}.py"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("level", ["quick"])
def test_the_whole_road(compiled: CompiledRegion, tmp_path: Path, level: str) -> None:
    """Candidates run in Triton's interpreter, in the process of their own; Inductor's version runs there too."""
    with Measurer(timeout_s=240) as measurer:
        asked = 0

        def some(request: Mapping[str, Any]) -> Mapping[str, Any]:
            nonlocal asked
            asked += 1
            return measurer.ask(request) if asked <= 4 else {"error": "enough"}

        version = GraphVersion(
            "import torch\ndef graph(x0, x1, x2):\n    return x0.softmax(-1), (x1 * 2 + 1).sin(), x1[x2].cos()\n",
            {n: specifications(compiled.program)[n] for n in ("x0", "x1", "x2")},
        )
        _, tuning = tuner(some, tmp_path, level).tune(compiled, version)
    assert tuning.graph is not None and tuning.graph.us is not None and tuning.graph.us > 0, tuning
    measured = [t for t in tuning.trials if t.us is not None]
    assert len(measured) == 3, str(tuning)


def test_a_region_s_graph_is_text_that_runs() -> None:
    graphs: list[GraphVersion | None] = []
    real = RegionPass.__call__

    def spy(self: RegionPass, graph: torch.fx.Graph) -> None:
        from helion_inductor.lowering.partition import partition

        graphs.extend(graph_version(sub_graph(r).module, "cpu") for r in partition(graph, self.options, {}, ["cpu"]).regions)
        real(self, graph)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RegionPass, "__call__", spy)
        explain(loops, *ARGS, options={"regions": "all"})
    (version,) = graphs
    assert version is not None
    space: dict[str, Any] = {}
    exec(version.module, space)
    results = space["graph"](*ARGS)
    torch.testing.assert_close(sorted(results, key=lambda t: t.numel()), sorted(loops(*ARGS), key=lambda t: t.numel()))


def test_wrong_results_crashes_and_endless_loops_are_answers(compiled: CompiledRegion, tmp_path: Path) -> None:
    request = {
        "kind": "region", "tensors": specifications(compiled.program), "inputs": list(compiled.inputs), "outputs": list(compiled.outputs),
        "sizes": [], "device": "cpu", "same_as": str(tmp_path / "expected.pt"),
    }  # fmt: skip
    good = {**request, "module": dumped(tmp_path, "good", compiled.source.module)}
    wrong = "def run(inputs, outputs, sizes):\n    for o in outputs:\n        o.zero_()\n"
    raising = "def run(inputs, outputs, sizes):\n    raise ValueError('cannot be launched')\n"
    crash = "import os\ndef run(inputs, outputs, sizes):\n    os._exit(3)\n"
    endless = "import time\ndef run(inputs, outputs, sizes):\n    time.sleep(600)\n"
    with Measurer(timeout_s=240) as measurer:
        assert measurer.ask(good)["us"] > 0
        assert "wrong result: output 0" in measurer.ask({**request, "module": dumped(tmp_path, "wrong", wrong)})["error"]
        assert measurer.ask({**request, "module": dumped(tmp_path, "raising", raising)}) == {"error": "ValueError: cannot be launched"}
        assert "ended with 3" in measurer.ask({**request, "module": dumped(tmp_path, "crash", crash)})["error"]
        assert "no answer within 20 s" in measurer.ask({**request, "module": dumped(tmp_path, "endless", endless)}, 20)["error"]
        assert measurer.ask(good)["us"] > 0, "another process goes on"


def test_a_process_that_ended_after_its_answer_is_replaced() -> None:
    """As one does whose device was lost; what it prints past the answers is none."""
    once = 'import sys, os; sys.stdin.readline(); print(\'{"us": 1.0}\', flush=True); os._exit(1)'
    with Measurer(command=[sys.executable, "-c", once]) as measurer:
        for _ in range(2):
            assert measurer.ask({"kind": "region"}) == {"us": 1.0}
            assert measurer._process is not None
            measurer._process.wait()


def test_a_process_that_cannot_start_is_an_answer() -> None:
    with Measurer(command=[sys.executable, "-c", "raise SystemExit(7)"]) as measurer:
        assert "ended with 7" in measurer.ask({"kind": "region"})["error"]


def test_nothing_is_measured_without_a_gpu(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    fn = torch.compile(lambda x: x.softmax(-1).sin(), backend="helion", options={"autotune": "quick", "on_error": "raise"})
    x = torch.randn(4, 9)
    torch.testing.assert_close(fn(x), x.softmax(-1).sin())


def test_a_report_of_tuning_says_when_it_was_cut_short() -> None:
    assert str(Tuning((), None, None, "interrupted")) == "measured, stopped: interrupted:"
