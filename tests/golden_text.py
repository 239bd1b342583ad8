"""Golden text: what a stage printed when somebody last read it, one file for each name."""

from __future__ import annotations

import difflib
from pathlib import Path


def compare(path: Path, text: str, accept: bool) -> str:
    """The unified diff from the file at ``path`` to ``text``, or "" where they agree.

    With ``accept`` the file is written instead (and its folder made), and the answer is "".  Blank lines at the end do
    not count.
    """
    new = text.rstrip("\n") + "\n"
    if accept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(new, encoding="utf-8")
        return ""
    if not path.exists():
        return f"{path.name} does not exist; the new text is:\n{new}"
    old = path.read_text(encoding="utf-8")
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), f"expected/{path.name}", "new", lineterm="")
    return "\n".join(lines)
