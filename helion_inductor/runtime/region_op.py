"""``torch.ops.helion_inductor.run_region``: the one op by which a compiled graph calls a region's kernels.

The op mutates ``outputs`` and returns nothing, so that Inductor allocates, plans and reuses every tensor itself. ``key`` names
an entry of the kernel store, which a fresh process finds on disk.

Note [Past the dispatcher]: the wrapper that Inductor writes could call the op, but the dispatcher would box and unbox every
tensor (up to 1 us each, on the host of an H200). It calls ``torch.ops.helion_inductor.call_region`` instead: the same function,
as plain Python. The name hangs below ``torch.ops`` because a wrapper can be relied upon to have ``torch`` in scope, also when it
comes from a cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .kernel_store import KernelStore

NAMESPACE = "helion_inductor"
DIRECT = "call_region"
SCHEMA = "run_region(str key, Tensor[] inputs, Tensor(a!)[] outputs, SymInt[] sizes) -> ()"


class RegionRunner:
    """Finds and runs region modules; ``locate`` gives the kernel store of the moment."""

    def __init__(self, locate: Callable[[], KernelStore]) -> None:
        self._locate = locate
        self._loaded: dict[str, Callable[..., None]] = {}

    def adopt(self, key: str, store: KernelStore) -> None:
        """Load a region now, so that it keeps running when the store later moves."""
        self._loaded[key] = store.load(key).run

    def __call__(self, key: str, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], sizes: Sequence[int]) -> None:
        run = self._loaded.get(key) or self.find(key)
        run(inputs, outputs, sizes)

    def find(self, key: str) -> Callable[..., None]:
        """Load a region that is not loaded yet; raises KernelNotFound where the store does not have it."""
        self.adopt(key, self._locate())
        return self._loaded[key]

    def forget(self) -> None:
        self._loaded.clear()


def define(runner: RegionRunner) -> tuple[Any, torch.library.Library]:
    """Register the op; the library must be kept alive by the caller. Returns (overload, library)."""
    library = torch.library.Library(NAMESPACE, "DEF")
    library.define(SCHEMA, tags=(torch.Tag.needs_exact_strides,))
    library.impl("run_region", runner, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::run_region", lambda key, inputs, outputs, sizes: None, lib=library)
    setattr(getattr(torch.ops, NAMESPACE), DIRECT, runner)
    return torch.ops.helion_inductor.run_region.default, library
