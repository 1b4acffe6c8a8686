"""The measured cost model: what is charged where, and that each kernel is measured once.

Times themselves are played (`PlayedRuntime`), except where a test asks only whether something could be measured.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from cost_graphs import conv, graph, node

from tasodsl.cost import onnxruntime as costs
from tasodsl.cost.onnxruntime import DISPATCH_SECONDS, FUSION_REACH, OnnxruntimeCost
from tasodsl.cost.sizes import representative
from tasodsl.cost.table import CostTable
from tasodsl.graph.dims import symbol
from tasodsl.graph.graph import Constant, Graph, ValueInfo

IMAGE = (1, 16, 8, 8)
CHANNELS = {"b": (16,)}


class PlayedRuntime:
    """Gives every group the time 1, reorders 0.25, and puts convolutions into the blocked layout."""

    def __init__(self, blocked: bool) -> None:
        self.blocked = blocked
        self.models: list[bytes] = []

    def kernel_seconds(self, model: bytes, feed: object, threads: int, overhead: float) -> list[tuple[str, float]]:
        self.models.append(model)
        times = [("Kernel", 1.0)]
        if self.blocked and (b"Conv" in model or b"MaxPool" in model):
            times += [("ReorderInput", 0.25), ("ReorderOutput", 0.25)]
        return times


@pytest.fixture
def table(tmp_path: Path) -> CostTable:
    return CostTable(tmp_path / "costs.sqlite")


def played(monkeypatch: pytest.MonkeyPatch, blocked: bool = False) -> PlayedRuntime:
    runtime = PlayedRuntime(blocked)
    monkeypatch.setattr(costs, "kernel_seconds", runtime.kernel_seconds)
    monkeypatch.setattr(costs, "calibrated", lambda threads: 0.0)
    return runtime


def prices(cost: OnnxruntimeCost, of: Graph) -> dict[str, float]:
    return {n.id: cost.node_seconds(of, n) for n in of.topological()}


def residual_block() -> Graph:
    return graph(
        [
            conv("x", "w", "c"),
            node("BatchNormalization", "c b b b b", "d", epsilon=1e-5),
            conv("x", "w", "r"),
            node("Add", "d r", "e"),
            node("Relu", "e", "y"),
        ],
        dict.fromkeys("xcdrey", IMAGE),
        {"w": (16, 16, 1, 1), **CHANNELS},
        "y",
    )


def test_what_the_runtime_fuses_is_charged_once(monkeypatch: pytest.MonkeyPatch, table: CostTable) -> None:
    played(monkeypatch)
    cost = OnnxruntimeCost(1, table)
    found = prices(cost, residual_block())
    # Nothing is blocked here, so the addition is not a part of the convolution and counts on its own.
    assert found == {"c": 0.0, "d": 0.0, "r": 1.0, "e": 0.0, "y": 2.0}
    assert cost.graph_seconds(residual_block()) == 3.0


def test_a_residual_of_two_blocked_images_is_free(monkeypatch: pytest.MonkeyPatch, table: CostTable) -> None:
    played(monkeypatch, blocked=True)
    found = prices(OnnxruntimeCost(1, table), residual_block())
    # One reorder of x for both of its readers, one of the output.
    assert sum(found.values()) == 2 * 1.0 + 0.25 + 0.25


def test_a_reader_in_the_plain_layout_pays_for_the_reorder(monkeypatch: pytest.MonkeyPatch, table: CostTable) -> None:
    played(monkeypatch, blocked=True)
    chain = [conv("x", "w", "c"), conv("c", "w", "d")]
    shapes = dict.fromkeys("xcdsz", IMAGE)
    weights = {"w": (16, 16, 1, 1)}
    together = OnnxruntimeCost(1, table).graph_seconds(graph(chain, shapes, weights, "d"))
    apart = [conv("x", "w", "c"), node("Transpose", "c", "s", perm=(0, 1, 3, 2)), conv("s", "w", "d")]
    broken = OnnxruntimeCost(1, table).graph_seconds(graph(apart, shapes, weights, "d"))
    assert together == 2.0 + 0.5
    assert broken == 3.0 + 1.0


def test_a_second_reader_ends_a_group(monkeypatch: pytest.MonkeyPatch, table: CostTable) -> None:
    played(monkeypatch)
    shapes = dict.fromkeys("xcyz", IMAGE)
    weights = {"w": (16, 16, 1, 1)}
    nodes = [conv("x", "w", "c"), node("Relu", "c", "y")]
    assert prices(OnnxruntimeCost(1, table), graph(nodes, shapes, weights, "y")) == {"c": 0.0, "y": 1.0}
    nodes.append(node("Tanh", "c", "z"))
    found = prices(OnnxruntimeCost(1, table), graph(nodes, shapes, weights, "y z"))
    assert found == {"c": 1.0, "y": 1.0, "z": 1.0}
    seen = prices(OnnxruntimeCost(1, table), graph(nodes[:2], shapes, weights, "y c"))
    assert seen == {"c": 1.0, "y": 1.0}


def test_folding_what_the_runtime_folds_gains_nothing(monkeypatch: pytest.MonkeyPatch, table: CostTable) -> None:
    runtime = played(monkeypatch)
    shapes = dict.fromkeys("xcdey", IMAGE)
    weights = {"w": (16, 16, 1, 1), "scale": (16, 1, 1), **CHANNELS}
    cost = OnnxruntimeCost(1, table)
    plain = graph([node("Conv", "x w b", "y", **dict(conv("", "", "y").attributes))], shapes, weights, "y")
    long = [
        conv("x", "w", "c"),
        node("BatchNormalization", "c b b b b", "d", epsilon=1e-5),
        node("Mul", "d scale", "e"),
        node("Add", "e scale", "y"),
    ]
    assert cost.graph_seconds(plain) == cost.graph_seconds(graph(long, shapes, weights, "y"))
    assert len(runtime.models) == 1


def test_a_scalar_added_to_a_convolution_is_not_folded(monkeypatch: pytest.MonkeyPatch, table: CostTable) -> None:
    played(monkeypatch)
    nodes = [conv("x", "w", "c"), node("Add", "c k", "y")]
    shapes, weights = dict.fromkeys("xcy", IMAGE), {"w": (16, 16, 1, 1), "k": ()}
    assert prices(OnnxruntimeCost(1, table), graph(nodes, shapes, weights, "y")) == {"c": 1.0, "y": 1.0}


def test_a_kernel_is_measured_once_on_a_machine(monkeypatch: pytest.MonkeyPatch, table: CostTable) -> None:
    runtime = played(monkeypatch)
    shapes, weights = dict.fromkeys("xcdey", IMAGE), {"w": (16, 16, 1, 1), "v": (16, 16, 1, 1)}
    nodes = [conv("x", "w", "c"), conv("c", "v", "d"), conv("d", "w", "y")]
    first = OnnxruntimeCost(1, table)
    first.graph_seconds(graph(nodes, shapes, weights, "y"))
    assert (first.measured, len(runtime.models)) == (1, 1)
    again = OnnxruntimeCost(1, CostTable(table.path))
    again.graph_seconds(graph(nodes, shapes, weights, "y"))
    assert (again.measured, len(runtime.models)) == (0, 1)
    other = OnnxruntimeCost(2, CostTable(table.path))
    other.graph_seconds(graph(nodes, shapes, weights, "y"))
    assert other.measured == 1


@pytest.mark.parametrize("change", ["shape", "weights", "attribute", "dtype", "constant", "version"])
def test_what_a_time_depends_on_is_in_the_key(monkeypatch: pytest.MonkeyPatch, table: CostTable, change: str) -> None:
    played(monkeypatch)
    cost = OnnxruntimeCost(1, table)
    shapes, weights = {"x": IMAGE, "y": IMAGE}, {"w": (16, 16, 1, 1)}
    cost.graph_seconds(graph([conv("x", "w", "y")], shapes, weights, "y"))
    made = conv("x", "w", "y", pads=(1, 1, 1, 1)) if change == "attribute" else conv("x", "w", "y")
    if change == "shape":
        shapes = {"x": (1, 16, 9, 9), "y": (1, 16, 9, 9)}
    if change == "weights":
        weights = {"w": (32, 16, 1, 1)}
    if change == "constant":
        shapes, weights = {**shapes, "w": (16, 16, 1, 1)}, {}
    other = graph([made], shapes, weights, "y")
    if change == "dtype":
        other = replace(other, info=other.info.set("x", ValueInfo("float16", IMAGE)))
    if change == "version":
        other = replace(other, opset=10)
    fresh = OnnxruntimeCost(1, table)
    fresh.graph_seconds(other)
    assert fresh.measured == 1


def test_what_is_not_executed_costs_nothing(monkeypatch: pytest.MonkeyPatch, table: CostTable) -> None:
    played(monkeypatch)
    shapes = {"x": (4, 4), "i": (4, 4), "r": (16,), "k": (3,), "u": (4, 4)}
    nodes = [
        node("Identity", "x", "i"),
        node("Reshape", "x", "r", shape=(16,)),
        node("Add", "p q", "k"),
        replace(node("Mystery", "x", "u"), defined=False),
    ]
    found = prices(OnnxruntimeCost(1, table), graph(nodes, shapes, {"p": (3,), "q": (3,)}, "i r k u"))
    assert found == {"i": 0.0, "r": DISPATCH_SECONDS, "k": 0.0, "u": 0.0}


def test_what_cannot_run_alone_is_estimated_and_counted(table: CostTable) -> None:
    nodes = [node("Relu", "x", "y"), node("MatMul", "x z", "q")]
    made = graph(nodes, {"x": (2, 3), "y": (2, 3), "z": (4, 5), "q": (2, 5)}, {}, "y q")
    cost = OnnxruntimeCost(1, table)
    found = prices(cost, made)
    assert found["q"] > 0
    assert dict(cost.estimated) == {"MatMul": 1}
    assert cost.measured == 1


@pytest.mark.parametrize(
    "dtype", ["string", "bfloat16", "float16", "float64", "int4", "uint8", "bool", "float8_e4m3fn", ""]
)
def test_any_element_type_has_a_price(table: CostTable, dtype: str) -> None:
    made = graph([node("Add", "x k", "s"), node("Abs", "s", "y")], dict.fromkeys("xsy", (4,)), {"k": (4,)}, "y")
    info = {v: ValueInfo(dtype, (4,)) for v in "xsyk"}
    made = replace(made, info=made.info.update(info))
    assert OnnxruntimeCost(1, table).graph_seconds(made) >= 0


def test_constants_of_any_element_type_are_passed_on(table: CostTable) -> None:
    made = graph([node("Add", "x t", "y")], dict.fromkeys("xy", (4,)), {"t": (4,)}, "y")
    for dtype in (ml_dtypes.bfloat16, np.float16, np.float64, np.int8, np.bool_):
        constant = Constant.of(np.ones(4).astype(dtype))
        typed = replace(
            made,
            constants=made.constants.update({"t": constant}),
            info=made.info.update({v: ValueInfo(constant.dtype, (4,)) for v in "xty"}),
        )
        assert OnnxruntimeCost(1, table).node_seconds(typed, typed.nodes["y"]) >= 0


def test_the_runtime_measures_what_it_fuses(table: CostTable) -> None:
    cost = OnnxruntimeCost(1, table)
    nodes = [node("Transpose", "x", "t", perm=(0, 2, 1)), node("MatMul", "y t", "m"), node("Mul", "m k", "z")]
    shapes = {"x": (2, 8, 16), "t": (2, 16, 8), "y": (2, 8, 16), "m": (2, 8, 8), "z": (2, 8, 8)}
    found = prices(cost, graph(nodes, shapes, {"k": ()}, "z"))
    assert found["t"] == found["m"] == 0.0
    assert found["z"] > 0
    assert not cost.estimated


def test_a_price_depends_on_near_nodes_only(monkeypatch: pytest.MonkeyPatch, table: CostTable) -> None:
    """The search asks again only within `FUSION_REACH` steps of a change."""
    played(monkeypatch, blocked=True)
    names = [f"v{i}" for i in range(12)]
    shapes = {"x": IMAGE, "o": IMAGE, **dict.fromkeys(names, IMAGE)}
    nodes = [conv("x", "w", "v0")]
    for before, after in itertools.pairwise(names):
        nodes.append(node("Relu", before, after) if int(after[1:]) % 2 else conv(before, "w", after))
    cost = OnnxruntimeCost(1, table)
    before = graph(nodes, shapes, {"w": (16, 16, 1, 1)}, "v11")
    after = graph([*nodes, node("Exp", "v4", "o")], shapes, {"w": (16, 16, 1, 1)}, "v11 o")
    old, new = prices(cost, before), prices(cost, after)
    changed = {int(v[1:]) for v in old if old[v] != new[v]}
    assert changed
    assert all(abs(i - 4) <= FUSION_REACH for i in changed)


def test_sizes_come_from_the_person_then_from_the_import_then_defaults() -> None:
    n, h, w, f = symbol("batch"), symbol("x.2"), symbol("x.3"), symbol("y.2")
    made = graph([node("Relu", "x", "y")], {"x": (n, 3, h, w), "y": (n, 3, f, h * 2 + 1)}, {}, "y")
    assert representative(made).shape((n, h, w, f)) == (1, 64, 64, 64)
    assert representative(made, {"x.0": 5}).size(n) == 5
    assert representative(made, {"batch": 6}).size(n) == 6
    sizes = representative(replace(made, sizes={"x.2": 50, "x.3": 60, "y.2": 7}), {"x.2": 48})
    assert sizes.shape((n, h, w, f)) == (1, 48, 60, 7)
    assert sizes.size((h + 1) // 2 * 3) == 72
