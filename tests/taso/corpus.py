"""Checking the texts of the corpus against its own few operators."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tasodsl import syntax as s
from tasodsl.check import check
from tasodsl.diagnostics import Diagnostic
from tasodsl.parse import parse, parse_source
from tasodsl.source import Source

HERE = Path(__file__).parent


@cache
def operators() -> s.Module:
    return parse(Source("operators.taso", (HERE / "operators.taso").read_text(encoding="utf-8")))


def findings(path: Path) -> list[Diagnostic]:
    """What the parser or the checker finds in a file."""
    return findings_in(Source(path.name, path.read_text(encoding="utf-8")))


def findings_in(source: Source) -> list[Diagnostic]:
    module, problems = parse_source(source)
    return problems or check([module, operators()])[1]
