"""Which launches share a compiled kernel, and how later launches reach it: no GPU, a stand-in for compiled kernels."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st
from triton import knobs
from triton._C.libtriton import native_specialize_impl
from triton.backends.compiler import BaseBackend
from triton.runtime.driver import driver
from triton.runtime.errors import OutOfResources

from helion_inductor.errors import HelionError, LaunchRejected
from helion_inductor.runtime import capture, occupancy
from helion_inductor.runtime import launcher as launcher_module
from helion_inductor.runtime.launcher import Launcher, _specialise, default_launcher


def _plain(x, n, scale, WIDE: tl.constexpr, BLOCK: tl.constexpr = 64):
    pass


_INTS = st.one_of(
    st.sampled_from([0, 1, 15, 16, -16, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 16]),
    st.integers(-(2**63), 2**64 - 1),
)
_DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool, torch.float64]


def _view(dtype: torch.dtype, offset: int) -> torch.Tensor:
    return torch.zeros(256, dtype=dtype)[offset:]


_ARGUMENTS = st.one_of(
    st.builds(_view, st.sampled_from(_DTYPES), st.integers(0, 40)), _INTS, st.booleans(), st.floats(), st.none()
)


def _triton_says(args: list[Any]) -> tuple[Any, ...]:
    return tuple(native_specialize_impl(BaseBackend, value, False, True, True) for value in args)


@given(st.lists(_ARGUMENTS, min_size=3, max_size=3), st.lists(_ARGUMENTS, min_size=3, max_size=3))
def test_launches_that_share_a_key_share_tritons_specialisation(first: list[Any], second: list[Any]) -> None:
    launch = Launcher(triton.JITFunction(_plain))
    keys = []
    for args in (first, second):
        launch_key, _, values = _specialise(launch, args, {"WIDE": False})
        assert launch_key is not None or not any(isinstance(value, torch.Tensor) for value in args)
        assert [repr(v.data_ptr() if isinstance(v, torch.Tensor) else v) for v in args] == [repr(v) for v in values]
        keys.append(launch_key)
    if keys[0] is not None and keys[0] == keys[1]:
        assert _triton_says(first) == _triton_says(second)


@given(_INTS, _INTS)
def test_ints_share_a_class_exactly_when_triton_says_so(first: int, second: int) -> None:
    same = launcher_module._int_class(first) == launcher_module._int_class(second)
    assert same == (_triton_says([first]) == _triton_says([second]))


@pytest.mark.parametrize(
    ("one", "other"),
    [(True, 1), (1, 1.0), (0.0, -0.0), (False, None), ("1", 1), (tl.float32, tl.float16), (64, 128)],
)
def test_constexprs_of_other_values_or_types_are_other_kernels(one: object, other: object) -> None:
    launch = Launcher(triton.JITFunction(_plain))
    args = (torch.zeros(4), 3, 1.0)
    assert _specialise(launch, args, {"WIDE": one})[0] != _specialise(launch, args, {"WIDE": other})[0]
    # the same by position, behind the run-time parameters
    assert _specialise(launch, (*args, one), {})[0] != _specialise(launch, (*args, other), {})[0]


def test_the_same_constexpr_is_the_same_kernel() -> None:
    launch = Launcher(triton.JITFunction(_plain))
    args = (torch.zeros(4), 3, 1.0)
    for value in (math.nan, 0.5, tl.float32, "name", None, True):
        assert _specialise(launch, args, {"WIDE": value})[0] == _specialise(launch, args, {"WIDE": value})[0]


def test_what_only_triton_can_specialise_has_no_key() -> None:
    launch = Launcher(triton.JITFunction(_plain))
    assert _specialise(launch, (torch.zeros(4), (1, 2), 1.0), {"WIDE": True})[0] is None
    assert _specialise(launch, (torch.zeros(4), 1, 1.0), {"WIDE": (1, 2)})[0] is None


class _OnDevice(torch.Tensor):
    """A CPU tensor that says it is on a CUDA device."""

    device_index = 0

    def get_device(self) -> int:
        return self.device_index


def _tensor(*sizes: int, index: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    kind = type(f"_OnDevice{index}", (_OnDevice,), {"device_index": index})
    return torch.zeros(*sizes, dtype=dtype).as_subclass(kind)


class _Compiled:
    """Stands in for a compiled kernel and records how it is run."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.function, self.packed_metadata, self.n_regs = 4321, (4, 1, 0), 40
        self.metadata = SimpleNamespace(num_warps=4, shared=0, target=SimpleNamespace(warp_size=32))

    def run(self, *args: Any) -> None:
        self.calls.append(args)


class _Machine:
    """A kernel whose JIT makes `_Compiled`s, and a machine of two devices to launch it on."""

    def __init__(self) -> None:
        self.kernel: Any = triton.JITFunction(_plain)
        self.kernel.run = self._jit
        self.jit_calls: list[dict[str, Any]] = []
        self.made: list[_Compiled] = []
        self.current = 0

    def _jit(self, *args: Any, grid: tuple[int, ...], warmup: bool, **options: Any) -> _Compiled:
        self.jit_calls.append({"args": args, "grid": grid, "warmup": warmup, "device": self.current, **options})
        if warmup or not (self.jit_calls[:-1] and self.jit_calls[-2]["warmup"]):
            self.made.append(_Compiled())
        return self.made[-1]

    def get_current_device(self) -> int:
        return self.current

    def get_current_stream(self, index: int) -> int:
        return 70 + index


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> _Machine:
    fake = _Machine()

    class Guard:
        def __init__(self, device: int | torch.device) -> None:
            self.index = device.index if isinstance(device, torch.device) else device

        def __enter__(self) -> None:
            self.before, fake.current = fake.current, self.index

        def __exit__(self, *exception: object) -> None:
            fake.current = self.before

    monkeypatch.setattr(driver, "_active", fake)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "device", Guard)
    monkeypatch.setattr(occupancy, "_query_driver", lambda function, threads, shared: 2)
    monkeypatch.setattr(occupancy, "get_num_sm", lambda device, *, reserved_sms=0: 132)
    return fake


def test_the_first_launch_compiles_and_the_second_is_bound(machine: _Machine) -> None:
    launch = Launcher(machine.kernel, num_warps=8, num_stages=3, maxnreg=96)
    x, y = _tensor(8), _tensor(8)
    launch((5,), x, 100, 0.5, WIDE=True)
    (first,) = machine.jit_calls
    assert first["args"] == (x, 100, 0.5) and first["grid"] == (5, 1, 1) and not first["warmup"]
    assert {k: first[k] for k in ("num_warps", "num_stages", "maxnreg", "WIDE")} == dict(
        num_warps=8, num_stages=3, maxnreg=96, WIDE=True
    )
    launch((7, 2), y, 50, 0.25, WIDE=True)
    assert len(machine.jit_calls) == 1
    # grid, stream, function, metadata, no hooks, then every parameter: addresses, values, constexprs, defaults
    assert machine.made[0].calls == [(7, 2, 1, 70, 4321, (4, 1, 0), None, None, None, y.data_ptr(), 50, 0.25, True, 64)]


def _tensors(x, y, WIDE: tl.constexpr = False):
    pass


def test_with_fixed_dtypes_the_same_launch_checks_little(machine: _Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.kernel = triton.JITFunction(_tensors)
    machine.kernel.run = machine._jit
    launch = Launcher(machine.kernel, fixed_dtypes=True)
    x, y, odd = _tensor(8), _tensor(64), _tensor(64)[1:]
    launch((5,), x, y)
    monkeypatch.setattr(launcher_module, "_specialise", None)  # what follows does not come that far
    launch((5,), y, x)
    assert machine.made[0].calls == [(5, 1, 1, 70, 4321, (4, 1, 0), None, None, None, y.data_ptr(), x.data_ptr(), False)]
    with pytest.raises(TypeError, match="NoneType"):
        launch((6,), x, y)
    with pytest.raises(TypeError, match="NoneType"):
        launch((5,), x, odd)
    with pytest.raises(TypeError, match="NoneType"):
        launch((5,), x, y, WIDE=True)
    machine.current = 1
    with pytest.raises(TypeError, match="NoneType"):
        launch((5,), x, y)


def test_a_launch_that_starts_unaligned_is_right_when_aligned(machine: _Machine) -> None:
    machine.kernel = triton.JITFunction(_tensors)
    machine.kernel.run = machine._jit
    launch = Launcher(machine.kernel, fixed_dtypes=True)
    x, odd = _tensor(64), _tensor(64)[1:]
    for tensors in ((x, odd), (x, x), (x, odd), (odd, x)):
        launch((5,), *tensors)
    assert len(machine.jit_calls) == 3 and [len(c.calls) for c in machine.made] == [1, 0, 0]


def test_another_specialisation_compiles_again(machine: _Machine) -> None:
    launch = Launcher(machine.kernel)
    x = _tensor(64)
    for count, (tensor, n, options) in enumerate(
        [
            (x, 100, {}),
            (x[1:], 100, {}),  # not 16-byte aligned
            (x, 96, {}),  # a multiple of 16
            (x, 1, {}),
            (x, 2**31, {}),
            (x.to(torch.float16), 100, {}),
            (x, 100, {"BLOCK": 128}),
        ],
        start=1,
    ):
        launch((1,), tensor, n, 0.5, WIDE=True, **options)
        assert len(machine.jit_calls) == count
    launch((1,), x[2:], 99, 0.5, WIDE=True)
    launch((1,), x, 2**33, 0.5, WIDE=True)
    launch((1,), x, 30, 0.5, BLOCK=128, WIDE=True)  # the order of names makes another key, never another result
    assert len(machine.jit_calls) == 8
    assert [len(compiled.calls) for compiled in machine.made] == [0, 1, 0, 0, 1, 0, 0, 0]


def test_launches_go_to_the_device_of_the_tensors(machine: _Machine) -> None:
    launch = Launcher(machine.kernel)
    on_one = _tensor(8, index=1)
    launch((1,), _tensor(8), 3, 0.5, WIDE=True)
    launch((1,), on_one, 3, 0.5, WIDE=True)
    assert [call["device"] for call in machine.jit_calls] == [0, 1]
    launch((1,), on_one, 3, 0.5, WIDE=True)
    assert len(machine.jit_calls) == 2 and machine.made[1].calls[0][3] == 71  # the stream of device 1
    assert machine.current == 0


def test_tensors_of_several_devices_are_refused(machine: _Machine) -> None:
    with pytest.raises(
        HelionError, match="_plain got tensors on different devices: argument 0 on cpu, argument 2 on cpu"
    ):
        Launcher(machine.kernel)((1,), _tensor(8), 3, _tensor(8, index=1), WIDE=True)


def test_too_many_arguments_are_refused(machine: _Machine) -> None:
    with pytest.raises(TypeError, match="_plain takes 5 arguments, got 6"):
        Launcher(machine.kernel)((1,), _tensor(8), 3, 0.5, True, 64, 1)


def test_an_unknown_argument_is_named(machine: _Machine) -> None:
    with pytest.raises(TypeError, match="_plain has no parameter SIZE; it has x, n, scale, WIDE, BLOCK"):
        Launcher(machine.kernel)((1,), _tensor(8), 3, 0.5, WIDE=True, SIZE=3)
    assert not machine.jit_calls


def test_hooks_make_launches_go_through_the_jit(machine: _Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launcher(machine.kernel)
    x = _tensor(8)
    launch((1,), x, 3, 0.5, WIDE=True)
    for name in ("launch_enter_hook", "launch_exit_hook"):
        with monkeypatch.context() as patch:
            patch.setattr(knobs.runtime, name, print)
            launch((1,), x, 3, 0.5, WIDE=True)
    machine.kernel.pre_run_hooks.append(print)
    launch((1,), x, 3, 0.5, WIDE=True)
    assert len(machine.jit_calls) == 4
    machine.kernel.pre_run_hooks.clear()
    launch((1,), x, 3, 0.5, WIDE=True)
    assert len(machine.jit_calls) == 4


def test_run_time_arguments_by_name_are_not_bound(machine: _Machine) -> None:
    launch = Launcher(machine.kernel)
    for n in (3, 5):
        launch((1,), _tensor(8), scale=0.5, n=n, WIDE=True)
    assert [call["n"] for call in machine.jit_calls] == [3, 5]


def test_a_kernel_that_a_hook_took_over_is_not_bound(machine: _Machine) -> None:
    machine.kernel.run = lambda *args, **options: None
    launch = Launcher(machine.kernel)
    launch((1,), _tensor(8), 3, 0.5, WIDE=True)
    launch((1,), _tensor(8), 3, 0.5, WIDE=True)


def test_a_cooperative_grid_must_be_resident(machine: _Machine) -> None:
    launch = Launcher(machine.kernel, launch_cooperative_grid=True)
    x = _tensor(8)
    with pytest.raises(LaunchRejected, match="265 programs of _plain must be resident at once, 264 fit"):
        launch((265,), x, 3, 0.5, WIDE=True)
    assert [call["warmup"] for call in machine.jit_calls] == [True]  # compiled, not launched
    launch((264,), x, 3, 0.5, WIDE=True)
    assert [call["warmup"] for call in machine.jit_calls] == [True, True, False]
    assert machine.jit_calls[-1]["launch_cooperative_grid"] is True
    launch((100,), x, 3, 0.5, WIDE=True)
    with pytest.raises(LaunchRejected, match="265 programs"):
        launch((265,), x, 3, 0.5, WIDE=True)
    assert len(machine.jit_calls) == 3
    assert [call[0] for call in machine.made[-1].calls] == [100]


def test_default_launcher_asks_for_residency_and_keeps_bound_kernels(machine: _Machine) -> None:
    x = _tensor(8)

    def launch(minimum: int) -> None:
        default_launcher(
            machine.kernel, (4,), x, 3, 0.5, True, num_warps=4, num_stages=2, _minimum_resident_programs=minimum
        )

    launch(0)
    launch(200)
    with pytest.raises(LaunchRejected, match="1000 programs of _plain must be resident at once, 264 fit"):
        launch(1000)
    assert len(machine.jit_calls) == 1 and len(machine.made[0].calls) == 1


def test_too_much_shared_memory_is_rejected_with_a_way_out(machine: _Machine) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise OutOfResources(300000, 232448, "shared memory")

    machine.kernel.run = fail
    with pytest.raises(LaunchRejected) as caught:
        Launcher(machine.kernel)((1,), _tensor(8), 3, 0.5, WIDE=True)
    error = caught.value
    assert (error.required, error.available, error.shared_memory) == (300000, 232448, 300000)
    assert "_plain needs more shared memory" in str(error) and "use smaller tiles" in str(error)


def test_first_launches_under_capture_relax_the_capture_mode(
    machine: _Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode = [0]
    seen: list[int] = []

    def exchange(pointer: Any) -> None:
        mode[0], pointer._obj.value = pointer._obj.value, mode[0]

    def jit(*args: Any, **options: Any) -> _Compiled:
        seen.append(mode[0])
        return _Compiled()

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    library = SimpleNamespace(cuThreadExchangeStreamCaptureMode=exchange)
    monkeypatch.setattr(capture, "cuda_driver", lambda: library)
    machine.kernel.run = jit
    Launcher(machine.kernel)((1,), _tensor(8), 3, 0.5, WIDE=True)
    assert seen == [2] and mode == [0]


def test_launchers_of_one_kernel_share_its_lock(machine: _Machine) -> None:
    assert Launcher(machine.kernel)._lock is Launcher(machine.kernel, num_warps=8)._lock
