"""Small graphs by hand: operands given by shape, nodes in normal form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tasodsl.graph.dims import Shape
from tasodsl.graph.graph import AttributeValue, Constant, Graph, Node, ValueInfo

CONV_1X1: Mapping[str, AttributeValue] = {"dilations": (1, 1), "group": 1, "pads": (0, 0, 0, 0), "strides": (1, 1)}


def node(op_type: str, inputs: str, outputs: str, **attributes: AttributeValue) -> Node:
    """A node whose operands and results are separated by spaces."""
    return Node(op_type, tuple(inputs.split()), tuple(outputs.split()), tuple(sorted(attributes.items())))


def conv(x: str, w: str, y: str, **attributes: AttributeValue) -> Node:
    return node("Conv", f"{x} {w}", y, **{**CONV_1X1, **attributes})


def graph(
    nodes: Sequence[Node],
    shapes: Mapping[str, Shape],
    constants: Mapping[str, tuple[int, ...]],
    outputs: str,
) -> Graph:
    """A float32 graph: values without a producer are inputs."""
    made = {o for n in nodes for o in n.outputs}
    inputs = [v for v in shapes if v not in made]
    tensors = {name: Constant.of(np.full(shape, 0.5, np.float32)) for name, shape in constants.items()}
    info = {name: ValueInfo("float32", shape) for name, shape in {**shapes, **constants}.items()}
    return Graph.build(nodes, inputs, outputs.split(), info, tensors)
