"""Comments (`#`) of a text, attached to the clauses of its declarations so that the printer can give them back.

A comment on a line of its own goes before the clause that follows it, one behind text goes after the clause on its
line, and one within a clause moves before it. After a declaration, indented comments are still its own (attached to a
clause number one past the last); others go before the next declaration, whose blocks keep their blank lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tasodsl import syntax as s
from tasodsl.parts import HEAD, head_end, parts

_TOKENS = re.compile(r'"[^"\n]*"|///[^\n]*|(?P<comment>#[^\n]*)')
_BLANK_NEXT = re.compile(r"[^\n]*\n[ \t\r]*(?:\n|$)")


@dataclass(slots=True)
class _Place:
    """A clause that comments can be attached to, and those attached so far."""

    declaration: int
    clause: int
    start: int
    end: int
    before: list[str] = field(default_factory=list[str])
    after: str | None = None


def place_comments(module: s.Module) -> s.Module:
    """The module with the comments of its text attached."""
    text = module.span.source.text
    comments = [m for m in _TOKENS.finditer(text) if m["comment"]]
    if not comments:
        return module
    places = [p for number, decl in enumerate(module.declarations) for p in _places(number, decl)]
    trailing: list[str] = []
    for found in comments:
        position = found.start()
        line_start = text.rfind("\n", 0, position) + 1
        alone = not text[line_start:position].strip("\ufeff \t")
        place = _place(places, position, alone, indented=position > line_start)
        comment = found["comment"].rstrip()
        if place is not None and not alone and place.after is None and position >= place.end:
            place.after = comment
            continue
        block = trailing if place is None else place.before
        block.append(comment)
        if (place is None or place.clause == HEAD) and _BLANK_NEXT.match(text, position):
            block.append("")
    while trailing and not trailing[-1]:
        trailing.pop()
    declarations = tuple(
        replace(decl, comments=_trivia([p for p in places if p.declaration == number]))
        for number, decl in enumerate(module.declarations)
    )
    return replace(module, declarations=declarations, trailing=tuple(trailing))


def _places(number: int, decl: s.AnyDecl) -> list[_Place]:
    clauses = parts(decl)
    return [
        _Place(number, HEAD, decl.span.start, head_end(decl)),
        *(_Place(number, k, part.span.start, part.span.end) for k, part in enumerate(clauses)),
        _Place(number, len(clauses), decl.span.end, decl.span.end),
    ]


def _place(places: Sequence[_Place], position: int, alone: bool, *, indented: bool) -> _Place | None:
    """Where a comment goes; None for the end of the module."""
    before = [p for p in places if p.start <= position]
    after = [p for p in places if p.start > position]
    if before and position < before[-1].end:
        return before[-1]
    if not alone:
        return next((p for p in reversed(before) if p.start < p.end), None)
    if before and before[-1].start == before[-1].end and indented:
        return before[-1]
    return after[0] if after else None


def _trivia(places: Sequence[_Place]) -> tuple[tuple[int, s.Trivia], ...]:
    return tuple((p.clause, s.Trivia(tuple(p.before), p.after)) for p in places if p.before or p.after)
