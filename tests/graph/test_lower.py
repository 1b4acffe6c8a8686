"""What an opset can say, and what it cannot."""

from __future__ import annotations

import numpy as np
import pytest

from tasodsl.graph.graph import AttributeValue, Constant, Node, ValueInfo
from tasodsl.graph.lower import CannotLower, can_lower, lower
from tasodsl.graph.shapes import infer_node

INFO = {"x": ValueInfo("float32", (1, 4, 6, 6)), "i": ValueInfo("int64", (2,)), "c": ValueInfo("float32", ())}
CONSTANTS = {"c": Constant.of(np.float32(2))}


def lowered(op_type: str, opset: int, inputs: tuple[str, ...] = ("x",), **attributes: AttributeValue) -> object:
    node = Node(op_type, inputs, ("y",), tuple(sorted(attributes.items())))
    return lower(node, opset, INFO, CONSTANTS.get)


@pytest.mark.parametrize(
    ("op_type", "opset", "dtype", "can"),
    [
        ("LayerNormalization", 16, "float32", False),
        ("LayerNormalization", 17, "float32", True),
        ("HardSwish", 13, "float32", False),
        ("HardSwish", 14, "float32", True),
        ("Gelu", 19, "float32", False),
        ("Gelu", 20, "float32", True),
        ("Relu", 13, "int32", False),
        ("Relu", 14, "int32", True),
        ("Equal", 7, "float32", False),
        ("Equal", 11, "float32", True),
        ("Resize", 9, "float32", True),
        ("Conv", 7, "", True),
        ("Conv", 7, "no type", False),
        ("NoOperator", 18, "", False),
    ],
)
def test_can_lower(op_type: str, opset: int, dtype: str, can: bool) -> None:
    assert can_lower(op_type, opset, dtype) == can


REFUSED: list[tuple[str, int, dict[str, AttributeValue]]] = [
    ("LayerNormalization", 16, {"axis": 3, "epsilon": 1e-5}),
    ("Softmax", 12, {"axis": 1}),
    ("Slice", 9, {"axes": (1,), "starts": (0,), "ends": (4,), "steps": (2,)}),
    ("Reshape", 13, {"shape": (0, 3)}),
    (
        "Resize",
        10,
        {"scales": (2.0, 2.0), "coordinate_transformation_mode": "half_pixel", "nearest_mode": "floor"},
    ),
    (
        "MaxPool",
        9,
        {"kernel_shape": (2, 2), "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (2, 2)},
    ),
    ("DepthToSpace", 10, {"blocksize": 2, "mode": "CRD"}),
    ("Relu", 13, {}),
]


@pytest.mark.parametrize(("op_type", "opset", "attributes"), REFUSED, ids=[r[0] for r in REFUSED])
def test_what_an_opset_cannot_say_is_refused(op_type: str, opset: int, attributes: dict[str, AttributeValue]) -> None:
    with pytest.raises(CannotLower, match=op_type):
        lowered(op_type, opset, ("i",) if op_type == "Relu" else ("x",), **attributes)


def test_computed_bounds_need_operands() -> None:
    assert lowered("Clip", 10, ("x", "c")) == lowered("Clip", 7, ("x", "c"))
    with pytest.raises(CannotLower):
        lowered("Clip", 10, ("x", "x"))
    lowered("Clip", 11, ("x", "x"))


def test_shapes_of_new_nodes() -> None:
    node = Node("Split", ("x",), ("a", "b"), (("axis", 1), ("split", (1, 3))))
    shapes = [i.shape for i in infer_node(node, INFO, {})]
    assert shapes == [(1, 1, 6, 6), (1, 3, 6, 6)]
    assert [i.dtype for i in infer_node(Node("Relu", ("x",), ("y",)), INFO, {})] == ["float32"]
