"""A case as a list of predicates: questions about positions of the graph, each with the answer that the case needs.

A *position* is the number of a root, then operand numbers downwards: `(0, 1, 0)` is the first operand of the second
operand of root 0 (from the end where negative: what follows a variadic; from `EITHER` on where both orders of the
operands are tried). Questions are compared between rules, so that one tree can ask them once for all. What remains once
all names are bound (sizes, `where`, cycles) is in `ending`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, cast

from tasodsl import syntax as s
from tasodsl.elaborate import names
from tasodsl.graph.graph import AttributeValue
from tasodsl.match.cases import Case, expands_orders
from tasodsl.match.pattern import Pattern, depth_of, has_free_length, may_add_rank
from tasodsl.match.target import TARGET, single
from tasodsl.scalar import evaluate
from tasodsl.values import Environment, Mismatch

Position = tuple[int, ...]
EITHER = 1000
"""The number of the operand that comes first in the order that is being tried."""
Kind = Literal[
    "operator",
    "maker",
    "results",
    "unused",
    "operands",
    "operands between",
    "present",
    "attribute",
    "entries",
    "known dtype",
    "same attribute",
    "same rest",
    "distinct",
    "orders",
    "same",
    "result",
    "constant",
    "private",
    "rank",
    "ranks",
    "result ranks",
    "dtype",
    "dim",
    "number",
    "readers",
]
"""What may be asked, cheap and telling questions first. `operator` is asked of the node that is known by the operand,
and `maker` of one whose other result the operand may be."""


@dataclass(frozen=True, slots=True)
class Question:
    kind: Kind
    at: Position
    more: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Predicate:
    """`question` must have `answer`; it can be asked once those in `after` were answered."""

    question: Question
    answer: Hashable
    after: frozenset[Question]


@dataclass(frozen=True, slots=True)
class AttributeAt:
    """An attribute of the node at a position, by its place among the sorted attributes of the operator."""

    at: Position
    index: int
    type: s.AttrType


@dataclass(frozen=True, slots=True)
class Deferred:
    """An attribute that must equal an expression over names bound elsewhere. `base` is the operand whose rank a
    negative axis counts from."""

    op: str
    name: str
    attribute: AttributeAt
    stated: s.Expr


@dataclass(slots=True)
class Bound:
    """Where the names of a case are found."""

    variables: dict[str, Position] = field(default_factory=dict[str, Position])
    lists: dict[str, tuple[Position, int, int]] = field(default_factory=dict[str, tuple[Position, int, int]])
    """A variadic: the operator's position, how many operands come before, how many after."""
    results: dict[str, tuple[Position, int]] = field(default_factory=dict[str, tuple[Position, int]])
    attributes: dict[str, AttributeAt] = field(default_factory=dict[str, AttributeAt])
    rests: dict[str, tuple[Position, tuple[int, ...]]] = field(
        default_factory=dict[str, tuple[Position, tuple[int, ...]]]
    )
    deferred: list[Deferred] = field(default_factory=list[Deferred])
    nodes: list[Position] = field(default_factory=list[Position])
    inner: list[tuple[Position, int]] = field(default_factory=list[tuple[Position, int]])
    """Results that must have no reader outside the match."""


@dataclass(frozen=True, slots=True)
class Program:
    """One case, flattened."""

    pattern: Pattern
    case: Case
    predicates: tuple[Predicate, ...]
    bound: Bound


def flatten(pattern: Pattern, case: Case) -> Program:
    """The predicates of a case, each after those that it needs."""
    return _Flattening(pattern, case).program()


class _Flattening:
    def __init__(self, pattern: Pattern, case: Case) -> None:
        self.pattern = pattern
        self.case = case
        self.bound = Bound()
        self.predicates: list[Predicate] = []
        self.opened: dict[Position, frozenset[Question]] = {}
        """Nodes that may be looked into, with the questions after which that is so."""
        self.present: dict[Position, frozenset[Question]] = {}
        self.binds: dict[int, Position] = {}
        self.members = {m: v for v, group in case.groups for m in group}
        self.expanded = expands_orders(pattern)
        self.count = sum(1 for t in case.terms for _ in _applications(t))

    def program(self) -> Program:
        for k, bind in enumerate(self.pattern.roots):
            root = (k,)
            after: frozenset[Question] = frozenset()
            if k > 0:
                after = self._reach(root, bind)
            self._bind(bind, root, after)
        self._variables()
        self._private()
        return Program(self.pattern, self.case, tuple(self.predicates), self.bound)

    def ask(self, kind: Kind, at: Position, answer: Hashable, after: frozenset[Question], *more: Any) -> Question:
        question = Question(kind, at, more)
        self.predicates.append(Predicate(question, answer, after))
        return question

    def at_value(self, position: Position) -> frozenset[Question]:
        """After what the operand at `position` may be looked at."""
        return self.opened[position[:-1]] | self.present.get(position, frozenset())

    def _reach(self, root: Position, bind: int) -> frozenset[Question]:
        """A further root is looked for among the readers above a value that is bound before."""
        term, terms = self.case.terms[bind], tuple(self._expanded())
        for name, position in self.bound.variables.items():
            depth = depth_of(term, name, terms, self.pattern.results)
            if depth is not None:
                reached = self.ask("readers", position, True, self.at_value(position), root, depth)
                break
        else:
            reached = self.ask("readers", (), True, frozenset(), root, 0)
        after = frozenset({reached})
        for k in range(root[0]):
            self.ask("distinct", root, True, after, (k,))
        return after

    def _expanded(self) -> list[s.Bind]:
        return [s.Bind(b.names, t) for b, t in zip(self.pattern.match, self.case.terms, strict=True)]

    # --- terms ---

    def _bind(self, bind: int, at: Position, after: frozenset[Question], kind: Kind = "operator") -> None:
        self.binds[bind] = at
        declared = self.pattern.match[bind]
        self._apply(self.case.terms[bind], at, len(declared.names), after, kind)
        for k, name in enumerate(declared.names):
            if name == "_":
                self.ask("unused", at, True, self.opened[at], k)
                continue
            self.bound.results[name] = (at, k)
            if name not in self.pattern.outputs:
                self.bound.inner.append((at, k))

    def _apply(
        self, term: s.Apply, at: Position, results: int, after: frozenset[Question], kind: Kind = "operator"
    ) -> None:
        op = self.pattern.declaration(term.op)
        opened = {self.ask(kind, at, term.op, after)}
        first = frozenset(opened)
        self.bound.nodes.append(at)
        if any(r.variadic for r in op.results):
            self.ask("results", at, results, first)
        elif len(op.results) > results:
            for k in range(results, len(op.results)):
                self.ask("unused", at, True, first, k)
        variadic = any(o.variadic for o in op.operands)
        lists = [k for k, a in enumerate(term.args) if isinstance(a, s.Variadic)]
        first_operand = 0
        if op.commutative and not self.expanded and term.args[0] != term.args[1]:
            opened.add(self.ask("orders", at, True, first))
            first_operand = EITHER
        if variadic and lists:
            least, most = len(term.args), len(term.args) - 1 + self.pattern.scope.max_arity
            opened.add(self.ask("operands between", at, True, first, least, most))
        elif variadic:
            opened.add(self.ask("operands", at, len(term.args), first))
        self.opened[at] = frozenset(opened)
        if may_add_rank(op):
            self.ask("result ranks", at, True, first, self.pattern.scope.max_rank)
        self._attributes(term, op, at)
        for k, arg in enumerate(term.args):
            if isinstance(arg, s.Variadic):
                self._list(arg.name, at, k, len(term.args) - k - 1)
            else:
                position = (*at, k - len(term.args) if lists and k > lists[0] else k + first_operand)
                optional = not variadic and op.operands[k].optional
                self._operand(arg, position, optional)

    def _list(self, name: str, at: Position, before: int, behind: int) -> None:
        if name in self.bound.lists:
            other, *rest = self.bound.lists[name]
            after = self.opened[at] | self.opened[other]
            self.ask("same", at, True, after, "list", before, behind, other, *rest)
        else:
            self.bound.lists[name] = (at, before, behind)

    def _operand(self, term: s.Term, at: Position, optional: bool) -> None:
        if optional:
            self.present[at] = frozenset({self.ask("present", at, not isinstance(term, s.Absent), self.at_value(at))})
        after = self.at_value(at)
        match term:
            case s.Var() if term.name in self.pattern.results:
                self._result(term.name, at, after)
            case s.Var():
                first = self.bound.variables.setdefault(term.name, at)
                if first != at:
                    self.ask("same", at, True, after | self.at_value(first), "value", first)
            case s.Literal():
                number = evaluate(term.value, Environment(), TARGET)
                constant = self.ask("constant", at, True, after)
                rank = self.ask("rank", at, 0, after | {constant})
                self.ask("number", at, True, after | {constant, rank}, Fraction(number))
            case s.Apply():
                op = self.pattern.declaration(term.op)
                self._apply(term, at, 1, after)
                if len(op.results) > 1 or any(r.variadic for r in op.results):
                    self.ask("result", at, True, self.opened[at], at, 0)
                self.bound.inner.append((at, 0))
            case _:
                return

    def _result(self, name: str, at: Position, after: frozenset[Question]) -> None:
        """An operand that another bind names."""
        bind, k = self.pattern.results[name]
        if bind not in self.binds:
            self._bind(bind, at, after, "maker" if k > 0 else "operator")
            self.ask("result", at, True, self.opened[at], at, k)
            return
        node = self.binds[bind]
        self.ask("result", at, True, after | self.opened[node], node, k)

    # --- attributes ---

    def _attributes(self, term: s.Apply, op: s.OpDecl, at: Position) -> None:
        written = {a.name: a.value for a in term.attrs}
        after = self.opened[at]
        rest: list[int] = []
        for index, declared in enumerate(sorted(op.attrs, key=lambda a: a.name)):
            place = AttributeAt(at, index, declared.type)
            stated = written.get(declared.name)
            if stated is None and term.rest is not None:
                rest.append(index)
                self._within(declared, at, index)
                continue
            if isinstance(stated, s.Name) and stated.id not in self.pattern.computed:
                first = self.bound.attributes.setdefault(stated.id, place)
                if first == place:
                    self._within(declared, at, index)
                else:
                    both = after | self.opened[first.at]
                    self.ask("same attribute", at, True, both, index, first.at, first.index, declared.type.kind)
                continue
            if stated is None:
                stated = declared.default
            assert stated is not None
            fixed = self._fixed(declared, stated)
            if fixed is None:
                self.bound.deferred.append(Deferred(op.name, declared.name, place, stated))
            else:
                self.ask("attribute", at, fixed, after, index, declared.type.kind, declared.name)
        if term.rest is None:
            return
        first_rest = self.bound.rests.setdefault(term.rest, (at, tuple(rest)))
        if first_rest != (at, tuple(rest)):
            other, indices = first_rest
            self.ask("same rest", at, True, after | self.opened[other], tuple(rest), other, indices)

    def _within(self, declared: s.AttrDecl, at: Position, index: int) -> None:
        """A proof goes through attributes of free length up to a length, and through the dtypes that rules speak of."""
        if has_free_length(declared.type):
            self.ask("entries", at, True, self.opened[at], index, self.pattern.scope.max_entries, declared.name)
        elif declared.type.kind == "dtype":
            self.ask("known dtype", at, True, self.opened[at], index, declared.name)

    def _fixed(self, declared: s.AttrDecl, stated: s.Expr) -> AttributeValue | None:
        """The attribute's value where it is the same wherever the rule is applied."""
        try:
            value = evaluate(stated, Environment(self.pattern.rules.fns), TARGET)
        except Mismatch:
            return None
        entries = cast(tuple[Any, ...], value) if isinstance(value, tuple) else (value,)
        if declared.type.kind in ("axis", "axes") and any(e < 0 for e in entries):
            return None
        if declared.type.kind != "real":
            return cast(AttributeValue, value)
        return tuple(single(e) for e in entries) if isinstance(value, tuple) else single(value)

    # --- what is demanded of operands and inner values ---

    def _variables(self) -> None:
        for name, position in list(self.bound.variables.items()):
            declared = self.pattern.variable(self.members.get(name, name))
            if declared is not None:
                self._tensor(declared, position)

    def _tensor(self, declared: s.Operand, at: Position) -> None:
        after = self.at_value(at)
        if declared.const or declared.value is not None:
            self.ask("constant", at, True, after)
        packs = [k for k, d in enumerate(declared.type.dims) if isinstance(d, s.Splice)]
        fixed = len(declared.type.dims) - len(packs)
        most = self.pattern.scope.max_rank
        if packs or fixed > most:
            ranked = self.ask("ranks", at, True, after, fixed, most)
        else:
            ranked = self.ask("rank", at, fixed, after)
        self.ask("dtype", at, True, after | {ranked}, declared.type.dtype or "float")
        for k, dim in enumerate(declared.type.dims):
            if isinstance(dim, s.Int) and len(packs) <= 1:
                axis = k - len(declared.type.dims) if packs and k > packs[0] else k
                self.ask("dim", at, dim.value, after | {ranked}, axis)
        if declared.value is not None and not names(declared.value):
            number = evaluate(declared.value, Environment(), TARGET)
            self.ask("number", at, True, after | {Question("constant", at)}, Fraction(number))

    def _private(self) -> None:
        """Inner values have no more readers than the match has nodes beside their own; the ending looks at which."""
        for at, k in self.bound.inner:
            if len(at) > 1 and k == 0:
                self.ask("private", at, True, self.at_value(at), self.count - 1)


def _applications(term: s.Term) -> list[s.Apply]:
    if not isinstance(term, s.Apply):
        return []
    return [term, *(a for arg in term.args for a in _applications(arg))]
