"""One operator in normal form, run by onnxruntime (or by ONNX's reference where the runtime has no kernel)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from tasodsl.graph.dtypes import DTYPE_NUMBERS

Array = NDArray[Any]

# Where ONNX has an operand for what the normal form says by an attribute.
AS_OPERAND: Mapping[str, Mapping[str, int]] = {
    "Split": {"split": 1},
    "Slice": {"starts": 1, "ends": 2, "axes": 3, "steps": 4},
    "Pad": {"pads": 1},
    "Reshape": {"shape": 1},
    "Expand": {"shape": 1},
    "Tile": {"repeats": 1},
    "Squeeze": {"axes": 1},
    "Unsqueeze": {"axes": 1},
    "Resize": {"scales": 2},
    **{name: {"axes": 1} for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")},
    **{name: {"axes": 1} for name in ("ReduceL1", "ReduceL2", "ReduceSumSquare")},
}


def model(op: str, operands: Sequence[Array | None], attributes: Mapping[str, Any], opset: int) -> onnx.ModelProto:
    """A model of one node; the operands are its inputs, what ONNX calls operands besides them its initializers."""
    names = ["" if x is None else f"x{k}" for k, x in enumerate(operands)]
    inputs = [
        onnx.helper.make_tensor_value_info(f"x{k}", onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for k, x in enumerate(operands)
        if x is not None
    ]
    attributes = dict(attributes)
    initializers: list[onnx.TensorProto] = []
    for name, place in AS_OPERAND.get(op, {}).items():
        if name not in attributes:
            continue
        value = attributes.pop(name)
        if op == "Resize":
            value = np.array([1, 1, *value], np.float32)
            attributes["mode"] = "nearest"
        if op == "Pad" and len(names) > 1:
            names.insert(1, "")
        names.extend([""] * (place + 1 - len(names)))
        names[place] = name
        initializers.append(onnx.numpy_helper.from_array(np.asarray(value, getattr(value, "dtype", np.int64)), name))
    if op == "Reshape":
        attributes["allowzero"] = 1
    if op == "Cast":
        attributes["to"] = DTYPE_NUMBERS[attributes["to"]]
    if op in ("AveragePool", "MaxPool", "Conv", "ConvTranspose"):
        attributes["auto_pad"] = "NOTSET"
    count = initializers[0].dims[0] if op == "Split" else 1
    outputs = [f"y{k}" for k in range(count)]
    node = onnx.helper.make_node(op, names, outputs, **attributes)
    graph = onnx.helper.make_graph(
        [node], "one", inputs, [onnx.ValueInfoProto(name=name) for name in outputs], initializers
    )
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(made)


def run(op: str, operands: Sequence[Array | None], attributes: Mapping[str, Any], opset: int) -> list[Array]:
    """The results of one operator, without the runtime's own rewriting."""
    made = model(op, operands, attributes, opset)
    feeds = {f"x{k}": x for k, x in enumerate(operands) if x is not None}
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except (ort.capi.onnxruntime_pybind11_state.NotImplemented, ort.capi.onnxruntime_pybind11_state.Fail):
        return [np.asarray(y) for y in ReferenceEvaluator(made).run(None, feeds)]
    return session.run(None, feeds)
