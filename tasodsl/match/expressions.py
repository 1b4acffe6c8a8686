"""Expressions of the language as Python source, for generated matchers.

Only the shape of the tree decides what is written: names are replaced by numbered ones and literals are written by
`repr`, so that nothing of a text from a stranger becomes code. The arithmetic itself is `MatchTarget`'s, through the
functions of `HELPERS`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import cast

from tasodsl import syntax as s
from tasodsl.lists import LIST_FUNCTIONS
from tasodsl.match.target import TARGET
from tasodsl.source import NOWHERE
from tasodsl.values import Mismatch, Value, compare, conjunction, disjunction


class Constants:
    """Values that generated code reads by name because they have no literal."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, object] = {}

    def name(self, value: object) -> str:
        key = f"{type(value).__name__}:{value!r}"
        if key not in self.names:
            self.names[key] = f"k_{len(self.names)}"
            self.values[self.names[key]] = value
        return self.names[key]


class ExpressionWriter:
    """Writes expressions. `functions` gives the Python name of each declared function; `operands` that of each
    operand's `ValueInfo` (None where it is absent)."""

    def __init__(self, functions: Mapping[str, str], constants: Constants) -> None:
        self.functions = functions
        self.constants = constants
        self.operands: dict[str, str | None] = {}
        self._numbers = itertools.count()

    def write(self, e: s.Expr, scope: Mapping[str, str]) -> str:
        """Python source for `e`, where `scope` says what names are called; `Mismatch` for what only definitions may
        say."""
        match e:
            case s.Int() | s.Str() | s.Bool():
                return repr(e.value)
            case s.Real():
                return self.constants.name(e.value)
            case s.Name():
                if e.id not in scope:
                    raise Mismatch(f"{e.id} is not bound", e.span)
                return scope[e.id]
            case s.Unary():
                operand = self.write(e.operand, scope)
                return f"(-{operand})" if e.op == "-" else f"(not {operand})"
            case s.Binary():
                left, right = self.write(e.left, scope), self.write(e.right, scope)
                if e.op in ("and", "or"):
                    return f"({left} {'and' if e.op == 'and' else 'or'} {right})"
                return f"contains({left}, {right})" if e.op == "in" else f"binary({e.op!r}, {left}, {right})"
            case s.Compare():
                parts = [self.write(e.first, scope), *(self.write(right, scope) for _, right in e.rest)]
                return f"compared({tuple(op for op, _ in e.rest)!r}, {', '.join(parts)})"
            case s.IfExpr():
                condition, then, otherwise = (self.write(p, scope) for p in (e.condition, e.then, e.otherwise))
                return f"({then} if {condition} else {otherwise})"
            case s.Call():
                return self._call(e, scope)
            case s.Index():
                if e.default is not None or len(e.indices) != 1 or isinstance(e.indices[0], s.Splice):
                    raise Mismatch("a tensor entry cannot be read here", e.span)
                return f"entry({self.write(e.base, scope)}, {self.write(e.indices[0], scope)})"
            case s.Slice():
                low = "0" if e.low is None else self.write(e.low, scope)
                high = "None" if e.high is None else self.write(e.high, scope)
                return f"cut({self.write(e.base, scope)}, {low}, {high})"
            case s.ListExpr():
                return self.items(e.items, scope)
            case s.Comprehension():
                inner = dict(scope)
                each = self._loop(e.variable, e.domain, e.relation == "<", False, inner)
                condition = "" if e.condition is None else f" if {self.write(e.condition, inner)}"
                return f"tuple([{self.write(e.body, inner)}{each}{condition}])"
            case s.Reduce():
                inner = dict(scope)
                loops = "".join(self._loop(b.name, b.bound, True, b.pack, inner) for b in e.binders)
                condition = "" if e.condition is None else f" if {self.write(e.condition, inner)}"
                return f"reduced({e.kind!r}, [{self.write(e.body, inner)}{loops}{condition}])"

    def items(self, parts: Sequence[s.Expr | s.Splice], scope: Mapping[str, str]) -> str:
        """A tuple of the items of a list or shape, splices laid out."""
        written = [f"*{self.write(p.value, scope)}" if isinstance(p, s.Splice) else self.write(p, scope) for p in parts]
        return f"({''.join(f'{w}, ' for w in written)})"

    def _loop(self, variable: str, domain: s.Expr, below: bool, pack: bool, scope: dict[str, str]) -> str:
        """A `for` of a comprehension; the variable is added to `scope`."""
        source = self.write(domain, scope)
        scope[variable] = f"x_{next(self._numbers)}"
        listed = f"points({source})" if pack else f"below({source})" if below else source
        return f" for {scope[variable]} in {listed}"

    def _call(self, e: s.Call, scope: Mapping[str, str]) -> str:
        if e.function in ("present", "dtype"):
            (operand,) = e.args
            if not isinstance(operand, s.Name) or operand.id not in self.operands:
                raise Mismatch(f"{e.function} takes the name of an operand", e.span)
            info = self.operands[operand.id]
            if e.function == "present":
                return repr(info is not None)
            if info is None:
                raise Mismatch("an absent operand has no dtype", e.span)
            return f"{info}.dtype"
        args = [self.write(a, scope) for a in e.args]
        declared = self.functions.get(e.function)
        if declared is not None:
            return f"{declared}({', '.join(args)})"
        return f"called({', '.join([repr(e.function), *args])})"


def binary(op: str, a: Value, b: Value) -> Value:
    return TARGET.binary(op, a, b, NOWHERE)


def compared(ops: tuple[str, ...], *values: Value) -> Value:
    if ops == ("==",) and _plain(values[0]) and _plain(values[1]):
        return values[0] == values[1]  # the usual case, said at once
    links = [compare(op, a, b, NOWHERE, TARGET) for op, a, b in zip(ops, values[:-1], values[1:], strict=True)]
    return conjunction(links, TARGET)


def _plain(value: Value) -> bool:
    """Whether the value is an integer or a list of integers."""
    return type(value) is int or (type(value) is tuple and all(type(v) is int for v in cast(tuple[Value, ...], value)))


def contains(x: Value, listed: tuple[Value, ...]) -> Value:
    return disjunction([compare("==", x, y, NOWHERE, TARGET) for y in listed], TARGET)


def entry(listed: tuple[Value, ...], k: Value) -> Value:
    if not isinstance(k, int) or not 0 <= k < len(listed):
        raise Mismatch(f"entry {k} of a list of {len(listed)}")
    return listed[k]


def cut(listed: tuple[Value, ...], low: Value, high: Value | None) -> Value:
    end = len(listed) if high is None else high
    if not (isinstance(low, int) and isinstance(end, int) and 0 <= low <= end <= len(listed)):
        raise Mismatch(f"[{low}:{end}] of a list of {len(listed)}")
    return listed[low:end]


def below(n: Value) -> range:
    if not isinstance(n, int):
        raise Mismatch("the range is not known")
    return range(n)


def points(sizes: tuple[Value, ...]) -> list[tuple[int, ...]]:
    return list(itertools.product(*(below(n) for n in sizes)))


def reduced(kind: str, values: list[Value]) -> Value:
    if kind in ("all", "any"):
        return all(values) if kind == "all" else any(values)
    if kind == "sum":
        total: Value = 0
        for v in values:
            total = binary("+", total, v)
        return total
    if not values:
        raise Mismatch(f"{kind} over nothing")
    return TARGET.function(kind, values, NOWHERE) if len(values) > 1 else values[0]


def called(name: str, *args: Value) -> Value:
    builtin = LIST_FUNCTIONS.get(name)
    if builtin is not None and (name not in ("min", "max", "sum") or (len(args) == 1 and isinstance(args[0], tuple))):
        return builtin(list(args), NOWHERE, TARGET)
    return TARGET.function(name, args, NOWHERE)


HELPERS: Mapping[str, Callable[..., Value]] = MappingProxyType(
    {f.__name__: f for f in (binary, compared, contains, entry, cut, below, points, reduced, called)}
)
