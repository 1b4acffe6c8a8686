"""Shape patterns: what their names are bound to, and whether sizes and packs can be found from an actual shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tasodsl import syntax as s
from tasodsl.check_expr import check_expr, literal, splice, walk
from tasodsl.check_types import INT, INTS, REAL, Scope
from tasodsl.diagnostics import Findings


def bind_shapes(operands: Sequence[s.Operand], scope: Scope, facts: Sequence[s.Expr], out: Findings) -> Scope:
    """The scope with the names that the shapes of `operands` bind.

    Plain names first, then dimensions with arithmetic, which are solved for their one name that is still unknown.
    `facts` are the conditions among which `rank(S) == …` is looked for.
    """
    late: list[s.Expr] = []
    for operand in operands:
        _packs(operand.type, scope, facts, out)
        for dim in operand.type.dims:
            match dim:
                case s.Splice():
                    if isinstance(dim.value, s.Name) and dim.value.id not in scope.values:
                        scope = scope.with_values({dim.value.id: INTS})
                    else:
                        splice(dim, scope, out)
                case s.PerOperand():
                    if not operand.variadic:
                        help = f"write `{dim.name}`, or make the operand variadic: `..{operand.name}`"
                        out.error("E0221", f"`{operand.name}` is one tensor and has one size here", dim.span, "", help)
                    scope = scope.with_values({dim.name: INTS})
                case s.Name():
                    if dim.id not in scope.values:
                        scope = scope.with_values({dim.id: INT})
                    else:
                        _size(dim, scope, out)
                case _:
                    late.append(dim)
    for dim in late:
        scope = _solve(dim, scope, out)
    return scope


def check_shape(type_: s.TensorType, scope: Scope, out: Findings) -> None:
    """Checks a shape whose names are all bound already."""
    for dim in type_.dims:
        match dim:
            case s.Splice():
                splice(dim, scope, out)
            case s.PerOperand():
                check_expr(s.Name(dim.name, span=dim.span), scope, out)
            case _:
                _size(dim, scope, out)


def _size(dim: s.Expr, scope: Scope, out: Findings) -> None:
    kind = check_expr(dim, scope, out)
    if not kind.may_be(INT):
        help = f"`..{dim.id}` lays out a pack" if isinstance(dim, s.Name) and kind.name == "list" else ""
        out.error("E0210", f"a size is a whole number, this is {kind}", dim.span, str(kind), help)
    value = literal(dim)
    if value is not None and value < 0:
        out.error("E0210", "a size is not negative", dim.span, "negative")


def _solve(dim: s.Expr, scope: Scope, out: Findings) -> Scope:
    bound_inside = {t.variable for t in walk(dim) if isinstance(t, s.Comprehension)}
    bound_inside |= {b.name for t in walk(dim) if isinstance(t, s.Reduce) for b in t.binders}
    names = [t for t in walk(dim) if isinstance(t, s.Name)]
    unknown = list(dict.fromkeys(n.id for n in names if n.id not in scope.values and n.id not in bound_inside))
    if not unknown:
        _size(dim, scope, out)
        return scope
    if len(unknown) > 1:
        listed = " and ".join(f"`{n}`" for n in unknown)
        help = "bind all but one of them by other dimensions or attributes, or use one name and a `where`"
        out.error("E0241", f"{listed} cannot both be found from one size", dim.span, "several unknown names", help)
    elif not _linear(dim, unknown[0]) or sum(n.id == unknown[0] for n in names) > 1:
        help = "a size is solved for a name that is multiplied and added to only; else use one name and a `where`"
        out.error("E0241", f"`{unknown[0]}` cannot be found from this size", dim.span, "not linear", help)
    inner = scope.with_values(dict.fromkeys(unknown, INT))
    _size(dim, inner, out)
    return inner


def _linear(e: s.Expr, name: str) -> bool:
    """Whether `e` is `name`, with sums and products around it."""
    if not any(isinstance(t, s.Name) and t.id == name for t in walk(e)):
        return True
    match e:
        case s.Name():
            return True
        case s.Binary(op="+" | "*"):
            return _linear(e.left, name) and _linear(e.right, name)
        case s.Binary(op="-"):
            return _linear(e.left, name) and not any(isinstance(t, s.Name) and t.id == name for t in walk(e.right))
        case _:
            return False


def _packs(type_: s.TensorType, scope: Scope, facts: Sequence[s.Expr], out: Findings) -> None:
    """All packs of unknown rank but the last need a fact that says their rank."""
    unknown = [
        d.value
        for d in type_.dims
        if isinstance(d, s.Splice) and isinstance(d.value, s.Name) and d.value.id not in scope.values
    ]
    for pack in unknown[:-1]:
        if pack.id not in stated_ranks(facts):
            inside = stated_ranks(t for fact in facts for t in walk(fact) if isinstance(t, s.Compare))
            help = f"add the condition `rank({pack.id}) == …`"
            if pack.id in inside:
                help = f"make `rank({pack.id}) == …` a condition of its own, outside the `and`"
            out.error("E0222", f"nothing says where `..{pack.id}` ends", pack.span, "two packs in one shape", help)


def stated_ranks(facts: Iterable[s.Expr]) -> set[str]:
    """The packs whose rank a condition states."""
    found: set[str] = set()
    for fact in facts:
        if isinstance(fact, s.Compare) and len(fact.rest) == 1 and fact.rest[0][0] == "==":
            for side in (fact.first, fact.rest[0][1]):
                if isinstance(side, s.Call) and side.function in ("rank", "len") and len(side.args) == 1:
                    (pack,) = side.args
                    if isinstance(pack, s.Name):
                        found.add(pack.id)
    return found


def check_value(operand: s.Operand, scope: Scope, out: Findings) -> Scope:
    """`const z: [..T] = e`: every entry is the number `e`; a new name binds the number."""
    value = operand.value
    if value is None:
        return scope
    if not operand.const:
        help = f"write `const {operand.name}: …`"
        out.error("E0232", "only a constant has a known value", value.span, f"`{operand.name}` is not const", help)
    if isinstance(value, s.Name) and value.id not in scope.values:
        return scope.with_values({value.id: INT if operand.type.dtype == "int" else REAL})
    number = value.operand if isinstance(value, s.Unary) and value.op == "-" else value
    if not isinstance(number, s.Name):
        named = any(isinstance(e, s.Name) for e in walk(value))
        if named or not (check_expr(value, scope, out).number or isinstance(value, s.Bool)):
            help = "write a number, or a new name for it and a `where`"
            out.error("E0232", "the value of a constant is one number", value.span, "not a number", help)
    else:
        kind = check_expr(number, scope, out)
        if not kind.number:
            out.error("E0232", f"the value of a constant is one number, `{number.id}` is {kind}", value.span, str(kind))
    return scope
