"""From the many forms that ONNX's opsets give a node to the one form that rules are written for.

The normal form is the newest meaning of the operator with every attribute present, axes non-negative, and operands that
only say how (`axes`, `split`, `pads`, …) turned into attributes, which is possible when they are constants. A node that
says anything else is not in normal form and is carried through the optimizer as it came. `lower` goes the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx

from tasodsl.graph.call import Call, NotNormal
from tasodsl.graph.graph import AttributeValue, Constant, ValueInfo
from tasodsl.graph.normal_forms import NORMAL_FORMS

OLDEST_OPSET, NEWEST_OPSET = 7, 23
"""Opsets whose meanings this table knows."""


@dataclass(frozen=True, slots=True)
class Normal:
    """A node's normal form; `constants` are operands that were attributes in the model's opset."""

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, AttributeValue], ...]
    constants: Mapping[str, Constant]


def normalize(
    proto: onnx.NodeProto,
    opset: int,
    info: Mapping[str, ValueInfo],
    constant_of: Callable[[str], Constant | None],
    used: Callable[[str], bool],
) -> Normal | None:
    """The normal form of a node of ONNX's own domain, or None when it has none.

    `used` tells whether a value is read or is a graph output.
    """
    make = NORMAL_FORMS.get(proto.op_type)
    attributes = plain_attributes(proto)
    if make is None or len(attributes) != len(proto.attribute) or not OLDEST_OPSET <= opset <= NEWEST_OPSET:
        return None
    call = Call(proto.op_type, tuple(proto.input), tuple(proto.output), attributes, opset, info, constant_of, used)
    try:
        normal = make(call)
    except NotNormal:
        return None
    if call.attributes or not any(call.outputs):
        return None
    return Normal(call.op_type, _trimmed(call.inputs), call.outputs, tuple(sorted(normal.items())), call.made)


def _trimmed(names: tuple[str, ...]) -> tuple[str, ...]:
    while names and not names[-1]:
        names = names[:-1]
    return names


def plain_attributes(proto: onnx.NodeProto) -> dict[str, AttributeValue]:
    """The attributes that are numbers, text, or lists of them."""
    found: dict[str, AttributeValue] = {}
    for attribute in proto.attribute:
        if attribute.ref_attr_name:
            continue
        if attribute.type == onnx.AttributeProto.INT:
            found[attribute.name] = attribute.i
        elif attribute.type == onnx.AttributeProto.FLOAT:
            found[attribute.name] = attribute.f
        elif attribute.type == onnx.AttributeProto.STRING:
            found[attribute.name] = attribute.s.decode("utf-8", "surrogateescape")
        elif attribute.type == onnx.AttributeProto.INTS:
            found[attribute.name] = tuple(attribute.ints)
        elif attribute.type == onnx.AttributeProto.FLOATS:
            found[attribute.name] = tuple(attribute.floats)
        elif attribute.type == onnx.AttributeProto.STRINGS:
            found[attribute.name] = tuple(s.decode("utf-8", "surrogateescape") for s in attribute.strings)
    return found
