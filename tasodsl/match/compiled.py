"""A rule set as the search uses it: all matches in a graph, rewrites, and why a rule did not fire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tasodsl import syntax as s
from tasodsl.graph.graph import Graph, NodeId
from tasodsl.match.api import Match
from tasodsl.match.interpret import Interpreter
from tasodsl.match.pattern import Pattern, Scope, patterns_of
from tasodsl.match.questions import ConstantFacts
from tasodsl.match.rewrite import Supported, apply_match
from tasodsl.ruleset import RuleSet


@dataclass(frozen=True, slots=True)
class NearestMiss:
    """How far a rule came at the best place: the root tried, and the condition that failed there."""

    rule: str
    root: NodeId
    condition: str


class CompiledRules:
    """The `Rewriter` of a rule set. `fired` counts the rewrites that each rule made."""

    def __init__(self, patterns: Sequence[Pattern], supported: Supported) -> None:
        self.patterns = {p.name: p for p in patterns}
        self.supported = supported
        self.facts = ConstantFacts()
        self.fired: Counter[str] = Counter()

    def matches(self, graph: Graph, around: Collection[NodeId] | None = None) -> list[Match]:
        found = [m for p in self.patterns.values() for m in Interpreter(p, graph, self.facts).matches()]
        if around is None:
            return found
        near = set(around)
        return [m for m in found if not near.isdisjoint(m.nodes)]

    def apply(self, graph: Graph, match: Match) -> Graph | None:
        after = apply_match(self.patterns[match.rule], graph, match, self.supported)
        if after is not None:
            self.fired[match.rule] += 1
        return after

    def why_not(self, graph: Graph, rule: str) -> NearestMiss | None:
        """The attempt at `rule` (a name, or a name and `.reverse`) that came farthest; None where the rule matches."""
        best: tuple[int, NearestMiss] | None = None

        def miss(held: int, root: NodeId, condition: str) -> None:
            nonlocal best
            if best is None or held > best[0]:
                best = (held, NearestMiss(rule, root, condition))

        if Interpreter(self.patterns[rule], graph, self.facts, miss).matches():
            return None
        return best[1] if best else NearestMiss(rule, "", "the graph has nodes")


def compile_rules(
    rule_set: RuleSet, rules: Sequence[s.RuleDecl], scopes: Mapping[str, Scope], supported: Supported
) -> CompiledRules:
    """The rewriter for `rules`. `scopes` says, by rule name, what each rule is proved for."""
    patterns = [p for rule in rules for p in patterns_of(rule, rule_set, scopes[rule.name])]
    return CompiledRules(patterns, supported)
