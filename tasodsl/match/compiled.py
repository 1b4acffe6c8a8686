"""A rule set as the search uses it: all matches in a graph, rewrites, and why a rule did not fire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tasodsl import syntax as s
from tasodsl.graph.graph import Graph, Node, NodeId
from tasodsl.match.api import Match
from tasodsl.match.cases import cases_of
from tasodsl.match.describe import describe
from tasodsl.match.emit import GeneratedMatchers, emit
from tasodsl.match.fold import FoldedConstants
from tasodsl.match.interpret import Interpreter
from tasodsl.match.pattern import Pattern, Scope, patterns_of
from tasodsl.match.predicates import Program, Question, flatten
from tasodsl.match.questions import ConstantFacts
from tasodsl.match.rewrite import Supported, apply_match
from tasodsl.match.tree import build_tree
from tasodsl.ruleset import RuleSet


@dataclass(frozen=True, slots=True)
class NearestMiss:
    """How far a rule came at the best place: the root tried, and the condition that failed there."""

    rule: str
    root: NodeId
    condition: str


class CompiledRules:
    """The `Rewriter` of a rule set. `fired` counts the rewrites that each rule made."""

    def __init__(self, patterns: Sequence[Pattern], generated: GeneratedMatchers, supported: Supported) -> None:
        self.patterns = {p.name: p for p in patterns}
        self.generated = generated
        self.supported = supported
        self.facts = ConstantFacts()
        self.folded = FoldedConstants()
        self.fired: Counter[str] = Counter()
        self._order = {name: k for k, name in enumerate(self.patterns)}
        self._height = max((p.height for p in patterns), default=1)
        self._hops = max((len(p.roots) for p in patterns), default=1) - 1

    def matches(self, graph: Graph, around: Collection[NodeId] | None = None) -> list[Match]:
        """Matches by rule, then by root; with `around`, those that have a node in it."""
        found: list[Match] = []
        roots, facts = self.generated.roots, self.facts
        nodes = graph.nodes.values() if around is None else self._roots_near(graph, around)
        for node in nodes:
            matcher = roots.get(node.op_type)
            if matcher is not None and node.defined:
                matcher(node, graph, facts, found)
        if around is not None:
            near = set(around)
            found = [m for m in found if not near.isdisjoint(m.nodes)]
        # Commutative operators may give one match twice; the order of a persistent map differs between processes.
        order = self._order
        return sorted(dict.fromkeys(found), key=lambda m: (order[m.rule], m.root))

    def _roots_near(self, graph: Graph, around: Collection[NodeId]) -> list[Node]:
        """The nodes that may be the first root of a match with a node in `around`: those above, and for rules with
        several roots those above a value that is read below them."""
        found = self._above(graph, {n for n in around if n in graph.nodes})
        for _ in range(self._hops):
            below = set(found)
            for _ in range(self._height - 1):
                values = {v for n in below for v in graph.nodes[n].inputs}
                below |= {p for v in values if (p := graph.producer.get(v)) is not None}
            values = {v for n in below for v in graph.nodes[n].inputs}
            found = self._above(graph, below | {r for v in values for r in graph.reader_ids(v)})
        return [graph.nodes[n] for n in found]

    def _above(self, graph: Graph, nodes: set[NodeId]) -> set[NodeId]:
        """The nodes, and those that read them within the height of a pattern."""
        found = set(nodes)
        for _ in range(self._height - 1):
            found |= {r for n in found for o in graph.nodes[n].outputs if o for r in graph.reader_ids(o)}
        return found

    def apply(self, graph: Graph, match: Match) -> Graph | None:
        after = apply_match(self.patterns[match.rule], graph, match, self.supported, self.folded)
        if after is not None:
            self.fired[match.rule] += 1
        return after

    def describe(self, rule: str) -> list[str]:
        """The hypotheses that are checked before the rule may fire."""
        return describe(self.patterns[rule])

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
    programs: dict[str, list[Program]] = {}
    for pattern in patterns:
        for case in cases_of(pattern):
            programs.setdefault(case.terms[pattern.roots[0]].op, []).append(flatten(pattern, case))
    trees = {op: build_tree(group, Question("operator", (0,))) for op, group in programs.items()}
    return CompiledRules(patterns, emit(rule_set, trees), supported)
