"""From paths of `.taso` files to the rewriter that the search uses on a model.

Only what is proved is used, and only within the ranks and arities that the proof covers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasodsl import syntax as s
from tasodsl.check import load_rules
from tasodsl.cost.probe import has_kernel
from tasodsl.diagnostics import has_errors
from tasodsl.errors import UserError
from tasodsl.graph.lower import can_lower
from tasodsl.match.api import Rewriter
from tasodsl.match.compiled import compile_rules
from tasodsl.match.pattern import Scope
from tasodsl.prove.driver import verdicts_of
from tasodsl.render import render
from tasodsl.resources import rules_path
from tasodsl.ruleset import RuleSet

SHOWN = 3
"""How many errors are shown at most: a screenful."""
PROOF_SECONDS = 20.0
"""How long a rule that has no proof on record may take to prove."""


@dataclass(frozen=True, slots=True)
class Rulebook:
    """Checked rules, and those of them that are proved, with the scopes of their proofs."""

    rule_set: RuleSet
    rules: tuple[s.RuleDecl, ...]
    scopes: Mapping[str, Scope]
    left_out: tuple[str, ...]
    """Rules that are not proved."""

    def rewriter(self, opset: int) -> Rewriter:
        """The rules for models of this opset: they make no operator that it or the runtime lacks."""

        def supported(op_type: str, dtype: str) -> bool:
            return can_lower(op_type, opset, dtype) and has_kernel("", op_type, opset, dtype)

        return compile_rules(self.rule_set, self.rules, self.scopes, supported)


def load_rulebook(
    paths: Sequence[Path], processes: int = 1, proving: Callable[[str], None] = lambda name: None
) -> Rulebook:
    """The rules in `paths` (files and folders), or those that ship with tasodsl when there are none.

    Rules without a proof on record are proved first, in so many `processes`; `proving` is told of each one that has a
    verdict. UserError, with all that is wrong, when the text has errors.
    """
    rule_set, found = load_rules(paths or [rules_path()])
    if has_errors(found):
        errors = [d for d in found if d.severity == "error"]
        more = f"\nand {len(errors) - SHOWN} more errors" if len(errors) > SHOWN else ""
        raise UserError("the rules have errors\n\n" + "\n".join(render(d) for d in errors[:SHOWN]).rstrip() + more)
    rules = tuple(rule_set.rules.values())
    verdicts = verdicts_of(rule_set, rules, PROOF_SECONDS, processes, done=lambda verdict: proving(verdict.name))
    scopes = {v.name: v.scope for v in verdicts if v.status == "proved" and not v.faults and v.scope is not None}
    return Rulebook(
        rule_set,
        tuple(rule for rule in rules if rule.name in scopes),
        scopes,
        tuple(rule.name for rule in rules if rule.name not in scopes),
    )
