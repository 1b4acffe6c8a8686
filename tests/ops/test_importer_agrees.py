"""What the importer calls defined is defined: at the imported attributes, definitions give the runtime's results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx_runs import model, run
from op_cases import Case, cases, floats

from tasodsl.check import load_rules
from tasodsl.evaluate import evaluate_op
from tasodsl.graph.graph import Node
from tasodsl.graph.onnx_in import import_graph, load_model

Array = NDArray[Any]
RULES, _ = load_rules([])


def imported(case: Case, folder: Path) -> Node:
    path = folder / "one.onnx"
    onnx.save(model(case.op, case.operands, case.attributes, 22), path)
    (node,) = import_graph(load_model(path)).nodes.values()
    return node


CASES = cases()


@pytest.mark.parametrize("name", sorted(RULES.ops))
def test_attributes_and_values_are_the_definition_s(name: str, tmp_path: Path) -> None:
    defined = 0
    for case in [c for c in CASES if c.op == name and all(x is None or x.size for x in c.operands)][::4]:
        node = imported(case, tmp_path)
        if not node.defined:
            continue
        defined += 1
        op = RULES.ops[node.op_type]
        attributes = dict(node.attributes)
        assert set(attributes) == {a.name for a in op.attrs}
        expected = evaluate_op(RULES.ops[name], RULES.fns, case.operands, case.attributes)
        for ours, theirs in zip(evaluate_op(op, RULES.fns, case.operands, attributes), expected, strict=True):
            # The importer reads attributes as ONNX stores them, in float32.
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6, err_msg=str(case))
    assert defined > 0


BEYOND = [
    Case("LayerNormalization", (floats(2, 3, 4), floats(4)), {"axis": 1}),
    Case("LayerNormalization", (floats(2, 3), floats(1)), {"axis": 1}),
    Case("LayerNormalization", (floats(2, 3), floats(1, 3)), {"axis": 1}),
    Case("LayerNormalization", (floats(2, 3), floats(3), floats(1)), {"axis": 1}),
    Case("Clip", (floats(2, 3), np.array([0.5], np.float32))),
    Case("Pad", (floats(2), np.array([7.0], np.float32)), {"pads": (1, 1)}),
    Case("Pad", (floats(4),), {"pads": (-1, 1)}),
    Case("Pad", (floats(4),), {"pads": (1, 1), "mode": "reflect"}),
    Case("Max", (floats(2, 3), floats(3), floats(1))),
    Case("Max", (floats(2, 3),)),
    Case("Sum", (floats(2), floats(2), floats(2))),
    Case("MatMul", (floats(3), floats(3, 2))),
    Case("MatMul", (floats(2, 3), floats(3))),
    Case("Conv", (floats(1, 2, 5), floats(3, 2, 2))),
    Case("MaxPool", (floats(1, 2, 5),), {"kernel_shape": (2,)}),
    Case("AveragePool", (floats(1, 1, 5, 5),), {"kernel_shape": (2, 2), "strides": (2, 2), "ceil_mode": 1}),
    Case("MaxPool", (floats(1, 1, 5, 5),), {"kernel_shape": (2, 2), "strides": (2, 2), "ceil_mode": 1}),
    Case("BatchNormalization", (floats(4), *(floats(1, low=0.5) for _ in range(4)))),
    Case("Slice", (floats(5),), {"axes": (0,), "starts": (-1,), "ends": (-6,), "steps": (-2,)}),
    Case("Slice", (floats(5),), {"axes": (-1,), "starts": (-3,), "ends": (100,), "steps": (2,)}),
    Case("LRN", (floats(1, 3, 2, 2),), {"size": 3}),
]


@pytest.mark.parametrize("case", BEYOND, ids=str)
def test_what_a_definition_does_not_cover_is_carried(case: Case, tmp_path: Path) -> None:
    node = imported(case, tmp_path)
    if not node.defined:
        return
    (expected,) = run(case.op, case.operands, case.attributes, 22)
    operands = [x for x, name in zip(case.operands, node.inputs, strict=False) if name]
    (ours,) = evaluate_op(RULES.ops[node.op_type], RULES.fns, operands, dict(node.attributes))
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)
