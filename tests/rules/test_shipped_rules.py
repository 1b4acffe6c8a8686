"""The shipped rules keep what they promise: each is documented, has an example, and does what its examples say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasodsl import syntax as s
from tasodsl.check import load_rules
from tasodsl.prove.examples import example_faults
from tasodsl.resources import rules_path
from tasodsl.ruleset import RuleSet

SHIPPED, FOUND = load_rules([rules_path()])


@pytest.fixture(scope="module")
def shipped() -> RuleSet:
    return SHIPPED


def test_the_shipped_files_have_no_findings() -> None:
    assert [str(d) for d in FOUND] == []


def test_there_are_rules_of_every_subject(shipped: RuleSet) -> None:
    files = {Path(rule.span.source.name).stem for rule in shipped.rules.values()}

    subjects = "fusion merge movement elementwise reassociate decomposed pooling normalization"
    assert files >= set(subjects.split())


@pytest.mark.parametrize("rule", SHIPPED.rules.values(), ids=SHIPPED.rules.keys())
def test_a_rule_is_documented_and_does_what_its_examples_say(rule: s.RuleDecl, shipped: RuleSet) -> None:
    assert rule.doc
    assert any(example.kind == "example" for example in rule.examples)
    assert rule.unproved is None
    assert example_faults(rule, shipped) == []
