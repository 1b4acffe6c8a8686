"""`tasodsl optimize`: a faster ONNX file from an ONNX file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tasodsl.cli.safely import INTERRUPTED, run_safely
from tasodsl.errors import UsageError


def command(
    source: Annotated[Path, typer.Argument(metavar="IN.onnx", help="The model to make faster.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="OUT.onnx", help="Where to write. Default: IN.opt.onnx.")
    ] = None,
    rules: Annotated[
        list[Path] | None,
        typer.Option(
            "--rules", metavar="PATH", help="A .taso file or folder instead of the shipped rules. Repeatable."
        ),
    ] = None,
    alpha: Annotated[
        float, typer.Option(help="Also explore graphs that cost up to this many times the best.", min=1.0)
    ] = 1.05,
    budget: Annotated[int, typer.Option(help="How many rewrites to try at most.", min=0)] = 20_000,
    time: Annotated[float, typer.Option(help="Seconds to spend, measuring included.", min=0.0)] = 60.0,
    threads: Annotated[int, typer.Option(help="Threads that the model will run with.", min=1)] = 1,
    dims: Annotated[
        list[str] | None,
        typer.Option(
            "--dims",
            metavar="NAME=N,…",
            help="Sizes of symbolic dimensions to measure with; the model keeps them symbolic. Repeatable.",
        ),
    ] = None,
    growth: Annotated[
        float, typer.Option(help="How much larger the file may become, as a part of its size.", min=0.0)
    ] = 0.1,
    seed: Annotated[int, typer.Option(help="Random seed of the search and of the test inputs.", min=0)] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the report as JSON too; - for stdout.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Make a model faster: the result is compared with the original and is never slower.

    Exits 0 when done, 1 when the job failed, 2 on wrong usage, and 130 after Ctrl-C (the best found so far is written).
    """

    def job() -> int:
        from tasodsl.cli.show import Display
        from tasodsl.pipeline import Options, optimize_file

        options = Options(
            rules=tuple(rules or ()),
            alpha=alpha,
            budget=budget,
            seconds=time,
            threads=threads,
            dims=parse_dims(dims or ()),
            growth=growth,
            seed=seed,
        )
        target = output or default_output(source)
        to_stdout = json_file == Path("-")
        with Display(quiet=quiet) as display:
            report = optimize_file(source, target, options, display, json_file=None if to_stdout else json_file)
        if to_stdout:
            print(json.dumps(report.to_json(), indent=2))
        display.finish(source, target, report, table_on_stderr=to_stdout)
        return INTERRUPTED if report.interrupted else 0

    run_safely(job)


def default_output(source: Path) -> Path:
    """`IN.opt.onnx` beside `IN.onnx`."""
    stem = source.name.removesuffix(".onnx")
    return source.with_name(stem + ".opt.onnx")


def parse_dims(texts: Sequence[str]) -> dict[str, int]:
    """The sizes of `NAME=N,NAME=N`."""
    sizes: dict[str, int] = {}
    for item in (item for text in texts for item in text.split(",")):
        name, equals, number = item.strip().rpartition("=")
        if not equals or not name or not number.strip().isdecimal() or int(number) < 1:
            raise UsageError(f"--dims wants NAME=N with a positive whole number N, not {item.strip()!r}")
        if sizes.setdefault(name.strip(), int(number)) != int(number):
            raise UsageError(f"--dims gives {name.strip()!r} two sizes")
    return sizes
