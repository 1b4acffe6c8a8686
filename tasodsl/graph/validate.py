"""The order of a graph's nodes, what its subgraphs read from outside, and the faults that make it mean nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import onnx
from onnx import numpy_helper

from tasodsl.graph.dtypes import DTYPE_NAMES, bit_width

_BITS: Mapping[int, int] = MappingProxyType(
    {number: bit_width(name) for number, name in DTYPE_NAMES.items() if name != "string"}
)


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among the node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def subgraph_reads(node: onnx.NodeProto) -> tuple[str, ...]:
    """The outer values that the node's subgraphs read, sorted."""
    found: set[str] = set()
    for graph in subgraphs(node):
        local = _defined(graph)
        read = {o.name for o in graph.output}
        for inner in graph.node:
            read.update(inner.input)
            read.update(subgraph_reads(inner))
            local.update(inner.output)
        found |= read - local
    found.discard("")
    return tuple(sorted(found))


def _defined(graph: onnx.GraphProto) -> set[str]:
    """Names that a graph defines before its nodes do."""
    names = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    return names | {t.values.name for t in graph.sparse_initializer}


def validate(graph: onnx.GraphProto, outer: frozenset[str] = frozenset()) -> str | None:
    """What is wrong with the graph, in a line; None when nothing is. It may read the values `outer` from outside."""
    fault = _text_fault(graph) or _tensor_fault(graph)
    if fault is not None:
        return fault
    visible = set(outer) | _defined(graph)
    written: set[str] = set()
    for node in graph.node:
        for out in filter(None, node.output):
            if out in written:
                return f"value {out!r} is written twice"
            written.add(out)
    visible |= written
    for node in graph.node:
        for value in filter(None, node.input):
            if value not in visible:
                return f"{_called(node)} reads {value!r}, which nothing writes"
        for inner in subgraphs(node):
            fault = validate(inner, frozenset(visible))
            if fault is not None:
                return fault
    for out in graph.output:
        if out.name not in visible:
            return f"nothing writes the output {out.name!r}"
    if len(order(graph)) != len(graph.node):
        stuck = set(range(len(graph.node))) - set(order(graph))
        return f"{_called(graph.node[min(stuck)])} depends on its own output"
    return None


def _text_fault(graph: onnx.GraphProto) -> str | None:
    """Names that are no text: the message then gives bytes instead."""
    values = [v.name for v in (*graph.input, *graph.output, *graph.value_info)]
    words: list[object] = [*values, *(t.name for t in graph.initializer)]
    for node in graph.node:
        words += [node.name, node.op_type, node.domain, node.overload, *node.input, *node.output]
        words += [a.name for a in node.attribute]
    return None if all(isinstance(w, str) for w in words) else "it has a name that is not UTF-8 text"


def _tensor_fault(graph: onnx.GraphProto) -> str | None:
    """A tensor whose content does not fit its type and shape."""
    inner = [a.t for n in graph.node for a in n.attribute if a.HasField("t")]
    for tensor in (*graph.initializer, *inner):
        fits = tensor.data_location == onnx.TensorProto.EXTERNAL or _fits(tensor)
        if tensor.data_type not in onnx.TensorProto.DataType.values() or min(tensor.dims, default=0) < 0 or not fits:
            return f"the content of the tensor {tensor.name!r} does not fit its type and shape"
    return None


def _fits(tensor: onnx.TensorProto) -> bool:
    bits = _BITS.get(tensor.data_type)
    if tensor.HasField("raw_data") and bits is not None:
        return len(tensor.raw_data) == (math.prod(tensor.dims) * bits + 7) // 8
    try:
        numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, OverflowError):
        return False
    return True


def _called(node: onnx.NodeProto) -> str:
    return f"node {node.name!r} ({node.op_type})" if node.name else f"a {node.op_type} node"


def order(graph: onnx.GraphProto) -> list[int]:
    """The nodes' indices, producers first, otherwise in the graph's own order. Nodes on a cycle are left out."""
    producer = {out: i for i, node in enumerate(graph.node) for out in node.output if out}
    result: list[int] = []
    done: set[int] = set()
    entered: set[int] = set()
    for root in range(len(graph.node)):
        stack = [(root, False)]
        while stack:
            index, finished = stack.pop()
            if finished:
                if all(s in done for s in _sources(graph.node[index], producer)):
                    done.add(index)
                    result.append(index)
                continue
            if index in entered:
                continue
            entered.add(index)
            stack.append((index, True))
            stack.extend((s, False) for s in reversed(_sources(graph.node[index], producer)) if s not in entered)
    return result


def _sources(node: onnx.NodeProto, producer: dict[str, int]) -> list[int]:
    return [producer[v] for v in (*node.input, *subgraph_reads(node)) if v in producer]


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Put the nodes of the graph, and of the graphs inside it, in an order that ONNX allows."""
    indices = order(graph)
    if indices != list(range(len(graph.node))):
        nodes = [onnx.NodeProto.FromString(graph.node[i].SerializeToString()) for i in indices]
        del graph.node[:]
        graph.node.extend(nodes)
    for node in graph.node:
        for inner in subgraphs(node):
            sort_nodes(inner)
