"""What the search asks of a matcher: where rules apply, and the graph after one is applied.

The search knows no rule, operator or attribute. Whoever compiles rules (`tasodsl.match`) gives it a `Rewriter`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from tasodsl.graph.graph import Graph, NodeId


@dataclass(frozen=True, slots=True)
class Match:
    """One place where a rule applies: the rule's name, its root node, all matched nodes, and what its names stand for.

    Hashable, and the same graph gives the same matches in the same order.
    """

    rule: str
    root: NodeId
    nodes: tuple[NodeId, ...]
    binding: tuple[tuple[str, object], ...]


class Rewriter(Protocol):
    """A compiled rule set."""

    def matches(self, graph: Graph, around: Collection[NodeId] | None = None) -> list[Match]:
        """All matches in `graph`, or at least all that have a node in `around`."""
        ...

    def apply(self, graph: Graph, match: Match) -> Graph | None:
        """The graph after the rewrite; None where the rewrite side refuses (a non-finite fold, no kernel)."""
        ...
