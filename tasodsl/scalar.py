"""Evaluation of the expression language over a target: the walk over the tree, scoping, reads and calls.

The same walk serves matchers and proofs, so that they cannot disagree about what an expression means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from tasodsl import syntax as s
from tasodsl.lists import LIST_FUNCTIONS
from tasodsl.values import (
    Environment,
    Mismatch,
    Target,
    TensorLike,
    Unsupported,
    Value,
    compare,
    conjunction,
    disjunction,
    t_select,
)


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
            return t.reduce(e, env, evaluate)


def items(parts: Sequence[s.Expr | s.Splice], env: Environment, t: Target) -> tuple[Value, ...]:
    """The values of a list's or an index's items, splices laid out."""
    out: list[Value] = []
    for part in parts:
        if isinstance(part, s.Splice):
            out.extend(evaluate(part.value, env, t))
        else:
            out.append(evaluate(part, env, t))
    return tuple(out)


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
    elif (
        isinstance(base, s.Index) and isinstance(base.base, s.Name) and isinstance(env.tensors.get(base.base.id), tuple)
    ):
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
    listed = cast(tuple[Value, ...], values)
    (where,) = items(e.indices, env, t)
    if isinstance(where, int):
        if not 0 <= where < len(listed):
            raise Mismatch(f"entry {where} of a list of {len(listed)}", e.span)
        return listed[where]
    return t_select(listed, where, lambda v: v, e.span, t)


def _read(tensor: TensorLike, e: s.Index, env: Environment, t: Target) -> Value:
    """A tensor entry. One splice takes what the plain indices leave and is aligned with those dimensions from the
    right."""
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
