"""One-group models: what is measured, cut out of a graph as a model of its own.

A kernel's key says all that its time can depend on (operators, attributes, types, all shapes, which operands are
constant and the content of small constants), and nothing else: equal keys are measured once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx
from onnx import defs

from tasodsl.cost.sizes import Sizes
from tasodsl.graph.dtypes import DTYPE_NUMBERS
from tasodsl.graph.graph import Constant, Graph, Node
from tasodsl.graph.lower import CannotLower, lower
from tasodsl.runtime import Feed

IR_VERSION = 10
SMALL = 8
"""Constants of up to this many elements are measured with their content: scalars decide what the runtime fuses."""
LARGEST_BYTES = 1 << 30


class CannotMeasure(Exception):
    """A group that cannot be run on its own: an unknown shape or type, or too large."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A value that a group reads from outside."""

    dtype: str
    shape: tuple[int, ...]
    constant: bool
    content: str
    """The key of a small constant's content, "" for the rest."""

    def __str__(self) -> str:
        mark = f"={self.content}" if self.content else "const" if self.constant else ""
        return f"{self.dtype}{list(self.shape)}{mark}"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A group of nodes in a row, with their outside operands by name."""

    nodes: tuple[Node, ...]
    operands: Mapping[str, Operand]
    key: str


def kernel_of(graph: Graph, nodes: Sequence[Node], sizes: Sizes) -> Kernel:
    """The kernel of nodes that run together, first node first. CannotMeasure, or sizes' NoSize."""
    operands: dict[str, Operand] = {}
    numbers: dict[str, str] = {}
    calls: list[str] = []
    for node in nodes:
        if not node.defined:
            raise CannotMeasure(f"{node.op_type} is not understood")
        for value in filter(None, node.inputs):
            if value not in numbers:
                operands[value] = _operand(graph, value, sizes)
                numbers[value] = f"{len(numbers)}:{operands[value]}"
        attributes = ",".join(f"{k}={v}" for k, v in node.attributes)
        name = f"{node.domain}{node.op_type}-{_version(node, graph.opset)}"
        calls.append(f"{name}[{attributes}]({','.join(numbers.get(v, '') for v in node.inputs)})")
        for value in filter(None, node.outputs):
            numbers[value] = str(len(numbers))
    return Kernel(tuple(nodes), operands, " ".join(calls))


def _version(node: Node, opset: int) -> int:
    """The operator's version: the runtime has a kernel for each, and a newer one is not always the faster."""
    try:
        return defs.get_schema(node.op_type, opset, node.domain).since_version
    except defs.SchemaError as error:
        raise CannotMeasure(f"opset {opset} has no {node.op_type}") from error


def _operand(graph: Graph, value: str, sizes: Sizes) -> Operand:
    constant = graph.constants.get(value)
    if constant is not None:
        small = int(np.prod(constant.shape, dtype=np.int64)) <= SMALL
        return Operand(constant.dtype, constant.shape, True, constant.key if small else "")
    shape, dtype = graph.shape(value), graph.dtype(value)
    if shape is None or dtype in ("", "string"):
        raise CannotMeasure(f"the shape of {value!r} is unknown, or its type is none to compute with")
    return Operand(dtype, sizes.shape(shape), False, "")


def kernel_model(graph: Graph, kernel: Kernel) -> tuple[bytes, Feed]:
    """The kernel as a model, and inputs to run it on."""
    rng = np.random.default_rng(0)
    feed: Feed = {}
    initializers: list[onnx.TensorProto] = []
    inputs: list[onnx.ValueInfoProto] = []
    total = sum(int(np.prod(o.shape, dtype=np.int64)) * 8 for o in kernel.operands.values())
    if total > LARGEST_BYTES:
        raise CannotMeasure(f"{total} bytes of operands")
    for name, operand in kernel.operands.items():
        if operand.constant:
            array = _constant(graph, name, operand, rng)
            initializers.append(onnx.numpy_helper.from_array(array, name))
        else:
            array = _random(operand, rng)
            feed[name] = array
            inputs.append(onnx.helper.make_tensor_value_info(name, _element_type(operand.dtype), operand.shape))
    nodes: list[onnx.NodeProto] = []
    for node in kernel.nodes:
        lowered, extra = _lowered(graph, node)
        nodes.append(lowered)
        initializers.extend(extra)
    read = {v for node in kernel.nodes for v in node.inputs}
    outputs = [onnx.ValueInfoProto(name=o) for n in kernel.nodes for o in n.outputs if o and o not in read]
    body = onnx.helper.make_graph(nodes, "kernel", inputs, outputs, initializers)
    model = onnx.helper.make_model(
        body, opset_imports=[onnx.helper.make_opsetid("", graph.opset)], ir_version=IR_VERSION, producer_name="tasodsl"
    )
    return model.SerializeToString(), feed


def _constant(graph: Graph, name: str, operand: Operand, rng: np.random.Generator) -> np.ndarray:
    """Indices are real ones; large weights are random, so that a folded weight need not be computed to be timed."""
    if operand.content or not _is_float(operand.dtype):
        return graph.constants[name].array()
    return _random(operand, rng)


def _random(operand: Operand, rng: np.random.Generator) -> np.ndarray:
    """Floats between 0.1 and 1: no denormals and no NaN, whose arithmetic takes another time."""
    dtype = np.dtype(getattr(ml_dtypes, operand.dtype, operand.dtype))
    if operand.dtype == "bool":
        return rng.random(operand.shape) < 0.5
    if not _is_float(operand.dtype):
        return np.zeros(operand.shape, dtype)
    return np.asarray(rng.uniform(0.1, 1.0, operand.shape)).astype(dtype)


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def _element_type(dtype: str) -> int:
    number = DTYPE_NUMBERS.get(dtype)
    if number is None:
        raise CannotMeasure(f"type {dtype}")
    return number


def _lowered(graph: Graph, node: Node) -> tuple[onnx.NodeProto, list[onnx.TensorProto]]:
    """The node as the model's opset says it, and the constant operands that this takes."""
    try:
        call = lower(node, graph.opset, graph.info, graph.constants.get)
    except CannotLower as error:
        raise CannotMeasure(str(error)) from error
    names: list[str] = []
    extra: list[onnx.TensorProto] = []
    for index, operand in enumerate(call.inputs):
        if isinstance(operand, Constant):
            names.append(f"{node.id}/operand{index}")
            extra.append(onnx.numpy_helper.from_array(operand.array(), names[-1]))
        else:
            names.append(operand)
    lowered = onnx.helper.make_node(call.op_type, names, list(node.outputs), domain=node.domain)
    lowered.attribute.extend(onnx.helper.make_attribute(k, v) for k, v in call.attributes.items())
    return lowered, extra
