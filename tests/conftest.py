"""What all tests share: `pytest --update-golden` writes what golden files should hold instead of comparing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files from what the code does now")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compares a text with a golden file, or writes the file when asked to."""
    update = bool(request.config.getoption("--update-golden"))

    def check(path: Path, actual: str) -> None:
        if update:
            path.write_text(actual, encoding="utf-8")
        assert path.exists(), f"there is no {path}: run pytest --update-golden and look at what it writes"
        assert actual == path.read_text(encoding="utf-8")

    return check
