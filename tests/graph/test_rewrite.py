"""Rewriting keeps the graph's books: readers, producers and hash are those of the same graph built afresh."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasodsl.graph.graph import Constant, Graph, Node, ValueInfo, fresh_name

INFO = ValueInfo("float32", (2,))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    values = ["x", "c", "d"]
    nodes: list[Node] = []
    for i in range(draw(st.integers(2, 12))):
        inputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
        outputs = [f"v{i}"] if draw(st.booleans()) else [f"v{i}", f"w{i}"]
        captures = draw(st.lists(st.sampled_from(values), max_size=1)) if draw(st.integers(0, 5)) == 0 else []
        defined = not captures
        nodes.append(
            Node(
                draw(st.sampled_from(["Relu", "Neg", "Op"])),
                tuple(inputs),
                tuple(outputs),
                (),
                "",
                defined,
                -1 if defined else i,
                tuple(captures),
            )
        )
        values += outputs
    written = [o for n in nodes for o in n.outputs]
    outputs = draw(st.lists(st.sampled_from(written), min_size=1, max_size=3, unique=True))
    constants = {"c": Constant.of(np.float32([1, 2])), "d": Constant.of(np.float32([3, 4]))}
    return Graph.build(nodes, ["x"], outputs, dict.fromkeys(values, INFO), constants)


def assert_consistent(graph: Graph) -> None:
    afresh = Graph.build(graph.nodes.values(), graph.inputs, graph.outputs, graph.info, graph.constants, graph.opset)
    assert graph.hash == afresh.hash
    assert graph.readers == afresh.readers
    assert graph.producer == afresh.producer
    assert graph.nodes == afresh.nodes
    for node in graph.nodes.values():
        for value in node.operands():
            assert value in graph.producer or value in graph.inputs or value in graph.constants
    for output in graph.outputs:
        assert output in graph.producer
    order = [n.id for n in graph.topological()]
    assert sorted(order) == sorted(graph.nodes)
    place = {node_id: i for i, node_id in enumerate(order)}
    for node in graph.nodes.values():
        sources = (graph.producer.get(v) for v in node.operands())
        assert all(s is None or place[s] < place[node.id] for s in sources)


def captured(graph: Graph) -> set[str]:
    return {c for n in graph.nodes.values() for c in n.captures}


@settings(max_examples=150, deadline=None)
@given(graphs(), st.data())
def test_rewrites_keep_the_books(graph: Graph, data: st.DataObject) -> None:
    assert_consistent(graph)
    for _ in range(4):
        node_id = data.draw(st.sampled_from(sorted(graph.nodes)))
        node = graph.nodes[node_id]
        kind = data.draw(st.sampled_from(["replace", "insert", "bypass", "fold"]))
        names_before = captured(graph) | graph.output_set
        if kind == "replace":
            after = graph.rewrite([node_id], [Node("New", node.inputs, node.outputs)])
        elif kind == "insert":
            inner = fresh_name("Inner", repr((node.inputs, node_id)))
            if inner in graph.producer:
                continue
            added = [Node("Inner", node.inputs, (inner,)), Node("Outer", (inner,), node.outputs)]
            after = graph.rewrite([node_id], added, info={inner: INFO})
        elif kind == "bypass":
            target = node.inputs[0]
            after = graph.rewrite([node_id], (), redirected=dict.fromkeys(node.outputs, target))
        else:
            made = {fresh_name("Constant", o): Constant.of(np.float32([len(o), 1])) for o in node.outputs}
            pairs = dict(zip(node.outputs, made, strict=True))
            after = graph.rewrite([node_id], (), constants=made, info=dict.fromkeys(made, INFO), redirected=pairs)
        assert_consistent(after)
        # What is known by name from outside is still written, unless its reader went too.
        for name in names_before & (captured(after) | after.output_set):
            assert name in after.producer or name in after.inputs or name in after.constants
        assert_consistent(graph)
        graph = after


def test_independent_rewrites_commute() -> None:
    nodes = [Node("Relu", ("x",), ("a",)), Node("Neg", ("x",), ("b",)), Node("Add", ("a", "b"), ("y",))]
    graph = Graph.build(nodes, ["x"], ["y"], dict.fromkeys("xaby", INFO), {})
    left, right = (["a"], [Node("Abs", ("x",), ("a",))]), (["b"], [Node("Exp", ("x",), ("b",))])
    assert graph.rewrite(*left).rewrite(*right).hash == graph.rewrite(*right).rewrite(*left).hash
    assert graph.rewrite(*left).hash != graph.rewrite(*right).hash


def test_output_keeps_its_name() -> None:
    graph = Graph.build([Node("Relu", ("x",), ("y",))], ["x"], ["y"], {"x": INFO, "y": INFO}, {})
    after = graph.rewrite(["y"], (), redirected={"y": "x"})
    assert after.nodes["y"] == Node("Identity", ("x",), ("y",))


def test_captured_value_keeps_its_name() -> None:
    branch = Node("If", ("x",), ("y",), defined=False, origin=1, captures=("a",))
    nodes = [Node("Relu", ("x",), ("a",)), Node("Neg", ("a",), ("b",)), branch, Node("Add", ("b", "y"), ("z",))]
    graph = Graph.build(nodes, ["x"], ["z"], dict.fromkeys("xabyz", INFO), {})
    after = graph.rewrite(["a"], (), redirected={"a": "x"})
    assert after.nodes["a"] == Node("Identity", ("x",), ("a",))
    assert after.nodes["b"].inputs == ("x",)
    assert after.nodes["y"] == branch


def test_what_nobody_reads_goes() -> None:
    nodes = [Node("Relu", ("x",), ("a",)), Node("Neg", ("a",), ("b",)), Node("Abs", ("b",), ("y",))]
    graph = Graph.build(nodes, ["x"], ["y"], dict.fromkeys("xaby", INFO), {})
    after = graph.rewrite(["y"], [Node("Exp", ("x",), ("y",))])
    assert sorted(after.nodes) == ["y"]
    assert after.reader_ids("x") == ("y",)


def test_a_value_is_written_once() -> None:
    with pytest.raises(ValueError, match="'a' is written twice"):
        Graph.build([Node("Relu", ("x",), ("a",)), Node("Neg", ("x",), ("a",))], ["x"], ["a"], {}, {})


def test_deep_graphs_are_ordered() -> None:
    nodes = [Node("Relu", (f"v{i}",), (f"v{i + 1}",)) for i in range(5000)]
    graph = Graph.build(reversed(nodes), ["v0"], ["v5000"], {}, {})
    assert [n.id for n in graph.topological()] == [n.id for n in nodes]
