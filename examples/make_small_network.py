"""Make a small network to try the optimizer on: the shapes of real ones, with seeded weights.

usage: make_small_network.py OUT.onnx

It holds what exporters leave in real models: batch normalization after convolutions, HardSwish written as
x * Clip(x + 3, 0, 6) / 6, parallel 1x1 convolutions of one input, a residual path, an attention block whose three
projections are separate products, and LayerNormalization and Gelu written out as elementwise operators.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IMAGE = 64
WIDTH = 96
HEADS = 4
CLASSES = 10


class Builder:
    """Collects nodes and weights; every method returns the name of the value it made."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        out = f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [out], **attributes))
        return out

    def weight(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def normal(self, *shape: int, fan_in: int) -> str:
        return self.weight((self.rng.standard_normal(shape) * np.sqrt(2.0 / fan_in)).astype(np.float32))

    def uniform(self, low: float, high: float, *shape: int) -> str:
        return self.weight(self.rng.uniform(low, high, shape).astype(np.float32))

    def scalar(self, value: float) -> str:
        return self.weight(np.array(value, dtype=np.float32))

    def ints(self, *values: int) -> str:
        return self.weight(np.array(values, dtype=np.int64))

    def conv_bn(self, x: str, cin: int, cout: int, kernel: int, stride: int = 1, group: int = 1) -> str:
        fan_in = cin // group * kernel * kernel
        pad = kernel // 2
        y = self.op(
            "Conv",
            x,
            self.normal(cout, cin // group, kernel, kernel, fan_in=fan_in),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[pad] * 4,
            group=group,
        )
        scale, bias = self.uniform(0.8, 1.2, cout), self.uniform(-0.2, 0.2, cout)
        mean, var = self.uniform(-0.2, 0.2, cout), self.uniform(0.5, 1.5, cout)
        return self.op("BatchNormalization", y, scale, bias, mean, var, epsilon=1e-5)

    def hard_swish(self, x: str) -> str:
        gate = self.op("Clip", self.op("Add", x, self.scalar(3.0)), self.scalar(0.0), self.scalar(6.0))
        return self.op("Div", self.op("Mul", x, gate), self.scalar(6.0))

    def inverted_residual(self, x: str, width: int) -> str:
        y = self.hard_swish(self.conv_bn(x, width, 4 * width, 1))
        y = self.hard_swish(self.conv_bn(y, 4 * width, 4 * width, 3, group=4 * width))
        return self.op("Add", x, self.conv_bn(y, 4 * width, width, 1))

    def inception(self, x: str, width: int) -> str:
        """Four branches, each beginning with a 1x1 convolution of the same input."""
        part = width // 4
        branches = [
            self.op("Relu", self.conv_bn(x, width, part, 1)),
            self.op("Relu", self.conv_bn(self.op("Relu", self.conv_bn(x, width, part, 1)), part, part, 3)),
            self.op("Relu", self.conv_bn(self.op("Relu", self.conv_bn(x, width, part, 1)), part, part, 5)),
            self.op("Relu", self.conv_bn(x, width, part, 1)),
        ]
        return self.op("Concat", *branches, axis=1)

    def layer_norm(self, x: str) -> str:
        centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1], keepdims=1))
        variance = self.op("ReduceMean", self.op("Pow", centred, self.scalar(2.0)), axes=[-1], keepdims=1)
        deviation = self.op("Sqrt", self.op("Add", variance, self.scalar(1e-5)))
        normal = self.op("Div", centred, deviation)
        return self.op("Add", self.op("Mul", normal, self.uniform(0.8, 1.2, WIDTH)), self.uniform(-0.2, 0.2, WIDTH))

    def gelu(self, x: str) -> str:
        erf = self.op("Erf", self.op("Div", x, self.scalar(float(np.sqrt(2.0)))))
        return self.op("Mul", self.op("Mul", x, self.op("Add", erf, self.scalar(1.0))), self.scalar(0.5))

    def linear(self, x: str, cin: int, cout: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.normal(cin, cout, fan_in=cin)), self.uniform(-0.1, 0.1, cout))

    def heads(self, x: str, tokens: int, perm: Sequence[int]) -> str:
        split = self.op("Reshape", x, self.ints(1, tokens, HEADS, WIDTH // HEADS))
        return self.op("Transpose", split, perm=list(perm))

    def attention(self, x: str, tokens: int) -> str:
        y = self.layer_norm(x)
        query = self.heads(self.linear(y, WIDTH, WIDTH), tokens, (0, 2, 1, 3))
        key = self.heads(self.linear(y, WIDTH, WIDTH), tokens, (0, 2, 3, 1))
        value = self.heads(self.linear(y, WIDTH, WIDTH), tokens, (0, 2, 1, 3))
        scores = self.op("Div", self.op("MatMul", query, key), self.scalar(float(np.sqrt(WIDTH / HEADS))))
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), value)
        joined = self.op("Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]), self.ints(1, tokens, WIDTH))
        return self.op("Add", x, self.linear(joined, WIDTH, WIDTH))

    def feed_forward(self, x: str) -> str:
        y = self.gelu(self.linear(self.layer_norm(x), WIDTH, 4 * WIDTH))
        return self.op("Add", x, self.linear(y, 4 * WIDTH, WIDTH))


def make_network(seed: int = 0) -> onnx.ModelProto:
    """Convolutions down to an 8x8 grid, then two transformer blocks over its 64 places, then a classifier."""
    b = Builder(seed)
    x = b.hard_swish(b.conv_bn("image", 3, 32, 3, stride=2))
    x = b.inverted_residual(x, 32)
    x = b.inception(b.op("Relu", b.conv_bn(x, 32, 64, 3, stride=2)), 64)
    x = b.inception(x, 64)
    x = b.op("Relu", b.conv_bn(x, 64, WIDTH, 3, stride=2))
    x = b.inverted_residual(x, WIDTH)
    tokens = (IMAGE // 8) ** 2
    x = b.op("Transpose", b.op("Reshape", x, b.ints(1, WIDTH, tokens)), perm=[0, 2, 1])
    for _ in range(2):
        x = b.feed_forward(b.attention(x, tokens))
    x = b.op("ReduceMean", b.layer_norm(x), axes=[1], keepdims=0)
    logits = b.linear(x, WIDTH, CLASSES)
    b.nodes.append(helper.make_node("Softmax", [logits], ["probabilities"], axis=-1))
    graph = helper.make_graph(
        b.nodes,
        "small_network",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, IMAGE, IMAGE])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, CLASSES])],
        b.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    model = make_network()
    Path(sys.argv[1]).write_bytes(model.SerializeToString())
    print(f"{sys.argv[1]}: {len(model.graph.node)} nodes, {model.ByteSize() / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
