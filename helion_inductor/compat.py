"""What differs between the supported releases of torch and triton, in one place."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from typing import Any

import sympy
import torch
import torch._dynamo.utils as dynamo_utils
from torch._inductor.lowering import lowerings, make_fallback
from torch._inductor.virtualized import V
from torch._logging import trace_structured
from torch.utils._sympy.value_ranges import ValueRangeError


def count(what: str, by: int = 1) -> None:
    """Add to Dynamo's counters, where users and tests look for what a backend did."""
    dynamo_utils.counters["helion"][what] += by


def trace_artifact(name: str, text: str) -> None:
    """Hand a text to the structured trace (``TORCH_TRACE``); formatted only when a trace is on."""
    trace_structured("artifact", metadata_fn=lambda: {"name": name, "encoding": "string"}, payload_fn=lambda: text)


def versions() -> tuple[str, str]:
    """(torch, triton) versions; importing triton is left until here."""
    import triton

    return str(torch.__version__), str(triton.__version__)


def driver_version() -> int:
    """The version of the CUDA driver, 12080 for 12.8; 0 where there is none."""
    return int(torch._C._cuda_getDriverVersion()) if torch.cuda.is_available() else 0  # type: ignore[attr-defined]


def interpreting() -> bool:
    """Whether Triton kernels run in its interpreter in this process."""
    import triton

    return bool(triton.knobs.runtime.interpret)


def size_seen(shape_env: Any, symbol: Any) -> int | None:
    """The value that a size symbol had while tracing; None for sizes that come from data."""
    values = shape_env.backed_var_to_val if hasattr(shape_env, "backed_var_to_val") else shape_env.var_to_val
    return int(values[symbol]) if symbol in values else None


def can_compare_strides(shape_env: Any, strides: Sequence[Any]) -> bool:
    """Whether Inductor can ask of these strides, as it does before a convolution, which divides which.

    Of some polynomials it cannot: ``n % n**2`` with ``n = floordiv(s, 8) + 1`` makes its range analysis raise, as of
    torch 2.13, and the whole compilation with it.
    """
    written = [s.node.expr for s in strides if isinstance(s, torch.SymInt)]
    symbolic = dict.fromkeys([*written, *map(sympy.expand, written)])  # it may expand them first
    log = logging.getLogger("torch.utils._sympy.interp")  # warns of what is only tried here
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        for a, b in itertools.permutations(symbolic, 2):
            shape_env._maybe_evaluate_static(sympy.Eq(a % b, 0))
    except (ValueError, ValueRangeError):
        return False
    finally:
        log.setLevel(level)
    return True


def name_in_wrappers(op: Any, function: str) -> None:
    """Have the Python wrappers that Inductor writes call ``function``, an expression, where they would call ``op``.

    Lowering, layout constraints and mutation stay those of the op; so do wrappers in C++, which know ops only.
    """
    make_fallback(op, warn=False, override_decomp=True)
    lower_op = lowerings[op]

    def lower(*args: Any, **kwargs: Any) -> Any:
        before = len(V.graph.operations)
        result = lower_op(*args, **kwargs)
        # Others may follow the op's own: what still had to read a tensor that the op overwrites is computed then.
        made: list[Any] = V.graph.operations[before:]
        for kernel in made if not V.graph.cpp_wrapper else ():
            if getattr(kernel, "op_overload", None) is op:
                kernel.python_kernel_name = function
        return result

    lowerings[op] = lower
