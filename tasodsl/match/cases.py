"""A pattern's match side in all its fixed forms.

A pattern leaves choices open: the order of a commutative operator's operands, whether an optional operand is there, how
many operands `..[term for x in xs]` stands for. A case decides them all, so that what is left is a list of yes-or-no
questions about fixed positions. Only where a pattern has many commutative operators are their orders left to a loop in
the matcher: the number of cases doubles with each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tasodsl import syntax as s
from tasodsl.match.pattern import Pattern, subterms


@dataclass(frozen=True, slots=True)
class Case:
    """The terms of the match side, bind by bind, with every operand of an operator written out.

    `absent` are the optional variables that are not there; `groups` gives the variables that stand for the members of a
    variadic. Optional operands left out are `Absent`.
    """

    terms: tuple[s.Apply, ...]
    absent: frozenset[str]
    groups: tuple[tuple[str, tuple[str, ...]], ...]


MOST_EXPANDED = 2
"""The most commutative operators whose orders are cases of their own."""


def expands_orders(pattern: Pattern) -> bool:
    """Whether the orders of commutative operators are cases; else a matcher tries both where it meets them."""
    count = 0
    for bind in pattern.match:
        mapped = [t for m in subterms(bind.term) if isinstance(m, s.VariadicMap) for t in subterms(m.term)]
        count += sum(_commutes(pattern, t) for t in subterms(bind.term))
        count += (pattern.scope.max_arity - 1) * sum(_commutes(pattern, t) for t in mapped)
    return count <= MOST_EXPANDED


def _commutes(pattern: Pattern, term: s.Term) -> bool:
    return isinstance(term, s.Apply) and pattern.declaration(term.op).commutative


def cases_of(pattern: Pattern) -> list[Case]:
    """All cases, the ones as written first."""
    optional = sorted(_optional_variables(pattern))
    counted = sorted(_counted_variadics(pattern))
    found: dict[Case, None] = {}
    for presence in itertools.product((True, False), repeat=len(optional)):
        absent = frozenset(name for name, there in zip(optional, presence, strict=True) if not there)
        for counts in itertools.product(range(1, pattern.scope.max_arity + 1), repeat=len(counted)):
            groups = tuple((v, tuple(f"{v}#{k}" for k in range(n))) for v, n in zip(counted, counts, strict=True))
            expansion = _Expansion(pattern, absent, dict(groups), expands_orders(pattern))
            for terms in itertools.product(*(expansion.apply(_application(b)) for b in pattern.match)):
                found[Case(terms, absent, groups)] = None
    return list(found)


def _application(bind: s.Bind) -> s.Apply:
    assert isinstance(bind.term, s.Apply), "the checker lets only operators be matched"
    return bind.term


def _optional_variables(pattern: Pattern) -> set[str]:
    declared = {v.name for v in pattern.variables.values() if v.optional}
    used = [t for b in pattern.match for t in subterms(b.term) if isinstance(t, s.Var)]
    return {t.name for t in used if t.optional or t.name in declared}


def _counted_variadics(pattern: Pattern) -> set[str]:
    """Variadics whose number of operands a case must decide: mapped ones, and those that share a list of operands."""
    counted: set[str] = set()
    for term in (t for b in pattern.match for t in subterms(b.term)):
        if isinstance(term, s.VariadicMap):
            counted.add(term.source)
        elif isinstance(term, s.Apply):
            lists = [a for a in term.args if isinstance(a, s.Variadic | s.VariadicMap)]
            if len(lists) > 1:
                counted.update(a.name if isinstance(a, s.Variadic) else a.source for a in lists)
    return counted


@dataclass(frozen=True, slots=True)
class _Expansion:
    pattern: Pattern
    absent: frozenset[str]
    groups: Mapping[str, tuple[str, ...]]
    orders: bool

    def apply(self, term: s.Apply) -> list[s.Apply]:
        op = self.pattern.declaration(term.op)
        lists = [list(self._operands(a)) for a in term.args]
        found: list[s.Apply] = []
        for chosen in itertools.product(*lists):
            args = tuple(t for part in chosen for t in part)
            if not any(o.variadic for o in op.operands):
                args = (*args, *(s.Absent() for _ in range(len(op.operands) - len(args))))
            found.append(replace(term, args=args))
            if self.orders and op.commutative and len(args) == 2 and args[0] != args[1]:
                found.append(replace(term, args=args[::-1]))
        return found

    def _operands(self, term: s.Term) -> Iterator[tuple[s.Term, ...]]:
        """What a term of an operand list may be, each time as one or several operands."""
        match term:
            case s.Var() if term.name in self.absent:
                yield (s.Absent(),)
            case s.Apply():
                for inner in self.apply(term):
                    yield (inner,)
            case s.Variadic() if term.name in self.groups:
                yield tuple(s.Var(member) for member in self.groups[term.name])
            case s.VariadicMap():
                members = [
                    [t for (t,) in self._operands(_renamed(term.term, term.variable, member))]
                    for member in self.groups[term.source]
                ]
                yield from itertools.product(*members)
            case _:
                yield (term,)


def _renamed(term: s.Term, variable: str, member: str) -> s.Term:
    match term:
        case s.Var() if term.name == variable:
            return replace(term, name=member)
        case s.Apply():
            return replace(term, args=tuple(_renamed(a, variable, member) for a in term.args))
        case _:
            return term
