"""The Python interface and the files it writes."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tasodsl
from tasodsl import files, pipeline
from tasodsl.cost.timing import Timing
from tasodsl.errors import UsageError, UserError

RULES = [Path(__file__).parent / "cli" / "small.taso"]


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TASODSL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def product(path: Path) -> Path:
    """y = identity(x w)"""
    weight = numpy_helper.from_array(np.eye(16, dtype=np.float32) * 2, "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Identity", ["m"], ["y"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "p", [value("x", TensorProto.FLOAT, [4, 16])], [value("y", TensorProto.FLOAT, [4, 16])], [weight]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save_model(model, str(path))
    return path


def external(path: Path) -> Path:
    onnx.save_model(
        onnx.load(product(path)), str(path), save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    return path


def test_load_optimize_export(tmp_path: Path):
    model = tasodsl.load_onnx(product(tmp_path / "p.onnx"))
    assert model.report is None
    faster = tasodsl.optimize(model, time=0, rules=RULES)
    assert faster.report is not None
    assert faster.report.nodes_after <= faster.report.nodes_before
    tasodsl.export_onnx(faster, tmp_path / "out.onnx")
    onnx.checker.check_model(str(tmp_path / "out.onnx"), full_check=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.onnx", "p.onnx"]


def test_an_optimized_model_can_be_optimized_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def alike(original: object, candidates: Sequence[object], *_: object, **__: object) -> list[Timing]:
        return [Timing(1.0, 1.0, 1.0, 1e-3, 1e-3, 5)] * len(candidates)

    monkeypatch.setattr(pipeline, "compare", alike)
    once = tasodsl.optimize(tasodsl.load_onnx(product(tmp_path / "p.onnx")), time=0, rules=RULES)
    twice = tasodsl.optimize(once, time=0, rules=RULES)
    tasodsl.export_onnx(twice, tmp_path / "out.onnx")
    assert len(onnx.load(tmp_path / "out.onnx").graph.node) == 1


def test_what_a_caller_can_mend_is_a_user_error(tmp_path: Path):
    with pytest.raises(tasodsl.UserError, match="none"):
        tasodsl.load_onnx(tmp_path / "none.onnx")
    model = tasodsl.load_onnx(product(tmp_path / "p.onnx"))
    with pytest.raises(UsageError):
        tasodsl.optimize(model, alpha=0.5, rules=RULES)
    with pytest.raises(tasodsl.UserError, match="cannot write"):
        tasodsl.export_onnx(model, tmp_path / "none" / "out.onnx")


def test_no_other_name_is_offered():
    with pytest.raises(AttributeError):
        _ = tasodsl.no_such_thing  # pyright: ignore
    assert all(hasattr(tasodsl, name) for name in tasodsl.__all__)


def test_a_device_is_not_replaced_by_a_file(tmp_path: Path):
    with pytest.raises(UserError, match="no ordinary file"):
        files.require_writable(Path("/dev/null"))


def test_a_copy_is_the_same_bytes(tmp_path: Path):
    source = product(tmp_path / "p.onnx")
    files.copy_model(source, tmp_path / "q.onnx")
    assert (tmp_path / "q.onnx").read_bytes() == source.read_bytes()
    files.copy_model(source, source)


def test_a_copy_takes_external_data_along(tmp_path: Path):
    source = external(tmp_path / "p.onnx")
    (tmp_path / "far").mkdir()
    files.copy_model(source, tmp_path / "far" / "q.onnx")
    copied = onnx.load(tmp_path / "far" / "q.onnx")
    np.testing.assert_array_equal(numpy_helper.to_array(copied.graph.initializer[0]), 2 * np.eye(16))
    assert files.model_bytes(source) > 16 * 16 * 4


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "r.json").write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space"):
        files.write_text(tmp_path / "r.json", "new")
    assert (tmp_path / "r.json").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.parametrize("name", ["none/x.onnx", ".", "p.onnx/x.onnx"])
def test_where_nothing_can_be_written_is_said_at_once(tmp_path: Path, name: str):
    product(tmp_path / "p.onnx")
    with pytest.raises(UserError, match="cannot write"):
        files.require_writable(tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == ["p.onnx"]
