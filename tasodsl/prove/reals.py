"""Real-valued entries of tensors as sums of products with bound indices and guards.

An entry is a `Sum`: a list of `Product`s, each standing for "the sum, over its binders' ranges where its guards
hold, of its
body". The body is a Z3 real made of tensor reads (uninterpreted functions of indices), scalar functions and
polynomials of
them. Guards stay apart from bodies, so that Z3 is only ever asked about bodies, domains and shapes.

A reduction that stands under a non-linear function (the denominator of a softmax, the maximum of a window) becomes a
*symbol*: an uninterpreted function applied to all the indices it depends on, with its definition kept aside. Two
symbols are
equal only when their definitions are proved equal at those arguments.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import z3

INT: Any = z3.IntSort()
REAL: Any = z3.RealSort()
Z = Any
"""A Z3 term; z3's own types say little to a type checker."""

Kind = Literal["sum", "max", "min"]


@dataclass(frozen=True, slots=True)
class Binder:
    """A bound index, `0 <= variable < bound`."""

    variable: Z
    bound: Z

    def range(self) -> Z:
        return z3.And(self.variable >= 0, self.variable < self.bound)


@dataclass(frozen=True, slots=True)
class Product:
    binders: tuple[Binder, ...]
    guards: tuple[Z, ...]
    body: Z


@dataclass(frozen=True, slots=True)
class Sum:
    products: tuple[Product, ...]

    @property
    def is_plain(self) -> bool:
        """No bound index: the value is one Z3 term."""
        return all(not p.binders for p in self.products)

    def plain(self) -> Z:
        """The Z3 term of a sum without bound indices."""
        assert self.is_plain
        parts = [z3.If(conj(p.guards), p.body, z3.RealVal(0)) if p.guards else p.body for p in self.products]
        return z3.RealVal(0) if not parts else parts[0] if len(parts) == 1 else z3.Sum(parts)


def conj(parts: Iterable[Z]) -> Z:
    listed = list(parts)
    return z3.BoolVal(True) if not listed else listed[0] if len(listed) == 1 else z3.And(*listed)


def real(value: Any) -> Z:
    """A Z3 real from a number or an integer term."""
    if isinstance(value, bool):
        raise TypeError("a boolean is not a number")
    if isinstance(value, int):
        return z3.RealVal(value)
    if isinstance(value, Fraction):
        return z3.RealVal(f"{value.numerator}/{value.denominator}")
    if isinstance(value, z3.ExprRef) and z3.is_int(value):
        return z3.RealVal(value.as_long()) if z3.is_int_value(value) else z3.ToReal(value)  # type: ignore[attr-defined]
    return value


def as_sum(value: Any) -> Sum:
    return value if isinstance(value, Sum) else Sum((Product((), (), real(value)),))


@dataclass(frozen=True, slots=True)
class Symbol:
    """The definition behind a reduction symbol: its kind, its parameters and its value at them."""

    kind: Kind
    params: tuple[Z, ...]
    value: Sum

    unfolded: dict[tuple[int, ...], tuple[Sum, tuple[Z, ...]]] = field(
        default_factory=dict[tuple[int, ...], tuple[Sum, tuple[Z, ...]]]
    )
    """Values at arguments that were asked for, with the arguments (which keeps their ids theirs)."""

    def at(self, args: Sequence[Z], fresh: Callable[[str], Z]) -> Sum:
        """The definition at `args`; the same object for the same arguments."""
        key = tuple(a.get_id() for a in args)
        if key not in self.unfolded:
            made = substitute(self.value, list(zip(self.params, args, strict=True)), fresh)
            self.unfolded[key] = (made, tuple(args))
        return self.unfolded[key][0]


@dataclass(slots=True)
class Algebra:
    """Arithmetic on `Sum`s; owns the supply of fresh names and the definitions of reduction symbols of one proof."""

    counter: Any = field(default_factory=itertools.count)
    symbols: dict[str, Symbol] = field(default_factory=dict[str, Symbol])
    with_facts: bool = False
    """Whether a function that the solver knows facts about was made."""

    def index(self, hint: str = "i") -> Z:
        """A fresh integer variable."""
        return z3.Int(f"{hint}!{next(self.counter)}")

    def add(self, a: Sum, b: Sum) -> Sum:
        return Sum((*a.products, *b.products))

    def negate(self, a: Sum) -> Sum:
        return Sum(tuple(Product(p.binders, p.guards, -p.body) for p in a.products))

    def multiply(self, a: Sum, b: Sum) -> Sum:
        out: list[Product] = []
        for p in a.products:
            for q in b.products:
                q = freshened(q, self.index)  # a square of a sum has two bound indices, not one
                out.append(Product((*p.binders, *q.binders), (*p.guards, *q.guards), p.body * q.body))
        return Sum(tuple(out))

    def guard(self, condition: Z, a: Sum) -> Sum:
        return Sum(tuple(Product(p.binders, (condition, *p.guards), p.body) for p in a.products))

    def choose(self, condition: Z, a: Sum, b: Sum) -> Sum:
        return self.add(self.guard(condition, a), self.guard(z3.Not(condition), b))

    def reduce_sum(self, binders: Sequence[Binder], condition: Z | None, body: Sum) -> Sum:
        extra = () if condition is None else (condition,)
        return Sum(tuple(Product((*binders, *p.binders), (*extra, *p.guards), p.body) for p in body.products))

    def reduce_extreme(self, kind: Kind, binders: Sequence[Binder], condition: Z | None, body: Sum) -> Z:
        """A maximum or minimum over a domain, as a symbol."""
        inner = self.value(body)
        guards = () if condition is None else (condition,)
        return self.symbol(kind, Sum((Product(tuple(binders), guards, inner),)))

    def value(self, a: Sum) -> Z:
        """One Z3 term for `a`: itself where it is plain, else a symbol."""
        return a.plain() if a.is_plain else self.symbol("sum", a)

    def symbol(self, kind: Kind, value: Sum) -> Z:
        params = free_indices(value)
        name = f"{kind}#{next(self.counter)}"
        self.symbols[name] = Symbol(kind, params, value)
        return function(name, [INT] * len(params), REAL)(*params)


def function(name: str, domain: Sequence[Z], result: Z) -> Any:
    """An uninterpreted function; with no arguments, a constant wrapped so that it can be called."""
    if domain:
        return z3.Function(name, *domain, result)
    constant = z3.Const(name, result)
    return lambda: constant


def freshened(p: Product, fresh: Callable[[str], Z]) -> Product:
    """The same product with new bound indices."""
    if not p.binders:
        return p
    pairs = [(b.variable, fresh("s")) for b in p.binders]
    binders = tuple(Binder(w, replace(b.bound, pairs)) for b, (_, w) in zip(p.binders, pairs, strict=True))
    return Product(binders, tuple(replace(g, pairs) for g in p.guards), replace(p.body, pairs))


def replace(e: Z, pairs: Sequence[tuple[Z, Z]]) -> Z:
    return z3.substitute(e, *pairs) if pairs else e


def substitute(a: Sum, pairs: Sequence[tuple[Z, Z]], fresh: Callable[[str], Z]) -> Sum:
    """`a` with variables replaced; bound indices are renewed at every use, so that none is ever captured."""
    out: list[Product] = []
    for p in a.products:
        q = freshened(p, fresh)
        out.append(
            Product(
                tuple(Binder(b.variable, replace(b.bound, pairs)) for b in q.binders),
                tuple(replace(g, pairs) for g in q.guards),
                replace(q.body, pairs),
            )
        )
    return Sum(tuple(out))


def variables(e: Z) -> dict[int, Z]:
    """The integer constants in a term that are indices (their names hold a `!`)."""
    found: dict[int, Z] = {}
    seen: set[int] = set()
    stack = [e]
    while stack:
        x = stack.pop()
        key = x.get_id()
        if key in seen:
            continue
        seen.add(key)
        if z3.is_const(x):
            if z3.is_int(x) and x.decl().kind() == z3.Z3_OP_UNINTERPRETED and "!" in x.decl().name():
                found[key] = x
        elif z3.is_app(x):
            stack.extend(x.children())
    return found


def free_indices(a: Sum) -> tuple[Z, ...]:
    """All free indices of a sum, in a fixed order."""
    found: dict[int, Z] = {}
    for p in a.products:
        inner: dict[int, Z] = {}
        for e in (*(b.bound for b in p.binders), *p.guards, p.body):
            inner.update(variables(e))
        for b in p.binders:
            inner.pop(b.variable.get_id(), None)
        found.update(inner)
    return tuple(sorted(found.values(), key=lambda v: int(v.decl().name().rsplit("!", 1)[1])))
