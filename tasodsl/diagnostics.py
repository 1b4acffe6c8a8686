"""Diagnostics: what is wrong with a text, where, and what to do about it. Passes return lists of them; nothing is printed here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tasodsl.source import Span


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `code` is stable (`E0103`; W for warnings); `label` stands under the caret; `help` says how to mend it."""

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
