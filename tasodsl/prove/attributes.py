"""The attributes of an operator in a term: what is given, what the term binds, and what is chosen case by case."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

from tasodsl import syntax as s
from tasodsl.elaborate import names
from tasodsl.match.pattern import Scope
from tasodsl.prove.obligations import Goal, Pattern
from tasodsl.prove.reals import Sum, Z, as_sum
from tasodsl.prove.structure import DTYPES, LENGTH, STRUCTURAL, Chooser, conjuncts_of
from tasodsl.prove.target import ProofTarget, Tensor
from tasodsl.ruleset import RuleSet
from tasodsl.scalar import evaluate
from tasodsl.values import Environment, Mismatch, Unsupported, Value


@dataclass(slots=True)
class State:
    """What the elaboration of one case holds."""

    pattern: Pattern
    rules: RuleSet
    scope: Scope
    chooser: Chooser
    above: int = -1
    rank: int = 0
    target: ProofTarget = field(default_factory=ProofTarget)
    env: Environment = field(default_factory=Environment)
    rests: dict[str, dict[str, Value]] = field(default_factory=dict[str, dict[str, Value]])
    hypotheses: list[Z] = field(default_factory=list[Z])
    quantified: list[Z] = field(default_factory=list[Z])
    goals: list[Goal] = field(default_factory=list[Goal])
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    stated: dict[str, int] = field(default_factory=dict[str, int])
    classes: dict[str, str] = field(default_factory=dict[str, str])
    pending: list[Tensor] = field(default_factory=list[Tensor])
    matching: bool = True


@dataclass(slots=True)
class Attributes(State):
    """The part of an elaboration that finds attributes."""

    def attributes_of(self, op: s.OpDecl, term: s.Apply, operands: Sequence[Any]) -> dict[str, Value]:
        declared = {a.name: a for a in op.attrs}
        out: dict[str, Value] = {}
        for arg in sorted(term.attrs, key=lambda a: not self._binds_structure(declared.get(a.name), a.value)):
            attr = declared.get(arg.name)
            if attr is None:
                raise Unsupported(f"{op.name} has no attribute {arg.name}", arg.span)
            if self.matching and isinstance(arg.value, s.Name) and arg.value.id not in self.env.values:
                value = self._fresh_attribute(op, attr, arg.value.id, operands, out)
                self.env.values[arg.value.id] = value
                self._prune_by_wheres()
            else:
                value = evaluate(arg.value, self.env, self.target)
            out[arg.name] = self._coerce(attr, value)
            self._prune(op, out)
        if term.rest is None:
            return out
        left = sorted((a for a in op.attrs if a.name not in out), key=lambda a: a.type.kind not in STRUCTURAL)
        if term.rest in self.rests:
            taken = self.rests[term.rest]
            for attr in left:
                if attr.name not in taken:
                    raise Unsupported(f"..{term.rest} does not have {attr.name}", term.span)
                out[attr.name] = taken[attr.name]
            return out
        if not self.matching:
            raise Unsupported(f"..{term.rest} is not bound", term.span)
        taken: dict[str, Value] = {}
        for attr in left:
            taken[attr.name] = self._fresh_attribute(op, attr, f"{term.rest}.{attr.name}", operands, {**out, **taken})
            self._prune(op, {**out, **taken})
        self.rests[term.rest] = taken
        return {**out, **taken}

    def _prune_by_wheres(self) -> None:
        """Leave a case as soon as a `where` of what is bound so far cannot hold."""
        for w in self.pattern.wheres:
            if not names(w.condition) <= self.env.values.keys():
                continue
            before = len(self.target.demands)
            try:
                holds = evaluate(w.condition, self.env, self.target)
            except Unsupported:
                continue  # told when all is bound
            del self.target.demands[before:]
            if holds is False:
                raise Mismatch("a condition does not hold", w.span)

    def _prune(self, op: s.OpDecl, attributes: Mapping[str, Value]) -> None:
        """Leave a case as soon as the attributes chosen so far break what the operator requires of them alone."""
        if not self.matching:
            return
        env = Environment(self.rules.fns, dict(attributes), {})
        for require in op.requires:
            for part in conjuncts_of(require.condition):
                if names(part) <= attributes.keys() and evaluate(part, env, ProofTarget()) is False:
                    raise Mismatch(f"{op.name} requires it", require.span)

    @staticmethod
    def _coerce(attr: s.AttrDecl, value: Value) -> Value:
        if attr.type.kind == "bool" and isinstance(value, int):
            return bool(value)
        if attr.type.kind == "real" and not isinstance(value, Sum):
            return tuple(as_sum(v) for v in value) if isinstance(value, tuple) else as_sum(value)  # pyright: ignore[reportUnknownVariableType]
        return value

    def _binds_structure(self, attr: s.AttrDecl | None, value: s.Expr) -> bool:
        """Whether an attribute takes a structural value for a name not bound yet: such are chosen first, since the
        lengths of others follow from them."""
        if attr is None or attr.type.kind not in STRUCTURAL or not isinstance(value, s.Name):
            return False
        return self.matching and value.id not in self.env.values

    def _lengths(self, op: s.OpDecl, attr: s.AttrDecl, known: Mapping[str, Value]) -> Sequence[int]:
        """The lengths that a list may have: the one that a `require` states by what is known, or all in scope."""
        for part in (p for r in op.requires for p in conjuncts_of(r.condition)):
            if not isinstance(part, s.Compare) or len(part.rest) != 1 or part.rest[0][0] != "==":
                continue
            length, other = part.first, part.rest[0][1]
            if length == s.Call("len", (s.Name(attr.name),)) and names(other) <= known.keys():
                value = evaluate(other, Environment(self.rules.fns, dict(known), {}), ProofTarget())
                return [value] if isinstance(value, int) and value <= self.scope.max_entries else []
        return range(self.scope.max_entries + 1)

    def _fresh_attribute(
        self, op: s.OpDecl, attr: s.AttrDecl, name: str, operands: Sequence[Any], known: Mapping[str, Value]
    ) -> Value:
        kind, length = attr.type.kind, attr.type.length
        pick, top = self.chooser.pick, self.scope.max_rank
        rank = next((len(o.shape) for o in operands if o is not None), 0)
        match kind:
            case "bool":
                return pick(name, (False, True))
            case "axis":
                return pick(name, range(top + 1))
            case "axes":
                return pick(name, [c for n in range(top + 1) for c in itertools.combinations(range(top), n)])
            case "perm":
                return pick(name, list(itertools.permutations(range(rank))))
            case "dtype":
                return pick(name, DTYPES)
            case "choice":
                return pick(name, attr.type.choices)
            case _:
                make = z3.Int if kind == "int" else z3.Real
                if length is None:
                    return self._number(make(name))
                count = (
                    length.value
                    if isinstance(length, s.Int)
                    else pick(f"{LENGTH}{name}", self._lengths(op, attr, known))
                )
                return tuple(self._number(make(f"{name}[{k}]")) for k in range(count))

    @staticmethod
    def _number(v: Z) -> Value:
        return v if z3.is_int(v) else as_sum(v)
