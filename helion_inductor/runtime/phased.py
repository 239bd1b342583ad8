"""Launching kernels of several phases: together in one cooperative launch, or one phase a launch.

A generated kernel of n phases takes a pointer to its state after its other positional arguments, and runs the phases ``FIRST`` up
to ``LAST`` of the constexprs of these names, with a barrier between two.
"""

from __future__ import annotations

from typing import Any

from ..errors import LaunchRejected
from .grid_choice import choose_grid
from .launcher import Launcher

STATE_WORDS = 1  # a barrier restores its word, so that all barriers of a kernel share one


class PhasedLauncher:
    """Launches one kernel of `phases` phases by the policy of `choose_grid`; `settings` are those of `Launcher`.

    Called as a `Launcher`, with a grid of one dimension. Programs of a `persistent` kernel divide the work whatever their number:
    its grid is an upper bound, and fewer programs are launched where not so many are resident at once. Phases of other kernels are
    launched one by one there, and so are all where kernels are interpreted, or where residency is unknown.

    Raises what `Launcher` raises.
    """

    def __init__(self, jit_fn: Any, phases: int, *, persistent: bool = True, **settings: Any) -> None:
        self.phases = phases
        self.persistent = persistent
        self._apart = Launcher(jit_fn, state_words=STATE_WORDS, **settings)
        self._together = Launcher(jit_fn, launch_cooperative_grid=True, state_words=STATE_WORDS, **settings)
        self._all = {"FIRST": 0, "LAST": phases}
        self._each = [{"FIRST": phase, "LAST": phase + 1} for phase in range(phases)]
        self._chosen: dict[tuple[int, int], tuple[int]] = {}  # (programs wanted, device) -> the grid of the last such launch

    def __repr__(self) -> str:
        return f"PhasedLauncher({self._apart.name}, {self.phases} phases)"

    def __call__(self, grid: tuple[int, ...], *args: Any, **constexprs: Any) -> None:
        wanted = grid[0], args[0].get_device()
        chosen = self._chosen.get(wanted)
        if chosen is not None:
            try:
                self._together(chosen, *args, **constexprs, **self._all)
                return
            except LaunchRejected:  # fewer programs of another specialisation fit; nothing was launched
                del self._chosen[wanted]
        settings = {**constexprs, **self._all}
        programs, together = choose_grid(
            self._together, grid[0], args, settings, phases=self.phases, persistent=self.persistent
        )  # fmt: skip
        if together:
            self._together((programs,), *args, **settings)
            self._chosen[wanted] = (programs,)
        else:
            self.launch_apart(grid, *args, **constexprs)

    def ways(self) -> list[tuple[Launcher, dict[str, int]]]:
        """The launchers that it uses and the phases that it gives them: all in one launch first, then each by itself."""
        return [(self._together, self._all), *((self._apart, phase) for phase in self._each)]

    def launch_apart(self, grid: tuple[int, ...], *args: Any, **constexprs: Any) -> None:
        """One launch for each phase. No program waits for another then, and the state is not touched."""
        for phase in self._each:
            self._apart(grid, *args, **constexprs, **phase)
