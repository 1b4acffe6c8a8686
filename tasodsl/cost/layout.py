"""Where images are in the runtime's blocked layout, and where they are reordered.

On x86 the runtime keeps what convolutions and pools read and write in blocks of channels, and lets some operators work
on such images as they are. Where such a value meets an operator that cannot, the runtime inserts a reorder. Which
groups read and write blocked images was seen when they were measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tasodsl.cost.groups import Groups
from tasodsl.cost.roofline import NO_WORK
from tasodsl.graph.dims import Dim
from tasodsl.graph.graph import Graph, Node

KEEPING = frozenset(
    {"Relu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Gelu", "Add", "Sum", "Mul", "Concat", "Resize"}
)
"""Operators that work on the blocked layout when all their operands have it."""
BLOCK = 16
"""Channels that a concatenation needs a multiple of, so that no block holds two operands' channels."""
DEPTH = 4
"""How far back the layout of a value is looked for before it is taken to be blocked."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A kernel's seconds without reorders, and whether it reads and writes blocked images."""

    seconds: float
    blocked_in: bool = False
    blocked_out: bool = False


class Layout:
    """The layouts of one graph's values, found as they are asked for."""

    def __init__(self, groups: Groups, measured: Callable[[Graph, tuple[Node, ...]], Measured]) -> None:
        self.groups = groups
        self.graph = groups.graph
        self._measured = measured
        self._blocked: dict[tuple[str, int], bool] = {}

    def blocked(self, value: str, depth: int = DEPTH) -> bool:
        """Whether the runtime holds `value` in the blocked layout."""
        known = self._blocked.get((value, depth))
        if known is None:
            known = self._blocked[value, depth] = self._is_blocked(value, depth)
        return known

    def is_reordered_back(self, value: str) -> bool:
        """Whether a blocked value has a reader that wants it plain, or leaves the graph."""
        if not self.blocked(value):
            return False
        return self.graph.is_output(value) or any(
            not self._reads_blocked(self.graph.nodes[r], value) for r in self.graph.reader_ids(value)
        )

    def pays_reorder(self, nodes: tuple[Node, ...]) -> bool:
        """Whether the group's operand is plain and this group is the first reader that wants it blocked."""
        value = nodes[0].inputs[0]
        if self.blocked(value):
            return False
        for other in self.graph.reader_ids(value):
            if other == nodes[0].id:
                break
            if self._reads_blocked(self.graph.nodes[other], value):
                return False
        return True

    def _is_blocked(self, value: str, depth: int) -> bool:
        producer = self.graph.producer_node(value)
        shape = self.graph.shape(value)
        if producer is None or not producer.defined or shape is None or len(shape) != 4:
            return False
        if depth == 0:
            return True
        nodes = self.groups.chain(producer)
        if producer.op_type in KEEPING and len(nodes) == 1:
            return self._can_keep(producer) and all(self.blocked(v, depth - 1) for v in producer.inputs)
        return producer.op_type not in NO_WORK and self._measured(self.graph, nodes).blocked_out

    def _can_keep(self, node: Node) -> bool:
        """Whether the operator's form lets it work on blocked operands."""
        if node.op_type == "Concat":
            return node.attribute("axis") == 1 and all(_whole_blocks(self.graph.dim(v, 1)) for v in node.inputs)
        if node.op_type == "Resize":
            return (
                node.attribute("coordinate_transformation_mode") == "asymmetric"
                and node.attribute("nearest_mode") == "floor"
            )
        first = self.graph.shape(node.inputs[0])
        return all(self.graph.shape(v) == first for v in node.inputs[1:])

    def _reads_blocked(self, reader: Node, value: str) -> bool:
        if not reader.defined or reader.op_type in NO_WORK:
            return False
        nodes = self.groups.chain(self.groups.anchor(reader))
        if reader is not nodes[0] and self.groups.is_residual(reader):
            return True
        if reader.op_type in KEEPING and len(nodes) == 1:
            return self.blocked(reader.id)
        return nodes[0].inputs[0] == value and self._measured(self.graph, nodes).blocked_in


def _whole_blocks(channels: Dim | None) -> bool:
    return isinstance(channels, int) and channels % BLOCK == 0
