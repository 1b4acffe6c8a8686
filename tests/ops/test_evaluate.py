"""What evaluation promises besides the values on the grid: dtypes, parts, shortcuts, errors, compile-time tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from numpy.typing import NDArray
from onnx_runs import run
from op_cases import Case, cases, floats

from tasodsl import evaluate, tensors
from tasodsl import syntax as s
from tasodsl.check import load_rules
from tasodsl.evaluate import SHORTCUTS, evaluate_op, evaluate_tensor
from tasodsl.parse import parse
from tasodsl.source import Source
from tasodsl.values import Environment, Mismatch

Array = NDArray[Any]
RULES, _ = load_rules([])


def result(op: str, *operands: Array | None, **attributes: Any) -> Array:
    (y,) = evaluate_op(RULES.ops[op], RULES.fns, operands, attributes)
    return y


def tensor(text: str, env: Environment) -> Array:
    """The entries of `let t[...] = ...`, written as in a rule."""
    (rule,) = parse(Source("<test>", f"rule r match y = x let {text} rewrite y = x")).declarations
    assert isinstance(rule, s.RuleDecl)
    (let,) = rule.lets
    assert isinstance(let, s.LetTensor)
    return evaluate_tensor(let, env)


# --- dtypes and ranks ---


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "int64", "bool", "complex64"])
def test_moving_entries_keeps_their_dtype(dtype: str) -> None:
    x = floats(2, 3).astype(dtype)
    y = result("Transpose", x, perm=(1, 0))
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, x.T)


def test_computing_is_done_in_float64() -> None:
    x = np.array([1e8, 1.0, -1e8], np.float32)
    total = result("ReduceSum", x, axes=(0,), keepdims=0)
    assert total.dtype == np.float64
    assert total == 1.0
    assert result("Add", x, x).dtype == np.float64
    assert result("MatMul", x.reshape(1, 3), x.reshape(3, 1)).dtype == np.float64


def test_rank_0_stays_rank_0() -> None:
    assert result("Neg", np.array(2.0, np.float32)).shape == ()
    assert result("Transpose", np.array(2.0, np.float32), perm=()).shape == ()


def test_a_result_is_an_array_of_its_own() -> None:
    x = floats(3)
    for y in (result("Identity", x), result("Reshape", x, shape=(3,))):
        y[0] = 100
        assert x[0] != 100


def test_not_a_number_goes_through() -> None:
    x = np.array([np.nan, 1.0], np.float32)
    for op in ("Relu", "LeakyRelu", "Abs", "Sigmoid", "HardSwish", "Clip"):
        np.testing.assert_array_equal(np.isnan(result(op, x)), [True, False], err_msg=op)


def test_softmax_does_not_overflow() -> None:
    np.testing.assert_array_equal(result("Softmax", np.array([1000.0, 0.0]), axis=0), [1.0, 0.0])


def test_a_flag_may_be_an_integer_as_in_onnx() -> None:
    a, b = floats(3, 2), floats(3, 4)
    np.testing.assert_array_equal(result("Gemm", a, b, transA=1), result("Gemm", a, b, transA=True))


# --- parts and shortcuts ---


def test_the_parts_of_a_large_result_make_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = cases()[::8]
    whole = [evaluate_op(RULES.ops[c.op], RULES.fns, c.operands, c.attributes) for c in chosen]
    monkeypatch.setattr(evaluate, "LIMIT", 40)
    for case, expected in zip(chosen, whole, strict=True):
        actual = evaluate_op(RULES.ops[case.op], RULES.fns, case.operands, case.attributes)
        for a, b in zip(actual, expected, strict=True):
            assert a.dtype == b.dtype, case
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=str(case))


@pytest.mark.parametrize("name", SHORTCUTS)
def test_a_shortcut_does_what_the_definition_says(name: str) -> None:
    defined = replace(RULES.ops[name], name="Another")
    for case in (c for c in cases() if c.op == name):
        (long,) = evaluate_op(defined, RULES.fns, case.operands, case.attributes)
        short = result(name, *case.operands, **case.attributes)
        assert short.dtype == long.dtype
        np.testing.assert_array_equal(short, long, err_msg=str(case))


def test_a_product_is_contracted_without_being_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(shape: tuple[int, ...], limit: float) -> None:
        assert np.prod(shape) <= 200 * 200

    monkeypatch.setattr(tensors, "bounded", refuse)
    a, b = floats(200, 200), floats(200, 200)
    np.testing.assert_allclose(result("MatMul", a, b), a.astype(float) @ b.astype(float), rtol=1e-10, atol=1e-10)


# --- calls that are not valid ---


@pytest.mark.parametrize(
    "case",
    [
        Case("MatMul", (floats(2, 3), floats(4, 5))),
        Case("Add", (floats(2), floats(3))),
        Case("PRelu", (floats(3), floats(2, 3))),
        Case("Conv", (floats(1, 3, 4, 4), floats(2, 2, 1, 1))),
        Case("Conv", (floats(1, 2, 4, 4), floats(3, 1, 1, 1)), {"group": 2}),
        Case("Conv", (floats(1, 2, 4), floats(3, 2, 1, 1))),
        Case("Conv", (floats(1, 2, 4, 4), floats(3, 2, 1, 1)), {"pads": (0, -1, 0, 0)}),
        Case("AveragePool", (floats(1, 1, 4, 4),), {"kernel_shape": (2, 2), "pads": (2, 0, 0, 0)}),
        Case("Reshape", (floats(2, 3),), {"shape": (5,)}),
        Case("Split", (floats(5),), {"axis": 0, "split": (2, 2)}),
        Case("Slice", (floats(5),), {"axes": (0,), "starts": (0,), "ends": (6,), "steps": (1,)}),
        Case("Transpose", (floats(2, 3),), {"perm": (0,)}),
        Case("Squeeze", (floats(2, 3),), {"axes": (0,)}),
        Case("Concat", (floats(2, 3), floats(2, 2)), {"axis": 0}),
        Case("Gather", (floats(3), np.array(3)), {"axis": 0}),
        Case("Gemm", (floats(2, 3), floats(3, 4), floats(3)), {}),
        Case("LayerNormalization", (floats(2, 3), floats(2)), {"axis": 1}),
    ],
    ids=str,
)
def test_an_invalid_call_is_a_mismatch(case: Case) -> None:
    with pytest.raises(Mismatch):
        evaluate_op(RULES.ops[case.op], RULES.fns, case.operands, case.attributes)


# --- compile-time tensors ---


def test_a_kernel_in_a_zero_rim() -> None:
    k = floats(2, 3, 1, 1)
    env = Environment(RULES.fns, {"m": 2, "c": 3}, {"k": k})
    y = tensor("t[o < m, i < c, u < 3, v < 3] = k[o, i, u - 1, v - 1]?0", env)
    expected = np.zeros((2, 3, 3, 3))
    expected[:, :, 1:2, 1:2] = k
    np.testing.assert_array_equal(y, expected)


def test_a_scale_folded_into_channels() -> None:
    w, g = floats(4, 3, 3, 3), floats(4)
    y = tensor("t[o < 4, ..i < [3, 3, 3]] = w[o, ..i] * g[o]", Environment(RULES.fns, {}, {"w": w, "g": g}))
    np.testing.assert_allclose(y, w.astype(float) * g.astype(float)[:, None, None, None])


def test_a_block_diagonal_kernel() -> None:
    w = floats(4, 2, 1, 1)
    env = Environment(RULES.fns, {}, {"w": w})
    y = tensor("t[o < 4, i < 4, u < 1, v < 1] = if i // 2 == o // 2 then w[o, i % 2, u, v] else 0.0", env)
    expected = np.zeros((4, 4, 1, 1))
    expected[:2, :2], expected[2:, 2:] = w[:2], w[2:]
    np.testing.assert_array_equal(y, expected)


def test_the_product_of_two_weights_that_is_summed_over() -> None:
    a, b = floats(5, 4, 1, 1), floats(4, 3, 3, 3)
    env = Environment(RULES.fns, {}, {"a": a, "b": b})
    y = tensor("t[o < 5, i < 3, u < 3, v < 3] = sum[q < 4] a[o, q, 0, 0] * b[q, i, u, v]", env)
    np.testing.assert_allclose(y, np.einsum("oq,qiuv->oiuv", a[:, :, 0, 0], b), rtol=1e-5, atol=1e-6)


def test_sums_within_sums_have_axes_of_their_own() -> None:
    x = floats(4)
    env = Environment(RULES.fns, {"n": 4}, {"x": x})
    y = tensor("t[i < n] = sum[p < n if p <= i] (x[p] * sum[q < n if q <= p] x[q])", env)
    wide = x.astype(float)
    expected = [sum(wide[p] * wide[: p + 1].sum() for p in range(i + 1)) for i in range(4)]
    np.testing.assert_allclose(y, expected)


def test_a_sum_over_what_does_not_depend_on_the_index_counts() -> None:
    env = Environment(RULES.fns, {"n": 3}, {"x": floats(2)})
    np.testing.assert_allclose(tensor("t[i < 2] = sum[p < n, q < 4] x[i]", env), 12 * floats(2).astype(float))
    np.testing.assert_allclose(tensor("t[i < 2] = sum[p < n if p > 0] 2.0", env), [4.0, 4.0])
    np.testing.assert_allclose(tensor("t[i < 2] = sum[p < 0] x[i]", env), [0.0, 0.0])


def test_a_read_out_of_bounds_is_an_error_only_where_it_is_asked_for() -> None:
    env = Environment(RULES.fns, {}, {"x": floats(3)})
    with pytest.raises(Mismatch, match="outside the bounds"):
        tensor("t[i < 4] = x[i]", env)
    y = tensor("t[i < 4] = if i < 3 then x[i] else 7.0", env)
    np.testing.assert_allclose(y, [*floats(3), 7.0], rtol=1e-6)
    assert tensor("t[i < 1] = sum[p < 5 if p < 3] x[p]", env) == pytest.approx(floats(3).sum(), rel=1e-6)


def test_the_greatest_entry_within_a_condition() -> None:
    env = Environment(RULES.fns, {}, {"x": np.array([-5.0, -3.0, -4.0])})
    np.testing.assert_array_equal(tensor("t[i < 2] = max[p < 3 if p != 1] x[p]", env), [-4.0, -4.0])
    np.testing.assert_array_equal(tensor("t[i < 2] = min[p < 3 if p + i >= 1] x[p]", env), [-4.0, -5.0])
    y = tensor("t[i < 4] = if any[p < 3] (x[p] == real(0 - 3 - i)) then 1.0 else 0.0", env)
    np.testing.assert_array_equal(y, [1.0, 1.0, 1.0, 0.0])


# --- any shapes and attributes ---


@settings(max_examples=60, deadline=None)
@given(
    mutually_broadcastable_shapes(num_shapes=3, max_dims=4, min_side=0, max_side=4),
    st.sampled_from(["Add", "Sub", "Mul"]),
)
def test_entries_broadcast_as_in_numpy(shapes: Any, op: str) -> None:
    a, b, c = (floats(*shape) for shape in shapes.input_shapes)
    make = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[op]
    expected = make(a.astype(float), b.astype(float))
    np.testing.assert_array_equal(result(op, a, b), expected)
    chosen = np.where(a > 0, b, c)
    np.testing.assert_array_equal(result("Where", np.asarray(a > 0), b, c), chosen)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_windows_agree_with_the_runtime(data: st.DataObject) -> None:
    def number(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    kernel = (number(1, 3), number(1, 3))
    strides = (number(1, 3), number(1, 3))
    pads = tuple(number(0, kernel[k % 2] - 1) for k in range(4))
    group = number(1, 2)
    x = floats(number(1, 2), 2 * group, number(5, 8), number(5, 8))
    window = {"strides": strides, "pads": pads}
    dilated = {**window, "dilations": (number(1, 2), number(1, 2)), "group": group}
    for case in (
        Case("Conv", (x, floats(3 * group, 2, *kernel)), dilated),
        Case("ConvTranspose", (x, floats(2 * group, 3, *kernel)), dilated),
        Case("MaxPool", (x,), {**window, "kernel_shape": kernel}),
        Case("AveragePool", (x,), {**window, "kernel_shape": kernel, "count_include_pad": number(0, 1)}),
    ):
        (expected,) = run(case.op, case.operands, case.attributes, 22)
        np.testing.assert_allclose(
            result(case.op, *case.operands, **case.attributes), expected, rtol=1e-4, atol=1e-4, err_msg=str(case)
        )


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_slices_and_permutations_agree_with_numpy(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    x = floats(*shape)
    perm = data.draw(st.permutations(range(len(shape))))
    np.testing.assert_array_equal(result("Transpose", x, perm=tuple(perm)), x.transpose(perm))
    axes = sorted(data.draw(st.sets(st.integers(0, len(shape) - 1))))
    taken = [slice(None)] * len(shape)
    starts, ends, steps = [], [], []
    for axis in axes:
        start = data.draw(st.integers(0, shape[axis]))
        end, step = data.draw(st.integers(start, shape[axis])), data.draw(st.integers(1, 3))
        taken[axis] = slice(start, end, step)
        starts.append(start)
        ends.append(end)
        steps.append(step)
    y = result("Slice", x, axes=tuple(axes), starts=tuple(starts), ends=tuple(ends), steps=tuple(steps))
    np.testing.assert_array_equal(y, x[tuple(taken)])
