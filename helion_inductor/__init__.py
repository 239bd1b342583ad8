"""helion_inductor: ``torch.compile(model, backend="helion")``.

Importing the package is light: what is behind these names is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backend import fx_compiler
    from .explaining import explain
    from .exporting import export
    from .options import Options
    from .report import Report

__version__ = "0.1.0"
__all__ = ["Options", "Report", "explain", "export", "fx_compiler"]


def __getattr__(name: str) -> Any:
    if name == "Options":
        from .options import Options

        return Options
    if name == "Report":
        from .report import Report

        return Report
    if name == "explain":
        from .explaining import explain

        return explain
    if name == "export":
        from .exporting import export

        return export
    if name == "fx_compiler":
        from .backend import fx_compiler

        return fx_compiler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
