"""Concrete instances of a rule: ranks, sizes, attributes and entries for which the match side is a valid model.

An instance is found by choosing at random and dropping what does not fit the match side and the `where`s; each choice
has a name, so that an instance can be made again with one choice changed (to make it smaller) or with choices that an
`example` or a solver's model gives. The names are those of a proof's symbols (`cases`): models are used as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tasodsl import syntax as s
from tasodsl.elaborate import apply_op, names, resolve_axis
from tasodsl.evaluate import evaluate_op, evaluate_tensor
from tasodsl.match.target import TARGET
from tasodsl.prove.obligations import Pattern
from tasodsl.prove.walk import Attributes, Walk
from tasodsl.ruleset import RuleSet
from tasodsl.scalar import evaluate
from tasodsl.source import Span
from tasodsl.values import Environment, Mismatch, Target, Value

Array = NDArray[Any]
Arrays = dict[str, Any]
"""Arrays by the name of a variable or result: None where absent, a tuple for a variadic."""

REALS = tuple(Fraction(x) for x in ("1", "2", "0", "-1", "1/2", "3", "1/3", "1/4", "6", "1/6", "1/9", "-2"))
CLASS_DTYPES: Mapping[str, tuple[str, ...]] = {
    "float": ("float32", "float64"),
    "half": ("float16", "bfloat16"),
    "int": ("int64", "int32"),
    "bool": ("bool",),
    "any": ("float32", "int64", "bool", "float64", "int32", "float16"),
}


@dataclass(slots=True)
class Choices:
    """Where an instance's choices come from: given ones, and the rest at random or (without `rng`) the simplest.

    `size` bounds sizes and integer attributes, `rank` the ranks and `arity` the numbers of operands.
    """

    given: Mapping[str, Value] = field(default_factory=dict[str, Value])
    rng: Random | None = None
    size: int = 3
    rank: int = 3
    arity: int = 3
    usual: bool = False
    """Attributes that have a default take it, and optional operands are present."""
    made: dict[str, Value] = field(default_factory=dict[str, Value])

    def pick(self, name: str, options: Sequence[Value]) -> Value:
        """The choice called `name`: one of `options`, the simplest first."""
        if name in self.given:
            chosen = self.given[name]
        elif not options:
            raise Mismatch(f"nothing to choose for {name}")
        else:
            chosen = options[0] if self.rng is None else self.rng.choice(options)
        self.made[name] = chosen
        return chosen

    def settles(self, name: str) -> bool:
        """Whether the value of `name`, or one of its entries, is given."""
        return name in self.given or f"length of {name}" in self.given or f"{name}[0]" in self.given


@dataclass(frozen=True, slots=True)
class Shaped:
    """A tensor known by shape and dtype; no dtype for a number that takes its neighbour's."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Instance:
    """A match side with all but its entries chosen, and what the rewrite side makes of it."""

    pattern: Pattern
    rules: RuleSet
    choices: Mapping[str, Value]
    values: Mapping[str, Value]
    """Sizes, packs, attributes and numbers by the rule's own names."""
    rests: Mapping[str, Attributes]
    variables: Mapping[str, Any]
    """`Shaped` by variable."""
    left: Mapping[str, Shaped]
    right: Mapping[str, Shaped]
    problem: tuple[str, Span] | None
    """Why the rewrite side is not valid, or another type than the match side."""

    @property
    def elements(self) -> int:
        """How many entries its variables have."""
        return sum(int(np.prod(t.shape)) for t in self.operands().values())

    def operands(self) -> dict[str, Shaped]:
        """The variables that are present, a variadic's one by one (`xs[0]`, …)."""
        return dict(members(self.variables))

    def environment(self, tensors: Mapping[str, Any]) -> Environment:
        return Environment(self.rules.fns, dict(self.values), dict(tensors))


def members(tensors: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Names and tensors, a variadic's one by one and absent ones left out."""
    out: list[tuple[str, Any]] = []
    for name, tensor in tensors.items():
        if isinstance(tensor, tuple):
            listed = cast(tuple[Any, ...], tensor)
            out.extend((f"{name}[{k}]", t) for k, t in enumerate(listed))
        elif tensor is not None:
            out.append((name, tensor))
    return out


class _Shapes:
    """Operators made into the shapes of their results; whatever they require must hold."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules

    def scalar(self, value: Value) -> Shaped:
        return Shaped((), "")

    def apply(
        self, op: s.OpDecl, operands: Sequence[Shaped | None], attributes: Attributes, term: s.Apply
    ) -> list[Shaped]:
        try:
            applied = apply_op(op, self.rules.fns, operands, attributes, Target())
        except Mismatch as mismatch:
            raise Mismatch(f"{op.name} {_complaint(mismatch)}", term.span) from None
        dtype = result_dtype(op, operands, attributes, term)
        shapes: list[tuple[int, ...]] = []
        for result, shape in zip(op.results, applied.results, strict=True):
            shapes.extend(shape if result.variadic else [shape])
        for shape in shapes:
            if any(d < 0 for d in shape):
                raise Mismatch(f"{op.name} would have a result of negative size", term.span)
        return [Shaped(shape, dtype) for shape in shapes]


def _complaint(mismatch: Mismatch) -> str:
    """What an operator has against its operands."""
    text = " ".join(mismatch.span.text.split())
    if text.startswith("require "):
        return f"requires {text.removeprefix('require ')}"
    return (
        f"does not take these operands: not so: {mismatch}" if "same size" in str(mismatch) else f"cannot: {mismatch}"
    )


def result_dtype(op: s.OpDecl, operands: Sequence[Shaped | None], attributes: Attributes, term: s.Apply) -> str:
    """The dtype that an operator's results have; `Mismatch` where its operands' dtypes differ."""
    shared = ""
    for k, tensor in enumerate(operands):
        declared = op.operands[min(k, len(op.operands) - 1)]
        if tensor is None or not tensor.dtype or declared.type.dtype in ("int", "bool"):
            continue
        if shared and tensor.dtype != shared:
            raise Mismatch(f"the operands of {op.name} have different dtypes", term.span)
        shared = tensor.dtype
    if op.name == "Cast":
        return str(attributes["to"])
    return "bool" if op.results[0].type.dtype == "bool" else shared


def build(pattern: Pattern, rules: RuleSet, choices: Choices, conditions: bool = True) -> Instance:
    """An instance by `choices`; `Mismatch` when they do not make a valid match side for which the `where`s hold.
    Without `conditions` only the match side is made, whether they hold or not."""
    env = Environment(rules.fns, {}, {})
    for v in pattern.variables:
        _declare(v, env, choices, rules, pattern)
    variables = dict(env.tensors)
    walk = Walk(rules, _Shapes(rules), env, {}, _attribute_binder(choices))
    left = walk.side(pattern.match)
    if not conditions:
        return Instance(pattern, rules, choices.made, env.values, walk.rests, variables, left, {}, None)
    for w in pattern.wheres:
        if evaluate(w.condition, env, TARGET) is not True:
            raise Mismatch("a condition does not hold", w.span)
    walk.bind = None
    for let in pattern.lets:
        _declare_let(let, env)
    problem: tuple[str, Span] | None = None
    right: dict[str, Shaped] = {}
    try:
        right = walk.side(pattern.rewrite)
        problem = _different_types(left, right, pattern)
    except Mismatch as mismatch:
        problem = (str(mismatch), mismatch.span)
    return Instance(pattern, rules, choices.made, env.values, walk.rests, variables, left, right, problem)


def _different_types(
    left: Mapping[str, Shaped], right: Mapping[str, Shaped], pattern: Pattern
) -> tuple[str, Span] | None:
    for bind in pattern.rewrite:
        for name in bind.names:
            if name not in left or name not in right:
                continue
            a, b = left[name], right[name]
            if a.shape != b.shape:
                return f"{name} has the shape {list(a.shape)} and would have the shape {list(b.shape)}", bind.span
            if b.dtype and a.dtype != b.dtype:
                return f"{name} is {a.dtype} and would be {b.dtype}", bind.span
    return None


# --- choosing ---


def _declare(v: s.Operand, env: Environment, choices: Choices, rules: RuleSet, pattern: Pattern) -> None:
    if v.optional and not choices.pick(f"{v.name} present", (True,) if choices.usual else (True, True, False)):
        env.tensors[v.name] = None
    elif v.variadic:
        arity = choices.pick(f"operands of {v.name}", range(1, choices.arity + 1))
        env.tensors[v.name] = tuple(_variable(v, k, env, choices, rules, pattern) for k in range(arity))
    else:
        env.tensors[v.name] = _variable(v, None, env, choices, rules, pattern)


def _variable(
    v: s.Operand, position: int | None, env: Environment, choices: Choices, rules: RuleSet, pattern: Pattern
) -> Shaped:
    shape: list[Value] = []
    for part in v.type.dims:
        if isinstance(part, s.PerOperand):
            listed: tuple[Value, ...] = env.values.get(part.name, ())
            assert position is not None
            if position == len(listed):
                listed = (*listed, _size(f"{part.name}[{position}]", choices))
                env.values[part.name] = listed
            shape.append(listed[position])
        elif isinstance(part, s.Splice):
            if isinstance(part.value, s.Name) and part.value.id not in env.values:
                pack = part.value.id
                rank = choices.pick(f"rank of {pack}", range(choices.rank + 1))
                env.values[pack] = tuple(_size(f"{pack}[{k}]", choices) for k in range(rank))
            shape.extend(evaluate(part.value, env, TARGET))
        else:
            for name in sorted(names(part)):
                if name not in env.values and name not in rules.fns:
                    env.values[name] = _size(name, choices)
            shape.append(evaluate(part, env, TARGET))
    if any(d < 0 for d in shape):
        raise Mismatch("a size is negative")
    if v.value is not None and isinstance(v.value, s.Name) and v.value.id not in env.values:
        env.values[v.value.id] = choices.pick(v.value.id, REALS)
    return Shaped(tuple(shape), _dtype(v, choices, pattern))


def _dtype(v: s.Operand, choices: Choices, pattern: Pattern) -> str:
    """The first dtype of its class, unless the rule asks for dtypes: then any of the class."""
    options = CLASS_DTYPES[v.type.dtype or "float"]
    asked = any(speaks_of_dtypes(w.condition) for w in pattern.wheres)
    return choices.pick(f"dtype of {v.name}", options) if asked else options[0]


def speaks_of_dtypes(e: s.Tree) -> bool:
    """Whether an expression contains `dtype(…)`."""
    stack: list[Any] = [e]
    while stack:
        node = stack.pop()
        if isinstance(node, s.Call) and node.function == "dtype":
            return True
        if isinstance(node, tuple):
            parts = cast(tuple[Any, ...], node)
            stack.extend(parts)
        elif isinstance(node, s.Tree):
            stack.extend(getattr(node, f) for f in node.__dataclass_fields__ if f != "span")
    return False


def _size(name: str, choices: Choices) -> Value:
    return choices.pick(name, (2, 1, *range(3, choices.size + 1), 0) if choices.size > 1 else (1, 0))


def _attribute_binder(choices: Choices):
    """Chooses attributes: often the default, so that a valid call is not rare."""

    def choose(attr: s.AttrDecl, name: str, operands: Sequence[Any]) -> Value:
        default = None if attr.default is None else evaluate(attr.default, Environment(), TARGET)
        rank = next((len(o.shape) for o in operands if o is not None), 0)
        kind, length = attr.type.kind, attr.type.length
        if choices.usual and default is not None and not choices.settles(name):
            return choices.pick(name, (resolve_axis(attr.type, default, rank, ""),))
        match kind:
            case "bool":
                return choices.pick(name, (bool(default), not default))
            case "axis":
                return choices.pick(name, range(rank + 1))
            case "axes":
                top = rank + 1
                return choices.pick(name, [c for n in range(top + 1) for c in itertools.combinations(range(top), n)])
            case "perm":
                return choices.pick(name, list(itertools.permutations(range(rank))))
            case "dtype":
                return choices.pick(name, ("float32", "int64", "bool", "float64", "int32", "float16"))
            case "choice":
                return choices.pick(name, attr.type.choices)
            case _:
                pass
        options: Sequence[Value] = REALS if kind == "real" else (1, 0, *range(2, choices.size + 1), -1)
        if length is None:
            return choices.pick(name, options if default is None else (default, *options))
        count = length.value if isinstance(length, s.Int) else None
        if count is None:
            count = choices.pick(f"length of {name}", (rank, 2 * rank, rank, 2 * rank, 1, 2, 3, 0))
        entries: list[Value] = []
        listed = cast(tuple[Value, ...], default) if isinstance(default, tuple) else ()
        for k in range(count):
            usual = (listed[k],) * len(options) if len(listed) == count else ()
            entries.append(choices.pick(f"{name}[{k}]", (*usual, *options)))
        return tuple(entries)

    return choose


def _declare_let(let: s.LetScalar | s.LetTensor, env: Environment) -> None:
    if isinstance(let, s.LetScalar):
        env.values[let.name] = evaluate(let.value, env, TARGET)
        return
    shape: list[int] = []
    for b in let.binders:
        bound = evaluate(b.bound, env, TARGET)
        shape.extend(bound if b.pack else (bound,))
    if any(d < 0 for d in shape):
        raise Mismatch(f"{let.name} would have a negative size", let.span)
    env.tensors[let.name] = Shaped(tuple(shape), "")


# --- entries ---

KINDS = ("integers", "positive", "normal")
"""Kinds of entries: small integers, which are easy to read; positive numbers, for variances and logarithms; any."""


def draw(instance: Instance, rng: np.random.Generator, kind: str) -> Arrays:
    """Entries for the variables."""
    declared = {v.name: v for v in instance.pattern.variables}
    out: Arrays = {}
    for name, tensor in instance.variables.items():
        if tensor is None:
            out[name] = None
        elif isinstance(tensor, tuple):
            listed = cast(tuple[Shaped, ...], tensor)
            out[name] = tuple(_draw_one(declared[name], t, instance, rng, kind) for t in listed)
        else:
            out[name] = _draw_one(declared[name], tensor, instance, rng, kind)
    return out


def _draw_one(v: s.Operand, tensor: Shaped, instance: Instance, rng: np.random.Generator, kind: str) -> Array:
    return np.asarray(_entries(v, tensor, instance, rng, kind))


def _entries(v: s.Operand, tensor: Shaped, instance: Instance, rng: np.random.Generator, kind: str) -> Any:
    if v.value is not None:
        number = evaluate(v.value, instance.environment({}), TARGET)
        return np.full(tensor.shape, float(number), np.float64)
    if tensor.dtype == "bool":
        return rng.integers(0, 2, tensor.shape).astype(bool)
    if tensor.dtype.startswith(("int", "uint")):
        return rng.integers(-2, 3, tensor.shape)
    match kind:
        case "integers":
            return rng.integers(-3, 4, tensor.shape).astype(np.float64)
        case "positive":
            return rng.integers(1, 5, tensor.shape) / 2
        case _:
            return rng.standard_normal(tensor.shape)


class _Arrays:
    """Operators made into arrays by their definitions."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules

    def scalar(self, value: Value) -> Array:
        return np.asarray(float(value))

    def apply(
        self, op: s.OpDecl, operands: Sequence[Array | None], attributes: Attributes, term: s.Apply
    ) -> list[Array]:
        return evaluate_op(op, self.rules.fns, operands, attributes)


def left_values(instance: Instance, entries: Arrays) -> Arrays:
    """The results of the match side; `Mismatch` where these entries are not valid (an index beyond its axis)."""
    walk = Walk(instance.rules, _Arrays(instance.rules), instance.environment(entries), dict(instance.rests))
    return walk.side(instance.pattern.match)


def right_values(instance: Instance, entries: Arrays, left: Arrays) -> Arrays | None:
    """The results of the rewrite side. None where a compile-time tensor would not be finite: then the rule does not
    apply. `left` holds what the match side made, which the rewrite side may read."""
    env = instance.environment({**entries, **left})
    for let in instance.pattern.lets:
        if isinstance(let, s.LetTensor):
            made = evaluate_tensor(let, env)
            if not np.isfinite(made.astype(np.float64)).all():
                return None
            env.tensors[let.name] = made
    walk = Walk(instance.rules, _Arrays(instance.rules), env, dict(instance.rests))
    return walk.side(instance.pattern.rewrite)
