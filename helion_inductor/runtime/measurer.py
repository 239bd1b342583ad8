"""The near end of ``measure.py``: starts its process, asks it, and starts another where it crashed or took too long."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]


class Measurer:
    """Asks for times, one at a time. A context manager: the process ends with the context.

    ``command`` replaces the process, for tests.
    """

    def __init__(self, *, timeout_s: float = 60.0, command: list[str] | None = None) -> None:
        self.timeout_s = timeout_s
        self._command = command or [sys.executable, "-m", "helion_inductor.runtime.measure"]
        self._process: subprocess.Popen[str] | None = None
        self._answers: Queue[str | None] = Queue()

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def ask(self, request: Mapping[str, Any], timeout_s: float | None = None) -> dict[str, Any]:
        """The answer to a request, as ``measure.py`` describes it; {"error": ...} where the process crashed or was stopped."""
        if self._process is not None and self._process.poll() is not None:
            self.close()  # it answered, and ended because its device was lost
        if self._process is None:
            self._start()
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = self._answers.get(timeout=self.timeout_s if timeout_s is None else timeout_s)
        except Empty:
            self.close()
            return {"error": f"no answer within {self.timeout_s if timeout_s is None else timeout_s:.0f} s"}
        except BrokenPipeError:
            line = None
        except BaseException:  # an interruption: what the process would still say must not be taken for a later answer
            self.close()
            raise
        if line is None:
            code = process.wait()
            self.close()
            return {"error": f"the process that measures ended with {code}"}
        result: dict[str, Any] = json.loads(line)
        return result

    def close(self) -> None:
        """End the process, if there is one; the next question starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        # A session of its own: an interruption at the terminal is ours to deal with.
        self._process = subprocess.Popen(
            self._command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        )  # fmt: skip
        self._answers = Queue()
        threading.Thread(target=_forward, args=(self._process, self._answers), daemon=True).start()


def _forward(process: subprocess.Popen[str], answers: Queue[str | None]) -> None:
    """Lines that the process writes, and None when it has ended."""
    assert process.stdout is not None
    for line in process.stdout:
        answers.put(line)
    answers.put(None)
