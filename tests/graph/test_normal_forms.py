"""Every operator, in each opset that says it differently: what is written for its normal form does the same."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from onnx import helper
from small_models import assert_same, carried, declare_outputs, made_anew, model, run

from tasodsl.graph.onnx_in import import_graph
from tasodsl.graph.onnx_out import export_graph
from tasodsl.graph.save import to_proto

F = np.float32
INT = np.int64


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).normal(size=shape).astype(F)


def ints(*values: int) -> np.ndarray:
    return np.array(values, INT)


@dataclass
class Case:
    """One node; arrays of `operands` are inputs, those of `constants` are initializers, named in order of `names`."""

    op_type: str
    opsets: tuple[int, ...]
    operands: list[np.ndarray | None]
    attributes: dict[str, object] = field(default_factory=dict)
    constant: tuple[int, ...] = ()
    outputs: int = 1
    normal: dict[str, object] | None = None
    defined: bool = True
    becomes: str | None = None


X = floats(2, 3, 7, 6)
ALL = (7, 9, 11, 13, 18, 21)
UNARY = [
    "Relu",
    "Sigmoid",
    "Tanh",
    "Sqrt",
    "Reciprocal",
    "Exp",
    "Log",
    "Neg",
    "Abs",
    "Floor",
    "Identity",
    "Softplus",
    "Sin",
    "Cos",
]

CASES = [
    *(Case(op, ALL, [np.abs(X) + F(0.1)], normal={}) for op in UNARY),
    *(Case(op, (9, 13, 20), [X], normal={}) for op in ("Erf", "Sign")),
    *(Case(op, (7, 13, 22), [X], normal={}) for op in ("Ceil", "Softsign")),
    Case("Mish", (18,), [X], normal={}),
    Case("Celu", (12,), [X], {"alpha": 0.5}, normal={"alpha": 0.5}),
    Case("ThresholdedRelu", (10,), [X], normal={"alpha": 1.0}),
    Case("Selu", (7, 22), [X], normal={"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    *(Case(op, (12, 16), [X, floats(3, 1, 6)], normal={}) for op in ("LessOrEqual", "GreaterOrEqual")),
    Case("Xor", (7, 13), [np.array([True, False]), np.array([True, True])], normal={}),
    Case("Tile", (7, 13), [floats(2, 3), ints(2, 1)], {}, (1,), normal={"repeats": (2, 1)}),
    Case("DepthToSpace", (7, 11, 13), [floats(1, 8, 2, 3)], {"blocksize": 2}, normal={"blocksize": 2, "mode": "DCR"}),
    Case("DepthToSpace", (11, 13), [floats(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
    Case("SpaceToDepth", (7, 13), [floats(1, 2, 4, 6)], {"blocksize": 2}, normal={"blocksize": 2}),
    Case("EyeLike", (9, 22), [floats(3, 4)], {"k": 1}, normal={"k": 1}),
    Case("InstanceNormalization", (7, 22), [X, floats(3), floats(3)], normal={"epsilon": float(F(1e-5))}),
    *(
        Case(op, (7, 13, 18), [X], {"keepdims": 0}, normal={"axes": (0, 1, 2, 3), "keepdims": False})
        for op in ("ReduceL1", "ReduceL2", "ReduceSumSquare")
    ),
    Case("HardSwish", (14, 22), [X], normal={}),
    *(Case(op, ALL, [X, floats(3, 1, 6)], normal={}) for op in ("Add", "Sub", "Mul", "Div")),
    Case("Pow", ALL, [np.abs(X), floats(3, 1, 6)], normal={}),
    *(Case(op, (8, 12, 13), [X, floats(3, 1, 6)], normal={}) for op in ("Max", "Min", "Sum")),
    *(Case(op, (8, 12, 13), [X, floats(3, 1, 6), floats(1)], defined=False) for op in ("Max", "Min", "Sum")),
    *(Case(op, (9, 13), [X, floats(3, 1, 6)], normal={}) for op in ("Less", "Greater")),
    Case("Equal", (11, 13), [X, floats(3, 1, 6)], normal={}),
    *(Case(op, (7, 13), [np.array([True, False]), np.array([True, True])], normal={}) for op in ("And", "Or")),
    Case("Not", (7, 13), [np.array([True, False])], normal={}),
    Case("Where", (9, 16), [np.array([True, False]), floats(2), floats(3, 1)], normal={}),
    Case("PRelu", (7, 9, 16), [X, floats(3, 1, 1)], normal={}),
    Case("LeakyRelu", (7, 16), [X], normal={"alpha": float(F(0.01))}),
    Case("Elu", (7, 22), [X], {"alpha": 0.5}, normal={"alpha": 0.5}),
    Case("HardSigmoid", (7, 22), [X], normal={"alpha": float(F(0.2)), "beta": 0.5}),
    Case("Gelu", (20,), [X], {"approximate": "tanh"}, normal={"approximate": "tanh"}),
    Case("Clip", (7, 9), [X], {"min": -0.5}, normal={}),
    Case("Clip", (7, 9), [X], {"max": 0.5, "min": 0.25}, normal={}),
    Case("Clip", (11, 12, 13), [X, F(-0.5), F(0.5)], constant=(1, 2), normal={}),
    Case("Clip", (11, 13), [X, None, F(0.5)], constant=(2,), normal={}),
    Case("Clip", (11, 13), [X, F(0.5)], constant=(1,), normal={}),
    Case("Cast", (9, 13, 19), [X], {"to": onnx.TensorProto.INT32}, normal={"to": "int32"}),
    Case("Concat", ALL, [X, X], {"axis": 2}, normal={"axis": 2}),
    Case("Concat", (11, 13), [X, X], {"axis": -1}, normal={"axis": 3}),
    Case("Split", (7, 11), [X], {"axis": 2, "split": [3, 4]}, outputs=2, normal={"axis": 2, "split": (3, 4)}),
    Case("Split", (7, 11, 13), [X], {"axis": 3}, outputs=2, normal={"axis": 3, "split": (3, 3)}),
    Case("Split", (13, 18), [X, ints(3, 4)], {"axis": -2}, (1,), 2, normal={"axis": 2, "split": (3, 4)}),
    Case("Split", (18,), [X], {"axis": 2, "num_outputs": 2}, outputs=2, normal={"axis": 2, "split": (4, 3)}),
    Case("Split", (13, 18), [X, ints(3, 4)], {"axis": 2}, outputs=2, defined=False),
    Case(
        "Slice",
        (7, 9),
        [X],
        {"starts": [-3, 1], "ends": [9223372036854775807, -1], "axes": [3, 1]},
        normal={"axes": (1, 3), "starts": (1, 3), "ends": (2, 6), "steps": (1, 1)},
    ),
    Case(
        "Slice",
        (10, 11, 13),
        [X, ints(-3, 0), ints(9223372036854775807, -1), ints(-1, 2), ints(1, 2)],
        {},
        (1, 2, 3, 4),
        normal={"axes": (2, 3), "starts": (0, 3), "ends": (6, 6), "steps": (2, 1)},
    ),
    Case("Slice", (10, 13), [X, ints(5, 3), ints(2, 1)], {}, (1, 2), normal=None),
    Case("Slice", (13,), [X, ints(-1), ints(-9), ints(2), ints(-1)], {}, (1, 2, 3, 4), defined=False),
    Case("Pad", (7, 9), [X], {"pads": [0, 0, 1, 2, 0, 0, 0, 1], "value": 2.0}, normal=None),
    Case("Pad", (7, 9), [X], {"pads": [0, 0, 1, 2, 0, 0, 0, 1], "mode": "edge"}, defined=False),
    Case("Pad", (11, 13, 18), [X, ints(0, 0, 1, 2, 0, 0, 0, 1), F(3)], {}, (1, 2), normal=None),
    Case("Pad", (11, 13), [X, ints(0, 0, 1, 2, 0, 0, 0, 1)], {"mode": "reflect"}, (1,), defined=False),
    Case("Pad", (11, 13), [X, ints(0, 0, -1, 2, 0, 0, 0, 1)], {}, (1,), defined=False),
    Case(
        "Pad",
        (18,),
        [X, ints(1, 2, 0, 1), None, ints(2, -1)],
        {},
        (1, 3),
        normal={"pads": (0, 0, 1, 2, 0, 0, 0, 1), "mode": "constant"},
    ),
    Case("Transpose", ALL, [X], normal={"perm": (3, 2, 1, 0)}),
    Case("Transpose", ALL, [X], {"perm": [0, 2, 3, 1]}, normal={"perm": (0, 2, 3, 1)}),
    Case("Reshape", ALL, [X, ints(0, -1, 6)], {}, (1,), normal={"shape": (2, 21, 6)}),
    Case("Reshape", (14, 19), [floats(0, 3), ints(3, 0)], {"allowzero": 1}, (1,), normal={"shape": (3, 0)}),
    Case("Reshape", (13,), [X, ints(0, -1, 6)], defined=False),
    Case("Flatten", ALL, [X], normal={"axis": 1}),
    Case("Flatten", (11, 13), [X], {"axis": -1}, normal={"axis": 3}),
    Case("Squeeze", (7, 11), [floats(1, 3, 1, 2)], {"axes": [2, 0]}, normal={"axes": (0, 2)}),
    Case("Squeeze", (11,), [floats(1, 3, 1, 2)], {"axes": [-2]}, normal={"axes": (2,)}),
    Case("Squeeze", ALL, [floats(1, 3, 1, 2)], normal={"axes": (0, 2)}),
    Case("Squeeze", (13, 21), [floats(1, 3, 1, 2), ints(-2)], {}, (1,), normal={"axes": (2,)}),
    Case("Unsqueeze", (7, 11), [floats(3, 2)], {"axes": [3, 0]}, normal={"axes": (0, 3)}),
    Case("Unsqueeze", (13, 21), [floats(3, 2), ints(-1, 0)], {}, (1,), normal={"axes": (0, 3)}),
    Case("Expand", (8, 13), [floats(3, 1), ints(2, 1, 4)], {}, (1,), normal={"shape": (2, 1, 4)}),
    Case("Gather", (7, 11, 13), [X, np.array([[0, 2]])], {"axis": 1}, normal={"axis": 1}),
    Case("Gather", (11, 13), [X, np.array(-1)], {"axis": -1}, normal={"axis": 3}),
    *(
        Case(op, (7, 11, 13), [X], {"axes": [3, 1], "keepdims": 0}, normal={"axes": (1, 3), "keepdims": 0})
        for op in ("ReduceMean", "ReduceMax", "ReduceMin")
    ),
    *(
        Case(op, (18,), [X, ints(-1, 1)], {"keepdims": 0}, (1,), normal={"axes": (1, 3), "keepdims": 0})
        for op in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum")
    ),
    Case("ReduceSum", (7, 11), [X], {"axes": [1]}, normal={"axes": (1,), "keepdims": 1}),
    Case("ReduceSum", (13, 18), [X, ints(1)], {}, (1,), normal={"axes": (1,), "keepdims": 1}),
    Case("ReduceSum", (13, 18), [X], normal={"axes": (0, 1, 2, 3), "keepdims": 1}),
    Case("ReduceSum", (13, 18), [X], {"noop_with_empty_axes": 1}, normal={}, becomes="Identity"),
    Case("Softmax", (7, 11), [X], {"axis": 3}, normal={"axis": 3}),
    Case("Softmax", (7, 11), [X], defined=False),
    Case("Softmax", (7, 11), [floats(2, 5, 1, 1)], normal={"axis": 1}),
    Case("Softmax", (13, 21), [X], {"axis": 1}, normal={"axis": 1}),
    Case("LogSoftmax", (13,), [X], normal={"axis": 3}),
    Case("MatMul", (7, 9, 13), [floats(2, 3, 4), floats(4, 5)], normal={}),
    Case("MatMul", (13,), [floats(2, 3, 4), floats(4)], defined=False),
    Case("Gemm", (7, 9, 11, 13), [floats(4, 3), floats(5, 4), floats(5)], {"transA": 1, "transB": 1, "alpha": 0.5}),
    Case("Gemm", (11, 13), [floats(3, 4), floats(4, 5)], normal={"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}),
    Case("Conv", (7, 11, 22), [X, floats(4, 3, 3, 2), floats(4)], {"strides": [2, 1], "dilations": [1, 2]}),
    Case("Conv", (11,), [X, floats(3, 1, 3, 3)], {"group": 3, "kernel_shape": [3, 3], "pads": [1, 0, 2, 1]}),
    *(
        Case("Conv", (7, 11), [X, floats(4, 3, kh, kw)], {"strides": [2, 3], "auto_pad": pad})
        for pad in ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
        for kh, kw in ((3, 2), (1, 1), (5, 4))
    ),
    Case("Conv", (11,), [floats(1, 2, 5), floats(3, 2, 3)], defined=False),
    Case("ConvTranspose", (7, 11), [X, floats(3, 2, 3, 3)], {"strides": [2, 2], "output_padding": [1, 0]}),
    Case("ConvTranspose", (11,), [X, floats(3, 2, 3, 3)], {"group": 3, "pads": [1, 1, 0, 1]}),
    Case("ConvTranspose", (11,), [X, floats(3, 2, 3, 3)], {"output_shape": [8, 8]}, defined=False),
    Case("AveragePool", (7, 10, 11, 19), [X], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]}),
    Case("AveragePool", (7, 19), [X], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1}),
    Case("AveragePool", (10, 19), [X], {"kernel_shape": [3, 2], "ceil_mode": 1}, defined=False),
    Case("AveragePool", (7, 11), [X], {"kernel_shape": [2, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    Case("MaxPool", (7, 8, 10, 12), [X], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}),
    Case("MaxPool", (8, 12), [X], {"kernel_shape": [3, 2], "auto_pad": "SAME_LOWER"}),
    Case("MaxPool", (10, 12), [X], {"kernel_shape": [3, 2], "dilations": [2, 1]}),
    Case("GlobalAveragePool", (7, 22), [X], normal={}),
    Case("GlobalMaxPool", (7, 22), [X], normal={}),
    Case("BatchNormalization", (7, 9, 14, 15), [X, *(np.abs(floats(3)) for _ in range(4))], {"momentum": 0.5}),
    Case("LayerNormalization", (17,), [X, floats(6), floats(6)], normal={"axis": 3, "epsilon": float(F(1e-5))}),
    Case("LayerNormalization", (17,), [X, floats(7, 6)], {"axis": 2}, normal={"axis": 2, "epsilon": float(F(1e-5))}),
    Case("LRN", (7, 13), [X], {"size": 3}),
    Case("Dropout", (7, 10, 12), [X], normal={}),
    Case("Upsample", (7,), [X], {"scales": [1.0, 1.0, 2.0, 3.0]}, becomes="Resize"),
    Case("Upsample", (9,), [X, np.array([1, 1, 2, 1.5], F)], {}, (1,), becomes="Resize"),
    Case("Resize", (10,), [X, np.array([1, 1, 2, 1.5], F)], {}, (1,)),
    Case("Resize", (11, 13, 19), [X, np.zeros(0, F), np.array([1, 1, 2, 1.5], F)], {}, (1, 2)),
    *(
        Case(
            "Resize",
            (11, 13, 19),
            [X, np.zeros(0, F), np.zeros(0, F), ints(2, 3, 10, 9)],
            {"coordinate_transformation_mode": mode, "nearest_mode": rounding},
            (1, 2, 3),
        )
        for mode in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
        for rounding in ("floor", "round_prefer_floor", "round_prefer_ceil", "ceil")
    ),
    Case("Resize", (13,), [X, None, np.array([1, 2, 2, 1.5], F)], {}, (2,), defined=False),
    Case("Resize", (13,), [X, None, np.array([1, 1, 2, 1.5], F)], {"mode": "linear"}, (2,), defined=False),
]


def parts(case: Case, opset: int, symbolic: bool) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    names = [f"v{i}" if v is not None else "" for i, v in enumerate(case.operands)]
    arrays = {n: np.asarray(v) for n, v in zip(names, case.operands, strict=True) if v is not None}
    constants = {names[i]: arrays[names[i]] for i in case.constant}
    feed = {n: a for n, a in arrays.items() if n not in constants}
    inputs = {n: (a.dtype, [f"{n}_{i}" for i in range(a.ndim)] if symbolic else a.shape) for n, a in feed.items()}
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.op_type, names, outputs, **case.attributes)
    return model([node], inputs, outputs, constants, opset, ir_version=8 if opset < 21 else 10), feed


@pytest.mark.parametrize(
    ("case", "opset"), [pytest.param(c, o, id=f"{i}-{c.op_type}-{o}") for i, c in enumerate(CASES) for o in c.opsets]
)
def test_normal_form_does_the_same(case: Case, opset: int) -> None:
    proto, feed = parts(case, opset, symbolic=False)
    want = run(proto, feed)
    declare_outputs(proto, want)
    source = carried(proto)
    graph = import_graph(source)
    node = graph.nodes["y0"]
    assert node.defined == case.defined
    for output, value in zip(graph.outputs, want, strict=True):
        assert graph.shape(output) in ((value.shape,) if case.defined else (value.shape, None))
        assert graph.dtype(output) == value.dtype.name
    if not case.defined:
        assert_same(run(to_proto(export_graph(source, graph)), feed), want)
        return
    assert node.op_type == (case.becomes or case.op_type)
    if case.normal is not None:
        assert dict(node.attributes) == case.normal
    assert list(node.attributes) == sorted(node.attributes)
    result = to_proto(export_graph(source, made_anew(graph)))
    onnx.checker.check_model(result, full_check=True)
    assert_same(run(result, feed), want)


@pytest.mark.parametrize("case", [pytest.param(c, id=f"{i}-{c.op_type}") for i, c in enumerate(CASES)])
def test_symbolic_sizes_change_nothing(case: Case) -> None:
    proto, feed = parts(case, case.opsets[-1], symbolic=True)
    want = run(proto, feed)
    declare_outputs(proto, want)
    source = carried(proto)
    graph = import_graph(source, {f"{n}_{i}": d for n, a in feed.items() for i, d in enumerate(a.shape)})
    for output, value in zip(graph.outputs, want, strict=True):
        shape = graph.shape(output)
        if shape is None or not graph.nodes["y0"].defined:
            assert not graph.nodes["y0"].defined
            assert shape is None or all(graph.concrete(d) in (None, n) for d, n in zip(shape, value.shape, strict=True))
        else:
            assert tuple(graph.concrete(d) for d in shape) == value.shape
    assert_same(run(to_proto(export_graph(source, made_anew(graph))), feed), want)
