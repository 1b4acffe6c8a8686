"""The graphs that the search holds: how each came about, and what it is estimated to cost.

A candidate is priced by difference: only nodes that a rewrite changed, and those near enough to be fused with them by
the runtime, are asked for again. Its chain of parents is kept (graphs share all that did not change), so that a wrong
result can be traced to the rewrite that made it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import immutables

from tasodsl.graph.graph import Graph, Node, NodeId
from tasodsl.match.api import Match

LONGEST_GROUP = 8
"""How many nodes in a row the runtime runs as one kernel at most."""
PRICE_REACH = 2
"""How far from a change prices are asked for again at once. The memory layout of an image can matter farther away, so
candidates are priced anew as a whole (`priced_anew`) from time to time."""


class CostModel(Protocol):
    """What a node costs where it stands: zero when the runtime fuses it into a neighbour."""

    def node_seconds(self, graph: Graph, node: Node) -> float: ...


@dataclass(frozen=True, slots=True)
class Application:
    """One rewrite on the way to a candidate, with the seconds that it was estimated to gain."""

    rule: str
    root: NodeId
    gain: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A priced graph.

    `stake` is the estimated time of everything whose price changed since the last candidate that was accepted: a gain
    smaller than a small part of it is measurement noise. `region` holds the nodes made since then, and those next to
    them. `growth` is the change in bytes of constants against the first graph.
    """

    graph: Graph
    prices: immutables.Map[NodeId, float]
    seconds: float
    stake: float = 0.0
    growth: int = 0
    region: frozenset[NodeId] = frozenset()
    parent: Candidate | None = None
    application: Application | None = None

    def lineage(self) -> list[Candidate]:
        """From the first graph to this one."""
        chain: list[Candidate] = []
        at: Candidate | None = self
        while at is not None:
            chain.append(at)
            at = at.parent
        return chain[::-1]

    def applications(self) -> list[Application]:
        """The rewrites that led here, first one first."""
        return [c.application for c in self.lineage() if c.application is not None]

    def fired(self) -> Counter[str]:
        """How often each rule was applied."""
        return Counter(a.rule for a in self.applications())


@dataclass(frozen=True, slots=True)
class Difference:
    """Nodes of one graph that another no longer has as they were, and nodes that are new in the other."""

    removed: frozenset[NodeId]
    added: frozenset[NodeId]


def difference(before: Graph, after: Graph, match: Match) -> Difference:
    """What a rewrite changed, found by walking from the matched nodes: it never looks at the rest of the graph."""
    removed: set[NodeId] = set()
    added: set[NodeId] = set()
    seen: set[str] = set()
    values = [v for n in match.nodes for v in _values(before.nodes[n])]
    while values:
        value = values.pop()
        if value in seen:
            continue
        seen.add(value)
        for graph, other, changed in ((before, after, removed), (after, before, added)):
            for node_id in (graph.producer.get(value), *graph.reader_ids(value)):
                if node_id is None or node_id in changed:
                    continue
                node = graph.nodes[node_id]
                if other.nodes.get(node_id) is not node:
                    changed.add(node_id)
                    values.extend(_values(node))
    return Difference(frozenset(removed), frozenset(added))


def neighbourhood(graph: Graph, nodes: Iterable[NodeId], reach: int) -> set[NodeId]:
    """`nodes` and all nodes at most `reach` steps from them, along values in either direction."""
    near = {n for n in nodes if n in graph.nodes}
    frontier = near
    for _ in range(reach):
        frontier = {m for n in frontier for m in _adjacent(graph, graph.nodes[n])} - near
        near = near | frontier
    return near


def first_candidate(graph: Graph, cost: CostModel) -> Candidate:
    """The graph that the search starts from."""
    return priced_anew(Candidate(graph, immutables.Map(), 0.0), cost)


def priced_anew(candidate: Candidate, cost: CostModel) -> Candidate:
    """The candidate with every node's price asked for again."""
    graph = candidate.graph
    prices = {node.id: cost.node_seconds(graph, node) for node in graph.topological()}
    return replace(candidate, prices=immutables.Map(prices), seconds=sum(prices.values()))


def accepted(candidate: Candidate) -> Candidate:
    """The candidate as a new starting point: noise and regions are counted from here on."""
    return replace(candidate, stake=0.0, region=frozenset())


def successor(parent: Candidate, match: Match, graph: Graph, cost: CostModel) -> Candidate:
    """The candidate for `graph`, which `match` made from the parent's graph."""
    change = difference(parent.graph, graph, match)
    prices = parent.prices.mutate()
    gain = stake = 0.0
    for node_id in sorted(change.removed):
        price = prices.pop(node_id)
        gain += price
        stake += price
    near = neighbourhood(parent.graph, change.removed, PRICE_REACH) | neighbourhood(graph, change.added, PRICE_REACH)
    for node_id in sorted(_repriced(graph, near)):
        old, new = prices.get(node_id, 0.0), cost.node_seconds(graph, graph.nodes[node_id])
        if old != new:
            stake += old
        gain += old - new
        prices[node_id] = new
    region = neighbourhood(graph, change.added, 1) | neighbourhood(graph, match.nodes, 1)
    return Candidate(
        graph,
        prices.finish(),
        parent.seconds - gain,
        parent.stake + stake,
        parent.growth + _constant_growth(parent.graph, graph, change),
        frozenset(n for n in parent.region if n in graph.nodes) | region,
        parent,
        Application(match.rule, match.root, gain),
    )


def _repriced(graph: Graph, near: Iterable[NodeId]) -> set[NodeId]:
    """The nodes whose price may be another after a change at `near`.

    What the runtime fuses is a chain of only readers. A change in it shows in the price of its last node; and in that
    of any node which a member of the chain reads, since that may now join the chain or no longer do.
    """
    chains: set[NodeId] = set()
    for start in near:
        node = graph.nodes.get(start)
        for _ in range(LONGEST_GROUP):
            if node is None:
                break
            chains.add(node.id)
            readers = graph.reader_ids(node.id)
            node = graph.nodes[readers[0]] if len(readers) == 1 else None
    sources = {graph.producer.get(v) for n in chains for v in graph.nodes[n].operands()}
    return chains | {n for n in sources if n is not None}


def _constant_growth(before: Graph, after: Graph, change: Difference) -> int:
    """Bytes of constants that got their first reader, less those of constants that lost their last one."""
    gained = {v for n in change.added for v in after.nodes[n].operands() if v in after.constants}
    lost = {v for n in change.removed for v in before.nodes[n].operands() if v in before.constants}
    grown = sum(after.constants[v].nbytes for v in gained if not before.reader_ids(v))
    return grown - sum(before.constants[v].nbytes for v in lost if not after.reader_ids(v))


def _values(node: Node) -> list[str]:
    return [*node.operands(), *(o for o in node.outputs if o)]


def _adjacent(graph: Graph, node: Node) -> list[NodeId]:
    near = [p for v in node.operands() if (p := graph.producer.get(v)) is not None]
    near.extend(r for o in node.outputs if o for r in graph.reader_ids(o))
    return near
