"""Are two entries equal for all sizes? Sums are normalised, their products paired, and Z3 asked about bodies and
domains.

Each step replaces a sum by one that is equal under the hypotheses, and each is small: drop a product whose guards
cannot
hold, drop a guard that always holds, take a sum over one point at its point, shift a bound index by the window that the
guards imply, take a body that is constant over its domain out as body times the size of the domain. What is left is
paired
up to the order of bound indices and a shift of each. Reduction symbols are unfolded only to compare two of them.
Not finding an equality is never a refutation.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import z3

from tasodsl.prove.reals import Algebra, Binder, Kind, Product, Sum, Z, conj
from tasodsl.prove.reals import replace as put
from tasodsl.prove.solver import INVERSE, Solver, applications

MAX_SHIFTS = 4
"""How many bound indices may be shifted at once when two products are paired."""

FIRST_TRY = 0.2
"""Seconds for Z3 alone on two values, before their parts are compared one by one."""


@dataclass(slots=True)
class Equality:
    """Proves equalities under hypotheses, with the definitions of one proof's reduction symbols."""

    solver: Solver
    algebra: Algebra
    given: tuple[Z, ...] = ()
    """What may be assumed about values (not sizes), since the match side computes them; given to the last question
    only."""
    depth: int = 0
    sizes: tuple[Z, ...] = ()
    """The hypotheses about sizes alone, the same for all questions of a case."""
    unfolded: dict[int, Z] = field(default_factory=dict[int, Z])
    """Symbol applications known to have no plain value."""
    normals: dict[tuple[object, ...], tuple[Product | None, list[Any]]] = field(
        default_factory=dict[tuple[object, ...], tuple[Product | None, list[Any]]]
    )
    """Normal forms found, by hypotheses and product (kept alive beside them, so that ids stay theirs)."""
    different: dict[tuple[object, ...], list[Any]] = field(default_factory=dict[tuple[object, ...], list[Any]])
    """Pairs of symbol applications that were not shown equal."""

    def equal(self, hypotheses: Sequence[Z], left: Sum, right: Sum, kind: Kind = "sum") -> bool:
        """Whether the two sums (or, for `kind` max and min, the two extremes over single products) are proved equal."""
        if left is right:
            return True
        lefts, rights = self._without_twins(hypotheses, left, right)
        a = [n for p in lefts if (n := self.normal(hypotheses, p, kind)) is not None]
        b = [n for p in rights if (n := self.normal(hypotheses, p, kind)) is not None]
        if kind == "sum":
            plain_a, plain_b = (Sum(tuple(p for p in s if not p.binders)).plain() for s in (a, b))
            a, b = [p for p in a if p.binders], [p for p in b if p.binders]
            if len(a) != len(b) or not self.same_value(hypotheses, plain_a, plain_b):
                return False
        if len(a) != len(b):
            return False
        for p in a:
            partner = next((k for k, q in enumerate(b) if self.paired(hypotheses, p, q, kind)), None)
            if partner is None:
                return False
            b.pop(partner)
        return True

    def _without_twins(self, hypotheses: Sequence[Z], left: Sum, right: Sum) -> tuple[list[Product], list[Product]]:
        """The products that are left when those with one domain, as it is written, and equal bodies are taken away."""
        lefts: list[Product] = []
        rights = list(right.products)
        for p in left.products:
            twin = next((k for k, q in enumerate(rights) if p.binders and self._twins(hypotheses, p, q)), None)
            if twin is None:
                lefts.append(p)
            else:
                rights.pop(twin)
        return lefts, rights

    def _twins(self, hypotheses: Sequence[Z], p: Product, q: Product) -> bool:
        if len(p.binders) != len(q.binders):
            return False
        pairs = [(c.variable, b.variable) for b, c in zip(p.binders, q.binders, strict=True)]
        if not all(_zero(b.bound - put(c.bound, pairs)) for b, c in zip(p.binders, q.binders, strict=True)):
            return False
        ours = _flat([z3.simplify(g) for g in p.guards])
        theirs = _flat([z3.simplify(put(g, pairs)) for g in q.guards])
        if not all(any(g.eq(h) for h in theirs) for g in ours) or not all(any(g.eq(h) for h in ours) for g in theirs):
            return False
        x, y = p.body, put(q.body, pairs)
        return _zero(x - y) or self.same_value([*hypotheses, *(b.range() for b in p.binders), *ours], x, y)

    # --- values ---

    def same_value(self, hypotheses: Sequence[Z], x: Z, y: Z) -> bool:
        """Whether two plain terms are equal: as polynomials, then with equal entries named alike, then by Z3."""
        x, y = _settled(x), _settled(y)
        if x.eq(y) or _zero(x - y):
            return True
        if not _has_symbol(x) and not _has_symbol(y) and self.solver.proves(hypotheses, x == y, FIRST_TRY):
            return True
        named_x, named_y = self.named_alike(hypotheses, x, y)
        if named_x.eq(named_y) or _zero(named_x - named_y):
            return True
        return self.solver.proves([*hypotheses, *self.given], named_x == named_y)

    def named_alike(self, hypotheses: Sequence[Z], x: Z, y: Z) -> tuple[Z, Z]:
        """Applications of one function whose arguments are provably equal become one term, inner ones first."""
        seen: dict[str, list[Z]] = {}
        for _ in range(200):
            apps = applications((x, y))
            step: tuple[Z, Z] | None = None
            seen.clear()
            for app in apps:
                if z3.is_int(app):
                    continue  # index functions are Z3's own congruence
                known = seen.setdefault(app.decl().name(), [])
                match = next((k for k in known if not k.eq(app) and self._same_application(hypotheses, k, app)), None)
                if match is not None:
                    step = (app, match)
                    break
                if not any(k.eq(app) for k in known):
                    known.append(app)
            if step is None:
                pairs = self._plain_symbol(hypotheses, (x, y)) or self._unify_symbols(hypotheses, apps)
                if not pairs:
                    return x, y
                x, y = put(x, pairs), put(y, pairs)
                continue
            x, y = put(x, [step]), put(y, [step])
        return x, y

    def _same_application(self, hypotheses: Sequence[Z], a: Z, b: Z) -> bool:
        for p, q in zip(a.children(), b.children(), strict=True):
            if p.eq(q):
                continue
            if z3.is_real(p):
                if not _zero(p - q) and not self.solver.proves(hypotheses, p == q):
                    return False
            elif not self.solver.proves(hypotheses, p == q):
                return False
        return True

    def _plain_symbol(self, hypotheses: Sequence[Z], terms: Sequence[Z]) -> list[tuple[Z, Z]]:
        """One sum symbol whose definition turns out to have no bound index, with that value, if there is one."""
        for a in [*applications(terms), *self._constants(terms)]:
            symbol = self.algebra.symbols.get(a.decl().name())
            if symbol is None or symbol.kind != "sum" or a.get_id() in self.unfolded:
                continue
            value = symbol.at(a.children(), self.algebra.index)
            normal = [n for p in value.products if (n := self.normal(hypotheses, p, "sum")) is not None]
            if all(not n.binders for n in normal):
                plain = Sum(tuple(normal)).plain()
                if not any(
                    c.decl().name() in self.algebra.symbols for c in [*applications([plain]), *self._constants([plain])]
                ):
                    return [(a, plain)]
            self.unfolded[a.get_id()] = a
        return []

    def _unify_symbols(self, hypotheses: Sequence[Z], apps: Sequence[Z]) -> list[tuple[Z, Z]]:
        """One pair of different reduction symbols whose definitions are equal at their arguments, if there is one."""
        symbols = [a for a in apps if a.decl().name() in self.algebra.symbols]
        names = {a.decl().name() for a in apps}
        symbols += [c for c in self._constants(apps) if c.decl().name() not in names]
        if self.depth > 4:
            return []
        for a, b in itertools.combinations(symbols, 2):
            first, second = self.algebra.symbols[a.decl().name()], self.algebra.symbols[b.decl().name()]
            if first.kind != second.kind or a.eq(b):
                continue
            key = (*(h.get_id() for h in hypotheses), -1, a.get_id(), b.get_id())
            if key in self.different:
                continue
            self.depth += 1
            same = self.equal(
                hypotheses,
                first.at(a.children(), self.algebra.index),
                second.at(b.children(), self.algebra.index),
                first.kind,
            )
            self.depth -= 1
            if same:
                return [(b, a)]
            self.different[key] = [*hypotheses, a, b]
        return []

    def _constants(self, terms: Sequence[Z]) -> list[Z]:
        """Reduction symbols without arguments."""
        found: dict[str, Z] = {}
        stack = list(terms)
        while stack:
            x = stack.pop()
            if z3.is_const(x) and x.decl().name() in self.algebra.symbols:
                found[x.decl().name()] = x
            stack.extend(x.children() if z3.is_app(x) else [])
        return list(found.values())

    # --- normal form of a product ---

    def normal(self, hypotheses: Sequence[Z], p: Product, kind: Kind) -> Product | None:
        """The normal form, or None for a product that contributes nothing."""
        terms = [*(x for b in p.binders for x in (b.variable, b.bound)), *p.guards, p.body]
        key = (kind, len(p.binders), *(h.get_id() for h in hypotheses), -1, *(x.get_id() for x in terms))
        if key not in self.normals:
            self.normals[key] = (self._normal(hypotheses, p, kind), [*hypotheses, *terms])
        return self.normals[key][0]

    def _normal(self, hypotheses: Sequence[Z], p: Product, kind: Kind) -> Product | None:
        guards = _flat([z3.simplify(g) for g in p.guards])
        p = replace(p, guards=tuple(guards))
        while True:
            ranges = [b.range() for b in p.binders]
            everything = [*hypotheses, *ranges]
            if p.guards and self.solver.proves([*everything, *p.guards], z3.BoolVal(False)):
                return None
            p = replace(p, guards=tuple(g for g in p.guards if not self.solver.proves(everything, g, 0.5)))
            simpler = self._point(hypotheses, p) or self._window(hypotheses, p)
            if simpler is None:
                break
            p = simpler
        if kind != "sum":
            return p
        p = self._constant_body(p)
        p = self._free_binders(hypotheses, p)
        if _zero(p.body):
            return None
        return p

    def _point(self, hypotheses: Sequence[Z], p: Product) -> Product | None:
        """A sum over a range of one point, or over the point that a guard states."""
        for k, b in enumerate(p.binders):
            others = (*p.binders[:k], *p.binders[k + 1 :])
            if any(_mentions(o.bound, b.variable) for o in others):
                continue
            if self._is_one(b.bound):
                return _at(p, k, z3.IntVal(0), [])
            for g in p.guards:
                if z3.is_eq(g) and z3.is_int(g.arg(0)):
                    point = _solved(g.arg(0) - g.arg(1), b.variable)
                    if point is not None:
                        return _at(p, k, point, [point >= 0, point < b.bound])
        return None

    def _is_one(self, bound: Z) -> bool:
        if z3.is_int_value(bound):
            return bound.as_long() == 1
        return self.solver.proves(self.sizes, bound == 1, FIRST_TRY)

    def _window(self, hypotheses: Sequence[Z], p: Product) -> Product | None:
        """A bound index shifted so that it runs over the window its guards imply."""
        for k, b in enumerate(p.binders):
            others = (*p.binders[:k], *p.binders[k + 1 :])
            if any(_mentions(o.bound, b.variable) for o in others):
                continue
            v = b.variable
            lows, highs = _bounds(p.guards, v)
            outer = [*hypotheses, *(o.range() for o in others)]
            rest = [g for g in p.guards if not _mentions(g, v)]
            for low in [*lows, z3.IntVal(0)]:
                for high in [*highs, b.bound]:
                    if z3.is_int_value(low) and low.as_long() == 0 and _zero(high - b.bound):
                        continue
                    window = [low <= v, v < high]
                    if not self.solver.proves([*outer, *p.guards, b.range()], conj(window), 1.0):
                        continue
                    if not self.solver.proves([*outer, *window, *rest], b.range(), 1.0):
                        continue
                    w = self.algebra.index("w")
                    pairs = [(v, w + low)]
                    binder = Binder(w, z3.simplify(high - low, som=True))
                    binders = (*p.binders[:k], binder, *p.binders[k + 1 :])
                    return Product(binders, tuple(put(g, pairs) for g in p.guards), put(p.body, pairs))
        return None

    def _constant_body(self, p: Product) -> Product:
        """Body constant over a guarded domain: body times the number of points, which is a symbol."""
        if not p.binders or not p.guards or any(_mentions(p.body, b.variable) for b in p.binders):
            return p
        if z3.is_rational_value(z3.simplify(p.body)) and z3.simplify(p.body).as_fraction() == 1:
            return p
        count = self.algebra.symbol("sum", Sum((Product(p.binders, p.guards, z3.RealVal(1)),)))
        return Product((), (), p.body * count)

    def _free_binders(self, hypotheses: Sequence[Z], p: Product) -> Product:
        """A bound index that nothing mentions multiplies the body by its range, where that is not negative."""
        binders = list(p.binders)
        body = p.body
        for b in reversed(p.binders):
            used = [body, *p.guards, *(o.bound for o in binders)]
            if not any(_mentions(u, b.variable) for u in used) and self._not_negative(hypotheses, binders, b):
                binders.remove(b)
                body = body * z3.ToReal(b.bound)
        return Product(tuple(binders), p.guards, body)

    def _not_negative(self, hypotheses: Sequence[Z], binders: Sequence[Binder], b: Binder) -> bool:
        if z3.is_int_value(b.bound):
            return b.bound.as_long() >= 0
        if any(h.eq(b.bound >= 0) for h in self.sizes) or self.solver.proves(self.sizes, b.bound >= 0, FIRST_TRY):
            return True
        return self.solver.proves([*hypotheses, *(o.range() for o in binders if o is not b)], b.bound >= 0, FIRST_TRY)

    # --- pairing ---

    def paired(self, hypotheses: Sequence[Z], p: Product, q: Product, kind: Kind) -> bool:
        """Whether p and q are equal under some matching of their bound indices, each shifted by a bound of its
        guards."""
        if len(p.binders) != len(q.binders):
            return False
        shifts_q = {b.variable.get_id(): self._shifts(q, b) for b in q.binders}
        shifts_p = [self._shifts(p, b) for b in p.binders]
        for order in itertools.permutations(q.binders):
            for far in itertools.product(*(shifts_q[b.variable.get_id()] for b in order)):
                for near in itertools.product(*shifts_p):
                    moved = sum(not _zero(o) for o in (*far, *near))
                    if moved <= MAX_SHIFTS and self._same_under(hypotheses, p, q, order, far, near, kind):
                        return True
        return False

    @staticmethod
    def _shifts(p: Product, b: Binder) -> list[Z]:
        lows, _ = _bounds(p.guards, b.variable)
        free = [e for e in lows if not any(_mentions(e, o.variable) for o in p.binders)]
        return [z3.IntVal(0), *(e for e in free if not _zero(e))]

    def _same_under(
        self,
        hypotheses: Sequence[Z],
        p: Product,
        q: Product,
        order: Sequence[Binder],
        far: Sequence[Z],
        near: Sequence[Z],
        kind: Kind,
    ) -> bool:
        pairs = [(c.variable, b.variable + o - m) for b, c, o, m in zip(p.binders, order, far, near, strict=True)]
        ranges = [b.range() for b in p.binders]
        unmoved = all(_zero(o) for o in (*far, *near))
        if unmoved and kind == "sum" and self._same_ranges(hypotheses, p, order, pairs):
            x = z3.If(conj(p.guards), p.body, z3.RealVal(0)) if p.guards else p.body
            moved_guards = [put(g, pairs) for g in q.guards]
            body = put(q.body, pairs)
            y = z3.If(conj(moved_guards), body, z3.RealVal(0)) if moved_guards else body
            if self.same_value([*hypotheses, *ranges], x, y):
                return True
        domain_p = conj([*ranges, *p.guards])
        domain_q = conj([*(put(c.range(), pairs) for c in order), *(put(g, pairs) for g in q.guards)])
        if not self.solver.proves(hypotheses, domain_p == domain_q):
            return False
        return self.same_value([*hypotheses, *ranges, *p.guards], p.body, put(q.body, pairs))

    def _same_ranges(
        self, hypotheses: Sequence[Z], p: Product, order: Sequence[Binder], pairs: Sequence[tuple[Z, Z]]
    ) -> bool:
        for k, (b, c) in enumerate(zip(p.binders, order, strict=True)):
            known = [*hypotheses, *(e.range() for e in p.binders[:k])]
            bound = put(c.bound, pairs)
            if not _zero(b.bound - bound) and not self.solver.proves(known, b.bound == bound):
                return False
        return True


def _settled(e: Z) -> Z:
    """1/(1/v) taken for v: domains are looked at elsewhere, on the terms as they came."""
    for app in applications([e]):
        if app.decl().eq(INVERSE) and z3.is_app(app.arg(0)) and app.arg(0).decl().eq(INVERSE):
            return _settled(put(e, [(app, app.arg(0).arg(0))]))
    return e


def _has_symbol(e: Z) -> bool:
    stack = [e]
    while stack:
        x = stack.pop()
        if z3.is_app(x):
            if "#" in x.decl().name():
                return True
            stack.extend(x.children())
    return False


def _zero(e: Z) -> bool:
    simple = z3.simplify(e, som=True)
    if z3.is_int_value(simple):
        return simple.as_long() == 0
    return z3.is_rational_value(simple) and simple.as_fraction() == 0


def _flat(guards: Sequence[Z]) -> list[Z]:
    out: list[Z] = []
    for g in guards:
        out.extend(_flat(g.children()) if z3.is_and(g) else [g])
    return out


def _mentions(e: Z, v: Z) -> bool:
    stack = [e]
    seen: set[int] = set()
    while stack:
        x = stack.pop()
        if x.eq(v):
            return True
        key = x.get_id()
        if key not in seen and z3.is_app(x):
            seen.add(key)
            stack.extend(x.children())
        elif z3.is_quantifier(x):
            stack.append(x.body())
    return False


def _linear(e: Z, v: Z) -> tuple[int, Z] | None:
    """(k, rest) when `e` is `k * v + rest` with k = 1 or -1."""
    rest = z3.simplify(put(e, [(v, z3.IntVal(0))]), som=True)
    for k in (1, -1):
        if _zero(e - k * v - rest):
            return k, rest
    return None


def _solved(e: Z, v: Z) -> Z | None:
    """The v at which `e` is 0."""
    found = _linear(e, v)
    return None if found is None else z3.simplify(-found[0] * found[1], som=True)


def _bounds(guards: Sequence[Z], v: Z) -> tuple[list[Z], list[Z]]:
    """Lower bounds (v >= e) and exclusive upper bounds (v < e) that single guards state."""
    lows: list[Z] = []
    highs: list[Z] = []
    for g in guards:
        negated = z3.is_not(g)
        c = g.arg(0) if negated else g
        if not (z3.is_ge(c) or z3.is_le(c) or z3.is_lt(c) or z3.is_gt(c)) or not z3.is_int(c.arg(0)):
            continue
        found = _linear(c.arg(0) - c.arg(1), v)
        if found is None:
            continue
        op = ">=" if z3.is_ge(c) else "<=" if z3.is_le(c) else "<" if z3.is_lt(c) else ">"
        if negated:
            op = {">=": "<", "<=": ">", "<": ">=", ">": "<="}[op]
        if found[0] == -1:
            op = {">=": "<=", "<=": ">=", "<": ">", ">": "<"}[op]
        edge = -found[0] * found[1]
        if op in (">=", ">"):
            lows.append(z3.simplify(edge + (op == ">"), som=True))
        else:
            highs.append(z3.simplify(edge + (op == "<="), som=True))
    return lows, highs


def _at(p: Product, k: int, point: Z, guards: Sequence[Z]) -> Product:
    """The product with binder `k` taken at `point`."""
    pairs = [(p.binders[k].variable, point)]
    binders = (*p.binders[:k], *p.binders[k + 1 :])
    return Product(binders, (*(put(g, pairs) for g in p.guards), *guards), put(p.body, pairs))
