"""Engine 1: definitions with symbolic sizes. Every case of a rule is proved, or the first that is not is told."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import z3

from tasodsl.match.pattern import Scope
from tasodsl.prove.cases import cases
from tasodsl.prove.equal import Equality
from tasodsl.prove.obligations import Case, Goal, Pattern
from tasodsl.prove.partial import computed, defined
from tasodsl.prove.reals import Sum, conj, substitute
from tasodsl.prove.reals import replace as put
from tasodsl.prove.solver import Solver, TimeUp
from tasodsl.prove.splits import splits
from tasodsl.prove.target import Tensor
from tasodsl.ruleset import RuleSet
from tasodsl.source import Span


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds of processor time: for one question to Z3, and for a whole rule."""

    query: float = 2.0
    rule: float = 20.0


@dataclass(frozen=True, slots=True)
class Failure:
    """The first case that was not proved, and what about it."""

    case: str
    why: str
    span: Span


@dataclass(frozen=True, slots=True)
class Result:
    """What engine 1 found: `proved` for all sizes within the scope, `open`, `vacuous`, or `timeout`.

    `cases` were proved, of `looked` structures that were looked at.
    """

    status: str
    cases: int
    looked: int
    queries: int
    seconds: float
    failure: Failure | None = None


def prove(pattern: Pattern, rules: RuleSet, scope: Scope, limits: Limits, above: int = -1) -> Result:
    """Try to prove `pattern` for every structure in `scope` and all sizes.

    With `above`, only for those beyond that `max_rank`: the rest was proved before.
    """
    start = time.process_time()
    count = looked = queries = 0
    satisfiable: bool | None = above >= 0

    def result(status: str, failure: Failure | None = None) -> Result:
        return Result(status, count, looked, queries, time.process_time() - start, failure)

    def look() -> None:
        nonlocal looked
        looked += 1
        if time.process_time() > start + limits.rule:
            raise TimeUp

    try:
        for case in cases(pattern, rules, scope, above, look):
            solver = Solver(limits.query, case.algebra.with_facts, start + limits.rule)
            if satisfiable is not True:
                answer = solver.satisfiable([*case.hypotheses, *case.quantified])
                satisfiable = answer if answer is not False else satisfiable
            count += 1
            failure = prove_case(case, solver)
            queries += solver.queries
            if failure is not None and solver.satisfiable([*case.hypotheses, *case.quantified]) is not False:
                return result("open", failure)
    except TimeUp:
        return result("timeout", Failure("", "the time limit was reached", pattern.span))
    if satisfiable is not True:
        return result("vacuous" if satisfiable is False else "open", Failure("", "no case can occur", pattern.span))
    return result("proved")


def prove_case(case: Case, solver: Solver) -> Failure | None:
    """None when everything the case needs is proved."""
    if case.failure is not None:
        return Failure(case.describe(), case.failure[0], case.failure[1])
    equality = Equality(solver, case.algebra, sizes=tuple(case.hypotheses))
    partial: list[Goal] = []
    together = [g for g in case.goals if g.kind != "divisor"]
    claims = [z3.Implies(conj(g.path), g.condition) if g.path else g.condition for g in together]
    if len(together) > 1 and solver.proves(case.hypotheses, conj(claims), 0.5):
        together = []
    for goal in (*together, *(g for g in case.goals if g.kind == "divisor")):
        known = [*case.hypotheses, *goal.path]
        if solver.proves(known, goal.condition) or (
            case.quantified and solver.proves([*known, *case.quantified], goal.condition)
        ):
            continue
        if goal.kind != "divisor":
            return Failure(case.describe(), f"not shown: {goal.why}", goal.span)
        partial.append(goal)
    if partial and not defined(case, solver, equality):
        return Failure(case.describe(), f"not shown: {partial[0].why}", partial[0].span)
    for name, left, right, span in case.outputs:
        if not same_entries(case, left, right, solver, equality):
            return Failure(case.describe(), f"{name} is not shown to be the same on both sides", span)
    return None


def same_entries(case: Case, left: Tensor, right: Tensor, solver: Solver, equality: Equality) -> bool:
    """Whether the entries at any index within the shape are equal."""
    within = [z3.And(p >= 0, p < d) for p, d in zip(left.params, left.shape, strict=True)]
    pairs = list(zip(right.params, left.params, strict=True))
    hypotheses = [*case.hypotheses, *within]
    equality = replace(equality, given=(*case.quantified, *computed(left, case)))
    if isinstance(left.value, Sum) and isinstance(right.value, Sum):
        other = substitute(right.value, pairs, case.algebra.index)
        if equality.equal(hypotheses, left.value, other):
            return True
        pieces = splits([left.value, other])
        return bool(pieces) and all(
            replace(equality, unfolded={}).equal([*hypotheses, *piece], left.value, other) for piece in pieces
        )
    if isinstance(left.value, Sum) or isinstance(right.value, Sum):
        return False
    other = put(right.value, pairs) if isinstance(right.value, z3.ExprRef) else right.value
    return solver.proves([*hypotheses, *case.quantified], left.value == other)
