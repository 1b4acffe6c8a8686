"""Symbolic dimensions: integers, or linear combinations of input dimensions.

A model's dimension is an `int` when it is known and a `SymDim` otherwise. `SymDim` keeps a canonical form, so that two
dimensions are equal exactly when they are derivable alike from the same input dimensions; an unknown dimension (a
symbol of its own) equals nothing but itself. Comparisons that the canonical form cannot decide raise `Undecided`:
whoever asks must treat that as "no", never as a guess. Every symbol stands for a non-negative integer.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Union, cast

Dim = Union[int, "SymDim"]
Shape = tuple[Dim, ...]
Atom = tuple[object, ...]
"""`("sym", NAME)`, `("//", dividend, divisor)` or `("%", dividend, divisor)`."""


class Undecided(Exception):
    """A comparison of dimensions whose answer depends on the value of a symbol."""


@dataclass(frozen=True, slots=True)
class SymDim:
    """`constant + sum(coefficient * product of atoms)`; `terms` is sorted and has no zero coefficient."""

    constant: int
    terms: tuple[tuple[tuple[Atom, ...], int], ...]

    def __add__(self, other: Dim) -> Dim:
        o = _of(other)
        return _make(self.constant + o.constant, [*self.terms, *o.terms])

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + other * -1

    def __rsub__(self, other: Dim) -> Dim:
        return self * -1 + other

    def __mul__(self, other: Dim) -> Dim:
        o = _of(other)
        terms: list[tuple[tuple[Atom, ...], int]] = []
        left = [*self.terms, ((), self.constant)]
        right = [*o.terms, ((), o.constant)]
        for (a, x), (b, y) in itertools.product(left, right):
            terms.append((tuple(sorted((*a, *b), key=repr)), x * y))
        return _make(0, terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return _divide(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return _divide(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return self - other * _divide(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return _of(other) - self * _divide(other, self)

    def __str__(self) -> str:
        parts: list[str] = []
        for atoms, k in self.terms:
            body = "*".join(_atom_text(a) for a in atoms)
            parts.append(body if k == 1 else f"{k}*{body}")
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


def _atom_text(atom: Atom) -> str:
    if atom[0] == "sym":
        return str(atom[1])
    return f"(({atom[1]}) {atom[0]} ({atom[2]}))"


def _of(d: Dim) -> SymDim:
    return d if isinstance(d, SymDim) else SymDim(int(d), ())


def _make(constant: int, terms: list[tuple[tuple[Atom, ...], int]]) -> Dim:
    total: dict[tuple[Atom, ...], int] = {}
    for atoms, k in terms:
        if not atoms:
            constant += k
        else:
            total[atoms] = total.get(atoms, 0) + k
    kept = tuple(sorted(((a, k) for a, k in total.items() if k), key=repr))
    return SymDim(constant, kept) if kept else constant


def _divide(a: Dim, b: Dim) -> Dim:
    """Floor division. Multiples of a positive integer divisor leave the quotient exactly; the rest stays one atom."""
    if isinstance(b, int):
        if b <= 0:
            raise Undecided
        x = _of(a)
        out = [(t, k // b) for t, k in x.terms if k % b == 0]
        rest = _make(x.constant % b, [(t, k) for t, k in x.terms if k % b])
        whole = _make(x.constant // b, out)
        if isinstance(rest, int):
            return whole
        return whole + SymDim(0, (((("//", rest, b),), 1),))
    if isinstance(a, SymDim) and a == b:
        raise Undecided  # b may be zero
    return SymDim(0, (((("//", a, b),), 1),))


def symbol(name: str) -> SymDim:
    """The dimension called `name`; two calls with one name give equal dimensions."""
    return SymDim(0, (((("sym", name),), 1),))


def substitute(d: Dim, values: Mapping[str, int]) -> Dim:
    """`d` with the symbols that `values` names replaced by their numbers; `Undecided` where that divides by zero."""
    if isinstance(d, int):
        return d
    total: Dim = d.constant
    for atoms, k in d.terms:
        product: Dim = k
        for atom in atoms:
            product = product * _substitute_atom(atom, values)
        total = total + product
    return total


def _substitute_atom(atom: Atom, values: Mapping[str, int]) -> Dim:
    if atom[0] == "sym":
        name = str(atom[1])
        return values.get(name, symbol(name))
    a, b = substitute(cast(Dim, atom[1]), values), substitute(cast(Dim, atom[2]), values)
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise Undecided
        return a // b
    return a // b


def symbols(d: Dim) -> frozenset[str]:
    """The names of all symbols in `d`."""
    if isinstance(d, int):
        return frozenset()
    found: set[str] = set()
    for atoms, _ in d.terms:
        for atom in atoms:
            if atom[0] == "sym":
                found.add(str(atom[1]))
            else:
                found |= symbols(cast(Dim, atom[1])) | symbols(cast(Dim, atom[2]))
    return frozenset(found)


def same(a: Dim, b: Dim) -> bool:
    """True when the two are equal for every value of the symbols (False does not mean that they differ)."""
    return a == b


def _plain(d: SymDim) -> bool:
    """Whether `d` is a polynomial in its symbols, without quotients."""
    return all(atom[0] == "sym" for atoms, _ in d.terms for atom in atoms)


def difference_sign(a: Dim, b: Dim) -> int:
    """-1, 0 or 1 as `a` is less than, equal to or greater than `b` for every value of the symbols; else `Undecided`."""
    d = a - b
    if isinstance(d, int):
        return (d > 0) - (d < 0)
    # Symbols are non-negative: a form whose coefficients share a sign with a non-zero constant keeps that sign.
    plain = _plain(d)
    if plain and d.constant > 0 and all(k > 0 for _, k in d.terms):
        return 1
    if plain and d.constant < 0 and all(k < 0 for _, k in d.terms):
        return -1
    raise Undecided


def less_equal(a: Dim, b: Dim) -> bool:
    """`a <= b`, or `Undecided`."""
    d = a - b
    if not isinstance(d, int) and _plain(d) and d.constant <= 0 and all(k < 0 for _, k in d.terms):
        return True
    return difference_sign(a, b) <= 0
