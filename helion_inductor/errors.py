"""The errors helion_inductor raises, and the one refusal it records instead of raising.

Standard library only: generated modules and the runtime import this file, and exported files copy from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class HelionError(RuntimeError):
    """Base of everything helion_inductor raises on purpose."""


class OptionError(HelionError, ValueError):
    """An option is unknown, ill-typed or out of range. The message names the option and lists the valid ones."""


class VerifyError(HelionError):
    """An IR value breaks a named rule.

    `rule` is the rule's name, `neighbourhood` the printed IR around the failure; both appear in the message.
    """

    def __init__(self, message: str, *, rule: str = "", neighbourhood: str = "") -> None:
        super().__init__(_with_context(message, rule, neighbourhood))
        self.rule = rule
        self.neighbourhood = neighbourhood


class InternalError(HelionError):
    """A bug of the compiler itself, never of its user.

    `rule` names the broken invariant, `neighbourhood` shows what was being compiled, `dump` is where its artifacts are.
    """

    def __init__(self, message: str, *, rule: str = "", neighbourhood: str = "", dump: str = "") -> None:
        text = _with_context(f"internal error: {message}", rule, neighbourhood)
        super().__init__(f"{text}\nartifacts: {dump}" if dump else text)
        self.rule = rule
        self.neighbourhood = neighbourhood
        self.dump = dump


class ProgramError(HelionError, IndexError):
    """The program being compiled can only fail: eager PyTorch raises for these shapes and types. Raised whatever ``on_error`` is."""


class KernelNotFound(HelionError, LookupError):
    """The kernel store has no intact entry under a key. The message names the key and the folder."""


class LaunchRejected(HelionError):
    """A launch that the device could not run as asked; nothing was launched.

    `required` and `available` count the same thing (programs, resident programs, or grid blocks along one dimension).
    `registers` is per thread, `shared_memory` in bytes per program, None where they played no part. `hints` say what to
    change, the most promising first.
    """

    def __init__(
        self,
        reason: str,
        *,
        required: int,
        available: int,
        arithmetic: str = "",
        registers: int | None = None,
        shared_memory: int | None = None,
        hints: Sequence[str] = (),
    ) -> None:
        lines = [f"launch rejected: {reason} (required {required}, available {available})"]
        if arithmetic:
            lines.append(f"  {arithmetic}")
        uses = []
        if registers is not None:
            uses.append(f"{registers} registers per thread")
        if shared_memory is not None:
            uses.append(f"{shared_memory} bytes of shared memory per program")
        if uses:
            lines.append("  the kernel uses " + " and ".join(uses))
        lines += [f"  - {hint}" for hint in hints]
        super().__init__("\n".join(lines))
        self.required = required
        self.available = available
        self.registers = registers
        self.shared_memory = shared_memory
        self.hints = tuple(hints)


@dataclass(frozen=True)
class Unsupported:
    """Why something is left to Inductor. A value: it is recorded and reported, not raised.

    `code` is a short stable slug such as "dtype" or "dynamic-stride"; `detail` is a sentence for people.
    """

    code: str
    detail: str

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"


class UnsupportedError(HelionError):
    """Carries an `Unsupported` (as `reason`) out of nested lowering code, to be caught where refusals are recorded."""

    def __init__(self, reason: Unsupported) -> None:
        super().__init__(str(reason))
        self.reason = reason


def _with_context(message: str, rule: str, neighbourhood: str) -> str:
    head = f"[{rule}] {message}" if rule else message
    return f"{head}\n{neighbourhood}" if neighbourhood else head
