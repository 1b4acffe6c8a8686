"""Rules and axioms: what the two sides bind and use, which values survive, and whether the pattern hangs together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tasodsl import syntax as s
from tasodsl.check_expr import bind_all, check_expr, condition, walk
from tasodsl.check_op import check_let, unique
from tasodsl.check_shape import bind_shapes, check_value
from tasodsl.check_term import Terms, bound_attributes
from tasodsl.check_types import BOOL, INT, Kind, Ranks, Scope, Tensor
from tasodsl.diagnostics import Findings, did_you_mean
from tasodsl.parts import name_span
from tasodsl.ruleset import RuleSet
from tasodsl.source import Span


def check_axiom(axiom: s.AxiomDecl, rules: RuleSet, out: Findings) -> None:
    """One axiom: the left side binds, the right side uses."""
    if not any(axiom.doc):
        out.warning(
            "W0301", f"the axiom `{axiom.name}` has no doc comment", name_span(axiom), "", "say what it states: `/// …`"
        )
    unique(((v.name, v.span) for v in axiom.variables), "variable", out)
    wheres = [c.condition for c in axiom.clauses if isinstance(c, s.Where)]
    scope, rests = _match_scope(axiom.variables, [axiom.left], wheres, rules, out)
    Terms(rules, "match", scope, rests, frozenset(), out).check(axiom.left)
    _all_matched(axiom.variables, [axiom.left], "on the left side", out)
    scope, _ = _conditions(axiom.clauses, scope, [axiom.right], out)
    Terms(rules, "rewrite", scope, rests, frozenset(), out).check(axiom.right)
    if axiom.left == axiom.right:
        out.error(
            "E0228", f"both sides of `{axiom.name}` are the same", name_span(axiom), "", "an axiom equates two terms"
        )


def check_rule(rule: s.RuleDecl, rules: RuleSet, out: Findings) -> None:
    """One rule, in both directions where it has two."""
    if not any(rule.doc):
        out.warning(
            "W0301", f"the rule `{rule.name}` has no doc comment", name_span(rule), "", "say what it does: `/// …`"
        )
    if not any(e.kind == "example" for e in rule.examples):
        help = "add `example …` with sizes for which it must match"
        out.warning("W0302", f"the rule `{rule.name}` has no example", name_span(rule), "", help)
    if rule.unproved is not None and not rule.unproved.strip():
        clause = next(c for c in rule.clauses if isinstance(c, s.Unproved))
        out.error("E0235", "a waived proof needs a reason", clause.span, "no reason", 'write `unproved "…"`')
    unique(((v.name, v.span) for v in rule.variables), "variable", out)
    _direction(rule, rules, "by the match side", out)
    if rule.both:
        # Backwards, the rewrite side is what is matched.
        back = replace(rule, match=rule.rewrite, rewrite=rule.match, clauses=tuple(rule.wheres), both=False)
        _direction(back, rules, "by the rewrite side, which `birewrite` matches too", out)


def _direction(rule: s.RuleDecl, rules: RuleSet, side: str, out: Findings) -> None:
    terms = [b.term for b in rule.match]
    wheres = [w.condition for w in rule.wheres]
    scope, rests = _match_scope(rule.variables, terms, wheres, rules, out)
    variables = dict(scope.tensors)
    scope = _match_side(rule, scope, rests, rules, out)
    bound = frozenset(scope.values)
    _examples(rule, scope, rests, out)
    scope, lets = _conditions(rule.clauses, scope, [b.term for b in rule.rewrite], out)
    _rewrite_side(rule, replace(scope, tensors={**variables, **lets}), rests, rules, out)
    _clashes(rule, bound, out)
    _all_matched(rule.variables, terms, side, out)
    if _has_output(rule):
        _dangling(rule, out)
    else:
        help = "an output is a name bound on both sides"
        message = f"the rule `{rule.name}` has no output"
        out.error("E0225", message, _hull(rule.rewrite), "binds nothing that is matched", help)
    _connected(rule, out)
    if _same_sides(rule):
        out.error(
            "E0228", f"both sides of `{rule.name}` are the same", name_span(rule), "", "it would rewrite for ever"
        )


# --- the match side ----------------------------------------------------------------------------------------------


def _match_scope(
    variables: Sequence[s.Operand], terms: Sequence[s.Term], facts: Sequence[s.Expr], rules: RuleSet, out: Findings
) -> tuple[Scope, Mapping[str, frozenset[str]]]:
    """What `for` and the brackets of the match side bind."""
    names, rests = bound_attributes(terms, rules)
    plain: set[str] = set()
    for dim in (d for v in variables for d in v.type.dims):
        if isinstance(dim, s.PerOperand):
            plain.add(dim.name)
        elif isinstance(dim, s.Name):
            plain.add(dim.id)
        elif isinstance(dim, s.Splice) and isinstance(dim.value, s.Name):
            plain.add(dim.value.id)
    scope = Scope(rules.fns, {n: k for n, k in names.items() if n not in plain})
    scope = bind_shapes(variables, scope, facts, out)
    for variable in variables:
        scope = check_value(variable, scope, out)
    return scope.with_tensors({v.name: Tensor.declared(v) for v in variables}), rests


def _match_side(
    rule: s.RuleDecl, scope: Scope, rests: Mapping[str, frozenset[str]], rules: RuleSet, out: Findings
) -> Scope:
    """The scope with the results that the match side binds."""
    _unique_results(rule, rule.match, out)
    for k, bind in enumerate(rule.match):
        later = frozenset(n for b in rule.match[k:] for n in b.names)
        terms = Terms(rules, "match", scope.before(later), rests, frozenset(), out)
        if not isinstance(bind.term, s.Apply):
            help = "write an operator, such as `Relu(x)`"
            out.error("E0242", "the match side binds results of operators", bind.term.span, "no operator", help)
            terms.check(bind.term)
        scope = scope.with_tensors(_results(bind, terms))
    return scope.before(frozenset())


def _results(bind: s.Bind, terms: Terms) -> dict[str, Tensor]:
    """What the names of a bind stand for."""
    names, term = bind.names, bind.term
    if not isinstance(term, s.Apply):
        tensor = terms.check(term)
        if len(names) > 1:
            message = f"{len(names)} names for one value"
            terms.out.error("E0208", message, bind.span, "too many names", "give it one name")
        return dict.fromkeys((n for n in names if n != "_"), replace(tensor, optional=False, const=False))
    results = terms.results(term)
    op = terms.rules.ops.get(term.op)
    if results is not None and len(names) > len(results):
        message = f"`{term.op}` has {len(results)} result{'s' if len(results) != 1 else ''}, not {len(names)}"
        terms.out.error("E0208", message, bind.span, "too many names")
    elif results is None and op is not None:
        _pieces(bind, term, op, terms.out)
    found = [*(results or []), *[Tensor()] * len(names)]
    return {n: t for n, t in zip(names, found, strict=False) if n != "_"}


def _pieces(bind: s.Bind, term: s.Apply, op: s.OpDecl, out: Findings) -> None:
    """A variadic result has as many names as the list it is declared with has elements."""
    sizes = {d.name for r in op.results for d in r.type.dims if isinstance(d, s.PerOperand)}
    for arg in term.attrs:
        if arg.name not in sizes or not isinstance(arg.value, s.ListExpr):
            continue
        fixed = not any(isinstance(i, s.Splice) for i in arg.value.items)
        if fixed and len(arg.value.items) != len(bind.names):
            count = len(arg.value.items)
            message = f"`{op.name}` has {count} result{'s' if count != 1 else ''} here, not {len(bind.names)}"
            out.error("E0208", message, bind.span, "", f"`{arg.name}` lists {count}")


def _unique_results(rule: s.RuleDecl, binds: Sequence[s.Bind], out: Findings) -> None:
    unique(((n, b.span) for b in binds for n in b.names), "result", out)
    variables = {v.name for v in rule.variables}
    for bind in binds:
        for name in bind.names:
            if name in variables:
                out.error(
                    "E0206", f"`{name}` is a variable and cannot be bound again", bind.span, "", "choose another name"
                )


def _all_matched(variables: Iterable[s.Operand], terms: Sequence[s.Term], where: str, out: Findings) -> None:
    used = {n for t in terms for n in tensor_names(t)}
    for variable in variables:
        if variable.name not in used:
            help = "use it there, or remove it from `for`"
            out.error("E0223", f"`{variable.name}` is not matched {where}", variable.span, "never matched", help)


def tensor_names(term: s.Term) -> list[str]:
    """The tensors that a term reads."""
    names: list[str] = []
    for t in walk(term):
        match t:
            case s.Var() | s.Variadic():
                names.append(t.name)
            case s.VariadicMap():
                names.append(t.source)
            case _:
                pass
    return names


def _dangling(rule: s.RuleDecl, out: Findings) -> None:
    """A matched node nobody needs would have to be without readers: such a node is in no graph."""
    kept = {n for b in rule.rewrite for n in b.names}
    read = {n for b in rule.match for n in tensor_names(b.term)}
    for bind in rule.match:
        if not (kept | read) & set(bind.names):
            names = ", ".join(f"`{n}`" for n in bind.names)
            help = "bind it on the rewrite side, read it in another term, or leave the node out"
            out.error("E0226", f"{names} is neither an output nor read in the match", bind.span, "dangling", help)


def _connected(rule: s.RuleDecl, out: Findings) -> None:
    """All binds of the match side must be reached from the first through the tensors that they share."""
    names = [{*b.names, *tensor_names(b.term)} - {"_"} for b in rule.match]
    if not names:
        return
    reached, left = names[0], list(range(1, len(names)))
    while True:
        near = [k for k in left if names[k] & reached]
        if not near:
            break
        for k in near:
            reached = reached | names[k]
        left = [k for k in left if k not in near]
    for k in left:
        help = "let them read a common tensor; two patterns that share nothing are two rules"
        out.error(
            "E0227", "this part of the match shares no tensor with the first", rule.match[k].span, "disconnected", help
        )


# --- conditions --------------------------------------------------------------------------------------------------


def _conditions(
    clauses: Sequence[s.RuleClause], scope: Scope, rewrite: Sequence[s.Term], out: Findings
) -> tuple[Scope, dict[str, Tensor]]:
    """Checks `where` and `let` in the order of the text; the scope with the `let`s, and the tensors they make."""
    lets = [c for c in clauses if isinstance(c, s.LetScalar | s.LetTensor)]
    made: dict[str, Tensor] = {}
    for k, clause in enumerate(clauses):
        later = frozenset(c.name for c in clauses[k + 1 :] if isinstance(c, s.LetScalar | s.LetTensor))
        match clause:
            case s.Where():
                condition(clause.condition, scope.before(later), out)
                _constant_reads(clause.condition, scope, "a condition", out)
            case s.LetScalar():
                kind = check_let(clause, scope.before(later), out)
                _constant_reads(clause.value, scope, "a `let`", out)
                scope = scope.with_values({clause.name: kind})
            case s.LetTensor():
                made[clause.name] = _let_tensor(clause, scope.before(later), out)
                scope = scope.with_tensors({clause.name: made[clause.name]})
            case _:
                pass
    used = {t.id for c in clauses for t in walk(c) if isinstance(t, s.Name)}
    used |= {t.id for term in rewrite for t in walk(term) if isinstance(t, s.Name)}
    used |= {n for term in rewrite for n in tensor_names(term)}
    for let in lets:
        if let.name not in used:
            out.warning("W0303", f"`{let.name}` is never used", let.span, "unused", "remove it")
    return scope, made


def _let_tensor(let: s.LetTensor, scope: Scope, out: Findings) -> Tensor:
    inner = bind_all(let.binders, scope, out)
    own = [t for t in walk(let.body) if isinstance(t, s.Name) and t.id == let.name]
    if own and let.name not in scope.tensors:
        out.error("E0230", f"`{let.name}` refers to itself", own[0].span, "not bound yet", "a `let` uses earlier names")
        return Tensor(const=True)
    kind = check_expr(let.body, inner, out)
    if kind.name in ("string", "list"):
        out.error("E0210", f"an entry of a tensor is a number, this is {kind}", let.body.span, str(kind))
    _constant_reads(let.body, scope, "a `let`", out)
    plain = sum(not b.pack for b in let.binders)
    return Tensor(Ranks(plain, plain if plain == len(let.binders) else None), None, const=True)


def _constant_reads(e: s.Expr, scope: Scope, what: str, out: Findings) -> None:
    """Entries are read at compile time: only constants have any then."""
    for read in walk(e):
        if not isinstance(read, s.Index):
            continue
        base = read.base.base if isinstance(read.base, s.Index) else read.base
        if isinstance(base, s.Name) and base.id in scope.tensors and not scope.tensors[base.id].const:
            help = f"declare it `const {base.id}` if it must be a constant"
            message = f"{what} reads constants only, `{base.id}` is not one"
            out.error("E0231", message, base.span, "not known at compile time", help)


def _clashes(rule: s.RuleDecl, bound: frozenset[str], out: Findings) -> None:
    unique(((c.name, c.span) for c in rule.lets), "`let`", out)
    tensors = {v.name for v in rule.variables} | {n for b in rule.match for n in b.names}
    for let in rule.lets:
        taken = tensors if isinstance(let, s.LetTensor) else bound
        if let.name in taken:
            message = f"`{let.name}` is bound by the match side already"
            out.error("E0206", message, let.span, "bound again", "choose another name")


def _examples(rule: s.RuleDecl, scope: Scope, rests: Mapping[str, frozenset[str]], out: Findings) -> None:
    """`example` gives values to what the match side binds."""
    known: dict[str, Kind | None] = dict.fromkeys((a for rest in rests.values() for a in rest), None)
    known |= {v.name: BOOL for v in rule.variables if v.optional}
    known |= {v.name: INT for v in rule.variables if v.variadic}
    known |= dict(scope.values)
    for example in rule.examples:
        unique(((name, value.span) for name, value in example.bindings), "name", out)
        for name, value in example.bindings:
            kind = check_expr(value, Scope(scope.fns), out)
            if name not in known:
                help = did_you_mean(
                    name, known, "an example gives sizes, packs, attributes and numbers of the match side"
                )
                out.error("E0234", f"`{name}` is nothing that the match side binds", value.span, f"`{name}`", help)
                continue
            wanted = known[name]
            if wanted is not None and not kind.may_be(wanted):
                out.error("E0234", f"`{name}` is {wanted}, this is {kind}", value.span, str(kind))


# --- the rewrite side --------------------------------------------------------------------------------------------


def _rewrite_side(
    rule: s.RuleDecl, scope: Scope, rests: Mapping[str, frozenset[str]], rules: RuleSet, out: Findings
) -> None:
    _unique_results(rule, rule.rewrite, out)
    matched = {n for b in rule.match for n in b.names if n != "_"}
    for k, bind in enumerate(rule.rewrite):
        later = frozenset(n for b in rule.rewrite[k:] for n in b.names)
        removed = frozenset(matched - set(scope.tensors) - later)
        terms = Terms(rules, "rewrite", scope.before(later), rests, removed, out)
        scope = scope.with_tensors(_results(bind, terms))
        read_later = {n for b in rule.rewrite[k + 1 :] for n in tensor_names(b.term)}
        for name in bind.names:
            if name != "_" and name not in matched and name not in read_later:
                help = did_you_mean(name, matched, "bind it on the match side, or read it in another line")
                message = f"`{name}` is not bound by the match side, and nothing reads it"
                out.error("E0224", message, bind.span, "not an output", help)


def _has_output(rule: s.RuleDecl) -> bool:
    matched = {n for b in rule.match for n in b.names}
    return any(n in matched and n != "_" for b in rule.rewrite for n in b.names)


def _same_sides(rule: s.RuleDecl) -> bool:
    return bool(rule.match) and {(b.names, b.term) for b in rule.match} == {(b.names, b.term) for b in rule.rewrite}


def _hull(binds: Sequence[s.Bind]) -> Span:
    return replace(binds[0].span, end=binds[-1].span.end)
