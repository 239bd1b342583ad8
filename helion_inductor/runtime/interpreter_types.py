"""Corrections of Triton's interpreter that generated kernels rely on.

Note [Comparison types]: the interpreter's comparisons yield numpy booleans in a handle that still carries the operands' dtype; a
later ``&`` or ``|`` with a value of another shape then converts the booleans to that dtype and fails or goes wrong. Here the
handle of a comparison says what it holds. GPU code is not concerned.

Note [Silent arithmetic]: the interpreter computes with numpy, which warns of overflow, of division by zero and of NaN; to a GPU, and
to eager PyTorch, these are results like others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder, TensorHandle
from triton.runtime.interpreter import np as numpy  # the one that it computes with


def _typed(compare: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    def typed(self: Any, lhs: Any, rhs: Any) -> Any:
        return TensorHandle(compare(self, lhs, rhs).data, tl.int1)

    return typed


def correct_comparisons() -> None:
    """Give every comparison of the interpreter a boolean handle; does nothing the second time."""
    if getattr(InterpreterBuilder, "_helion_comparisons", False):
        return
    for name, member in list(vars(InterpreterBuilder).items()):
        if name.startswith(("create_icmp", "create_fcmp")):
            setattr(InterpreterBuilder, name, _typed(member))
    InterpreterBuilder._helion_comparisons = True


def silence_arithmetic() -> None:
    """Run kernels without numpy's warnings about arithmetic; does nothing the second time."""
    run = GridExecutor.__call__
    if hasattr(run, "__wrapped__"):
        return

    @functools.wraps(run)
    def silent(self: Any, *args: Any, **kwargs: Any) -> Any:
        with numpy.errstate(all="ignore"):
            return run(self, *args, **kwargs)

    GridExecutor.__call__ = silent
