"""Types and shapes of values, inferred node by node over symbolic dimensions.

ONNX's own inference knows every operator but no arithmetic on symbols, so the operators whose output sizes need it have
formulas here. A dimension that neither can tell becomes a symbol of its own, named after its value and axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import onnx
from onnx import defs, numpy_helper, shape_inference

from tasodsl.graph.dim_values import DimTensor
from tasodsl.graph.dims import Dim, Shape, SymDim, Undecided, symbol
from tasodsl.graph.dtypes import DTYPE_NAMES, DTYPE_NUMBERS
from tasodsl.graph.graph import AttributeValue, Constant, Node, ValueInfo
from tasodsl.graph.lower import lowered_call

UNKNOWN = ValueInfo("", None)
MOST_DATA = 1024
"""Constants with more elements are not shown to ONNX's inference."""

_INFERRED_SINCE: Mapping[str, int] = MappingProxyType({"LessOrEqual": 16, "GreaterOrEqual": 16})
"""Operators that ONNX's inference knows from this opset on only, although they were there before."""

PartialShape = tuple[Dim | None, ...]


def infer_node(
    node: Node, infos: Mapping[str, ValueInfo], constants: Mapping[str, Constant], opset: int = 21
) -> list[ValueInfo]:
    """What is known of the outputs of a node in normal form."""
    proto, made = lowered_call(node, opset, infos, constants.get)
    known = {v: infos[v] for v in node.inputs if v in infos}
    known.update({name: ValueInfo(c.dtype, c.shape) for name, c in made.items()})
    return infer_call(node, proto, opset, known, lambda v: made.get(v) or constants.get(v), lambda _: None)


def infer_call(
    node: Node,
    proto: onnx.NodeProto,
    opset: int,
    infos: Mapping[str, ValueInfo],
    constant_of: Callable[[str], Constant | None],
    dims_of: Callable[[str], DimTensor | None],
) -> list[ValueInfo]:
    """What is known of the outputs of `node`, which is `proto` in ONNX's own domain."""
    names: dict[str, SymDim] = {}
    types = {
        v: _to_type(infos[v], names) for v in (*proto.input, *node.captures) if v and v in infos and infos[v].dtype
    }
    data = {v: t for v in proto.input if v and (t := _data(constant_of(v), dims_of(v))) is not None}
    found: dict[str, onnx.TypeProto] = {}
    if all(v in types for v in proto.input if v):
        try:
            schema = defs.get_schema(proto.op_type, max(opset, _INFERRED_SINCE.get(proto.op_type, 0)), "")
            found = shape_inference.infer_node_outputs(
                schema, proto, types, data, opset_imports=[onnx.helper.make_opsetid("", opset)]
            )
        except (defs.SchemaError, shape_inference.InferenceError, onnx.checker.ValidationError):
            found = {}
    return describe(node, [found.get(o) for o in node.outputs], names, infos, dims_of)


def describe(
    node: Node,
    types: Sequence[onnx.TypeProto | None],
    names: Mapping[str, SymDim],
    infos: Mapping[str, ValueInfo],
    dims_of: Callable[[str], DimTensor | None],
) -> list[ValueInfo]:
    """The outputs' infos from what ONNX inferred, sharpened by our own formulas, unknown dimensions named."""
    results: list[ValueInfo] = []
    for index, output in enumerate(node.outputs):
        dtype, partial = _from_type(types[index], names)
        if index == 0:
            partial = _merged(_sharper(node, infos, dims_of), partial)
        results.append(ValueInfo(dtype, named_shape(output, partial)))
    return results


def named_shape(value: str, partial: PartialShape | None) -> Shape | None:
    """The shape with a symbol of its own for each unknown dimension."""
    if partial is None:
        return None
    return tuple(symbol(f"{value}.{i}") if d is None else d for i, d in enumerate(partial))


def _merged(ours: PartialShape | None, theirs: PartialShape | None) -> PartialShape | None:
    """Our own formulas go first: ONNX's inference for old opsets ignores some axes. Numbers go before symbols."""
    if ours is None or theirs is None or len(ours) != len(theirs):
        return theirs if ours is None else ours
    return tuple(t if o is None or isinstance(t, int) else o for o, t in zip(ours, theirs, strict=True))


def _to_type(info: ValueInfo, names: dict[str, SymDim]) -> onnx.TypeProto:
    made = onnx.TypeProto()
    made.tensor_type.elem_type = DTYPE_NUMBERS[info.dtype]
    if info.shape is None:
        return made
    made.tensor_type.shape.SetInParent()
    for d in info.shape:
        dim = made.tensor_type.shape.dim.add()
        if isinstance(d, int):
            dim.dim_value = d
        else:
            dim.dim_param = str(d)
            names[str(d)] = d
    return made


def _from_type(found: onnx.TypeProto | None, names: Mapping[str, SymDim]) -> tuple[str, PartialShape | None]:
    if found is None or not found.HasField("tensor_type"):
        return "", None
    dtype = DTYPE_NAMES.get(found.tensor_type.elem_type, "")
    if not found.tensor_type.HasField("shape"):
        return dtype, None
    dims: list[Dim | None] = []
    for d in found.tensor_type.shape.dim:
        if d.HasField("dim_value"):
            dims.append(d.dim_value)
        else:
            dims.append(names.get(d.dim_param))
    return dtype, tuple(dims)


def _data(constant: Constant | None, dims: DimTensor | None) -> onnx.TensorProto | None:
    """A small constant operand (an axis list, a shape, scales), as ONNX's inference takes it."""
    if constant is not None:
        numeric = constant.dtype in ("int64", "int32", "float32", "float64", "bool")
        if not numeric or int(np.prod(constant.shape)) > MOST_DATA:
            return None
        return numpy_helper.from_array(constant.array())
    numbers = None if dims is None else dims.numbers()
    if dims is None or numbers is None:
        return None
    return numpy_helper.from_array(np.array(numbers, dims.dtype).reshape((-1,) if dims.rank else ()))


def _sharper(
    node: Node, infos: Mapping[str, ValueInfo], dims_of: Callable[[str], DimTensor | None]
) -> PartialShape | None:
    """The first output's shape by our own formulas."""
    shapes = [None if (known := infos.get(v)) is None else known.shape for v in node.inputs]
    try:
        if node.op_type == "Reshape" and len(node.inputs) > 1:
            return _reshaped(shapes[0], dims_of(node.inputs[1]), dict(node.attributes).get("allowzero", 0) == 1)
        if node.op_type == "Expand" and len(node.inputs) > 1:
            return _expanded(shapes[0], dims_of(node.inputs[1]))
        if node.op_type == "ConstantOfShape" and node.inputs:
            target = dims_of(node.inputs[0])
            return None if target is None else target.elements
        if not node.defined and node.op_type in ("Conv", "ConvTranspose", "MaxPool", "AveragePool"):
            return _same_padded(node, shapes[0], shapes[1] if len(shapes) > 1 else None)
        formula = FORMULAS.get(node.op_type) if node.defined else None
        if formula is None or any(s is None for s in shapes):
            return None
        return formula([s for s in shapes if s is not None], dict(node.attributes))
    except Undecided:
        return None


def _same_padded(node: Node, x: Shape | None, w: Shape | None) -> PartialShape | None:
    """What is sure of a window over any number of axes whose padding is not known: `SAME` tells even the sizes."""
    if x is None or len(x) < 2:
        return None
    attributes = dict(node.attributes)
    strides = attributes.get("strides", (1,) * (len(x) - 2))
    assert isinstance(strides, tuple)
    channels = {"Conv": None if w is None else w[0], "ConvTranspose": None}.get(node.op_type, x[1])
    sizes: list[Dim | None] = [None] * (len(x) - 2)
    if node.op_type != "ConvTranspose" and str(attributes.get("auto_pad")).startswith("SAME"):
        sizes = [(d + int(s) - 1) // int(s) for d, s in zip(x[2:], strides, strict=True)]
    return (x[0], channels, *sizes)


def _reshaped(shape: Shape | None, target: DimTensor | None, allow_zero: bool) -> PartialShape | None:
    if target is None:
        return None
    dims: list[Dim | None] = list(target.elements)
    for i, d in enumerate(dims):
        if isinstance(d, SymDim) and not allow_zero:
            # Were it zero, the runtime would copy the operand's dimension instead: the same only if that is the same.
            dims[i] = d if shape is not None and i < len(shape) and shape[i] == d else _if_positive(d)
        elif d == 0 and not allow_zero:
            dims[i] = shape[i] if shape is not None and i < len(shape) else None
    if dims.count(-1) == 1:
        place = dims.index(-1)
        dims[place] = None if shape is None else _quotient(shape, [d for d in dims if d != -1])
    return tuple(dims)


def _if_positive(d: SymDim) -> Dim | None:
    return d if d.constant > 0 and all(k > 0 for _, k in d.terms) else None


def _quotient(shape: Shape, others: Sequence[Dim | None]) -> Dim | None:
    """The elements of `shape` over those of `others`, where that goes without a remainder for every size."""
    left, rest = list(shape), list(others)
    for d in others:
        if d is not None and not isinstance(d, int) and d in left:
            left.remove(d)
            rest.remove(d)
    if any(d is None or not isinstance(d, int) or d == 0 for d in rest):
        return None
    size: Dim = 1
    for d in left:
        size = size * d
    for d in rest:
        assert isinstance(d, int)
        if isinstance(size, int):
            if size % d:
                return None
            size //= d
        elif size.constant % d or any(k % d for _, k in size.terms):
            return None
        else:
            size = size // d
    return size


def _expanded(shape: Shape | None, target: DimTensor | None) -> PartialShape | None:
    if shape is None or target is None:
        return None
    rank = max(len(shape), len(target.elements))
    left = (1,) * (rank - len(shape)) + shape
    right = (1,) * (rank - len(target.elements)) + target.elements
    return tuple(_broadcast(a, b) for a, b in zip(left, right, strict=True))


def _broadcast(a: Dim, b: Dim) -> Dim | None:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int):
        return a
    return b if isinstance(b, int) else None


Attributes = Mapping[str, AttributeValue]


def _numbers(attributes: Attributes, name: str) -> tuple[int, ...]:
    value = attributes[name]
    assert isinstance(value, tuple)
    return tuple(int(v) for v in value)


def _windowed(sizes: Shape, kernel: Sequence[Dim], attributes: Attributes, dilations: Sequence[int]) -> Shape:
    strides, pads = _numbers(attributes, "strides"), _numbers(attributes, "pads")
    return tuple(
        (sizes[i] + pads[i] + pads[i + 2] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(2)
    )


def _conv(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    x, w = shapes[0], shapes[1]
    return (x[0], w[0], *_windowed(x[2:], w[2:], attributes, _numbers(attributes, "dilations")))


def _conv_transpose(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    x, w = shapes[0], shapes[1]
    strides, pads = _numbers(attributes, "strides"), _numbers(attributes, "pads")
    dilations, extra = _numbers(attributes, "dilations"), _numbers(attributes, "output_padding")
    group = attributes["group"]
    assert isinstance(group, int)
    spatial = (
        (x[i + 2] - 1) * strides[i] + extra[i] + (w[i + 2] - 1) * dilations[i] + 1 - pads[i] - pads[i + 2]
        for i in range(2)
    )
    return (x[0], w[1] * group, *spatial)


def _pool(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    x, kernel = shapes[0], _numbers(attributes, "kernel_shape")
    dilations = _numbers(attributes, "dilations") if "dilations" in attributes else (1, 1)
    return (*x[:2], *_windowed(x[2:], kernel, attributes, dilations))


def _concat(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    axis = attributes["axis"]
    assert isinstance(axis, int)
    total: Dim = 0
    for s in shapes:
        total = total + s[axis]
    known = [next((s[i] for s in shapes if isinstance(s[i], int)), shapes[0][i]) for i in range(len(shapes[0]))]
    known[axis] = total
    return tuple(known)


def _pad(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    x, pads = shapes[0], _numbers(attributes, "pads")
    return tuple(d + pads[i] + pads[len(x) + i] for i, d in enumerate(x))


def _resize(shapes: Sequence[Shape], attributes: Attributes) -> PartialShape:
    x, scales = shapes[0], attributes["scales"]
    assert isinstance(scales, tuple)
    spatial: list[Dim | None] = []
    for d, scale in zip(x[2:], scales, strict=True):
        assert isinstance(scale, float)
        spatial.append(d * int(scale) if scale.is_integer() else None)
    return (*x[:2], *spatial)


def _flatten(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    axis = attributes["axis"]
    assert isinstance(axis, int)
    outer: Dim = 1
    inner: Dim = 1
    for i, d in enumerate(shapes[0]):
        if i < axis:
            outer = outer * d
        else:
            inner = inner * d
    return (outer, inner)


def _slice(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    x = list(shapes[0])
    rows = (_numbers(attributes, n) for n in ("axes", "starts", "ends", "steps"))
    for axis, start, end, step in zip(*rows, strict=True):
        x[axis] = max(-(-(end - start) // step), 0)
    return tuple(x)


def _squeeze(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    axes = _numbers(attributes, "axes")
    return tuple(d for i, d in enumerate(shapes[0]) if i not in axes)


def _unsqueeze(shapes: Sequence[Shape], attributes: Attributes) -> Shape:
    x = list(shapes[0])
    for axis in _numbers(attributes, "axes"):
        x.insert(axis, 1)
    return tuple(x)


FORMULAS: Mapping[str, Callable[[Sequence[Shape], Attributes], PartialShape]] = MappingProxyType(
    {
        "Conv": _conv,
        "ConvTranspose": _conv_transpose,
        "AveragePool": _pool,
        "MaxPool": _pool,
        "Concat": _concat,
        "Pad": _pad,
        "Resize": _resize,
        "Flatten": _flatten,
        "Slice": _slice,
        "Squeeze": _squeeze,
        "Unsqueeze": _unsqueeze,
    }
)
"""Operators whose output sizes are computed from input sizes."""
