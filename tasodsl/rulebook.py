"""From paths of `.taso` files to the rewriter that the search uses on a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tasodsl import syntax as s
from tasodsl.check import load_rules
from tasodsl.cost.probe import has_kernel
from tasodsl.diagnostics import Diagnostic, has_errors
from tasodsl.errors import UserError
from tasodsl.graph.lower import can_lower
from tasodsl.match.api import Rewriter
from tasodsl.match.compiled import compile_rules
from tasodsl.match.pattern import Scope
from tasodsl.resources import rules_path
from tasodsl.ruleset import RuleSet

PROVED_FOR = Scope(max_rank=4, max_arity=4)
"""The ranks and arities that rules are proved for."""
SHOWN = 20
"""How many errors are shown at most: a screenful."""


@dataclass(frozen=True, slots=True)
class Rulebook:
    """Checked rules, and those of them that a run may use."""

    rule_set: RuleSet
    rules: tuple[s.RuleDecl, ...]

    def rewriter(self, opset: int) -> Rewriter:
        """The rules for models of this opset: they make no operator that it or the runtime lacks."""

        def supported(op_type: str, dtype: str) -> bool:
            return can_lower(op_type, opset, dtype) and has_kernel("", op_type, opset, dtype)

        scopes = {rule.name: PROVED_FOR for rule in self.rules}
        return compile_rules(self.rule_set, self.rules, scopes, supported)


def load_rulebook(paths: Sequence[Path]) -> Rulebook:
    """The rules in `paths` (files and folders), or those that ship with tasodsl when there are none.

    Rules that are marked as unproved are left out. UserError, with all that is wrong, when the text has errors.
    """
    rule_set, found = load_rules(paths or [rules_path()])
    errors = [d for d in found if d.severity == "error"]
    if has_errors(found):
        raise UserError(told(errors))
    return Rulebook(rule_set, tuple(rule for rule in rule_set.rules.values() if rule.unproved is None))


def told(errors: Sequence[Diagnostic]) -> str:
    """The errors on one screen."""
    lines = [f"{d.span}: {d.code}: {d.message}" for d in errors[:SHOWN]]
    more = [f"and {len(errors) - SHOWN} more"] if len(errors) > SHOWN else []
    return "\n  ".join(["the rules have errors", *lines, *more])
