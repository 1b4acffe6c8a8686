"""One side of an instance as nodes of a graph, and as an ONNX model that the runtime executes.

The runtime is the judge of what our definitions say: a counterexample is confirmed by it, and an `example` is compared
in it. A side that is not valid can be made into a model, too: then the runtime should refuse it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import onnx
from numpy.typing import NDArray

from tasodsl import syntax as s
from tasodsl.elaborate import apply_op, resolve_axis
from tasodsl.graph.dtypes import DTYPE_NUMBERS, numpy_dtype
from tasodsl.graph.graph import AttributeValue, Constant, Node, ValueInfo
from tasodsl.graph.lower import CannotLower, lower, node_proto
from tasodsl.match.target import TARGET, as_attribute
from tasodsl.prove.instances import Arrays, Instance, Shaped, members, result_dtype
from tasodsl.prove.walk import Attributes, Walk
from tasodsl.ruleset import RuleSet
from tasodsl.runtime import RuntimeRefused, Session, is_array
from tasodsl.scalar import evaluate
from tasodsl.values import Environment, Mismatch, Target, Value

Array = NDArray[Any]

OPSET = 21


@dataclass(frozen=True, slots=True)
class Number:
    """A rank-0 constant that takes its neighbour's dtype."""

    value: float


@dataclass(slots=True)
class NodeMaker:
    """Operators made into nodes in normal form; operands and results are names of values."""

    rules: RuleSet
    info: dict[str, ValueInfo]
    nodes: list[Node] = field(default_factory=list[Node])
    constants: dict[str, Constant] = field(default_factory=dict[str, Constant])

    def scalar(self, value: Value) -> Number:
        return Number(float(value))

    def apply(
        self, op: s.OpDecl, operands: Sequence[str | Number | None], attributes: Attributes, term: s.Apply
    ) -> list[str]:
        known = [self.info[o] for o in operands if isinstance(o, str)]
        neighbour = next((i.dtype for i in known if i.dtype not in ("bool", "int64")), "float32")
        inputs = [self._named(o, neighbour) for o in operands]
        shaped = [self._shaped(name) if name else None for name in inputs]
        full = full_attributes(op, shaped, attributes)
        shapes = _result_shapes(op, shaped, full, self.rules)
        dtype = result_dtype(op, shaped, full, term)
        outputs: list[str] = []
        for shape in shapes:
            outputs.append(self.fresh())
            self.info[outputs[-1]] = ValueInfo(dtype, shape)
        types = {a.name: a.type for a in op.attrs}
        normal = tuple(sorted((name, as_attribute(types[name], value)) for name, value in full.items()))
        while inputs and not inputs[-1]:
            inputs.pop()
        self.nodes.append(Node(op.name, tuple(inputs), tuple(outputs), normal))
        return outputs

    def fresh(self) -> str:
        return f"t{len(self.info)}"

    def named(self, tensor: str | Number) -> str:
        """The value's name; a number is made a float32 constant."""
        return self._named(tensor, "float32")

    def _named(self, operand: str | Number | None, dtype: str) -> str:
        if not isinstance(operand, Number):
            return operand or ""
        name = self.fresh()
        self.info[name] = ValueInfo(dtype, ())
        self.constants[name] = Constant.of(np.array(operand.value, numpy_dtype(dtype)), dtype)
        return name

    def _shaped(self, name: str) -> Shaped:
        known = self.info[name]
        return Shaped(tuple(d for d in known.shape or () if isinstance(d, int)), known.dtype)


def full_attributes(op: s.OpDecl, operands: Sequence[Shaped | None], attributes: Attributes) -> Attributes:
    """All declared attributes, in normal form."""
    rank = next((len(o.shape) for o in operands if o is not None), 0)
    out: Attributes = {}
    for attr in op.attrs:
        value = attributes.get(attr.name)
        if value is None:
            if attr.default is None:
                raise Mismatch(f"{op.name} needs the attribute {attr.name}", attr.span)
            value = evaluate(attr.default, Environment(), TARGET)
        out[attr.name] = resolve_axis(attr.type, value, rank, op.name)
    return out


def _result_shapes(
    op: s.OpDecl, operands: Sequence[Shaped | None], attributes: Attributes, rules: RuleSet
) -> list[tuple[int, ...] | None]:
    """A shape for each result; None where the call is not valid."""
    try:
        applied = apply_op(op, rules.fns, operands, attributes, Target())
    except Mismatch:
        (result, *_) = op.results
        listed = [p.name for p in result.type.dims if isinstance(p, s.PerOperand)]
        return [None] * (len(attributes[listed[0]]) if result.variadic else len(op.results))
    out: list[tuple[int, ...] | None] = []
    for result, shape in zip(op.results, applied.results, strict=True):
        out.extend(shape if result.variadic else [shape])
    return out


def typed(instance: Instance, entries: Arrays) -> dict[str, Array]:
    """The entries in the dtypes of the variables, by the names of values."""
    shaped = instance.operands()
    return {name: array.astype(numpy_dtype(shaped[name].dtype)) for name, array in members(entries)}


def run_side(instance: Instance, binds: Sequence[s.Bind], arrays: Arrays, folded: Arrays) -> dict[str, Array]:
    """The results of one side in onnxruntime; RuntimeRefused where it does not run it. `folded` are the compile-time
    tensors, by name."""
    feeds = typed(instance, arrays)
    main = next((a.dtype for a in feeds.values() if a.dtype.kind == "f"), np.dtype(np.float32))
    feeds.update({name: array.astype(main) for name, array in members(folded)})
    info = {name: ValueInfo(str(array.dtype), array.shape) for name, array in feeds.items()}
    maker = NodeMaker(instance.rules, info)
    env = instance.environment({**value_names(arrays), **value_names(folded)})
    try:
        results = Walk(instance.rules, maker, env, dict(instance.rests)).side(binds)
        proto = _model(maker, feeds, results)
    except (CannotLower, Mismatch) as problem:
        raise RuntimeRefused(str(problem)) from problem
    values = Session(proto, optimize=False).run(feeds)
    return {name: np.asarray(v) for name, v in zip(results, values, strict=True) if is_array(v)}


def value_names(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The names of values in the place of arrays."""
    out: dict[str, Any] = {}
    for name, array in arrays.items():
        if isinstance(array, tuple):
            listed = cast(tuple[Any, ...], array)
            out[name] = tuple(f"{name}[{k}]" for k in range(len(listed)))
        else:
            out[name] = None if array is None else name
    return out


def _model(maker: NodeMaker, feeds: Mapping[str, Array], results: Mapping[str, Any]) -> bytes:
    """A serialized model; each result goes through an Identity, since it may be an input."""
    protos: list[onnx.NodeProto] = []
    initializers: dict[str, Constant] = {}

    def name_of(operand: str | Constant) -> str:
        if isinstance(operand, str):
            return operand
        name = f"c{len(initializers)}"
        initializers[name] = operand
        return name

    outputs = {f"output {name}": maker.named(value) for name, value in results.items()}
    for node in maker.nodes:
        low = lower(node, OPSET, maker.info, maker.constants.get)
        protos.append(node_proto(low.op_type, [name_of(i) for i in low.inputs], node.outputs, low.attributes))
    protos.extend(node_proto("Identity", [value], [name], _NO_ATTRIBUTES) for name, value in outputs.items())
    tensors = [onnx.numpy_helper.from_array(c.array(), n) for n, c in {**maker.constants, **initializers}.items()]
    inputs = [
        onnx.helper.make_tensor_value_info(name, DTYPE_NUMBERS[str(a.dtype)], a.shape) for name, a in feeds.items()
    ]
    declared = [_output(name, maker.info[value]) for name, value in outputs.items()]
    graph = onnx.helper.make_graph(protos, "instance", inputs, declared, tensors)
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


_NO_ATTRIBUTES: Mapping[str, AttributeValue] = {}


def _output(name: str, info: ValueInfo) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, DTYPE_NUMBERS[info.dtype or "float32"], None)
