"""Terms of rules and axioms: known operators, the right operands and attributes, ranks and dtypes that can agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tasodsl import syntax as s
from tasodsl.check_attr import check_attr_value
from tasodsl.check_expr import check_expr, literal
from tasodsl.check_types import Kind, Ranks, Scope, Tensor, attr_kind
from tasodsl.diagnostics import Findings, did_you_mean
from tasodsl.ruleset import RuleSet
from tasodsl.source import Span

SCALAR = Tensor(Ranks(0, 0), None, const=True)
ANYTHING = Tensor()
Given = tuple[s.Operand, s.Term, Tensor]
"""An operand's declaration, the term that stands for it, and what that is."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Checks the terms of one side. `rests` has, for each `..a` that is bound, the attributes it took."""

    rules: RuleSet
    side: Literal["match", "rewrite"]
    scope: Scope
    rests: Mapping[str, frozenset[str]]
    removed: frozenset[str]
    """Matched values that the rewrite side has not bound: they are gone there."""
    out: Findings

    def check(self, term: s.Term) -> Tensor:
        """What the term computes."""
        match term:
            case s.Apply():
                return self._apply(term)
            case s.Var():
                return self._variable(term)
            case s.Literal():
                check_expr(term.value, self.scope, self.out)
                return SCALAR
            case s.Absent():
                self.out.error("E0219", "`absent` is a missing operand, not a value", term.span, "", "")
                return ANYTHING
            case s.Wildcard():
                if self.side == "rewrite":
                    help = "name the value on the match side, and write its name here"
                    self.out.error("E0243", "`_` has no value to rewrite with", term.span, "", help)
                return ANYTHING
            case s.Variadic() | s.VariadicMap():
                help = "an operator such as `Concat` takes any number of operands"
                self.out.error("E0221", "several operands stand where one is taken", term.span, "several", help)
                return ANYTHING

    def results(self, apply: s.Apply) -> list[Tensor] | None:
        """What each result of an application is; None where their number is not fixed, or the operator not known."""
        op = self.rules.ops.get(apply.op)
        if op is None:
            help = did_you_mean(apply.op, self.rules.ops, "an operator is declared by `op`")
            self.out.error(
                "E0202", f"there is no operator `{apply.op}`", self._name_span(apply), "unknown operator", help
            )
            for arg in apply.args:
                if not isinstance(arg, s.Absent | s.Variadic | s.VariadicMap):
                    self.check(arg)
            return None
        packs = self._attributes(apply, op)
        operands = self._operands(apply, op, packs)
        self._requirements(apply, op, operands, packs)
        dtype = self._dtype(apply, op, operands)
        if any(r.variadic for r in op.results):
            return None
        return [Tensor(_shape_ranks(r.type, packs), _result_dtype(r, dtype)) for r in op.results]

    def _apply(self, apply: s.Apply) -> Tensor:
        results = self.results(apply)
        op = self.rules.ops.get(apply.op)
        if op is not None and any(r.variadic for r in op.results):
            help = f"bind them in a line of their own: `a, b = {apply.op}…`"
            self.out.error("E0208", f"`{apply.op}` has several results", apply.span, "one is taken here", help)
        return results[0] if results else ANYTHING

    def _name_span(self, apply: s.Apply) -> Span:
        return replace(apply.span, end=apply.span.start + len(apply.op))

    # --- names ---

    def _variable(self, term: s.Var) -> Tensor:
        name, scope = term.name, self.scope
        tensor = scope.tensors.get(name)
        if tensor is not None:
            if tensor.variadic:
                self.out.error("E0221", f"`{name}` is several operands", term.span, "", f"write `..{name}`")
                return ANYTHING
            if term.optional and not tensor.optional:
                help = f"write `{name}`, or declare it `{name}?`"
                self.out.error("E0219", f"`{name}` is always present", term.span, "not optional", help)
            elif tensor.optional and not term.optional:
                help = f"write `{name}?`: it is passed on whether present or absent"
                self.out.error("E0219", f"`{name}` may be absent", term.span, "optional", help)
            return tensor
        if name in self.removed:
            help = f"bind `{name}` on the rewrite side too, or compute it again"
            self.out.error("E0224", f"`{name}` is matched, and gone on the rewrite side", term.span, "removed", help)
        elif name in scope.later:
            self.out.error("E0229", f"`{name}` is used before it is bound", term.span, "not bound yet", "bind it above")
        elif name in scope.values and self.side == "rewrite":
            kind = scope.values[name]
            if not kind.number:
                self.out.error("E0210", f"an operand is a tensor or a number, `{name}` is {kind}", term.span, str(kind))
            return SCALAR
        elif name in scope.values:
            help = "declare a tensor under `for`, such as `const z: [] = c`"
            self.out.error("E0210", f"`{name}` is a number, not a tensor", term.span, "not a tensor", help)
        else:
            help = did_you_mean(name, scope.tensors, f"declare it: `for {name}: […]`")
            self.out.error("E0201", f"`{name}` is not bound", term.span, "unknown name", help)
        return ANYTHING

    def _several(self, term: s.Variadic | s.VariadicMap) -> Tensor:
        name = term.name if isinstance(term, s.Variadic) else term.source
        tensor = self.scope.tensors.get(name)
        if tensor is None or not tensor.variadic:
            known = [n for n, t in self.scope.tensors.items() if t.variadic]
            help = did_you_mean(name, known, f"declare it: `for ..{name}: […]`")
            what = "is not bound" if tensor is None else "is one operand, not several"
            self.out.error("E0201" if tensor is None else "E0221", f"`{name}` {what}", term.span, "", help)
            tensor = ANYTHING
        one = replace(tensor, variadic=False)
        if isinstance(term, s.Variadic):
            return one
        return replace(self, scope=self.scope.with_tensors({term.variable: one})).check(term.term)

    # --- operands ---

    def _operands(self, apply: s.Apply, op: s.OpDecl, packs: dict[str, Ranks]) -> list[Given]:
        """The operands given, with their declarations; `packs` gains the ranks of the packs that they bind."""
        given = self._matched_up(apply, op)
        found: list[Given] = []
        for declared, term in given:
            match term:
                case s.Absent():
                    if not declared.optional:
                        help = f"`{op.name}` cannot do without it"
                        self.out.error(
                            "E0219", f"the operand `{declared.name}` is not optional", term.span, "required", help
                        )
                    continue
                case s.Variadic() | s.VariadicMap() if declared.variadic:
                    tensor = self._several(term)
                case _:
                    tensor = self.check(term)
            if isinstance(term, s.Var) and tensor.optional and not declared.optional:
                help = f"`{op.name}` needs `{declared.name}`: use a variable that is always present"
                self.out.error(
                    "E0219", f"the operand `{declared.name}` is not optional", term.span, "may be absent", help
                )
            wanted = _shape_ranks(declared.type, packs)
            if not tensor.ranks.meets(wanted):
                message = f"the operand `{declared.name}` of `{op.name}` has {wanted}, this has {tensor.ranks}"
                self.out.error("E0217", message, term.span, str(tensor.ranks))
            else:
                _bind_pack(declared.type, tensor.ranks, packs)
            found.append((declared, term, tensor))
        return found

    def _matched_up(self, apply: s.Apply, op: s.OpDecl) -> list[tuple[s.Operand, s.Term]]:
        declared, args = op.operands, apply.args
        variadic = next((k for k, o in enumerate(declared) if o.variadic), None)
        if variadic is not None:
            after = len(declared) - variadic - 1
            if len(args) < len(declared):
                self._arity(apply, op, f"{len(declared)} or more")
                return list(zip(declared, args, strict=False))
            several = [declared[variadic]] * (len(args) - variadic - after)
            return list(zip([*declared[:variadic], *several, *declared[variadic + 1 :]], args, strict=True))
        least = max((k + 1 for k, o in enumerate(declared) if not o.optional), default=0)
        if not least <= len(args) <= len(declared):
            self._arity(apply, op, str(least) if least == len(declared) else f"{least} to {len(declared)}")
        return list(zip(declared, args, strict=False))

    def _arity(self, apply: s.Apply, op: s.OpDecl, wanted: str) -> None:
        names = ", ".join(f"{'..' if o.variadic else ''}{o.name}{'?' if o.optional else ''}" for o in op.operands)
        noun = "operand" if wanted == "1" else "operands"
        message = f"`{op.name}` takes {wanted} {noun}, not {len(apply.args)}"
        self.out.error("E0207", message, apply.span, "wrong number of operands", f"its operands are ({names})")

    def _dtype(self, apply: s.Apply, op: s.OpDecl, given: Sequence[Given]) -> s.DtypeClass | None:
        """The dtype class that the operands of class `float` or `any` share."""
        shared: s.DtypeClass | None = None
        for declared, term, tensor in given:
            wanted, actual = declared.type.dtype or "float", tensor.dtype
            if actual is None:
                continue
            if wanted != "any" and actual != wanted and (wanted, actual) != ("float", "half"):
                help = f"`{op.name}` is defined for `{wanted}` only: say so where the variable is declared"
                message = f"the operand `{declared.name}` of `{op.name}` is `{wanted}`, this is `{actual}`"
                self.out.error("E0218", message, term.span, f"`{actual}`", help)
            elif wanted in ("float", "any"):
                if shared is not None and actual != shared and "any" not in (shared, actual):
                    message = f"the operands of `{op.name}` have one dtype, these are `{shared}` and `{actual}`"
                    self.out.error("E0218", message, apply.span, "two dtypes")
                shared = shared if shared not in (None, "any") else actual
        if shared is None and all((o.type.dtype or "float") == "float" for o in op.operands):
            return "float"
        return shared

    # --- attributes ---

    def _attributes(self, apply: s.Apply, op: s.OpDecl) -> dict[str, Ranks]:
        """Checks what stands in the brackets; the lengths of lists that are written out."""
        declared = {a.name: a for a in op.attrs}
        written: dict[str, s.AttrArg] = {}
        lengths: dict[str, Ranks] = {}
        for arg in apply.attrs:
            if arg.name in written:
                notes = ((written[arg.name].span, "first here"),)
                self.out.error("E0209", f"`{arg.name}` is written twice", arg.span, "again", "keep one of them", notes)
                continue
            written[arg.name] = arg
            attr = declared.get(arg.name)
            if attr is None:
                names = ", ".join(f"`{a}`" for a in declared)
                help = did_you_mean(arg.name, declared, f"it has {names}" if names else "it has no attributes")
                self.out.error(
                    "E0203", f"`{op.name}` has no attribute `{arg.name}`", arg.span, "unknown attribute", help
                )
                continue
            kind = self._attribute(attr, arg.value)
            if kind is not None and kind.length is not None:
                lengths[arg.name] = Ranks(kind.length, kind.length)
        carried = self._carried(apply, op, written)
        missing = [a for a in op.attrs if a.default is None and a.name not in written and a.name not in carried]
        for attr in missing:
            help = f"write `{attr.name}=…`" + (
                "" if self.side == "rewrite" else ", or `..a` for all that are not written"
            )
            message = f"`{op.name}` needs the attribute `{attr.name}`, which has no default"
            self.out.error("E0216", message, self._name_span(apply), "attribute missing", help)
        return lengths

    def _attribute(self, attr: s.AttrDecl, value: s.Expr) -> Kind | None:
        if isinstance(value, s.Name) and value.id == "_" and self.side == "match":
            return None
        check_attr_value(attr, value, self.scope, self.out)
        return check_expr(value, self.scope, Findings())

    def _requirements(
        self, apply: s.Apply, op: s.OpDecl, operands: Sequence[Given], packs: Mapping[str, Ranks]
    ) -> None:
        """Requirements on ranks and lengths that hold for no operands."""
        written = {a.name: literal(a.value) for a in apply.attrs}
        first = operands[0][2].ranks if operands else Ranks()

        def length(e: s.Expr) -> Ranks:
            match e:
                case s.Call(function="len" | "rank", args=(of,)):
                    return _list_length(of, packs)
                case s.Name():
                    value = written.get(e.id)
                    if value is not None and value < 0:  # an axis counted from the end
                        value = value + first.least if first.least == first.most else None
                    return Ranks() if value is None else Ranks(value, value)
                case _:
                    return Ranks()

        for require in op.requires:
            match require.condition:
                case s.Compare(first=one, rest=(("==", other),)) if not length(one).meets(length(other)):
                    message = f"`{op.name}` requires `{_text(require.condition)}`, which never holds here"
                    notes = ((require.span, "required here"),) if require.span.source.text else ()
                    self.out.error("E0217", message, apply.span, "never valid", "", notes)
                case _:
                    pass

    def _carried(self, apply: s.Apply, op: s.OpDecl, written: Mapping[str, s.AttrArg]) -> frozenset[str]:
        """The attributes that `..a` gives."""
        names = frozenset(a.name for a in op.attrs)
        if apply.rest is None:
            return frozenset()
        if self.side == "match":
            return names
        if apply.rest not in self.rests:
            help = did_you_mean(apply.rest, self.rests, f"write `..{apply.rest}` in brackets on the match side")
            self.out.error("E0245", f"`..{apply.rest}` is not bound", apply.span, "no such attributes", help)
            return names
        carried = self.rests[apply.rest]
        foreign = sorted(carried - names - frozenset(written))
        if foreign:
            listed = ", ".join(f"`{n}`" for n in foreign)
            message = f"`..{apply.rest}` has {listed}, which `{op.name}` has not"
            self.out.error("E0245", message, apply.span, "", "write the attributes one by one")
        return carried


def bound_attributes(terms: Sequence[s.Term], rules: RuleSet) -> tuple[dict[str, Kind], dict[str, frozenset[str]]]:
    """What the brackets of a match side bind: names for attributes, and the attributes of each `..a`."""
    names: dict[str, Kind] = {}
    rests: dict[str, frozenset[str]] = {}
    todo = list(terms)
    while todo:
        term = todo.pop(0)
        if isinstance(term, s.VariadicMap):
            todo.append(term.term)
        if not isinstance(term, s.Apply):
            continue
        todo.extend(term.args)
        op = rules.ops.get(term.op)
        declared = {a.name: a.type for a in op.attrs} if op is not None else {}
        for arg in term.attrs:
            if isinstance(arg.value, s.Name) and arg.value.id != "_":
                kind = attr_kind(declared[arg.name]) if arg.name in declared else Kind("unknown")
                names.setdefault(arg.value.id, kind)
        if term.rest is not None:
            rests.setdefault(term.rest, frozenset(declared) - {a.name for a in term.attrs})
    return names, rests


def _text(e: s.Expr) -> str:
    """An expression on one line."""
    return " ".join(e.span.text.split())


# --- ranks -------------------------------------------------------------------------------------------------------


def _shape_ranks(type_: s.TensorType, packs: Mapping[str, Ranks]) -> Ranks:
    """The ranks of a shape, as far as those of its packs are known."""
    least, most = 0, 0
    for dim in type_.dims:
        ranks = _list_length(dim.value, packs) if isinstance(dim, s.Splice) else Ranks(1, 1)
        least += ranks.least
        most = None if most is None or ranks.most is None else most + ranks.most
    return Ranks(least, most)


def _list_length(e: s.Expr, packs: Mapping[str, Ranks]) -> Ranks:
    match e:
        case s.Name():
            return packs.get(e.id, Ranks())
        case s.Call(function="broadcast") if len(e.args) == 2:
            a, b = (_list_length(arg, packs) for arg in e.args)
            most = None if a.most is None or b.most is None else max(a.most, b.most)
            return Ranks(max(a.least, b.least), most)
        case s.ListExpr() if not any(isinstance(i, s.Splice) for i in e.items):
            return Ranks(len(e.items), len(e.items))
        case s.Comprehension(condition=None, relation="in"):
            return _list_length(e.domain, packs)
        case s.Comprehension(condition=None, domain=s.Call(function="rank" | "len", args=(pack,))):
            return _list_length(pack, packs)
        case _:
            return Ranks()


def _bind_pack(type_: s.TensorType, actual: Ranks, packs: dict[str, Ranks]) -> None:
    """The rank of a pack is what the other dimensions leave."""
    unknown = [
        d.value.id
        for d in type_.dims
        if isinstance(d, s.Splice) and isinstance(d.value, s.Name) and d.value.id not in packs
    ]
    rest = _shape_ranks(type_, {**packs, **dict.fromkeys(unknown, Ranks(0, 0))})
    most = None if actual.most is None else max(0, actual.most - rest.least)
    if len(unknown) == 1 and rest.most is not None:
        packs[unknown[0]] = Ranks(max(0, actual.least - rest.most), most)
    else:
        packs.update(dict.fromkeys(unknown, Ranks(0, most)))


def _result_dtype(result: s.Operand, shared: s.DtypeClass | None) -> s.DtypeClass | None:
    if result.type.dtype == "any":
        return None  # the result of a cast
    return result.type.dtype or shared
