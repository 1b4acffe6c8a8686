"""`tasodsl verify`: whether rules are true."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tasodsl.cli.safely import run_safely

if TYPE_CHECKING:
    from tasodsl.prove.verdict import Verdict
    from tasodsl.ruleset import RuleSet


def command(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH", help="Rule files, or folders of them.", show_default=False)
    ],
    time_limit: Annotated[float, typer.Option("--time-limit", help="Seconds for a proof.", min=0.1)] = 20.0,
    jobs: Annotated[int, typer.Option(help="Rules proved at a time; 0: as many as there are cores.", min=0)] = 0,
    cold: Annotated[bool, typer.Option("--cold", "--no-lock", help="Prove everything, whatever is on record.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdicts as JSON.")] = False,
) -> None:
    """Prove rules and axioms, or show where they are wrong. Proofs are kept until something they rest on changes.

    Exits 0 when all are proved (or waived by `unproved`), 1 when not, and 2 on wrong usage.
    """

    def job() -> int:
        from tasodsl.check import load_rules
        from tasodsl.cli.emit import emit, emit_diagnostics
        from tasodsl.diagnostics import has_errors
        from tasodsl.prove.driver import claims, verdicts_of
        from tasodsl.prove.report import to_json

        rules, found = load_rules(paths)
        if has_errors(found):
            emit_diagnostics(found, sys.stderr)
            return 1
        asked = claims(within(rules, paths))
        with progress(len(asked)) as done:
            verdicts = verdicts_of(rules, asked, time_limit, jobs or os.cpu_count() or 1, cold, done)
        if as_json:
            emit(json.dumps([to_json(v) for v in verdicts], indent=2, ensure_ascii=False) + "\n", sys.stdout)
        else:
            emit(report(verdicts, sys.stdout.isatty() and "NO_COLOR" not in os.environ), sys.stdout)
        return 0 if all(v.holds for v in verdicts) else 1

    run_safely(job)


def within(rules: RuleSet, paths: Sequence[Path]) -> RuleSet:
    """The declarations that lie in the files and folders given: the shipped operators are known besides them."""
    from tasodsl.ruleset import RuleSet

    folders = {p.resolve() for p in paths}
    everything = (*rules.ops.values(), *rules.fns.values(), *rules.axioms.values(), *rules.rules.values())

    def asked(file: str) -> bool:
        path = Path(file).resolve()
        return path in folders or not folders.isdisjoint(path.parents)

    return RuleSet.of(d for d in everything if asked(d.span.source.name))


@contextmanager
def progress(count: int) -> Generator[Callable[[Verdict], None]]:
    """A bar on stderr while the verdicts come; on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=count)
        yield lambda verdict: bar.update(task, advance=1, description=f"{verdict.name}: {verdict.status}")


def report(verdicts: Sequence[Verdict], color: bool) -> str:
    """A line for each verdict, what is wrong below, and a count."""
    from tasodsl.prove.report import explain
    from tasodsl.prove.verdict import summary

    rows = [("rule", "verdict", "engine", "scope", "seconds")]
    rows += [
        (v.name, v.status, v.engine, v.scope_text, "on record" if v.locked else f"{v.seconds:.2f}") for v in verdicts
    ]
    widths = [max(len(row[k]) for row in rows) for k in range(5)]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    wrong = [explain(v, color) for v in verdicts if not v.holds]
    return "\n".join(["\n".join(lines), *wrong, summary(verdicts)]) + "\n"
