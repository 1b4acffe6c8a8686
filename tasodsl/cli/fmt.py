"""`tasodsl fmt`: rule files in the one layout."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tasodsl.cli.safely import run_safely


def command(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH", help="Rule files, or folders of them.", show_default=False)
    ],
    check: Annotated[bool, typer.Option("--check", help="Change nothing; say which files would change.")] = False,
) -> None:
    """Format rule files in place. A file with syntax errors is left as it is.

    Exits 0 when all is well, 1 when a file has errors or, with --check, would change, and 2 on wrong usage.
    """

    def job() -> int:
        from tasodsl.cli.emit import emit, emit_diagnostics
        from tasodsl.load import find_files, read_source
        from tasodsl.printer import formatted

        files, problems = find_files(paths)
        changed = 0
        for file in files:
            source, unread = read_source(file)
            problems += unread
            if source is None:
                continue
            text, errors = formatted(source)
            problems += errors
            if text is None or text == source.text:
                continue
            changed += 1
            if not check:
                write_whole(file, text)
            emit(f"{'would format' if check else 'formatted'} {file}\n", sys.stdout)
        emit_diagnostics(problems, sys.stderr)
        if not changed and not problems:
            emit(f"{len(files)} file{'s' if len(files) != 1 else ''} in the one layout already\n", sys.stdout)
        return 1 if problems or (check and changed) else 0

    run_safely(job)


def write_whole(path: Path, text: str) -> None:
    """Put `text` in the place of a file's content, whole or not at all; a link stays a link to the file it names."""
    target = path.resolve()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, target.stat().st_mode & 0o7777)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
