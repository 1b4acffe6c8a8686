"""A toy world for the search tests: unary operators in chains, a few rules by hand, and a price list."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from tasodsl.graph.graph import Constant, Graph, Node, NodeId, ValueInfo, fresh_name
from tasodsl.match.api import Match

INFO = ValueInfo("float32", (4,))


def chain(*operators: str, copies: int = 1) -> Graph:
    """`copies` parallel chains of unary operators, each from the one input to an output of its own."""
    nodes: list[Node] = []
    outputs: list[str] = []
    for c in range(copies):
        value = "x"
        for i, op_type in enumerate(operators):
            nodes.append(Node(op_type, (value,), (f"v{c}_{i}",), origin=len(nodes)))
            value = f"v{c}_{i}"
        outputs.append(value)
    info = {"x": INFO} | {o: INFO for n in nodes for o in n.outputs}
    return Graph.build(nodes, ["x"], outputs, info, {})


def spelled(graph: Graph) -> list[str]:
    """Each output as the operators on the way to it."""
    words: list[str] = []
    for output in graph.outputs:
        word: list[str] = []
        node = graph.producer_node(output)
        while node is not None:
            word.append(node.op_type)
            node = graph.producer_node(node.inputs[0])
        words.append("".join(reversed(word)))
    return words


@dataclass
class Prices:
    """Seconds by operator. Pairs (producer, reader) in `fused` run as one group, of any length: it costs what its most
    expensive member costs, charged to its last one."""

    seconds: Mapping[str, float]
    fused: Collection[tuple[str, str]] = ()

    def node_seconds(self, graph: Graph, node: Node) -> float:
        readers = graph.reader_ids(node.id)
        if len(readers) == 1 and self._joined(graph, graph.nodes[readers[0]]) is node:
            return 0.0
        group: list[Node] = []
        member: Node | None = node
        while member is not None:
            group.append(member)
            member = self._joined(graph, member)
        return max(self.seconds.get(n.op_type, 0.0) for n in group)

    def _joined(self, graph: Graph, node: Node) -> Node | None:
        """The producer that `node` runs together with."""
        source = graph.producer_node(node.inputs[0])
        if source is None or graph.is_output(source.id) or len(graph.reader_ids(source.id)) != 1:
            return None
        return source if (source.op_type, node.op_type) in self.fused else None


@dataclass
class StringRules:
    """Rules `name: (left, right)` over the operators of a chain, such as `"AB" -> "C"`."""

    rules: Mapping[str, tuple[str, str]]
    constant_bytes: Mapping[str, int] = field(default_factory=dict)
    on_apply: Callable[[Match], None] = lambda match: None

    def matches(self, graph: Graph, around: Collection[NodeId] | None = None) -> list[Match]:
        found: list[Match] = []
        for node in graph.topological():
            for rule, (left, _) in self.rules.items():
                nodes = _suffix(graph, node, left)
                if nodes is None or (around is not None and set(around).isdisjoint(n.id for n in nodes)):
                    continue
                found.append(Match(rule, node.id, tuple(n.id for n in nodes), ()))
        return found

    def apply(self, graph: Graph, match: Match) -> Graph | None:
        self.on_apply(match)
        right = self.rules[match.rule][1]
        value = graph.nodes[match.nodes[-1]].inputs[0]
        added: list[Node] = []
        constants: dict[str, Constant] = {}
        for i, op_type in enumerate(right):
            last = i == len(right) - 1
            out = match.root if last else fresh_name(op_type, f"{op_type}({value}){match.root}")
            inputs: tuple[str, ...] = (value,)
            if match.rule in self.constant_bytes:
                name = f"{match.rule}~{match.root}"
                constants[name] = Constant.of(np.zeros(self.constant_bytes[match.rule], np.int8))
                inputs = (value, name)
            added.append(Node(op_type, inputs, (out,)))
            value = out
        info = {n.outputs[0]: INFO for n in added}
        if added:
            return graph.rewrite(match.nodes, added, constants, info)
        return graph.rewrite(match.nodes, [], constants, info, {match.root: value})


def _suffix(graph: Graph, node: Node, word: str) -> list[Node] | None:
    """The nodes that spell `word` ending in `node`, last one first; inner values must have no other reader."""
    nodes: list[Node] = []
    at: Node | None = node
    for op_type in reversed(word):
        if at is None or at.op_type != op_type:
            return None
        if nodes and (graph.is_output(at.id) or len(graph.reader_ids(at.id)) != 1):
            return None
        nodes.append(at)
        at = graph.producer_node(at.inputs[0])
    return nodes
