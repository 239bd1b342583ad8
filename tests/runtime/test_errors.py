"""The texts that users read when something is refused or broken."""

from __future__ import annotations

import ast
import dataclasses
import sys
from pathlib import Path

import pytest

from helion_inductor import errors
from helion_inductor.errors import (
    HelionError,
    InternalError,
    KernelNotFound,
    LaunchRejected,
    OptionError,
    Unsupported,
    UnsupportedError,
    VerifyError,
)


@pytest.mark.parametrize(
    "kind", [OptionError, VerifyError, InternalError, LaunchRejected, UnsupportedError, KernelNotFound]
)
def test_every_error_is_a_helion_error(kind: type[Exception]) -> None:
    assert issubclass(kind, HelionError) and issubclass(kind, RuntimeError)


def test_builtin_families() -> None:
    assert issubclass(OptionError, ValueError)
    assert issubclass(KernelNotFound, LookupError)
    assert str(KernelNotFound("no kernel 'k'")) == "no kernel 'k'"


def test_errors_import_only_the_standard_library() -> None:
    tree = ast.parse(Path(errors.__file__).read_text())
    modules = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    modules += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    assert modules and all(m.split(".")[0] in sys.stdlib_module_names for m in modules)


def test_unsupported_is_a_frozen_value() -> None:
    reason = Unsupported("dtype", "complex64 has no tile form")
    assert reason == Unsupported("dtype", "complex64 has no tile form")
    assert str(reason) == "dtype: complex64 has no tile form"
    with pytest.raises(dataclasses.FrozenInstanceError):
        reason.code = "other"  # type: ignore[misc]


def test_unsupported_error_carries_its_reason() -> None:
    reason = Unsupported("dtype", "complex64 has no tile form")
    error = UnsupportedError(reason)
    assert error.reason is reason
    assert str(error) == "dtype: complex64 has no tile form"


def test_verify_error_shows_rule_and_neighbourhood() -> None:
    error = VerifyError("%3 is used before it is defined", rule="ssa", neighbourhood="  %2 = exp(%3)")
    assert str(error) == "[ssa] %3 is used before it is defined\n  %2 = exp(%3)"
    assert (error.rule, error.neighbourhood) == ("ssa", "  %2 = exp(%3)")
    assert str(VerifyError("plain")) == "plain"


def test_internal_error_says_where_the_dump_is() -> None:
    error = InternalError("no task covers pid 7", rule="cover", neighbourhood="task [0, 7)", dump="/some/folder")
    assert str(error) == "[cover] internal error: no task covers pid 7\ntask [0, 7)\nartifacts: /some/folder"
    assert error.dump == "/some/folder"


def test_launch_rejected_shows_the_arithmetic_and_the_ways_out() -> None:
    error = LaunchRejected(
        "528 programs of k must be resident at once, 264 fit",
        required=528,
        available=264,
        arithmetic="132 multiprocessors x 2 programs = 264",
        registers=168,
        shared_memory=98304,
        hints=("launch at most 264 programs", "use smaller tiles"),
    )
    assert str(error).splitlines() == [
        "launch rejected: 528 programs of k must be resident at once, 264 fit (required 528, available 264)",
        "  132 multiprocessors x 2 programs = 264",
        "  the kernel uses 168 registers per thread and 98304 bytes of shared memory per program",
        "  - launch at most 264 programs",
        "  - use smaller tiles",
    ]
    assert (error.required, error.available, error.registers, error.shared_memory) == (528, 264, 168, 98304)
    assert error.hints == ("launch at most 264 programs", "use smaller tiles")


def test_launch_rejected_leaves_out_what_played_no_part() -> None:
    text = str(LaunchRejected("too many", required=2, available=1))
    assert text == "launch rejected: too many (required 2, available 1)"
