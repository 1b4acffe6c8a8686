"""The meaning of expressions in proofs: sizes and indices are Z3 integers, entries of tensors are `Sum`s.

Every condition an expression needs in order to have a value (a read within bounds, a positive divisor, a non-zero
denominator) is recorded with the path on which it is needed: the ranges of the bound indices and the branches taken.
Who
evaluates decides whether a recorded condition is assumed (the match side: the model ran) or proved (the rewrite side).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import z3

from tasodsl import syntax as s
from tasodsl.prove import solver as facts
from tasodsl.prove.reals import (
    INT,
    REAL,
    Algebra,
    Binder,
    Product,
    Sum,
    Z,
    as_sum,
    conj,
    real,
    substitute,
)
from tasodsl.scalar import evaluate
from tasodsl.source import Span
from tasodsl.values import Environment, Evaluate, Mismatch, Target, Unsupported, Value


@dataclass(frozen=True, slots=True)
class Demand:
    """A condition needed at a place, and the path there."""

    path: tuple[Z, ...]
    condition: Z
    span: Span
    why: str
    kind: Literal["size", "bounds", "divisor"] = "size"


Element = Literal["real", "int", "bool"]


class Tensor:
    """A tensor of a proof: sizes, and its value at generic indices `params` (each within its size).

    `dtype` is a token: equal tokens are equal dtypes; `element` says what an entry is. A value is computed when it
    is first
    needed, so that a case that its conditions exclude costs little.
    """

    __slots__ = ("_make", "_value", "dtype", "params", "shape")

    def __init__(self, shape: Sequence[Value], params: Sequence[Z], value: Any | Callable[[], Any], dtype: str) -> None:
        self.shape = tuple(shape)
        self.params = tuple(params)
        self.dtype = dtype
        self._make: Callable[[], Any] | None = value if callable(value) else None
        self._value: Any = None if callable(value) else value

    @property
    def value(self) -> Any:
        if self._make is not None:
            self._value = self._make()
            self._make = None
        return self._value

    @property
    def element(self) -> Element:
        value = self.value
        if isinstance(value, Sum):
            return "real"
        return "bool" if _is_bool(value) else "int"


@dataclass(slots=True)
class ProofTarget(Target):
    algebra: Algebra = field(default_factory=Algebra)
    path: list[Z] = field(default_factory=list[Z])
    branches: list[Z] = field(default_factory=list[Z])
    demands: list[Demand] = field(default_factory=list[Demand])
    compared: dict[tuple[object, ...], tuple[Value, tuple[Value, Value]]] = field(
        default_factory=dict[tuple[object, ...], tuple[Value, tuple[Value, Value]]]
    )
    bounds: dict[int, tuple[Z, Z]] = field(default_factory=dict[int, tuple[Z, Z]])

    # --- recorded conditions ---

    def demand(self, condition: Value, span: Span, why: str) -> None:
        self.need(condition, span, why, "size")

    def need(self, condition: Value, span: Span, why: str, kind: Literal["size", "bounds", "divisor"]) -> None:
        if condition is True:
            return
        if condition is False:
            if self.path:
                condition = z3.BoolVal(False)
            else:
                raise Mismatch(why, span)
        self.demands.append(Demand(tuple(self.path), condition, span, why, kind))

    @contextmanager
    def along(self, *conditions: Z):
        """Within the ranges of bound indices."""
        self.path.extend(conditions)
        try:
            yield
        finally:
            del self.path[len(self.path) - len(conditions) :]

    @contextmanager
    def under(self, condition: Z):
        """Where a branch is taken."""
        self.branches.append(condition)
        try:
            with self.along(condition):
                yield
        finally:
            self.branches.pop()

    @contextmanager
    def apart(self, *conditions: Z):
        """A path of its own: entries are computed at generic indices, wherever they are first needed."""
        outer, self.path = self.path, list(conditions)
        branches, self.branches = self.branches, []
        try:
            yield
        finally:
            self.path, self.branches = outer, branches

    # --- numbers ---

    def binary(self, op: str, a: Value, b: Value, span: Span) -> Value:
        if _is_int(a) and _is_int(b) and op not in ("/", "**"):
            return self._integers(op, a, b, span)
        if op in ("//", "%"):
            raise Unsupported(f"{op} is for integers", span)
        if op == "**":
            return self.function("pow", (a, b), span)
        if isinstance(a, int | Fraction) and isinstance(b, int | Fraction) and (op != "/" or b != 0):
            return super(ProofTarget, self).binary(op, Fraction(a), Fraction(b), span)
        x, y = as_sum(a), as_sum(b)
        match op:
            case "+":
                return self.algebra.add(x, y)
            case "-":
                return self.algebra.add(x, self.algebra.negate(y))
            case "*":
                return self.algebra.multiply(x, y)
            case _:
                return self.algebra.multiply(x, as_sum(self._inverse(y, span)))

    def _integers(self, op: str, a: Value, b: Value, span: Span) -> Value:
        if isinstance(a, int) and isinstance(b, int):
            return super(ProofTarget, self).binary(op, a, b, span)
        if op in ("//", "%"):
            self.need(self.compare("<", 0, b, span), span, "the divisor is positive", "size")
            x = z3.simplify(_z(a), som=True)
            y = z3.simplify(_z(b), som=True)
            return _number(z3.simplify(x / y if op == "//" else x % y))
        x, y = _z(a), _z(b)
        made = x + y if op == "+" else x - y if op == "-" else x * y
        return _number(z3.simplify(made))

    def _inverse(self, divisor: Sum, span: Span) -> Z:
        value = self.algebra.value(divisor)
        self.algebra.with_facts = True
        self.need(_number(z3.simplify(value != 0)), span, "the divisor is not zero", "divisor")
        return inverse(value)

    def negate(self, a: Value) -> Value:
        if isinstance(a, Sum):
            return self.algebra.negate(a)
        return -a

    def compare(self, op: str, a: Value, b: Value, span: Span) -> Value:
        if isinstance(a, int | Fraction) and isinstance(b, int | Fraction):
            return Target.compare(self, op, a, b, span)
        if _is_int(a) and _is_int(b):
            return self._compare_sizes(op, a, b)
        if _is_bool(a) and _is_bool(b):
            if op not in ("==", "!="):
                raise Unsupported("booleans have no order", span)
            same = _z(a) == _z(b)
            return same if op == "==" else z3.Not(same)
        return _compared(op, self.algebra.value(as_sum(a)), self.algebra.value(as_sum(b)))

    def _compare_sizes(self, op: str, a: Value, b: Value) -> Value:
        """Sizes are compared again and again: each comparison is made once."""
        key = (op, *(x if isinstance(x, int) else (x.get_id(),) for x in (a, b)))
        known = self.compared.get(key)
        if known is None:
            made = _compared(op, _z(a), _z(b))
            simple = z3.simplify(made, som=True)
            value = z3.is_true(simple) if z3.is_true(simple) or z3.is_false(simple) else made
            known = self.compared[key] = (value, (a, b))
        return known[0]

    def conjunction(self, parts: Sequence[Value]) -> Value:
        return conj(_z(p) for p in parts)

    def disjunction(self, parts: Sequence[Value]) -> Value:
        return z3.Or(*[_z(p) for p in parts]) if parts else False

    def complement(self, a: Value) -> Value:
        return z3.Not(a)

    def choose(self, condition: Value, then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
        with self.under(condition):
            a = then()
        with self.under(z3.Not(condition)):
            b = otherwise()
        if a is b or (isinstance(a, int | str | Fraction) and type(a) is type(b) and a == b):
            return a
        if _is_bool(a) and _is_bool(b):
            if b is False:
                return condition if a is True else z3.And(condition, _z(a))
            if a is True:
                return z3.Or(condition, _z(b))
            return z3.If(condition, _z(a), _z(b))
        if _is_int(a) and _is_int(b):
            return z3.simplify(z3.If(condition, _z(a), _z(b)))
        return self.algebra.choose(condition, as_sum(a), as_sum(b))

    def broadcast_index(self, i: Value, d: Value, span: Span) -> Value:
        if isinstance(d, int) and d == 1:
            return 0
        # An index known to be within the dimension is its own broadcast, and stays readable that way.
        if self._ranges_over(i, d) or (self.branches and self._stated_within(i, d)):
            return i
        return super(ProofTarget, self).broadcast_index(i, d, span)

    def bounded(self, variable: Z, bound: Value) -> Z:
        """Remember that the index `variable` ranges over `bound`, wherever it is used."""
        self.bounds[variable.get_id()] = (variable, _z(bound))
        return variable

    def _stated_within(self, i: Value, d: Value) -> bool:
        """Whether a branch taken says that `i` is within `d`."""
        if not isinstance(i, z3.ExprRef) or not isinstance(d, z3.ExprRef):
            return False
        stated = [z3.simplify(c, som=True) for p in self.branches for c in facts.conjuncts(p)]

        def says(*forms: Z) -> bool:
            return any(s.eq(z3.simplify(f, som=True)) for f in forms for s in stated)

        return says(i >= 0, z3.IntVal(0) <= i) and says(i < d, d > i)

    def _ranges_over(self, i: Value, d: Value) -> bool:
        if not isinstance(i, z3.ExprRef):
            return False
        known = self.bounds.get(i.get_id())
        return known is not None and known[1].eq(_z(d))

    # --- functions ---

    def function(self, name: str, args: Sequence[Value], span: Span) -> Value:
        if name in ("min", "max", "abs") and all(isinstance(a, int | Fraction) for a in args):
            return Target.function(self, name, args, span)
        self.algebra.with_facts = self.algebra.with_facts or name in facts.KNOWN
        match name:
            case "real":
                return as_sum(args[0])
            case "min" | "max":
                return self._extreme(name, args)
            case "abs":
                return self._extreme("max", (args[0], self.negate(args[0])))
            case "sign":
                x = self.algebra.value(as_sum(args[0]))
                return as_sum(z3.If(x > 0, z3.RealVal(1), z3.If(x < 0, z3.RealVal(-1), z3.RealVal(0))))
            case "exp" | "log" | "sqrt" | "floor" | "erf" | "tanh" | "sin" | "cos":
                x = tidy(self.algebra.value(as_sum(args[0])))
                if name in ("log", "sqrt"):
                    self.need(
                        _number(z3.simplify(x > 0 if name == "log" else x >= 0)),
                        span,
                        f"the operand of {name}",
                        "divisor",
                    )
                return as_sum(facts.TABLE[name](x))
            case "pow":
                return self._power(args[0], args[1], span)
            case "cast":
                return self._cast(args, span)
            case "resize_index":
                return self._resize_index(args)
            case "resized":
                return facts.RESIZED(_z(args[0]), self.algebra.value(as_sum(args[1])))
            case _:
                raise Unsupported(f"the function {name} is not known", span)

    def _power(self, base: Value, exponent: Value, span: Span) -> Value:
        """Powers by the usual numbers are products, roots and reciprocals; what is left is a symbol."""
        y = tidy(self.algebra.value(as_sum(exponent)))
        known = y.as_fraction() if z3.is_rational_value(y) else None
        if known in (1, 2, 3):
            return functools.reduce(lambda a, b: self.binary("*", a, b, span), [base] * int(known))
        if known in (Fraction(1, 2), Fraction(3, 4)):
            root = self.function("sqrt", (base,), span)
            if known == Fraction(1, 2):
                return root
            return self.binary("*", root, self.function("sqrt", (root,), span), span)
        if known in (-1, Fraction(-1, 2)):
            return self.binary("/", Fraction(1), base if known == -1 else self.function("sqrt", (base,), span), span)
        x = tidy(self.algebra.value(as_sum(base)))
        if known is None or known.denominator != 1 or known < 0:
            self.need(_number(z3.simplify(x > 0)), span, "the base of a power", "divisor")
        return as_sum(facts.POW(x, y))

    def _extreme(self, name: str, args: Sequence[Value]) -> Value:
        out = args[0]
        for b in args[1:]:
            if _is_int(out) and _is_int(b):
                x, y = _z(out), _z(b)
                out = _number(z3.simplify(z3.If(x >= y, x, y) if name == "max" else z3.If(x <= y, x, y)))
            else:
                x, y = self.algebra.value(as_sum(out)), self.algebra.value(as_sum(b))
                out = as_sum(z3.If(x >= y, x, y) if name == "max" else z3.If(x <= y, x, y))
        return out

    def _cast(self, args: Sequence[Value], span: Span) -> Value:
        value, to = args
        if not isinstance(to, str):
            raise Unsupported("cast takes a dtype", span)
        if to == "bool":
            return value if _is_bool(value) else self.compare("!=", value, 0, span)
        if isinstance(value, bool) or _is_bool(value):
            value = z3.If(_z(value), z3.RealVal(1), z3.RealVal(0))
        return as_sum(z3.Function(f"cast/{to}", REAL, REAL)(self.algebra.value(as_sum(value))))

    def _resize_index(self, args: Sequence[Value]) -> Value:
        i, size, result, scale, transform, nearest = args
        tag = z3.Function(f"mode/{transform}/{nearest}", INT)()
        f: Any = z3.Function("resize_index", INT, INT, INT, REAL, INT, INT)
        return f(_z(i), _z(size), _z(result), self.algebra.value(as_sum(scale)), tag)

    def flatten(self, indices: Sequence[Value], shape: Sequence[Value], span: Span) -> Value:
        if not indices:
            return 0
        if len(indices) == 1:
            return indices[0]
        self.algebra.with_facts = True
        return facts.function_flat(len(indices))(*[_z(v) for v in (*indices, *shape)])

    def unflatten(self, position: Value, shape: Sequence[Value], span: Span) -> tuple[Value, ...]:
        if not shape:
            return ()
        if len(shape) == 1:
            return (position,)
        self.algebra.with_facts = True
        sizes = [_z(d) for d in shape]
        return tuple(facts.function_unflat(len(shape), k)(_z(position), *sizes) for k in range(len(shape)))

    # --- entries ---

    def read(self, tensor: Tensor, indices: tuple[Value, ...], default: Value | None, span: Span) -> Value:
        terms = [_z(i) for i in indices]
        inside = [
            c
            for i, d in zip(terms, tensor.shape, strict=True)
            if not self._ranges_over(i, d)
            for c in (_number(z3.simplify(i >= 0)), _number(z3.simplify(i < _z(d))))
            if c is not True
        ]
        within = conj(_z(c) for c in inside)
        if default is None:
            self.need(within if inside else True, span, "the read is within bounds", "bounds")
        pairs = list(zip(tensor.params, terms, strict=True))
        if isinstance(tensor.value, Sum):
            value = substitute(tensor.value, pairs, self.algebra.index)
            if default is None or not inside:
                return value
            if isinstance(default, int | Fraction) and default == 0:
                return self.algebra.guard(within, value)
            return self.algebra.choose(within, value, as_sum(default))
        entry = z3.substitute(_z(tensor.value), *pairs) if pairs else tensor.value
        if default is None or not inside:
            return entry
        return z3.If(within, entry, _z(default))

    def reduce(self, e: s.Reduce, env: Environment, evaluate: Evaluate) -> Value:
        binders: list[Binder] = []
        inner = env
        for b in e.binders:
            bound = evaluate(b.bound, inner, self)
            if b.pack:
                made = [Binder(self.algebra.index(b.name), _z(n)) for n in bound]
                inner = inner.extended({b.name: tuple(m.variable for m in made)})
            else:
                made = [Binder(self.algebra.index(b.name), _z(bound))]
                inner = inner.extended({b.name: made[0].variable})
            for m in made:
                self.bounded(m.variable, m.bound)
            binders.extend(made)
        if e.kind in ("all", "any"):
            if all(z3.is_int_value(b.bound) for b in binders):
                return Target.reduce(self, e, env, evaluate)
            return self._quantified(e, binders, inner)
        with self.along(*(b.range() for b in binders)):
            condition = None if e.condition is None else evaluate(e.condition, inner, self)
            if condition is False and e.kind == "sum":
                return Sum(())
            if condition is None or isinstance(condition, bool):
                body = evaluate(e.body, inner, self)
            else:
                with self.under(condition):
                    body = evaluate(e.body, inner, self)
        where = None if condition is None or condition is True else _z(condition)
        if e.kind == "sum":
            return self.algebra.reduce_sum(binders, where, as_sum(body))
        if e.kind in ("max", "min"):
            self.need(self._nonempty(binders, where), e.span, f"the {e.kind} is over at least one entry", "divisor")
            return as_sum(self.algebra.reduce_extreme(e.kind, binders, where, as_sum(body)))
        raise Unsupported(f"{e.kind} has no meaning here", e.span)

    def _nonempty(self, binders: Sequence[Binder], where: Z | None) -> Z:
        if where is None:
            return conj(b.bound >= 1 for b in binders)
        return self.algebra.symbol("sum", Sum((Product(tuple(binders), (where,), z3.RealVal(1)),))) != 0

    def _quantified(self, e: s.Reduce, binders: Sequence[Binder], env: Environment) -> Value:
        inside = [b.range() for b in binders]
        with self.along(*inside):
            condition = True if e.condition is None else evaluate(e.condition, env, self)
            body = evaluate(e.body, env, self)
        names = [b.variable for b in binders]
        domain = conj([*inside, _z(condition)])
        if e.kind == "all":
            return z3.ForAll(names, z3.Implies(domain, _z(body)))
        return z3.Exists(names, z3.And(domain, _z(body)))


def tidy(value: Z) -> Z:
    """The polynomial's normal form; left alone where a partial function occurs in it, so that none is simplified away
    before its domain was looked at."""
    if any(a.decl().name() in facts.PARTIAL for a in facts.applications([value])):
        return value
    return z3.simplify(value, som=True)


def inverse(value: Z) -> Z:
    """`1/value`, taken apart over products and powers of numbers; meaningful where the divisor is not zero."""
    value = tidy(value)
    if z3.is_rational_value(value) and value.as_fraction() != 0:
        return real(1 / value.as_fraction())
    if z3.is_mul(value):
        out: Z = z3.RealVal(1)
        for factor in value.children():
            out = out * inverse(factor)
        return out
    return facts.INVERSE(value)


def plain_tensor(name: str, shape: Sequence[Value], algebra: Algebra, dtype: str, element: str = "real") -> Tensor:
    """A tensor known only by name: an uninterpreted function of its indices."""
    sort = {"real": REAL, "int": INT, "bool": z3.BoolSort()}[element]
    params = tuple(algebra.index("i") for _ in shape)
    f: Any = z3.Function(f"entry:{name}", *[INT] * len(params), sort) if params else None
    entry = f(*params) if params else z3.Const(f"entry:{name}", sort)
    value = Sum((Product((), (), entry),)) if element == "real" else entry
    return Tensor(shape, params, value, dtype)


def _compared(op: str, x: Z, y: Z) -> Z:
    match op:
        case "==":
            return x == y
        case "!=":
            return x != y
        case "<":
            return x < y
        case "<=":
            return x <= y
        case ">":
            return x > y
        case _:
            return x >= y


def _is_int(v: Value) -> bool:
    return (isinstance(v, int) and not isinstance(v, bool)) or (isinstance(v, z3.ExprRef) and z3.is_int(v))


def _is_bool(v: Value) -> bool:
    return isinstance(v, bool) or (isinstance(v, z3.ExprRef) and z3.is_bool(v))


def _z(v: Value) -> Z:
    """A Z3 term from a Python number or boolean."""
    if isinstance(v, bool):
        return z3.BoolVal(v)
    if isinstance(v, int):
        return z3.IntVal(v)
    return v


def _number(v: Z) -> Value:
    """A Python number or boolean where the term is one."""
    if z3.is_int_value(v):
        return v.as_long()
    if z3.is_true(v):
        return True
    if z3.is_false(v):
        return False
    return v
