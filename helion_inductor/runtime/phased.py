"""Launching kernels of several phases: together in one cooperative launch, or one phase a launch.

A generated kernel of n phases takes a pointer to its state after its other positional arguments, and runs the phases ``FIRST`` up
to ``LAST`` of the constexprs of these names, with a barrier between two.
"""

from __future__ import annotations

from typing import Any

import torch
from triton.runtime.driver import driver

from ..errors import LaunchRejected
from .launcher import Launcher
from .state import STATES


class PhasedLauncher:
    """Launches one kernel of ``phases`` phases; ``settings`` are those of ``Launcher``.

    Called as a ``Launcher``, with a grid of one dimension that is an upper bound: fewer programs are launched where not so many
    are resident at once, for programs that wait at a barrier must not wait for one that has no place. Where kernels are
    interpreted, program after program, and where no residency can be asked for, each phase is a launch of its own.

    Raises what ``Launcher`` raises.
    """

    def __init__(self, jit_fn: Any, phases: int, **settings: Any) -> None:
        self.phases = phases
        self._apart = Launcher(jit_fn, **settings)
        self._together = Launcher(jit_fn, launch_cooperative_grid=True, **settings)
        self._resident: dict[int, int] = {}
        self.cooperative = not self._apart.interpreted and torch.version.hip is None

    def __repr__(self) -> str:
        return f"PhasedLauncher({self._apart.name}, {self.phases} phases)"

    def __call__(self, grid: tuple[int, ...], *args: Any, **constexprs: Any) -> None:
        if not self.cooperative:
            self.launch_apart(grid, *args, **constexprs)
            return
        constexprs["FIRST"], constexprs["LAST"] = 0, self.phases
        index = args[0].get_device()
        programs = min(grid[0], self._resident.get(index, grid[0]))
        arguments = (*args, STATES.get(self, index, driver.active.get_current_stream(index)))
        try:
            self._together.launch((programs,), arguments, constexprs)
        except LaunchRejected as rejected:
            if not rejected.available or rejected.available >= programs:
                raise
            self._resident[index] = rejected.available
            self._together.launch((rejected.available,), arguments, constexprs)

    def launch_apart(self, grid: tuple[int, ...], *args: Any, **constexprs: Any) -> None:
        """One launch for each phase. No program waits for another then, and the state, for which any tensor stands in, is not
        touched."""
        for phase in range(self.phases):
            self._apart(grid, *args, args[0], FIRST=phase, LAST=phase + 1, **constexprs)
