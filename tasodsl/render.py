"""Diagnostics as text: the message, the place, the line with a caret under it, and what to do.

Plain text is the form that tests and pipes see; `color` adds ANSI colours. Columns are counted in characters; the
caret is placed by the width that a terminal gives them, with tabs as blanks.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

from tasodsl.diagnostics import Diagnostic
from tasodsl.source import Span

TAB = 4
Painter = Callable[[str, str], str]
_RED, _YELLOW, _BLUE, _BOLD, _RESET = "\x1b[1;31m", "\x1b[1;33m", "\x1b[1;34m", "\x1b[1m", "\x1b[0m"


def render_all(diagnostics: Sequence[Diagnostic], color: bool = False) -> str:
    """All of them with a blank line between, and a line that counts them at the end; empty for none."""
    if not diagnostics:
        return ""
    return "\n".join([render(d, color) for d in diagnostics] + [summary(diagnostics) + "\n"])


def summary(diagnostics: Sequence[Diagnostic]) -> str:
    """`3 errors, 1 warning`."""
    errors = sum(d.severity == "error" for d in diagnostics)
    counts = [(errors, "error"), (len(diagnostics) - errors, "warning")]
    return ", ".join(f"{n} {word}{'s' if n != 1 else ''}" for n, word in counts if n) or "no errors"


def render(diagnostic: Diagnostic, color: bool = False) -> str:
    """One diagnostic, ending in a newline."""
    paint = _painter(color)
    tone = _RED if diagnostic.severity == "error" else _YELLOW
    lines = [
        paint(f"{diagnostic.severity}[{diagnostic.code}]", tone) + paint(f": {printable(diagnostic.message)}", _BOLD)
    ]
    places = [(diagnostic.span, diagnostic.label, "-->", "^", tone)]
    places += [(span, label, ":::", "-", _BLUE) for span, label in diagnostic.notes]
    margin = max(len(str(span.line)) for span, *_ in places)
    for span, label, arrow, mark, mark_tone in places:
        lines += _excerpt(span, label, arrow, mark, margin, paint, mark_tone)
    if diagnostic.help:
        lines.append(" " * margin + paint(" = ", _BLUE) + f"help: {printable(diagnostic.help)}")
    return "\n".join(lines) + "\n"


def _painter(color: bool) -> Painter:
    return (lambda text, tone: f"{tone}{text}{_RESET}") if color else (lambda text, tone: text)


def _excerpt(span: Span, label: str, arrow: str, mark: str, margin: int, paint: Painter, tone: str) -> list[str]:
    source, start = span.source, span.start
    if not source.text:
        return [" " * margin + paint(arrow, _BLUE) + f" {source.name}"]
    number, column = source.position(start)
    line = source.line(number)
    if column > len(line) + 1:  # at the end of a line that ends in a carriage return
        column = len(line) + 1
    before, rest = line[: column - 1], line[column - 1 :]
    # Of a span over several lines the first is shown.
    marked = rest[: max(0, span.end - start)].rstrip()
    pad = " " * width(before)
    carets = mark * max(1, width(marked))
    bar = paint("|", _BLUE)
    return [
        " " * margin + paint(arrow, _BLUE) + f" {source.name}:{number}:{column}",
        " " * margin + f" {bar}",
        paint(str(number).rjust(margin), _BLUE) + f" {bar} {expanded(line)}".rstrip(),
        " " * margin + f" {bar} {pad}" + paint(f"{carets} {printable(label)}".rstrip(), tone),
    ]


def expanded(line: str) -> str:
    """The line as shown: tabs as blanks, and characters that would upset a terminal as a mark."""
    return "".join(_shown(c) for c in line)


def width(text: str) -> int:
    """The columns that `text` takes on a terminal."""
    return sum(_width(c) for c in text)


def _shown(char: str) -> str:
    if char == "\t":
        return " " * TAB
    return char if char.isprintable() or unicodedata.category(char) == "Zs" else "\N{REPLACEMENT CHARACTER}"


def _width(char: str) -> int:
    if char == "\t":
        return TAB
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def printable(text: str) -> str:
    """Text of a message without what would upset a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
