"""What is known of small integer tensors that are computed from shapes: their elements as dimensions.

Exported networks compute the operand of a Reshape with chains of Shape, Gather, Concat and arithmetic. Following the
elements symbolically tells shapes that no constant tells, and which of these chains are constants after all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tasodsl.graph.dims import Dim, Undecided, less_equal
from tasodsl.graph.graph import Constant, Node, ValueInfo

LONGEST = 64
"""Tensors with more elements are not followed."""


@dataclass(frozen=True, slots=True)
class DimTensor:
    """An integer tensor of rank 0 or 1."""

    elements: tuple[Dim, ...]
    rank: int
    dtype: str

    def numbers(self) -> tuple[int, ...] | None:
        """The elements when all are known."""
        numbers = tuple(d for d in self.elements if isinstance(d, int))
        return numbers if len(numbers) == len(self.elements) else None


class _Unknown(Exception):
    """The elements cannot be followed through this node."""


def constant_dims(constant: Constant | None) -> DimTensor | None:
    """The elements of a constant, when it is a small integer tensor of rank 0 or 1."""
    if constant is None or constant.dtype not in ("int64", "int32") or len(constant.shape) > 1:
        return None
    if len(constant.shape) == 1 and constant.shape[0] > LONGEST:
        return None
    return DimTensor(tuple(int(v) for v in constant.array().reshape(-1)), len(constant.shape), constant.dtype)


def follow(
    node: Node,
    info: Mapping[str, ValueInfo],
    known: Callable[[str], DimTensor | None],
) -> DimTensor | None:
    """The elements of the node's first output; `known` gives those of its operands."""
    if node.domain not in ("", "ai.onnx") or not node.inputs:
        return None
    try:
        if node.op_type in ("Shape", "Size"):
            result = _of_shape(node, info)
        else:
            operands = [known(v) for v in node.inputs if v]
            if any(o is None for o in operands) or (not node.defined and node.op_type != "Reshape"):
                return None
            result = _of_elements(node, [o for o in operands if o is not None], info)
    except (_Unknown, Undecided):
        return None
    return result if len(result.elements) <= LONGEST else None


def _of_shape(node: Node, info: Mapping[str, ValueInfo]) -> DimTensor:
    operand = info.get(node.inputs[0])
    if operand is None or operand.shape is None:
        raise _Unknown
    if node.op_type == "Size":
        size: Dim = 1
        for d in operand.shape:
            size = size * d
        return DimTensor((size,), 0, "int64")
    bounds = dict(node.attributes)
    start, end = bounds.get("start", 0), bounds.get("end", len(operand.shape))
    assert isinstance(start, int)
    assert isinstance(end, int)
    return DimTensor(operand.shape[slice(start, end)], 1, "int64")


def _of_elements(node: Node, operands: list[DimTensor], info: Mapping[str, ValueInfo]) -> DimTensor:
    first = operands[0]
    out = info.get(node.outputs[0])
    attributes = dict(node.attributes)
    match node.op_type:
        case "Identity":
            return first
        case "Cast":
            if attributes["to"] not in ("int64", "int32"):
                raise _Unknown
            return DimTensor(first.elements, first.rank, str(attributes["to"]))
        case "Concat":
            return DimTensor(tuple(d for o in operands for d in o.elements), 1, first.dtype)
        case "Squeeze" | "Unsqueeze" | "Reshape" | "Flatten":
            rank = None if out is None else out.rank
            if rank not in (0, 1):
                raise _Unknown
            return DimTensor(first.elements, rank, first.dtype)
        case "Gather":
            places = operands[1].numbers()
            size = len(first.elements)
            if places is None or first.rank != 1 or any(not -size <= p < size for p in places):
                raise _Unknown
            return DimTensor(tuple(first.elements[p] for p in places), operands[1].rank, first.dtype)
        case "Slice":
            starts, ends, steps = attributes["starts"], attributes["ends"], attributes["steps"]
            assert isinstance(starts, tuple)
            assert isinstance(ends, tuple)
            assert isinstance(steps, tuple)
            if len(starts) != 1:
                raise _Unknown
            return DimTensor(first.elements[int(starts[0]) : int(ends[0]) : int(steps[0])], 1, first.dtype)
        case "Add" | "Sub" | "Mul" | "Div":
            return _arithmetic(node.op_type, first, operands[1])
        case _:
            raise _Unknown


def _arithmetic(op_type: str, a: DimTensor, b: DimTensor) -> DimTensor:
    length = max(len(a.elements), len(b.elements))
    if not all(len(t.elements) in (1, length) for t in (a, b)):
        raise _Unknown
    left = a.elements * length if len(a.elements) == 1 else a.elements
    right = b.elements * length if len(b.elements) == 1 else b.elements
    pairs = zip(left, right, strict=True)
    return DimTensor(tuple(_element(op_type, x, y) for x, y in pairs), max(a.rank, b.rank), a.dtype)


def _element(op_type: str, x: Dim, y: Dim) -> Dim:
    if op_type == "Add":
        return x + y
    if op_type == "Sub":
        return x - y
    if op_type == "Mul":
        return x * y
    # ONNX truncates: the same as rounding down only where nothing is negative.
    if not isinstance(y, int) or y <= 0 or not less_equal(0, x):
        raise _Unknown
    return x // y
