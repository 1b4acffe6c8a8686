"""Running a command in this process."""

from __future__ import annotations

from typing import NamedTuple

from typer.testing import CliRunner

from tasodsl.cli import app


class Done(NamedTuple):
    """How a command ended, and all it printed."""

    exit_code: int
    output: str


def run(*args: object) -> Done:
    result = CliRunner().invoke(app, [str(a) for a in args])
    return Done(result.exit_code, result.output)
