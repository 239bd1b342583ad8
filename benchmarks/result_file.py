"""Result files: JSON that is rewritten after every finding, so that a run which is stopped loses nothing.

    {"benchmark": ..., "smoke": false, "surroundings": {versions, device},
     "rows": {row: {"title": ..., "status": "done", "peers": {peer: {facts}}}}}

A row's status is "done", "begun", "not run: ..." or "stopped: ...". A peer's facts hold "error" (it failed) or "not_run" (why
not), else error_norm against float64 with the error_limit that eager sets, peak_mb, compile_s in seconds with its parts by phase
(timing.PARTS), counts, and times: figures in microseconds whose names end in _us, each with median, least and the medians of its rounds.
"""

from __future__ import annotations

import contextlib
import json
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

Content = dict[str, Any]
RESULTS = Path(__file__).resolve().parent / "results"
LEFT_FOR_SMOKE = Path("out") / "benchmarks"


class Unusable(Exception):
    """A result file that cannot be read or added to; the text says why."""


def surroundings(device: str) -> dict[str, Any]:
    """Versions and the device's name."""
    import triton

    found: dict[str, Any] = {"torch": torch.__version__, "triton": triton.__version__, "python": platform.python_version()}
    found["device"] = torch.cuda.get_device_name() if device == "cuda" else f"cpu ({platform.machine()})"
    with contextlib.suppress(ImportError):
        import transformers

        found["transformers"] = transformers.__version__
    return found


def default_path(benchmark: str, device: str, smoke: bool) -> Path:
    """Such as benchmarks/results/models_h200.json; smoke runs stay out of that folder."""
    if smoke:
        return LEFT_FOR_SMOKE / f"{benchmark}_smoke.json"
    name = torch.cuda.get_device_name() if device == "cuda" else device
    return RESULTS / f"{benchmark}_{re.sub(r'[^a-z0-9]+', '_', name.lower().replace('nvidia', '')).strip('_')}.json"


def save(path: Path, content: Content) -> None:
    """Write JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    draft.replace(path)


def load(path: Path) -> Content:
    """Raises Unusable for a file that is not there or not a result file of this form."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Unusable(f"{path}: {error}") from None
    if not isinstance(content, dict) or not {"benchmark", "rows", "surroundings"} <= content.keys():
        raise Unusable(f"{path} is not a result file of these benchmarks; run the benchmark again to make one")
    return content


def rows_to_keep(path: Path, content: Content) -> dict[str, Any]:
    """Rows of the file at ``path`` that a new run does not measure; raises Unusable where they come from elsewhere."""
    if not path.exists():
        return {}
    old = load(path)
    for key in ("benchmark", "smoke", "surroundings"):
        if old.get(key) != content[key]:
            raise Unusable(f"{path}: its {key} is {old.get(key)}, now {content[key]}; leave out --keep to replace the file")
    return {name: row for name, row in old["rows"].items() if name not in content["rows"]}


def peers_of(content: Content) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(row, peer, facts) of every peer that a file knows of."""
    for row, found in content["rows"].items():
        for peer, facts in found["peers"].items():
            yield row, peer, facts


def too_far(facts: dict[str, Any]) -> bool:
    """Whether a peer's error is larger than eager's allows."""
    return "error_limit" in facts and not facts["error_norm"] <= facts["error_limit"]


def problems(content: Content) -> list[str]:
    """One line for everything that did not run, failed, fell back or came out wrong."""
    lines = [f"{name}: {row['status']}" for name, row in content["rows"].items() if row["status"] != "done"]
    for row, peer, facts in peers_of(content):
        if "error" in facts:
            lines.append(f"{row}, {peer}: {facts['error']}")
        elif "not_run" in facts:
            lines.append(f"{row}, {peer}: not run, {facts['not_run']}")
        if too_far(facts):
            lines.append(f"{row}, {peer}: error {facts['error_norm']:.2e} is over the limit {facts['error_limit']:.2e}")
        if facts.get("errors"):
            lines.append(f"{row}, {peer}: {facts['errors']} graphs fell back to Inductor after an error of the compiler")
        if "gpu_problem" in facts:
            lines.append(f"{row}, {peer}: no CUDA graph of it, {facts['gpu_problem']}")
    return lines
