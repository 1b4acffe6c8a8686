"""A rule taken apart into cases, and each case into hypotheses and goals.

What a proof cannot treat symbolically is *structure*: the rank of each pack, the number of operands of each
variadic, the
presence of optional operands, and attributes that are axes, permutations, flags or choices. A case fixes these;
sizes, other
attributes and entries stay symbolic. Cases are found by running the elaboration with a `Chooser` that is asked whenever
structure is needed; a choice that cannot be (a `Mismatch` while elaborating the match side) is dropped.

Hypotheses come from the match side alone: sizes are not negative, operands agree, `require`s of matched operators,
`where`s.
What the rewrite side requires is a goal. A `Mismatch` on the rewrite side is a failed goal.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import z3

from tasodsl import syntax as s
from tasodsl.elaborate import Application, apply_op, names
from tasodsl.match.pattern import Scope
from tasodsl.prove.attributes import Attributes
from tasodsl.prove.obligations import Case, Goal, Pattern, indices, quantifies, reads_integers
from tasodsl.prove.reals import Sum, Z, as_sum, conj
from tasodsl.prove.solver import conjuncts
from tasodsl.prove.structure import (
    DTYPES,
    OPERANDS,
    Chooser,
    NeedChoice,
    asks_dtype,
    rank_of_choice,
)
from tasodsl.prove.target import Demand, ProofTarget, Tensor, plain_tensor
from tasodsl.ruleset import RuleSet
from tasodsl.scalar import evaluate
from tasodsl.source import Span
from tasodsl.values import Environment, Mismatch, Unsupported, Value, compare


def cases(
    pattern: Pattern, rules: RuleSet, scope: Scope, above: int = -1, looked: Callable[[], None] = lambda: None
) -> Iterator[Case]:
    """All cases of the pattern within the scope, in a fixed order; with `above`, those beyond that `max_rank` alone.

    `looked` is told of each structure that is looked at, whether it can occur or not.
    """
    stack: list[tuple[int, ...]] = [()]
    while stack:
        path = stack.pop()
        looked()
        elaboration = Elaboration(pattern, rules, scope, Chooser(path), above)
        try:
            case = elaboration.run()
        except NeedChoice as need:
            stack.extend((*path, k) for k in reversed(range(need.count)))
            continue
        except Unsupported as unsupported:
            yield elaboration.unfinished(unsupported)
            continue
        except Mismatch:
            continue
        yield case


@dataclass(slots=True)
class Elaboration(Attributes):
    """One run over a pattern, along one path of choices."""

    def run(self) -> Case:
        self._declare_all()
        self.stated = self._stated_sizes()
        if self.stated:
            self._declare_all()
        matched = self._bindings(self.pattern.match)
        for w in self.pattern.wheres:
            self._assume(evaluate(w.condition, self.env, self.target))
        self.rank = max([self.rank, *(rank_of_choice(what, value) for what, value in self.chooser.made)])
        if self.rank <= self.above:
            raise Mismatch("not beyond the scope that was looked at before")
        self._force()
        match_demands, self.target.demands = self.target.demands, []
        indexed = any(v.type.dtype == "int" for v in self.pattern.variables)
        for d in match_demands:
            if d.kind == "size" or (d.kind == "bounds" and indexed and reads_integers(d.condition)):
                self._assume_along(d)
        case = Case((), self.target, self.hypotheses, self.quantified, match_demands, self.goals, [])
        self.matching = False
        try:
            self._lets()
            written = self._bindings(self.pattern.rewrite)
            self._force()
            self._goals_from_demands()
            for name, left in matched.items():
                right = written.get(name)
                if right is not None:
                    self._same_type(name, left, right)
                    case.outputs.append((name, left, right, self.pattern.rewrite[0].span))
        except Mismatch as mismatch:
            case.failure = (str(mismatch), mismatch.span)
        case.choices = tuple(self.chooser.made)
        case.rank = self.rank
        return case

    def unfinished(self, reason: Unsupported) -> Case:
        """A case that cannot be told from an impossible one: it counts as not proved."""
        case = Case(tuple(self.chooser.made), self.target, [], [], [], [], [])
        case.failure = (str(reason), reason.span)
        return case

    # --- variables ---

    def _declare_all(self) -> None:
        """The pattern's variables, from the start."""
        self.env = Environment(self.rules.fns, {}, {})
        self.target = ProofTarget()
        self.hypotheses = []
        self.chooser = Chooser(self.chooser.path)
        for v in self.pattern.variables:
            self._declare(v)

    def _stated_sizes(self) -> dict[str, int]:
        """Sizes that a `where` states as numbers: written as numbers from the start, they make everything simpler."""
        found: dict[str, int] = {}
        for w in self.pattern.wheres:
            try:
                condition = evaluate(w.condition, self.env, self.target)
            except Unsupported:
                continue  # it speaks of what the match side binds
            for part in conjuncts(condition) if isinstance(condition, z3.ExprRef) else []:
                if not z3.is_eq(part):
                    continue
                for size, number in itertools.permutations(part.children()):
                    if z3.is_const(size) and z3.is_int_value(number) and not z3.is_int_value(size):
                        found[size.decl().name()] = number.as_long()
        return found

    def _declare(self, v: s.Operand) -> None:
        if v.optional and not self.chooser.pick(f"{v.name} present", (True, False)):
            self.env.tensors[v.name] = None
            return
        if v.variadic:
            arity = self.chooser.pick(f"{OPERANDS}{v.name}", range(1, self.scope.max_arity + 1))
            self.env.tensors[v.name] = tuple(self._variable(v, k) for k in range(arity))
        else:
            self.env.tensors[v.name] = self._variable(v, None)

    def _variable(self, v: s.Operand, position: int | None) -> Tensor:
        shape: list[Value] = []
        for part in v.type.dims:
            if isinstance(part, s.PerOperand):
                assert position is not None
                listed: tuple[Value, ...] = self.env.values.get(part.name, ())
                if position == len(listed):
                    listed = (*listed, self._size(f"{part.name}[{position}]"))
                    self.env.values[part.name] = listed
                shape.append(listed[position])
            elif isinstance(part, s.Splice):
                if isinstance(part.value, s.Name) and part.value.id not in self.env.values:
                    pack = part.value.id
                    rank = self.chooser.pick(f"rank of {pack}", range(self.scope.max_rank + 1))
                    self.env.values[pack] = tuple(self._size(f"{pack}[{k}]") for k in range(rank))
                shape.extend(evaluate(part.value, self.env, self.target))
            else:
                for name in sorted(names(part)):
                    if name not in self.env.values and name not in self.rules.fns:
                        self.env.values[name] = self._size(name)
                shape.append(evaluate(part, self.env, self.target))
        self._limit_rank(len(shape))
        label = v.name if position is None else f"{v.name}[{position}]"
        if v.value is not None:
            params = [self.target.algebra.index() for _ in shape]
            return Tensor(shape, params, self._uniform(v.value), self._token(v))
        element = {"int": "int", "bool": "bool"}.get(v.type.dtype or "float", "real")
        return plain_tensor(label, shape, self.target.algebra, self._token(v), element)

    def _token(self, v: s.Operand) -> str:
        """A concrete dtype where the rule speaks of `dtype(v)`, chosen case by case; else a token of its own."""
        if v.type.dtype == "bool":
            return "bool"
        token = f"dtype of {v.name}"
        self.classes[token] = v.type.dtype or "float"
        spoken = any(asks_dtype(w.condition, v.name) for w in self.pattern.wheres)
        if not spoken:
            return token
        options = {"int": DTYPES[4:12], "half": DTYPES[2:4], "any": DTYPES}.get(v.type.dtype or "float", DTYPES[:2])
        return self.chooser.pick(f"dtype of {v.name}", options)

    def _uniform(self, value: s.Expr) -> Sum:
        if isinstance(value, s.Name) and value.id not in self.env.values:
            self.env.values[value.id] = as_sum(z3.Real(value.id))
        return as_sum(evaluate(value, self.env, self.target))

    def _size(self, name: str) -> Value:
        if name in self.stated:
            return self.stated[name]
        size = z3.Int(name)
        self.hypotheses.append(size >= 0)
        return size

    def _limit_rank(self, rank: int) -> None:
        if not self.matching:
            return
        self.rank = max(self.rank, rank)
        if rank > self.scope.max_rank:
            raise Mismatch("beyond the ranks in scope")

    # --- terms ---

    def _bindings(self, binds: Sequence[s.Bind]) -> dict[str, Tensor]:
        out: dict[str, Tensor] = {}
        for bind in binds:
            results = self._term(bind.term)
            if len(results) != len(bind.names):
                raise Mismatch(f"{len(bind.names)} names for {len(results)} results", bind.span)
            for name, tensor in zip(bind.names, results, strict=True):
                if name != "_":
                    out[name] = tensor
                    self.env.tensors[name] = tensor
        return out

    def _term(self, term: s.Term) -> tuple[Any, ...]:
        """The tensors a term stands for: one, or several for several results, or one None for an absent operand."""
        match term:
            case s.Var():
                return (self._variable_or_scalar(term),)
            case s.Literal():
                return (self._scalar(evaluate(term.value, self.env, self.target)),)
            case s.Absent():
                return (None,)
            case s.Wildcard():
                raise Unsupported("a wildcard has no shape to prove with", term.span)
            case s.Variadic():
                return self._members(term.name, term.span)
            case s.VariadicMap():
                out: list[Any] = []
                for member in self._members(term.source, term.span):
                    self.env.tensors[term.variable] = member
                    out.extend(self._term(term.term))
                self.env.tensors.pop(term.variable, None)
                return tuple(out)
            case s.Apply():
                return self._apply(term)

    def _members(self, name: str, span: Span) -> tuple[Tensor, ...]:
        listed = self.env.tensors.get(name)
        if not isinstance(listed, tuple):
            raise Unsupported(f"{name} is no list of operands", span)
        return listed  # pyright: ignore[reportUnknownVariableType]

    def _variable_or_scalar(self, term: s.Var) -> Tensor | None:
        if term.name in self.env.tensors:
            return self.env.tensors[term.name]
        return self._scalar(evaluate(s.Name(term.name, span=term.span), self.env, self.target))

    def _scalar(self, value: Value) -> Tensor:
        return Tensor((), (), as_sum(value), "")

    def _apply(self, term: s.Apply) -> tuple[Any, ...]:
        op = self.rules.ops.get(term.op)
        if op is None:
            raise Unsupported(f"no operator {term.op}", term.span)
        operands: list[Any] = []
        for arg in term.args:
            given = self._term(arg)
            if isinstance(arg, s.Apply) and self._has_several_results(arg):
                raise Unsupported(f"the results of {arg.op} need names", arg.span)
            operands.extend(given)
        attributes = self.attributes_of(op, term, operands)
        applied = apply_op(op, self.rules.fns, operands, attributes, self.target)
        self._record(applied, term)
        dtype = self._unify(op, operands, attributes, term)
        results: list[Tensor] = []
        for result, shape in zip(op.results, applied.results, strict=True):
            if not result.variadic:
                results.append(self._define(applied, result, shape, None, dtype, term))
                continue
            for k, piece in enumerate(shape):
                results.append(self._define(applied, result, piece, k, dtype, term))
        return tuple(results)

    def _has_several_results(self, term: s.Apply) -> bool:
        results = self.rules.ops[term.op].results
        return len(results) > 1 or any(r.variadic for r in results)

    def _record(self, applied: Application, term: s.Apply) -> None:
        conditions = [(c, f"{why} ({span})") for c, span, why in applied.conditions]
        for result, shape in zip(applied.op.results, applied.results, strict=True):
            for dims in shape if result.variadic else (shape,):
                self._limit_rank(len(dims))
                for d in dims:
                    negative = compare("<=", 0, d, term.span, self.target)
                    if negative is False:
                        raise Mismatch(f"{term.op} would have a negative size", term.span)
                    if negative is not True:
                        conditions.append((negative, f"the result of {term.op} has no negative size"))
        for condition, why in conditions:
            if self.matching:
                self._assume(condition)
            else:
                self.goals.append(Goal((), condition, term.span, why))

    def _define(
        self,
        applied: Application,
        result: s.Operand,
        shape: tuple[Value, ...],
        position: int | None,
        dtype: str,
        term: s.Apply,
    ) -> Tensor:
        """The result's entry at generic indices, from the operator's `def`."""
        definition = next((d for d in applied.op.defs if d.result == result.name), None)
        if definition is None:
            raise Unsupported(f"{applied.op.name} has no definition", applied.op.span)
        params = tuple(self.target.bounded(self.target.algebra.index(), d) for d in shape)
        values: dict[str, Value] = {}
        at = 0
        spare = len(shape) - sum(not isinstance(i, s.Splice) for i in definition.indices)
        packs = sum(isinstance(i, s.Splice) for i in definition.indices)
        for index, width in zip(
            definition.indices, self._widths(definition, result, applied, spare, packs), strict=True
        ):
            if isinstance(index, s.Splice):
                assert isinstance(index.value, s.Name)
                values[index.value.id] = params[at : at + width]
            else:
                values[index.id] = params[at]
            at += width
        if definition.operand is not None:
            values[definition.operand] = position
        env = Environment(applied.env.fns, {**applied.env.values, **values}, applied.env.tensors)

        def entry() -> Any:
            with self.target.apart(*(z3.And(p >= 0, p < d) for p, d in zip(params, shape, strict=True))):
                value = evaluate(definition.body, env, self.target)
            return value if self._holds_integers_or_booleans(result, value) else as_sum(value)

        made = Tensor(shape, params, entry, dtype)
        self.pending.append(made)
        return made

    def _force(self) -> None:
        """Compute the entries of all tensors made since the last call, and with them what they demand."""
        for tensor in self.pending:
            _ = tensor.value
        self.pending.clear()

    def _widths(self, d: s.Def, result: s.Operand, applied: Application, spare: int, packs: int) -> list[int]:
        """How many dimensions each index of a definition covers."""
        if packs <= 1:
            return [spare if isinstance(i, s.Splice) else 1 for i in d.indices]
        widths: list[int] = []
        for index, part in zip(d.indices, result.type.dims, strict=True):
            if isinstance(index, s.Splice) and isinstance(part, s.Splice):
                widths.append(len(evaluate(part.value, applied.env, self.target)))
            else:
                widths.append(1)
        return widths

    @staticmethod
    def _holds_integers_or_booleans(result: s.Operand, value: Value) -> bool:
        if isinstance(value, bool) or (isinstance(value, z3.ExprRef) and z3.is_bool(value)):
            return True
        return isinstance(value, z3.ExprRef) and z3.is_int(value) and result.type.dtype in ("int", "any", None)

    # --- dtypes ---

    def _unify(self, op: s.OpDecl, operands: Sequence[Any], attributes: Mapping[str, Value], term: s.Apply) -> str:
        """The dtype token of the results: that which the operands share; operands without one take their
        neighbours'."""
        shared: list[str] = []
        declared = list(op.operands)
        variadic = next((k for k, o in enumerate(declared) if o.variadic), len(declared))
        for k, tensor in enumerate(operands):
            if tensor is None:
                continue
            operand = declared[k if k < variadic else variadic]
            if operand.type.dtype in ("int", "bool") and tensor.element != operand.type.dtype:
                raise Unsupported(f"{op.name} needs {operand.type.dtype} entries for {operand.name}", term.span)
            if not tensor.dtype:
                continue
            self._check_class(op, operand, tensor, term)
            if operand.type.dtype in ("int", "bool"):
                continue
            shared.append(self._root(tensor.dtype))
        for other in shared[1:]:
            a, b = self._root(shared[0]), self._root(other)
            if a == b:
                continue
            if not self.matching or (a in DTYPES and b in DTYPES):
                raise Mismatch(f"the operands of {op.name} have different dtypes", term.span)
            keep, drop = (a, b) if a in DTYPES else (b, a)
            self.aliases[drop] = keep
        if op.name == "Cast" and isinstance(attributes.get("to"), str):
            return attributes["to"]
        result = op.results[0].type.dtype
        return "bool" if result == "bool" else self._root(shared[0]) if shared else ""

    def _check_class(self, op: s.OpDecl, operand: s.Operand, tensor: Tensor, term: s.Apply) -> None:
        """Arithmetic is over the reals here: it must not be done on integers, nor on tensors of any dtype."""
        wanted = operand.type.dtype or "float"
        have = self._class(tensor.dtype)
        if wanted == "any" or have == wanted or (wanted == "float" and have == "half"):
            return
        raise Unsupported(f"{op.name} takes {wanted} entries for {operand.name}, not {have}", term.span)

    def _class(self, token: str) -> str:
        token = self._root(token)
        if token in DTYPES:
            return (
                "float"
                if token in DTYPES[:2]
                else "half"
                if token in DTYPES[2:4]
                else "bool"
                if token == "bool"
                else "int"
            )
        return self.classes.get(token, "any")

    def _root(self, token: str) -> str:
        while token in self.aliases:
            token = self.aliases[token]
        return token

    def _same_type(self, name: str, left: Tensor, right: Tensor) -> None:
        span = self.pattern.rewrite[0].span
        if len(left.shape) != len(right.shape):
            raise Mismatch(f"{name} has rank {len(left.shape)} and would have rank {len(right.shape)}", span)
        if right.dtype and self._root(left.dtype) != self._root(right.dtype):
            raise Mismatch(f"{name} would have another dtype", span)
        if left.element != right.element:
            raise Mismatch(f"{name} would hold entries of another kind", span)
        for a, b in zip(left.shape, right.shape, strict=True):
            same = compare("==", a, b, span, self.target)
            if same is False:
                raise Mismatch(f"{name} would have a different shape", span)
            if same is not True:
                self.goals.append(Goal((), same, span, f"{name} has the same shape on both sides"))

    # --- lets ---

    def _lets(self) -> None:
        for let in self.pattern.lets:
            if isinstance(let, s.LetScalar):
                self.env.values[let.name] = evaluate(let.value, self.env, self.target)
                self._forget_divisors()
                continue
            shape: list[Value] = []
            params: list[Z] = []
            inner = self.env
            for b in let.binders:
                bound = evaluate(b.bound, inner, self.target)
                sizes: tuple[Value, ...] = bound if b.pack else (bound,)
                indices = tuple(self.target.bounded(self.target.algebra.index(b.name), d) for d in sizes)
                inner = inner.extended({b.name: indices if b.pack else indices[0]})
                shape.extend(sizes)
                params.extend(indices)
            for d in shape:
                if not isinstance(d, int):
                    self.goals.append(Goal((), d >= 0, let.span, f"{let.name} has no negative size"))
            with self.target.along(*(z3.And(p >= 0, p < d) for p, d in zip(params, shape, strict=True))):
                value = evaluate(let.body, inner, self.target)
            self._forget_divisors()
            self.env.tensors[let.name] = Tensor(tuple(shape), tuple(params), as_sum(value), "")

    def _forget_divisors(self) -> None:
        """A fold that divides by zero makes a non-finite constant, and then the rewrite is refused."""
        self.target.demands = [d for d in self.target.demands if d.kind != "divisor"]

    # --- hypotheses and goals ---

    def _assume(self, condition: Value) -> None:
        if condition is False:
            raise Mismatch("the hypotheses cannot hold")
        if condition is True:
            return
        for part in condition.children() if z3.is_and(condition) else [condition]:
            (self.quantified if quantifies(part) else self.hypotheses).append(part)

    def _assume_along(self, d: Demand) -> None:
        free = indices((*d.path, d.condition))
        claim = z3.Implies(conj(d.path), d.condition) if d.path else d.condition
        self._assume(z3.ForAll(free, claim) if free else claim)

    def _goals_from_demands(self) -> None:
        for d in self.target.demands:
            self.goals.append(Goal(d.path, d.condition, d.span, d.why, d.kind))
        self.target.demands = []
