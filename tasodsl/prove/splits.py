"""Splitting a question about an entry by the conditions on its own index.

A tensor that is put together of pieces has another value in each of them. What cannot be shown for every entry at once
is then shown for the entries of one piece after another.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import z3

from tasodsl.prove.reals import Sum, Z, variables

MOST_CONDITIONS = 3
"""More conditions than this are not taken apart: the ways they can turn out double with each."""


def splits(values: Sequence[Sum]) -> list[tuple[Z, ...]]:
    """All the ways in which the conditions in the values that no bound index occurs in can turn out; none if there are
    no such conditions, or too many."""
    found: dict[int, Z] = {}
    for p in (p for value in values for p in value.products):
        bound = {b.variable.get_id() for b in p.binders}
        for guard in p.guards:
            for condition in _conditions(guard):
                if not bound & variables(condition).keys():
                    found.setdefault(condition.get_id(), condition)
    if not 0 < len(found) <= MOST_CONDITIONS:
        return []
    return list(itertools.product(*((c, z3.Not(c)) for c in found.values())))


def _conditions(guard: Z) -> list[Z]:
    if z3.is_and(guard) or z3.is_not(guard):
        return [c for part in guard.children() for c in _conditions(part)]
    return [guard]
