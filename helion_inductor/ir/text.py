"""``str(x)`` of IR values: one open function that ``printer`` fills in when the package ``ir`` is imported.

It stands below the dataclasses, so that their ``__str__`` needs no import of the printer, which needs theirs.
"""

from __future__ import annotations

from functools import singledispatch


@singledispatch
def text(value: object) -> str:
    """The documented text form of a nest, a program or a schedule; raises ``TypeError`` for anything else."""
    raise TypeError(f"{type(value).__name__} has no text form")
