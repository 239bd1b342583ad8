"""The policy for kernels of several phases: one cooperative launch, a smaller one, one launch for each phase, or none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st
from triton import knobs

from helion_inductor.errors import HelionError, LaunchRejected
from helion_inductor.runtime import capture, occupancy
from helion_inductor.runtime import state as state_module
from helion_inductor.runtime.device_barrier import grid_barrier
from helion_inductor.runtime.grid_choice import GridChoice, choose_grid, decide
from helion_inductor.runtime.launcher import Launcher
from helion_inductor.runtime.phased import PhasedLauncher
from tests.fake_machine import Compiled, Machine, machine_of, on_device


def _phased(x, y, FIRST: tl.constexpr, LAST: tl.constexpr):
    pass


def _with_state(x, y, state, FIRST: tl.constexpr, LAST: tl.constexpr):
    pass


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return machine_of(_phased, monkeypatch)


@pytest.fixture
def phased(monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(state_module, "allocate_apart", lambda index, contents: contents.clone())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: None)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    return machine_of(_with_state, monkeypatch)


@pytest.mark.parametrize(
    ("wanted", "fit", "persistent", "separable", "choice"),
    [
        (264, 264, True, True, (264, True)),
        (265, 264, True, True, (264, True)),
        (265, 264, False, True, (265, False)),
        (265, 264, True, False, (264, True)),
        (265, 264, False, False, None),
        (5, 0, True, True, (5, False)),
        (5, 0, True, False, None),
        (0, 264, False, False, (0, True)),
    ],
)
def test_the_policy(wanted: int, fit: int, persistent: bool, separable: bool, choice: tuple[int, bool] | None) -> None:
    assert decide(wanted, fit, persistent=persistent, separable=separable) == choice


@given(st.integers(0, 10**6), st.integers(0, 5000), st.booleans(), st.booleans())
def test_one_launch_never_asks_for_more_than_fits(wanted: int, fit: int, persistent: bool, separable: bool) -> None:
    choice = decide(wanted, fit, persistent=persistent, separable=separable)
    if choice is not None:
        assert choice.programs <= wanted and (choice.programs <= fit or not choice.one_launch)
        assert persistent or choice.programs == wanted


def test_a_grid_is_chosen_without_launching(machine: Machine) -> None:
    launch = Launcher(machine.kernel, launch_cooperative_grid=True, reserved_sms=2)
    args, constexprs = (on_device(8), on_device(8)), {"FIRST": 0, "LAST": 2}
    assert choose_grid(launch, 1000, args, constexprs, phases=2) == GridChoice(260, True)
    assert choose_grid(launch, 1000, args, constexprs, phases=2, persistent=False) == GridChoice(1000, False)
    assert choose_grid(launch, 1000, args, constexprs, phases=1) == GridChoice(1000, True)
    assert all(call["warmup"] for call in machine.jit_calls) and len(machine.jit_calls) == 2
    with pytest.raises(LaunchRejected) as caught:
        choose_grid(launch, 1000, args, constexprs, phases=2, persistent=False, separable=False)
    error = caught.value
    assert (error.required, error.available, error.registers, error.shared_memory, len(error.hints)) == (1000, 260, 40, 0, 3)
    assert "130 multiprocessors after reserving 2 x 2 programs of 4 warps each = 260" in str(error)


def test_a_grid_may_be_chosen_while_a_graph_is_captured(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling, loading and asking are not for the graph, and the driver would end its capture."""
    mode, seen = [0], []

    def exchange(pointer: Any) -> None:
        mode[0], pointer._obj.value = pointer._obj.value, mode[0]

    def query(function: int, threads: int, shared: int) -> int:
        seen.append(mode[0])
        return 2

    jit = machine.kernel.run
    monkeypatch.setattr(machine.kernel, "run", lambda *args, **options: (seen.append(mode[0]), jit(*args, **options))[1])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(capture, "cuda_driver", lambda: SimpleNamespace(cuThreadExchangeStreamCaptureMode=exchange))
    monkeypatch.setattr(occupancy, "_query_driver", query)
    launch = Launcher(machine.kernel, launch_cooperative_grid=True)
    assert choose_grid(launch, 1000, (on_device(8), on_device(8)), {"FIRST": 0, "LAST": 2}, phases=2) == (264, True)
    assert seen == [2, 2] and mode == [0]


def test_a_launcher_respects_what_is_reserved(machine: Machine) -> None:
    launch = Launcher(machine.kernel, launch_cooperative_grid=True, reserved_sms=2)
    launch((260,), on_device(8), on_device(8), FIRST=0, LAST=2)
    with pytest.raises(LaunchRejected, match="261 programs of _phased must be resident at once, 260 fit"):
        launch((261,), on_device(8), on_device(8), FIRST=0, LAST=2)


def _launches(machine: Machine) -> list[tuple[int, int, int, bool]]:
    """(programs, FIRST, LAST, cooperative) of each launch through the JIT."""
    made = [call for call in machine.jit_calls if not call["warmup"]]
    return [(c["grid"][0], c["FIRST"], c["LAST"], "launch_cooperative_grid" in c) for c in made]


def test_a_persistent_kernel_gets_fewer_programs_and_is_chosen_once(phased: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = PhasedLauncher(phased.kernel, 3, fixed_dtypes=True)
    x = on_device(8)
    launch((1000,), x, x)
    assert _launches(phased) == [(264, 0, 3, True)]
    monkeypatch.setattr(occupancy, "resident_programs", None)
    launch((1000,), x, x)
    assert len(_launches(phased)) == 1 and phased.made[-1].calls[-1][0] == 264
    assert phased.made[-1].calls[-1][-2:] == (0, 3)


def test_other_kernels_run_phase_by_phase_where_they_do_not_fit(phased: Machine) -> None:
    launch = PhasedLauncher(phased.kernel, 3, persistent=False)
    x = on_device(8)
    launch((1000,), x, x)
    assert _launches(phased) == [(1000, 0, 1, False), (1000, 1, 2, False), (1000, 2, 3, False)]
    launch((100,), x, x)
    assert _launches(phased)[3:] == [(100, 0, 3, True)]


def test_another_specialisation_of_which_fewer_fit_is_chosen_anew(phased: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = PhasedLauncher(phased.kernel, 2, fixed_dtypes=True)
    x = on_device(64)
    launch((1000,), x, x)
    monkeypatch.setattr(occupancy, "_query_driver", lambda function, threads, shared: 1)
    launch((1000,), x, x[1:])  # not aligned
    assert [grid for grid, *_ in _launches(phased)] == [264, 132]


def test_rocm_and_the_interpreter_run_phase_by_phase(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    args = (on_device(8), on_device(8))
    launch = Launcher(machine.kernel)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert choose_grid(launch, 1000, args, {}, phases=2) == (1000, False)
    launch.interpreted = True
    assert choose_grid(launch, 7, args, {}, phases=2) == (7, False)
    with pytest.raises(HelionError, match="_phased cannot be interpreted: its programs wait for one another"):
        choose_grid(launch, 7, args, {}, phases=2, separable=False)


def test_what_the_driver_refuses_all_the_same_is_explained(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    x = on_device(8)

    def refuse(*args: Any, **options: Any) -> None:
        raise RuntimeError("Triton Error [CUDA]: too many blocks in cooperative launch")

    def launch() -> None:
        with pytest.raises(HelionError, match=r"the driver refused the cooperative grid of _phased .*green context.*reserved_sms"):
            launcher((100,), x, x, FIRST=0, LAST=2)

    launcher = Launcher(machine.kernel, launch_cooperative_grid=True, fixed_dtypes=True)
    monkeypatch.setattr(machine.kernel, "run", lambda *a, warmup, **k: machine._jit(*a, warmup=warmup, **k) if warmup else refuse())
    launch()  # through the JIT
    monkeypatch.setattr(machine.kernel, "run", machine._jit)
    launcher((100,), x, x, FIRST=0, LAST=2)
    monkeypatch.setattr(Compiled, "run", refuse)
    launcher = Launcher(machine.kernel, launch_cooperative_grid=True, fixed_dtypes=True)
    launcher((100,), x, x, FIRST=0, LAST=2)
    launch()  # bound


@triton.jit
def _two_phases_kernel(x, y, out, n, state, FIRST: tl.constexpr, LAST: tl.constexpr):
    """y = x + 1, then out is y reversed."""
    workers = tl.num_programs(0)
    for phase in tl.static_range(FIRST, LAST):
        if phase > FIRST:
            grid_barrier(state, 0, workers)
        for i in range(tl.program_id(0), n, workers):
            if phase == 0:
                tl.store(y + i, tl.load(x + i) + 1)
            else:
                tl.store(out + i, tl.load(y + n - 1 - i))


@pytest.mark.skipif(not knobs.runtime.interpret, reason="runs in Triton's interpreter")
def test_the_interpreter_gets_the_same_result_phase_by_phase() -> None:
    x = torch.arange(10.0)
    y, out = torch.zeros(10), torch.zeros(10)
    PhasedLauncher(_two_phases_kernel, 2)((4,), x, y, out, 10)
    assert torch.equal(out, (x + 1).flip(0))
