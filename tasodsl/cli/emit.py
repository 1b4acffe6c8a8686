"""Printing diagnostics: in colour on a terminal, and whatever the encoding of the stream can hold."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TextIO

from tasodsl.diagnostics import Diagnostic
from tasodsl.render import render_all


def emit(text: str, stream: TextIO) -> None:
    """Write `text`; characters that the stream's encoding lacks become `?`."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding))


def emit_diagnostics(diagnostics: Sequence[Diagnostic], stream: TextIO) -> None:
    """Write all the diagnostics with a count at the end."""
    color = stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    emit(render_all(diagnostics, color), stream)


def to_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """A diagnostic as plain data; lines and columns count from 1, ends are exclusive."""
    span = diagnostic.span
    end_line, end_column = span.source.position(span.end)
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        "file": span.source.name,
        "line": span.line,
        "column": span.column,
        "end_line": end_line,
        "end_column": end_column,
        "label": diagnostic.label,
        "help": diagnostic.help,
        "notes": [
            {"file": s.source.name, "line": s.line, "column": s.column, "message": text} for s, text in diagnostic.notes
        ],
    }
