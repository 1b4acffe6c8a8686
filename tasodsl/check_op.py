"""Operators and functions: names bound before use, one definition for each result, indices that fit its shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tasodsl import syntax as s
from tasodsl.check_attr import check_attr_value
from tasodsl.check_expr import calls, check_expr, condition, walk
from tasodsl.check_shape import bind_shapes, check_shape
from tasodsl.check_types import INT, INTS, UNKNOWN, Kind, Scope, Tensor, attr_kind, entry_kind
from tasodsl.diagnostics import Findings, did_you_mean
from tasodsl.lists import ARITY
from tasodsl.parts import name_span
from tasodsl.source import Span

OPSETS = (1, 23)
PROPS = ("commutative",)


def check_fn(fn: s.FnDecl, fns: Mapping[str, s.FnDecl], out: Findings) -> None:
    """One function: its own names, and that it does not come back to itself."""
    unique(((p, fn.span) for p in fn.params), "parameter", out)
    if fn.name in ARITY:
        out.error(
            "E0205", f"`{fn.name}` is a built-in function", name_span(fn), "declared again", "choose another name"
        )
    path = _cycle(fn, fns)
    if path and fn.name == min(path):  # told once for each cycle
        way = " calls ".join(f"`{name}`" for name in path)
        out.error(
            "E0230",
            f"functions do not recurse: {way}",
            name_span(fn),
            "recursive",
            "use a comprehension or a reduction",
        )
    check_expr(fn.body, Scope(fns, dict.fromkeys(fn.params, UNKNOWN)), out)


def _cycle(fn: s.FnDecl, fns: Mapping[str, s.FnDecl]) -> list[str]:
    """The names on a way from `fn` back to itself."""
    todo: list[list[str]] = [[fn.name]]
    seen: set[str] = set()
    while todo:
        path = todo.pop(0)
        body = fn.body if len(path) == 1 else fns[path[-1]].body
        for name in sorted(calls(body)):
            if name == fn.name:
                return [*path, name]
            if name in fns and name not in seen:
                seen.add(name)
                todo.append([*path, name])
    return []


def check_op(op: s.OpDecl, fns: Mapping[str, s.FnDecl], out: Findings) -> None:
    """One operator's declaration."""
    if not any(op.doc):
        out.warning(
            "W0301",
            f"`{op.name}` has no doc comment",
            name_span(op),
            "",
            "say what it computes in a line `/// …` above",
        )
    unique(((o.name, o.span) for o in op.operands), "operand", out)
    unique(((r.name, r.span) for r in op.results), "result", out)
    named = [(c.name, c.span) for c in op.clauses if isinstance(c, s.AttrDecl | s.LetScalar)]
    unique(named, "attribute or `let`", out)
    _operands(op, out)
    low, high = OPSETS
    if op.since is not None and not low <= op.since <= high:
        out.error("E0238", f"there is no opset {op.since}", name_span(op), "", f"opsets are {low} to {high}")

    scope = Scope(fns, {a.name: attr_kind(a.type) for a in op.attrs})
    for attr in op.attrs:
        if isinstance(attr.type.length, s.Expr):
            check_expr(attr.type.length, scope, Findings())
        if attr.default is not None:
            check_attr_value(attr, attr.default, Scope(fns), out)
        repeated = [c for k, c in enumerate(attr.type.choices) if c in attr.type.choices[:k]]
        if repeated:
            out.error("E0206", f'"{repeated[0]}" is listed twice', attr.type.span, "the same string again")
    scope = bind_shapes(op.operands, scope, [r.condition for r in op.requires], out)
    operands = scope.with_tensors({o.name: Tensor.declared(o) for o in op.operands})
    scope = check_lets([c for c in op.clauses if isinstance(c, s.LetScalar)], operands, out)
    for require in op.requires:
        condition(require.condition, scope, out)
    for result in op.results:
        _result(result, scope, out)
    _definitions(op, scope, out)
    for prop in (c for c in op.clauses if isinstance(c, s.Prop)):
        _prop(op, prop, out)


def check_lets(lets: list[s.LetScalar], scope: Scope, out: Findings) -> Scope:
    """The scope with the names of `let`s, each of which may use those before it."""
    names = [let.name for let in lets]
    for k, let in enumerate(lets):
        scope = scope.with_values({let.name: check_let(let, scope.before(frozenset(names[k + 1 :])), out)})
    return scope


def check_let(let: s.LetScalar, scope: Scope, out: Findings) -> Kind:
    """What a `let` binds its name to."""
    own = [t for t in walk(let.value) if isinstance(t, s.Name) and t.id == let.name]
    if own and let.name not in scope.values:
        message = f"`{let.name}` refers to itself"
        out.error("E0230", message, own[0].span, "not bound yet", "a `let` uses names that are bound before it")
        return UNKNOWN
    return check_expr(let.value, scope, out)


def unique(named: Iterable[tuple[str, Span]], what: str, out: Findings) -> None:
    """Reports each name that comes a second time; `_` may."""
    seen: dict[str, Span] = {}
    for name, span in named:
        if name in seen and name != "_":
            notes = ((seen[name], "first here"),) if seen[name] != span else ()
            out.error("E0206", f"two are called `{name}`: each {what} has its own name", span, "again", "", notes)
        seen.setdefault(name, span)


def _operands(op: s.OpDecl, out: Findings) -> None:
    for operand in op.operands:
        if operand.const or operand.value is not None:
            help = "constants are chosen by rules: leave out `const` and the value"
            out.error("E0232", "an operator takes any operand of a shape", operand.span, "", help)
    for operand in (o for o in op.operands if o.variadic):
        if operand.optional:
            out.error("E0221", "a variadic operand is not optional", operand.span, "", "leave out the `?`")
    variadic = [o for o in op.operands if o.variadic]
    if len(variadic) > 1:
        out.error("E0221", "an operator has one variadic operand at most", variadic[1].span, "the second one")
    for operand in (r for r in op.results if r.const or r.optional or r.value is not None):
        out.error("E0232", "a result is neither `const` nor optional and has no value here", operand.span, "", "")


def _result(result: s.Operand, scope: Scope, out: Findings) -> None:
    check_shape(result.type, scope, out)
    listed = [d for d in result.type.dims if isinstance(d, s.PerOperand)]
    if result.variadic and len(listed) != 1:
        help = "write `n[]` where `n` is the list of the sizes"
        out.error("E0221", f"nothing says how many results `..{result.name}` are", result.span, "variadic", help)
    if listed and not result.variadic:
        help = f"write `..{result.name}` for several results"
        out.error("E0221", f"`{result.name}` is one tensor and has one size here", listed[0].span, "", help)


def _definitions(op: s.OpDecl, scope: Scope, out: Findings) -> None:
    results = {r.name: r for r in op.results}
    defined: set[str] = set()
    for definition in op.defs:
        result = results.get(definition.result)
        if result is None:
            help = did_you_mean(definition.result, results, f"its results are {', '.join(f'`{r}`' for r in results)}")
            out.error("E0246", f"`{definition.result}` is no result of `{op.name}`", definition.span, "", help)
        elif result.name in defined:
            out.error(
                "E0246", f"`{result.name}` is defined twice", definition.span, "the second time", "keep one `def`"
            )
        else:
            defined.add(result.name)
            _indices(definition, result, out)
        _definition(definition, result, scope, out)
    missing = [r for r in op.results if r.name not in defined]
    for result in missing:
        message = f"the result `{result.name}` of `{op.name}` has no definition"
        out.error("E0236", message, result.span, "not defined", f"add `def {result.name}[…] = …`")


def _indices(definition: s.Def, result: s.Operand, out: Findings) -> None:
    if (definition.operand is not None) != result.variadic:
        help = f"write `def {result.name}[k][…]`" if result.variadic else f"write `def {result.name}[…]`"
        several = "several tensors" if result.variadic else "one tensor"
        out.error("E0237", f"`{result.name}` is {several}", definition.span, "brackets", help)
    form = [isinstance(i, s.Splice) for i in definition.indices]
    wanted = [isinstance(d, s.Splice) for d in result.type.dims]
    packs, plain = sum(form), len(form) - sum(form)
    # One pack of indices takes what the others leave; several must lie as the result's packs do.
    fits = form == wanted or (packs == 1 and (True in wanted or plain <= len(wanted)))
    if not fits:
        shape = f"{len(wanted)} dimension{'s' if len(wanted) != 1 else ''}"
        help = "one index for each dimension, and `..i` for each pack"
        out.error("E0237", f"these indices do not fit the {shape} of `{result.name}`", definition.span, "", help)


def _definition(definition: s.Def, result: s.Operand | None, scope: Scope, out: Findings) -> None:
    names: list[tuple[str, Span, Kind]] = []
    for index in definition.indices:
        name = index.value if isinstance(index, s.Splice) else index
        if isinstance(name, s.Name):
            names.append((name.id, index.span, INTS if isinstance(index, s.Splice) else INT))
    if definition.operand:
        names.append((definition.operand, definition.span, INT))
    unique(((name, span) for name, span, _ in names), "index", out)
    inner = scope.with_values({name: kind for name, _, kind in names})
    kind = check_expr(definition.body, inner, out)
    if result is not None and result.type.dtype is not None and not kind.may_be(entry_kind(result.type.dtype)):
        message = f"an entry of `{result.name}` is {entry_kind(result.type.dtype)}, this is {kind}"
        out.error("E0210", message, definition.body.span, str(kind))


def _prop(op: s.OpDecl, prop: s.Prop, out: Findings) -> None:
    if prop.name not in PROPS:
        help = did_you_mean(prop.name, PROPS, f"known: {', '.join(PROPS)}")
        out.error("E0239", f"there is no property `{prop.name}`", prop.span, "unknown", help)
    elif len(op.operands) != 2 or any(o.variadic or o.optional for o in op.operands):
        message = f"`{op.name}` cannot be commutative"
        out.error("E0239", message, prop.span, "", "a commutative operator has two operands, both required")
