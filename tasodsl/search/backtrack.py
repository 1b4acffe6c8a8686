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
    """The best few candidates so far, whole at any moment (an interrupt may come at any moment).

    Steps of one descent differ by one rewrite: only where a descent ends is a candidate kept. `latest` is the step that
    the descent at hand has come to.
    """

    latest: Candidate
    kept: tuple[Candidate, ...] = ()

    def keep(self, candidate: Candidate) -> None:
        self.kept = self._with(candidate)
        self.latest = self.kept[0]

    @property
    def best(self) -> tuple[Candidate, ...]:
        return self._with(self.latest)

    def _with(self, candidate: Candidate) -> tuple[Candidate, ...]:
        others = [c for c in self.kept if c.graph.hash != candidate.graph.hash]
        ranked = sorted([*others, candidate], key=lambda c: (c.seconds, len(c.graph.nodes)))
        return tuple(ranked[:KEPT])


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

    def report() -> None:
        if on_progress is not None:
            latest = finalists.latest
            on_progress(Progress(explorer.tried, first.seconds, latest.seconds, len(latest.applications())))

    def step(candidate: Candidate) -> None:
        finalists.latest = candidate
        report()

    try:
        report()
        finalists.keep(descend(explorer, first, step))
        _backtrack(explorer, finalists, random.Random(seed), step, report)
    except KeyboardInterrupt:
        return SearchResult(first, finalists.best, explorer.tried, "interrupted")
    return SearchResult(first, finalists.best, explorer.tried, _why_ended(explorer))


def _why_ended(explorer: Explorer) -> str:
    if explorer.may_go_on:
        return "nothing left to try"
    return "time" if explorer.timed_out else "budget"


def _backtrack(
    explorer: Explorer,
    finalists: _Finalists,
    rng: random.Random,
    step: Callable[[Candidate], None],
    report: Callable[[], None],
) -> None:
    best = accepted(finalists.latest)
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
                report()
            if after is None or after.graph.hash in seen:
                continue
            seen.add(after.graph.hash)
            if improves(best, after):
                best = descend(explorer, after, step)
                finalists.keep(best)
                seen.add(best.graph.hash)
                queue = [_Entry(best.seconds, rng.random(), best)]
                break
            if after.seconds < explorer.limits.alpha * best.seconds:
                heapq.heappush(queue, _Entry(after.seconds, rng.random(), after))
