"""The analytic estimate."""

from __future__ import annotations

from cost_graphs import conv, graph, node

from tasodsl.cost.roofline import Device, RooflineCost
from tasodsl.graph.dims import symbol

DEVICE = Device("toy", flops_per_second=100.0, bytes_per_second=1e9, launch_seconds=0.5)


def test_arithmetic_bounds_a_convolution() -> None:
    made = graph([conv("x", "w", "y")], {"x": (1, 2, 3, 3), "y": (1, 4, 3, 3)}, {"w": (4, 2, 1, 1)}, "y")
    assert RooflineCost(DEVICE).graph_seconds(made) == 0.5 + 2 * 4 * 9 * 2 / 100.0


def test_memory_bounds_an_elementwise_operator() -> None:
    slow = Device("slow memory", flops_per_second=1e9, bytes_per_second=1.0, launch_seconds=0.0)
    made = graph([node("Relu", "x", "y")], {"x": (5,), "y": (5,)}, {}, "y")
    assert RooflineCost(slow).graph_seconds(made) == 40.0


def test_products_count_their_inner_size() -> None:
    made = graph([node("MatMul", "x w", "y")], {"x": (2, 3), "y": (2, 5)}, {"w": (3, 5)}, "y")
    assert RooflineCost(DEVICE).graph_seconds(made) == 0.5 + 2 * 2 * 3 * 5 / 100.0


def test_reshapes_are_free_and_free_sizes_have_defaults() -> None:
    n = symbol("n")
    made = graph(
        [node("Flatten", "x", "f", axis=1), node("Relu", "f", "y")], {"x": (n, 2), "f": (n, 2), "y": (n, 2)}, {}, "y"
    )
    assert RooflineCost(DEVICE).graph_seconds(made) == 0.5 + 64 * 2 / 100.0


def test_an_estimate_says_that_it_is_one() -> None:
    assert "not measured" in RooflineCost(DEVICE).label
