"""The search: a greedy descent, then best-first backtracking from where it ended.

Backtracking follows TASO: take the cheapest candidate, try every rewrite, keep what costs at most `alpha` times the
best. Rewrites far apart do not help each other, so after a rewrite that does not improve only its surroundings are
tried; whatever improves is descended from greedily and becomes the new starting point. The same input, limits and seed
give the same result unless time runs out. Ctrl-C ends the search with the best so far.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tasodsl.graph.graph import Graph
from tasodsl.search.candidate import Candidate, accepted, first_candidate
from tasodsl.search.greedy import Explorer, Progress, descend, improves

KEPT = 3
"""How many distinct candidates are kept for a measurement end to end."""
REPORT_EVERY = 50


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The first candidate, the best few (best first, never empty) and why the search ended."""

    first: Candidate
    best: tuple[Candidate, ...]
    tried: int
    ended: str
    """"nothing left to try", "budget", "time" or "interrupted"."""


@dataclass(slots=True)
class _Finalists:
    """The best few candidates so far, whole at any moment (an interrupt may come at any moment)."""

    first: Candidate
    kept: tuple[Candidate, ...] = ()

    def add(self, candidate: Candidate) -> None:
        others = [c for c in self.kept if c.graph.hash != candidate.graph.hash]
        ranked = sorted([*others, candidate], key=lambda c: (c.seconds, len(c.graph.nodes)))
        self.kept = tuple(ranked[:KEPT])

    @property
    def best(self) -> tuple[Candidate, ...]:
        return self.kept or (self.first,)


@dataclass(order=True, slots=True)
class _Entry:
    seconds: float
    tie: float
    candidate: Candidate = field(compare=False)


def search(
    graph: Graph,
    explorer: Explorer,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
) -> SearchResult:
    """The best graphs reachable from `graph` within the explorer's limits."""
    first = first_candidate(graph, explorer.cost)
    finalists = _Finalists(first)

    def report(candidate: Candidate | None = None) -> None:
        if candidate is not None:
            finalists.add(candidate)
        if on_progress is not None:
            best = finalists.best[0]
            on_progress(Progress(explorer.tried, first.seconds, best.seconds, len(best.applications())))

    try:
        report()
        best = descend(explorer, first, report)
        _backtrack(explorer, best, random.Random(seed), report)
    except KeyboardInterrupt:
        return SearchResult(first, finalists.best, explorer.tried, "interrupted")
    return SearchResult(first, finalists.best, explorer.tried, _why_ended(explorer))


def _why_ended(explorer: Explorer) -> str:
    if explorer.may_go_on:
        return "nothing left to try"
    return "time" if explorer.timed_out else "budget"


def _backtrack(
    explorer: Explorer, start: Candidate, rng: random.Random, report: Callable[[Candidate | None], None]
) -> None:
    best = accepted(start)
    seen = {best.graph.hash}
    queue = [_Entry(best.seconds, rng.random(), best)]
    while queue and explorer.may_go_on:
        candidate = heapq.heappop(queue).candidate
        around = candidate.region or None  # the starting point has no region: everywhere
        for match in explorer.matches(candidate.graph, around):
            if not explorer.may_go_on:
                return
            after = explorer.attempt(candidate, match)
            if explorer.tried % REPORT_EVERY == 0:
                report(None)
            if after is None or after.graph.hash in seen:
                continue
            seen.add(after.graph.hash)
            if improves(best, after):
                best = descend(explorer, after, report)
                report(best)
                seen.add(best.graph.hash)
                queue = [_Entry(best.seconds, rng.random(), best)]
                break
            if after.seconds < explorer.limits.alpha * best.seconds:
                heapq.heappush(queue, _Entry(after.seconds, rng.random(), after))
