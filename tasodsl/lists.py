"""The built-in functions of lists: one meaning for matchers and proofs alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from tasodsl.source import Span
from tasodsl.values import Mismatch, Target, Unsupported, Value, compare, disjunction, product, t_select, total


def _length(args: list[Value], span: Span, t: Target) -> Value:
    return len(_list(args[0], span))


def _list(value: Value, span: Span) -> tuple[Value, ...]:
    if not isinstance(value, tuple):
        raise Unsupported("a list is expected", span)
    return cast(tuple[Value, ...], value)


def _fold(name: str) -> Callable[[list[Value], Span, Target], Value]:
    def run(args: list[Value], span: Span, t: Target) -> Value:
        values = _list(args[0], span)
        if not values:
            raise Mismatch(f"{name} of an empty list", span)
        return values[0] if len(values) == 1 else t.function(name, values, span)

    return run


def _range(args: list[Value], span: Span, t: Target) -> Value:
    if not isinstance(args[0], int):
        raise Unsupported("the length of the range is not known", span)
    return tuple(range(args[0]))


def _position(args: list[Value], span: Span, t: Target) -> Value:
    values = _list(args[0], span)
    for k, v in enumerate(values):
        found = compare("==", v, args[1], span, t)
        if found is True:
            return k
        if found is not False:
            raise Unsupported("the position is not decided", span)
    raise Mismatch("the element is not in the list", span)


def _is_one(size: Value) -> bool:
    return isinstance(size, int) and size == 1


def broadcast(args: list[Value], span: Span, t: Target) -> Value:
    """ONNX's multidirectional broadcasting of two shapes; demands that they are compatible."""
    a, b = _list(args[0], span), _list(args[1], span)
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    out: list[Value] = []
    for x, y in zip(left, right, strict=True):
        if _is_one(x):
            out.append(y)
            continue
        if _is_one(y):
            out.append(x)
            continue
        equal = t.compare("==", x, y, span)
        if equal is True:  # whether a symbolic size is 1 need not be known
            out.append(x)
            continue
        x1, y1 = (t.compare("==", p, 1, span) for p in (x, y))
        t.demand(disjunction([equal, x1, y1], t), span, "the shapes do not broadcast")
        if x1 is False:
            out.append(x)
        elif x1 is True:
            out.append(y)
        else:
            out.append(t.choose(x1, lambda y=y: y, lambda x=x: x))
    return tuple(out)


def _flatten(args: list[Value], span: Span, t: Target) -> Value:
    indices, shape = _list(args[0], span), _list(args[1], span)
    if len(indices) != len(shape):
        raise Unsupported("flatten takes an index for each dimension", span)
    return t.flatten(indices, shape, span)


def _unflatten(args: list[Value], span: Span, t: Target) -> Value:
    position, shape = args[0], _list(args[1], span)
    return t.unflatten(position, shape, span)


def _offset(args: list[Value], span: Span, t: Target) -> Value:
    sizes = _list(args[0], span)
    offsets = tuple(total(sizes[:k], span, t) for k in range(len(sizes) + 1))
    return t_select(offsets, args[1], lambda v: v, span, t)


def _piece(args: list[Value], span: Span, t: Target) -> Value:
    sizes, j = _list(args[0], span), args[1]
    if not sizes:
        raise Mismatch("a piece of nothing", span)

    def case(k: int) -> Value:
        if k == len(sizes) - 1:
            return k
        before = t.compare("<", j, total(sizes[: k + 1], span, t), span)
        if isinstance(before, bool):
            return k if before else case(k + 1)
        return t.choose(before, lambda: k, lambda: case(k + 1))

    return case(0)


LIST_FUNCTIONS: Mapping[str, Callable[[list[Value], Span, Target], Value]] = {
    "len": _length,
    "rank": _length,
    "sum": lambda a, span, t: total(_list(a[0], span), span, t),
    "prod": lambda a, span, t: product(_list(a[0], span), span, t),
    "min": _fold("min"),
    "max": _fold("max"),
    "range": _range,
    "index": _position,
    "broadcast": broadcast,
    "flatten": _flatten,
    "unflatten": _unflatten,
    "offset": _offset,
    "piece": _piece,
}

NUMBER_FUNCTIONS = frozenset(
    [
        "abs",
        "min",
        "max",
        "exp",
        "log",
        "sqrt",
        "erf",
        "tanh",
        "sin",
        "cos",
        "pow",
        "floor",
        "sign",
        "real",
        "cast",
        "resize_index",
        "resized",
    ]
)
"""Functions of numbers, given their meaning by targets."""

ARITY: Mapping[str, tuple[int, int | None]] = {
    **dict.fromkeys(
        ("len", "rank", "sum", "prod", "range", "abs", "exp", "log", "sqrt", "erf", "tanh", "sin", "cos"), (1, 1)
    ),
    **dict.fromkeys(("floor", "sign", "real", "present", "dtype"), (1, 1)),
    **dict.fromkeys(
        ("index", "broadcast", "flatten", "unflatten", "offset", "piece", "pow", "cast", "resized"), (2, 2)
    ),
    "min": (1, None),
    "max": (1, None),
    "resize_index": (6, 6),
}
"""Fewest and most arguments of each built-in function."""
