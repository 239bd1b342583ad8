"""A stand-in for a machine with two GPUs: kernels that record how they are launched, tensors that say they are on a device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton.runtime.driver import driver

from helion_inductor.runtime import occupancy


class OnDevice(torch.Tensor):
    """A CPU tensor that says it is on a CUDA device."""

    device_index = 0

    def get_device(self) -> int:
        return self.device_index

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda", self.device_index)


def on_device(*sizes: int, index: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    kind = type(f"OnDevice{index}", (OnDevice,), {"device_index": index})
    return torch.zeros(*sizes, dtype=dtype).as_subclass(kind)


class Compiled:
    """Stands in for a compiled kernel and records how it is run."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.function, self.packed_metadata, self.n_regs = 4321, (4, 1, 0), 40
        self.metadata = SimpleNamespace(num_warps=4, shared=0, target=SimpleNamespace(warp_size=32))

    def run(self, *args: Any) -> None:
        self.calls.append(args)


class Machine:
    """A kernel whose JIT makes `Compiled`s, and a machine of two devices to launch it on."""

    def __init__(self, function: Any) -> None:
        self.kernel: Any = triton.JITFunction(function)
        self.kernel.run = self._jit
        self.jit_calls: list[dict[str, Any]] = []
        self.made: list[Compiled] = []
        self.current = 0

    def _jit(self, *args: Any, grid: tuple[int, ...], warmup: bool, **options: Any) -> Compiled:
        self.jit_calls.append({"args": args, "grid": grid, "warmup": warmup, "device": self.current, **options})
        if warmup or not (self.jit_calls[:-1] and self.jit_calls[-2]["warmup"]):
            self.made.append(Compiled())
        return self.made[-1]

    def get_current_device(self) -> int:
        return self.current

    def get_current_stream(self, index: int) -> int:
        return 70 + index


def machine_of(function: Any, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine of two devices of 132 multiprocessors, each of which holds two programs of any kernel."""
    fake = Machine(function)

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
    monkeypatch.setattr(occupancy, "get_num_sm", lambda device, *, reserved_sms=0: 132 - reserved_sms)
    monkeypatch.setattr(occupancy, "context_multiprocessors", lambda: None)
    return fake
