"""What expressions mean in a graph at hand: integers, symbolic sizes and real numbers.

Stricter than shape inference: a comparison that symbols leave open ends the match (`Mismatch`), because a rule may fire
only where its conditions are known to hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import cast

import numpy as np

from tasodsl import syntax as s
from tasodsl.elaborate import DimTarget
from tasodsl.graph.dims import SymDim, Undecided
from tasodsl.graph.graph import AttributeValue
from tasodsl.source import Span
from tasodsl.values import Mismatch, Value


class MatchTarget(DimTarget):
    """The meaning of conditions and compile-time numbers where a rule is applied."""

    def compare(self, op: str, a: Value, b: Value, span: Span) -> Value:
        try:
            return super().compare(op, a, b, span)
        except Undecided:
            raise Mismatch("the sizes leave it open", span) from None

    def binary(self, op: str, a: Value, b: Value, span: Span) -> Value:
        symbolic = isinstance(a, SymDim) or isinstance(b, SymDim)
        if symbolic and (op in ("/", "**") or isinstance(a, float | Fraction) or isinstance(b, float | Fraction)):
            raise Mismatch("a symbolic size is not a real number", span)
        try:
            return super().binary(op, a, b, span)
        except (Undecided, OverflowError, ValueError, ZeroDivisionError) as error:
            raise Mismatch(str(error) or "the sizes leave it open", span) from None

    def function(self, name: str, args: Sequence[Value], span: Span) -> Value:
        if any(isinstance(a, SymDim) for a in args):
            return self._of_sizes(name, args, span)
        if name in ("abs", "min", "max", "real", "resized"):
            return super().function(name, args, span)
        try:
            return _real_function(name, [float(a) for a in args])
        except (ValueError, OverflowError, ZeroDivisionError) as error:
            raise Mismatch(f"{name}: {error}", span) from None

    def _of_sizes(self, name: str, args: Sequence[Value], span: Span) -> Value:
        if name == "resized":
            return super().function(name, args, span)
        if name not in ("min", "max"):
            raise Mismatch(f"{name} of a symbolic size has no value", span)
        chosen = args[0]
        for other in args[1:]:
            if self.compare("<=" if name == "min" else ">=", other, chosen, span):
                chosen = other
        return chosen


def _real_function(name: str, args: list[float]) -> Value:
    x = args[0]
    match name:
        case "exp":
            return math.exp(x)
        case "log":
            return math.log(x)
        case "sqrt":
            return math.sqrt(x)
        case "erf":
            return math.erf(x)
        case "tanh":
            return math.tanh(x)
        case "sin":
            return math.sin(x)
        case "cos":
            return math.cos(x)
        case "pow":
            return math.pow(x, args[1])
        case "floor":
            return Fraction(math.floor(x))
        case "sign":
            return Fraction((x > 0) - (x < 0))
        case _:
            raise Mismatch(f"{name} has no value here")


TARGET = MatchTarget()


def as_value(type_: s.AttrType, value: AttributeValue) -> Value:
    """A node's attribute as the language sees it: flags are booleans."""
    return bool(value) if type_.kind == "bool" else value


def as_attribute(type_: s.AttrType, value: Value) -> AttributeValue:
    """A value of the language as an attribute in normal form; `Mismatch` where that would hold a symbolic size."""
    if isinstance(value, tuple):
        return tuple(_entry(type_, v) for v in cast(tuple[Value, ...], value))
    return _entry(type_, value)


def _entry(type_: s.AttrType, value: Value) -> Value:
    if isinstance(value, SymDim):
        raise Mismatch("an attribute cannot hold a symbolic size")
    return single(value) if type_.kind == "real" else int(value) if type_.kind == "bool" else value


def single(value: Value) -> float:
    """A real number as ONNX stores it in an attribute: rounded to single precision."""
    with np.errstate(over="ignore"):
        return float(np.float32(float(value)))


def attribute_is(type_: s.AttrType, actual: AttributeValue, stated: Value) -> bool:
    """Whether a node's attribute has the value that a pattern states. Real numbers agree when they round to one
    single-precision number; a stated symbolic size agrees with nothing."""
    if type_.kind == "real":
        return _rounded(actual) == _rounded(stated)
    if type_.kind == "bool":
        return bool(actual) == stated
    return bool(actual == stated)


def _rounded(value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(single(v) for v in cast(tuple[Value, ...], value))
    return single(value)
