"""Applying a match: the rewrite side built over the values that the match bound.

Operators over constants are folded, new inner values are named by their definition, and replaced values keep their
names. A rewrite refuses (`None`) rather than guess: where a result would not have the rank and dtype of the value it
replaces, where a size stays open that an attribute needs, where a fold overflows, where the runtime has no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tasodsl import syntax as s
from tasodsl.elaborate import DimTarget, apply_op, names, resolve_axis
from tasodsl.graph.dims import Shape, Undecided
from tasodsl.graph.graph import AttributeValue, Constant, Graph, Node, ValueInfo, fresh_name
from tasodsl.match.api import Match
from tasodsl.match.fold import (
    Fold,
    FoldedConstants,
    NotFinite,
    of_constant,
    of_let,
    of_number,
    of_operator,
)
from tasodsl.match.pattern import Pattern, members
from tasodsl.match.questions import crosses
from tasodsl.match.target import TARGET, as_attribute, as_value
from tasodsl.scalar import evaluate
from tasodsl.values import Environment, Mismatch

Supported = Callable[[str, str], bool]
"""Whether the runtime can execute an operator on operands of a dtype."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operand of a new node that is computed at run time."""

    name: str
    dtype: str
    shape: Shape


Operand = Tensor | Fold | None
"""None is an absent operand."""


class Refused(Exception):
    """The rewrite cannot be made here."""


def apply_match(
    pattern: Pattern, graph: Graph, match: Match, supported: Supported, folded: FoldedConstants
) -> Graph | None:
    """The graph after the rewrite, or None where it refuses."""
    try:
        return _Rewriting(pattern, graph, match, supported, folded).result()
    except (Refused, Mismatch, Undecided, NotFinite):
        return None


class _Rewriting:
    def __init__(
        self, pattern: Pattern, graph: Graph, match: Match, supported: Supported, folded: FoldedConstants
    ) -> None:
        self.pattern = pattern
        self.graph = graph
        self.supported = supported
        self.folded = folded
        self.nodes: dict[str, Node] = {}
        self.constants: dict[str, Constant] = {}
        self.info: dict[str, ValueInfo] = {}
        self.redirected: dict[str, str] = {}
        self.bound: dict[str, Any] = {}
        self.rests: dict[str, dict[str, AttributeValue]] = {}
        values: dict[str, Any] = {}
        for name, value in match.binding:
            if name.startswith("%"):
                self.bound[name[1:]] = value
            elif name.startswith(".."):
                pairs: Any = value
                self.rests[name[2:]] = dict(pairs)
            else:
                values[name] = value
        self.targets = frozenset(self.bound[n] for n in pattern.outputs)
        self.removed = frozenset(graph.producer[v] for v in self.targets)
        self.local: dict[str, Operand] = {}
        self.env = Environment(pattern.rules.fns, values, self._infos())
        self.dtype = next((d for n in pattern.outputs if (d := graph.dtype(self.bound[n]))), "")

    def result(self) -> Graph:
        for let in self.pattern.rule.lets:
            if isinstance(let, s.LetScalar):
                self.env.values[let.name] = evaluate(let.value, self.env, TARGET)
            else:
                self.local[let.name] = self._let(let)
        for bind in self.pattern.rewrite:
            self._bind(bind)
        redirected = {old: self._end(old) for old in self.redirected}
        return self.graph.rewrite(
            sorted(self.removed), list(self.nodes.values()), self.constants, self.info, redirected
        )

    def _infos(self) -> dict[str, Any]:
        """What expressions may ask of operands: `dtype(x)`, `present(b)`."""
        found: dict[str, Any] = {}
        for name, value in self.bound.items():
            infos = tuple(self.graph.info.get(v) for v in members(value))
            found[name] = infos if isinstance(value, tuple) else infos[0] if infos else None
        return found

    def _end(self, value: str) -> str:
        """Where a redirected value leads."""
        seen = {value}
        while value in self.redirected:
            value = self.redirected[value]
            if value in seen:
                raise Refused
            seen.add(value)
        return value

    # --- binds ---

    def _bind(self, bind: s.Bind) -> None:
        wanted = [self.bound[n] if n in self.pattern.outputs else "" for n in bind.names]
        made = self._apply(bind.term, wanted) if isinstance(bind.term, s.Apply) else [self._term(bind.term)]
        if len(made) < len(wanted):
            raise Refused
        for name, value, operand in zip(bind.names, wanted, made, strict=False):
            if not value:
                self.local[name] = operand
                continue
            if operand is None:
                raise Refused
            operand = operand.of_dtype(self.graph.dtype(value)) if isinstance(operand, Fold) else operand
            self._demand_same(value, operand)
            source = self._name(operand)
            if source != value:
                self.redirected[value] = source

    def _demand_same(self, value: str, operand: Tensor | Fold) -> None:
        """Refuse unless `operand` has the dtype and rank of the value it replaces, and no other known size."""
        known = self.graph.info.get(value)
        if known is None:
            return
        if known.dtype and known.dtype != operand.dtype:
            raise Refused
        if known.shape is None:
            return
        if len(known.shape) != len(operand.shape):
            raise Refused
        for old, new in zip(known.shape, operand.shape, strict=True):
            if isinstance(old, int) and isinstance(new, int) and old != new:
                raise Refused

    def _let(self, let: s.LetTensor) -> Fold:
        folds: dict[str, Fold | None] = {}
        for name, value in self.bound.items():
            if value == "":
                folds[name] = None
            elif value in self.graph.constants:
                folds[name] = of_constant(value, self.graph.constants[value])
        folds.update({n: f for n, f in self.local.items() if isinstance(f, Fold)})
        sizes: list[Any] = []
        for binder in let.binders:
            bound = evaluate(binder.bound, self.env, TARGET)
            sizes.extend(bound if binder.pack else (bound,))
        if not all(_is_size(n) for n in sizes):
            raise Refused
        read = names(let.body)
        dtypes = {f.dtype for n, f in folds.items() if n in read and f is not None and f.dtype}
        if len(dtypes) > 1:
            raise Refused
        return of_let(let, self.env, folds, tuple(sizes), next(iter(dtypes), ""))

    # --- terms ---

    def _term(self, term: s.Term) -> Operand:
        match term:
            case s.Apply():
                return self._apply(term, [])[0]
            case s.Absent():
                return None
            case s.Literal():
                return of_number(evaluate(term.value, self.env, TARGET))
            case s.Var():
                return self._var(term.name)
            case _:
                raise Refused

    def _var(self, name: str) -> Operand:
        if name in self.local:
            return self.local[name]
        if name not in self.bound:
            return of_number(self.env.values[name]) if name in self.env.values else None
        value = self.bound[name]
        return self._value(value) if value else None

    def _value(self, value: str) -> Tensor | Fold:
        constant = self.graph.constants.get(value)
        if constant is not None:
            return of_constant(value, constant)
        info = self.graph.info.get(value)
        if info is None or info.shape is None:
            raise Refused
        return Tensor(value, info.dtype, info.shape)

    def _operands(self, args: Sequence[s.Term]) -> list[Operand]:
        found: list[Operand] = []
        for arg in args:
            if isinstance(arg, s.Variadic):
                found.extend(self._value(v) for v in self.bound[arg.name])
            elif isinstance(arg, s.VariadicMap):
                shadowed = self.bound.get(arg.variable)
                for member in self.bound[arg.source]:
                    self.bound[arg.variable] = member
                    found.append(self._term(arg.term))
                del self.bound[arg.variable]
                if shadowed is not None:
                    self.bound[arg.variable] = shadowed
            else:
                found.append(self._term(arg))
        return found

    def _apply(self, term: s.Apply, wanted: Sequence[str]) -> list[Operand]:
        """The results of an operator: folds, or values of a node that is made (or was there already)."""
        op = self.pattern.declaration(term.op)
        operands = self._operands(term.args)
        while operands and operands[-1] is None:
            operands.pop()
        classes = _classes(op, len(operands))
        shared = ("float", "half", "any")
        given = (o.dtype for o, c in zip(operands, classes, strict=True) if o and o.dtype and c in shared)
        dtype = next(given, self.dtype)
        operands = [
            o.of_dtype(dtype if c in shared else "int64" if c == "int" else "bool") if isinstance(o, Fold) else o
            for o, c in zip(operands, classes, strict=True)
        ]
        rank = len(operands[0].shape) if operands and operands[0] is not None else 0
        attributes = self._attributes(term, op, rank)
        types = {a.name: a.type for a in op.attrs}
        applied = apply_op(
            op, self.pattern.rules.fns, operands, {n: as_value(types[n], v) for n, v in attributes}, DimTarget()
        )
        results: list[tuple[Shape, str]] = []
        for declared, shape in zip(op.results, applied.results, strict=True):
            shapes: tuple[Shape, ...] = shape if declared.variadic else (shape,)
            results.extend((sh, _result_dtype(op, declared, dict(attributes), dtype)) for sh in shapes)
        folds = [o for o in operands if isinstance(o, Fold)]
        if operands and len(folds) == sum(o is not None for o in operands):
            known = [(tuple(d for d in sh if isinstance(d, int)), dt) for sh, dt in results]
            known_operands = [o for o in operands if not isinstance(o, Tensor)]
            return [*of_operator(op, self.pattern.rules, known_operands, attributes, known)]
        kernels = [o.dtype for o, c in zip(operands, classes, strict=True) if o and c in shared]
        if not self.supported(op.name, next(iter(kernels), next((o.dtype for o in operands if o), ""))):
            raise Refused
        return [*self._node(op.name, operands, attributes, results, wanted)]

    def _attributes(self, term: s.Apply, op: s.OpDecl, rank: int) -> tuple[tuple[str, AttributeValue], ...]:
        written = {a.name: a.value for a in term.attrs}
        taken = self.rests[term.rest] if term.rest is not None else {}
        found: list[tuple[str, AttributeValue]] = []
        for declared in sorted(op.attrs, key=lambda a: a.name):
            stated = written.get(declared.name)
            if stated is None and declared.name in taken:
                found.append((declared.name, taken[declared.name]))
                continue
            if stated is None:
                stated = declared.default
            assert stated is not None, f"{op.name} needs {declared.name}"
            value = resolve_axis(declared.type, evaluate(stated, self.env, TARGET), rank, op.name)
            found.append((declared.name, as_attribute(declared.type, value)))
        return tuple(found)

    def _node(
        self,
        op: str,
        operands: Sequence[Operand],
        attributes: tuple[tuple[str, AttributeValue], ...],
        results: Sequence[tuple[Shape, str]],
        wanted: Sequence[str],
    ) -> list[Tensor]:
        inputs = tuple("" if o is None else self._name(o) for o in operands)
        keys = [f"#{o.key}" if isinstance(o, Fold) else name for o, name in zip(operands, inputs, strict=True)]
        definition = f"{op}{attributes!r}{keys!r}"
        outputs = list(wanted)
        outputs.extend("" for _ in range(len(results) - len(outputs)))
        if not any(outputs):
            outputs = self._fresh(op, definition, len(results))
        node = Node(op, inputs, tuple(outputs), attributes)
        if node.id in self.targets or node.id not in self.graph.producer:
            self.nodes[node.id] = node
        made: list[Tensor] = []
        for name, (shape, dtype) in zip(outputs, results, strict=True):
            if name and name not in self.targets:
                self.info[name] = ValueInfo(dtype, shape)
            made.append(Tensor(name, dtype, shape))
        return made

    def _fresh(self, op: str, definition: str, count: int) -> list[str]:
        """Names for new values. Values that stand already under these names are used again, unless they are replaced
        here or have come to be computed from what is."""
        while True:
            found = [fresh_name(op, f"{definition}[{k}]") for k in range(count)]
            makers = {self.graph.producer.get(name) for name in found}
            if makers == {None}:
                return found
            if makers.isdisjoint(self.removed) and not any(crosses(self.graph, t, found) for t in self.targets):
                return found
            definition += "'"

    def _name(self, operand: Tensor | Fold) -> str:
        """The value's name; a fold becomes a constant of the graph."""
        if isinstance(operand, Tensor):
            return operand.name
        if operand.name:
            return operand.name
        name = f"const~{operand.key}"
        if name not in self.graph.constants and name not in self.constants:
            self.constants[name] = self.folded.constant(operand)
            self.info[name] = ValueInfo(operand.dtype, operand.shape)
        return name


def _classes(op: s.OpDecl, count: int) -> list[str]:
    """The dtype class of each operand given."""
    classes: list[str] = []
    for k, declared in enumerate(op.operands):
        after = len(op.operands) - k - 1
        n = count - len(classes) - after if declared.variadic else 1
        classes.extend([declared.type.dtype or "float"] * max(n, 0))
    return classes[:count]


def _result_dtype(op: s.OpDecl, result: s.Operand, attributes: dict[str, AttributeValue], shared: str) -> str:
    named = next((a.name for a in op.attrs if a.type.kind == "dtype"), None)
    if named is not None:
        return str(attributes[named])
    return {"bool": "bool", "int": "int64"}.get(result.type.dtype or "float", shared)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and value >= 0
