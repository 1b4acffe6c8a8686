"""The grid on which every definition is compared with the runtime: attributes, ranks, sizes 0 and 1, broadcasts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Case:
    op: str
    operands: tuple[Array | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        shapes = ",".join("-" if x is None else "x".join(map(str, x.shape)) or "scalar" for x in self.operands)
        given = ",".join(f"{k}={v}" for k, v in self.attributes.items())
        return f"{self.op}({shapes}){given and '[' + given + ']'}".replace(" ", "")


def floats(*shape: int, low: float = -3.0, high: float = 3.0) -> Array:
    """Different numbers at each call site would be noise: the entries depend on the shape only."""
    return np.random.default_rng(sum(shape) + len(shape)).uniform(low, high, shape).astype(np.float32)


def truths(*shape: int) -> Array:
    return np.asarray(floats(*shape) > 0)


def counting(*shape: int) -> Array:
    return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)


SHAPES = [(), (1,), (5,), (0,), (2, 3), (1, 4), (2, 0, 3), (2, 1, 3, 4)]
BROADCASTS = [
    ((), ()), ((3,), ()), ((), (2, 3)), ((3,), (3,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((3,), (2, 1)), ((1,), (4,)),
    ((2, 1, 4), (3, 1)), ((0,), (1,)), ((2, 0), (1, 1)), ((4, 1, 1), (2, 4, 3, 5)),
]  # fmt: skip
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 80.0, -80.0, np.inf, -np.inf, np.nan, 1e-30], np.float32)


def elementwise() -> Iterator[Case]:
    any_sign = (
        "Relu Sigmoid Tanh Erf Exp Neg Abs Floor Ceil Sin Cos HardSwish Identity Sign Softplus Softsign Mish Dropout"
    )
    for op in any_sign.split():
        for shape in SHAPES:
            yield Case(op, (floats(*shape),))
        if op not in ("Sin", "Cos"):
            yield Case(op, (SPECIAL[:6],))
    for op in ("Sqrt", "Log", "Reciprocal"):
        for shape in SHAPES:
            yield Case(op, (floats(*shape, low=0.1, high=9.0),))
    parameters: dict[str, list[dict[str, Any]]] = {
        "LeakyRelu": [{}, {"alpha": 0.3}, {"alpha": -2.0}],
        "Elu": [{}, {"alpha": 0.3}],
        "Celu": [{}, {"alpha": 0.3}],
        "Selu": [{}, {"alpha": 0.5, "gamma": 2.0}],
        "ThresholdedRelu": [{}, {"alpha": 0.3}],
        "HardSigmoid": [{}, {"alpha": 0.5, "beta": 0.25}],
        "Gelu": [{}, {"approximate": "none"}, {"approximate": "tanh"}],
    }
    for op, options in parameters.items():
        for attributes, shape in itertools.product(options, [(), (5,), (2, 0), (2, 3)]):
            yield Case(op, (floats(*shape),), attributes)
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
        for a, b in BROADCASTS:
            yield Case(op, (floats(*a), floats(*b)))
    for a, b in BROADCASTS:
        yield Case("Pow", (floats(*a, low=0.1, high=3.0), floats(*b)))
        yield Case("Equal", (np.asarray(np.round(floats(*a))), np.asarray(np.round(floats(*b)))))
        yield Case("Equal", (counting(*a), counting(*b)))
        yield Case("Less", (counting(*a), counting(*b)))
        for op in ("And", "Or", "Xor"):
            yield Case(op, (truths(*a), truths(*b)))
        yield Case("Where", (truths(*a), floats(*b), floats(*a)))
        yield Case("Where", (truths(*b), counting(*a), counting(*b)))
        if np.broadcast_shapes(a, b) == a:
            yield Case("PRelu", (floats(*a), floats(*b)))
    for shape in SHAPES:
        yield Case("Not", (truths(*shape),))
        low, high = np.array(-1, np.float32), np.array(1.5, np.float32)
        for bounds in ((), (low,), (None, high), (low, high), (high, low)):
            yield Case("Clip", (floats(*shape), *bounds))
    for to in ("float32", "float64", "int32", "int64", "bool", "float16", "uint8"):
        yield Case("Cast", (floats(2, 3, low=0.0),), {"to": to})
        yield Case("Cast", (counting(2, 3),), {"to": to})
        yield Case("Cast", (truths(4),), {"to": to})


def linear() -> Iterator[Case]:
    for a, b in [
        ((2, 3), (3, 4)), ((1, 1), (1, 1)), ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)), ((1, 2, 3), (5, 3, 4)), ((2, 1, 2, 3), (4, 3, 1)),
        ((7, 1, 3), (1, 3, 6)),
    ]:  # fmt: skip
        yield Case("MatMul", (floats(*a), floats(*b)))
    for trans_a, trans_b in itertools.product((0, 1), (0, 1)):
        a, b = floats(*((3, 2) if trans_a else (2, 3))), floats(*((4, 3) if trans_b else (3, 4)))
        for c in (None, floats(), floats(4), floats(2, 1), floats(1, 4), floats(2, 4)):
            yield Case("Gemm", (a, b, c), {"transA": trans_a, "transB": trans_b})
        yield Case("Gemm", (a, b, floats(4)), {"transA": trans_a, "transB": trans_b, "alpha": 0.5, "beta": -2.0})
    for shape, k in itertools.product([(3, 3), (2, 4), (1, 1), (0, 2)], (-1, 0, 2)):
        yield Case("EyeLike", (floats(*shape),), {"k": k})
    yield Case("Gemm", (floats(0, 3), floats(3, 2), floats(2)))
    yield Case("Gemm", (floats(2, 3), floats(3, 4), floats(4)), {"beta": 0.0})


def convolution() -> Iterator[Case]:
    x = floats(2, 4, 7, 6)
    options: list[dict[str, Any]] = [
        {}, {"pads": (1, 1, 1, 1)}, {"pads": (0, 1, 2, 0)}, {"strides": (2, 1)},
        {"strides": (3, 2), "pads": (1, 0, 0, 1)},
        {"dilations": (2, 1)}, {"dilations": (1, 3), "pads": (2, 2, 2, 2), "strides": (2, 2)},
    ]  # fmt: skip
    for attributes, group, bias, kernel in itertools.product(options, (1, 2, 4), (False, True), ((1, 1), (3, 2))):
        given = {**attributes, "group": group}
        yield Case("Conv", (x, floats(8, 4 // group, *kernel), *((floats(8),) if bias else ())), given)
        transposed = {**given, "output_padding": (0, 0)}
        if attributes.get("pads", (0, 0)) == (0, 0) or kernel == (3, 2):
            yield Case("ConvTranspose", (x, floats(4, 3, *kernel), *((floats(3 * group),) if bias else ())), transposed)
    yield Case("ConvTranspose", (x, floats(4, 2, 3, 3)), {"strides": (3, 2), "output_padding": (2, 1), "group": 1})
    yield Case("Conv", (floats(0, 2, 4, 4), floats(3, 2, 3, 3)))
    yield Case("Conv", (floats(1, 1, 1, 1), floats(1, 1, 1, 1)))
    yield Case("Conv", (floats(1, 2, 2, 2), floats(3, 2, 3, 3)), {"pads": (2, 2, 2, 2)})


def pooling() -> Iterator[Case]:
    x = floats(2, 3, 7, 6)
    options: list[dict[str, Any]] = [
        {"kernel_shape": (1, 1)}, {"kernel_shape": (3, 2)}, {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)},
        {"kernel_shape": (3, 3), "pads": (2, 0, 1, 2), "strides": (2, 3)}, {"kernel_shape": (7, 6)},
        {"kernel_shape": (2, 4), "strides": (2, 2), "pads": (1, 3, 1, 3)},
    ]  # fmt: skip
    for attributes in options:
        yield Case("MaxPool", (x,), attributes)
        for flag in (0, 1):
            yield Case("AveragePool", (x,), {**attributes, "count_include_pad": flag})
    yield Case("MaxPool", (x,), {"kernel_shape": (2, 3), "dilations": (3, 2)})
    yield Case("MaxPool", (x,), {"kernel_shape": (3, 2), "dilations": (2, 2), "pads": (1, 1, 2, 0), "strides": (1, 2)})
    yield Case("MaxPool", (-np.abs(x) - 1,), {"kernel_shape": (3, 3), "pads": (2, 2, 2, 2)})
    yield Case("AveragePool", (floats(0, 3, 4, 4),), {"kernel_shape": (2, 2)})
    for shape in [(2, 3, 4, 5), (1, 1, 1, 1), (2, 3, 4), (2, 3, 2, 1, 3), (0, 3, 2, 2)]:
        yield Case("GlobalAveragePool", (floats(*shape),))
        yield Case("GlobalMaxPool", (floats(*shape),))
    modes = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
    roundings = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    for mode, rounding, scales in itertools.product(modes, roundings, ((2.0, 2.0), (1.5, 0.5), (0.3, 2.6), (1.0, 3.0))):
        given = {"scales": scales, "coordinate_transformation_mode": mode, "nearest_mode": rounding}
        yield Case("Resize", (floats(1, 2, 4, 5),), given)


def normalization() -> Iterator[Case]:
    for shape in [(2, 3), (2, 3, 4), (2, 3, 4, 5), (1, 1, 1, 1), (0, 3, 2, 2)]:
        c = shape[1]
        statistics = (floats(c), floats(c), floats(c), floats(c, low=0.5, high=2.0))
        for given in ({}, {"epsilon": 0.1}):
            yield Case("BatchNormalization", (floats(*shape), *statistics), given)
            if len(shape) > 2 and 0 not in shape:
                yield Case("InstanceNormalization", (floats(*shape), floats(c), floats(c)), given)
    for shape, axis in [
        ((4,), 0),
        ((2, 3), 1),
        ((2, 3, 4), 2),
        ((2, 3, 4), 1),
        ((2, 3, 4), 0),
        ((2, 1), 1),
        ((0, 3), 1),
    ]:
        for bias, given in itertools.product((False, True), ({}, {"epsilon": 0.1})):
            operands = (floats(*shape), floats(*shape[axis:]), *((floats(*shape[axis:]),) if bias else ()))
            yield Case("LayerNormalization", operands, {"axis": axis, **given})
    for op, shape in itertools.product(("Softmax", "LogSoftmax"), [(4,), (2, 3), (2, 3, 4), (2, 1, 3), (2, 0, 3)]):
        for axis in range(len(shape)):
            yield Case(op, (floats(*shape),), {"axis": axis})
            yield Case(op, (floats(*shape, low=-80, high=80),), {"axis": axis})
    for size in (1, 3, 5):  # the runtime takes no even sizes, and ONNX's reference leaves channels out
        yield Case("LRN", (floats(2, 4, 3, 2),), {"size": size})
        yield Case("LRN", (floats(2, 4, 3, 2),), {"size": size, "alpha": 0.5, "beta": 0.3, "bias": 2.0})


def reduction() -> Iterator[Case]:
    kinds = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare")
    cases = [
        ((4,), (0,)), ((2, 3), (0,)), ((2, 3), (1,)), ((2, 3), (0, 1)), ((2, 3, 4), (0, 2)), ((2, 1, 4), (1,)),
        ((2, 3, 4, 5), (2, 3)), ((2, 3, 4, 5), (1,)), ((1, 1), (0, 1)), ((0, 3), (1,)),
    ]  # fmt: skip
    for op, (shape, axes), keepdims in itertools.product(kinds, cases, (0, 1)):
        yield Case(op, (floats(*shape),), {"axes": axes, "keepdims": keepdims})


def movement() -> Iterator[Case]:
    for make in (floats, counting, truths):
        yield Case("Identity", (make(2, 3),))
        for shapes, axis in [
            ([(2, 3)], 0), ([(2, 3), (1, 3)], 0), ([(2, 3), (2, 1), (2, 4)], 1), ([(2, 1, 3), (2, 4, 3)], 1),
            ([(2, 0), (2, 3)], 1), ([(4,), (1,), (2,)], 0), ([(0,), (0,)], 0),
        ]:  # fmt: skip
            yield Case("Concat", tuple(make(*shape) for shape in shapes), {"axis": axis})
        for shape, axis, split in [
            ((5,), 0, (2, 3)), ((5, 2), 0, (1, 4)), ((2, 6), 1, (1, 2, 3)), ((2, 3, 4), 2, (4,)), ((2, 3), 1, (0, 3)),
        ]:  # fmt: skip
            yield Case("Split", (make(*shape),), {"axis": axis, "split": split})
        for shape, perm in [((3,), (0,)), ((2, 3), (1, 0)), ((2, 3, 4), (2, 0, 1)), ((2, 1, 3, 4), (0, 3, 1, 2))]:
            yield Case("Transpose", (make(*shape),), {"perm": perm})
        for shape, new in [
            ((6,), (2, 3)), ((2, 3, 4), (4, 6)), ((2, 3), (6,)), ((1,), ()), ((), (1, 1)), ((2, 0), (0, 5)),
            ((2, 6, 5), (3, 4, 5)), ((3, 1, 4), (2, 1, 6)),
        ]:  # fmt: skip
            yield Case("Reshape", (make(*shape),), {"shape": new})
        for shape, axis in [((2, 3, 4), 0), ((2, 3, 4), 1), ((2, 3, 4), 3), ((5,), 0), ((5,), 1), ((2, 0, 3), 2)]:
            yield Case("Flatten", (make(*shape),), {"axis": axis})
        for shape, axes in [((1, 3), (0,)), ((2, 1, 3, 1), (1, 3)), ((1, 1), (0, 1)), ((1, 0), (0,))]:
            yield Case("Squeeze", (make(*shape),), {"axes": axes})
        for shape, axes in [((3,), (0,)), ((3,), (1,)), ((2, 3), (0, 2, 4)), ((), (0,)), ((0, 2), (1,))]:
            yield Case("Unsqueeze", (make(*shape),), {"axes": axes})
        for shape, new in [
            ((3,), (2, 3)),
            ((2, 1), (2, 4)),
            ((2, 1), (4,)),
            ((1, 3), (2, 1)),
            ((), (2, 2)),
            ((2, 3), (1,)),
        ]:
            yield Case("Expand", (make(*shape),), {"shape": new})
        for shape, repeats in [
            ((3,), (2,)),
            ((2, 3), (2, 1)),
            ((2, 1, 3), (1, 3, 2)),
            ((2, 3), (0, 1)),
            ((0, 2), (2, 2)),
        ]:
            yield Case("Tile", (make(*shape),), {"repeats": repeats})
        for shape, axes, starts, ends, steps in [
            ((5,), (0,), (1,), (4,), (1,)), ((5,), (0,), (0,), (5,), (2,)), ((4, 6), (1,), (2,), (6,), (3,)),
            ((4, 6, 2), (0, 2), (1, 0), (4, 1), (2, 1)), ((4,), (0,), (2,), (2,), (1,)),
            ((3, 0), (1,), (0,), (0,), (1,)),
        ]:  # fmt: skip
            yield Case("Slice", (make(*shape),), {"axes": axes, "starts": starts, "ends": ends, "steps": steps})
    for shape, pads in [
        ((3,), (1, 2)),
        ((2, 3), (0, 1, 2, 0)),
        ((1, 2, 2), (0, 0, 1, 0, 0, 2)),
        ((0, 2), (1, 0, 1, 0)),
        ((2,), (0, 0)),
    ]:
        yield Case("Pad", (floats(*shape),), {"pads": pads})
        yield Case("Pad", (floats(*shape), np.array(1.5, np.float32)), {"pads": pads})
        yield Case("Pad", (counting(*shape), np.array(7, np.int64)), {"pads": pads})
    for shape, axis, indices in [
        ((5,), 0, 2), ((5,), 0, -1), ((5, 2), 0, [0, 4, -5]), ((2, 5), 1, [[1, 2], [-1, 0]]), ((2, 5, 3), 1, [3]),
        ((2, 5, 3), 2, 0), ((2, 3), 0, []), ((1, 3), 0, [0, 0]),
    ]:  # fmt: skip
        yield Case("Gather", (floats(*shape), np.array(indices, np.int64)), {"axis": axis})
        yield Case("Gather", (counting(*shape), np.array(indices, np.int32)), {"axis": axis})
    for mode, block in itertools.product(("DCR", "CRD"), (1, 2, 3)):
        yield Case("DepthToSpace", (floats(2, 2 * block * block, 2, 3),), {"blocksize": block, "mode": mode})
    for block in (1, 2, 3):
        yield Case("SpaceToDepth", (floats(2, 2, 2 * block, 3 * block),), {"blocksize": block})


def cases() -> list[Case]:
    groups = (elementwise, linear, convolution, pooling, normalization, reduction, movement)
    return [case for group in groups for case in group()]
