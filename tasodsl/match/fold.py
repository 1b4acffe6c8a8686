"""Tensors known at compile time: `let`s and operators over constants, computed when first read.

A folded tensor is a recipe with a key made from its definition and the keys of what it reads, so that a search can hold
thousands of graphs without computing a weight twice. Numbers are computed in float64 through a whole chain of folds and
rounded once, where the tensor becomes an operand.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasodsl import syntax as s
from tasodsl.elaborate import names
from tasodsl.evaluate import evaluate_op, evaluate_tensor
from tasodsl.graph.dtypes import FLOATS, numpy_dtype
from tasodsl.graph.graph import AttributeValue, Constant
from tasodsl.match.target import as_value
from tasodsl.ruleset import RuleSet
from tasodsl.values import Environment, Value

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Fold:
    """A tensor to be computed. `dtype` is "" where it takes that of its neighbours; `moves` where no entry is computed;
    `sources` are the constants that it is made from; `name` is set where the graph has it as a constant already."""

    key: str
    shape: tuple[int, ...]
    dtype: str
    compute: Callable[[], Array]
    moves: bool
    sources: tuple[Constant, ...] = ()
    name: str = ""

    def of_dtype(self, dtype: str) -> Fold:
        return self if self.dtype else replace(self, dtype=dtype, key=digest(self.key, dtype))

    def entries(self) -> Array:
        """The tensor before it is rounded: real numbers are floating (a number in the text may be an integer)."""
        computed = np.asarray(self.compute())
        return computed.astype(np.float64) if self.dtype in FLOATS and computed.dtype.kind in "biu" else computed

    def constant(self) -> Constant:
        """The tensor rounded to its dtype."""
        shape, dtype, entries = self.shape, self.dtype, self.entries
        return Constant(self.key, shape, dtype, lambda: rounded(entries(), dtype).reshape(shape))


class NotFinite(Exception):
    """A fold of finite tensors has an infinite entry, or one that is not a number."""


class FoldedConstants:
    """The constants made by folds, the latest of them kept: a search makes the same rewrite in many graphs."""

    def __init__(self, kept_bytes: int = 1 << 28) -> None:
        self._kept: OrderedDict[str, Constant | None] = OrderedDict()
        self._left = kept_bytes

    def constant(self, fold: Fold) -> Constant:
        """The fold as a constant; `NotFinite` when it has such entries although its sources have none."""
        if fold.key not in self._kept:
            made = fold.constant()
            kept = self._kept[fold.key] = made if _stays_finite(made, fold) else None
            self._left -= 0 if kept is None else kept.nbytes
            while self._left < 0 and len(self._kept) > 1:
                _, oldest = self._kept.popitem(last=False)
                self._left += 0 if oldest is None else oldest.nbytes
        self._kept.move_to_end(fold.key)
        constant = self._kept[fold.key]
        if constant is None:
            raise NotFinite
        return constant


def _stays_finite(constant: Constant, fold: Fold) -> bool:
    if fold.moves or constant.dtype not in FLOATS or _finite(constant.array()):
        return True
    return not all(s.dtype not in FLOATS or _finite(s.array()) for s in fold.sources)


def _finite(array: Array) -> bool:
    return bool(np.all(np.isfinite(array)))


def rounded(array: Array, dtype: str) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(array).astype(numpy_dtype(dtype), copy=False)


def digest(*parts: object) -> str:
    return hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=16).hexdigest()


def of_constant(name: str, constant: Constant) -> Fold:
    return Fold(constant.key, constant.shape, constant.dtype, constant.array, True, (constant,), name)


def of_number(value: Value) -> Fold:
    """A number as a tensor of rank 0."""
    exact = value if isinstance(value, int) else float(value)
    text = repr(Fraction(exact)) if not isinstance(exact, bool) and np.isfinite(exact) else repr(exact)
    # Not moved: rounding it to a small dtype may overflow.
    return Fold(digest("number", text), (), "", lambda: np.asarray(exact), False)


def of_operator(
    op: s.OpDecl,
    rules: RuleSet,
    operands: Sequence[Fold | None],
    attributes: tuple[tuple[str, AttributeValue], ...],
    results: Sequence[tuple[tuple[int, ...], str]],
) -> list[Fold]:
    """The results of an operator all of whose operands are folds, by the operator's definition."""
    types = {a.name: a.type for a in op.attrs}
    values = {name: as_value(types[name], value) for name, value in attributes}
    present = [o for o in operands if o is not None]
    moves = all(o.moves for o in present) and all(_only_moves(d.body) for d in op.defs)
    sources = tuple(c for o in present for c in o.sources)
    key = digest(op.name, attributes, *(None if o is None else (o.key, o.dtype) for o in operands))

    def run() -> list[Array]:
        arrays = [None if o is None else o.entries() for o in operands]
        with np.errstate(all="ignore"):
            return evaluate_op(op, rules.fns, arrays, values)

    def result(k: int) -> Callable[[], Array]:
        return lambda: run()[k]

    return [
        Fold(digest(key, k, dtype), shape, dtype, result(k), moves, sources) for k, (shape, dtype) in enumerate(results)
    ]


def of_let(
    let: s.LetTensor, env: Environment, operands: Mapping[str, Fold | None], shape: tuple[int, ...], dtype: str
) -> Fold:
    """A `let` tensor; `operands` are the folds that its body may read, by name: None where one is absent."""
    mentioned = names(let)
    read = {n: f for n, f in operands.items() if n in mentioned}
    bound = sorted((n, repr(v)) for n, v in env.values.items() if n in mentioned)
    fns = [env.fns[n] for n in sorted(mentioned_functions(let, env))]
    keys = sorted((n, None if f is None else f.key) for n, f in read.items())
    key = digest("let", let.binders, let.body, bound, fns, keys, dtype)
    present = [f for f in read.values() if f is not None]

    def compute() -> Array:
        arrays: dict[str, Any] = {n: None if f is None else f.entries() for n, f in read.items()}
        with np.errstate(all="ignore"):
            return evaluate_tensor(let, Environment(env.fns, env.values, arrays))

    moves = _only_moves(let.body) and all(f.moves for f in present)
    return Fold(key, shape, dtype, compute, moves, tuple(c for f in present for c in f.sources))


def mentioned_functions(tree: s.Tree, env: Environment) -> set[str]:
    """The declared functions that a tree calls, through others as well."""
    found: set[str] = set()
    stack: list[Any] = [tree]
    while stack:
        node: Any = stack.pop()
        if isinstance(node, tuple):
            stack.extend(node)  # pyright: ignore[reportUnknownArgumentType]
            continue
        if not isinstance(node, s.Tree):
            continue
        if isinstance(node, s.Call) and node.function in env.fns and node.function not in found:
            found.add(node.function)
            stack.append(env.fns[node.function].body)
        stack.extend(getattr(node, f) for f in node.__dataclass_fields__ if f != "span")
    return found


def _only_moves(body: s.Expr) -> bool:
    """Whether a definition only picks entries: reads, choices between reads, and small literal numbers."""
    match body:
        case s.Index():
            return body.default is None or _only_moves(body.default)
        case s.IfExpr():
            return _only_moves(body.then) and _only_moves(body.otherwise)
        case s.Int() | s.Real():
            return abs(body.value) <= 60_000  # finite in every floating dtype of ONNX with 16 bits or more
        case _:
            return False
