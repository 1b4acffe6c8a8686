"""A model's file, read and understood: the carried model, and the graph that rules and the search look at.

The carried model keeps everything of the file. The graph holds its main graph's nodes: those with a normal form as
defined operators, all others by reference, with the outer values that their subgraphs read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
from google.protobuf.message import DecodeError
from onnx import shape_inference

from tasodsl.errors import UserError
from tasodsl.graph.dim_values import DimTensor, constant_dims, follow
from tasodsl.graph.dims import Dim, SymDim, symbol
from tasodsl.graph.dtypes import DTYPE_NAMES
from tasodsl.graph.graph import Constant, Graph, Node, Original, ValueInfo
from tasodsl.graph.normalize import OLDEST_OPSET, normalize, plain_attributes
from tasodsl.graph.shapes import UNKNOWN, describe, infer_call
from tasodsl.graph.validate import sort_nodes, subgraph_reads, validate

LARGEST_OPSET = 1000
"""Far beyond any that ONNX has had: a larger number is a damaged file."""

SMALL_BYTES = 4096
"""Constants up to this size are told apart by content; larger ones by name, until somebody compares them."""


class ModelError(UserError):
    """A model that cannot be read, or that means nothing."""


@dataclass(frozen=True, slots=True)
class CarriedModel:
    """A model as it came. `proto` is the file's own text, tensors included unless they lie in `external` files."""

    ir: onnx_ir.Model
    proto: onnx.ModelProto
    path: Path
    external: frozenset[Path]

    @property
    def opset(self) -> int:
        """The version of ONNX's own domain; 0 when the model does not use it."""
        return next((o.version for o in self.proto.opset_import if is_onnx_domain(o.domain)), 0)

    def constant_initializers(self) -> Iterator[tuple[str, onnx_ir.TensorProtocol]]:
        """Initializers that no graph input can override, of the element types that we know."""
        inputs = {i.name for i in self.proto.graph.input}
        for name, value in self.ir.graph.initializers.items():
            tensor = value.const_value
            if name not in inputs and tensor is not None and int(tensor.dtype) in DTYPE_NAMES:
                yield name, tensor


def is_onnx_domain(domain: str) -> bool:
    return domain in ("", "ai.onnx")


def load_model(path: str | Path) -> CarriedModel:
    """Read and check the model in the file `path`."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except IsADirectoryError:
        raise ModelError(f"{path} is a directory, not a model") from None
    except FileNotFoundError:
        raise ModelError(f"there is no file {path}") from None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from None
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError:
        raise ModelError(f"{path} is not an ONNX model, or is cut short") from None
    del content
    if not proto.HasField("graph") or not proto.ir_version or not proto.opset_import:
        raise ModelError(f"{path} is not an ONNX model, or is cut short")
    return carry(proto, path)


def carry(proto: onnx.ModelProto, path: Path) -> CarriedModel:
    """The carried model of `proto`, whose external data lies beside `path`. Sorts the nodes of `proto`."""
    fault = validate(proto.graph)
    if fault is not None:
        raise ModelError(f"{path} is not a valid model: {fault}")
    if proto.graph.sparse_initializer:
        raise ModelError(f"{path} has sparse initializers, which are not supported")
    sort_nodes(proto.graph)
    try:
        ir = onnx_ir.from_proto(proto)
        ir.clone()
    except (onnx_ir.serde.SerdeError, RuntimeError) as error:
        cause = error.__cause__ or error
        raise ModelError(f"{path} is not a valid model: {str(cause).splitlines()[0]}") from None
    folder = path.resolve().parent
    for tensor in _external_tensors(ir):
        tensor.base_dir = folder
    model = CarriedModel(ir, proto, path, frozenset(_external_files(ir, path)))
    uses_onnx = any(is_onnx_domain(n.domain) for n in proto.graph.node)
    if model.opset > LARGEST_OPSET:
        raise ModelError(f"{path} is not a valid model: there is no opset {model.opset}")
    if uses_onnx and model.opset < OLDEST_OPSET:
        raise ModelError(f"{path} uses opset {model.opset}; opsets before {OLDEST_OPSET} are not supported")
    return model


def _external_tensors(ir: onnx_ir.Model) -> Iterator[onnx_ir.ExternalTensor]:
    for graph in ir.graphs():
        for value in graph.initializers.values():
            if isinstance(value.const_value, onnx_ir.ExternalTensor):
                yield value.const_value
        for node in graph:
            for attribute in node.attributes.values():
                if isinstance(attribute.value, onnx_ir.ExternalTensor):
                    yield attribute.value


def _external_files(ir: onnx_ir.Model, path: Path) -> Iterator[Path]:
    """The files of external data; `ModelError` when one is missing or too short."""
    for tensor in _external_tensors(ir):
        file = Path(tensor.path)
        try:
            size = file.stat().st_size
        except OSError as error:
            said = f"{path} keeps {tensor.name!r} in {file}, which cannot be read: {error.strerror}"
            raise ModelError(said) from None
        if (tensor.offset or 0) + tensor.nbytes > size:
            raise ModelError(f"{path} keeps {tensor.name!r} in {file}, which is cut short")
        yield file.resolve()


def import_graph(model: CarriedModel, dims: Mapping[str, int] | None = None) -> Graph:
    """The model's main graph.

    `dims` gives numbers for symbolic input dimensions, by the name that the model gives them or by `INPUT.AXIS`. They
    are only noted in `Graph.sizes`, for reckoning costs: shapes stay symbolic, so that what is found holds for every
    size.
    """
    symbolic = _Importer(model, _input_infos(model.proto, {}))
    symbolic.run()
    sizes: dict[str, int] = {}
    if dims:
        concrete = _Importer(model, _input_infos(model.proto, dims))
        concrete.run()
        sizes = _sizes(symbolic.info, concrete.info)
    return Graph.build(
        symbolic.nodes,
        [i.name for i in model.proto.graph.input],
        [o.name for o in model.proto.graph.output],
        symbolic.info,
        symbolic.constants,
        model.opset,
        symbolic.originals,
        sizes,
    )


def input_symbols(model: CarriedModel) -> tuple[str, ...]:
    """The names by which `dims` may give a number to an input dimension."""
    names: dict[str, None] = {}
    for value in model.proto.graph.input:
        for axis, d in enumerate(value.type.tensor_type.shape.dim):
            if not _known(d):
                names[d.dim_param or f"{value.name}.{axis}"] = None
    return tuple(names)


def _known(d: onnx.TensorShapeProto.Dimension) -> bool:
    return d.HasField("dim_value") and d.dim_value >= 0


def _input_infos(proto: onnx.ModelProto, dims: Mapping[str, int]) -> dict[str, ValueInfo]:
    """The inputs' types. Every symbolic dimension is a symbol of its own: names that two inputs share may lie."""
    infos: dict[str, ValueInfo] = {}
    taken: set[str] = set()
    for value in proto.graph.input:
        if not value.type.HasField("tensor_type"):
            infos[value.name] = UNKNOWN
            continue
        tensor = value.type.tensor_type
        shape: list[Dim] = []
        for axis, d in enumerate(tensor.shape.dim):
            place = f"{value.name}.{axis}"
            given = dims.get(d.dim_param, dims.get(place)) if not _known(d) else d.dim_value
            if given is not None:
                shape.append(given)
                continue
            free = d.dim_param.isidentifier() and d.dim_param not in taken
            taken.add(d.dim_param)
            shape.append(symbol(d.dim_param if free else place))
        known = tuple(shape) if tensor.HasField("shape") else None
        infos[value.name] = ValueInfo(DTYPE_NAMES.get(tensor.elem_type, ""), known)
    return infos


def _sizes(symbolic: Mapping[str, ValueInfo], concrete: Mapping[str, ValueInfo]) -> dict[str, int]:
    """The number that each symbol stands for, read off values' shapes with and without numbers for the inputs."""
    sizes: dict[str, int] = {}
    for value, info in symbolic.items():
        known = concrete.get(value, UNKNOWN).shape
        if info.shape is None or known is None or len(known) != len(info.shape):
            continue
        for d, n in zip(info.shape, known, strict=True):
            if isinstance(d, SymDim) and isinstance(n, int) and d == symbol(str(d)):
                sizes.setdefault(str(d), n)
    return sizes


class _Importer:
    """One walk over the model's nodes, producers first."""

    def __init__(self, model: CarriedModel, inputs: dict[str, ValueInfo]) -> None:
        self.nodes: list[Node] = []
        self.originals: dict[int, Original] = {}
        self.info = inputs
        self.constants: dict[str, Constant] = {}
        self._model = model
        self._dims: dict[str, DimTensor] = {}
        graph = model.proto.graph
        self._captures = {i: c for i, n in enumerate(graph.node) if (c := subgraph_reads(n))}
        self._read = {v for n in graph.node for v in n.input} | {o.name for o in graph.output}
        self._read.update(v for c in self._captures.values() for v in c)

    def run(self) -> None:
        for name, tensor in self._model.constant_initializers():
            self._add_constant(name, tensor)
        for origin, proto in enumerate(self._model.proto.graph.node):
            if is_onnx_domain(proto.domain) and proto.op_type == "Constant":
                tensor = _constant_value(self._model.ir.graph[origin])
                if tensor is not None and int(tensor.dtype) in DTYPE_NAMES:
                    self._add_constant(proto.output[0], tensor)
                    continue
            if any(proto.output):
                self._add_node(origin, proto)

    def _add_constant(self, name: str, tensor: onnx_ir.TensorProtocol) -> None:
        constant = _constant(name, tensor)
        self.constants[name] = constant
        self.info[name] = ValueInfo(constant.dtype, constant.shape)

    def _add_node(self, origin: int, proto: onnx.NodeProto) -> None:
        model = self._model
        function = model.ir.functions.get((proto.domain, proto.op_type, proto.overload))
        known = is_onnx_domain(proto.domain) and function is None
        captures = self._captures.get(origin, ())
        normal = None
        if known and not captures:
            normal = normalize(proto, model.opset, self.info, self.constants.get, self._read.__contains__)
        if normal is None:
            attributes = tuple(sorted(plain_attributes(proto).items()))
            inputs, outputs = tuple(proto.input), tuple(proto.output)
            domain = "" if is_onnx_domain(proto.domain) else proto.domain
            node = Node(proto.op_type, inputs, outputs, attributes, domain, False, origin, captures)
        else:
            for name, constant in normal.constants.items():
                self.constants[name] = constant
                self.info[name] = ValueInfo(constant.dtype, constant.shape)
            node = Node(normal.op_type, normal.inputs, normal.outputs, normal.attributes, origin=origin)
        self.nodes.append(node)
        self.originals[origin] = Original(node, proto, known)
        if known:
            infos = infer_call(node, proto, model.opset, self.info, self.constants.get, self._dims_of)
        elif function is not None:
            infos = _infer_function(node, proto, function, self.info, self._dims_of)
        else:
            infos = [UNKNOWN for _ in node.outputs]
        self.info.update({o: i for o, i in zip(node.outputs, infos, strict=True) if o})
        elements = follow(node, self.info, self._dims_of) if known and node.outputs[0] else None
        if elements is not None:
            self._dims[node.outputs[0]] = elements

    def _dims_of(self, value: str) -> DimTensor | None:
        return self._dims.get(value) or constant_dims(self.constants.get(value))


def _infer_function(
    node: Node,
    proto: onnx.NodeProto,
    function: onnx_ir.Function,
    info: Mapping[str, ValueInfo],
    dims_of: Callable[[str], DimTensor | None],
) -> list[ValueInfo]:
    """The outputs of a call of one of the model's own functions: types, and shapes where they are numbers."""
    types: list[onnx.TypeProto] = []
    for value in proto.input:
        known = info.get(value, UNKNOWN)
        made = onnx.TypeProto()
        number = next((n for n, name in DTYPE_NAMES.items() if name == known.dtype), 0)
        made.tensor_type.elem_type = number
        if known.shape is not None:
            made.tensor_type.shape.SetInParent()
            for d in known.shape:
                dim = made.tensor_type.shape.dim.add()
                if isinstance(d, int):
                    dim.dim_value = d
        types.append(made)
    try:
        found = shape_inference.infer_function_output_types(onnx_ir.to_proto(function), types, list(proto.attribute))
    except (shape_inference.InferenceError, RuntimeError):
        return [UNKNOWN for _ in node.outputs]
    padded: list[onnx.TypeProto | None] = [*found, *([None] * len(node.outputs))]
    return describe(node, padded[: len(node.outputs)], {}, info, dims_of)


def _constant(name: str, tensor: onnx_ir.TensorProtocol) -> Constant:
    dtype = DTYPE_NAMES.get(int(tensor.dtype), "")
    shape = tuple(d for d in tensor.shape if isinstance(d, int))
    if dtype == "string" or tensor.nbytes <= SMALL_BYTES:
        return Constant.of(np.asarray(tensor.numpy()).reshape(shape), dtype)
    return Constant(f"initializer:{name}", shape, dtype, tensor.numpy)


def _constant_value(node: onnx_ir.Node) -> onnx_ir.TensorProtocol | None:
    """The value of a `Constant` node; None for a sparse one."""
    if len(node.attributes) != 1:
        return None
    name, attribute = next(iter(node.attributes.items()))
    match name:
        case "value":
            return attribute.as_tensor()
        case "value_float":
            return onnx_ir.tensor(np.array(attribute.as_float(), np.float32))
        case "value_floats":
            return onnx_ir.tensor(np.array(attribute.as_floats(), np.float32))
        case "value_int":
            return onnx_ir.tensor(np.array(attribute.as_int(), np.int64))
        case "value_ints":
            return onnx_ir.tensor(np.array(attribute.as_ints(), np.int64))
        case "value_string":
            return onnx_ir.StringTensor([attribute.as_string().encode()], shape=onnx_ir.Shape(()))
        case "value_strings":
            texts = [t.encode() for t in attribute.as_strings()]
            return onnx_ir.StringTensor(texts, shape=onnx_ir.Shape((len(texts),)))
        case _:
            return None
