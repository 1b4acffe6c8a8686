"""Which neighbouring nodes the runtime executes together, as a table.

The runtime turns a convolution, the batch normalization behind it and the activation behind that into one kernel, so
the sum over single nodes is wrong. `JOINS` lists which operator joins which kind of group. A group is measured as a
whole: a pair that is listed but that the runtime does not fuse after all costs what it costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from tasodsl.cost.diamonds import Diamonds
from tasodsl.graph.graph import Graph, Node, NodeId

CONV_ACTIVATIONS = ("Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid")
GEMM_ACTIVATIONS = ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "Clip")

FOLDED_INTO_CONV = frozenset({"BatchNormalization", "Mul", "Add"})
"""Operators that the runtime folds into the weights and the bias of a convolution when it loads the model."""

BY_CONSTANT = frozenset({"Add", "Mul", "Div"})
"""Operators that join only when all their other operands are constant."""

JOINS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("Pad", "Conv"): "Conv",
        ("Pad", "MaxPool"): "done",
        ("Conv", "BatchNormalization"): "Conv",
        ("ConvTranspose", "BatchNormalization"): "ConvTranspose",
        ("Conv", "Mul"): "Conv",
        ("Conv", "Add"): "Conv",
        ("Transpose", "MatMul"): "MatMul",
        ("Transpose", "Gemm"): "Gemm",
        ("MatMul", "Mul"): "MatMul",
        ("MatMul", "Div"): "MatMul",
        ("MatMul", "Add"): "Gemm",
        ("Add", "Gelu"): "done",
        ("Add", "LayerNormalization"): "done",
        **{(kind, act): "done" for kind in ("Conv", "residual") for act in CONV_ACTIVATIONS},
        **{("Gemm", act): "done" for act in GEMM_ACTIVATIONS},
    }
)
"""(kind of the group so far, operator reading it) -> kind of the group with it. A lone node's kind is its operator."""

RESIDUAL = frozenset({"Add", "Sum"})
"""A convolution adds another value of its output's shape while it writes: these cost nothing behind one."""

_READERS = frozenset(op for _, op in JOINS) | RESIDUAL


class Groups:
    """The groups of one graph, found as they are asked for."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._diamonds = Diamonds(graph)
        self._joins: dict[NodeId, tuple[Node | None, str]] = {}

    def absorbed(self, node: Node) -> bool:
        """Whether the runtime executes `node` as a part of a later node's group."""
        return self._next(node) is not None

    def anchor(self, node: Node) -> Node:
        """The last node of the group that `node` is in."""
        while (later := self._next(node)) is not None:
            node = later
        return node

    def chain(self, node: Node) -> tuple[Node, ...]:
        """The group that ends at `node`, producers first."""
        figure = self._diamonds.figure(node)
        if figure:
            return figure
        parts = [node]
        while (previous := self._join(parts[-1])[0]) is not None:
            parts.append(previous)
        return tuple(reversed(parts))

    def _next(self, node: Node) -> Node | None:
        """A later node whose group `node` is a part of."""
        reader = self._only_reader(node)
        if reader is not None and self._join(reader)[0] is node:
            return reader
        return self._diamonds.anchor(node)

    def is_residual(self, node: Node) -> bool:
        """Whether `node` adds two computed values of one shape."""
        if node.op_type not in RESIDUAL or len(node.inputs) != 2 or any(v in self.graph.constants for v in node.inputs):
            return False
        left, right = (self.graph.shape(v) for v in node.inputs)
        return left is not None and left == right

    def bare(self, nodes: tuple[Node, ...]) -> list[Node]:
        """The group without what costs nothing, so that a graph before and after a fold has one kernel and one time.

        The runtime adds a residual and a bias while the convolution writes, and folds what `FOLDED_INTO_CONV` lists
        into its weights.
        """
        kept: list[Node] = []
        now: dict[str, str] = {}
        is_conv = any(n.op_type == "Conv" for n in nodes)
        for node in nodes:
            if kept and (self.is_residual(node) or (is_conv and node.op_type in FOLDED_INTO_CONV)):
                now[node.id] = kept[-1].id
            else:
                inputs = tuple(now.get(v, v) for v in node.inputs)
                kept.append(replace(node, inputs=inputs[:2] if node.op_type == "Conv" else inputs))
        return kept

    def _join(self, node: Node) -> tuple[Node | None, str]:
        """The producer that `node` joins, and the kind of the group that ends at `node`."""
        known = self._joins.get(node.id)
        if known is None:
            known = self._joins[node.id] = self._find_join(node)
        return known

    def _find_join(self, node: Node) -> tuple[Node | None, str]:
        if self._diamonds.figure(node) or self._diamonds.anchor(node) is not None:
            return None, "figure"
        if node.defined and node.op_type in _READERS:
            for value in node.inputs:
                producer = self.graph.producer_node(value) if value else None
                if producer is None or self._only_reader(producer) is not node or node.inputs.count(value) > 1:
                    continue
                kind = self._join(producer)[1]
                if kind == "Conv" and self.is_residual(node):
                    return producer, "residual"
                joined = JOINS.get((kind, node.op_type))
                if joined is not None and self._other_operands_allow(kind, node, value):
                    return producer, joined
        if node.op_type == "Conv" and node.inputs[1] not in self.graph.constants:
            return None, "convolution with computed weights"
        return None, node.op_type

    def _only_reader(self, node: Node) -> Node | None:
        """The one node that reads the one value that `node` makes."""
        if not node.defined or len(node.outputs) != 1 or node.outputs[0] in self.graph.output_set:
            return None
        readers = self.graph.reader_ids(node.outputs[0])
        return self.graph.nodes[readers[0]] if len(readers) == 1 else None

    def _other_operands_allow(self, kind: str, node: Node, value: str) -> bool:
        """Whether the operands other than `value` let `node` join: constant, and for a convolution one a channel."""
        if node.op_type not in BY_CONSTANT:
            return True
        others = [self.graph.constants.get(v) for v in node.inputs if v != value]
        if kind != "Conv":
            return None not in others
        constant, channels = others[0], self.graph.dim(value, 1)
        if constant is None:
            return False
        if node.op_type == "Mul" and constant.shape == ():
            return True
        return constant.shape in ((channels, 1, 1), (1, channels, 1, 1))
