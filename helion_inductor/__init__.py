"""helion_inductor: ``torch.compile(model, backend="helion")``.

Importing the package is light: what is behind these names is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backend import fx_compiler
    from .explain import explain
    from .options import Options
    from .report import Report

__version__ = "0.1.0"
__all__ = ["Options", "Report", "explain", "fx_compiler"]


def __getattr__(name: str) -> Any:
    if name == "Options":
        from .options import Options as value
    elif name == "Report":
        from .report import Report as value
    elif name == "explain":
        from .explain import explain as value
    elif name == "fx_compiler":
        from .backend import fx_compiler as value
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
