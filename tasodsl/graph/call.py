"""A node of some opset while it is being read: typed access to its attributes, constant operands and shapes.

Every question that has no usable answer raises `NotNormal`, so that normal forms are written without error handling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tasodsl.graph.dims import Shape
from tasodsl.graph.graph import AttributeValue, Constant, ValueInfo, fresh_name


class NotNormal(Exception):
    """The node has no normal form."""


@dataclass(slots=True)
class Call:
    """A node being normalized. Attributes are taken one by one: those left over say something that we do not know."""

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, AttributeValue]
    opset: int
    info: Mapping[str, ValueInfo]
    constant_of: Callable[[str], Constant | None]
    used: Callable[[str], bool]
    made: dict[str, Constant] = field(default_factory=dict[str, Constant])

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] != ""

    def operand(self, index: int) -> str:
        return self.inputs[index] if index < len(self.inputs) else ""

    def dtype(self, index: int) -> str:
        known = self.info.get(self.operand(index))
        return "" if known is None else known.dtype

    def shape(self, index: int) -> Shape:
        known = self.info.get(self.operand(index))
        if known is None or known.shape is None:
            raise NotNormal
        return known.shape

    def rank(self, index: int = 0, *, of: int | None = None) -> int:
        """The operand's rank, which must be `of` where that is given."""
        rank = len(self.shape(index))
        if of is not None and rank != of:
            raise NotNormal
        return rank

    def axis(self, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            raise NotNormal
        return axis % rank

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Non-negative, ascending, distinct."""
        result = tuple(sorted(self.axis(a, rank) for a in axes))
        if len(set(result)) != len(result):
            raise NotNormal
        return result

    def constant_ints(self, index: int) -> tuple[int, ...]:
        """The operand's numbers, which must be constant integers of rank 0 or 1."""
        constant = self.constant_of(self.operand(index))
        if constant is None or constant.dtype not in ("int64", "int32") or len(constant.shape) > 1:
            raise NotNormal
        return tuple(int(v) for v in constant.array().reshape(-1))

    def constant_floats(self, index: int) -> tuple[float, ...]:
        constant = self.constant_of(self.operand(index))
        if constant is None or constant.dtype != "float32":
            raise NotNormal
        return tuple(float(v) for v in constant.array().reshape(-1))

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.attributes.pop(name, default)
        if not isinstance(value, int):
            raise NotNormal
        return value

    def real(self, name: str, default: float) -> float:
        value = self.attributes.pop(name, float(np.float32(default)))
        if not isinstance(value, float):
            raise NotNormal
        return value

    def flag(self, name: str, default: bool) -> bool:
        return self.integer(name, default) != 0

    def text(self, name: str, default: str, allowed: Sequence[str] = ()) -> str:
        """A text, which must be one of `allowed` where that is given."""
        value = self.attributes.pop(name, default)
        if not isinstance(value, str) or (allowed and value not in allowed):
            raise NotNormal
        return value

    def integers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        value = self.attributes.pop(name, None)
        if value is None and default is not None:
            return tuple(default)
        if not isinstance(value, tuple):
            raise NotNormal
        return tuple(int(v) for v in value)

    def list_of(self, name: str, index: int, since: int) -> tuple[int, ...] | None:
        """A list that is the attribute `name` before opset `since`, operand `index` from then on; None when absent."""
        if self.opset >= since:
            return self.constant_ints(index) if self.has(index) else None
        return self.integers(name) if name in self.attributes else None

    def scalar(self, value: float) -> str:
        """The name of a new rank-0 constant of the first operand's type."""
        dtype = self.dtype(0)
        if dtype not in ("float32", "float64", "float16"):
            raise NotNormal
        constant = Constant.of(np.array(value, dtype))
        name = fresh_name("Constant", constant.key)
        self.made[name] = constant
        return name

    def only_first_output(self) -> None:
        if any(o and self.used(o) for o in self.outputs[1:]) or not self.outputs[0]:
            raise NotNormal
        self.outputs = self.outputs[:1]

    def only_operands(self, count: int) -> None:
        self.inputs = self.inputs[:count]
