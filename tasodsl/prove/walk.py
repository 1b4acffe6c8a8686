"""Both sides of a rule walked over concrete values: one walk, and whoever runs it says what an operator makes.

Shapes, arrays and nodes of a graph are made by the same walk, so that a counterexample, its numbers and the model that
confirms it cannot speak of different things. (Proofs have a walk of their own: the two check each other.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tasodsl import syntax as s
from tasodsl.match.target import TARGET
from tasodsl.ruleset import RuleSet
from tasodsl.scalar import evaluate
from tasodsl.values import Environment, Mismatch, Value

Tensor = Any
"""What a maker makes of an operator's result; None for an absent operand."""

Attributes = dict[str, Value]
Binder = Callable[[s.AttrDecl, str, Sequence[Tensor]], Value]
"""Gives a value to an attribute that the match side binds: its declaration, a name for the choice, the operands."""


class Maker(Protocol):
    """What operators and numbers are made into."""

    def apply(
        self, op: s.OpDecl, operands: Sequence[Tensor], attributes: Attributes, term: s.Apply
    ) -> Sequence[Tensor]: ...

    def scalar(self, value: Value) -> Tensor: ...


@dataclass(slots=True)
class Walk:
    """`env` and `rests` are filled in while the match side is walked with `bind`; without it everything is bound."""

    rules: RuleSet
    maker: Maker
    env: Environment
    rests: dict[str, Attributes]
    bind: Binder | None = None

    def side(self, binds: Sequence[s.Bind]) -> dict[str, Tensor]:
        """The named results of one side."""
        out: dict[str, Tensor] = {}
        for bind in binds:
            results = self.term(bind.term)
            if len(results) != len(bind.names):
                raise Mismatch(f"{len(bind.names)} names for {len(results)} results", bind.span)
            for name, tensor in zip(bind.names, results, strict=True):
                if name != "_":
                    out[name] = self.env.tensors[name] = tensor
        return out

    def term(self, term: s.Term) -> list[Tensor]:
        match term:
            case s.Var():
                if term.name in self.env.tensors:
                    return [self.env.tensors[term.name]]
                return [self.maker.scalar(evaluate(s.Name(term.name, span=term.span), self.env, TARGET))]
            case s.Literal():
                return [self.maker.scalar(evaluate(term.value, self.env, TARGET))]
            case s.Absent():
                return [None]
            case s.Wildcard():
                raise Mismatch("a wildcard has no value to test with", term.span)
            case s.Variadic():
                return list(self.env.tensors[term.name])
            case s.VariadicMap():
                return self._mapped(term)
            case s.Apply():
                op = self.rules.ops.get(term.op)
                if op is None:
                    raise Mismatch(f"no operator {term.op}", term.span)
                operands = [t for arg in term.args for t in self.term(arg)]
                return list(self.maker.apply(op, operands, self._attributes(op, term, operands), term))

    def _mapped(self, term: s.VariadicMap) -> list[Tensor]:
        members: tuple[Tensor, ...] = self.env.tensors[term.source]
        out: list[Tensor] = []
        for member in members:
            self.env.tensors[term.variable] = member
            out.extend(self.term(term.term))
        self.env.tensors.pop(term.variable, None)
        return out

    def _attributes(self, op: s.OpDecl, term: s.Apply, operands: Sequence[Tensor]) -> Attributes:
        declared = {a.name: a for a in op.attrs}
        out: Attributes = {}
        for arg in term.attrs:
            name = arg.value.id if isinstance(arg.value, s.Name) else None
            if self.bind is not None and name is not None and name not in self.env.values:
                self.env.values[name] = self.bind(declared[arg.name], name, operands)
            out[arg.name] = evaluate(arg.value, self.env, TARGET)
        if term.rest is None:
            return out
        left = [a for a in op.attrs if a.name not in out]
        if self.bind is not None and term.rest not in self.rests:
            self.rests[term.rest] = {a.name: self.bind(a, f"{term.rest}.{a.name}", operands) for a in left}
        taken: Mapping[str, Value] = self.rests.get(term.rest, {})
        for attr in left:
            if attr.name not in taken:
                raise Mismatch(f"..{term.rest} does not have {attr.name}", term.span)
            out[attr.name] = taken[attr.name]
        return out
