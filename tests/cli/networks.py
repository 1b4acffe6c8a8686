"""Tiny networks for the tests of the command line and the pipeline."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def tiny(path: Path, depth: int = 1, height: int | str = 8) -> Path:
    """Convolutions with batch normalization and Relu, an Identity that is of no use, and a softmax."""
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def weight(array: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(array.astype(np.float32), f"w{len(weights)}"))
        return weights[-1].name

    value = "x"
    for i in range(depth):
        nodes.append(helper.make_node("Conv", [value, weight(rng.normal(size=(4, 4, 3, 3)))], [f"c{i}"], pads=[1] * 4))
        norm = [weight(rng.uniform(0.5, 1.5, 4)) for _ in range(4)]
        nodes.append(helper.make_node("BatchNormalization", [f"c{i}", *norm], [f"b{i}"]))
        nodes.append(helper.make_node("Relu", [f"b{i}"], [f"r{i}"]))
        nodes.append(helper.make_node("Identity", [f"r{i}"], [f"i{i}"]))
        value = f"i{i}"
    nodes.append(helper.make_node("Softmax", [value], ["y"], axis=-1))
    shape = [1, 4, height, 8]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, str(path))
    return path
