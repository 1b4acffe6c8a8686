"""Evaluation of the expression language over a target.

One tree, several meanings: over Python integers and symbolic dimensions (matchers, shapes), over Z3 terms (proofs), over
numpy (definitions). What differs is a `Target`; the walk over the tree, scoping, lists and the list functions are here
once, so that a matcher and a proof cannot disagree about what `compose(p, q)` means.

Values are Python `int`, `bool`, `str`, `Fraction` or `float`, tuples of values, and whatever scalars the target adds. Lists
always have a concrete length: proofs go through ranks and arities case by case.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from tasodsl import syntax as s
from tasodsl.source import NOWHERE, Span

Value = Any
"""A scalar of the target, or a tuple of values."""


class Mismatch(Exception):
    """The expression or shape has no value: a rank or length that cannot be, a list index out of range, an unbound name."""

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

    def reduce(self, e: s.Reduce, env: Environment) -> Value:
        """A reduction over concrete ranges, point by point."""
        values = list(self.points(e, env))
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

    def points(self, e: s.Reduce, env: Environment) -> list[Value]:
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


def evaluate(e: s.Expr, env: Environment, t: Target) -> Value:
    """The value of `e`; `Mismatch` where it has none."""
    match e:
        case s.Int() | s.Str() | s.Bool() | s.Real():
            return e.value
        case s.Name():
            if e.id not in env.values:
                raise Unsupported(f"{e.id} is not bound", e.span)
            return env.values[e.id]
        case s.Unary():
            value = evaluate(e.operand, env, t)
            if e.op == "-":
                return t.negate(value)
            return (not value) if isinstance(value, bool) else t.complement(value)
        case s.Binary():
            return _binary(e, env, t)
        case s.Compare():
            links: list[Value] = []
            left = evaluate(e.first, env, t)
            for op, right_expr in e.rest:
                right = evaluate(right_expr, env, t)
                links.append(compare(op, left, right, e.span, t))
                left = right
            return conjunction(links, t)
        case s.IfExpr():
            condition = evaluate(e.condition, env, t)
            if condition is True:
                return evaluate(e.then, env, t)
            if condition is False:
                return evaluate(e.otherwise, env, t)
            return t.choose(condition, lambda: evaluate(e.then, env, t), lambda: evaluate(e.otherwise, env, t))
        case s.Call():
            return call(e, env, t)
        case s.Index():
            return _index(e, env, t)
        case s.Slice():
            base = evaluate(e.base, env, t)
            low = 0 if e.low is None else evaluate(e.low, env, t)
            high = len(base) if e.high is None else evaluate(e.high, env, t)
            if not (isinstance(low, int) and isinstance(high, int)):
                raise Unsupported("the bounds of the list are not known", e.span)
            if not 0 <= low <= high <= len(base):
                raise Mismatch(f"[{low}:{high}] of a list of {len(base)}", e.span)
            return base[low:high]
        case s.ListExpr():
            return items(e.items, env, t)
        case s.Comprehension():
            domain = evaluate(e.domain, env, t)
            if e.relation == "<":
                if not isinstance(domain, int):
                    raise Unsupported("the length of the list is not known", e.span)
                domain = tuple(range(domain))
            out: list[Value] = []
            for x in domain:
                inner = env.extended({e.variable: x})
                kept = True if e.condition is None else evaluate(e.condition, inner, t)
                if not isinstance(kept, bool):
                    raise Unsupported("the condition of the list is not decided", e.span)
                if kept:
                    out.append(evaluate(e.body, inner, t))
            return tuple(out)
        case s.Reduce():
            return t.reduce(e, env)


def items(parts: Sequence[s.Expr | s.Splice], env: Environment, t: Target) -> tuple[Value, ...]:
    """The values of a list's or an index's items, splices laid out."""
    out: list[Value] = []
    for part in parts:
        if isinstance(part, s.Splice):
            out.extend(evaluate(part.value, env, t))
        else:
            out.append(evaluate(part, env, t))
    return tuple(out)


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
        left: tuple[Value, ...] = a
        right: tuple[Value, ...] = b
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


def _binary(e: s.Binary, env: Environment, t: Target) -> Value:
    left = evaluate(e.left, env, t)
    if e.op in ("and", "or"):
        if isinstance(left, bool):
            return evaluate(e.right, env, t) if left == (e.op == "and") else left
        # The right side has a meaning only where the left one does not already decide.
        if e.op == "and":
            return t.choose(left, lambda: evaluate(e.right, env, t), lambda: False)
        return t.choose(left, lambda: True, lambda: evaluate(e.right, env, t))
    right = evaluate(e.right, env, t)
    if e.op == "in":
        return disjunction([compare("==", left, x, e.span, t) for x in right], t)
    if isinstance(left, tuple) or isinstance(right, tuple) or isinstance(left, str) or isinstance(right, str):
        raise Unsupported(f"{e.op} takes two numbers", e.span)
    return t.binary(e.op, left, right, e.span)


def _index(e: s.Index, env: Environment, t: Target) -> Value:
    tensor: Any = None
    is_tensor = False
    base, inner = e.base, e
    if isinstance(base, s.Name) and base.id in env.tensors:
        tensor, is_tensor = env.tensors[base.id], True
    elif isinstance(base, s.Index) and isinstance(base.base, s.Name) and isinstance(env.tensors.get(base.base.id), tuple):
        members: tuple[Any, ...] = env.tensors[base.base.id]
        (which,) = items(base.indices, env, t)
        return t_select(members, which, lambda m: _read(m, inner, env, t), e.span, t)
    if is_tensor:
        if tensor is None:
            if e.default is None:
                raise Mismatch("an absent operand is read without ?", e.span)
            return evaluate(e.default, env, t)
        return _read(tensor, e, env, t)
    values = evaluate(base, env, t)
    if not isinstance(values, tuple):
        raise Unsupported("only lists and tensors have entries", e.span)
    listed: tuple[Value, ...] = values
    (where,) = items(e.indices, env, t)
    if isinstance(where, int):
        if not 0 <= where < len(listed):
            raise Mismatch(f"entry {where} of a list of {len(listed)}", e.span)
        return listed[where]
    return t_select(listed, where, lambda v: v, e.span, t)


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


def _read(tensor: TensorLike, e: s.Index, env: Environment, t: Target) -> Value:
    """A tensor entry. One splice takes what the plain indices leave and is aligned with those dimensions from the right."""
    shape = tensor.shape
    splices = [k for k, part in enumerate(e.indices) if isinstance(part, s.Splice)]
    plain = len(e.indices) - len(splices)
    indices: list[Value] = []
    for k, part in enumerate(e.indices):
        if not isinstance(part, s.Splice):
            indices.append(evaluate(part, env, t))
            continue
        given: tuple[Value, ...] = evaluate(part.value, env, t)
        if len(splices) > 1:
            indices.extend(given)
            continue
        left = len(shape) - plain
        if left < 0 or len(given) < left:
            raise Mismatch(f"{plain + len(given)} indices for a tensor of rank {len(shape)}", e.span)
        for i, d in zip(given[len(given) - left :], shape[k : k + left], strict=True):
            if d == 1 and isinstance(d, int):
                indices.append(0)
            else:
                indices.append(t.broadcast_index(i, d, e.span))
    if len(indices) != len(shape):
        raise Mismatch(f"{len(indices)} indices for a tensor of rank {len(shape)}", e.span)
    default = None if e.default is None else evaluate(e.default, env, t)
    return t.read(tensor, tuple(indices), default, e.span)


def call(e: s.Call, env: Environment, t: Target) -> Value:
    """A function call: built-in list functions, the target's functions of numbers, declared `fn`s."""
    name = e.function
    if name in ("present", "dtype"):
        (operand,) = e.args
        if not isinstance(operand, s.Name) or operand.id not in env.tensors:
            raise Unsupported(f"{name} takes the name of an operand", e.span)
        tensor = env.tensors[operand.id]
        if name == "present":
            return tensor is not None
        return tensor.dtype
    args = [evaluate(a, env, t) for a in e.args]
    declared = env.fns.get(name)
    if declared is not None:
        if len(args) != len(declared.params):
            raise Unsupported(f"{name} takes {len(declared.params)} arguments", e.span)
        inner = Environment(env.fns, dict(zip(declared.params, args, strict=True)), {})
        return evaluate(declared.body, inner, t)
    builtin = LIST_FUNCTIONS.get(name)
    if builtin is not None and (name not in ("min", "max", "sum") or (len(args) == 1 and isinstance(args[0], tuple))):
        return builtin(args, e.span, t)
    return t.function(name, tuple(args), e.span)


# --- list functions ----------------------------------------------------------------------------------------------


def resized(size: Value, scale: Value, span: Span) -> Value:
    """The size of a resampled axis: the product, rounded down. Runtimes compute it in float32."""
    if scale == int(scale):
        return size * int(scale)
    if not isinstance(size, int):
        raise Unsupported("the size to be scaled is not known", span)
    return int(np.float32(size) * np.float32(scale))


def _length(args: list[Value], span: Span, t: Target) -> Value:
    return len(_list(args[0], span))


def _list(value: Value, span: Span) -> tuple[Value, ...]:
    if not isinstance(value, tuple):
        raise Unsupported("a list is expected", span)
    return value


def total(values: Sequence[Value], span: Span, t: Target) -> Value:
    """The sum of a list."""
    out: Value = 0
    for v in values:
        out = t.binary("+", out, v, span)
    return out


def product(values: Sequence[Value], span: Span, t: Target) -> Value:
    """The product of a list."""
    out: Value = 1
    for v in values:
        out = v if isinstance(out, int) and out == 1 else t.binary("*", out, v, span)
    return out


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


def broadcast(args: list[Value], span: Span, t: Target) -> Value:
    """ONNX's multidirectional broadcasting of two shapes; demands that they are compatible."""
    a, b = _list(args[0], span), _list(args[1], span)
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    out: list[Value] = []
    for x, y in zip(left, right, strict=True):
        if isinstance(x, int) and x == 1:
            out.append(y)
            continue
        if isinstance(y, int) and y == 1:
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


def flat(indices: Sequence[Value], shape: Sequence[Value], span: Span, t: Target) -> Value:
    """The row-major position of an index."""
    out: Value = 0
    for i, d in zip(indices, shape, strict=True):
        out = t.binary("+", t.binary("*", out, d, span), i, span)
    return out


def _unflatten(args: list[Value], span: Span, t: Target) -> Value:
    position, shape = args[0], _list(args[1], span)
    return t.unflatten(position, shape, span)


def unflat(position: Value, shape: Sequence[Value], span: Span, t: Target) -> tuple[Value, ...]:
    """The index at a row-major position: the inverse of `flat` on positions within the shape."""
    out: list[Value] = []
    for d in reversed(shape[1:]):
        out.append(t.binary("%", position, d, span))
        position = t.binary("//", position, d, span)
    return (position, *reversed(out)) if shape else ()


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
    ["abs", "min", "max", "exp", "log", "sqrt", "erf", "tanh", "sin", "cos", "pow", "floor", "sign", "real", "cast", "resize_index", "resized"]
)
"""Functions of numbers, given their meaning by targets."""

ARITY: Mapping[str, tuple[int, int | None]] = {
    **dict.fromkeys(("len", "rank", "sum", "prod", "range", "abs", "exp", "log", "sqrt", "erf", "tanh", "sin", "cos"), (1, 1)),
    **dict.fromkeys(("floor", "sign", "real", "present", "dtype"), (1, 1)),
    **dict.fromkeys(("index", "broadcast", "flatten", "unflatten", "offset", "piece", "pow", "cast", "resized"), (2, 2)),
    "min": (1, None),
    "max": (1, None),
    "resize_index": (6, 6),
}
"""Fewest and most arguments of each built-in function."""
