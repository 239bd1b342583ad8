"""How many programs a kernel of several phases is launched with, and whether all its phases go in one launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ..errors import HelionError, LaunchRejected
from .capture import relaxed_if_capturing
from .launcher import Launcher
from .occupancy import not_resident, resident_programs


class GridChoice(NamedTuple):
    """Launch `programs` programs: all phases in one cooperative launch where `one_launch`, else each phase by itself."""

    programs: int
    one_launch: bool


def choose_grid(
    launcher: Launcher,
    wanted: int,
    args: Sequence[Any],
    constexprs: Mapping[str, Any],
    *,
    phases: int,
    persistent: bool = True,
    separable: bool = True,
) -> GridChoice:
    """What to do with a kernel of `phases` phases that would like `wanted` programs.

    The exact specialisation that these arguments need is compiled (not launched) and asked how many programs fit the device, less
    the launcher's `reserved_sms`. Where `wanted` do not fit, a `persistent` kernel, whose programs divide the work whatever
    their number, gets fewer; else, if `separable`, its phases are launched one by one, which needs no co-residency. The same goes
    for Triton's interpreter and for ROCm, where residency is unknown. Otherwise raises LaunchRejected.
    """
    if phases == 1 and separable:
        return GridChoice(wanted, True)
    if separable and (launcher.interpreted or torch.version.hip is not None):
        return GridChoice(wanted, False)
    if launcher.interpreted:
        raise HelionError(f"{launcher.name} cannot be interpreted: its programs wait for one another")
    compiled = launcher.compiled_for(args, constexprs)
    device = next(a.device for a in args if isinstance(a, torch.Tensor))
    with relaxed_if_capturing():  # the kernel is loaded now
        fit = resident_programs(compiled, device, reserved_sms=launcher.reserved_sms)
    choice = decide(wanted, fit, persistent=persistent, separable=separable)
    if choice is None:
        raise _rejected(launcher, compiled, device, wanted, fit)
    return choice


def decide(wanted: int, fit: int, *, persistent: bool, separable: bool) -> GridChoice | None:
    """The policy alone, where `fit` programs are resident at once; None where nothing helps."""
    if wanted <= fit:
        return GridChoice(wanted, True)
    if persistent and fit > 0:
        return GridChoice(fit, True)
    return GridChoice(wanted, False) if separable else None


def _rejected(launcher: Launcher, compiled: Any, device: torch.device, wanted: int, fit: int) -> LaunchRejected:
    return not_resident(compiled, launcher.name, device, wanted, fit, reserved_sms=launcher.reserved_sms)
