"""The verdicts on a whole rule set: what is on record, and the rest proved now and put on record.

The solver is imported only when there is something to prove.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tasodsl import syntax as s
from tasodsl.prove.lock import label, remember, trusted_verdicts
from tasodsl.prove.verdict import Verdict
from tasodsl.ruleset import RuleSet

Declaration = s.RuleDecl | s.AxiomDecl


def verdicts_of(
    rules: RuleSet,
    declarations: Sequence[Declaration],
    limit: float,
    jobs: int,
    cold: bool = False,
    done: Callable[[Verdict], None] = lambda v: None,
) -> list[Verdict]:
    """A verdict for each of the declarations, in their order; `cold` proves what is on record, too.

    `limit`: seconds for a declaration. `jobs`: processes. `done` is told of each verdict as it comes.
    """
    known = {} if cold else trusted_verdicts(rules, declarations)
    for verdict in known.values():
        done(verdict)
    missing = [d for d in declarations if label(d) not in known]
    if missing:
        from tasodsl.prove.verify import verify

        fresh: list[Verdict] = []

        def come(verdict: Verdict) -> None:
            fresh.append(verdict)
            done(verdict)

        asked = {(_kind(d), d.name): d for d in missing}
        try:
            verify(missing, rules, limit, jobs, come)
        finally:  # what was proved before an interrupt stays proved
            judged = [(asked[v.kind, v.name], v) for v in fresh]
            remember(rules, judged)
        known = {**known, **{label(d): v for d, v in judged}}
    return [known[label(d)] for d in declarations]


def _kind(declaration: Declaration) -> str:
    return "axiom" if isinstance(declaration, s.AxiomDecl) else "rule"


def claims(rules: RuleSet) -> list[Declaration]:
    """All that is to be shown of a rule set: its axioms, its rules, and that its commutative operators are."""
    properties = [commutativity(op) for op in rules.ops.values() if op.commutative]
    return [*properties, *rules.axioms.values(), *rules.rules.values()]


def commutativity(op: s.OpDecl) -> s.AxiomDecl:
    """`prop commutative` as an axiom."""
    first, second = (s.Var(o.name, span=o.span) for o in op.operands)
    rest = "attributes" if op.attrs else None
    (span,) = (c.span for c in op.clauses if isinstance(c, s.Prop) and c.name == "commutative")
    left, right = (s.Apply(op.name, (), rest, args, span=span) for args in ((first, second), (second, first)))
    return s.AxiomDecl(f"{op.name} is commutative", op.operands, (), left, right, span=span)
