"""Text that breaks into lines where it does not fit: a small language of documents, and their layout at a width.

A `Group` is laid out on one line if it fits, else each `Line` directly in it becomes a new line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Line:
    """A blank, or nothing, where the group fits; else a new line."""

    flat: str = " "


@dataclass(frozen=True, slots=True)
class Nest:
    """New lines in `body` begin further right: by `by` columns, or where the body itself begins if `by` is None."""

    by: int | None
    body: Doc


@dataclass(frozen=True, slots=True)
class Group:
    body: Doc


Doc: TypeAlias = "str | Line | Nest | Group | tuple[Doc, ...]"


def joined(parts: Sequence[Doc], separator: Doc) -> Doc:
    """The parts with a separator between each two."""
    out: list[Doc] = []
    for k, part in enumerate(parts):
        if k:
            out.append(separator)
        out.append(part)
    return tuple(out)


def layout(doc: Doc, width: int, column: int = 0) -> str:
    """The text of a document that begins at `column`."""
    out: list[str] = []
    at = column
    todo: list[tuple[int, bool, Doc]] = [(column, False, doc)]
    while todo:
        indent, flat, part = todo.pop()
        match part:
            case str():
                out.append(part)
                at += len(part)
            case Line():
                if flat:
                    out.append(part.flat)
                    at += len(part.flat)
                else:
                    out.append("\n" + " " * indent)
                    at = indent
            case Nest():
                todo.append((at if part.by is None else indent + part.by, flat, part.body))
            case Group():
                todo.append((indent, flat or _fits(part.body, todo, width - at), part.body))
            case tuple():
                todo.extend((indent, flat, p) for p in reversed(part))
    return "".join(out)


def _fits(doc: Doc, after: Sequence[tuple[int, bool, Doc]], room: int) -> bool:
    """Whether `doc` on one line, with what follows it up to the next possible new line, takes no more than `room`."""
    todo: list[tuple[bool, Doc]] = [(flat, part) for _, flat, part in after]
    todo.append((True, doc))
    while todo and room >= 0:
        flat, part = todo.pop()
        match part:
            case str():
                room -= len(part)
            case Line():
                if not flat:
                    return True
                room -= len(part.flat)
            case Nest() | Group():
                todo.append((flat, part.body))
            case tuple():
                todo.extend((flat, p) for p in reversed(part))
    return room >= 0
