"""Choices for instances that random ones seldom hit: models of a proof's hypotheses, found by the solver.

They are only suggestions: an instance made of them is checked like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from random import Random
from typing import Any

import z3

from tasodsl.match.pattern import Scope
from tasodsl.prove.cases import cases
from tasodsl.prove.obligations import Case, Pattern
from tasodsl.prove.reals import Z
from tasodsl.ruleset import RuleSet
from tasodsl.values import Value

LARGEST = 6
"""Of sizes and integer attributes."""
PER_CASE = 3
IN_FAILED_CASE = 40
SECONDS = 0.3
"""For one question."""


def suggestions(pattern: Pattern, rules: RuleSet, scope: Scope) -> Iterator[Mapping[str, Value]]:
    """Choices that satisfy the hypotheses, for all structures within the scope."""
    rng = Random(pattern.name)
    for case in cases(pattern, rules, scope):
        yield from _models(case, rng, PER_CASE)


def suggestions_for(pattern: Pattern, rules: RuleSet, scope: Scope, failed: str) -> Iterator[Mapping[str, Value]]:
    """Choices for the one case that a proof failed in, which `failed` describes."""
    rng = Random(pattern.name)
    for case in cases(pattern, rules, scope):
        if case.describe() == failed:
            yield from _models(case, rng, IN_FAILED_CASE)
            return


def _models(case: Case, rng: Random, count: int) -> Iterator[Mapping[str, Value]]:
    structure: dict[str, Value] = dict(case.choices)
    solver = z3.Solver()
    solver.set("timeout", int(1000 * SECONDS))
    solver.add(*case.hypotheses)
    numbers = _constants(case.hypotheses)
    solver.add(*(z3.And(x >= -1, x <= LARGEST) for x in numbers if z3.is_int(x)))
    if solver.check() != z3.sat:
        return
    for _ in range(count):
        solver.push()
        for x in rng.sample(numbers, len(numbers)):
            solver.push()
            solver.add(x == (rng.randint(0, 3) if z3.is_int(x) else z3.Q(rng.randint(1, 4), rng.randint(1, 2))))
            if solver.check() != z3.sat:
                solver.pop()
        model = solver.model() if solver.check() == z3.sat else None
        solver.pop(solver.num_scopes())
        if model is not None:
            yield {**structure, **{x.decl().name(): _value(model, x) for x in numbers}}


def _constants(terms: list[Z]) -> list[Z]:
    """The integer and real constants in the terms, by name."""
    found: dict[str, Z] = {}
    stack: list[Any] = list(terms)
    seen: set[int] = set()
    while stack:
        x = stack.pop()
        if x.get_id() in seen:
            continue
        seen.add(x.get_id())
        if z3.is_const(x) and x.decl().kind() == z3.Z3_OP_UNINTERPRETED and (z3.is_int(x) or z3.is_real(x)):
            found[x.decl().name()] = x
        stack.extend(x.children())
    return [found[name] for name in sorted(found)]


def _value(model: Any, x: Z) -> Value:
    value = model.eval(x, model_completion=True)
    if z3.is_int_value(value):
        return value.as_long()
    if z3.is_rational_value(value):
        return Fraction(value.numerator_as_long(), value.denominator_as_long())
    return Fraction(1)  # an algebraic number; the instance's own checks decide
