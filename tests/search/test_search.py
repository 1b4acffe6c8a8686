"""The search: what it finds, what it refuses, that it repeats itself exactly and survives an interrupt."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import Prices, StringRules, chain, spelled

from tasodsl.graph.graph import Graph
from tasodsl.search.backtrack import SearchResult, search
from tasodsl.search.candidate import Candidate, difference, first_candidate, successor
from tasodsl.search.greedy import Explorer, Limits

UNIT = dict.fromkeys("ABCDE", 1.0)


def run(graph: Graph, rules: StringRules, prices: Prices, seed: int = 0, **limits: object) -> SearchResult:
    settings = Limits(**{"seconds": 1e9, **limits})  # pyright: ignore
    return search(graph, Explorer(rules, prices, settings, clock=lambda: 0.0), seed)


def best_words(result: SearchResult) -> list[str]:
    return spelled(result.best[0].graph)


def test_greedy_takes_every_improvement_in_every_place():
    result = run(chain(*"AABAA", copies=3), StringRules({"merge": ("AA", "A")}), Prices(UNIT))
    assert best_words(result) == ["ABA"] * 3
    assert result.best[0].fired() == {"merge": 6}
    assert result.ended == "nothing left to try"


def test_a_worsening_step_is_taken_when_it_enables_a_better_one():
    prices = Prices({"A": 10.0, "B": 10.2, "C": 1.0})
    rules = StringRules({"worse": ("A", "B"), "better": ("BB", "C")})
    result = run(chain("A", "A"), rules, prices, alpha=1.05)
    assert best_words(result) == ["C"]
    assert [a.rule for a in result.best[0].applications()] == ["worse", "worse", "better"]


def test_alpha_bounds_how_much_worse_a_step_may_be():
    prices = Prices({"A": 10.0, "B": 12.0, "C": 1.0})
    rules = StringRules({"worse": ("A", "B"), "better": ("BB", "C")})
    assert best_words(run(chain("A", "A"), rules, prices, alpha=1.05)) == ["AA"]


def test_worsening_steps_far_apart_are_not_combined():
    """Only the surroundings of a worsening step are explored: two chains cost twice one chain, not its square."""
    rules = StringRules({"there": ("A", "B"), "back": ("B", "A")})
    prices = Prices({"A": 10.0, "B": 10.0})
    one = run(chain(*"AAAA"), rules, prices, alpha=2.0).tried
    ten = run(chain(*"AAAA", copies=10), rules, prices, alpha=2.0).tried
    assert ten <= 12 * one


def test_fewer_nodes_at_the_same_cost_are_preferred():
    prices = Prices({"A": 5.0, "B": 0.0})
    assert best_words(run(chain("A", "B"), StringRules({"absorb": ("AB", "A")}), prices)) == ["A"]


def test_a_gain_within_noise_is_not_taken():
    prices = Prices({"A": 1.0, "B": 0.99})
    assert best_words(run(chain("A"), StringRules({"flip": ("A", "B")}), prices)) == ["A"]


def test_rules_that_undo_each_other_end():
    rules = StringRules({"split": ("A", "BB"), "join": ("BB", "A")})
    result = run(chain(*"AAA"), rules, Prices({"A": 1.0, "B": 0.49}))
    assert result.ended in ("nothing left to try", "budget")


def test_what_the_runtime_fuses_is_priced_where_it_stands():
    """B costs nothing behind A; moving it away from A is a loss although the operators are the same."""
    prices = Prices({"A": 4.0, "B": 3.0, "C": 1.0}, fused=[("A", "B")])
    assert best_words(run(chain(*"ABC"), StringRules({"swap": ("BC", "CB")}), prices)) == ["ABC"]
    assert best_words(run(chain(*"ACB"), StringRules({"swap": ("CB", "BC")}), prices)) == ["ABC"]


def test_the_file_may_grow_only_within_its_limit():
    rules = StringRules({"bake": ("A", "B")}, constant_bytes={"bake": 100})
    prices = Prices({"A": 2.0, "B": 1.0})
    result = run(chain(*"AAAA"), rules, prices, growth_bytes=250)
    assert sorted(best_words(result)[0]) == list("AABB")
    assert result.best[0].growth == 200


def test_excluded_rules_are_not_used():
    rules = StringRules({"a": ("AA", "A"), "b": ("BB", "B")})
    result = run(chain(*"AABB"), rules, Prices(UNIT), excluded=frozenset({"a"}))
    assert best_words(result) == ["AAB"]


def test_the_budget_ends_the_search_with_the_best_so_far():
    result = run(chain(*"A" * 30), StringRules({"merge": ("AA", "A")}), Prices(UNIT), budget=40)
    assert result.ended == "budget"
    assert result.tried <= 41
    assert 1 < len(result.best[0].graph.nodes) < 30


def test_time_ends_the_search():
    now = iter(range(10_000))
    explorer = Explorer(
        StringRules({"merge": ("AA", "A")}), Prices(UNIT), Limits(seconds=40), clock=lambda: float(next(now))
    )
    result = search(chain(*"A" * 60), explorer)
    assert result.ended == "time"


@pytest.mark.parametrize("after", [1, 7, 20])
def test_an_interrupt_keeps_the_best_so_far(after: int):
    count = 0

    def interrupt(match: object) -> None:
        nonlocal count
        count += 1
        if count == after:
            raise KeyboardInterrupt

    rules = StringRules({"merge": ("AA", "A")}, on_apply=interrupt)
    result = run(chain(*"A" * 12), rules, Prices(UNIT))
    assert result.ended == "interrupted"
    assert set(spelled(result.best[0].graph)[0]) == {"A"}


words = st.lists(st.sampled_from("ABC"), min_size=1, max_size=7)
rule_sets = st.dictionaries(
    st.sampled_from(["r", "s", "t"]),
    st.tuples(st.text("ABC", min_size=1, max_size=3), st.text("ABC", max_size=2)),
    min_size=1,
)


@settings(max_examples=60, deadline=None)
@given(words, rule_sets, st.integers(0, 3))
def test_two_runs_are_the_same(word: list[str], rules: dict[str, tuple[str, str]], seed: int):
    prices = {"A": 3.0, "B": 2.0, "C": 2.5}
    results = [run(chain(*word), StringRules(rules), Prices(prices), seed, budget=150, alpha=1.3) for _ in range(2)]
    assert [c.graph.hash for c in results[0].best] == [c.graph.hash for c in results[1].best]
    assert results[0].tried == results[1].tried


@settings(max_examples=60, deadline=None)
@given(words, rule_sets)
def test_prices_kept_by_difference_are_those_of_the_whole_graph(word: list[str], rules: dict[str, tuple[str, str]]):
    prices = Prices({"A": 3.0, "B": 2.0, "C": 2.5}, fused=[("A", "B"), ("B", "C")])
    rewriter = StringRules(rules)
    candidate: Candidate = first_candidate(chain(*word, copies=2), prices)
    for _ in range(4):
        matches = rewriter.matches(candidate.graph)
        if not matches:
            break
        graph = rewriter.apply(candidate.graph, matches[-1])
        assert graph is not None
        change = difference(candidate.graph, graph, matches[-1])
        before, after = candidate.graph.nodes, graph.nodes
        assert change.removed == {n for n in before if after.get(n) is not before[n]}
        assert change.added == {n for n in after if before.get(n) is not after[n]}
        candidate = successor(candidate, matches[-1], graph, prices)
        assert dict(candidate.prices) == dict(first_candidate(graph, prices).prices)
        assert candidate.seconds == pytest.approx(sum(candidate.prices.values()))
