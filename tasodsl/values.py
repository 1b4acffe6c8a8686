"""Values and targets of the expression language: what an expression can come to, and what decides its meaning.

One tree, several meanings: over Python integers and symbolic sizes (matchers, shapes), over Z3 terms (proofs), over
numpy
(definitions). What differs is a `Target`; the walk over the tree is `scalar`'s, the functions of lists are `lists`'s.

Values are Python `int`, `bool`, `str`, `Fraction` or `float`, tuples of values, and whatever scalars the target adds.
Lists always have a concrete length: proofs go through ranks and arities case by case.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Protocol, cast

import numpy as np

from tasodsl import syntax as s
from tasodsl.source import NOWHERE, Span

Value = Any
"""A scalar of the target, or a tuple of values."""


class Mismatch(Exception):
    """The expression or shape has no value: a rank or length that cannot be, a list index out of range, an unbound
    name."""

    def __init__(self, message: str, span: Span = NOWHERE) -> None:
        super().__init__(message)
        self.span = span


class Unsupported(Mismatch):
    """The expression may have a value, but not one this evaluation can find. A proof must not take it for an impossible
    case."""


class TensorLike(Protocol):
    """What a tensor name stands for while a definition is evaluated; `shape` is its list of sizes."""

    @property
    def shape(self) -> tuple[Value, ...]: ...


@dataclass(frozen=True, slots=True)
class Environment:
    """Names in scope. Tensors have a namespace of their own: `MatMul` has a pack and an operand both called `B`.

    A tensor is None where an optional operand is absent, and a tuple where the operand is variadic.
    """

    fns: Mapping[str, s.FnDecl] = field(default_factory=dict[str, s.FnDecl])
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    tensors: dict[str, Any] = field(default_factory=dict[str, Any])

    def with_values(self, **values: Value) -> Environment:
        return self.extended(values)

    def extended(self, values: Mapping[str, Value]) -> Environment:
        return replace(self, values={**self.values, **values})


Evaluate = Callable[[s.Expr, Environment, "Target"], Value]


class Target:
    """The meaning of scalars. This base class is the meaning over Python's own numbers; others override it.

    `demand` receives every condition that an expression needs in order to have a meaning (bounds of reads, positive
    divisors, broadcastable shapes). Here a demand that fails is a `Mismatch`.
    """

    def demand(self, condition: Value, span: Span, why: str) -> None:
        if condition is False:
            raise Mismatch(why, span)

    def binary(self, op: str, a: Value, b: Value, span: Span) -> Value:
        match op:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
            case "//":
                self.demand(self.compare("<", 0, b, span), span, "the divisor of // is not positive")
                return a // b
            case "%":
                self.demand(self.compare("<", 0, b, span), span, "the divisor of % is not positive")
                return a % b
            case "/":
                if isinstance(a, int) and isinstance(b, int):
                    a = Fraction(a)
                self.demand(self.compare("!=", b, 0, span), span, "division by zero")
                return a / b
            case _:
                return self.function("pow", (a, b), span)

    def negate(self, a: Value) -> Value:
        return -a

    def compare(self, op: str, a: Value, b: Value, span: Span) -> Value:
        """A comparison of two scalars (lists are taken apart before)."""
        match op:
            case "==":
                return a == b
            case "!=":
                return a != b
            case "<":
                return a < b
            case "<=":
                return a <= b
            case ">":
                return a > b
            case _:
                return a >= b

    def conjunction(self, parts: Sequence[Value]) -> Value:
        return all(parts)

    def disjunction(self, parts: Sequence[Value]) -> Value:
        return any(parts)

    def complement(self, a: Value) -> Value:
        return not a

    def choose(self, condition: Value, then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
        """`if condition then … else …` where the condition is not a plain `bool`."""
        return then() if condition else otherwise()

    def broadcast_index(self, i: Value, d: Value, span: Span) -> Value:
        """The index `i` of a pack, read in a dimension of size `d`: 0 where that has one entry."""
        is_one = self.compare("==", d, 1, span)
        if is_one is True:
            return 0
        if is_one is False:
            return i
        return self.choose(is_one, lambda: 0, lambda: i)

    def function(self, name: str, args: Sequence[Value], span: Span) -> Value:
        """A function of numbers: `abs min max exp log sqrt …`."""
        match name:
            case "abs":
                return abs(args[0])
            case "min":
                return min(args)
            case "max":
                return max(args)
            case "real":
                return Fraction(args[0])
            case "resized":
                return resized(args[0], args[1], span)
            case _:
                raise Unsupported(f"{name} has no value here", span)

    def flatten(self, indices: Sequence[Value], shape: Sequence[Value], span: Span) -> Value:
        return flat(indices, shape, span, self)

    def unflatten(self, position: Value, shape: Sequence[Value], span: Span) -> tuple[Value, ...]:
        return unflat(position, shape, span, self)

    def read(self, tensor: Any, indices: tuple[Value, ...], default: Value | None, span: Span) -> Value:
        raise Unsupported("a tensor entry cannot be read here", span)

    def reduce(self, e: s.Reduce, env: Environment, evaluate: Evaluate) -> Value:
        """A reduction over concrete ranges, point by point; `evaluate` is the walk over expressions."""
        values = self.points(e, env, evaluate)
        match e.kind:
            case "all":
                return self.conjunction(values)
            case "any":
                return self.disjunction(values)
            case "sum":
                total: Value = 0
                for v in values:
                    total = self.binary("+", total, v, e.span)
                return total
            case _:
                if not values:
                    raise Mismatch(f"{e.kind} over nothing", e.span)
                return self.function(e.kind, values, e.span) if len(values) > 1 else values[0]

    def points(self, e: s.Reduce, env: Environment, evaluate: Evaluate) -> list[Value]:
        """The values of the body where the condition holds."""

        def go(binders: tuple[s.Binder, ...], env: Environment) -> list[Value]:
            if not binders:
                condition = True if e.condition is None else evaluate(e.condition, env, self)
                if condition is True:
                    return [evaluate(e.body, env, self)]
                if condition is False:
                    return []
                if e.kind == "all":
                    return [self.disjunction([self.complement(condition), evaluate(e.body, env, self)])]
                if e.kind == "any":
                    return [self.conjunction([condition, evaluate(e.body, env, self)])]
                raise Unsupported("the condition of the reduction is not decided", e.span)
            first, *rest = binders
            bound = evaluate(first.bound, env, self)
            sizes = bound if first.pack else (bound,)
            if not all(isinstance(n, int) for n in sizes):
                raise Unsupported("the range of the reduction is not known", first.span)
            out: list[Value] = []
            for point in itertools.product(*(range(n) for n in sizes)):
                out.extend(go(tuple(rest), env.extended({first.name: point if first.pack else point[0]})))
            return out

        return go(e.binders, env)


def conjunction(parts: Sequence[Value], t: Target) -> Value:
    if any(p is False for p in parts):
        return False
    kept = [p for p in parts if p is not True]
    return True if not kept else kept[0] if len(kept) == 1 else t.conjunction(kept)


def disjunction(parts: Sequence[Value], t: Target) -> Value:
    if any(p is True for p in parts):
        return True
    kept = [p for p in parts if p is not False]
    return False if not kept else kept[0] if len(kept) == 1 else t.disjunction(kept)


def compare(op: str, a: Value, b: Value, span: Span, t: Target) -> Value:
    """A comparison of scalars, strings or lists."""
    if isinstance(a, tuple) or isinstance(b, tuple):
        if not (isinstance(a, tuple) and isinstance(b, tuple)) or op not in ("==", "!="):
            raise Unsupported("a list and a number are compared", span)
        left, right = cast(tuple[Value, ...], a), cast(tuple[Value, ...], b)
        if len(left) != len(right):
            return op == "!="
        equal = conjunction([compare("==", x, y, span, t) for x, y in zip(left, right, strict=True)], t)
        if op == "==":
            return equal
        return (not equal) if isinstance(equal, bool) else t.complement(equal)
    if isinstance(a, str) or isinstance(b, str):
        if not (isinstance(a, str) and isinstance(b, str)) or op not in ("==", "!="):
            raise Unsupported("a string and a number are compared", span)
        return (a == b) == (op == "==")
    return t.compare(op, a, b, span)


def t_select(values: Sequence[Any], which: Value, use: Callable[[Any], Value], span: Span, t: Target) -> Value:
    """`use(values[which])` for an index that may be symbolic: one case for each element."""
    if isinstance(which, int):
        if not 0 <= which < len(values):
            raise Mismatch(f"entry {which} of {len(values)}", span)
        return use(values[which])
    inside = t.conjunction([t.compare("<=", 0, which, span), t.compare("<", which, len(values), span)])
    t.demand(inside, span, "the index is outside the list")

    def case(k: int) -> Value:
        if k == len(values) - 1:
            return use(values[k])
        return t.choose(t.compare("==", which, k, span), lambda: use(values[k]), lambda: case(k + 1))

    if not values:
        raise Mismatch("an entry of an empty list", span)
    return case(0)


def resized(size: Value, scale: Value, span: Span) -> Value:
    """The size of a resampled axis: the product, rounded down. Runtimes compute it in float32."""
    if scale == int(scale):
        return size * int(scale)
    if not isinstance(size, int):
        raise Unsupported("the size to be scaled is not known", span)
    return int(np.float32(size) * np.float32(scale))


def total(values: Sequence[Value], span: Span, t: Target) -> Value:
    """The sum of a list."""
    out: Value = 0
    for v in values:
        out = t.binary("+", out, v, span)
    return out


def _is_one(value: Value) -> bool:
    return isinstance(value, int) and value == 1


def product(values: Sequence[Value], span: Span, t: Target) -> Value:
    """The product of a list."""
    out: Value = 1
    for v in values:
        out = v if _is_one(out) else t.binary("*", out, v, span)
    return out


def flat(indices: Sequence[Value], shape: Sequence[Value], span: Span, t: Target) -> Value:
    """The row-major position of an index."""
    out: Value = 0
    for i, d in zip(indices, shape, strict=True):
        out = t.binary("+", t.binary("*", out, d, span), i, span)
    return out


def unflat(position: Value, shape: Sequence[Value], span: Span, t: Target) -> tuple[Value, ...]:
    """The index at a row-major position: the inverse of `flat` on positions within the shape."""
    out: list[Value] = []
    for d in reversed(shape[1:]):
        out.append(t.binary("%", position, d, span))
        position = t.binary("//", position, d, span)
    return (position, *reversed(out)) if shape else ()
