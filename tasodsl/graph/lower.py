"""From the normal form to a node of the model's own opset: the inverse of `normalize`.

A rewrite makes nodes in normal form; an older opset may say the same differently (an attribute instead of an operand)
or may not be able to say it, which `CannotLower` tells and `can_lower` foretells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import onnx
from onnx import defs

from tasodsl.graph.dtypes import DTYPE_NUMBERS
from tasodsl.graph.graph import AttributeValue, Constant, Node, ValueInfo

Operand = str | Constant


class CannotLower(Exception):
    """The model's opset has no node with this meaning."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """One node as an opset says it. Operands are values by name, or new constants."""

    op_type: str
    inputs: tuple[Operand, ...]
    attributes: Mapping[str, AttributeValue]


@dataclass(slots=True)
class _Target:
    """What the lowering of one node may look at, and the node being made."""

    node: Node
    opset: int
    info: Mapping[str, ValueInfo]
    constant_of: Callable[[str], Constant | None]
    op_type: str
    inputs: list[Operand]
    attributes: dict[str, AttributeValue]

    def need(self, opset: int) -> None:
        if self.opset < opset:
            raise CannotLower(f"{self.node.op_type} needs opset {opset}, and the model has {self.opset}")

    def refuse(self) -> CannotLower:
        return CannotLower(f"opset {self.opset} cannot say this {self.node.op_type}")

    def to_operand(self, name: str, index: int, dtype: str = "int64") -> None:
        """Make the attribute `name` the operand `index`."""
        value = self.attributes.pop(name)
        while len(self.inputs) <= index:
            self.inputs.append("")
        self.inputs[index] = Constant.of(np.array(value, dtype))

    def to_number(self, index: int) -> float | None:
        """The operand `index` as a number for an attribute; None when it is absent."""
        name = self.inputs[index] if index < len(self.inputs) else ""
        if name == "":
            return None
        constant = self.constant_of(name) if isinstance(name, str) else None
        if constant is None or constant.dtype not in ("float32", "float16"):
            raise self.refuse()
        return float(constant.array().reshape(()))


def _list_operand(name: str, since: int) -> Callable[[_Target], None]:
    """A list that is operand 1 from opset `since` on."""

    def lower_list(t: _Target) -> None:
        if t.opset >= since:
            t.to_operand(name, 1)

    return lower_list


def _softmax(t: _Target) -> None:
    if t.opset >= 13:
        return
    known, axis = t.info.get(t.node.inputs[0]), t.node.attribute("axis")
    assert isinstance(axis, int)
    if known is None or known.shape is None or any(d != 1 for d in known.shape[axis + 1 :]):
        raise t.refuse()


def _max_pool(t: _Target) -> None:
    if t.opset < 10 and t.attributes.pop("dilations") != (1, 1):
        raise t.refuse()


def _clip(t: _Target) -> None:
    if t.opset >= 11:
        return
    low, high = t.to_number(1), t.to_number(2)
    del t.inputs[1:]
    if low is not None:
        t.attributes["min"] = low
    if high is not None:
        t.attributes["max"] = high


def _depth_to_space(t: _Target) -> None:
    if t.opset < 11 and t.attributes.pop("mode") != "DCR":
        raise t.refuse()


def _cast(t: _Target) -> None:
    t.attributes["to"] = DTYPE_NUMBERS[str(t.node.attribute("to"))]


def _slice(t: _Target) -> None:
    if t.opset >= 10:
        for index, name in enumerate(("starts", "ends", "axes", "steps"), 1):
            t.to_operand(name, index)
        return
    steps = t.attributes.pop("steps")
    if isinstance(steps, tuple) and any(s != 1 for s in steps):
        raise t.refuse()


def _pad(t: _Target) -> None:
    if t.opset < 11:
        value = t.to_number(1)
        del t.inputs[1:]
        t.attributes["value"] = 0.0 if value is None else value
        return
    if len(t.inputs) > 1:
        t.inputs.insert(1, "")
    t.to_operand("pads", 1)


def _resize(t: _Target) -> None:
    plain = t.node.attribute("coordinate_transformation_mode") == "asymmetric"
    plain = plain and t.node.attribute("nearest_mode") == "floor"
    spatial = t.attributes.pop("scales")
    assert isinstance(spatial, tuple)
    scales = (1.0, 1.0, *(float(s) for s in spatial))
    t.attributes["mode"] = "nearest"
    t.attributes["scales"] = scales
    if t.opset >= 11:
        t.to_operand("scales", 2, "float32")
        if t.opset < 13:
            t.inputs[1] = Constant.of(np.zeros((0,), np.float32))
        return
    if not plain:
        raise t.refuse()
    del t.attributes["coordinate_transformation_mode"], t.attributes["nearest_mode"]
    if t.opset < 10:
        t.op_type = "Upsample"
    if t.opset >= 9:
        t.to_operand("scales", 1, "float32")


_DIFFERENT: Mapping[str, Callable[[_Target], None]] = MappingProxyType(
    {
        "Softmax": _softmax,
        "LogSoftmax": _softmax,
        "MaxPool": _max_pool,
        "Clip": _clip,
        "Cast": _cast,
        "Slice": _slice,
        "Pad": _pad,
        "Resize": _resize,
        "Split": _list_operand("split", 13),
        "Squeeze": _list_operand("axes", 13),
        "Unsqueeze": _list_operand("axes", 13),
        "ReduceSum": _list_operand("axes", 13),
        "ReduceMean": _list_operand("axes", 18),
        "ReduceMax": _list_operand("axes", 18),
        "ReduceMin": _list_operand("axes", 18),
        "ReduceL1": _list_operand("axes", 18),
        "ReduceL2": _list_operand("axes", 18),
        "ReduceSumSquare": _list_operand("axes", 18),
        "Reshape": _list_operand("shape", 1),
        "Expand": _list_operand("shape", 1),
        "Tile": _list_operand("repeats", 1),
        "DepthToSpace": _depth_to_space,
    }
)
"""Operators whose node is not simply its normal form."""


def lower(
    node: Node, opset: int, info: Mapping[str, ValueInfo], constant_of: Callable[[str], Constant | None]
) -> Lowered:
    """The node in `opset` that means what `node`, in normal form, means; `CannotLower` when there is none."""
    assert node.defined
    target = _Target(node, opset, info, constant_of, node.op_type, list(node.inputs), dict(node.attributes))
    known = info.get(node.inputs[0]) if node.inputs else None
    different = _DIFFERENT.get(node.op_type)
    if different is not None:
        different(target)
    if node.op_type == "Reshape":
        shape = node.attribute("shape")
        if isinstance(shape, tuple) and 0 in shape:
            target.need(14)
            target.attributes["allowzero"] = 1
    if not can_lower(target.op_type, opset, "" if known is None else known.dtype):
        raise target.refuse()
    return Lowered(target.op_type, tuple(target.inputs), target.attributes)


def lowered_call(
    node: Node, opset: int, info: Mapping[str, ValueInfo], constant_of: Callable[[str], Constant | None]
) -> tuple[onnx.NodeProto, dict[str, Constant]]:
    """`lower`, with names for the new constants."""
    lowered = lower(node, opset, info, constant_of)
    made: dict[str, Constant] = {}
    names: list[str] = []
    for operand in lowered.inputs:
        name = operand if isinstance(operand, str) else f"Constant~{operand.key}"
        if isinstance(operand, Constant):
            made[name] = operand
        names.append(name)
    return node_proto(lowered.op_type, names, node.outputs, lowered.attributes), made


@lru_cache(maxsize=4096)
def can_lower(op_type: str, opset: int, dtype: str = "") -> bool:
    """Whether `opset` has the operator, taking a first operand of this element type ("" for any)."""
    name = "Upsample" if op_type == "Resize" and opset < 10 else op_type
    try:
        schema = defs.get_schema(name, opset)
    except defs.SchemaError:
        return False
    if schema.deprecated:
        return False
    if not dtype or not schema.inputs:
        return True
    number = DTYPE_NUMBERS.get(dtype)
    if number is None:
        return False
    return f"tensor({onnx.TensorProto.DataType.Name(number).lower()})" in schema.inputs[0].types


def node_proto(
    op_type: str, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, AttributeValue]
) -> onnx.NodeProto:
    """A node of ONNX's own domain. An empty list is a list of integers."""
    proto = onnx.NodeProto(op_type=op_type, input=inputs, output=outputs)
    for name in sorted(attributes):
        value = attributes[name]
        if isinstance(value, tuple):
            kind = onnx.AttributeProto.FLOATS if value and isinstance(value[0], float) else onnx.AttributeProto.INTS
            kind = onnx.AttributeProto.STRINGS if value and isinstance(value[0], str) else kind
        elif isinstance(value, str):
            kind = onnx.AttributeProto.STRING
        else:
            kind = onnx.AttributeProto.FLOAT if isinstance(value, float) else onnx.AttributeProto.INT
            value = value if kind == onnx.AttributeProto.FLOAT else int(value)
        proto.attribute.append(onnx.helper.make_attribute(name, value, attr_type=kind))
    return proto
