"""Result files as markdown, for the README.

    python benchmarks/table.py FILE [FILE ...] [--figures NAME ...]

One table for each figure: rows down, peers across. In brackets the ratio to Inductor in the same mode: the median over the
rounds, in which both ran next to one another, and the least and largest of them where these differ.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the repository, in place of this folder

from benchmarks import result_file
from benchmarks.peers import PEERS
from benchmarks.timing import COUNTED, PARTS

Facts = dict[str, Any]
FIGURES = {
    "wall_us": "Wall time of a call, ms",
    "host_us": "Host time of a call, us",
    "gpu_us": "GPU time under CUDA-graph replay, us",
    "stream_us": "Calls under reduce-overhead, replays else, back to back, us",
    "compile_s": "First call, s",
    "parts": "First call by phase, s: Dynamo / AOTAutograd / rest of Inductor / our regions / Triton / running",
    "peak_mb": "Peak memory of a call, MB",
    "launches": "Kernels launched by a call",
    "error_norm": "Error against float64 (norm of the difference over the norm)",
}
"""Figures with a table of their own, in order; other figures of a file (layers of a call) follow by their names."""
SPREAD = 0.005
"""Ratios whose rounds differ by less than this are shown without a range."""


def value_of(facts: Facts, figure: str) -> float | None:
    if figure == "parts":
        return facts.get(PARTS[0])
    value = facts.get(figure)
    return value["median"] if isinstance(value, dict) else value


def unit_of(figure: str) -> float:
    """What a figure is divided by to be in the unit that FIGURES names."""
    return 1e3 if figure == "wall_us" else 1


def ratios(facts: Facts, rival: Facts, figure: str) -> list[float]:
    """Of a figure with rounds: the ratio in each round; else the one ratio; empty where either lacks it."""
    ours, theirs = facts.get(figure), rival.get(figure)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [a / b for a, b in zip(ours["rounds"], theirs["rounds"], strict=False) if b]
    return [ours / theirs] if ours is not None and theirs else []


def number(value: float) -> str:
    """Three digits, more for large numbers and counts."""
    if value == int(value) and value < 1000:
        return str(int(value))
    return f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:.0f}" if abs(value) >= 1000 else f"{value:#.3g}".rstrip(".")


def cell(facts: Facts | None, rival: Facts | None, figure: str) -> str:
    if not facts:
        return ""
    if "error" in facts or "not_run" in facts:
        return "failed" if "error" in facts else "not run"
    value = value_of(facts, figure)
    if value is None:
        return ""
    if figure == "parts":
        return " / ".join(f"{facts[part]:.1f}" for part in PARTS)
    text = number(value / unit_of(figure))
    found = ratios(facts, rival or {}, figure)
    if not found or figure in ("error_norm", "compile_s", "launches"):
        return text + (" !" if figure == "error_norm" and result_file.too_far(facts) else "")
    low, middle, high = min(found), statistics.median(found), max(found)
    spread = f"; {low:.2f} to {high:.2f}" if high - low >= SPREAD else ""
    return f"{text} ({middle:.2f}{spread})"


def figures_of(content: result_file.Content) -> list[str]:
    """Those with a value somewhere, in the order of their tables."""
    found = dict.fromkeys(name for _, _, facts in result_file.peers_of(content) for name in facts)
    layers = [name for name in found if name.endswith("_us") and name not in FIGURES]
    found |= {"parts": None} if PARTS[0] in found else {}
    return [name for name in FIGURES if name in found] + layers


def columns(content: result_file.Content, figure: str) -> list[str]:
    """Peers that have the figure somewhere; with times also those that failed or were left out."""
    found = [(p, facts) for _, p, facts in result_file.peers_of(content)]
    if all(value_of(facts, figure) is None for _, facts in found):
        return []
    lacking = {"error", "not_run"} if figure.endswith("_us") else set()
    return list(dict.fromkeys(p for p, facts in found if value_of(facts, figure) is not None or lacking & facts.keys()))


def markdown(content: result_file.Content, figures: Sequence[str] | None = None) -> str:
    """All tables of a result file."""
    where = content["surroundings"]
    parts = [f"{content['benchmark']}: {where['device']}, torch {where['torch']}, triton {where['triton']}"]
    if content.get("smoke"):
        parts[0] += " (a smoke run: its times mean nothing)"
    for figure in figures or figures_of(content):
        peers = columns(content, figure)
        if not peers:
            continue
        lines = [f"| row | {' | '.join(peers)} |", "|---" * (len(peers) + 1) + "|"]
        for row in content["rows"].values():
            found = row["peers"]
            cells = [cell(found.get(p), found.get(PEERS[p].rival or ""), figure) for p in peers]
            lines.append(f"| {row['title']} | {' | '.join(cells if found else [row['status'], *cells[1:]])} |")
        parts.append(f"{FIGURES.get(figure, figure)}\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def line(peer: str, facts: Facts) -> str:
    """A peer's facts on one line, for the terminal."""
    if "error" in facts or "not_run" in facts:
        return f"{peer:16s} {facts.get('error') or 'not run: ' + facts['not_run']}"[:180]
    times = [f"{name[:-3]} {value_of(facts, name):9.1f} us" for name in facts if name.endswith("_us")]
    seconds = [f"compile {facts[n]:.1f} s" for n in ("compile_s", "compile_warm_s") if n in facts]
    counted = [f"{name} {facts[name]}" for name in (*COUNTED, "inductor_kernels", "cudagraph_skips") if name in facts]
    error = [f"error {facts['error_norm']:.1e}{' !' if result_file.too_far(facts) else ''}"] if "error_norm" in facts else []
    problem = [f"no graph: {facts['gpu_problem'][:80]}"] if "gpu_problem" in facts else []
    return f"{peer:16s} " + "  ".join([*times, *seconds, *error, *counted, *problem])


def summary(name: str, row: dict[str, Any]) -> str:
    """A finished row for the terminal: its times, with ratios."""
    lines = [f"{name}: {row['title']}"]
    for peer, facts in row["peers"].items():
        rival = row["peers"].get(PEERS[peer].rival or "")
        times = [f"{f[:-3]} {cell(facts, rival, f)}" for f in facts if f.endswith("_us")]
        lines.append(f"    {peer:18s} {'  '.join(times) or line('', facts).strip()}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--figures", nargs="+", metavar="NAME", help=f"such as {', '.join(FIGURES)} (default: all there are)")
    options = parser.parse_args(arguments)
    try:
        print("\n".join(markdown(result_file.load(path), options.figures) for path in options.files), end="")
    except result_file.Unusable as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
