"""What each operator's node says in normal form, by operator and opset.

An entry takes a `Call` apart: it returns the attributes of the normal form and leaves the operands that stay operands.
Whatever it cannot say raises `NotNormal`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tasodsl.graph.call import Call, NotNormal
from tasodsl.graph.dtypes import DTYPE_NAMES
from tasodsl.graph.graph import AttributeValue

Attributes = dict[str, AttributeValue]


def _plain(call: Call) -> Attributes:
    """Operators without attributes."""
    del call
    return {}


def _positive(values: tuple[int, ...], count: int, least: int) -> tuple[int, ...]:
    if len(values) != count or any(v < least for v in values):
        raise NotNormal
    return values


def _window(call: Call, kernel: Sequence[int] | None, dilations: tuple[int, int] | None = None) -> Attributes:
    """strides, dilations and pads over two spatial axes; `auto_pad` becomes the pads that it stands for."""
    strides = _positive(call.integers("strides", (1, 1)), 2, 1)
    dilations_ = dilations or _positive(call.integers("dilations", (1, 1)), 2, 1)
    pads = _positive(call.integers("pads", (0, 0, 0, 0)), 4, 0)
    auto_pad = call.text("auto_pad", "NOTSET")
    if auto_pad == "VALID":
        pads = (0, 0, 0, 0)
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        sizes = call.shape(0)[2:]
        before, after = [0, 0], [0, 0]
        for i in range(2):
            size = sizes[i]
            # The runtime refuses a dilated kernel here, so nothing says what it would mean.
            if not isinstance(size, int) or kernel is None or dilations_[i] != 1:
                raise NotNormal
            total = max((-(-size // strides[i]) - 1) * strides[i] + kernel[i] - size, 0)
            small, large = total // 2, total - total // 2
            before[i], after[i] = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
        pads = (*before, *after)
    elif auto_pad not in ("NOTSET", ""):
        raise NotNormal
    return {"strides": strides, "dilations": dilations_, "pads": pads}


def _conv(call: Call) -> Attributes:
    call.rank(0, of=4)
    call.rank(1, of=4)
    call.attributes.pop("kernel_shape", None)
    kernel = [d for d in call.shape(1)[2:] if isinstance(d, int)]
    window = _window(call, kernel if len(kernel) == 2 else None)
    return {**window, "group": call.integer("group", 1)}


def _conv_transpose(call: Call) -> Attributes:
    call.rank(0, of=4)
    call.rank(1, of=4)
    call.attributes.pop("kernel_shape", None)
    window = _window(call, None)
    output_padding = _positive(call.integers("output_padding", (0, 0)), 2, 0)
    return {**window, "group": call.integer("group", 1), "output_padding": output_padding}


def _pool_window(call: Call, kernel: tuple[int, ...], dilations: tuple[int, int] | None = None) -> Attributes:
    """A window that is nowhere all padding: of one that is, the maximum and the mean mean nothing."""
    window = _window(call, kernel, dilations)
    pads = window["pads"]
    assert isinstance(pads, tuple)
    _must(all(int(pads[i]) < kernel[i % 2] for i in range(4)))
    return window


def _average_pool(call: Call) -> Attributes:
    call.rank(0, of=4)
    kernel = _positive(call.integers("kernel_shape"), 2, 1)
    _must(call.integer("ceil_mode", 0) == 0 and call.integers("dilations", (1, 1)) == (1, 1))
    window = _pool_window(call, kernel, (1, 1))
    del window["dilations"]
    return {**window, "kernel_shape": kernel, "count_include_pad": call.flag("count_include_pad", False)}


def _max_pool(call: Call) -> Attributes:
    call.rank(0, of=4)
    call.only_first_output()
    kernel = _positive(call.integers("kernel_shape"), 2, 1)
    _must(call.integer("ceil_mode", 0) == 0 and call.integer("storage_order", 0) == 0)
    return {**_pool_window(call, kernel), "kernel_shape": kernel}


def _must(condition: bool) -> None:
    if not condition:
        raise NotNormal


def _mat_mul(call: Call) -> Attributes:
    _must(call.rank(0) >= 2 and call.rank(1) >= 2)
    return {}


def _gemm(call: Call) -> Attributes:
    return {
        "alpha": call.real("alpha", 1.0),
        "beta": call.real("beta", 1.0),
        "transA": call.flag("transA", False),
        "transB": call.flag("transB", False),
    }


def _batch_normalization(call: Call) -> Attributes:
    call.attributes.pop("momentum", None)
    # Before opset 14 a second output, read or not, means training.
    _must(len(call.outputs) == 1 or not any(call.outputs[1:]))
    _must(call.integer("training_mode", 0) == 0 and call.integer("spatial", 1) == 1)
    _must(call.rank() >= 2)
    call.only_first_output()
    return {"epsilon": call.real("epsilon", 1e-5)}


def _layer_normalization(call: Call) -> Attributes:
    call.only_first_output()
    _must(call.integer("stash_type", 1) == 1)
    axis = call.axis(call.integer("axis", -1), call.rank())
    normalized = call.shape(0)[axis:]
    for index in (1, 2):
        if call.has(index):
            # ONNX lets these broadcast; the definition does not. A size other than 1 is the operand's own.
            shape = call.shape(index)
            own = (a == b or (isinstance(a, int) and a != 1) for a, b in zip(shape, normalized, strict=False))
            _must(len(shape) == len(normalized) and all(own))
    return {"axis": axis, "epsilon": call.real("epsilon", 1e-5)}


def _softmax(call: Call) -> Attributes:
    rank = call.rank()
    axis = call.axis(call.integer("axis", -1 if call.opset >= 13 else 1), rank)
    # Until opset 12 all axes from `axis` on were one: the same when those after it have one element.
    _must(call.opset >= 13 or all(d == 1 for d in call.shape(0)[axis + 1 :]))
    return {"axis": axis}


def _instance_normalization(call: Call) -> Attributes:
    return {"epsilon": call.real("epsilon", 1e-5)}


def _alpha(default: float) -> Callable[[Call], Attributes]:
    return lambda call: {"alpha": call.real("alpha", default)}


def _selu(call: Call) -> Attributes:
    return {
        "alpha": call.real("alpha", 1.67326319217681884765625),
        "gamma": call.real("gamma", 1.05070102214813232421875),
    }


def _hard_sigmoid(call: Call) -> Attributes:
    return {"alpha": call.real("alpha", 0.2), "beta": call.real("beta", 0.5)}


def _gelu(call: Call) -> Attributes:
    return {"approximate": call.text("approximate", "none", ("none", "tanh"))}


def _clip(call: Call) -> Attributes:
    if call.opset < 11:
        low = call.scalar(call.real("min", 0.0)) if "min" in call.attributes else ""
        high = call.scalar(call.real("max", 0.0)) if "max" in call.attributes else ""
        call.inputs = (call.inputs[0], low, high)
        return {}
    for index in (1, 2):
        if call.has(index):
            call.rank(index, of=0)
    return {}


def _binary(call: Call) -> Attributes:
    """ONNX's operators of any arity, of which that of two operands is defined and that of one does nothing."""
    _must(len(call.inputs) <= 2)
    if len(call.inputs) == 1:
        call.op_type = "Identity"
    return {}


def _cast(call: Call) -> Attributes:
    _must(call.integer("saturate", 1) == 1)
    name = DTYPE_NAMES.get(call.integer("to"))
    if name is None:
        raise NotNormal
    return {"to": name}


def _concat(call: Call) -> Attributes:
    known = [i for i in range(len(call.inputs)) if (v := call.info.get(call.inputs[i])) and v.shape is not None]
    _must(bool(known))
    return {"axis": call.axis(call.integer("axis"), call.rank(known[0]))}


def _split(call: Call) -> Attributes:
    axis = call.axis(call.integer("axis", 0), call.rank())
    split = call.list_of("split", 1, 13)
    parts = call.integer("num_outputs", len(call.outputs))
    _must(parts == len(call.outputs))
    if split is None:
        size = call.shape(0)[axis]
        if not isinstance(size, int):
            raise NotNormal
        piece = -(-size // parts)
        split = (*(piece for _ in range(parts - 1)), size - piece * (parts - 1))
        _must(split[-1] >= 0 and (call.opset >= 18 or split[-1] == piece))
    _must(len(split) == len(call.outputs))
    call.only_operands(1)
    return {"axis": axis, "split": split}


def _slice(call: Call) -> Attributes:
    """Bounds that need no wrapping or clamping: 0 <= start <= end <= size, for which the size must be known."""
    shape = call.shape(0)
    starts, ends = call.list_of("starts", 1, 10), call.list_of("ends", 2, 10)
    if starts is None or ends is None:
        raise NotNormal
    axes = call.list_of("axes", 3, 10) or tuple(range(len(starts)))
    steps = (call.list_of("steps", 4, 10) if call.opset >= 10 else None) or (1,) * len(starts)
    _must(len(starts) == len(ends) == len(axes) == len(steps))
    call.axes(axes, len(shape))
    rows: list[tuple[int, int, int, int]] = []
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        place = call.axis(axis, len(shape))
        size = shape[place]
        if not isinstance(size, int) or step < 1:
            raise NotNormal
        first = min(max(start + size if start < 0 else start, 0), size)
        last = min(max(end + size if end < 0 else end, first), size)
        rows.append((place, first, last, step))
    rows.sort()
    call.only_operands(1)
    return {
        "axes": tuple(r[0] for r in rows),
        "starts": tuple(r[1] for r in rows),
        "ends": tuple(r[2] for r in rows),
        "steps": tuple(r[3] for r in rows),
    }


def _pad(call: Call) -> Attributes:
    rank = call.rank()
    pads = call.list_of("pads", 1, 11)
    if pads is None:
        raise NotNormal
    value = call.operand(2)
    if call.opset >= 11 and call.has(2):
        call.rank(2, of=0)
    if call.opset < 11:
        number = call.real("value", 0.0)
        # The default is the absent operand, but a negative zero is not the default.
        value = call.scalar(number) if number != 0 or math.copysign(1, number) < 0 else ""
    axes = call.constant_ints(3) if call.has(3) else tuple(range(rank))
    count = len(axes)
    call.axes(axes, rank)
    _must(len(pads) == 2 * count and min(pads, default=0) >= 0)
    full = [0] * (2 * rank)
    for i in range(count):
        place = call.axis(axes[i], rank)
        full[place], full[rank + place] = pads[i], pads[count + i]
    call.inputs = (call.inputs[0], value)
    return {"pads": tuple(full), "mode": call.text("mode", "constant", ("constant",))}


def _transpose(call: Call) -> Attributes:
    rank = call.rank()
    perm = call.integers("perm", tuple(reversed(range(rank))))
    _must(sorted(perm) == list(range(rank)))
    return {"perm": perm}


def _reshape(call: Call) -> Attributes:
    target = list(call.constant_ints(1))
    allow_zero = call.integer("allowzero", 0)
    known = call.info.get(call.inputs[0])
    shape = None if known is None else known.shape
    for i, d in enumerate(target):
        if d == 0 and not allow_zero:
            if shape is None or i >= len(shape) or not isinstance(copied := shape[i], int):
                raise NotNormal
            target[i] = copied
    if -1 in target:
        if shape is None:
            raise NotNormal
        numbers = [d for d in shape if isinstance(d, int)]
        rest = math.prod(d for d in target if d != -1)
        _must(len(numbers) == len(shape) and target.count(-1) == 1 and rest > 0)
        target[target.index(-1)] = math.prod(numbers) // rest
    _must(min(target, default=0) >= 0)
    call.only_operands(1)
    return {"shape": tuple(target)}


def _flatten(call: Call) -> Attributes:
    rank, axis = call.rank(), call.integer("axis", 1)
    _must(-rank <= axis <= rank)
    return {"axis": axis + rank if axis < 0 else axis}


def _squeeze(call: Call) -> Attributes:
    shape = call.shape(0)
    axes = call.list_of("axes", 1, 13)
    if axes is None:
        _must(all(isinstance(d, int) for d in shape))
        axes = tuple(i for i, d in enumerate(shape) if d == 1)
    call.only_operands(1)
    return {"axes": call.axes(axes, len(shape))}


def _unsqueeze(call: Call) -> Attributes:
    axes = call.list_of("axes", 1, 13)
    if axes is None:
        raise NotNormal
    rank = call.rank() + len(axes)
    call.only_operands(1)
    return {"axes": call.axes(axes, rank)}


def _expand(call: Call) -> Attributes:
    shape = call.constant_ints(1)
    _must(min(shape, default=0) >= 0)
    call.only_operands(1)
    return {"shape": shape}


def _tile(call: Call) -> Attributes:
    repeats = call.constant_ints(1)
    _must(len(repeats) == call.rank() and min(repeats, default=0) >= 0)
    call.only_operands(1)
    return {"repeats": repeats}


def _depth_to_space(call: Call) -> Attributes:
    call.rank(0, of=4)
    return {"blocksize": call.integer("blocksize"), "mode": call.text("mode", "DCR", ("DCR", "CRD"))}


def _space_to_depth(call: Call) -> Attributes:
    call.rank(0, of=4)
    return {"blocksize": call.integer("blocksize")}


def _eye_like(call: Call) -> Attributes:
    return {"k": call.integer("k", 0)}


def _gather(call: Call) -> Attributes:
    return {"axis": call.axis(call.integer("axis", 0), call.rank())}


def _reduce(since: int) -> Callable[[Call], Attributes]:
    """A reduction whose axes are an operand from opset `since` on."""

    def normal(call: Call) -> Attributes:
        rank = call.rank()
        axes = call.list_of("axes", 1, since)
        noop = call.integer("noop_with_empty_axes", 0)
        keepdims = call.flag("keepdims", True)
        call.only_operands(1)
        if not axes and noop:
            call.op_type = "Identity"
            return {}
        # Over no axis at all, the normal form could not be told from "all axes".
        _must(rank > 0)
        return {"axes": call.axes(axes or range(rank), rank), "keepdims": keepdims}

    return normal


_COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


def _resize(call: Call) -> Attributes:
    call.rank(0, of=4)
    _must(call.text("mode", "nearest") == "nearest")
    coordinates, rounding = "asymmetric", "floor"
    if call.op_type == "Resize" and call.opset >= 11:
        coordinates = call.text("coordinate_transformation_mode", "half_pixel", _COORDINATES)
        rounding = call.text("nearest_mode", "round_prefer_floor")
        _must("axes" not in call.attributes)
        # These say nothing when mode is nearest, except the policy, which says something only of `sizes`.
        for name in ("cubic_coeff_a", "exclude_outside", "extrapolation_value", "antialias"):
            call.attributes.pop(name, None)
        _must(call.text("keep_aspect_ratio_policy", "stretch") == "stretch")
    scales = _resize_scales(call)
    _must(len(scales) == 4 and scales[0] == 1 and scales[1] == 1 and min(scales) > 0)
    call.op_type = "Resize"
    call.only_operands(1)
    return {"scales": scales[2:], "coordinate_transformation_mode": coordinates, "nearest_mode": rounding}


def _resize_scales(call: Call) -> tuple[float, ...]:
    if "scales" in call.attributes:
        value = call.attributes.pop("scales")
        return tuple(float(v) for v in value) if isinstance(value, tuple) else ()
    place = 2 if call.op_type == "Resize" and call.opset >= 11 else 1
    given = call.constant_of(call.operand(place)) if call.has(place) else None
    if call.has(place) and (given is None or given.shape != (0,)):
        return call.constant_floats(place)
    sizes, shape = call.constant_ints(3), call.shape(0)
    if len(sizes) != len(shape):
        raise NotNormal
    scales: list[float] = []
    for size, d in zip(sizes, shape, strict=True):
        if not isinstance(d, int) or d == 0:
            raise NotNormal
        scale = float(np.float32(size / d))
        _must(math.floor(np.float32(scale) * np.float32(d)) == size)
        scales.append(scale)
    return tuple(scales)


def _dropout(call: Call) -> Attributes:
    call.only_first_output()
    for name in ("ratio", "seed"):
        call.attributes.pop(name, None)
    if call.has(2):
        training = call.constant_of(call.operand(2))
        _must(training is not None and not training.array().any())
    call.only_operands(1)
    return {}


def _lrn(call: Call) -> Attributes:
    return {
        "size": call.integer("size"),
        "alpha": call.real("alpha", 1e-4),
        "beta": call.real("beta", 0.75),
        "bias": call.real("bias", 1.0),
    }


# fmt: off
_PLAIN = (
    "Abs", "Add", "And", "Ceil", "Cos", "Div", "Equal", "Erf", "Exp", "Floor", "GlobalAveragePool",
    "GlobalMaxPool", "Greater", "GreaterOrEqual", "HardSwish", "Identity", "Less", "LessOrEqual", "Log",
    "Mish", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Sigmoid", "Sign", "Sin",
    "Softplus", "Softsign", "Sqrt", "Sub", "Tanh", "Where", "Xor",
)
# fmt: on

NORMAL_FORMS: Mapping[str, Callable[[Call], Attributes]] = MappingProxyType(
    {
        **dict.fromkeys(_PLAIN, _plain),
        **dict.fromkeys(("Max", "Min", "Sum"), _binary),
        "Conv": _conv,
        "ConvTranspose": _conv_transpose,
        "AveragePool": _average_pool,
        "MaxPool": _max_pool,
        "MatMul": _mat_mul,
        "Gemm": _gemm,
        "BatchNormalization": _batch_normalization,
        "InstanceNormalization": _instance_normalization,
        "LayerNormalization": _layer_normalization,
        "Softmax": _softmax,
        "LogSoftmax": _softmax,
        "LeakyRelu": _alpha(0.01),
        "Elu": _alpha(1.0),
        "Celu": _alpha(1.0),
        "ThresholdedRelu": _alpha(1.0),
        "Selu": _selu,
        "HardSigmoid": _hard_sigmoid,
        "Gelu": _gelu,
        "Clip": _clip,
        "Cast": _cast,
        "Concat": _concat,
        "Split": _split,
        "Slice": _slice,
        "Pad": _pad,
        "Transpose": _transpose,
        "Reshape": _reshape,
        "Flatten": _flatten,
        "Squeeze": _squeeze,
        "Unsqueeze": _unsqueeze,
        "Expand": _expand,
        "Gather": _gather,
        "Tile": _tile,
        "DepthToSpace": _depth_to_space,
        "SpaceToDepth": _space_to_depth,
        "EyeLike": _eye_like,
        "ReduceMean": _reduce(18),
        "ReduceMax": _reduce(18),
        "ReduceMin": _reduce(18),
        "ReduceL1": _reduce(18),
        "ReduceL2": _reduce(18),
        "ReduceSumSquare": _reduce(18),
        "ReduceSum": _reduce(13),
        "Resize": _resize,
        "Upsample": _resize,
        "Dropout": _dropout,
        "LRN": _lrn,
    }
)
"""Operator to what makes its normal form: the attributes, having changed operands and outputs where need be."""
