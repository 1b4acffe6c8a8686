"""A graph, written back into the model that it came from.

Nodes that are still what they were are written as they came; the others are lowered to the model's opset. Everything
that the graph does not hold (functions, metadata, documentation, types, overridable initializers) stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
import onnx_ir

from tasodsl.graph.dtypes import DTYPE_NUMBERS
from tasodsl.graph.graph import Constant, Graph, Node
from tasodsl.graph.lower import lower, node_proto
from tasodsl.graph.onnx_in import CarriedModel
from tasodsl.graph.save import note_source, notes, save_model
from tasodsl.graph.validate import subgraphs

__all__ = ["export_graph", "save_model"]


def export_graph(model: CarriedModel, graph: Graph) -> onnx_ir.Model:
    """The model with `graph`, which was imported from it, as its main graph. `model` is left as it is."""
    result = model.ir.clone()
    _Writer(model, graph, result).write()
    note_source(result, model)
    return result


class _Writer:
    """The writing of one graph; `result` starts as a copy of the model."""

    def __init__(self, model: CarriedModel, graph: Graph, result: onnx_ir.Model) -> None:
        self._model = model
        self._graph = graph
        self._result = result
        self._main = result.graph
        self._old_nodes = list(result.graph)
        self._old_values = {o.name: o for n in self._old_nodes for o in n.outputs if o.name}
        self._taken = set(_names(model.proto.graph))
        self._counts: dict[str, int] = {}
        self._values: dict[str, onnx_ir.Value] = {}
        self._made: dict[str, str] = {}
        self._front: list[onnx_ir.Node] = []

    def write(self) -> None:
        main = self._main
        self._values = {v.name: v for v in (*main.inputs, *main.initializers.values()) if v.name}
        for node in self._old_nodes:
            main.remove(node)
        nodes = [self._written(node) for node in self._graph.topological()]
        outputs = [self._output(o) for o in main.outputs]
        for name in sorted({c for n in self._graph.nodes.values() for c in n.captures}):
            self._rewire_captures(name)
        main.extend(self._front)
        main.extend(nodes)
        main.outputs[:] = outputs
        self._drop_unused_initializers(nodes)

    def _written(self, node: Node) -> onnx_ir.Node:
        original = self._graph.originals.get(node.origin)
        if original is None or node != original.node:
            return self._new_node(node)
        kept = self._old_nodes[node.origin]
        for index, value in enumerate(kept.inputs):
            if value is not None and value.name:
                kept.replace_input_with(index, self._value(value.name))
        for value in kept.outputs:
            if value.name:
                self._values[value.name] = value
                self._correct(value)
        return kept

    def _new_node(self, node: Node) -> onnx_ir.Node:
        """A node that was made, or whose operands or outputs have other names now."""
        old = self._old_nodes[node.origin] if node.origin >= 0 else None
        if node.defined:
            lowered = lower(node, self._graph.opset, self._graph.info, self._graph.constants.get)
            names = [self._operand(o) for o in lowered.inputs]
            proto = node_proto(lowered.op_type, [], [], lowered.attributes)
            op_type, domain = lowered.op_type, "" if old is None else old.domain
            attributes = [onnx_ir.from_proto(a) for a in proto.attribute]
        else:
            assert old is not None, node
            op_type, domain = old.op_type, old.domain
            names = list(node.inputs)
            attributes = list(old.attributes.values())
        return onnx_ir.Node(
            domain,
            op_type,
            [self._value(n) if n else None for n in names],
            attributes,
            overload="" if old is None else old.overload,
            outputs=[self._new_value(o, op_type) for o in node.outputs],
            name=old.name if old is not None and old.name else self._fresh(node.op_type),
            doc_string=None if old is None else old.doc_string,
            metadata_props=None if old is None else dict(old.metadata_props),
        )

    def _operand(self, operand: str | Constant) -> str:
        """The graph's name for an operand; constants that lowering made are shared where they are equal."""
        if isinstance(operand, str):
            return operand
        name = self._made.get(operand.key)
        if name is None:
            name = f"Constant~{operand.key}"
            self._made[operand.key] = name
            self._values[name] = self._constant_value(name, operand)
        return name

    def _value(self, name: str) -> onnx_ir.Value:
        known = self._values.get(name)
        if known is None:
            known = self._values[name] = self._constant_value(name, self._graph.constants[name])
        return known

    def _constant_value(self, name: str, constant: Constant) -> onnx_ir.Value:
        shown = self._shown(name, name.partition("~")[0])
        dtype = onnx_ir.DataType(DTYPE_NUMBERS[constant.dtype])
        shape = onnx_ir.Shape(constant.shape)
        tensor = _tensor(constant, shown)
        # Before version 4 every initializer was an input, so that a constant had to be a node.
        if self._result.ir_version < 4:
            value = onnx_ir.Value(name=shown)
            attribute = onnx_ir.AttrTensor("value", tensor)
            self._front.append(
                onnx_ir.Node("", "Constant", [], [attribute], outputs=[value], name=self._fresh("Constant"))
            )
            return value
        value = onnx_ir.Value(name=shown, type=onnx_ir.TensorType(dtype), shape=shape, const_value=tensor)
        self._main.register_initializer(value)
        return value

    def _new_value(self, name: str, op_type: str) -> onnx_ir.Value:
        if not name:
            return onnx_ir.Value(name="")
        value = onnx_ir.Value(name=self._shown(name, op_type))
        old = self._old_values.get(name)
        if old is not None:
            value.type, value.shape, value.doc_string = old.type, old.shape, old.doc_string
            value.metadata_props.update(old.metadata_props)
            notes(value.meta).update(notes(old.meta))
            self._correct(value)
        self._values[name] = value
        return value

    def _correct(self, value: onnx_ir.Value) -> None:
        """Drop what the file claimed of an inner value where it contradicts what was inferred."""
        known = self._graph.info.get(value.name or "")
        if known is None or known.shape is None or value.shape is None or value.name in self._graph.output_set:
            return
        claimed = list(value.shape)
        agree = len(claimed) == len(known.shape) and all(
            c == k for c, k in zip(claimed, known.shape, strict=True) if isinstance(c, int) and isinstance(k, int)
        )
        if not agree:
            value.shape, value.type = None, None

    def _output(self, old: onnx_ir.Value) -> onnx_ir.Value:
        assert old.name is not None
        value = self._value(old.name)
        if value is not old:
            value.type, value.shape, value.doc_string = old.type, old.shape, old.doc_string
        return value

    def _rewire_captures(self, name: str) -> None:
        """Let subgraphs read the value that has this name now."""
        old, new = self._old_values.get(name), self._values.get(name)
        if old is None:
            return
        new = new or self._value(name)
        if new is not old:
            for user, index in list(old.uses()):
                user.replace_input_with(index, new)

    def _drop_unused_initializers(self, nodes: Iterable[onnx_ir.Node]) -> None:
        used = {o.name for o in self._main.outputs} | {i.name for i in self._main.inputs}
        for node in nodes:
            used.update(v.name for v in node.inputs if v is not None)
        used.update(c for n in self._graph.nodes.values() for c in n.captures)
        for name in [n for n in self._main.initializers if n not in used]:
            del self._main.initializers[name]

    def _shown(self, name: str, op_type: str) -> str:
        """The name in the file. Names made from hashes become short ones that the file does not have yet."""
        return name if name in self._taken or "~" not in name else self._fresh(op_type)

    def _fresh(self, op_type: str) -> str:
        while True:
            count = self._counts.get(op_type, 0)
            self._counts[op_type] = count + 1
            name = f"{op_type}_{count}"
            if name not in self._taken:
                self._taken.add(name)
                return name


def _tensor(constant: Constant, name: str) -> onnx_ir.TensorProtocol:
    """The constant as a tensor for a file; numbers are computed when they are written."""
    shape = onnx_ir.Shape(constant.shape)
    if constant.dtype == "string":
        texts = [t if isinstance(t, bytes) else str(t).encode() for t in constant.array().reshape(-1).tolist()]
        return onnx_ir.StringTensor(texts, shape=shape, name=name)
    dtype = onnx_ir.DataType(DTYPE_NUMBERS[constant.dtype])
    return onnx_ir.LazyTensor(lambda: onnx_ir.Tensor(constant.array(), dtype=dtype, name=name), dtype, shape, name=name)


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """All names of values and nodes in the graph and the graphs inside it."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
    for tensor in graph.initializer:
        yield tensor.name
    for node in graph.node:
        yield node.name
        yield from node.input
        yield from node.output
        for inner in subgraphs(node):
            yield from _names(inner)
