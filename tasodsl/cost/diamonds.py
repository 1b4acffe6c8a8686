"""Spelled-out functions that the runtime recognizes and executes as one kernel: layer normalization, Gelu, swish.

They read a value more than once, so they are no chains. A pattern is a tree whose root is the function's last node; the
same variable name is the same value. Rewriting a part of such a figure, although it looks cheaper, costs the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tasodsl.graph.graph import Graph, Node, NodeId

COMMUTATIVE = frozenset({"Add", "Mul"})


@dataclass(frozen=True, slots=True)
class Call:
    """An operator with operands; an operand is a call, a variable, or a constant (`CONSTANT`)."""

    op_type: str
    operands: tuple[Call | str, ...]


CONSTANT = "constant"


def _call(op_type: str) -> Callable[..., Call]:
    return lambda *operands: Call(op_type, operands)


_add, _mul, _div, _sub, _pow = (_call(op) for op in ("Add", "Mul", "Div", "Sub", "Pow"))
_mean, _sqrt, _erf, _sigmoid = (_call(op) for op in ("ReduceMean", "Sqrt", "Erf", "Sigmoid"))

_CENTRED = _sub("x", _mean("x"))
_DEVIATION = _sqrt(_add(_mean(_pow(_CENTRED, CONSTANT)), CONSTANT))
_ERF_PART = _add(_erf(_div("x", CONSTANT)), CONSTANT)

PATTERNS: Mapping[str, tuple[Call, ...]] = MappingProxyType(
    {
        "Add": (_add(_mul(_div(_CENTRED, _DEVIATION), CONSTANT), CONSTANT),),
        "Mul": (
            _mul(_mul("x", _ERF_PART), CONSTANT),
            _mul(_mul("x", CONSTANT), _ERF_PART),
            _mul("x", _mul(_ERF_PART, CONSTANT)),
            _mul("x", _sigmoid("x")),
            _mul("x", _sigmoid(_mul("x", CONSTANT))),
        ),
    }
)
"""Patterns by the operator of their last node."""

DEPTH = 8
"""The longest way from a figure's first node to its last."""


class Diamonds:
    """The figures of one graph, found as they are asked for."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._figures: dict[NodeId, tuple[Node, ...]] = {}
        self._anchors: dict[NodeId, Node | None] = {}

    def figure(self, node: Node) -> tuple[Node, ...]:
        """The nodes of the figure that ends at `node`, producers first; empty when none does."""
        if node.op_type not in PATTERNS:
            return ()
        known = self._figures.get(node.id)
        if known is None:
            known = self._figures[node.id] = self._find_figure(node)
        return known

    def anchor(self, node: Node) -> Node | None:
        """The last node of the figure of which `node` is an earlier part."""
        if node.op_type not in _PARTS or not node.defined or self.graph.is_output(node.id):
            return None
        if node.id not in self._anchors:
            self._anchors[node.id] = self._find_anchor(node)
        return self._anchors[node.id]

    def _find_figure(self, node: Node) -> tuple[Node, ...]:
        for pattern in PATTERNS[node.op_type]:
            parts: dict[NodeId, Node] = {}
            if self._matches(pattern, node.id, {}, parts) and self._is_closed(parts, node):
                return tuple(parts.values())
        return ()

    def _find_anchor(self, node: Node) -> Node | None:
        frontier = [node]
        for _ in range(DEPTH):
            readers = {r for n in frontier for r in self.graph.reader_ids(n.id)}
            frontier = [self.graph.nodes[r] for r in sorted(readers) if self.graph.nodes[r].op_type in _PARTS]
            for reader in frontier:
                if any(part is node for part in self.figure(reader)):
                    return reader
        return None

    def _matches(self, pattern: Call | str, value: str, variables: dict[str, str], parts: dict[NodeId, Node]) -> bool:
        if pattern == CONSTANT:
            return value in self.graph.constants
        if isinstance(pattern, str):
            return value not in self.graph.constants and variables.setdefault(pattern, value) == value
        node = self.graph.producer_node(value)
        if node is None or node.op_type != pattern.op_type or not node.defined:
            return False
        if len(node.inputs) != len(pattern.operands) or len(node.outputs) != 1:
            return False
        orders = [node.inputs, node.inputs[::-1]] if node.op_type in COMMUTATIVE else [node.inputs]
        for order in orders:
            bound, found = dict(variables), dict(parts)
            if all(self._matches(p, v, bound, found) for p, v in zip(pattern.operands, order, strict=True)):
                variables.update(bound)
                parts.update(found)
                parts[node.id] = node
                return True
        return False

    def _is_closed(self, parts: Mapping[NodeId, Node], last: Node) -> bool:
        """Whether nobody outside reads what is inside."""
        inner = [n for n in parts.values() if n is not last]
        return not any(
            self.graph.is_output(n.id) or any(r not in parts for r in self.graph.reader_ids(n.id)) for n in inner
        )


def _operators(pattern: Call | str) -> set[str]:
    if isinstance(pattern, str):
        return set()
    return {pattern.op_type}.union(*(_operators(p) for p in pattern.operands))


_PARTS = frozenset[str]().union(*(_operators(p) for patterns in PATTERNS.values() for p in patterns))
