"""The expression language over numpy: each value is an array with an axis for every index in scope (see `tensors`).

Both branches of an `if` are evaluated and one is chosen, entry by entry, so a read may be out of bounds where its
branch is not chosen; anywhere else that is an error, as it is in a proof.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from tasodsl import syntax as s
from tasodsl.graph.dtypes import numpy_dtype
from tasodsl.scalar import evaluate
from tasodsl.source import Span
from tasodsl.tensors import Array, axis_range, bounded, contract, extreme, gather, wide
from tasodsl.values import Environment, Evaluate, Mismatch, Target, Value

UNROLLED = 64
"""`all` and `any` over at most this many points are taken apart: most run over the axes of a tensor."""

where: Callable[[Any, Any, Any], Array] = np.where


class NumpyTarget(Target):
    """`depth` is the number of axes in use, `limit` the number of entries that a temporary may have."""

    def __init__(self, depth: int, limit: float) -> None:
        self.depth = depth
        self.limit = limit
        self.guards: list[Array] = []

    def demand(self, condition: Value, span: Span, why: str) -> None:
        if isinstance(condition, bool):
            super().demand(condition, span, why)
        elif not np.all(functools.reduce(np.logical_or, [~g for g in self.guards], condition)):
            raise Mismatch(why, span)

    @contextmanager
    def guarded(self, condition: Array | bool) -> Generator[None]:
        """Values are asked for only where `condition` holds."""
        self.guards.append(np.asarray(condition))
        try:
            yield
        finally:
            self.guards.pop()

    # --- numbers ---

    def binary(self, op: str, a: Value, b: Value, span: Span) -> Value:
        a, b = number(a), number(b)
        self._bound(a, b)
        if op == "/":
            return np.true_divide(a, b)
        if op in ("//", "%") and np.size(a) == 0:
            return a  # over an empty range nothing is divided, and the divisor may be 0
        return super().binary(op, a, b, span)

    def negate(self, a: Value) -> Value:
        return -number(a)

    def compare(self, op: str, a: Value, b: Value, span: Span) -> Value:
        self._bound(a, b)
        return super().compare(op, plain(a), plain(b), span)

    def _bound(self, *values: Value) -> None:
        bounded(np.broadcast_shapes(*(np.shape(v) for v in values)), self.limit)

    def conjunction(self, parts: Sequence[Value]) -> Value:
        self._bound(*parts)
        return functools.reduce(np.logical_and, parts, np.True_)

    def disjunction(self, parts: Sequence[Value]) -> Value:
        self._bound(*parts)
        return functools.reduce(np.logical_or, parts, np.False_)

    def complement(self, a: Value) -> Value:
        return np.logical_not(a)

    def choose(self, condition: Value, then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
        if np.all(condition):
            return then()
        if not np.any(condition):
            return otherwise()
        with self.guarded(condition):
            chosen: Any = plain(then())
        with self.guarded(np.logical_not(condition)):
            other: Any = plain(otherwise())
        self._bound(condition, chosen, other)
        return where(condition, chosen, other)

    def function(self, name: str, args: Sequence[Value], span: Span) -> Value:
        if name == "cast":
            x, to = args
            return np.asarray(plain(x)).astype(numpy_dtype(to))
        if name == "resize_index":
            return nearest(*args)
        if name in ("min", "max"):
            self._bound(*args)
            return functools.reduce(np.minimum if name == "min" else np.maximum, [plain(a) for a in args])
        make = FUNCTIONS.get(name)
        if make is None:
            return super().function(name, args, span)
        return make(*(number(a) for a in args))

    # --- tensors ---

    def read(self, tensor: Any, indices: tuple[Value, ...], default: Value | None, span: Span) -> Value:
        inside: Any = True
        places: list[Array] = []
        for index, size in zip(indices, tensor.shape, strict=True):
            i = np.asarray(index)
            if i.size and (i.min() < 0 or i.max() >= size):
                inside = np.logical_and(inside, (i >= 0) & (i < size))
                i = np.clip(i, 0, max(size - 1, 0))
            places.append(i)
        if default is None:
            self.demand(inside, span, "an entry outside the bounds is read")
        if 0 in tensor.shape:
            shape = np.broadcast_shapes(*(i.shape for i in places))
            bounded(shape, self.limit)
            entries = np.zeros(shape, tensor.dtype)
        else:
            entries = gather(tensor, places, self.limit)
        if default is None or inside is True:
            return entries
        self._bound(inside, entries)
        return where(inside, entries, plain(default))

    def reduce(self, e: s.Reduce, env: Environment, evaluate: Evaluate) -> Value:
        around = self.depth
        try:
            sizes, inner = self._ranges(e.binders, env)
            if e.kind in ("all", "any") and math.prod(sizes) <= UNROLLED:
                self.depth = around
                return super().reduce(e, env, evaluate)
            condition = True if e.condition is None else evaluate(e.condition, inner, self)
            if condition is True:
                return self._reduce(e, inner, sizes, around)
            with self.guarded(condition):
                return self._reduce_where(condition, e, inner, sizes, around)
        finally:
            self.depth = around

    def _ranges(self, binders: Sequence[s.Binder], env: Environment) -> tuple[list[int], Environment]:
        """An axis for each index that is bound."""
        sizes: list[int] = []
        for binder in binders:
            bound = evaluate(binder.bound, env, self)
            ranges: list[Array] = []
            for n in bound if binder.pack else (bound,):
                if not isinstance(n, int):
                    raise Mismatch("the range of the reduction depends on an index", binder.span)
                ranges.append(axis_range(0, n, self.depth))
                sizes.append(n)
                self.depth += 1
            env = env.extended({binder.name: tuple(ranges) if binder.pack else ranges[0]})
        return sizes, env

    def _reduce(self, e: s.Reduce, env: Environment, sizes: list[int], depth: int) -> Value:
        if e.kind == "sum":
            values = [np.asarray(plain(evaluate(f, env, self))) for f in factors(e.body)]
            return contract(values, sizes, depth, self.limit)
        value = np.asarray(plain(evaluate(e.body, env, self)))
        if e.kind in ("all", "any"):
            whole = np.full(self._rectangle(sizes, depth), e.kind == "all")
            joined = np.logical_and(whole, value) if e.kind == "all" else np.logical_or(whole, value)
            return extreme(joined, depth, "min" if e.kind == "all" else "max") if 0 not in sizes else e.kind == "all"
        return least_or_greatest(e.kind, value.dtype) if 0 in sizes else extreme(value, depth, e.kind)

    def _rectangle(self, sizes: list[int], depth: int) -> tuple[int, ...]:
        return (*reversed(sizes), *(1,) * depth)

    def _reduce_where(self, condition: Value, e: s.Reduce, env: Environment, sizes: list[int], depth: int) -> Value:
        """Entries for which the condition does not hold are made neutral."""
        value = np.asarray(plain(evaluate(e.body, env, self)))
        neutral: Any = {"sum": 0, "all": True, "any": False}.get(e.kind)
        if neutral is None:
            neutral = least_or_greatest(e.kind, value.dtype)
        self._bound(condition, value)
        kept = where(condition, value, neutral)
        if e.kind == "sum":
            return contract([kept], sizes, depth, self.limit)
        if 0 in sizes:
            return neutral
        return extreme(kept, depth, {"all": "min", "any": "max"}.get(e.kind, e.kind))


def plain(x: Value) -> Value:
    """Exact rationals as floating point, which numpy computes with."""
    return float(x) if isinstance(x, Fraction) else x


def number(x: Value) -> Value:
    """A number to compute with."""
    return wide(plain(x))


def factors(e: s.Expr) -> list[s.Expr]:
    """What a product is made of."""
    if isinstance(e, s.Binary) and e.op == "*":
        return [*factors(e.left), *factors(e.right)]
    return [e]


def least_or_greatest(kind: str, dtype: np.dtype[Any]) -> Any:
    """What `max` or `min` over no points is: the value that changes no other."""
    if dtype.kind == "b":
        return kind == "min"
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return info.min if kind == "max" else info.max
    return -np.inf if kind == "max" else np.inf


def nearest(i: Any, size: int, new_size: int, scale: Any, mode: str, rounding: str) -> Any:
    """ONNX's nearest coordinate in an axis of `size` for place `i` of `new_size`, in float32 as runtimes compute it."""
    x, one, half = np.asarray(i).astype(np.float32), np.float32(1), np.float32(0.5)
    factor = np.float32(plain(scale))
    match mode:
        case "asymmetric":
            place = x / factor
        case "align_corners":
            place = x * np.float32(size - 1) / np.float32(new_size - 1) if new_size > 1 else x * 0
        case "pytorch_half_pixel" if new_size <= 1:
            place = x * 0
        case "half_pixel_symmetric":
            middle = np.float32(size) / 2
            offset = middle * (one - np.float32(new_size) / (factor * np.float32(size)))
            place = offset + (x + half) / factor - half
        case _:
            place = (x + half) / factor - half
    match rounding:
        case "floor":
            place = np.floor(place)
        case "ceil":
            place = np.ceil(place)
        case "round_prefer_floor":
            place = np.ceil(place - half)
        case _:
            place = np.floor(place + half)
    return np.clip(place, 0, max(size - 1, 0)).astype(np.int64)


def _erf(x: Any) -> Any:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), np.float64)


FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "abs": np.abs,
        "cos": np.cos,
        "erf": _erf,
        "exp": np.exp,
        "floor": np.floor,
        "log": np.log,
        "pow": np.float_power,
        "real": np.float64,
        "sign": np.sign,
        "sin": np.sin,
        "sqrt": np.sqrt,
        "tanh": np.tanh,
    }
)
