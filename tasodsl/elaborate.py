"""Shapes meet patterns: an operator's declaration applied to operands of given shapes and attributes of given values.

Used over Python integers (evaluation), symbolic dimensions (shape inference of new nodes) and Z3 terms (proofs). A
mismatch that no sizes can mend (rank, arity, a structural condition) is a `Mismatch`; agreements between sizes are
returned
as conditions, because whether they are assumed or proved depends on who asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tasodsl import syntax as s
from tasodsl.graph.dims import SymDim, Undecided, difference_sign, less_equal
from tasodsl.scalar import evaluate, items
from tasodsl.source import Span
from tasodsl.values import Environment, Mismatch, Target, Unsupported, Value, compare

Shape = tuple[Value, ...]


class DimTarget(Target):
    """Python integers and `SymDim`s: the meaning of shapes and conditions in a graph. Undecided demands are let pass:
    they restate what a valid model satisfies. A comparison that the symbols leave open raises `Undecided`."""

    def compare(self, op: str, a: Value, b: Value, span: Span) -> Value:
        if not isinstance(a, SymDim) and not isinstance(b, SymDim):
            return super().compare(op, a, b, span)
        match op:
            case "==" | "!=":
                return (difference_sign(a, b) == 0) == (op == "==")
            case "<=":
                return less_equal(a, b)
            case ">=":
                return less_equal(b, a)
            case "<":
                return difference_sign(a, b) < 0
            case _:
                return difference_sign(a, b) > 0


@dataclass(slots=True)
class Conditions:
    """Size agreements and `require`s found while binding, each with the text it comes from."""

    found: list[tuple[Value, Span, str]] = field(default_factory=list[tuple[Value, Span, str]])

    def add(self, condition: Value, span: Span, why: str) -> None:
        if condition is False:
            raise Mismatch(why, span)
        if condition is not True:
            self.found.append((condition, span, why))


@dataclass(slots=True)
class ShapeBinder:
    """Binds the names of shape patterns to the sizes of actual shapes, in one environment.

    `facts` are the expressions among which `rank(S) == e` is looked for when a shape has two packs.
    """

    env: Environment
    target: Target
    facts: Sequence[s.Expr]
    conditions: Conditions
    late: list[tuple[s.Expr, Value]] = field(default_factory=list[tuple[s.Expr, Value]])

    def bind(self, type_: s.TensorType, shape: Shape, operand: int | None = None) -> None:
        """Match `shape` with the pattern. `operand` is the position in a variadic: its `n[]` is appended to the list
        `n`."""
        pattern = type_.dims
        lengths = self._pack_lengths(type_, len(shape))
        at = 0
        for part in pattern:
            if isinstance(part, s.Splice):
                n = lengths[id(part)]
                self._agree_pack(part, shape[at : at + n])
                at += n
                continue
            self._agree(part, shape[at], operand)
            at += 1

    def _pack_lengths(self, type_: s.TensorType, rank: int) -> dict[int, int]:
        known: dict[int, int] = {}
        unknown: list[s.Splice] = []
        for part in type_.dims:
            if not isinstance(part, s.Splice):
                continue
            if isinstance(part.value, s.Name) and part.value.id not in self.env.values:
                unknown.append(part)
            else:
                known[id(part)] = len(evaluate(part.value, self.env, self.target))
        left = rank - sum(known.values()) - sum(not isinstance(p, s.Splice) for p in type_.dims)
        for part in unknown[:-1]:
            known[id(part)] = self._stated_rank(part)
            left -= known[id(part)]
        if unknown:
            known[id(unknown[-1])] = left
        if left < 0 or (not unknown and left != 0):
            raise Mismatch(f"a tensor of rank {rank} does not have the shape {type_.span.text}", type_.span)
        return known

    def _stated_rank(self, pack: s.Splice) -> int:
        assert isinstance(pack.value, s.Name)
        for fact in self.facts:
            if not isinstance(fact, s.Compare) or len(fact.rest) != 1 or fact.rest[0][0] != "==":
                continue
            sides = (fact.first, fact.rest[0][1])
            for one, other in (sides, sides[::-1]):
                if isinstance(one, s.Call) and one.function in ("rank", "len") and one.args == (pack.value,):
                    value = evaluate(other, self.env, self.target)
                    if isinstance(value, int) and value >= 0:
                        return value
                    if isinstance(value, int):
                        raise Mismatch(f"the rank of {pack.value.id} would be negative", fact.span)
                    raise Unsupported(f"the rank of {pack.value.id} is not known", fact.span)
        raise Unsupported(f"nothing says the rank of {pack.value.id}", pack.span)

    def _agree_pack(self, part: s.Splice, sizes: Shape) -> None:
        if isinstance(part.value, s.Name) and part.value.id not in self.env.values:
            self.env.values[part.value.id] = sizes
            return
        stated = evaluate(part.value, self.env, self.target)
        for a, b in zip(stated, sizes, strict=True):
            self._equal(a, b, part.span)

    def _agree(self, part: s.Expr | s.PerOperand, size: Value, operand: int | None) -> None:
        if isinstance(part, s.PerOperand):
            listed: tuple[Value, ...] = self.env.values.get(part.name, ())
            assert operand is not None
            if operand < len(listed):
                self._equal(listed[operand], size, part.span)
            else:
                self.env.values[part.name] = (*listed, size)
        elif isinstance(part, s.Name) and part.id not in self.env.values:
            self.env.values[part.id] = size
        elif isinstance(part, s.Name | s.Int):
            self._equal(evaluate(part, self.env, self.target), size, part.span)
        else:
            self.late.append((part, size))

    def finish(self) -> None:
        """Solve the dimensions with arithmetic, now that all plain names are bound."""
        for part, size in self.late:
            unbound = sorted({n for n in names(part) if n not in self.env.values and n not in self.env.fns})
            if not unbound:
                self._equal(evaluate(part, self.env, self.target), size, part.span)
                continue
            if len(unbound) > 1:
                raise Unsupported(f"{' and '.join(unbound)} are both unknown in {part.span.text}", part.span)
            self._solve(part, unbound[0], size)
        self.late.clear()

    def _solve(self, part: s.Expr, name: str, size: Value) -> None:
        """`part` is linear in `name`: size = at0 + k * name, with k > 0 and the division exact."""
        t, span = self.target, part.span
        at0, at1 = (evaluate(part, self.env.extended({name: v}), t) for v in (0, 1))
        k = t.binary("-", at1, at0, span)
        rest = t.binary("-", size, at0, span)
        if isinstance(k, int) and k <= 0:
            raise Unsupported(f"{name} cannot be solved from {span.text}", span)
        value = rest if isinstance(k, int) and k == 1 else t.binary("//", rest, k, span)
        self.env.values[name] = value
        self.conditions.add(compare("<=", 0, value, span, t), span, f"{name} is not negative")
        self._equal(evaluate(part, self.env, t), size, span)

    def _equal(self, a: Value, b: Value, span: Span) -> None:
        try:
            same = compare("==", a, b, span, self.target)
        except Undecided:
            return  # restates what a valid model satisfies
        # Written out only where it is needed: printing the sizes of a proof takes longer than comparing them.
        why = f"{a} and {b} are the same size" if same is False else "the sizes agree"
        self.conditions.add(same, span, f"{why} ({span.text})")


def names(e: s.Tree) -> set[str]:
    """The names an expression reads (those bound inside it included)."""
    found: set[str] = set()
    stack: list[Any] = [e]
    while stack:
        node = stack.pop()
        if isinstance(node, s.Name):
            found.add(node.id)
        elif isinstance(node, tuple):
            stack.extend(cast(tuple[Any, ...], node))
        elif isinstance(node, s.Tree):
            stack.extend(getattr(node, f) for f in node.__dataclass_fields__ if f != "span")
    return found


@dataclass(frozen=True, slots=True)
class Application:
    """An operator applied: its environment (packs, sizes, attributes, lets), what validity asks, and the results'
    shapes.

    A variadic result gives a tuple of shapes.
    """

    op: s.OpDecl
    env: Environment
    conditions: tuple[tuple[Value, Span, str], ...]
    results: tuple[Any, ...]


def apply_op(
    op: s.OpDecl,
    fns: Mapping[str, s.FnDecl],
    operands: Sequence[Any],
    attributes: Mapping[str, Value],
    target: Target,
) -> Application:
    """Bind `op` to operands with a `shape` (None for absent; the variadic operand takes all that is left) and
    attributes.

    `attributes` may leave out those with defaults. Raises `Mismatch` when the call cannot be valid for any sizes.
    """
    env = Environment(fns, {}, {})
    conditions = Conditions()
    facts = [r.condition for r in op.requires]
    given = split_operands(op, operands)
    for declared, actual in zip(op.operands, given, strict=True):
        env.tensors[declared.name] = actual
    base_rank = next((len(o.shape) for o in operands if o is not None), 0)
    for attr in op.attrs:
        if attr.name in attributes:
            value = attributes[attr.name]
        elif attr.default is not None:
            value = evaluate(attr.default, env, target)
        else:
            raise Mismatch(f"{op.name} needs the attribute {attr.name}", attr.span)
        env.values[attr.name] = resolve_axis(attr.type, value, base_rank, op.name)
    binder = ShapeBinder(env, target, facts, conditions)
    for declared, actual in zip(op.operands, given, strict=True):
        if declared.variadic:
            for k, tensor in enumerate(actual):
                binder.bind(declared.type, tensor.shape, k)
        elif actual is not None:
            binder.bind(declared.type, actual.shape)
        elif not declared.optional:
            raise Mismatch(f"{op.name} needs the operand {declared.name}", declared.span)
    binder.finish()
    for attr in op.attrs:
        _check_length(attr, env, target)
    for clause in op.clauses:
        if isinstance(clause, s.LetScalar):
            env.values[clause.name] = evaluate(clause.value, env, target)
        elif isinstance(clause, s.Require):
            try:
                conditions.add(evaluate(clause.condition, env, target), clause.span, f"{op.name} requires it")
            except Undecided:
                continue
    results: list[Any] = []
    for result in op.results:
        if result.variadic:
            results.append(variadic_result(result, env, target))
        else:
            shape = shape_of(result.type, env, target)
            results.append(shape)
    return Application(op, env, tuple(conditions.found), tuple(results))


def split_operands(op: s.OpDecl, operands: Sequence[Any]) -> list[Any]:
    """Operands by declaration: absent optionals filled in, a variadic's as a tuple."""
    given: list[Any] = []
    rest = list(operands)
    for k, declared in enumerate(op.operands):
        if declared.variadic:
            after = len(op.operands) - k - 1
            taken = rest[: len(rest) - after]
            rest = rest[len(rest) - after :]
            if not taken:
                raise Mismatch(f"{op.name} needs at least one operand", declared.span)
            given.append(tuple(taken))
        else:
            given.append(rest.pop(0) if rest else None)
    if rest:
        raise Mismatch(f"{op.name} takes at most {len(op.operands)} operands", op.span)
    return given


def resolve_axis(type_: s.AttrType, value: Value, rank: int, op: str) -> Value:
    """Negative axes counted from the end of the first operand's rank (Unsqueeze: of the result's); flags as `bool`."""
    if type_.kind == "bool" and isinstance(value, int):
        return bool(value)
    if type_.kind == "axis" and isinstance(value, int) and value < 0:
        return value + rank
    if type_.kind == "axes" and isinstance(value, tuple):
        axes = cast(tuple[Value, ...], value)
        whole = rank + len(axes) if op == "Unsqueeze" else rank
        return tuple(sorted(a + whole if isinstance(a, int) and a < 0 else a for a in axes))
    return value


def _check_length(attr: s.AttrDecl, env: Environment, target: Target) -> None:
    value, length = env.values[attr.name], attr.type.length
    if length is None or length == "any":
        return
    wanted = evaluate(length, env, target)
    if not isinstance(value, tuple) or len(value) != wanted:  # pyright: ignore[reportUnknownArgumentType]
        raise Mismatch(f"{attr.name} has {wanted} entries", attr.span)


def shape_of(type_: s.TensorType, env: Environment, target: Target) -> Shape:
    """The sizes that a shape with all names bound stands for."""
    parts: list[s.Expr | s.Splice] = []
    for part in type_.dims:
        if isinstance(part, s.PerOperand):
            raise Unsupported(f"{part.name}[] has no single size", part.span)
        parts.append(part)
    return items(parts, env, target)


def variadic_result(result: s.Operand, env: Environment, target: Target) -> tuple[Shape, ...]:
    """Split's results: one for each element of the list that stands as `n[]`."""
    (per,) = (p for p in result.type.dims if isinstance(p, s.PerOperand))
    sizes: tuple[Value, ...] = env.values[per.name]
    shapes: list[Shape] = []
    for size in sizes:
        dims: list[Value] = []
        for part in result.type.dims:
            if isinstance(part, s.PerOperand):
                dims.append(size)
            elif isinstance(part, s.Splice):
                dims.extend(evaluate(part.value, env, target))
            else:
                dims.append(evaluate(part, env, target))
        shapes.append(tuple(dims))
    return tuple(shapes)
