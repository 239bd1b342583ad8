"""Bars from result files, as PNG. Needs matplotlib, which this project does not depend on.

    python benchmarks/plot.py FILE [FILE ...] [--figures NAME ...] [--out FOLDER]

One picture for each file and figure, <file>_<figure>.png: a group of bars for each row, a bar for each peer, with the least and
largest round as a line. Lengths are times over those of Inductor in the row, or as they are with --absolute.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the repository, in place of this folder

from benchmarks import result_file
from benchmarks.table import FIGURES, figures_of, unit_of, value_of

NO_MATPLOTLIB = "plot.py needs matplotlib, which this project does not depend on: pip install matplotlib (table.py does without)"
NOT_DRAWN = ("error_norm", "launches")
BASE = "inductor"


def bars(content: result_file.Content, figure: str, absolute: bool) -> tuple[list[str], dict[str, list[tuple[float, float, float]]]]:
    """Titles of the rows that have the figure, and by peer one (middle, least, largest) per row, NaN where it has none."""
    rows = [r for r in content["rows"].values() if any(value_of(f, figure) is not None for f in r["peers"].values())]
    if not absolute:
        rows = [r for r in rows if value_of(r["peers"].get(BASE, {}), figure)]
    peers = dict.fromkeys(p for r in rows for p, f in r["peers"].items() if value_of(f, figure) is not None)
    return [r["title"] for r in rows], {p: [_bar(r["peers"], p, figure, absolute) for r in rows] for p in peers}


def _bar(peers: dict[str, Any], peer: str, figure: str, absolute: bool) -> tuple[float, float, float]:
    value = peers.get(peer, {}).get(figure)
    if value is None:
        return (float("nan"),) * 3
    unit = unit_of(figure) if absolute else value_of(peers[BASE], figure)
    rounds = value["rounds"] if isinstance(value, dict) else [value]
    middle = value["median"] if isinstance(value, dict) else value
    return middle / unit, min(middle, *rounds) / unit, max(middle, *rounds) / unit


def draw(content: result_file.Content, figure: str, absolute: bool, path: Path) -> bool:
    """Write one picture; False where no row has the figure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    titles, series = bars(content, figure, absolute)
    if not series:
        return False
    drawing, axes = plt.subplots(figsize=(8, 0.6 + len(titles) * (0.35 + 0.16 * len(series))), layout="constrained")
    height = 0.8 / len(series)
    for k, (peer, values) in enumerate(series.items()):
        middles = [middle for middle, _, _ in values]
        error = [[m - low for m, low, _ in values], [high - m for m, _, high in values]]
        places = [row + k * height for row in range(len(titles))]
        axes.barh(places, middles, height * 0.9, label=peer, xerr=error, error_kw={"elinewidth": 0.8})
    axes.set_yticks([row + 0.4 - height / 2 for row in range(len(titles))], titles)
    axes.invert_yaxis()
    name = FIGURES.get(figure, figure)
    axes.set_xlabel(name if absolute else f"{name.rpartition(',')[0] or name}, over that of {BASE}")
    if not absolute:
        axes.axvline(1.0, color="black", linewidth=0.8)
    axes.legend(fontsize="small")
    where = content["surroundings"]
    axes.set_title(f"{content['benchmark']}: {where['device']}, torch {where['torch']}", fontsize="medium")
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, dpi=120)
    plt.close(drawing)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--figures", nargs="+", metavar="NAME", help="default: all times and the memory")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="default: beside each file")
    parser.add_argument("--absolute", action="store_true", help="times themselves instead of ratios to Inductor")
    options = parser.parse_args(arguments)
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print(NO_MATPLOTLIB, file=sys.stderr)
        return 2
    for file in options.files:
        try:
            content = result_file.load(file)
        except result_file.Unusable as error:
            print(error, file=sys.stderr)
            return 2
        for figure in options.figures or [f for f in figures_of(content) if f not in NOT_DRAWN]:
            path = (options.out or file.parent) / f"{file.stem}_{figure}.png"
            print(path if draw(content, figure, options.absolute, path) else f"{file}: no {figure}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
