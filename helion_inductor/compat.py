"""What differs between the supported releases of torch and triton, in one place."""

from __future__ import annotations

import torch
import torch._dynamo.utils as dynamo_utils
from torch._logging import trace_structured


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


def interpreting() -> bool:
    """Whether Triton kernels run in its interpreter in this process."""
    import triton

    return bool(triton.knobs.runtime.interpret)
