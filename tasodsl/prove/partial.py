"""Is the rewrite side defined wherever the match side is?

Divisions, logarithms, roots, powers and extremes over a window have no value somewhere. A place on the rewrite side
where
that cannot be excluded is accepted only when the match side computes the very same thing there: the same function of a
provably equal operand, on the way to the same entry of the same output. So the look is at the outputs' entries,
unfolded.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import z3

from tasodsl.prove.equal import Equality
from tasodsl.prove.obligations import Case
from tasodsl.prove.reals import Algebra, Sum, Z, conj, substitute, variables
from tasodsl.prove.reals import replace as put
from tasodsl.prove.solver import PARTIAL, Solver, applications
from tasodsl.prove.splits import splits
from tasodsl.prove.target import Tensor

NAN_STAYS = frozenset(["exp", "erf", "tanh", "sin", "cos", "floor"])
"""Other functions of a real that are NaN at NaN."""

MAX_BOUND = 6
"""More bound indices around one partial function than this are not matched."""


@dataclass(frozen=True, slots=True)
class Atom:
    """An application of a partial function, with the conditions under which it is computed and the indices bound
    there."""

    term: Z
    context: tuple[Z, ...]
    bound: tuple[Z, ...]
    exposed: bool
    """Whether the entry has no finite value where this has none."""


def defined(case: Case, solver: Solver, equality: Equality) -> bool:
    """Whether every partial application in the rewritten outputs is defined, or is computed by the match side as
    well."""
    for _, left, right, _ in case.outputs:
        if not isinstance(left.value, Sum) or not isinstance(right.value, Sum):
            return False
        within = [z3.And(p >= 0, p < d) for p, d in zip(left.params, left.shape, strict=True)]
        hypotheses = [*case.hypotheses, *within]
        entry = substitute(right.value, list(zip(right.params, left.params, strict=True)), case.algebra.index)
        if _entry_defined(hypotheses, left.value, entry, solver, equality):
            continue
        pieces = splits([left.value, entry])
        if not pieces or not all(
            _entry_defined([*hypotheses, *piece], left.value, entry, solver, equality) for piece in pieces
        ):
            return False
    return True


def _entry_defined(hypotheses: Sequence[Z], left: Sum, right: Sum, solver: Solver, equality: Equality) -> bool:
    known = list(atoms(left, equality.algebra))
    for atom in atoms(right, equality.algebra):
        here = [*hypotheses, *atom.context]
        if not _in_domain(here, atom.term, solver) and not any(
            _computed(here, atom, other, solver, equality) for other in known
        ):
            return False
    return True


def computed(tensor: Tensor, case: Case) -> list[Z]:
    """What may be assumed because this entry has a finite value: it divides by no zero, takes no root of a negative.

    A floating-point number need not be finite on the way to a finite entry: a comparison is false for NaN, and
    1/(1/0) is 0. So only those places count from which NaN, or an infinity, comes through to the entry.
    """
    own = {p.get_id() for p in tensor.params}
    out: list[Z] = []
    for d in case.match_demands:
        found = {v for term in (*d.path, d.condition) for v in variables(term)}
        # A demand without indices may come from a tensor of rank 0, which this entry need not depend on.
        if d.kind == "divisor" and found and found <= own:
            out.append(z3.Implies(conj(d.path), d.condition) if d.path else d.condition)
    if not isinstance(tensor.value, Sum):
        return out
    for p in tensor.value.products:
        if p.binders:
            continue
        for term, exposed in _coming_through(p.body, True):
            condition = _domain(term) if exposed else _number_at_all(term)
            if condition is not None:
                out.append(z3.Implies(conj(p.guards), condition) if p.guards else condition)
    return out


def _coming_through(value: Z, exposed: bool) -> Iterator[tuple[Z, bool]]:
    """The partial applications and reduction symbols whose NaN makes `value` NaN, and whether an infinity of theirs
    leaves it without a finite value, too.

    Conditions hide what they do not choose, and a cast makes a number of anything: it is not looked below those.
    """
    if not z3.is_app(value):
        return
    name = value.decl().name()
    if "#" in name:  # a reduction symbol
        yield value, exposed
    if z3.is_const(value):
        return
    if value.decl().kind() == z3.Z3_OP_UNINTERPRETED:
        if name in PARTIAL:
            yield value, exposed
        elif name not in NAN_STAYS:
            return
        exposed = exposed and name in ("log", "sqrt")
    elif not (z3.is_add(value) or z3.is_sub(value) or z3.is_mul(value) or value.decl().kind() == z3.Z3_OP_UMINUS):
        return
    if name == "pow":
        return  # 1 to any power, and anything to the power 0, is 1
    for child in value.children():
        yield from _coming_through(child, exposed)


def _number_at_all(term: Z) -> Z | None:
    """Where the application is not NaN."""
    return term.arg(0) >= 0 if term.decl().name() in ("log", "sqrt") else None


def _domain(term: Z) -> Z | None:
    match term.decl().name():
        case "inverse":
            return term.arg(0) != 0
        case "log":
            return term.arg(0) > 0
        case "sqrt":
            return term.arg(0) >= 0
        case _:
            return None


def atoms(value: Sum, algebra: Algebra) -> Iterator[Atom]:
    """The partial applications in an entry, reduction symbols unfolded."""
    stack: list[tuple[Sum, tuple[Z, ...], tuple[Z, ...], bool]] = [(value, (), (), True)]
    while stack:
        current, context, bound, outer = stack.pop()
        for p in current.products:
            inside = (*context, *(b.range() for b in p.binders), *p.guards)
            names = (*bound, *(b.variable for b in p.binders))
            through = {term.get_id() for term, exposed in _coming_through(p.body, outer) if exposed}
            for app in _apps_and_symbols([p.body, *p.guards], algebra):
                exposed = app.get_id() in through
                symbol = algebra.symbols.get(app.decl().name())
                if symbol is None:
                    yield Atom(app, inside, names, exposed)
                    continue
                if symbol.kind != "sum":
                    yield Atom(app, inside, names, exposed)
                stack.append((symbol.at(app.children(), algebra.index), inside, names, exposed))


def _apps_and_symbols(terms: Sequence[Z], algebra: Algebra) -> list[Z]:
    found = [a for a in applications(terms) if a.decl().name() in PARTIAL or a.decl().name() in algebra.symbols]
    seen: set[int] = set()
    stack = list(terms)
    while stack:
        x = stack.pop()
        if x.get_id() in seen:
            continue
        seen.add(x.get_id())
        if z3.is_const(x):
            if x.decl().name() in algebra.symbols:
                found.append(x)
        elif z3.is_app(x):
            stack.extend(x.children())
    return found


def _in_domain(hypotheses: Sequence[Z], term: Z, solver: Solver) -> bool:
    if term.decl().name() == "pow":
        x, y = term.children()
        whole = z3.is_rational_value(y) and y.as_fraction().denominator == 1 and y.as_fraction() >= 0
        return whole or solver.proves(hypotheses, x > 0)
    condition = _domain(term)
    return condition is not None and solver.proves(hypotheses, condition)


def _computed(hypotheses: Sequence[Z], atom: Atom, other: Atom, solver: Solver, equality: Equality) -> bool:
    """Whether the match side's `other`, at some matching of its bound indices, is `atom`, and is computed here."""
    a, b = atom.term, other.term
    symbols = equality.algebra.symbols
    if a.decl().name() in symbols:
        if b.decl().name() not in symbols:
            return False
    elif not a.decl().eq(b.decl()) or (atom.exposed and not other.exposed):
        return False
    if len(other.bound) > MAX_BOUND or len(other.bound) > len(atom.bound):
        return False
    for chosen in itertools.permutations(atom.bound, len(other.bound)):
        pairs = list(zip(other.bound, chosen, strict=True))
        if not all(solver.proves(hypotheses, put(c, pairs)) for c in other.context):
            continue
        if equality.same_value(hypotheses, a, put(b, pairs)):
            return True
    return False
