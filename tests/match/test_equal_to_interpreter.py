"""Generated matchers find exactly the matches that the plain interpreter finds, everywhere and near given nodes."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from matching import compiled, same_results, well_formed
from random_graphs import random_graph

from tasodsl.graph.graph import Graph
from tasodsl.match.api import Match
from tasodsl.match.compiled import CompiledRules
from tasodsl.match.interpret import Interpreter

VARIOUS = Path(__file__).with_name("various.taso")


@cache
def various() -> CompiledRules:
    return compiled(VARIOUS.read_text())


def interpreted(rules: CompiledRules, graph: Graph) -> list[Match]:
    return [m for p in rules.patterns.values() for m in Interpreter(p, graph, rules.facts).matches()]


def text_of(matches: list[Match]) -> list[str]:
    return sorted(map(repr, matches))


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 25))
def test_same_matches_everywhere(rng: random.Random, nodes: int):
    graph = random_graph(rng.randrange, nodes)
    rules = various()
    assert text_of(rules.matches(graph)) == text_of(interpreted(rules, graph))


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 25))
def test_matches_around_nodes_are_those_with_a_node_among_them(rng: random.Random, nodes: int):
    graph = random_graph(rng.randrange, nodes)
    rules = various()
    near = {n for n in sorted(graph.nodes) if rng.randrange(4) == 0}
    expected = [m for m in rules.matches(graph) if not near.isdisjoint(m.nodes)]
    assert rules.matches(graph, near) == expected


def test_every_rule_fires_somewhere():
    rules = various()
    rng = random.Random(0)
    fired: set[str] = set()
    for _ in range(300):
        fired |= {m.rule for m in rules.matches(random_graph(rng.randrange, 25))}
    assert set(rules.patterns) - fired == set()


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 15))
def test_every_rewrite_leaves_a_whole_graph_with_the_same_results(rng: random.Random, nodes: int):
    graph = random_graph(rng.randrange, nodes, symbolic=False)
    rules = various()
    for match in rules.matches(graph):
        after = rules.apply(graph, match)
        if after is not None:
            assert well_formed(after), match
            assert same_results(graph, after), match
