"""Optimize a folder of real networks and print what was gained, next to what the result must reach.

usage: networks.py FOLDER [--time SECONDS] [--only NAME]

FOLDER is filled by `python ../shared/models/fetch.py FOLDER`. A network passes when its result is valid (ONNX's full
check), equal within the runtime's own noise (4 times the difference between the original with and without runtime
optimization, or 1e-4 relative), at least 0.98 times as fast as the original under full runtime optimization on one
thread, and has at most as many nodes as onnxslim leaves, or is faster than onnxslim's result. Exits 1 unless all do.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tasodsl.cost.timing import compare
from tasodsl.equality import check_equal, make_feeds
from tasodsl.pipeline import is_valid, node_count

DIMS = {"det": (1, 3, 640, 640), "rec": (1, 3, 48, 320), "cls": (1, 3, 48, 192)}
"""What to time the networks with free height and width with: a part of the file's name, and the input's shape."""
LEAST_RATIO = 0.98
FASTER = 1.02
"""From here on a ratio says that more nodes are faster."""
TIMING_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Row:
    """One network's result."""

    name: str
    nodes: tuple[int, int, int]
    """Of the original, of the result, of onnxslim's."""
    valid: bool
    difference: float
    equal: bool
    ratio: float
    quartiles: tuple[float, float]
    slim_ratio: float
    """The original's time over that of onnxslim's result."""

    @property
    def passes(self) -> bool:
        small = self.nodes[1] <= self.nodes[2] or self.ratio >= FASTER * self.slim_ratio
        return self.valid and self.equal and self.ratio >= LEAST_RATIO and small


def input_dims(path: Path) -> dict[str, int]:
    """Sizes for the network's free dimensions, by INPUT.AXIS."""
    shape = next((shape for part, shape in DIMS.items() if part in path.stem.split("_")), None)
    return {f"x.{axis}": size for axis, size in enumerate(shape)} if shape else {}


def judge(path: Path, seconds: float, folder: Path) -> Row:
    """Optimize one network as a person would, and measure the result afresh."""
    dims = input_dims(path)
    result, slim = folder / f"{path.stem}.opt.onnx", folder / f"{path.stem}.slim.onnx"
    words = [sys.executable, "-m", "tasodsl", "optimize", str(path), "-o", str(result), "--time", str(seconds)]
    words += ["--dims", ",".join(f"{name}={size}" for name, size in dims.items())] if dims else []
    subprocess.run(words, check=True)
    subprocess.run([sys.executable, "-m", "onnxslim", str(path), str(slim)], check=True, capture_output=True)
    feeds = make_feeds(path, dims, seed=1)
    equality = check_equal(path, result, [], feeds)
    ours, theirs = compare(path, [result, slim], feeds, threads=1, seconds=TIMING_SECONDS)
    largest = equality.largest
    return Row(
        path.stem,
        (node_count(path), node_count(result), node_count(slim)),
        is_valid(result),
        largest.relative if largest else 0.0,
        equality.equal,
        ours.ratio,
        (ours.low, ours.high),
        theirs.ratio,
    )


def table_of(rows: list[Row]) -> Table:
    table = Table(box=None)
    for title in (
        "network",
        "nodes",
        "ours",
        "onnxslim",
        "valid",
        "difference",
        "ratio",
        "quartiles",
        "onnxslim's",
        "",
    ):
        table.add_column(title, justify="left" if title in ("network", "") else "right")
    for r in rows:
        table.add_row(
            r.name,
            *(str(n) for n in r.nodes),
            "yes" if r.valid else "NO",
            f"{r.difference:.1e}" + ("" if r.equal else " TOO FAR"),
            f"{r.ratio:.3f}",
            f"{r.quartiles[0]:.3f}-{r.quartiles[1]:.3f}",
            f"{r.slim_ratio:.3f}",
            "passes" if r.passes else "FAILS",
        )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--time", type=float, default=60.0)
    parser.add_argument("--only", default="", help="only networks with this in their name")
    given = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        for path in sorted(given.folder.glob("*.onnx")):
            if given.only in path.stem:
                rows.append(judge(path, given.time, Path(scratch)))
    Console(width=140).print(table_of(rows))
    return 0 if rows and all(r.passes for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
