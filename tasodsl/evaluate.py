"""The numpy meaning of definitions: operators and compile-time tensors evaluated on arrays, vectorised.

An index of a definition is a whole range at once: an array along an axis of its own. The axes of nested reductions come
before those around them, so that numpy's broadcasting, which aligns shapes from the right, lines values of all depths
up. An array has size 1 along the axes that it does not depend on: a product under a sum is then contracted without
being laid out.

Real numbers are computed in float64, and whoever asks rounds once at the end; operators that only move entries keep
their dtype. Temporaries are bounded: what would be too large is computed for one part of the result after another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tasodsl import syntax as s
from tasodsl.elaborate import Application, apply_op
from tasodsl.numpy_target import NumpyTarget, plain
from tasodsl.scalar import evaluate
from tasodsl.tensors import Array, TooLarge, axis_range
from tasodsl.values import Environment, Mismatch, Target, Value

LIMIT = 8_000_000
"""The most entries that a temporary may have (64 MB of float64), unless a single entry of the result needs more."""

Indices = Sequence[tuple[str, int | None]]
"""Index names in order, with the number of indices where the name is a pack."""


def evaluate_op(
    op: s.OpDecl,
    fns: Mapping[str, s.FnDecl],
    operands: Sequence[Array | None],
    attributes: Mapping[str, Value],
) -> list[Array]:
    """The results of `op` by its definitions; `Mismatch` where the call is not valid.

    Attributes with defaults may be left out, and those of type `bool` may be 0 or 1. Results that are computed (not
    moved) are float64 where the operands are of any floating type.
    """
    applied = apply_op(op, fns, operands, attributes, Target())
    shortcut = SHORTCUTS.get(op.name)
    if shortcut is not None:
        return [shortcut(applied, [o for o in operands if o is not None])]
    results: list[Array] = []
    for result, shape, definition in zip(op.results, applied.results, op.defs, strict=True):
        if definition.operand is None:
            results.append(_defined(definition, result, applied.env, shape))
            continue
        for k, part in enumerate(shape):
            env = applied.env.extended({definition.operand: k})
            results.append(_defined(definition, result, env, part))
    return results


def evaluate_tensor(let: s.LetTensor, env: Environment) -> Array:
    """The compile-time tensor `let`; the tensors of `env` are arrays, and sizes and scalars its values."""
    sizes: list[int] = []
    indices: list[tuple[str, int | None]] = []
    for binder in let.binders:
        bound = evaluate(binder.bound, env, Target())
        indices.append((binder.name, len(bound) if binder.pack else None))
        sizes.extend(bound if binder.pack else (bound,))
    return _entries(let.body, indices, env, tuple(sizes))


def _defined(definition: s.Def, result: s.Operand, env: Environment, shape: tuple[int, ...]) -> Array:
    """The entries of a result of this shape."""
    names = [p.value if isinstance(p, s.Splice) else p for p in definition.indices]
    packs = [isinstance(p, s.Splice) for p in definition.indices]
    indices: list[tuple[str, int | None]] = []
    for k, name in enumerate(names):
        if not isinstance(name, s.Name):
            raise Mismatch("an index of a definition is a name", name.span)
        length = None
        if packs[k]:
            length = len(shape) - (len(names) - 1) if sum(packs) == 1 else _pack_rank(result.type.dims[k], env)
        indices.append((name.id, length))
    return _entries(definition.body, indices, env, shape)


def _pack_rank(part: object, env: Environment) -> int:
    """Of several packs, each stands for that at its place in the result's shape."""
    assert isinstance(part, s.Splice)
    return len(evaluate(part.value, env, Target()))


def _entries(body: s.Expr, indices: Indices, env: Environment, shape: tuple[int, ...]) -> Array:
    """`body` at each index of a tensor of this shape, in as many parts as the limit on temporaries asks for."""
    whole = tuple((0, n) for n in shape)
    out: Array | None = None
    parts = [whole]
    with np.errstate(all="ignore"):
        while parts:
            box = parts.pop()
            try:
                part = _box(body, indices, env, box, LIMIT)
            except TooLarge as problem:
                halves = _halves(box, problem.shape)
                parts.extend(halves)
                if halves:
                    continue
                part = _box(body, indices, env, box, math.inf)
            if box == whole:
                return part
            if out is None:
                out = np.empty(shape, part.dtype)
            out[tuple(slice(a, b) for a, b in box)] = part
    assert out is not None
    return out


def _box(body: s.Expr, indices: Indices, env: Environment, box: Sequence[tuple[int, int]], limit: float) -> Array:
    """`body` at the indices within a box."""
    ranges = [axis_range(a, b, len(box) - 1 - k) for k, (a, b) in enumerate(box)]
    values: dict[str, Value] = {}
    at = 0
    for name, length in indices:
        values[name] = ranges[at] if length is None else tuple(ranges[at : at + length])
        at += 1 if length is None else length
    value = evaluate(body, env.extended(values), NumpyTarget(len(box), limit))
    return np.array(np.broadcast_to(plain(value), tuple(b - a for a, b in box)))


def _halves(box: Sequence[tuple[int, int]], shape: tuple[int, ...]) -> list[tuple[tuple[int, int], ...]]:
    """The box cut in two along the longest axis on which a temporary of this shape depends; nothing if no cut helps."""
    sizes = shape[max(len(shape) - len(box), 0) :]
    missing = len(box) - len(sizes)
    k = max(range(len(sizes)), key=lambda k: sizes[k], default=-1)
    if k < 0 or sizes[k] < 2:
        return []
    a, b = box[missing + k]
    middle = (a + b) // 2
    before, after = tuple(box[: missing + k]), tuple(box[missing + k + 1 :])
    return [(*before, (a, middle), *after), (*before, (middle, b), *after)]


def _reshaped(applied: Application, operands: Sequence[Array]) -> Array:
    return operands[0].copy().reshape(applied.results[0])


def _concatenated(applied: Application, operands: Sequence[Array]) -> Array:
    return np.concatenate(operands, axis=applied.env.values["axis"])


SHORTCUTS: Mapping[str, Callable[[Application, Sequence[Array]], Array]] = MappingProxyType(
    {"Concat": _concatenated, "Flatten": _reshaped, "Reshape": _reshaped}
)
"""Operators that numpy has, where the definition is much slower on large weights; a test compares them with it."""
