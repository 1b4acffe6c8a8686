"""Every definition agrees with the runtime, everywhere on a grid."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_runs import run
from op_cases import cases

from tasodsl.check import load_rules
from tasodsl.evaluate import evaluate_op

RULES, PROBLEMS = load_rules([])
CASES = cases()
OPERATORS = sorted({case.op for case in CASES})

PROMISED = (
    "Conv ConvTranspose MatMul Gemm BatchNormalization LayerNormalization Softmax Relu LeakyRelu PRelu Sigmoid "
    "HardSigmoid HardSwish Tanh Gelu Erf Clip Add Sub Mul Div Pow Sqrt Reciprocal Exp Log Neg Abs Max Min Where Cast "
    "Concat Split Slice Pad Transpose Reshape Flatten Squeeze Unsqueeze Expand Gather ReduceMean ReduceSum ReduceMax "
    "AveragePool MaxPool GlobalAveragePool Resize Identity Dropout "
)


def test_the_definitions_are_without_faults() -> None:
    assert PROBLEMS == []


def test_the_operators_that_a_user_was_promised_are_defined() -> None:
    assert set(PROMISED.split()) <= set(RULES.ops)


def test_the_grid_reaches_every_defined_operator() -> None:
    assert sorted(RULES.ops) == OPERATORS


def test_every_definition_is_documented() -> None:
    assert [op.name for op in RULES.ops.values() if not op.doc] == []


@pytest.mark.parametrize("name", OPERATORS)
def test_the_definition_agrees_with_the_runtime(name: str) -> None:
    op = RULES.ops[name]
    for k, case in enumerate(c for c in CASES if c.op == name):
        opset = 18 if k % 2 and (op.since or 0) <= 18 else 22
        expected = run(case.op, case.operands, case.attributes, opset)
        actual = evaluate_op(op, RULES.fns, case.operands, case.attributes)
        assert len(actual) == len(expected), case
        for ours, theirs in zip(actual, expected, strict=True):
            assert ours.shape == theirs.shape, case
            if theirs.dtype.kind == "f":
                scale = np.abs(theirs[np.isfinite(theirs)]).max(initial=1.0)
                np.testing.assert_allclose(
                    ours.astype(theirs.dtype), theirs, rtol=1e-4, atol=2e-6 * scale, err_msg=str(case)
                )
            else:
                assert ours.dtype == theirs.dtype, case
                np.testing.assert_array_equal(ours, theirs, err_msg=str(case))


@pytest.mark.parametrize("name", OPERATORS)
def test_the_grid_varies_every_attribute(name: str) -> None:
    given = {attribute for c in CASES if c.op == name for attribute in c.attributes}
    several = {a.name for a in RULES.ops[name].attrs if len(a.type.choices) != 1}
    assert several <= given
