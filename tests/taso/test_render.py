"""Diagnostics as text: the caret under the right characters, whatever the line holds."""

from __future__ import annotations

import re

from tasodsl.diagnostics import Diagnostic
from tasodsl.render import render, render_all, summary
from tasodsl.source import Source, Span


def error_at(text: str, start: int, end: int, label: str = "here") -> Diagnostic:
    return Diagnostic("E0999", "a message", Span(Source("f.taso", text), start, end), label)


def lines(diagnostic: Diagnostic) -> list[str]:
    return render(diagnostic).splitlines()


def test_the_parts_of_a_message() -> None:
    span = Span(Source("f.taso", "a = b\nc = d\n"), 10, 11)
    note = (Span(span.source, 0, 1), "first")
    assert render(Diagnostic("W0999", "odd", span, "this", "do that", "warning", (note,))) == (
        "warning[W0999]: odd\n"
        " --> f.taso:2:5\n"
        "  |\n"
        "2 | c = d\n"
        "  |     ^ this\n"
        " ::: f.taso:1:1\n"
        "  |\n"
        "1 | a = b\n"
        "  | - first\n"
        "  = help: do that\n"
    )


def test_tabs_are_four_blanks_and_wide_characters_two_columns() -> None:
    assert lines(error_at("\tx", 1, 2))[3:] == ["1 |     x", "  |     ^ here"]
    assert lines(error_at("漢字 x", 3, 4))[4] == "  |      ^ here"
    assert lines(error_at("漢字 x", 0, 2))[4] == "  | ^^^^ here"
    assert lines(error_at("e\N{COMBINING ACUTE ACCENT}x", 2, 3))[4] == "  |  ^ here"


def test_of_several_lines_the_first_is_marked() -> None:
    assert lines(error_at("ab\ncd\n", 1, 5))[3:] == ["1 | ab", "  |  ^ here"]


def test_the_end_of_a_text_can_be_marked() -> None:
    assert lines(error_at("ab", 2, 2))[4] == "  |   ^ here"
    assert lines(error_at("ab\n", 3, 3))[1] == " --> f.taso:2:1"
    assert lines(error_at("", 0, 0))[1:] == [" --> f.taso"]


def test_line_ends_of_another_system_are_not_shown() -> None:
    shown = render(error_at("ab\r\ncd\r\n", 2, 3))
    assert "\r" not in shown
    assert shown.splitlines()[4] == "  |   ^ here"


def test_what_would_upset_a_terminal_is_not_printed() -> None:
    shown = render(error_at("a\x1b[31m\0b", 0, 1))
    assert "\x1b" not in shown
    assert "\0" not in shown


def test_line_numbers_share_a_margin() -> None:
    text = "x\n" * 12
    diagnostic = Diagnostic(
        "E0999", "m", Span(Source("f", text), 22, 23), "", "", "error", ((Span(Source("f", text), 0, 1), "n"),)
    )
    assert [line[:4] for line in lines(diagnostic)[1:]] == [
        "  --",
        "   |",
        "12 |",
        "   |",
        "  ::",
        "   |",
        " 1 |",
        "   |",
    ]


def test_colour_adds_nothing_but_colour() -> None:
    diagnostics = [error_at("abc", 1, 2), error_at("\tabc", 2, 3)]
    assert re.sub(r"\x1b\[[0-9;]*m", "", render_all(diagnostics, color=True)) == render_all(diagnostics)
    assert "\x1b[" in render_all(diagnostics, color=True)


def test_the_count() -> None:
    error = error_at("a", 0, 1)
    warning = Diagnostic("W0999", "m", error.span, severity="warning")
    assert summary([error]) == "1 error"
    assert summary([error, error, warning]) == "2 errors, 1 warning"
    assert summary([warning, warning]) == "2 warnings"
    assert render_all([]) == ""
