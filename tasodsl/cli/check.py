"""`tasodsl check`: whether rule files are well formed, without proving anything."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from tasodsl.cli.safely import run_safely


def command(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH", help="Rule files, or folders of them.", show_default=False)
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check rule files: syntax, names, operators, attributes, shapes. The shipped operators are known to them.

    Exits 0 when there are no errors (warnings are shown), 1 when there are, and 2 on wrong usage.
    """

    def job() -> int:
        from tasodsl.check import load_rules
        from tasodsl.cli.emit import emit, emit_diagnostics, to_json
        from tasodsl.diagnostics import has_errors

        rules, found = load_rules(paths)
        if as_json:
            emit(json.dumps([to_json(d) for d in found], indent=2, ensure_ascii=False) + "\n", sys.stdout)
        else:
            emit_diagnostics(found, sys.stdout)
            if not has_errors(found):
                counts = [(len(rules.rules), "rule"), (len(rules.axioms), "axiom"), (len(rules.ops), "operator")]
                emit(
                    ", ".join(f"{n} {word}{'s' if n != 1 else ''}" for n, word in counts) + ": no errors\n", sys.stdout
                )
        return 1 if has_errors(found) else 0

    run_safely(job)
