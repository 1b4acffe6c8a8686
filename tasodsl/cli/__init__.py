"""The command line `tasodsl`: this module knows which commands there are; each lies in a module of its own.

A command's module imports nothing heavy (onnx, onnxruntime, z3) before the command runs, so that `--help` is quick.
"""

from __future__ import annotations

import sys

import typer

from tasodsl.cli import check, fmt, optimize, verify
from tasodsl.cli.safely import INTERRUPTED

app = typer.Typer(
    name="tasodsl",
    help="Graph substitutions for ONNX models, written as text: check them, prove them, make models faster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("optimize")(optimize.command)
app.command("check")(check.command)
app.command("fmt")(fmt.command)
app.command("verify")(verify.command)


def main() -> None:
    """The console script."""
    try:
        app()
    except KeyboardInterrupt:  # before a command began, or after it ended
        sys.exit(INTERRUPTED)
