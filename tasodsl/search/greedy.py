"""Trying rewrites within limits, and the greedy descent: apply whatever improves until nothing does."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from tasodsl.graph.graph import Graph, NodeId
from tasodsl.match.api import Match, Rewriter
from tasodsl.search.candidate import Candidate, CostModel, accepted, neighbourhood, priced_anew, successor

NOISE = 0.02
"""A gain below this part of the time at stake is taken for measurement noise."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a search may go. `seconds` and `budget` (rewrites tried) end it; the others bound what it may make."""

    budget: int = 20_000
    seconds: float = 60.0
    alpha: float = 1.05
    growth_bytes: int | None = None
    excluded: frozenset[str] = frozenset()
    """Rules that are not used."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a search stands, for whoever shows it."""

    tried: int
    first_seconds: float
    best_seconds: float
    applied: int


@dataclass(slots=True)
class Explorer:
    """Makes successors of candidates, counting what it tries against the limits."""

    rewriter: Rewriter
    cost: CostModel
    limits: Limits
    clock: Callable[[], float] = time.monotonic
    tried: int = 0
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self.deadline = self.clock() + self.limits.seconds

    @property
    def timed_out(self) -> bool:
        return self.clock() >= self.deadline

    @property
    def may_go_on(self) -> bool:
        return self.tried < self.limits.budget and not self.timed_out

    def matches(self, graph: Graph, around: Collection[NodeId] | None = None) -> list[Match]:
        """The matches of rules that may be used."""
        found = self.rewriter.matches(graph, around)
        return [m for m in found if m.rule not in self.limits.excluded]

    def attempt(self, candidate: Candidate, match: Match) -> Candidate | None:
        """The candidate after the rewrite; None where it is refused, changes nothing or grows the file too much."""
        self.tried += 1
        graph = self.rewriter.apply(candidate.graph, match)
        if graph is None or graph.hash == candidate.graph.hash:
            return None
        after = successor(candidate, match, graph, self.cost)
        limit = self.limits.growth_bytes
        return after if limit is None or after.growth <= limit else None


def improves(before: Candidate, after: Candidate) -> bool:
    """Whether `after` is faster beyond noise, or has fewer nodes and the same price.

    What the runtime folds by itself has exactly the same price. A loss within noise is not taken for the sake of fewer
    nodes: many of them add up to a graph that is slower as a whole.
    """
    gain = before.seconds - after.seconds
    return gain > NOISE * after.stake or (len(after.graph.nodes) < len(before.graph.nodes) and gain >= 0)


def descend(explorer: Explorer, start: Candidate, step: Callable[[Candidate], None]) -> Candidate:
    """Apply rewrites that improve, the most gainful first, until none does; `step` is told of each one.

    It works in rounds. A round tries every match on one graph, then takes the good ones that do not touch each other.
    Matches far from all changes of a round are not tried again in the next one.
    """
    best = accepted(start)
    seen = {best.graph.hash}
    useless: set[Match] = set()
    while explorer.may_go_on:
        good: list[tuple[float, Match]] = []
        for match in explorer.matches(best.graph):
            if match in useless:
                continue
            if not explorer.may_go_on:
                break
            after = explorer.attempt(best, match)
            if after is not None and improves(best, after):
                good.append((best.seconds - after.seconds, match))
            else:
                useless.add(match)
        good.sort(key=lambda pair: -pair[0])
        changed: set[NodeId] = set()
        for _, match in good:
            if not explorer.may_go_on:
                break
            if not changed.isdisjoint(match.nodes) or not _still_matches(explorer, best, match, bool(changed)):
                continue
            after = explorer.attempt(best, match)
            if after is None or not improves(best, after) or after.graph.hash in seen:
                continue
            seen.add(after.graph.hash)
            changed |= set(match.nodes) | after.region
            best = accepted(after)
            step(best)
        if not changed:
            break
        best = priced_anew(best, explorer.cost)
        step(best)
        near = changed | neighbourhood(best.graph, changed, 2)
        useless = {m for m in useless if near.isdisjoint(m.nodes)}
    return best


def _still_matches(explorer: Explorer, candidate: Candidate, match: Match, graph_changed: bool) -> bool:
    """Whether earlier rewrites of the round left the match whole: a far one may have closed a cycle through it."""
    if not graph_changed:
        return True
    nodes = candidate.graph.nodes
    return all(n in nodes for n in match.nodes) and match in explorer.matches(candidate.graph, (match.root,))
