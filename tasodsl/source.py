"""Source texts and spans: every part of a syntax tree can print the line it came from."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """One text and the name it is reported under (a path, or a label such as "<text>")."""

    name: str
    text: str = field(repr=False)
    starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = [0, *(i + 1 for i, c in enumerate(self.text) if c == "\n")]
        object.__setattr__(self, "starts", tuple(starts))

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of a character offset, both from 1."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of line `number` (from 1), without its end."""
        start = self.starts[number - 1]
        end = self.starts[number] - 1 if number < len(self.starts) else len(self.text)
        return self.text[start:end].rstrip("\r")

    @staticmethod
    def read(path: Path) -> Source:
        """The file's text as UTF-8; OSError or UnicodeDecodeError as `Path.read_text` raises them."""
        return Source(str(path), path.read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Span:
    """The characters `start` up to `end` of a source."""

    source: Source
    start: int
    end: int

    @property
    def line(self) -> int:
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.position(self.start)[1]

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"


NOWHERE = Span(Source("<made>", ""), 0, 0)
"""The span of a tree made by a program rather than read from a text."""
