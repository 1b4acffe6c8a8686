"""The corpus: each file in `fail/` has one fault and a whole expected message, each in `pass/` has none."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from corpus import HERE, findings, operators

from tasodsl.check import check
from tasodsl.render import render_all

FAIL = sorted((HERE / "fail").glob("*.taso"))
PASS = sorted((HERE / "pass").glob("*.taso"))


def name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", FAIL, ids=name)
def test_a_fault_gets_its_message(path: Path, golden: Callable[[Path, str], None]) -> None:
    golden(path.with_suffix(".expected"), render_all(findings(path)))


@pytest.mark.parametrize("path", PASS, ids=name)
def test_a_text_without_faults_gets_no_message(path: Path) -> None:
    assert render_all(findings(path)) == ""


def test_the_corpus_is_large_and_every_file_finds_something() -> None:
    assert len(FAIL) >= 100
    assert all(findings(path) for path in FAIL)


def test_every_expected_message_belongs_to_a_text() -> None:
    assert {p.stem for p in (HERE / "fail").glob("*.expected")} == {p.stem for p in FAIL}


def test_the_operators_of_the_corpus_are_well_formed() -> None:
    assert render_all(check([operators()])[1]) == ""


def test_every_code_is_documented_and_in_the_corpus() -> None:
    package = HERE.parents[1] / "tasodsl"
    used = {c for p in package.glob("*.py") for c in re.findall(r'"([EW]0\d{3})"', p.read_text(encoding="utf-8"))}
    documented = re.findall(
        r"^\| ([EW]\d{4}) \|", (HERE.parents[1] / "docs" / "errors.md").read_text("utf-8"), re.MULTILINE
    )
    assert documented == sorted(used)
    shown = {c for p in FAIL for c in re.findall(r"\[([EW]\d{4})\]", p.with_suffix(".expected").read_text("utf-8"))}
    # Files that cannot be read are the command's tests, and nesting has its own.
    assert used - shown <= {"E0001", "E0002", "E0003", "E0112"}
