"""Diagnostics: what is wrong with a text, where, and what to do about it. Passes return them and print nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal

from tasodsl.source import Span


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `code` is stable (`E0103`; W warns); `label` stands by the caret; `help` says how to mend it."""

    code: str
    message: str
    span: Span
    label: str = ""
    help: str = ""
    severity: Literal["error", "warning"] = "error"
    notes: tuple[tuple[Span, str], ...] = ()
    """Further places that matter, each with its own line of text."""


class TasoError(Exception):
    """Raised where a caller asked for a valid rule set and the text has errors."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        super().__init__("; ".join(f"{d.span}: {d.message}" for d in diagnostics[:3]))
        self.diagnostics = diagnostics


@dataclass(slots=True)
class Findings:
    """Where a pass collects what it finds. The same finding at the same place is kept once."""

    found: list[Diagnostic] = field(default_factory=list[Diagnostic])

    def error(
        self,
        code: str,
        message: str,
        span: Span,
        label: str = "",
        help: str = "",
        notes: tuple[tuple[Span, str], ...] = (),
    ) -> None:
        self._add(Diagnostic(code, message, span, label, help, "error", notes))

    def warning(self, code: str, message: str, span: Span, label: str = "", help: str = "") -> None:
        self._add(Diagnostic(code, message, span, label, help, "warning"))

    def _add(self, diagnostic: Diagnostic) -> None:
        if diagnostic not in self.found:
            self.found.append(diagnostic)


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """The help text for an unknown word: the known one most like it."""
    names = sorted(set(known))
    like = get_close_matches(word, names, 1, 0.6) or [n for n in names if n.lower() == word.lower()]
    return f"did you mean `{like[0]}`?" if like else otherwise


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """Whether any of them forbids the use of the text."""
    return any(d.severity == "error" for d in diagnostics)
