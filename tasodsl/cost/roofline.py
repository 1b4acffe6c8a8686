"""Estimated costs from a device's published figures, for what cannot be measured here.

A node takes as long as its arithmetic or its memory traffic at the device's best, whichever is longer, and a launch.
That is an estimate and is labelled as such wherever it is shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from tasodsl.cost.sizes import NoSize, Sizes
from tasodsl.graph.graph import Constant, Graph, Node

NO_WORK = frozenset({"Identity", "Dropout", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})
"""Operators that move no data: the runtime gives their operand another shape, or removes them."""
PER_ELEMENT = MappingProxyType(
    {"Exp": 10, "Log": 10, "Tanh": 10, "Sigmoid": 10, "Erf": 10, "Gelu": 15, "Softmax": 12, "Pow": 10}
)
"""Arithmetic operations for one element of the output, where it is more than one."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device's published figures."""

    name: str
    flops_per_second: float
    bytes_per_second: float
    launch_seconds: float


CPU_CORE = Device("one CPU core with 256-bit vectors", 1e11, 2e10, 1e-6)


@dataclass(frozen=True, slots=True)
class RooflineCost:
    """The analytic cost model; same questions as `OnnxruntimeCost`."""

    device: Device = CPU_CORE
    sizes: Sizes = field(default_factory=Sizes)

    @property
    def label(self) -> str:
        return f"estimated from the figures of {self.device.name}, not measured"

    def node_seconds(self, graph: Graph, node: Node) -> float:
        """The node's estimated seconds; 0 for a node that moves no data, or of which nothing is known."""
        if node.op_type in NO_WORK or not node.defined or all(v in graph.constants for v in node.operands()):
            return 0.0
        try:
            read = sum(self._bytes(graph, v) for v in node.operands())
            written = sum(self._bytes(graph, v) for v in node.outputs if v)
            flops = self._flops(graph, node)
        except NoSize:
            return 0.0
        moving = (read + written) / self.device.bytes_per_second
        return max(flops / self.device.flops_per_second, moving) + self.device.launch_seconds

    def graph_seconds(self, graph: Graph) -> float:
        return sum(self.node_seconds(graph, node) for node in graph.nodes.values())

    def _shape(self, graph: Graph, value: str) -> Sequence[int]:
        constant = graph.constants.get(value)
        if constant is not None:
            return constant.shape
        shape = graph.shape(value)
        if shape is None:
            raise NoSize(value)
        return self.sizes.shape(shape)

    def _bytes(self, graph: Graph, value: str) -> int:
        dtype = graph.constants[value].dtype if value in graph.constants else graph.dtype(value)
        if not dtype:
            raise NoSize(value)
        return Constant(value, tuple(self._shape(graph, value)), dtype, _never).nbytes

    def _flops(self, graph: Graph, node: Node) -> float:
        out = math.prod(self._shape(graph, node.id))
        if node.op_type == "Conv":
            return 2.0 * out * math.prod(self._shape(graph, node.inputs[1])[1:])
        if node.op_type == "ConvTranspose":
            return (
                2.0 * math.prod(self._shape(graph, node.inputs[0])) * math.prod(self._shape(graph, node.inputs[1])[1:])
            )
        if node.op_type in ("MatMul", "Gemm"):
            left = self._shape(graph, node.inputs[0])
            return 2.0 * out * left[-2 if node.op_type == "Gemm" and node.attribute("transA") else -1]
        if node.op_type.endswith("Pool") or node.op_type.startswith("Reduce"):
            return float(math.prod(self._shape(graph, node.inputs[0])))
        return float(out * PER_ELEMENT.get(node.op_type, 1))


def _never() -> np.ndarray:
    raise AssertionError("only the size is asked for")
