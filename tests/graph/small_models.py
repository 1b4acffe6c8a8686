"""Small models for the tests of this folder, and how they are run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tasodsl.graph.graph import Graph
from tasodsl.graph.onnx_in import CarriedModel, carry
from tasodsl.runtime import Session

Feed = Mapping[str, np.ndarray]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[np.dtype | type, Sequence[int | str | None]]],
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 18,
    ir_version: int = 9,
    domains: Sequence[tuple[str, int]] = (),
) -> onnx.ModelProto:
    """A model from its parts; outputs have no declared type."""
    graph = helper.make_graph(
        nodes,
        "test",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
            for name, (dtype, shape) in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)


def carried(proto: onnx.ModelProto) -> CarriedModel:
    return carry(onnx.ModelProto.FromString(proto.SerializeToString()), Path("test.onnx"))


def run(proto: onnx.ModelProto, feed: Feed) -> list[np.ndarray]:
    results = Session(proto.SerializeToString(), optimize=False).run(feed)
    return [np.asarray(r) for r in results]


def declare_outputs(proto: onnx.ModelProto, values: Sequence[np.ndarray]) -> None:
    """Say the outputs' types, as a complete model does."""
    for output, value in zip(proto.graph.output, values, strict=True):
        dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
        output.CopyFrom(helper.make_tensor_value_info(output.name, dtype, value.shape))


def assert_same(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> None:
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        assert g.shape == w.shape
        np.testing.assert_array_equal(g, w)


def made_anew(graph: Graph) -> Graph:
    """The graph with all defined nodes as if a rewrite had made them."""
    nodes = [replace(n, origin=-1) if n.defined else n for n in graph.topological()]
    return Graph.build(
        nodes, graph.inputs, graph.outputs, graph.info, graph.constants, graph.opset, graph.originals, graph.sizes
    )
