"""Whether the runtime has a kernel at all: it lacks some (a convolution of float64, most of bfloat16).

The answer comes from loading a model of one node; its operands are as few as the operator's schema allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

import onnx
from onnx import defs

from tasodsl.cost.kernel import IR_VERSION
from tasodsl.graph.dtypes import DTYPE_NAMES, DTYPE_NUMBERS
from tasodsl.runtime import RuntimeRefused, Session

_ATTRIBUTES: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "AveragePool": {"kernel_shape": [1, 1]},
        "MaxPool": {"kernel_shape": [1, 1]},
        "LpPool": {"kernel_shape": [1, 1]},
        "Cast": {"to": int(onnx.TensorProto.FLOAT)},
        "Concat": {"axis": 0},
        "LRN": {"size": 1},
        "DepthToSpace": {"blocksize": 1},
        "SpaceToDepth": {"blocksize": 1},
        "OneHot": {"axis": 0},
    }
)
"""Values for the attributes that operators require; what is not listed needs none for its kernel to be found."""

_IMAGES = frozenset(
    {"AveragePool", "MaxPool", "LpPool", "Conv", "ConvTranspose", "LRN", "DepthToSpace", "SpaceToDepth"}
)


@lru_cache(maxsize=4096)
def has_kernel(domain: str, op_type: str, opset: int, dtype: str) -> bool:
    """Whether the runtime executes this operator at `opset` on operands of the element type `dtype`."""
    try:
        schema = defs.get_schema(op_type, opset, domain)
    except defs.SchemaError:
        return False
    wanted = _tensor_type(dtype)
    if wanted is None:
        return False
    variables = [formal.type_str for formal in schema.inputs]
    result = schema.outputs[0].type_str
    data = result if result in variables else variables[0] if variables else ""
    inputs: list[onnx.ValueInfoProto] = []
    for index in range(_operands(op_type, schema)):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        choices = sorted(formal.types)
        kind = wanted if formal.type_str == data else _preferred(choices, wanted)
        if kind not in choices:
            return False
        shape = [1, 1, 1, 1] if op_type in _IMAGES and formal.type_str == data else None
        inputs.append(onnx.helper.make_tensor_value_info(f"x{index}", _number(kind), shape))
    outputs = [f"y{i}" for i in range(max(schema.min_output, 1))]
    node = onnx.helper.make_node(op_type, [i.name for i in inputs], outputs, domain=domain)
    known = _ATTRIBUTES.get(op_type, {})
    node.attribute.extend(onnx.helper.make_attribute(k, v) for k, v in known.items())
    body = onnx.helper.make_graph([node], "probe", inputs, [onnx.ValueInfoProto(name=o) for o in outputs])
    opsets = [onnx.helper.make_opsetid(domain, opset)] if domain in ("", "ai.onnx") else []
    if not opsets:
        opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid(domain, opset)]
    model = onnx.helper.make_model(body, opset_imports=opsets, ir_version=IR_VERSION)
    try:
        Session(model.SerializeToString(), optimize=False)
    except RuntimeRefused:
        return False
    return True


def _operands(op_type: str, schema: defs.OpSchema) -> int:
    """How many operands to give: as few as possible, though Resize needs one of its optional ones."""
    least = 3 if op_type == "Resize" else 1
    return max(schema.min_input, min(least, len(schema.inputs)))


def _tensor_type(dtype: str) -> str | None:
    number = DTYPE_NUMBERS.get(dtype)
    return None if number is None else f"tensor({onnx.TensorProto.DataType.Name(number).lower()})"


def _preferred(choices: list[str], wanted: str) -> str:
    """The type of an operand that need not have the first one's: 64-bit integers, as for indices, else the same."""
    for kind in ("tensor(int64)", wanted):
        if kind in choices:
            return kind
    return choices[0]


def _number(kind: str) -> int:
    name = kind.removeprefix("tensor(").removesuffix(")")
    return next(n for n in DTYPE_NAMES if onnx.TensorProto.DataType.Name(n).lower() == name)
