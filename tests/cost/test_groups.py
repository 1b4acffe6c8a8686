"""Which nodes are taken to run together."""

from __future__ import annotations

import pytest
from cost_graphs import conv, graph, node

from tasodsl.cost.groups import Groups
from tasodsl.graph.graph import Graph, Node

ROW = (4, 16)


def grouped(of: Graph) -> set[str]:
    """The groups with more than one node, as node ids in order."""
    groups = Groups(of)
    chains = [groups.chain(n) for n in of.topological() if not groups.absorbed(n)]
    assert sorted(n.id for c in chains for n in c) == sorted(of.nodes), "every node is in one group"
    assert all(groups.anchor(n) is c[-1] for c in chains for n in c)
    return {" ".join(n.id for n in c) for c in chains if len(c) > 1}


def rows(nodes: list[Node], outputs: str) -> Graph:
    values = {v for n in nodes for v in (*n.inputs, *n.outputs)} - {"k", "s"}
    return graph(nodes, dict.fromkeys(sorted(values), ROW), {"k": (), "s": (16,)}, outputs)


def layer_normalization() -> list[Node]:
    return [
        node("ReduceMean", "x", "mean", axes=(1,), keepdims=1),
        node("Sub", "x mean", "d"),
        node("Pow", "d k", "sq"),
        node("ReduceMean", "sq", "var", axes=(1,), keepdims=1),
        node("Add", "k var", "eps"),
        node("Sqrt", "eps", "sd"),
        node("Div", "d sd", "n"),
        node("Mul", "s n", "scaled"),
        node("Add", "scaled s", "y"),
    ]


def gelu() -> list[Node]:
    return [
        node("Div", "x k", "a"),
        node("Erf", "a", "e"),
        node("Add", "e k", "f"),
        node("Mul", "x f", "g"),
        node("Mul", "g k", "y"),
    ]


def test_layer_normalization_is_one_group() -> None:
    found = grouped(rows([*layer_normalization(), node("Relu", "y", "z")], "z"))
    assert [set(group.split()) for group in found] == [{"mean", "d", "sq", "var", "eps", "sd", "n", "scaled", "y"}]


@pytest.mark.parametrize("inner", ["mean", "d", "sd", "scaled"])
def test_a_reader_inside_breaks_the_figure(inner: str) -> None:
    assert grouped(rows([*layer_normalization(), node("Tanh", inner, "z")], "y z")) == set()
    assert grouped(rows(layer_normalization(), f"y {inner}")) == set()


def test_the_figure_needs_the_same_value_in_both_places() -> None:
    nodes = [node("Sub", "q mean", "d") if n.id == "d" else n for n in layer_normalization()]
    assert grouped(rows(nodes, "y")) == set()


def test_gelu_and_swish_are_groups() -> None:
    assert grouped(rows(gelu(), "y")) == {"a e f g y"}
    swish = [node("Sigmoid", "x", "s1"), node("Mul", "s1 x", "y")]
    assert grouped(rows(swish, "y")) == {"s1 y"}
    other = [node("Sigmoid", "x", "s1"), node("Mul", "s1 q", "y")]
    assert grouped(rows(other, "y")) == set()


def test_a_product_its_scale_and_its_activation() -> None:
    nodes = [node("MatMul", "x w", "m"), node("Add", "m s", "b"), node("Relu", "b", "y")]
    assert grouped(rows(nodes, "y")) == {"m b y"}
    shifted = [node("MatMul", "x w", "m"), node("Add", "m q", "b"), node("Relu", "b", "y")]
    assert grouped(rows(shifted, "y")) == set()


def test_a_value_added_to_itself_joins_nothing() -> None:
    image = (1, 16, 8, 8)
    nodes = [conv("x", "w", "c"), node("Add", "c c", "y")]
    assert grouped(graph(nodes, dict.fromkeys("xcy", image), {"w": (16, 16, 1, 1)}, "y")) == set()


def test_one_of_two_convolutions_takes_the_addition() -> None:
    image = (1, 16, 8, 8)
    nodes = [conv("x", "w", "c"), conv("x", "w", "d"), node("Add", "c d", "y")]
    assert grouped(graph(nodes, dict.fromkeys("xcdy", image), {"w": (16, 16, 1, 1)}, "y")) == {"c y"}


def test_a_convolution_with_computed_weights_takes_an_activation_at_most() -> None:
    image = (1, 16, 8, 8)
    shapes = {**dict.fromkeys("xcy", image), "w": (16, 16, 1, 1)}
    nodes = [conv("x", "w", "c"), node("BatchNormalization", "c b b b b", "y", epsilon=1e-5)]
    assert grouped(graph(nodes, shapes, {"b": (16,)}, "y")) == set()
