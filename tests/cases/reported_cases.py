"""Regression cases distilled from public bug reports against compilers for PyTorch.

Each re-expresses the *input* of a report in code of our own; what is right is whatever eager PyTorch does.
"""

from __future__ import annotations

from tests.cases import (
    reported_dtypes,
    reported_mutation,
    reported_patterns,
    reported_shapes,
    reported_values,
)
from tests.cases.case_kit import CASES, Case
from tests.cases.case_runner import run_case

__all__ = ["CASES", "Case", "run_case"]

# Importing these fills CASES.
FILES = (reported_mutation, reported_values, reported_dtypes, reported_shapes, reported_patterns)
