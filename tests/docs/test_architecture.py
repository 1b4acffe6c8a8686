"""The table of parts in docs/architecture.md is whole, and imports go up in it only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tasodsl"
DOORS = {"__init__", "__main__"}
TO_MEND = {"prove.report imports cli.emit"}
"""Imports down the table that are known faults; no more may come."""


def parts() -> list[list[str]]:
    """The names in each row of the table, as patterns of paths within the package."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    return [re.findall(r"`([^`]+)`", row) for row in rows]


def row_of(module: str) -> int | None:
    """The row that a module (`graph.dims`) belongs to."""
    path = Path(*module.split("."))
    for k, names in enumerate(parts()):
        for name in names:
            if name.endswith("/") and path.parts[0] == name[:-1]:
                return k
            if len(path.parts) == 1 and path.with_suffix(".py").match(name):
                return k
    return None


def modules() -> list[str]:
    return [".".join(p.relative_to(PACKAGE).with_suffix("").parts) for p in sorted(PACKAGE.rglob("*.py"))]


def imports(module: str) -> Iterator[str]:
    path = PACKAGE.joinpath(*module.split(".")).with_suffix(".py")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "tasodsl":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tasodsl."):
            assert node.module is not None
            yield node.module.removeprefix("tasodsl.")


def test_every_module_has_a_place_in_the_table() -> None:
    assert [m for m in modules() if m not in DOORS and row_of(m) is None] == []


def test_imports_go_up_in_the_table() -> None:
    down: set[str] = set()
    for module in (m for m in modules() if m not in DOORS):
        here = row_of(module)
        for other in imports(module):
            there = row_of(other)
            if here is not None and there is not None and there > here:
                down.add(f"{module} imports {other}")
    assert down - TO_MEND == set()
