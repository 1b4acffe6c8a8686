"""Reading, carrying and writing whole models: what is refused, and what stays as it came."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import convert_model_to_external_data
from small_models import assert_same, carried, declare_outputs, made_anew, model, run

from tasodsl.graph import save
from tasodsl.graph.dims import symbol
from tasodsl.graph.graph import Node
from tasodsl.graph.onnx_in import ModelError, carry, import_graph, input_symbols, load_model
from tasodsl.graph.onnx_out import export_graph, save_model
from tasodsl.graph.save import to_proto
from tasodsl.graph.simplify import simplify
from tasodsl.runtime import Session

F = np.float32
X = np.arange(6, dtype=F).reshape(2, 3)


def relu_chain(**kwargs: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="first"), helper.make_node("Neg", ["a"], ["y"], name="second")]
    proto = model(nodes, {"x": (F, (2, 3))}, ["y"], **kwargs)
    declare_outputs(proto, [X])
    return proto


def round_trip(proto: onnx.ModelProto, anew: bool = False) -> onnx.ModelProto:
    source = carried(proto)
    graph = import_graph(source)
    return to_proto(export_graph(source, made_anew(graph) if anew else graph))


# What is refused


def refused(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load_model(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    return message


def test_missing_file(tmp_path: Path) -> None:
    assert "no file" in refused(tmp_path / "none.onnx")


def test_directory(tmp_path: Path) -> None:
    assert "is a directory" in refused(tmp_path)


@pytest.mark.parametrize("content", [b"", b"hello, world\n" * 20, b"\x00" * 100, b"PK\x03\x04 a zip"])
def test_not_a_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    assert "not an ONNX model" in refused(path)


def test_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    whole = relu_chain().SerializeToString()
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        refused(path)


def saved(tmp_path: Path, proto: onnx.ModelProto) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_undefined_value(tmp_path: Path) -> None:
    proto = relu_chain()
    proto.graph.node[1].input[0] = "nowhere"
    assert "'second' (Neg) reads 'nowhere'" in refused(saved(tmp_path, proto))


def test_undefined_output(tmp_path: Path) -> None:
    proto = relu_chain()
    proto.graph.output[0].name = "nowhere"
    assert "nothing writes the output 'nowhere'" in refused(saved(tmp_path, proto))


def test_value_written_twice(tmp_path: Path) -> None:
    proto = relu_chain()
    proto.graph.node[0].output[0] = "y"
    assert "'y' is written twice" in refused(saved(tmp_path, proto))


def test_cycle(tmp_path: Path) -> None:
    proto = relu_chain()
    proto.graph.node[0].input[0] = "y"
    assert "depends on its own output" in refused(saved(tmp_path, proto))


def test_old_opset(tmp_path: Path) -> None:
    assert "opset 6" in refused(saved(tmp_path, relu_chain(opset=6)))


def test_undefined_value_in_a_branch(tmp_path: Path) -> None:
    branch = helper.make_graph([helper.make_node("Neg", ["nowhere"], ["b"])], "b", [], [onnx.ValueInfoProto(name="b")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    proto = model([node], {"c": (np.bool_, ())}, ["y"])
    assert "'nowhere'" in refused(saved(tmp_path, proto))


def test_missing_external_data(tmp_path: Path) -> None:
    path = with_external_data(tmp_path)
    (tmp_path / "weights.bin").unlink()
    assert "weights.bin" in refused(path)


def test_external_data_cut_short(tmp_path: Path) -> None:
    path = with_external_data(tmp_path)
    os.truncate(tmp_path / "weights.bin", 1000)
    assert "cut short" in refused(path)


def varied() -> onnx.ModelProto:
    branch = helper.make_graph([helper.make_node("Neg", ["a"], ["t"])], "t", [], [onnx.ValueInfoProto(name="t")])
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(X, "c")),
        helper.make_node("Split", ["x", "parts"], ["a", "b"], axis=0),
        helper.make_node("If", ["flag"], ["d"], then_branch=branch, else_branch=branch),
        helper.make_node("Add", ["d", "b"], ["e"]),
        helper.make_node("Add", ["e", "c"], ["y"]),
    ]
    constants = {"parts": np.array([1, 1]), "flag": np.array(True)}
    return model(nodes, {"x": (F, ("N", 3))}, ["y"], constants)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_models_are_refused_or_read(changes: list[tuple[int, int]]) -> None:
    content = bytearray(varied().SerializeToString())
    for place, value in changes:
        content[place % len(content)] = value
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(bytes(content))
    except DecodeError:
        return
    with contextlib.suppress(ModelError):
        source = carry(proto, Path("damaged.onnx"))
        graph = import_graph(source)
        to_proto(export_graph(source, graph))
        to_proto(export_graph(source, simplify(graph, 1000)[0]))


@pytest.mark.parametrize("dims", [(3, 3), (-2, -3), (6,)])
def test_tensors_that_do_not_fit_their_shape(tmp_path: Path, dims: tuple[int, ...]) -> None:
    proto = varied()
    del proto.graph.initializer[0].dims[:]
    proto.graph.initializer[0].dims.extend(dims)
    assert "'parts' does not fit" in refused(saved(tmp_path, proto))


# What stays


def test_everything_else_stays() -> None:
    proto = relu_chain()
    proto.doc_string, proto.producer_name, proto.producer_version = "doc", "someone", "1.2"
    proto.domain, proto.model_version = "example.org", 5
    proto.graph.doc_string, proto.graph.name = "graph doc", "the graph"
    helper.set_model_props(proto, {"key": "value"})
    proto.graph.node[0].doc_string = "node doc"
    proto.graph.metadata_props.add(key="g", value="h")
    proto.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, (2, 3)))
    proto.graph.quantization_annotation.add(tensor_name="a").quant_parameter_tensor_names.add(
        key="SCALE_TENSOR", value="x"
    )
    proto.training_info.add().update_binding.add(key="k", value="v")
    proto.opset_import.append(helper.make_opsetid("com.unused", 3))
    proto.functions.append(
        helper.make_function(
            "loc", "f", ["p"], ["q"], [helper.make_node("Relu", ["p"], ["q"])], [helper.make_opsetid("", 18)]
        )
    )
    proto.opset_import.append(helper.make_opsetid("loc", 1))
    again = round_trip(proto)
    assert again == proto


def test_names_of_nodes_and_types_of_outputs_stay_when_operands_change() -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["a"], name="idle"),
        helper.make_node("Relu", ["a"], ["y"], name="kept", doc_string="why"),
    ]
    proto = model(nodes, {"x": (F, ("N", 3))}, ["y"])
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ("N", 3)))
    source = carried(proto)
    graph, done = simplify(import_graph(source), 0)
    again = to_proto(export_graph(source, graph))
    assert [(n.name, n.doc_string, list(n.input)) for n in again.graph.node] == [("kept", "why", ["x"])]
    assert again.graph.output == proto.graph.output
    assert again.graph.input == proto.graph.input
    assert done == {"Identity that does nothing": 1}


def test_unused_initializers_go_and_overridable_ones_stay() -> None:
    proto = relu_chain()
    proto.graph.initializer.append(numpy_helper.from_array(X, "unused"))
    proto.graph.initializer.append(numpy_helper.from_array(X, "given"))
    proto.graph.input.append(helper.make_tensor_value_info("given", TensorProto.FLOAT, (2, 3)))
    again = round_trip(proto)
    assert [i.name for i in again.graph.initializer] == ["given"]
    assert [i.name for i in again.graph.input] == ["x", "given"]


def test_an_initializer_that_an_input_overrides_is_no_constant() -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"])]
    proto = model(nodes, {"x": (F, (2, 3)), "s": (np.int64, (1,))}, ["y"], {"s": np.array([6])})
    source = carried(proto)
    graph = import_graph(source)
    assert not graph.nodes["y"].defined
    assert not graph.constants
    again = to_proto(export_graph(source, simplify(graph, 1000)[0]))
    feed = {"x": X, "s": np.array([-1])}
    assert_same(run(again, feed), run(proto, feed))


def test_before_version_4_constants_are_nodes() -> None:
    nodes = [helper.make_node("Unsqueeze", ["x"], ["a"], axes=[0]), helper.make_node("Clip", ["a"], ["y"], min=1.0)]
    proto = model(nodes, {"x": (F, (2, 3))}, ["y"], opset=9, ir_version=3)
    declare_outputs(proto, [X[None]])
    again = round_trip(proto, anew=True)
    onnx.checker.check_model(again, full_check=True)
    assert_same(run(again, {"x": X}), run(proto, {"x": X}))
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(X, "c")),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    proto = model(nodes, {"x": (F, (2, 3))}, ["y"], opset=9, ir_version=3)
    declare_outputs(proto, [X])
    again = round_trip(proto)
    onnx.checker.check_model(again, full_check=True)
    assert [n.op_type for n in again.graph.node] == ["Constant", "Add"]
    assert_same(run(again, {"x": X}), run(proto, {"x": X}))


def test_unsorted_nodes_are_sorted() -> None:
    proto = relu_chain()
    nodes = list(reversed(proto.graph.node))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    assert [n.name for n in round_trip(proto).graph.node] == ["first", "second"]


def test_the_long_name_of_the_default_domain() -> None:
    proto = relu_chain()
    proto.opset_import[0].domain = "ai.onnx"
    for node in proto.graph.node:
        node.domain = "ai.onnx"
    source = carried(proto)
    graph = import_graph(source)
    assert all(n.defined for n in graph.nodes.values())
    assert_same(run(to_proto(export_graph(source, graph)), {"x": X}), run(relu_chain(), {"x": X}))


def test_newer_opsets_are_carried() -> None:
    proto = relu_chain(opset=24, ir_version=10)
    source = carried(proto)
    graph = import_graph(source)
    assert not any(n.defined for n in graph.nodes.values())
    assert to_proto(export_graph(source, graph)) == proto


def test_unknown_operators_are_carried_and_their_surroundings_cleaned() -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["a"]),
        helper.make_node("Magic", ["a", "", "a"], ["b", "", "c"], domain="com.magic", power=3),
        helper.make_node("Identity", ["b"], ["d"]),
        helper.make_node("Add", ["d", "c"], ["y"]),
    ]
    proto = model(nodes, {"x": (F, (2, 3))}, ["y"], domains=[("com.magic", 1)])
    source = carried(proto)
    graph, _ = simplify(import_graph(source), 0)
    again = to_proto(export_graph(source, graph))
    assert [n.op_type for n in again.graph.node] == ["Magic", "Add"]
    magic = again.graph.node[0]
    assert (list(magic.input), list(magic.output), magic.domain) == (["x", "", "x"], ["b", "", "c"], "com.magic")
    assert magic.attribute[0].i == 3


def test_subgraphs_read_what_they_read() -> None:
    then = helper.make_graph([helper.make_node("Add", ["a", "k"], ["t"])], "t", [], [onnx.ValueInfoProto(name="t")])
    other = helper.make_graph([helper.make_node("Neg", ["a"], ["e"])], "e", [], [onnx.ValueInfoProto(name="e")])
    for branch in (then, other):
        branch.output[0].CopyFrom(helper.make_tensor_value_info(branch.output[0].name, TensorProto.FLOAT, (2, 3)))
    nodes = [
        helper.make_node("Identity", ["x"], ["a"]),
        helper.make_node("If", ["c"], ["b"], then_branch=then, else_branch=other),
        helper.make_node("Mul", ["a", "b"], ["y"]),
    ]
    inputs = {"x": (F, (2, 3)), "c": (np.bool_, ())}
    proto = model(nodes, inputs, ["y"], {"k": X + 1})
    source = carried(proto)
    graph = import_graph(source)
    assert graph.nodes["b"].captures == ("a", "k")
    assert graph.shape("b") == (2, 3)
    again = to_proto(export_graph(source, simplify(made_anew(graph), 100)[0]))
    for flag in (True, False):
        feed = {"x": X, "c": np.array(flag)}
        assert_same(run(again, feed), run(proto, feed))


def test_new_names_are_new() -> None:
    """Names that the writer would give to new values may be there already, inside a subgraph as well."""
    inner = [helper.make_node("Neg", ["x"], ["Constant_0"]), helper.make_node("Neg", ["Constant_0"], ["t"])]
    branch = helper.make_graph(inner, "t", [], [helper.make_tensor_value_info("t", TensorProto.FLOAT, (2, 3))])
    nodes = [
        helper.make_node("If", ["c"], ["b"], then_branch=branch, else_branch=branch),
        helper.make_node("Reshape", ["b", "s"], ["y"], name="Reshape_0"),
    ]
    proto = model(nodes, {"x": (F, (2, 3)), "c": (np.bool_, ())}, ["y"], {"s": np.array([-1])})
    again = round_trip(proto, anew=True)
    assert [i.name for i in again.graph.initializer] == ["Constant_1"]
    feed = {"x": X, "c": np.array(True)}
    assert_same(run(again, feed), run(proto, feed))


@pytest.mark.parametrize(
    "value",
    [
        np.array(3, np.int64),
        np.array([True, False]),
        np.array([["a", "bc"]], object),
        np.zeros((0, 3), F),
        np.float16([1, 2]),
        np.array(2.5, np.float64),
    ],
    ids=["rank 0", "bool", "text", "empty", "half", "double"],
)
def test_constants_stay_as_they_are(value: np.ndarray) -> None:
    tensor = numpy_helper.from_array(value, "c")
    nodes = [helper.make_node("Constant", [], ["c"], value=tensor), helper.make_node("Identity", ["c"], ["y"])]
    proto = model(nodes, {}, ["y"])
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", tensor.data_type, value.shape))
    source = carried(proto)
    graph = import_graph(source)
    assert graph.constants["c"].shape == value.shape
    again = to_proto(export_graph(source, graph))
    onnx.checker.check_model(again, full_check=True)
    assert_same(run(again, {}), run(proto, {}))


@pytest.mark.parametrize("dtype", [TensorProto.BFLOAT16, TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT8E5M2])
def test_constants_of_small_types_stay(dtype: int) -> None:
    tensor = helper.make_tensor("c", dtype, (3,), [1, 2, 3])
    proto = model([helper.make_node("Constant", [], ["c"], value=tensor)], {}, ["c"], opset=21, ir_version=10)
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("c", dtype, (3,)))
    again = round_trip(proto)
    (kept,) = again.graph.initializer
    assert kept.data_type == dtype
    np.testing.assert_array_equal(numpy_helper.to_array(kept), numpy_helper.to_array(tensor))


def test_other_forms_of_constants() -> None:
    nodes = [
        helper.make_node("Constant", [], ["f"], value_float=1.5),
        helper.make_node("Constant", [], ["i"], value_ints=[1, 2]),
        helper.make_node("Constant", [], ["s"], value_strings=["a", "b"]),
    ]
    proto = model(nodes, {}, ["f", "i", "s"])
    declare_outputs(proto, [np.float32(1.5), np.array([1, 2]), np.array(["a", "b"], object)])
    assert_same(run(round_trip(proto), {}), run(proto, {}))


# Symbolic dimensions


def test_symbols_that_share_a_name_differ() -> None:
    nodes = [helper.make_node("Identity", [n], [f"{n}_out"]) for n in ("x", "z")]
    proto = model(nodes, {"x": (F, ("N", "?", None)), "z": (F, ("N", "?", "M"))}, ["x_out", "z_out"])
    source = carried(proto)
    graph = import_graph(source)
    assert graph.shape("x_out") == (symbol("N"), symbol("x.1"), symbol("x.2"))
    assert graph.shape("z_out") == (symbol("z.0"), symbol("z.1"), symbol("M"))
    assert input_symbols(source) == ("N", "?", "x.2", "M")


def test_given_sizes_are_noted_and_nothing_else() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["a"]), helper.make_node("MaxPool", ["z"], ["y"], kernel_shape=[2, 2])]
    proto = model(nodes, {"x": (F, ("N", 3)), "z": (F, (1, 1, "H", "N"))}, ["a", "y"])
    source = carried(proto)
    graph = import_graph(source, {"N": 4, "z.2": 8})
    assert graph.shape("x") == (symbol("N"), 3)
    shape = graph.shape("y")
    assert shape is not None
    assert [graph.concrete(d) for d in shape] == [1, 1, 7, 3]
    assert to_proto(export_graph(source, graph)).graph.input == proto.graph.input


def test_stale_shapes_are_dropped() -> None:
    proto = relu_chain()
    proto.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, (7, 7, 7)))
    again = round_trip(proto)
    assert not again.graph.value_info
    onnx.checker.check_model(again, full_check=True)


# Files


def with_external_data(folder: Path) -> Path:
    weight = np.arange(3000, dtype=F).reshape(3, 1000)
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (F, (2, 3))}, ["y"], {"w": weight})
    declare_outputs(proto, [X @ weight])
    convert_model_to_external_data(proto, location="weights.bin", size_threshold=100)
    onnx.save(proto, folder / "model.onnx")
    return folder / "model.onnx"


def test_external_data_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = with_external_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    source = load_model("model.onnx")
    monkeypatch.chdir("/")
    graph = import_graph(source)
    assert graph.constants["w"].array()[2, 999] == 2999
    out = tmp_path / "sub" / "out.onnx"
    out.parent.mkdir()
    save_model(export_graph(source, graph), out)
    assert sorted(p.name for p in out.parent.iterdir()) == ["out.onnx", "out.onnx.data"]
    onnx.checker.check_model(str(out), full_check=True)
    (got,), (want,) = (Session(p, optimize=False).run({"x": X}) for p in (out, path))
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_data_in_use_is_never_overwritten(tmp_path: Path) -> None:
    path = with_external_data(tmp_path)
    want = np.asarray(Session(path, optimize=False).run({"x": X})[0])
    data = (tmp_path / "weights.bin").read_bytes()
    for _ in range(3):
        source = load_model(path)
        save_model(export_graph(source, import_graph(source)), path)
        np.testing.assert_array_equal(np.asarray(Session(path, optimize=False).run({"x": X})[0]), want)
    assert (tmp_path / "weights.bin").read_bytes() == data
    assert len(list(tmp_path.iterdir())) <= 4


def test_large_models_get_external_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save, "LARGEST_BYTES", 2000)
    weight = np.arange(3000, dtype=F).reshape(3, 1000)
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (F, (2, 3))}, ["y"], {"w": weight})
    declare_outputs(proto, [X @ weight])
    source = carried(proto)
    exported = export_graph(source, import_graph(source))
    save_model(exported, tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx.data").stat().st_size == weight.nbytes
    assert (tmp_path / "out.onnx").stat().st_size < 1000
    assert to_proto(exported) == to_proto(export_graph(source, import_graph(source)))


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
def test_nothing_partial_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, step: str
) -> None:
    path = saved(tmp_path, relu_chain())
    before = path.read_bytes()
    source = load_model(path)
    exported = export_graph(source, import_graph(source))

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(ModelError if isinstance(failure, OSError) else KeyboardInterrupt):
        save_model(exported, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


def test_unwritable_places(tmp_path: Path) -> None:
    source = carried(relu_chain())
    exported = export_graph(source, import_graph(source))
    for place in (tmp_path / "none" / "out.onnx", tmp_path):
        with pytest.raises(ModelError, match="cannot write"):
            save_model(exported, place)


def test_permissions_stay(tmp_path: Path) -> None:
    path = saved(tmp_path, relu_chain())
    path.chmod(0o640)
    source = load_model(path)
    save_model(export_graph(source, import_graph(source)), path)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_rewritten_node_is_lowered() -> None:
    source = carried(relu_chain(opset=9))
    graph = import_graph(source)
    made = graph.rewrite(["y"], [Node("ReduceSum", ("a",), ("y",), (("axes", (0,)), ("keepdims", True)))])
    node = to_proto(export_graph(source, made)).graph.node[1]
    assert (node.op_type, list(node.input)) == ("ReduceSum", ["a"])
    assert {a.name: list(a.ints) or a.i for a in node.attribute} == {"axes": [0], "keepdims": 1}
