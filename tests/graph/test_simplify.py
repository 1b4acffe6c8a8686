"""The clean-up: what it removes, what it must leave, and that results stay the same to the bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from small_models import Feed, assert_same, carried, model, run

from tasodsl.graph.onnx_in import import_graph
from tasodsl.graph.onnx_out import export_graph
from tasodsl.graph.save import to_proto
from tasodsl.graph.simplify import simplify

F = np.float32
X = np.random.default_rng(3).normal(size=(2, 3)).astype(F)
Inputs = Mapping[str, tuple[type, Sequence[int | str]]]
INPUT: Inputs = {"x": (F, (2, 3))}
node = helper.make_node


def cleaned(proto: onnx.ModelProto, growth: int = 0) -> tuple[onnx.ModelProto, Counter[str]]:
    source = carried(proto)
    graph, done = simplify(import_graph(source), growth)
    assert simplify(graph, growth)[0].hash == graph.hash
    result = to_proto(export_graph(source, graph))
    again = carried(result)
    unchanged, nothing = simplify(import_graph(again), growth)
    assert not nothing
    assert to_proto(export_graph(again, unchanged)) == result
    return result, done


def operators(proto: onnx.ModelProto, feeds: Sequence[Feed] = ({"x": X},), growth: int = 0) -> list[str]:
    """The operators that are left, having checked that the results are the same."""
    result, _ = cleaned(proto, growth)
    for feed in feeds:
        assert_same(run(result, feed), run(proto, feed))
    return [n.op_type for n in result.graph.node]


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ([node("Identity", ["x"], ["a"]), node("Relu", ["a"], ["y"])], ["Relu"]),
        ([node("Relu", ["x"], ["a"]), node("Identity", ["a"], ["y"])], ["Relu"]),
        ([node("Identity", ["x"], ["y"])], ["Identity"]),
        ([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["dead"])], ["Relu"]),
        ([node("Dropout", ["x"], ["a", "mask"]), node("Relu", ["a"], ["y"])], ["Relu"]),
        ([node("Transpose", ["x"], ["a"], perm=[0, 1]), node("Relu", ["a"], ["y"])], ["Relu"]),
        ([node("Transpose", ["x"], ["a"], perm=[1, 0]), node("Relu", ["a"], ["y"])], ["Transpose", "Relu"]),
        ([node("Cast", ["x"], ["a"], to=1), node("Relu", ["a"], ["y"])], ["Relu"]),
        ([node("Cast", ["x"], ["a"], to=11), node("Relu", ["a"], ["y"])], ["Cast", "Relu"]),
        ([node("Concat", ["x"], ["a"], axis=0), node("Relu", ["a"], ["y"])], ["Relu"]),
        ([node("Sum", ["x"], ["a"]), node("Relu", ["a"], ["y"])], ["Relu"]),
        ([node("Flatten", ["x"], ["a"]), node("Relu", ["a"], ["y"])], ["Relu"]),
        ([node("Flatten", ["x"], ["a"], axis=0), node("Relu", ["a"], ["y"])], ["Flatten", "Relu"]),
        ([node("Relu", ["x"], ["a"]), node("Relu", ["x"], ["b"]), node("Add", ["a", "b"], ["y"])], ["Relu", "Add"]),
        (
            [
                node("LeakyRelu", ["x"], ["a"], alpha=0.0),
                node("LeakyRelu", ["x"], ["b"], alpha=-0.0),
                node("Add", ["a", "b"], ["y"]),
            ],
            ["LeakyRelu", "LeakyRelu", "Add"],
        ),
        (
            [node("CumSum", ["x", "i"], ["a"]), node("CumSum", ["x", "i"], ["b"]), node("Add", ["a", "b"], ["y"])],
            ["CumSum", "Add"],
        ),
        (
            [
                node("CumSum", ["x", "i"], ["a"]),
                node("CumSum", ["x", "i"], ["b"], reverse=1),
                node("Add", ["a", "b"], ["y"]),
            ],
            ["CumSum", "CumSum", "Add"],
        ),
        ([node("Slice", ["x", "z", "big"], ["a"]), node("Relu", ["a"], ["y"])], ["Relu"]),
        ([node("Pad", ["x", "none"], ["a"]), node("Relu", ["a"], ["y"])], ["Relu"]),
        ([node("Expand", ["x", "one"], ["a"]), node("Relu", ["a"], ["y"])], ["Relu"]),
        (
            [node("Mul", ["one", "one"], ["a"]), node("Expand", ["x", "a"], ["b"]), node("Relu", ["b"], ["y"])],
            ["Relu"],
        ),
    ],
)
def test_what_is_left(nodes: list[onnx.NodeProto], left: list[str]) -> None:
    constants = {
        "i": np.array(0),
        "z": np.array([0, 0]),
        "big": np.array([9, 3]),
        "none": np.array([0, 0, 0, 0]),
        "one": np.array([1, 1]),
    }
    used = {v for n in nodes for v in n.input}
    proto = model(nodes, INPUT, ["y"], {n: a for n, a in constants.items() if n in used})
    assert operators(proto) == left


@pytest.mark.parametrize("random", ["RandomNormalLike", "RandomUniformLike", "Bernoulli"])
def test_random_numbers_are_drawn_as_often(random: str) -> None:
    nodes = [node(random, ["p"], ["a"]), node(random, ["p"], ["b"]), node("Sub", ["a", "b"], ["y"])]
    proto = model(nodes, {}, ["y"], {"p": np.full((3,), 0.5, F)})
    assert [n.op_type for n in cleaned(proto, 1000)[0].graph.node] == [random, random, "Sub"]


def test_unknown_operators_are_never_merged() -> None:
    nodes = [
        node("Magic", ["x"], ["a"], domain="com.magic"),
        node("Magic", ["x"], ["b"], domain="com.magic"),
        node("Sub", ["a", "b"], ["y"]),
    ]
    proto = model(nodes, INPUT, ["y"], domains=[("com.magic", 1)])
    assert len(cleaned(proto)[0].graph.node) == 3


def test_constants_are_computed() -> None:
    nodes = [
        node("Transpose", ["w"], ["a"]),
        node("Add", ["a", "one"], ["b"]),
        node("MatMul", ["x", "b"], ["y"]),
    ]
    proto = model(nodes, INPUT, ["y"], {"w": X, "one": F(1)})
    assert operators(proto) == ["MatMul"]


def test_constants_that_would_grow_the_file_are_not_computed() -> None:
    nodes = [node("Expand", ["one", "shape"], ["a"]), node("Add", ["x", "a"], ["y"])]
    proto = model(nodes, {"x": (F, (64, 64))}, ["y"], {"one": F(1), "shape": np.array([64, 64])})
    feed = [{"x": np.ones((64, 64), F)}]
    assert operators(proto, feed) == ["Expand", "Add"]
    assert operators(proto, feed, growth=64 * 64 * 4) == ["Add"]


def test_huge_constants_are_not_even_tried() -> None:
    nodes = [node("ConstantOfShape", ["shape"], ["a"]), node("ReduceSum", ["a"], ["b"]), node("Add", ["x", "b"], ["y"])]
    proto = model(nodes, INPUT, ["y"], {"shape": np.array([1 << 20, 1 << 20])})
    assert len(cleaned(proto, 1 << 20)[0].graph.node) == 3


def test_finite_constants_never_become_infinite() -> None:
    nodes = [node("Exp", ["c"], ["a"]), node("Add", ["x", "a"], ["y"])]
    assert operators(model(nodes, INPUT, ["y"], {"c": F(1000)})) == ["Exp", "Add"]
    assert operators(model(nodes, INPUT, ["y"], {"c": F(np.inf)})) == ["Add"]


def test_weights_stay_quantized() -> None:
    nodes = [node("DequantizeLinear", ["w", "s"], ["a"]), node("Add", ["x", "a"], ["y"])]
    proto = model(nodes, INPUT, ["y"], {"w": np.ones((2, 3), np.int8), "s": F(0.5)})
    assert operators(proto, growth=10000) == ["DequantizeLinear", "Add"]


def test_constants_keep_rank_and_sign() -> None:
    nodes = [
        node("Gather", ["x", "i"], ["a"]),
        node("Gather", ["x", "j"], ["b"]),
        node("Div", ["one", "p"], ["c"]),
        node("Div", ["one", "n"], ["d"]),
        node("Mul", ["x", "c"], ["e"]),
        node("Mul", ["x", "d"], ["f"]),
    ]
    constants = {"i": np.array(1), "j": np.array([1]), "one": F(1), "p": F(0.0), "n": F(-0.0)}
    proto = model(nodes, INPUT, ["a", "b", "e", "f"], constants)
    assert operators(proto) == ["Gather", "Gather", "Div", "Mul", "Div", "Mul"]


def test_equal_weights_are_kept_once() -> None:
    big = np.arange(600, dtype=F).reshape(3, 200)
    nodes = [node("MatMul", ["x", "v"], ["a"]), node("MatMul", ["x", "w"], ["b"]), node("Sub", ["a", "b"], ["y"])]
    result, done = cleaned(model(nodes, INPUT, ["y"], {"v": big, "w": big.copy()}))
    assert [len(n.input) for n in result.graph.node] == [2, 2]
    assert len(result.graph.initializer) == 1
    assert done == {"equal constants": 1, "equal nodes": 1}


FREE: Inputs = {"x": (F, ("N", 3, "H"))}
FREE_FEEDS = [{"x": np.random.default_rng(n).normal(size=(n, 3, h)).astype(F)} for n, h in ((1, 4), (2, 5), (0, 2))]


def shaped(*nodes: onnx.NodeProto, **constants: object) -> onnx.ModelProto:
    arrays = {"i0": np.array(0), "i1": np.array(1), "v0": np.array([0]), "v1": np.array([1]), "m1": np.array([-1])}
    arrays.update({k: np.array(v) for k, v in constants.items()})
    used = {v for n in nodes for v in n.input}
    return model(nodes, FREE, ["y"], {k: v for k, v in arrays.items() if k in used})


def test_shapes_known_in_part_are_computed_in_part() -> None:
    proto = shaped(
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "i1"], ["c"]),
        node("Unsqueeze", ["c", "v0"], ["u"]),
        node("Cast", ["u"], ["y"], to=1),
    )
    assert operators(proto, FREE_FEEDS) == ["Identity"]


def test_reshape_takes_a_constant() -> None:
    proto = shaped(
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "v0", "v1"], ["n"]),
        node("Concat", ["n", "m1"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["y"]),
    )
    assert operators(proto, FREE_FEEDS[:2]) == ["Reshape"]


def test_reshape_of_tensors_without_elements_still_works() -> None:
    """With [0, 3, -1] the runtime would refuse what [N, 3, H] allows when N is zero."""
    proto = shaped(
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "i2"], ["h"]),
        node("Gather", ["s", "v0"], ["n"]),
        node("Unsqueeze", ["h", "v0"], ["hv"]),
        node("Concat", ["n", "hv", "v3"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["y"]),
        i2=2,
        v3=[3],
    )
    assert operators(proto, FREE_FEEDS)[-1] == "Reshape"


def test_casts_of_sizes_go() -> None:
    proto = shaped(
        node("Shape", ["x"], ["s"]),
        node("Cast", ["s"], ["s32"], to=6),
        node("Slice", ["s32", "v2", "v3"], ["h"]),
        node("Cast", ["h"], ["h64"], to=7),
        node("Shape", ["x"], ["s2"]),
        node("Slice", ["s2", "v0", "v2"], ["front"]),
        node("Concat", ["h64", "front"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["y"]),
        v2=[2],
        v3=[3],
    )
    assert sorted(operators(proto, FREE_FEEDS[:2])) == ["Concat", "Reshape", "Shape", "Slice", "Slice"]


def test_expand_to_its_own_shape_goes() -> None:
    proto = shaped(node("Shape", ["x"], ["s"]), node("Expand", ["x", "s"], ["a"]), node("Relu", ["a"], ["y"]))
    assert operators(proto, FREE_FEEDS) == ["Relu"]


def test_expand_to_another_shape_of_that_name_stays() -> None:
    nodes = [node("Shape", ["z"], ["s"]), node("Expand", ["x", "s"], ["y"])]
    proto = model(nodes, {"x": (F, ("N", 3)), "z": (F, ("N", 3))}, ["y"])
    assert operators(proto, [{"x": X[:1], "z": X}]) == ["Shape", "Expand"]


def test_nodes_become_defined_when_their_operands_become_constant() -> None:
    nodes = [node("Concat", ["p", "q"], ["s"], axis=0), node("Resize", ["x", "", "s"], ["y"])]
    proto = model(nodes, {"x": (F, (1, 1, 2, 2))}, ["y"], {"p": F([1, 1]), "q": F([2, 2])})
    graph, _ = simplify(import_graph(carried(proto)), 0)
    assert graph.nodes["y"].defined
    assert graph.shape("y") == (1, 1, 4, 4)
    assert operators(proto, [{"x": X[:, :2].reshape(1, 1, 2, 2)}]) == ["Resize"]


def test_constant_outputs_keep_their_names() -> None:
    nodes = [node("Neg", ["c"], ["y"]), node("Relu", ["x"], ["z"])]
    assert operators(model(nodes, INPUT, ["y", "z"], {"c": X})) == ["Identity", "Relu"]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_graphs_do_the_same(data: st.DataObject) -> None:
    """Graphs of cheap operators over an input and constants, with repeated and idle nodes and several outputs."""
    values = ["x", "c", "d", "e"]
    nodes: list[onnx.NodeProto] = []
    for i in range(data.draw(st.integers(1, 14))):
        op = data.draw(st.sampled_from(["Add", "Mul", "Neg", "Identity", "Reshape", "Abs", "Where", "Transpose2"]))
        a, b = data.draw(st.sampled_from(values)), data.draw(st.sampled_from(values))
        out = f"v{i}"
        if op in ("Add", "Mul"):
            nodes.append(node(op, [a, b], [out]))
        elif op == "Where":
            nodes.append(node(op, ["flag", a, b], [out]))
        elif op == "Reshape":
            nodes.append(node(op, [a, "shape"], [out]))
        elif op == "Transpose2":
            nodes += [node("Transpose", [a], [f"{out}t"]), node("Transpose", [f"{out}t"], [out])]
        else:
            nodes.append(node(op, [a], [out]))
        values.append(out)
    written = [o for n in nodes for o in n.output if not o.endswith("t")]
    outputs = data.draw(st.lists(st.sampled_from(written), min_size=1, max_size=4, unique=True))
    constants = {
        "c": X,
        "d": X.copy(),
        "e": F([[0.0, -0.0, np.nan]]).repeat(2, 0),
        "flag": np.array([True, False, True]),
        "shape": np.array([2, 3]),
    }
    proto = model(nodes, INPUT, outputs, constants)
    result, _ = cleaned(proto, data.draw(st.sampled_from([0, 1000])))
    assert len(result.graph.node) <= len(proto.graph.node)
    assert [o.name for o in result.graph.output] == outputs
    for got, want in zip(run(result, {"x": X}), run(proto, {"x": X}), strict=True):
        assert numpy_helper.from_array(got) == numpy_helper.from_array(want)
