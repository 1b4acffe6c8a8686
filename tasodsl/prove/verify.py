"""The verdict on each rule and axiom: a proof is tried, then a counterexample is looked for, whatever the proof said.

Declarations are judged independently, in processes of their own when there are several.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache

import z3

from tasodsl import syntax as s
from tasodsl.match.pattern import Scope
from tasodsl.prove.engine import Limits, Result, prove
from tasodsl.prove.examples import example_faults
from tasodsl.prove.obligations import Pattern, pattern_of
from tasodsl.prove.refute import LONG, SHORT, refute
from tasodsl.prove.suggest import suggestions, suggestions_for
from tasodsl.prove.verdict import DEFINITIONS, EVALUATION, Counterexample, Verdict
from tasodsl.ruleset import RuleSet

Declaration = s.RuleDecl | s.AxiomDecl
FIRST = Scope(max_rank=4, max_arity=4)
LAST_RANK = 5
FEW_STRUCTURES = 80
"""A proof that looked at no more structures than this goes on with one rank more."""
TESTED = Scope(max_rank=4, max_arity=2)
"""Structures for which the solver is asked for instances."""


def verify(
    declarations: Sequence[Declaration],
    rules: RuleSet,
    limit: float,
    jobs: int,
    done: Callable[[Verdict], None] = lambda v: None,
) -> list[Verdict]:
    """A verdict for each declaration, in their order. `limit`: seconds a rule. `done` is told of each as it comes."""
    if jobs <= 1 or len(declarations) <= 1:
        verdicts: list[Verdict] = []
        for d in declarations:
            verdicts.append(judge(d, rules, limit))
            done(verdicts[-1])
        return verdicts
    found: dict[int, Verdict] = {}
    packed = pickle.dumps([*rules.fns.values(), *rules.ops.values()])
    with _workers(min(jobs, len(declarations))) as pool:
        waiting = {pool.submit(_judge_packed, d, packed, limit): k for k, d in enumerate(declarations)}
        for future in as_completed(waiting):
            verdict = future.result()
            found[waiting[future]] = verdict
            done(verdict)
    return [found[k] for k in range(len(declarations))]


@contextmanager
def _workers(count: int) -> Generator[ProcessPoolExecutor]:
    """Processes, none of which is left behind whatever happens."""
    context = multiprocessing.get_context("spawn")
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(count, context, _start_worker)
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise


def _start_worker() -> None:
    # Ctrl-C reaches the whole group of processes; the parent decides what comes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The binding's own argument checks are a fifth of the time, and this process builds well-sorted terms or fails
    # anyway.
    z3.z3.Z3_DEBUG = False


@lru_cache(maxsize=1)
def _unpacked(rules: bytes) -> RuleSet:
    return RuleSet.of(pickle.loads(rules))


def _judge_packed(declaration: Declaration, rules: bytes, limit: float) -> Verdict:
    return judge(declaration, _unpacked(rules), limit)


def judge(declaration: Declaration, rules: RuleSet, limit: float) -> Verdict:
    """The verdict on one declaration; a rule for both directions is proved in both."""
    start = time.process_time()
    verdicts = [_judge_direction(p, declaration, rules, limit) for p in directions(declaration)]
    worst = min(verdicts, key=lambda v: _SEVERITY.index(v.status))
    scopes = [v.scope for v in verdicts if v.scope is not None]
    if worst.status == "proved":
        narrowest = Scope(min(s.max_rank for s in scopes), min(s.max_arity for s in scopes))
        worst = replace(worst, scope=narrowest)
    faults = example_faults(declaration, rules) if isinstance(declaration, s.RuleDecl) else []
    return replace(worst, faults=tuple(faults), seconds=time.process_time() - start)


_SEVERITY = ("contradiction", "refuted", "vacuous", "unknown", "unproved", "proved")


def directions(declaration: Declaration) -> list[Pattern]:
    """The patterns to prove: two for a `birewrite`."""
    forward = pattern_of(declaration)
    if isinstance(declaration, s.AxiomDecl) or not declaration.both:
        return [forward]
    backward = replace(forward, name=f"{forward.name}.reverse", match=declaration.rewrite, rewrite=declaration.match)
    return [forward, backward]


def _judge_direction(pattern: Pattern, declaration: Declaration, rules: RuleSet, limit: float) -> Verdict:
    kind = "axiom" if isinstance(declaration, s.AxiomDecl) else "rule"
    blank = Verdict(declaration.name, kind, "unknown")
    waived = declaration.unproved if isinstance(declaration, s.RuleDecl) else None
    if waived is not None:
        found = refute(pattern, rules, LONG, suggestions(pattern, rules, TESTED))
        return _refuted(blank, found) if found else replace(blank, status="unproved", why=waived)
    result, scope = prove_as_far(pattern, rules, limit)
    if scope is not None:
        hints = suggestions(pattern, rules, TESTED)
        found = refute(pattern, rules, SHORT, hints)
        proved = replace(blank, status="proved", engine=DEFINITIONS, scope=scope)
        return _contradicted(proved, found) if found else proved
    failure = result.failure
    why = "" if failure is None else f"{failure.why} ({failure.case})" if failure.case else failure.why
    span = failure.span if failure is not None else pattern.span
    if result.status == "vacuous":
        return replace(blank, status="vacuous", engine=DEFINITIONS, why="its conditions can never hold", span=span)
    likely = () if failure is None else suggestions_for(pattern, rules, FIRST, failure.case)
    found = refute(pattern, rules, LONG, suggestions(pattern, rules, TESTED), likely)
    return _refuted(blank, found) if found else replace(blank, why=why, span=span)


def _refuted(blank: Verdict, found: Counterexample) -> Verdict:
    status = "contradiction" if found.definition_fault else "refuted"
    return replace(blank, status=status, engine=EVALUATION, why=found.reason, span=found.span, counterexample=found)


def _contradicted(proved: Verdict, found: Counterexample) -> Verdict:
    why = f"it was proved, and yet: {found.reason}"
    return replace(proved, status="contradiction", why=why, span=found.span, counterexample=found)


def prove_as_far(pattern: Pattern, rules: RuleSet, limit: float) -> tuple[Result, Scope | None]:
    """Engine 1 with growing ranks: its first result, and the largest scope that it proved."""
    scope = FIRST
    first = result = prove(pattern, rules, scope, Limits(rule=limit))
    proved: Scope | None = None
    looked = first.looked
    while result.status == "proved":
        proved = scope
        if looked > FEW_STRUCTURES or scope.max_rank == LAST_RANK:
            break
        scope = Scope(scope.max_rank + 1, scope.max_arity)
        result = prove(pattern, rules, scope, Limits(rule=limit), above=proved.max_rank)
        looked = result.looked
    return first, proved
