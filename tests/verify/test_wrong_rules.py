"""Wrong rules, one fault each: none is ever proved, and the verdict on each is the one in its golden file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tasodsl.check import load_rules
from tasodsl.diagnostics import has_errors
from tasodsl.prove.driver import claims
from tasodsl.prove.report import explain
from tasodsl.prove.verify import judge
from tasodsl.resources import rules_path

WRONG = Path("tests/verify/wrong")
FILES = sorted(WRONG.glob("*.taso"))
SECONDS = 3.0
NO_COUNTEREXAMPLE = {
    "absorbed_infinity", "comparison_of_nan", "infinity_exposed", "unknown", "vacuous",
}  # fmt: skip


def test_there_are_enough_of_them():
    assert len(FILES) >= 45


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_verdict(file: Path, golden: Callable[[Path, str], None]):
    rules, found = load_rules([file])
    assert not has_errors(found)
    (claim,) = [c for c in claims(rules) if c.span.source.name == str(file)]
    verdict = judge(claim, rules, SECONDS)
    assert verdict.status not in ("proved", "contradiction")
    assert not verdict.holds
    if file.stem not in NO_COUNTEREXAMPLE:
        assert verdict.counterexample is not None
        assert verdict.counterexample.confirmed
        assert all(array.size <= 8 for _, array in verdict.counterexample.operands)
    text = explain(verdict).replace(str(rules_path()), "rules")
    golden(file.with_suffix(".expected"), f"{verdict.status}\n{text}")
