"""What is to be shown of a rule: its two sides as a `Pattern`, and a `Case` of it as hypotheses and goals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import z3

from tasodsl import syntax as s
from tasodsl.prove.fresh import with_fresh_names
from tasodsl.prove.reals import Algebra, Z, variables
from tasodsl.prove.target import Demand, ProofTarget, Tensor
from tasodsl.source import Span


@dataclass(frozen=True, slots=True)
class Pattern:
    """A rule or an axiom, as two lists of bindings over variables."""

    name: str
    variables: tuple[s.Operand, ...]
    match: tuple[s.Bind, ...]
    rewrite: tuple[s.Bind, ...]
    wheres: tuple[s.Where, ...]
    lets: tuple[s.LetScalar | s.LetTensor, ...]
    span: Span


def pattern_of(d: s.RuleDecl | s.AxiomDecl) -> Pattern:
    if isinstance(d, s.RuleDecl):
        variables, match = with_fresh_names((d.variables, d.match))
        return Pattern(d.name, variables, match, d.rewrite, d.wheres, d.lets, d.span)
    wheres = tuple(c for c in d.clauses if isinstance(c, s.Where))
    lets = tuple(c for c in d.clauses if isinstance(c, s.LetScalar))
    left, right = (s.Bind(("left and right",), t, span=t.span) for t in (d.left, d.right))
    variables, match = with_fresh_names((d.variables, (left,)))
    return Pattern(d.name, variables, match, (right,), wheres, lets, d.span)


@dataclass(frozen=True, slots=True)
class Goal:
    """Something to show, under the case's hypotheses and along `path`."""

    path: tuple[Z, ...]
    condition: Z
    span: Span
    why: str
    kind: str = "size"


@dataclass(slots=True)
class Case:
    """One case: hypotheses from the match side; goals and pairs of outputs from the rewrite side."""

    choices: tuple[tuple[str, Any], ...]
    target: ProofTarget
    hypotheses: list[Z]
    quantified: list[Z]
    """Hypotheses with quantifiers: they make Z3 slow, so they are given only where the others do not do."""
    match_demands: list[Demand]
    goals: list[Goal]
    outputs: list[tuple[str, Tensor, Tensor, Span]]
    failure: tuple[str, Span] | None = None
    """Why the rewrite side has no meaning in this case."""
    rank: int = 0
    """The smallest `max_rank` of a scope that has this case."""

    @property
    def algebra(self) -> Algebra:
        return self.target.algebra

    def describe(self) -> str:
        return ", ".join(f"{what} = {_show(value)}" for what, value in self.choices)


def _show(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(map(str, cast(tuple[Any, ...], value))) + "]"
    return str(value)


def quantifies(e: Z) -> bool:
    stack = [e]
    while stack:
        x = stack.pop()
        if z3.is_quantifier(x):
            return True
        stack.extend(x.children())
    return False


def indices(terms: Sequence[Z]) -> list[Z]:
    found: dict[int, Z] = {}
    for t in terms:
        found.update(variables(t))
    return list(found.values())


def reads_integers(condition: Z) -> bool:
    """Whether a condition speaks of entries of an integer tensor."""
    stack, seen = [condition], set[int]()
    while stack:
        x = stack.pop()
        if x.get_id() in seen:
            continue
        seen.add(x.get_id())
        if z3.is_app(x):
            if z3.is_int(x) and x.decl().name().startswith("entry:"):
                return True
            stack.extend(x.children())
    return False
