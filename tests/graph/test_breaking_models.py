"""Small models that optimizers are known to break: read, cleaned up and written again, they do the same."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest

from tasodsl.graph.onnx_in import import_graph, load_model
from tasodsl.graph.onnx_out import export_graph, save_model
from tasodsl.graph.simplify import simplify

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus"
MODELS = sorted((CORPUS / "onnx").glob("*.onnx"))


@pytest.fixture(scope="module")
def judge() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_optimizer", CORPUS / "check_optimizer.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not MODELS, reason="the corpus is not here")
@pytest.mark.parametrize("cleaned", [False, True], ids=["as it is", "cleaned up"])
@pytest.mark.parametrize("path", MODELS, ids=[m.stem for m in MODELS])
def test_model_does_the_same(path: Path, cleaned: bool, judge: ModuleType, tmp_path: Path) -> None:
    model = load_model(path)
    graph = import_graph(model)
    if cleaned:
        graph, _ = simplify(graph, 1 << 14)
    result = tmp_path / "result.onnx"
    save_model(export_graph(model, graph), result)
    old, new = onnx.load(path), onnx.load(result)
    onnx.checker.check_model(new, full_check=True)
    assert judge.signature(old.graph.input) == judge.signature(new.graph.input)
    assert judge.signature(old.graph.output) == judge.signature(new.graph.output)
    assert len(new.graph.node) <= len(old.graph.node)
    feed = dict(np.load(path.with_suffix(".npz")))
    want, got = judge.run(path, feed), judge.run(result, feed)
    assert len(want) == len(got)
    assert all(map(judge.same, want, got))
