"""Words that outlive a launch: who shares them, when they start at zero, and how a launch gets at them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs

from helion_inductor.errors import HelionError
from helion_inductor.runtime import launcher as launcher_module
from helion_inductor.runtime import state as state_module
from helion_inductor.runtime.launcher import Launcher
from helion_inductor.runtime.state import State, StateSpec, drop_state, state_of
from tests.fake_machine import Machine, machine_of, on_device


def _counting(x, y, state, WIDE: tl.constexpr = False):
    pass


@pytest.fixture
def allocated(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.Tensor]]:
    """What was allocated on devices, on the CPU instead."""
    made: list[torch.Tensor] = []

    class Memory(torch.Tensor):
        def record_stream(self, stream: Any) -> None: ...

    def allocate(index: int, contents: torch.Tensor) -> torch.Tensor:
        made.append(contents.clone().as_subclass(Memory))
        return made[-1]

    monkeypatch.setattr(state_module, "allocate_apart", allocate)
    monkeypatch.setattr(state_module, "_SLABS", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: None)
    yield made


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, allocated: list[torch.Tensor]) -> Machine:
    return machine_of(_counting, monkeypatch)


def test_each_stream_of_each_device_has_words_of_its_own(allocated: list[torch.Tensor]) -> None:
    state = State(3)
    places = [(0, 70), (0, 71), (1, 70)]
    addresses = [state.address(*place) for place in places]
    assert len(set(addresses)) == 3 and [m.tolist() for m in allocated] == [[0, 0, 0]] * 3
    assert [state.address(*place) for place in places] == addresses == [m.data_ptr() for m in allocated]
    assert state.tensor(0, 71) is allocated[1]
    assert State(3).address(0, 70) not in addresses


def test_captured_launches_share_words_with_nobody(allocated: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    state, other = State(33), State(1)
    eager = state.address(0, 70)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    # two captures from one stream, or two launches in one capture: both may be replayed side by side
    captured = [state.address(0, 70), state.address(0, 70), other.address(0, 70), state.tensor(0, 70).data_ptr()]
    assert len(allocated) == 2  # the words of the stream, and a slab for all that is captured
    assert [address - captured[0] for address in captured] == [0, 256, 512, 640] and eager not in captured
    drop_state()  # graphs may still be replayed
    assert state.address(0, 70) not in captured and len(allocated) == 2
    assert state.tensor(0, 70).tolist() == [0] * 33
    big = State(20000)
    assert big.tensor(0, 70).numel() == 20000 and len(allocated) == 3
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert state.address(0, 70) == allocated[-1].data_ptr()


def test_dropped_words_start_at_zero(allocated: list[torch.Tensor]) -> None:
    state = State(2)
    state.tensor(0, 70).fill_(7)
    assert state.tensor(0, 70).tolist() == [7, 7]
    drop_state()
    assert state.tensor(0, 70).tolist() == [0, 0] and len(allocated) == 2


def test_resetting_the_compiler_drops_state(allocated: list[torch.Tensor]) -> None:
    from helion_inductor.backend import helion

    state = State(1)
    state.tensor(0, 70).fill_(7)
    helion.reset()
    assert state.tensor(0, 70).tolist() == [0]


def test_a_namespace_is_shared_and_has_one_size() -> None:
    shared = state_of(StateSpec(4, namespace="test_state"))
    assert state_of(StateSpec(4, namespace="test_state")) is shared
    assert state_of(StateSpec(4)) is not state_of(StateSpec(4))
    with pytest.raises(HelionError, match="state 'test_state' has 4 words; a kernel asks for 5"):
        state_of(StateSpec(5, namespace="test_state"))
    with pytest.raises(ValueError, match=r"StateSpec.words must be positive, got 0"):
        StateSpec(0)


def test_the_first_launch_gets_a_tensor_and_later_ones_an_address(
    machine: Machine, allocated: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = Launcher(machine.kernel, state_words=2)
    x, y = on_device(8), on_device(8)
    launch((5,), x, y)
    (first,) = machine.jit_calls
    assert first["args"] == (x, y, allocated[0])
    launch((7,), y, x)
    expected = (7, 1, 1, 70, 4321, (4, 1, 0), None, None, None, y.data_ptr(), x.data_ptr(), allocated[0].data_ptr(), False)
    assert machine.made[0].calls == [expected] and len(machine.jit_calls) == 1
    launch((7,), on_device(8, index=1), on_device(8, index=1))
    assert [m.numel() for m in allocated] == [2, 2] and machine.jit_calls[1]["args"][2] is allocated[1]


@pytest.mark.parametrize(
    "options", [{"state_words": 1, "launch_cooperative_grid": True}, {"state_specs": (StateSpec(3, namespace="test_state_hot"),)}]
)
def test_the_same_launch_looks_little_up(
    machine: Machine, allocated: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    launch = Launcher(machine.kernel, fixed_dtypes=True, **options)
    x, y = on_device(8), on_device(8)
    launch((5,), x, y)
    for name in ("specialise", "state_of"):  # what follows does not come that far
        monkeypatch.setattr(launcher_module, name, None)
    monkeypatch.setattr(state_module, "allocate_apart", None)
    launch((5,), y, x)
    (state,) = allocated
    values = (y.data_ptr(), x.data_ptr(), state.data_ptr(), False)
    assert machine.made[-1].calls == [(5, 1, 1, 70, 4321, (4, 1, 0), None, None, None, *values)]


def test_other_streams_and_captures_get_other_words(
    machine: Machine, allocated: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = Launcher(machine.kernel, fixed_dtypes=True, state_words=1)
    x = on_device(8)
    stream = [70]
    monkeypatch.setattr(machine, "get_current_stream", lambda index: stream[0])
    for handle in (70, 70, 71, 70):
        stream[0] = handle
        launch((5,), x, x)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    launch((5,), x, x)
    launch((5,), x, x)
    used = [call[-2] for call in machine.made[0].calls]
    home, side, slab = (m.data_ptr() for m in allocated)
    assert used == [home, side, home, slab, slab + 128]


def test_several_states_go_in_order(machine: Machine, allocated: list[torch.Tensor]) -> None:
    machine.kernel = triton.JITFunction(_two_states)
    machine.kernel.run = machine._jit
    launch = Launcher(machine.kernel, state_specs=(StateSpec(3), StateSpec(1)), state_words=2)
    x = on_device(8)
    launch((1,), x)
    launch((1,), x)
    assert [m.numel() for m in allocated] == [3, 1, 2]
    assert machine.jit_calls[0]["args"] == (x, *allocated)
    assert machine.made[0].calls[0][9:] == (x.data_ptr(), *(m.data_ptr() for m in allocated), 64)


def _two_states(x, first, second, third, BLOCK: tl.constexpr = 64):
    pass


def test_a_kernel_without_room_for_its_state_is_an_error(machine: Machine) -> None:
    launch = Launcher(machine.kernel, state_words=1)
    x = on_device(8)
    with pytest.raises(TypeError, match="_counting has no room for its state: after 3 arguments 1 more .* x, y, state, WIDE"):
        launch((1,), x, x, x)


@triton.jit
def _ticket_kernel(out, state):
    ticket = tl.atomic_add(state, 1)
    tl.store(out + tl.program_id(0), ticket)


@pytest.mark.skipif(not knobs.runtime.interpret, reason="runs in Triton's interpreter")
def test_the_interpreter_keeps_state_between_launches() -> None:
    launch, out = Launcher(_ticket_kernel, state_words=1), torch.zeros(3, dtype=torch.int32)
    launch((3,), out)
    launch((2,), out[1:])
    assert out.tolist() == [0, 3, 4]
    drop_state()
    launch((1,), out)
    assert out.tolist() == [0, 3, 4]
    Launcher(_ticket_kernel, state_words=1)((1,), out[2:])
    assert out.tolist() == [0, 3, 0]
