"""Compiling a kernel for given arguments before it is launched: in other processes, without a device, into Triton's cache on disk.

A launch that follows, in this process or a later one, finds the compiled kernel there instead of compiling.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import HelionError
from .launcher import Launcher
from .phased import PhasedLauncher
from .precompile import CompileFailure, KernelRequest, Resources, compile_offline_many

POINTER_TYPES: Mapping[torch.dtype, str] = {
    torch.float32: "*fp32", torch.float64: "*fp64", torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.bool: "*u1",
    torch.int8: "*i8", torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64", torch.uint8: "*u8", torch.uint16: "*u16",
    torch.uint32: "*u32", torch.uint64: "*u64", torch.float8_e4m3fn: "*fp8e4nv", torch.float8_e5m2: "*fp8e5",
}  # fmt: skip
"""Triton's types for pointers to elements of a dtype."""


@dataclass(frozen=True)
class Precompiler:
    """Compiles what launchers would compile; `target` is one of `precompile.TARGETS`."""

    launchers: tuple[tuple[Launcher, Mapping[str, object]], ...]
    target: str

    def requests(self, *args: Any, **constexprs: Any) -> list[KernelRequest]:
        """What to compile for a launch with these arguments, for `precompile.compile_offline_many`, which takes those of many kernels.

        A dtype stands for a tensor of it, aligned to 16 bytes. Raises HelionError for arguments of other kinds than kernels take.
        """
        return [self._request(launcher, args, {**constexprs, **more}) for launcher, more in self.launchers]

    def __call__(self, *args: Any, **constexprs: Any) -> list[Resources]:
        """Compile for a launch with these arguments, launching nothing. Raises HelionError where a kernel does not compile."""
        results = compile_offline_many(self.requests(*args, **constexprs))
        failed = [r for r in results if isinstance(r, CompileFailure)]
        if failed:
            raise HelionError(f"{failed[0].kernel} does not compile for {self.target}: {failed[0].message}")
        return [r for r in results if isinstance(r, Resources)]

    def _request(self, launcher: Launcher, args: tuple[Any, ...], constexprs: Mapping[str, Any]) -> KernelRequest:
        function, options = launcher.jit_fn.fn, dict(launcher.options)
        parameters = inspect.signature(function).parameters
        fixed = {n for n, p in parameters.items() if "constexpr" in str(p.annotation)}
        arguments = (*args, *launcher.state_types())
        if len(arguments) > len(parameters):
            raise HelionError(f"{function.__name__} takes {len(parameters)} arguments, got {len(arguments)}")
        given = dict(zip(parameters, arguments, strict=False))
        signature, values, divisible = {}, dict(constexprs), []
        for name, value in given.items():
            kind, aligned = ("constexpr", False) if name in fixed else _type_of(name, value)
            if kind == "constexpr":
                values[name] = value
            else:
                signature[name] = kind
            divisible += [name] if aligned else []
        of_request = {n: options.pop(n) for n in ("num_warps", "num_stages", "launch_cooperative_grid", "maxnreg") if n in options}
        module, name = function.__code__.co_filename, function.__name__
        return KernelRequest(module, name, signature, values, self.target, divisible_by_16=tuple(divisible), options=options, **of_request)


def make_precompiler(launcher: Launcher | PhasedLauncher, target: str | None = None) -> Precompiler:
    """A precompiler for a kernel of a module: all its phases in one launch, and each by itself, where it has several.

    `target` is by default the current device's. Raises HelionError where there is none.
    """
    if target is None:
        if not torch.cuda.is_available():
            raise HelionError("there is no GPU to compile for: name a target, such as make_precompiler(launcher, 'sm_90')")
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        hip = torch.version.hip is not None
        target = properties.gcnArchName.split(":")[0] if hip else f"sm_{10 * properties.major + properties.minor}"
    ways = launcher.ways() if isinstance(launcher, PhasedLauncher) else ((launcher, {}),)
    return Precompiler(tuple(ways), target)


def _type_of(name: str, value: Any) -> tuple[str, bool]:
    """(Triton's type of an argument, whether Triton will take it to be a multiple of 16); "constexpr" for what it makes constant."""
    if isinstance(value, (torch.Tensor, torch.dtype)):
        dtype = value if isinstance(value, torch.dtype) else value.dtype
        if dtype not in POINTER_TYPES:
            raise HelionError(f"{name}: no kernel takes tensors of {dtype}")
        return POINTER_TYPES[dtype], isinstance(value, torch.dtype) or value.data_ptr() % 16 == 0
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value == 1):
        return "constexpr", False
    if isinstance(value, bool):
        return "u1", False
    if isinstance(value, int):
        kind = "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"
        return kind, value % 16 == 0
    if isinstance(value, float):
        return "fp32", False
    raise HelionError(f"{name}: cannot compile for an argument of type {type(value).__name__}; tensors, dtypes and numbers are known")
