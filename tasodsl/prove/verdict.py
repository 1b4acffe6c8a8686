"""Verdicts: what is known of a rule or axiom, by which engine, how far, and on what it was seen to fail.

Nothing here needs the solver, so that verdicts can be read from a lock file quickly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

from tasodsl.match.pattern import Scope
from tasodsl.source import Span

Array = NDArray[Any]

Status = Literal["proved", "refuted", "unknown", "vacuous", "unproved", "contradiction"]
"""`unproved` is waived by its author. `contradiction` is a fault of ours: a proof and a counterexample of one rule, or
a definition that the runtime does not follow."""

DEFINITIONS = "definitions"
EVALUATION = "evaluation"


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A valid instance of the match side on which the rewrite side is not valid or gives something else."""

    reason: str
    span: Span
    settings: tuple[tuple[str, str], ...]
    """Attributes and numbers that shapes do not show."""
    operands: tuple[tuple[str, Array], ...]
    left: tuple[tuple[str, Array], ...]
    right: tuple[tuple[str, Array], ...]
    """Empty when the rewrite side has no results."""
    runtime: str
    """What onnxruntime says of it."""
    confirmed: bool
    definition_fault: bool = False
    """The runtime's match side is not what our definitions say."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of one declaration."""

    name: str
    kind: Literal["rule", "axiom"]
    status: Status
    engine: str = ""
    scope: Scope | None = None
    """The ranks and numbers of operands that a proof covers: it holds for all sizes within."""
    seconds: float = 0.0
    why: str = ""
    span: Span | None = None
    """The place that `why` speaks of."""
    counterexample: Counterexample | None = None
    faults: tuple[tuple[Span, str], ...] = ()
    """Examples that are not as the rule says."""
    locked: bool = False
    """Read from a lock file."""

    @property
    def holds(self) -> bool:
        """Proved, or waived visibly, and all its examples are as they say."""
        return self.status in ("proved", "unproved") and not self.faults

    @property
    def scope_text(self) -> str:
        """The scope in words."""
        if self.scope is None:
            return ""
        return f"all sizes, rank <= {self.scope.max_rank}, at most {self.scope.max_arity} operands"


def summary(verdicts: Sequence[Verdict]) -> str:
    """`70 proved, 1 refuted`."""
    order: tuple[Status, ...] = ("proved", "unproved", "refuted", "unknown", "vacuous", "contradiction")
    words = {"unproved": "waived", "contradiction": "in contradiction"}
    counts = [(sum(v.status == status for v in verdicts), words.get(status, status)) for status in order]
    parts = [f"{n} {word}" for n, word in counts if n]
    faulty = sum(bool(v.faults) for v in verdicts)
    if faulty:
        parts.append(f"{faulty} with a wrong example")
    return ", ".join(parts) or "nothing to verify"
