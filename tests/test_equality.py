"""The equality check must be able to fail, and must not fail on the runtime's own noise."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tasodsl.equality import check_equal, compare_values, make_feeds
from tasodsl.feeds import NoFeeds

Value = onnx.ValueInfoProto


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Value],
    outputs: Sequence[str],
    weights: dict[str, np.ndarray] | None = None,
) -> bytes:
    tensors = [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    body = helper.make_graph(list(nodes), "g", list(inputs), [Value(name=o) for o in outputs], tensors)
    made = helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString()


def tensor(name: str, shape: Sequence[int | str | None], kind: int = onnx.TensorProto.FLOAT) -> Value:
    return helper.make_tensor_value_info(name, kind, list(shape))


def classifier(scaled: int | None = None, saturation: float = 60.0) -> bytes:
    """Two convolutions, and a softmax so saturated that its output is one-hot whatever a single channel does."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.standard_normal((8, 3, 3, 3)).astype(np.float32),
        "w2": rng.standard_normal((8, 8, 1, 1)).astype(np.float32),
        "fc": (rng.standard_normal((8, 4)) * 0.01 + np.array([saturation, 0, 0, 0])).astype(np.float32),
    }
    if scaled is not None:
        weights["w1"][scaled] *= 1.5
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("GlobalAveragePool", ["r2"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "fc"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["y"], axis=1),
    ]
    return model(nodes, [tensor("x", [1, 3, 8, 8])], ["y"], weights)


INNER = ["c1", "r1", "c2", "r2", "p", "f", "logits"]


def test_a_model_equals_itself() -> None:
    report = check_equal(classifier(), classifier(), INNER, make_feeds(classifier()))
    assert report.equal
    assert [v.value for v in report.inner] == INNER
    assert report.largest is not None
    assert report.largest.difference == 0


@pytest.mark.parametrize("channel", range(8))
def test_one_scaled_channel_is_seen_through_a_saturated_softmax(channel: int) -> None:
    feeds = make_feeds(classifier())
    report = check_equal(classifier(), classifier(scaled=channel), INNER, feeds)
    assert not report.equal
    assert report.failures[0].value == "c1"
    # The outputs alone would not have told: that is why inner values are compared.
    assert all(v.within for v in report.outputs)


def test_values_that_only_one_model_has_are_left_out() -> None:
    x = [tensor("x", [4])]
    long = model([helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"])], x, ["y"])
    short = model([helper.make_node("Identity", ["x"], ["y"])], x, ["y"])
    report = check_equal(long, short, ["a", "y", "nowhere"], make_feeds(long))
    assert report.equal
    assert report.inner == ()


def test_inner_values_are_thinned_out_over_the_whole_depth() -> None:
    names = ["x", *(f"v{i}" for i in range(300))]
    nodes = [helper.make_node("Neg", [a], [b]) for a, b in itertools.pairwise(names)]
    deep = model(nodes, [tensor("x", [2])], [names[-1]])
    report = check_equal(deep, deep, names, make_feeds(deep))
    places = [names.index(v.value) for v in report.inner]
    assert len(places) >= 60
    assert max(b - a for a, b in itertools.pairwise(places)) <= 5
    assert places[0] < 5
    assert places[-1] > 290


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([helper.make_node("Unsqueeze", ["x", "axes"], ["y"])], "shape"),
        ([helper.make_node("Cast", ["x"], ["y"], to=int(onnx.TensorProto.DOUBLE))], "type"),
        ([helper.make_node("NoSuchOperator", ["x"], ["y"])], "NoSuchOperator"),
        ([helper.make_node("Identity", ["x"], ["z"])], "outputs"),
    ],
)
def test_a_model_of_another_form_is_a_difference(nodes: list[onnx.NodeProto], reason: str) -> None:
    plain = model([helper.make_node("Identity", ["x"], ["y"])], [tensor("x", [4])], ["y"])
    other = model(nodes, [tensor("x", [4])], [nodes[0].output[0]], {"axes": np.array([0])})
    report = check_equal(plain, other, [], make_feeds(plain))
    assert not report.equal
    assert reason in report.failures[0].reason


def test_integers_must_be_equal() -> None:
    x = [tensor("x", [64], onnx.TensorProto.INT64)]
    plain = model([helper.make_node("Add", ["x", "k"], ["y"])], x, ["y"], {"k": np.array(1_000_000)})
    off = model([helper.make_node("Add", ["x", "k"], ["y"])], x, ["y"], {"k": np.array(1_000_001)})
    assert check_equal(plain, plain, [], make_feeds(plain)).equal
    assert not check_equal(plain, off, [], make_feeds(plain)).equal


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("expected", "actual", "noisy", "within"),
    [
        ([1.0, NAN], [1.0, NAN], [1.0, NAN], True),
        ([1.0, NAN], [1.0, 2.0], [1.0, NAN], False),
        ([1.0, 2.0], [1.0, NAN], [1.0, 2.0], False),
        ([INF, -INF], [INF, -INF], [INF, -INF], True),
        ([INF, 1.0], [-INF, 1.0], [INF, 1.0], False),
        ([INF, 1.0], [3e38, 1.0], [INF, 1.0], False),
        ([100.0, 1.0], [100.009, 1.0], [100.0, 1.0], True),
        ([100.0, 1.0], [100.02, 1.0], [100.0, 1.0], False),
        ([100.0, 1.0], [100.02, 1.0], [100.006, 1.0], True),
        ([100.0, 1.0], [100.03, 1.0], [100.006, 1.0], False),
        ([0.0, 0.0], [1e-30, 0.0], [0.0, 0.0], False),
        ([], [], [], True),
    ],
)
def test_tolerance(expected: list[float], actual: list[float], noisy: list[float], within: bool) -> None:
    arrays = [np.array(a, np.float64) for a in (expected, actual, noisy)]
    assert compare_values("v", *arrays).within is within


def test_texts_and_sequences_are_compared() -> None:
    words, other = np.array(["a", "b"], object), np.array(["a", "c"], object)
    assert compare_values("v", words, words, words).within
    assert not compare_values("v", words, other, words).within
    one = [np.ones(2, np.float32)]
    assert compare_values("v", one, one, one).within
    assert not compare_values("v", one, [np.full(2, 2, np.float32)], one).within
    assert not compare_values("v", one, one * 2, one).within


def test_the_worst_run_is_reported() -> None:
    x = [tensor("x", [4])]
    plain = model([helper.make_node("Relu", ["x"], ["y"])], x, ["y"])
    wrong = model([helper.make_node("Abs", ["x"], ["y"])], x, ["y"])
    positive = {"x": np.ones(4, np.float32)}
    negative = {"x": -np.ones(4, np.float32)}
    assert check_equal(plain, wrong, [], [positive]).equal
    for feeds in ([positive, negative], [negative, positive]):
        report = check_equal(plain, wrong, [], feeds)
        assert not report.equal
        assert report.outputs[0].difference == 1.0


def test_feeds_are_seeded_and_differ_from_run_to_run() -> None:
    x = [tensor("x", [2, 3]), tensor("m", [5], onnx.TensorProto.BOOL)]
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Not", ["m"], ["z"])]
    made = model(nodes, x, ["y", "z"])
    first, again, other = make_feeds(made, seed=3), make_feeds(made, seed=3), make_feeds(made, seed=4)
    assert len(first) == 4
    for a, b in zip(first, again, strict=True):
        assert all(np.array_equal(a[k], b[k]) for k in a)
    assert not np.array_equal(first[0]["x"], other[0]["x"])
    assert not np.array_equal(first[0]["x"], first[1]["x"])
    assert first[0]["x"].dtype == np.float32
    assert first[0]["x"].min() < 0 <= first[1]["x"].min()


def test_indices_stay_inside_their_tables_each_by_its_own_range() -> None:
    tables = {"words": np.zeros((50, 4), np.float32), "kinds": np.zeros((2, 4), np.float32)}
    nodes = [
        helper.make_node("Gather", ["words", "ids"], ["a"]),
        helper.make_node("Gather", ["kinds", "types"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    inputs = [tensor(n, ["batch", "length"], onnx.TensorProto.INT64) for n in ("ids", "types")]
    made = model(nodes, inputs, ["y"], tables)
    feeds = make_feeds(made)
    assert check_equal(made, made, ["a", "b"], feeds).equal
    assert max(f["types"].max() for f in feeds) == 1
    assert max(f["ids"].max() for f in feeds) > 1


def test_free_sizes_are_the_persons_or_such_that_the_model_runs() -> None:
    weights = {"w": np.ones((32, 5), np.float32)}
    made = model([helper.make_node("MatMul", ["x", "w"], ["y"])], [tensor("x", ["n", "k"])], ["y"], weights)
    assert {f["x"].shape for f in make_feeds(made)} == {(1, 32)}
    assert all(f["x"].shape == (7, 32) for f in make_feeds(made, {"n": 7}))
    assert all(f["x"].shape == (6, 32) for f in make_feeds(made, {"x.0": 6}))
    with pytest.raises(NoFeeds):
        make_feeds(made, {"k": 31})


def test_the_last_run_has_other_sizes_where_the_model_allows_it() -> None:
    made = model([helper.make_node("Relu", ["x"], ["y"])], [tensor("x", ["n", 3, None])], ["y"])
    shapes = [f["x"].shape for f in make_feeds(made)]
    assert shapes[0] == (1, 3, 64)
    assert shapes[-1] not in shapes[:-1]
    assert {s[1] for s in shapes} == {3}


def test_inputs_with_a_default_are_not_fed() -> None:
    x = [tensor("x", [2]), tensor("k", [2])]
    made = model([helper.make_node("Add", ["x", "k"], ["y"])], x, ["y"], {"k": np.ones(2, np.float32)})
    assert set(make_feeds(made)[0]) == {"x"}


def test_external_data_is_read_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    for name, scaled in (("good", None), ("bad", 3)):
        onnx.save(
            onnx.load_model_from_string(classifier(scaled)),
            tmp_path / "deep" / f"{name}.onnx",
            save_as_external_data=True,
            location=f"{name}.bin",
            size_threshold=0,
        )
    monkeypatch.chdir(tmp_path)
    good, bad = Path("deep/good.onnx"), Path("deep/bad.onnx")
    feeds = make_feeds(good)
    assert check_equal(good, classifier(), INNER, feeds).equal
    assert not check_equal(good, bad, INNER, feeds).equal


def test_the_runtimes_own_noise_is_told_with_the_difference():
    expected, actual, noisy = (np.array([1.0, 2.0 + d], dtype=np.float32) for d in (0.0, 0.5, 0.25))
    found = compare_values("y", expected, actual, noisy)
    assert (found.relative, found.relative_noise) == (0.25, 0.125)
    assert found.within
