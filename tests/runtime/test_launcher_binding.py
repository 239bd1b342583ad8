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
from triton.runtime.errors import OutOfResources

from helion_inductor.errors import HelionError, LaunchRejected
from helion_inductor.runtime import capture
from helion_inductor.runtime import launcher as launcher_module
from helion_inductor.runtime.default_launcher import default_launcher
from helion_inductor.runtime.launcher import Launcher
from helion_inductor.runtime.specialise import int_class, specialise
from tests.fake_machine import Compiled, Machine, machine_of, on_device


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
        launch_key, _, values = specialise(launch, args, {"WIDE": False})
        assert launch_key is not None or not any(isinstance(value, torch.Tensor) for value in args)
        assert [repr(v.data_ptr() if isinstance(v, torch.Tensor) else v) for v in args] == [repr(v) for v in values]
        keys.append(launch_key)
    if keys[0] is not None and keys[0] == keys[1]:
        assert _triton_says(first) == _triton_says(second)


@given(_INTS, _INTS)
def test_ints_share_a_class_exactly_when_triton_says_so(first: int, second: int) -> None:
    same = int_class(first) == int_class(second)
    assert same == (_triton_says([first]) == _triton_says([second]))


@pytest.mark.parametrize(
    ("one", "other"),
    [(True, 1), (1, 1.0), (0.0, -0.0), (False, None), ("1", 1), (tl.float32, tl.float16), (64, 128)],
)
def test_constexprs_of_other_values_or_types_are_other_kernels(one: object, other: object) -> None:
    launch = Launcher(triton.JITFunction(_plain))
    args = (torch.zeros(4), 3, 1.0)
    assert specialise(launch, args, {"WIDE": one})[0] != specialise(launch, args, {"WIDE": other})[0]
    # the same by position, behind the run-time parameters
    assert specialise(launch, (*args, one), {})[0] != specialise(launch, (*args, other), {})[0]


def test_the_same_constexpr_is_the_same_kernel() -> None:
    launch = Launcher(triton.JITFunction(_plain))
    args = (torch.zeros(4), 3, 1.0)
    for value in (math.nan, 0.5, tl.float32, "name", None, True):
        assert specialise(launch, args, {"WIDE": value})[0] == specialise(launch, args, {"WIDE": value})[0]


def test_what_only_triton_can_specialise_has_no_key() -> None:
    launch = Launcher(triton.JITFunction(_plain))
    assert specialise(launch, (torch.zeros(4), (1, 2), 1.0), {"WIDE": True})[0] is None
    assert specialise(launch, (torch.zeros(4), 1, 1.0), {"WIDE": (1, 2)})[0] is None


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return machine_of(_plain, monkeypatch)


def test_the_first_launch_compiles_and_the_second_is_bound(machine: Machine) -> None:
    launch = Launcher(machine.kernel, num_warps=8, num_stages=3, maxnreg=96)
    x, y = on_device(8), on_device(8)
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


def test_with_fixed_dtypes_the_same_launch_checks_little(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.kernel = triton.JITFunction(_tensors)
    machine.kernel.run = machine._jit
    launch = Launcher(machine.kernel, fixed_dtypes=True)
    x, y, odd = on_device(8), on_device(64), on_device(64)[1:]
    launch((5,), x, y)
    monkeypatch.setattr(launcher_module, "specialise", None)  # what follows does not come that far
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


def test_a_launch_that_starts_unaligned_is_right_when_aligned(machine: Machine) -> None:
    machine.kernel = triton.JITFunction(_tensors)
    machine.kernel.run = machine._jit
    launch = Launcher(machine.kernel, fixed_dtypes=True)
    x, odd = on_device(64), on_device(64)[1:]
    for tensors in ((x, odd), (x, x), (x, odd), (odd, x)):
        launch((5,), *tensors)
    assert len(machine.jit_calls) == 3 and [len(c.calls) for c in machine.made] == [1, 0, 0]


def test_another_specialisation_compiles_again(machine: Machine) -> None:
    launch = Launcher(machine.kernel)
    x = on_device(64)
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


def test_launches_go_to_the_device_of_the_tensors(machine: Machine) -> None:
    launch = Launcher(machine.kernel)
    on_one = on_device(8, index=1)
    launch((1,), on_device(8), 3, 0.5, WIDE=True)
    launch((1,), on_one, 3, 0.5, WIDE=True)
    assert [call["device"] for call in machine.jit_calls] == [0, 1]
    launch((1,), on_one, 3, 0.5, WIDE=True)
    assert len(machine.jit_calls) == 2 and machine.made[1].calls[0][3] == 71  # the stream of device 1
    assert machine.current == 0


def test_tensors_of_several_devices_are_refused(machine: Machine) -> None:
    with pytest.raises(
        HelionError, match="_plain got tensors on different devices: argument 0 on cuda:0, argument 2 on cuda:1"
    ):
        Launcher(machine.kernel)((1,), on_device(8), 3, on_device(8, index=1), WIDE=True)


def test_too_many_arguments_are_refused(machine: Machine) -> None:
    with pytest.raises(TypeError, match="_plain takes 5 arguments, got 6"):
        Launcher(machine.kernel)((1,), on_device(8), 3, 0.5, True, 64, 1)


def test_an_unknown_argument_is_named(machine: Machine) -> None:
    with pytest.raises(TypeError, match="_plain has no parameter SIZE; it has x, n, scale, WIDE, BLOCK"):
        Launcher(machine.kernel)((1,), on_device(8), 3, 0.5, WIDE=True, SIZE=3)
    assert not machine.jit_calls


def test_hooks_make_launches_go_through_the_jit(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launcher(machine.kernel)
    x = on_device(8)
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


def test_run_time_arguments_by_name_are_not_bound(machine: Machine) -> None:
    launch = Launcher(machine.kernel)
    for n in (3, 5):
        launch((1,), on_device(8), scale=0.5, n=n, WIDE=True)
    assert [call["n"] for call in machine.jit_calls] == [3, 5]


def test_a_kernel_that_a_hook_took_over_is_not_bound(machine: Machine) -> None:
    machine.kernel.run = lambda *args, **options: None
    launch = Launcher(machine.kernel)
    launch((1,), on_device(8), 3, 0.5, WIDE=True)
    launch((1,), on_device(8), 3, 0.5, WIDE=True)


def test_a_cooperative_grid_must_be_resident(machine: Machine) -> None:
    launch = Launcher(machine.kernel, launch_cooperative_grid=True)
    x = on_device(8)
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


def test_default_launcher_asks_for_residency_and_keeps_bound_kernels(machine: Machine) -> None:
    x = on_device(8)

    def launch(minimum: int) -> None:
        default_launcher(
            machine.kernel, (4,), x, 3, 0.5, True, num_warps=4, num_stages=2, _minimum_resident_programs=minimum
        )

    launch(0)
    launch(200)
    with pytest.raises(LaunchRejected, match="1000 programs of _plain must be resident at once, 264 fit"):
        launch(1000)
    assert len(machine.jit_calls) == 1 and len(machine.made[0].calls) == 1


def test_too_much_shared_memory_is_rejected_with_a_way_out(machine: Machine) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise OutOfResources(300000, 232448, "shared memory")

    machine.kernel.run = fail
    with pytest.raises(LaunchRejected) as caught:
        Launcher(machine.kernel)((1,), on_device(8), 3, 0.5, WIDE=True)
    error = caught.value
    assert (error.required, error.available, error.shared_memory) == (300000, 232448, 300000)
    assert "_plain needs more shared memory" in str(error) and "use smaller tiles" in str(error)


def test_first_launches_under_capture_relax_the_capture_mode(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode = [0]
    seen: list[int] = []

    def exchange(pointer: Any) -> None:
        mode[0], pointer._obj.value = pointer._obj.value, mode[0]

    def jit(*args: Any, **options: Any) -> Compiled:
        seen.append(mode[0])
        return Compiled()

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    library = SimpleNamespace(cuThreadExchangeStreamCaptureMode=exchange)
    monkeypatch.setattr(capture, "cuda_driver", lambda: library)
    machine.kernel.run = jit
    Launcher(machine.kernel)((1,), on_device(8), 3, 0.5, WIDE=True)
    assert seen == [2] and mode == [0]


def test_launchers_of_one_kernel_share_its_lock(machine: Machine) -> None:
    assert Launcher(machine.kernel)._lock is Launcher(machine.kernel, num_warps=8)._lock
