"""From the predicates of many cases to one decision tree.

A tree is a list of steps, all of which are taken: every match is wanted. A branch asks one question and goes on with
the cases whose answer it got; cases that do not ask it follow after the branch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import get_args

from tasodsl.match.predicates import Kind, Predicate, Program, Question

_COST = {kind: cost for cost, kind in enumerate(get_args(Kind))}


@dataclass(frozen=True, slots=True)
class Leaf:
    """All predicates of a case hold."""

    program: Program


@dataclass(frozen=True, slots=True)
class Branch:
    question: Question
    arms: tuple[tuple[Hashable, tuple[Step, ...]], ...]
    """Answers in the order of their first case, each with the steps that follow."""


Step = Leaf | Branch


@dataclass(frozen=True, slots=True)
class _Pending:
    program: Program
    left: tuple[Predicate, ...]

    def answered(self, question: Question) -> _Pending:
        return _Pending(self.program, tuple(p for p in self.left if p.question != question))

    def wants(self, question: Question) -> Hashable:
        return next(p.answer for p in self.left if p.question == question)


def build_tree(programs: Sequence[Program], root: Question) -> tuple[Step, ...]:
    """The tree for cases that share the answer to `root`, which was asked before."""
    return _steps([_Pending(p, p.predicates).answered(root) for p in programs], frozenset({root}))


def _steps(pending: Sequence[_Pending], asked: frozenset[Question]) -> tuple[Step, ...]:
    steps: list[Step] = [Leaf(p.program) for p in pending if not p.left]
    rest = [p for p in pending if p.left]
    while rest:
        question = _best(rest, asked)
        arms: dict[Hashable, list[_Pending]] = {}
        others: list[_Pending] = []
        for p in rest:
            if any(q.question == question for q in p.left):
                # True and 1 are one key of a dict, but no question has both kinds of answers.
                arms.setdefault(p.wants(question), []).append(p.answered(question))
            else:
                others.append(p)
        deeper = asked | {question}
        steps.append(Branch(question, tuple((answer, _steps(arm, deeper)) for answer, arm in arms.items())))
        rest = others
    return tuple(steps)


def _best(pending: Sequence[_Pending], asked: frozenset[Question]) -> Question:
    """Of the questions that may be asked now a cheap one that many cases ask."""
    counts = Counter(q.question for p in pending for q in p.left if q.after <= asked)
    return min(counts, key=lambda q: (_COST[q.kind], -counts[q], q.at, repr(q.more)))
