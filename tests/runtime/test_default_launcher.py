"""What `default_launcher` puts behind a kernel's arguments: in which order, for whom, and what it says where something is missing."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs

from helion_inductor.errors import HelionError
from helion_inductor.runtime import remote, state
from helion_inductor.runtime.default_launcher import default_launcher
from helion_inductor.runtime.remote import ScratchSpec
from helion_inductor.runtime.state import StateSpec
from tests.fake_machine import Machine, machine_of, on_device


def _everything(x, n, copy, barrier, scratch0, scratch1, state0, state1, BLOCK: tl.constexpr = 64):
    pass


class _Node:
    """Symmetric memory of a node of four ranks; `set_up` counts what all ranks have to do together."""

    def __init__(self) -> None:
        self.set_up: list[str] = []
        self.pad = 4096

    def get_signal_pad_size(self) -> int:
        return self.pad

    def empty(self, size: int, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.ones(size, dtype=dtype)

    def rendezvous(self, tensor: torch.Tensor, group: str) -> SimpleNamespace:
        self.set_up.append(f"rendezvous {group}")
        pads, buffers = [[base + 1000 * rank for rank in range(4)] for base in (10**6, 2 * 10**6)]

        def barrier() -> None:
            assert not tensor.any()
            self.set_up.append("barrier")

        return SimpleNamespace(signal_pad_ptrs=pads, buffer_ptrs=buffers, barrier=barrier)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Node]:
    fake = _Node()
    groups = SimpleNamespace(_resolve_process_group=lambda name: SimpleNamespace(size=lambda: 4))
    monkeypatch.setattr(remote, "symmetric_memory", lambda: fake)
    monkeypatch.setattr(torch.distributed, "distributed_c10d", groups)
    monkeypatch.setattr(remote, "_BARRIER", {})
    monkeypatch.setattr(remote, "_SCRATCH", {})
    # Addresses and memory "on the device" stay on the CPU.
    monkeypatch.setattr(remote, "_addresses", lambda bases, offset, device: _here([base + offset for base in bases]))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: None)
    for module in (remote, state):
        monkeypatch.setattr(module, "allocate_apart", lambda index, contents: on_device(contents.numel(), dtype=contents.dtype))
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    yield fake


def _here(values: list[int]) -> torch.Tensor:
    found = on_device(len(values), dtype=torch.int64)
    found.copy_(torch.tensor(values))
    return found


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return machine_of(_everything, monkeypatch)


COMPILE = {"num_warps": 4, "num_stages": 2}


def test_the_signature() -> None:
    parameters = inspect.signature(default_launcher).parameters
    assert list(parameters)[:3] == ["triton_kernel", "grid", "args"]
    options = {name: p.default for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert options == {
        "num_warps": inspect.Parameter.empty,
        "num_stages": inspect.Parameter.empty,
        "ptx_options": None,
        "launch_cooperative_grid": False,
        "_minimum_resident_programs": 0,
        "_persistent_state_specs": (),
        "_remote_copy_signal_dst": None,
        "_remote_copy_signal_slots_per_program": 0,
        "_remote_copy_process_group_name": None,
        "_remote_copy_scratch_specs": (),
        "_remote_barrier_signal_slots_per_program": 0,
        "_remote_barrier_process_group_name": None,
    }


def _launch(machine: Machine, x: torch.Tensor, destination: torch.Tensor, grid: int = 5, **changes: Any) -> None:
    options: dict[str, Any] = {
        "_persistent_state_specs": (StateSpec(3), StateSpec(1)),
        "_remote_barrier_process_group_name": "inner",
        "_remote_barrier_signal_slots_per_program": 1,
        "_remote_copy_scratch_specs": (ScratchSpec(7), ScratchSpec(9, torch.float32)),
        "_remote_copy_signal_dst": destination,
        "_remote_copy_signal_slots_per_program": 2,
        "_remote_copy_process_group_name": "outer",
    }
    default_launcher(machine.kernel, (grid,), x, 3, **COMPILE, **{**options, **changes})


def test_appended_arguments_are_in_order(machine: Machine, node: _Node) -> None:
    x, destination = on_device(8), on_device(8)
    _launch(machine, x, destination)
    (call,) = machine.jit_calls
    given, n, copy, barrier, first, second, *states = call["args"]
    assert given is x and n == 3
    assert copy.tolist() == [10**6 + 1000 * rank + 4096 - 4 * 5 * 2 for rank in range(4)]
    assert barrier.tolist() == [2 * 10**6 + 1000 * rank for rank in range(4)]
    assert (first.numel(), first.dtype, second.numel(), second.dtype) == (7, torch.int32, 9, torch.float32)
    assert [s.numel() for s in states] == [3, 1]
    assert node.set_up == ["rendezvous outer", "rendezvous inner", "barrier"]


def test_the_second_launch_sets_nothing_up_and_is_bound(machine: Machine, node: _Node) -> None:
    x, destination = on_device(8), on_device(8)
    _launch(machine, x, destination)
    _launch(machine, x, destination)
    assert len(node.set_up) == 3 and len(machine.jit_calls) == 1
    appended = [a.data_ptr() for a in machine.jit_calls[0]["args"][2:]]
    assert machine.made[0].calls[0][9:] == (x.data_ptr(), 3, *appended, 64)


def test_a_destination_that_died_matches_nothing(machine: Machine, node: _Node) -> None:
    x, destination = on_device(8), on_device(8)
    _launch(machine, x, destination)
    del destination
    machine.jit_calls.clear()
    gc.collect()
    assert not len(remote._COPY)
    _launch(machine, x, on_device(8))
    assert node.set_up.count("rendezvous outer") == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"_remote_copy_signal_dst": None}, "_remote_copy_signal_slots_per_program=2 needs _remote_copy_signal_dst"),
        ({"_remote_copy_signal_slots_per_program": 0}, "_remote_copy_signal_dst needs _remote_copy_signal_slots_per_program"),
        ({"_remote_copy_process_group_name": None}, "_remote_copy_signal_dst needs _remote_copy_process_group_name"),
        ({"_remote_barrier_process_group_name": None}, "slots_per_program=1 needs _remote_barrier_process_group_name"),
        ({"_remote_barrier_signal_slots_per_program": 0}, "group_name needs _remote_barrier_signal_slots_per_program"),
    ],
)
def test_what_is_missing_is_named(machine: Machine, node: _Node, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(HelionError, match=words):
        _launch(machine, on_device(8), on_device(8), **changes)
    assert not machine.jit_calls


def test_a_pad_that_is_too_small_is_an_error_before_anybody_waits(machine: Machine, node: _Node) -> None:
    with pytest.raises(HelionError, match=r"500 programs x 2 signal slots take 4000 bytes .* has 4096 bytes.*set_signal_pad_size\(5024\)"):
        _launch(machine, on_device(8), on_device(8), grid=500)
    assert not node.set_up
    node.pad = 5024
    _launch(machine, on_device(8), on_device(8), grid=500)


def test_setting_up_under_capture_is_refused(machine: Machine, node: _Node, monkeypatch: pytest.MonkeyPatch) -> None:
    x, destination = on_device(8), on_device(8)
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        with pytest.raises(HelionError, match="copy signals of a destination cannot be set up.*run once before capture"):
            _launch(machine, x, destination)
        with pytest.raises(HelionError, match="barrier signals of a group cannot be set up.*run once before capture"):
            _launch(machine, x, destination, _remote_copy_signal_dst=None, _remote_copy_signal_slots_per_program=0)
    _launch(machine, x, destination)
    before = list(node.set_up)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    remote.copy_signal(destination, 5, 2, "outer")
    remote.barrier_signal(5, 1, "inner", x.device)
    assert node.set_up == before


def test_scratch_belongs_to_a_stream_or_to_a_graph(machine: Machine, node: _Node, monkeypatch: pytest.MonkeyPatch) -> None:
    device, specs = torch.device("cuda", 0), (ScratchSpec(7), ScratchSpec(7))
    first, second = remote.scratch(specs, device)
    assert first.data_ptr() != second.data_ptr()
    assert remote.scratch(specs, device)[0] is first
    monkeypatch.setattr(machine, "get_current_stream", lambda index: 99)
    assert remote.scratch(specs, device)[0] is not first
    monkeypatch.undo()
    remote.drop_scratch()
    assert not remote._SCRATCH


def test_without_a_process_group_the_error_says_what_to_call(machine: Machine) -> None:
    with pytest.raises(HelionError, match="call init_process_group first"):
        _launch(machine, on_device(8), on_device(8))


def test_an_empty_grid_sets_nothing_up(machine: Machine, node: _Node) -> None:
    _launch(machine, on_device(8), on_device(8), grid=0)
    assert not node.set_up and not machine.jit_calls


@triton.jit
def _counting_kernel(out, scratch, state):
    pid = tl.program_id(0)
    tl.store(scratch + pid, tl.atomic_add(state, 1))
    tl.store(out + pid, tl.load(scratch + pid))


@pytest.mark.skipif(not knobs.runtime.interpret, reason="runs in Triton's interpreter")
def test_scratch_and_state_in_the_interpreter() -> None:
    out = torch.zeros(4, dtype=torch.int32)
    for _ in range(2):
        options = {"_remote_copy_scratch_specs": (ScratchSpec(4),), "_persistent_state_specs": (StateSpec(1),)}
        default_launcher(_counting_kernel, (4,), out, **COMPILE, **options)
    assert out.tolist() == [4, 5, 6, 7]
