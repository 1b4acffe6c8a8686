"""What `optimize` shows: its progress while it works (on a terminal only) and a table at the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tasodsl.report import Report
from tasodsl.search.greedy import Progress


class Display:
    """A listener of the pipeline that draws one line on stderr while the pipeline runs."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=quiet or not Console(stderr=True).is_terminal,
        )
        self._task = self._bar.add_task("starting", total=None)

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def stage(self, what: str) -> None:
        self._bar.update(self._task, description=what)

    def progress(self, progress: Progress) -> None:
        gain = progress.first_seconds / progress.best_seconds if progress.best_seconds > 0 else 1.0
        self.stage(
            f"searching: {progress.tried} rewrites tried, {progress.applied} applied, "
            f"estimated {milliseconds(progress.best_seconds)} ({gain:.2f}x)"
        )

    def warn(self, message: str) -> None:
        if not self._quiet:
            self._bar.console.print(Text(f"warning: {message}"), soft_wrap=True)

    def finish(self, source: Path, target: Path, report: Report, *, table_on_stderr: bool) -> None:
        """The final table; nothing when quiet."""
        if self._quiet:
            return
        console = Console(stderr=table_on_stderr, highlight=False)
        console.print(report_table(report))
        console.print(Text(closing_line(source, target, report)), soft_wrap=True)


def report_table(report: Report) -> Table:
    """Before and after, and what was done."""
    table = Table(show_edge=False, pad_edge=False, box=None)
    table.add_column("")
    for title in ("before", "after", "ratio"):
        table.add_column(title, justify="right")
    table.add_row("nodes", str(report.nodes_before), str(report.nodes_after), "")
    table.add_row("file", megabytes(report.bytes_before), megabytes(report.bytes_after), "")
    before, after = report.estimated_before, report.estimated_after
    table.add_row("estimated time", milliseconds(before), milliseconds(after), ratio(before, after))
    if report.measured_before is not None and report.measured_after is not None and report.ratio is not None:
        measured = milliseconds(report.measured_before), milliseconds(report.measured_after)
        table.add_row("measured time", *measured, f"{report.ratio:.2f}x")
    if report.largest_difference is not None:
        table.add_row("largest output difference", "", f"{report.largest_difference:.1e}", "")
    if report.runtime_noise is not None:
        table.add_row("  (the runtime's own)", f"{report.runtime_noise:.1e}", "", "")
    _counts(table, "rules", report.rules)
    _counts(table, "clean-up", report.simplifications)
    return table


def closing_line(source: Path, target: Path, report: Report) -> str:
    """What was written where."""
    if report.kept:
        return f"{_began(report)}{target} is {source} as it was: {report.kept}"
    return f"{_began(report)}written to {target}"


def _began(report: Report) -> str:
    return "interrupted; this is the best found so far. " if report.interrupted else ""


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def megabytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB"


def ratio(before: float, after: float) -> str:
    return f"{before / after:.2f}x" if after > 0 else ""


def _counts(table: Table, title: str, counts: Mapping[str, int]) -> None:
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        table.add_row(f"{title}: {name}", "", str(count), "")
        title = " " * len(title)
