"""Nodes whose operands are all constants, computed once by the runtime itself.

Only operators of ONNX's own domain that always give the same result are computed. A result that is not finite although
all operands are is not kept: such a node stays, so that whoever runs the model sees what the author wrote.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
import onnx
import onnx_ir
from onnx import helper

from tasodsl.graph.dtypes import DTYPE_NUMBERS
from tasodsl.graph.graph import Constant, Graph, Node
from tasodsl.graph.lower import CannotLower, lowered_call
from tasodsl.graph.validate import subgraphs
from tasodsl.runtime import RuntimeRefused, Session

RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)

# Quantized weights stay small and recognizable to the runtime, and identities of constants name graph outputs.
_NEVER_FOLDED = RANDOM | {"DequantizeLinear", "QuantizeLinear", "DynamicQuantizeLinear", "Identity", "Dropout"}

_RESHAPING = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})


def is_deterministic(graph: Graph, node: Node) -> bool:
    """Whether the node is a pure function of its operands, for all that we know."""
    if node.domain or node.captures or node.op_type in RANDOM:
        return False
    original = graph.originals.get(node.origin)
    if node.defined:
        return True
    return original is not None and original.known and not any(subgraphs(original.proto)) and node.op_type != "Dropout"


def call_of(graph: Graph, node: Node) -> tuple[onnx.NodeProto, dict[str, Constant]]:
    """The node as the model's opset says it, and the constants that this needs beyond the graph's.

    `CannotLower` when the opset has no such node.
    """
    if not node.defined:
        proto = onnx.NodeProto()
        proto.CopyFrom(graph.originals[node.origin].proto)
        del proto.input[:]
        del proto.output[:]
        proto.input.extend(node.inputs)
        proto.output.extend(node.outputs)
        return proto, {}
    return lowered_call(node, graph.opset, graph.info, graph.constants.get)


def folded(graph: Graph, node: Node) -> dict[str, Constant] | None:
    """The node's outputs as constants; None when it is not to be computed, or cannot be."""
    if node.op_type in _NEVER_FOLDED or not is_deterministic(graph, node):
        return None
    operands = [graph.constants.get(v) for v in node.inputs if v]
    if not operands or any(c is None or c.dtype == "string" for c in operands):
        return None
    first = operands[0]
    assert first is not None
    if node.op_type in _RESHAPING:
        reshaped = _reshaped(graph, node, first)
        return None if reshaped is None else {node.outputs[0]: reshaped}
    try:
        call, made = call_of(graph, node)
        results = _computed(graph, call, made)
    except (CannotLower, RuntimeRefused):
        return None
    if len(results) != sum(o != "" for o in node.outputs):
        return None
    finite = all(_is_finite(c.array()) for c in operands if c is not None)
    constants = {name: Constant.of(result) for name, result in results.items()}
    for name, constant in constants.items():
        if graph.dtype(name) not in ("", constant.dtype) or (finite and not _is_finite(constant.array())):
            return None
    return constants


def _reshaped(graph: Graph, node: Node, operand: Constant) -> Constant | None:
    """The same elements in another shape, without looking at them."""
    shape = tuple(d for d in graph.shape(node.outputs[0]) or (None,) if isinstance(d, int))
    if len(shape) != len(graph.shape(node.outputs[0]) or (None,)) or math.prod(shape) != math.prod(operand.shape):
        return None
    return Constant(f"{operand.key}:{shape}", shape, operand.dtype, lambda: operand.array().reshape(shape))


def _is_finite(array: np.ndarray) -> bool:
    if array.dtype.kind in "iub":
        return True
    return array.dtype.kind == "f" and bool(np.isfinite(array).all())


def _computed(graph: Graph, call: onnx.NodeProto, made: dict[str, Constant]) -> dict[str, np.ndarray]:
    """The used outputs of a node whose operands are constants; without those that are no tensors."""
    outputs = [o for o in call.output if o]
    model = onnx.ModelProto(ir_version=10)
    model.opset_import.append(helper.make_opsetid("", graph.opset))
    model.graph.name = "fold"
    model.graph.node.append(call)
    for name in sorted({v for v in call.input if v}):
        model.graph.initializer.append(_tensor(name, made.get(name) or graph.constants[name]))
    for name in outputs:
        model.graph.output.append(onnx.ValueInfoProto(name=name))
    results = Session(model.SerializeToString(), optimize=False).run({}, outputs)
    return {name: cast(np.ndarray, r) for name, r in zip(outputs, results, strict=True) if isinstance(r, np.ndarray)}


def _tensor(name: str, constant: Constant) -> onnx.TensorProto:
    dtype = onnx_ir.DataType(DTYPE_NUMBERS[constant.dtype])
    return onnx_ir.to_proto(onnx_ir.Tensor(constant.array(), dtype=dtype, name=name))
