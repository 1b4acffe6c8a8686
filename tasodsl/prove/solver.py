"""Questions to Z3: does a goal follow from hypotheses? Each has its own time limit, and a rule has a total.

Facts about scalar and index functions that Z3 does not know are guarded, kept in one table (`facts_about`), and
given only
for the terms that occur in a question: unguarded facts about square roots or logarithms are inconsistent, and Z3 would
not say so.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

from tasodsl.prove.reals import INT, REAL, Z, conj

EXP: Any = z3.Function("exp", REAL, REAL)
LOG: Any = z3.Function("log", REAL, REAL)
SQRT: Any = z3.Function("sqrt", REAL, REAL)
POW: Any = z3.Function("pow", REAL, REAL, REAL)
INVERSE: Any = z3.Function("inverse", REAL, REAL)
FLOOR: Any = z3.Function("floor", REAL, REAL)
RESIZED: Any = z3.Function("resized", INT, REAL, INT)
TABLE: Mapping[str, Any] = {
    "exp": EXP,
    "log": LOG,
    "sqrt": SQRT,
    "floor": FLOOR,
    **{name: z3.Function(name, REAL, REAL) for name in ("erf", "tanh", "sin", "cos")},
}
"""Functions of one real by name."""

KNOWN = frozenset(["exp", "log", "sqrt", "inverse", "pow", "floor", "resized", "resize_index"])

PARTIAL = frozenset(["inverse", "log", "sqrt", "pow"])
"""Functions that have no real value somewhere."""


UNITS_A_SECOND = 1_500_000
"""Z3's resource units in a second of work, roughly (measured on questions of the shipped rules)."""

WALL_FACTOR = 5
"""A question is given up after this many times its limit of wall time, for the units that Z3 does not count."""


class TimeUp(Exception):
    """The rule's total time is spent."""


@dataclass(slots=True)
class Solver:
    """Asks Z3; `query_limit` in seconds a question, `deadline` (time.process_time) for the rule.

    A question's limit is counted in Z3's own resource units, so that an answer does not depend on how busy the
    machine is.
    """

    query_limit: float = 2.0
    with_facts: bool = True
    """Off when no function with facts occurs in the whole case: the walks over the terms are saved."""
    deadline: float = float("inf")
    queries: int = 0
    unknowns: int = 0
    cache: dict[tuple[int, ...], bool] = field(default_factory=dict[tuple[int, ...], bool])
    walked: dict[int, list[Z]] = field(default_factory=dict[int, list[Z]])
    kept: list[Z] = field(default_factory=list[Z])
    """Terms of cached questions, kept alive so that their ids stay theirs."""

    def proves(self, hypotheses: Sequence[Z], goal: Z, limit: float | None = None) -> bool:
        """Whether the goal follows; False also when Z3 does not know."""
        if z3.is_true(goal) or _stated(hypotheses, goal):
            return True
        key = (*sorted({h.get_id() for h in hypotheses}), -1, goal.get_id())
        known = self.cache.get(key)
        if known is None:
            known = self._check([*hypotheses, z3.Not(goal)], limit) == z3.unsat
            self.cache[key] = known
            self.kept.extend((*hypotheses, goal))
        return known

    def satisfiable(self, hypotheses: Sequence[Z], limit: float | None = None) -> bool | None:
        """True, False, or None when Z3 does not know."""
        answer = self._check(list(hypotheses), limit)
        if answer == z3.unknown:
            # Non-linear hypotheses: a small solution is as good as any, and easier to find.
            sizes = [v for v in constants(hypotheses) if z3.is_int(v)]
            for most in (1, 3):
                small = [z3.And(v >= 0, v <= most) for v in sizes]
                if self._check([*hypotheses, *small], limit) == z3.sat:
                    return True
        return True if answer == z3.sat else False if answer == z3.unsat else None

    def facts(self, terms: Sequence[Z]) -> list[Z]:
        """`facts_about` the terms; the walk over each term is done once."""
        if not self.with_facts:
            return []
        relevant: dict[int, Z] = {}
        for term in terms:
            key = term.get_id()
            if key not in self.walked:
                self.kept.append(term)
                self.walked[key] = [a for a in applications([term]) if has_facts(a.decl().name())]
            relevant.update({a.get_id(): a for a in self.walked[key]})
        return facts_about(list(relevant.values())) if relevant else []

    def _check(self, assertions: list[Z], limit: float | None) -> Any:
        left = self.deadline - time.process_time()
        if left <= 0:
            raise TimeUp
        self.queries += 1
        solver = z3.Solver()
        seconds = min(limit or self.query_limit, left)
        solver.set("rlimit", int(seconds * UNITS_A_SECOND))
        solver.set("timeout", max(1, int(1000 * WALL_FACTOR * seconds)))
        solver.set("random_seed", 1)
        solver.add(*assertions)
        solver.add(*self.facts(assertions))
        answer = solver.check()
        self.unknowns += answer == z3.unknown
        return answer


def _stated(hypotheses: Sequence[Z], goal: Z) -> bool:
    """Whether every conjunct of the goal stands among the hypotheses' conjuncts."""
    known: set[int] = set()
    for h in hypotheses:
        known.update(c.get_id() for c in conjuncts(h))
    return all(c.get_id() in known for c in conjuncts(goal))


def conjuncts(e: Z) -> list[Z]:
    """The parts of a conjunction, to any depth."""
    return [c for part in e.children() for c in conjuncts(part)] if z3.is_and(e) else [e]


def applications(terms: Iterable[Z]) -> list[Z]:
    """All applications of uninterpreted functions (with arguments) in the terms, inner ones first, each once."""
    found: list[Z] = []
    seen: set[int] = set()

    def visit(e: Z) -> None:
        stack: list[tuple[Z, bool]] = [(e, False)]
        while stack:
            x, done = stack.pop()
            if done:
                found.append(x)
                continue
            key = x.get_id()
            if key in seen or not z3.is_app(x):
                continue
            seen.add(key)
            if x.num_args() and x.decl().kind() == z3.Z3_OP_UNINTERPRETED:
                stack.append((x, True))
            stack.extend((c, False) for c in x.children())

    for term in terms:
        visit(term)
    return found


def constants(terms: Iterable[Z]) -> list[Z]:
    """The uninterpreted constants in the terms, each once."""
    found: dict[int, Z] = {}
    seen: set[int] = set()
    stack = list(terms)
    while stack:
        x = stack.pop()
        if x.get_id() in seen:
            continue
        seen.add(x.get_id())
        if z3.is_const(x) and x.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            found[x.get_id()] = x
        elif z3.is_quantifier(x):
            stack.append(x.body())
        elif z3.is_app(x):
            stack.extend(x.children())
    return list(found.values())


def has_facts(name: str) -> bool:
    """Whether `facts_about` knows something about applications of the function."""
    return name in KNOWN or name.startswith(("flat/", "unflat/"))


def facts_about(apps: Sequence[Z]) -> list[Z]:
    """Guarded facts about the given applications of functions.

    Sources: the functions' definitions over the reals. `flat`/`unflat` are row-major index maps; `resize_index` is
    ONNX's
    nearest coordinate, which stays within the input.
    """
    out: list[Z] = []
    flats = [a for a in apps if a.decl().name().startswith("flat/")]
    for a in apps:
        name = a.decl().name()
        x = a.arg(0)
        match name:
            case "exp":
                out.append(a > 0)
                if z3.is_app(x) and x.decl().eq(LOG):
                    out.append(z3.Implies(x.arg(0) > 0, a == x.arg(0)))
            case "log":
                if z3.is_app(x) and x.decl().eq(EXP):
                    out.append(a == x.arg(0))
            case "sqrt":
                out.append(z3.Implies(x >= 0, z3.And(a >= 0, a * a == x)))
                out.append(z3.Implies(x > 0, a > 0))
            case "inverse":
                out.append(z3.Implies(x != 0, a * x == 1))
                out.append(z3.Implies(x > 0, a > 0))
                out.append(z3.Implies(x < 0, a < 0))
            case "pow":
                out.extend(_power_facts(a))
            case "floor":
                out.append(z3.And(a <= x, x < a + 1))
            case "resized":
                out.append(z3.Implies(z3.And(x >= 0, a.arg(1) > 0), a >= 0))
            case "resize_index":
                i, size, result = a.arg(0), a.arg(1), a.arg(2)
                out.append(z3.Implies(z3.And(i >= 0, i < result, size >= 1), z3.And(a >= 0, a < size)))
            case _:
                if name.startswith("unflat/"):
                    out.extend(_unflatten_facts(a, flats))
                elif name.startswith("flat/"):
                    out.extend(_flatten_facts(a))
    return out


def _power_facts(a: Z) -> list[Z]:
    x, y = a.arg(0), a.arg(1)
    half = z3.RealVal("1/2")
    return [
        z3.Implies(x > 0, a > 0),
        z3.Implies(y == 0, a == 1),
        z3.Implies(y == 1, a == x),
        z3.Implies(y == 2, a == x * x),
        z3.Implies(y == 3, a == x * x * x),
        z3.Implies(z3.And(y == half, x >= 0), z3.And(a >= 0, a * a == x)),
        z3.Implies(z3.And(y == -1, x != 0), a * x == 1),
    ]


def _flatten_facts(a: Z) -> list[Z]:
    rank = a.num_args() // 2
    indices, sizes = a.children()[:rank], a.children()[rank:]
    inside = conj(z3.And(i >= 0, i < d) for i, d in zip(indices, sizes, strict=True))
    return [z3.Implies(inside, z3.And(a >= 0, a < product(sizes)))]


def _unflatten_facts(a: Z, flats: Sequence[Z]) -> list[Z]:
    """`unflat/RANK/K(p, sizes…)` is coordinate K of row-major position p."""
    _, rank_text, k_text = a.decl().name().split("/")
    rank, k = int(rank_text), int(k_text)
    position, sizes = a.arg(0), a.children()[1:]
    within = z3.And(position >= 0, position < product(sizes))
    out = [z3.Implies(within, z3.And(a >= 0, a < sizes[k]))]
    for f in flats:
        if f.num_args() != 2 * rank:
            continue
        indices, others = f.children()[:rank], f.children()[rank:]
        same = conj([f == position, *(d == e for d, e in zip(sizes, others, strict=True))])
        inside = conj(z3.And(i >= 0, i < d) for i, d in zip(indices, others, strict=True))
        out.append(z3.Implies(z3.And(same, inside), a == indices[k]))
        # flat is injective the other way round: the coordinates of p have position p.
        coordinates = [function_unflat(rank, j)(position, *sizes) for j in range(rank)]
        equal = conj(i == c for i, c in zip(indices, coordinates, strict=True))
        shape = conj(d == e for d, e in zip(sizes, others, strict=True))
        out.append(z3.Implies(z3.And(within, equal, shape), f == position))
    return out


def function_unflat(rank: int, k: int) -> Any:
    return z3.Function(f"unflat/{rank}/{k}", *[INT] * (rank + 1), INT)


def function_flat(rank: int) -> Any:
    return z3.Function(f"flat/{rank}", *[INT] * (2 * rank), INT)


def product(sizes: Sequence[Z]) -> Z:
    """The product as the polynomial it is, so that two ways of writing it are one term."""
    out: Z = z3.IntVal(1)
    for d in sizes:
        out = out * d
    return z3.simplify(out, som=True)
