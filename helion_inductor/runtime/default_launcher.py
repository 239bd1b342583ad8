"""Launching a kernel in one call, with everything it may want besides its own arguments."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from .launcher import Launcher
from .remote import ScratchSpec, barrier_signal, copy_signal, scratch
from .state import StateSpec


def default_launcher(
    triton_kernel: Any,
    grid: tuple[int, ...],
    *args: Any,
    num_warps: int,
    num_stages: int,
    ptx_options: str | None = None,
    launch_cooperative_grid: bool = False,
    _minimum_resident_programs: int = 0,
    _persistent_state_specs: Sequence[StateSpec] = (),
    _remote_copy_signal_dst: torch.Tensor | None = None,
    _remote_copy_signal_slots_per_program: int = 0,
    _remote_copy_process_group_name: str | None = None,
    _remote_copy_scratch_specs: Sequence[ScratchSpec] = (),
    _remote_barrier_signal_slots_per_program: int = 0,
    _remote_barrier_process_group_name: str | None = None,
    **kwargs: Any,
) -> None:
    """Launches `triton_kernel` over `grid`; `kwargs` are its constexpr parameters by name.

    With `launch_cooperative_grid` the whole grid must be resident at once; `_minimum_resident_programs` asks for that
    many in any case. LaunchRejected is raised before anything is launched where the device cannot hold them.

    Behind `args` the kernel gets, of those that are asked for and in this order: the addresses of its copy signals
    (`remote.copy_signal`), those of its barrier signals (`remote.barrier_signal`), a tensor for each of the scratch specs, and
    one for each of the state specs (`runtime/state.py`). Raises HelionError that names the option where one of a pair is missing.
    Other errors are those of `Launcher`.
    """
    programs = math.prod(grid)
    appended: list[torch.Tensor] = []
    if programs > 0:
        if _remote_copy_signal_dst is not None or _remote_copy_signal_slots_per_program:
            slots, group = _remote_copy_signal_slots_per_program, _remote_copy_process_group_name
            appended.append(copy_signal(_remote_copy_signal_dst, programs, slots, group))
        if _remote_barrier_process_group_name is not None or _remote_barrier_signal_slots_per_program:
            slots, group = _remote_barrier_signal_slots_per_program, _remote_barrier_process_group_name
            appended.append(barrier_signal(programs, slots, group, _device(triton_kernel, args)))
        if _remote_copy_scratch_specs:
            appended += scratch(_remote_copy_scratch_specs, _device(triton_kernel, args))
    states = tuple(_persistent_state_specs)
    launcher = _launcher(triton_kernel, num_warps, num_stages, ptx_options, launch_cooperative_grid, states)
    if appended:
        args = (*args, *appended)
    launcher.launch(grid, args, kwargs, minimum_resident_programs=_minimum_resident_programs)


def _device(kernel: Any, args: Sequence[Any]) -> torch.device:
    for arg in args:
        if isinstance(arg, torch.Tensor):
            return arg.device
    raise TypeError(f"{kernel.__name__} has no tensor among its arguments, which would tell the device of its signals and scratch")


@functools.lru_cache(maxsize=4096)
def _launcher(
    jit_fn: Any,
    num_warps: int,
    num_stages: int,
    ptx_options: str | None,
    launch_cooperative_grid: bool,
    state_specs: tuple[StateSpec, ...],
) -> Launcher:
    return Launcher(
        jit_fn,
        num_warps=num_warps,
        num_stages=num_stages,
        ptx_options=ptx_options,
        launch_cooperative_grid=launch_cooperative_grid,
        state_specs=state_specs,
    )
