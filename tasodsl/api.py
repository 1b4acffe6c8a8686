"""The Python interface: load a model, optimize it, export it.

    model = tasodsl.load_onnx("model.onnx")
    faster = tasodsl.optimize(model, time=30)
    print(faster.report)
    tasodsl.export_onnx(faster, "faster.onnx")

Whatever a caller can mend is raised as `tasodsl.UserError`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tasodsl.errors import UserError
from tasodsl.files import copy_model, require_writable
from tasodsl.graph.onnx_in import load_model
from tasodsl.pipeline import Options, Silent, optimize_model
from tasodsl.report import Report
from tasodsl.rulebook import load_rulebook

__all__ = ["Model", "Report", "UserError", "export_onnx", "load_onnx", "optimize"]


@dataclass(frozen=True, slots=True)
class Model:
    """A model that lies in a file; an optimized one in a temporary file that goes with the last reference to it."""

    path: Path
    report: Report | None = None
    """What optimizing gained; None for a model that was only loaded."""
    folder: tempfile.TemporaryDirectory[str] | None = None
    """Keeps the temporary file."""


def load_onnx(path: str | os.PathLike[str]) -> Model:
    """The model in `path`; UserError when it is missing or no ONNX model."""
    load_model(Path(path))
    return Model(Path(path))


def optimize(
    model: Model,
    *,
    alpha: float = 1.05,
    budget: int = 20_000,
    time: float = 60.0,
    threads: int = 1,
    dims: Mapping[str, int] | None = None,
    rules: Sequence[str | os.PathLike[str]] = (),
    growth: float = 0.1,
    seed: int = 0,
) -> Model:
    """A model that gives the same outputs and is not slower; its `report` says what was gained.

    `alpha`: graphs that cost up to this many times the best are explored too. `budget`: rewrites to try at most.
    `time`: seconds to spend. `threads`: how many the model will run with. `dims`: sizes of symbolic dimensions to
    measure with. `rules`: `.taso` files or folders, instead of the shipped rules. `growth`: how much larger the file
    may become, as a part of its size.
    """
    options = Options(
        rules=tuple(Path(p) for p in rules),
        alpha=alpha,
        budget=budget,
        seconds=time,
        threads=threads,
        dims=dims or {},
        growth=growth,
        seed=seed,
    )
    folder = tempfile.TemporaryDirectory(prefix="tasodsl-")
    rulebook, carried = load_rulebook(options.rules), load_model(model.path)
    rewriter = rulebook.rewriter(carried.opset)
    outcome = optimize_model(carried, model.path, rewriter, options, Path(folder.name), Silent())
    if outcome.report.kept:
        return replace(model, report=outcome.report)
    return Model(outcome.chosen, outcome.report, folder)


def export_onnx(model: Model, path: str | os.PathLike[str]) -> None:
    """Write the model to `path`, whole or not at all."""
    require_writable(Path(path))
    copy_model(model.path, Path(path))
