"""Expressions, shapes and terms as documents: brackets only where the grammar needs them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tasodsl import syntax as s
from tasodsl.layout import Doc, Group, Line, Nest, joined

# How tightly a form binds, loosest first, as in the grammar.
EXPR, OR, AND, NOT, COMPARISON, ARITH, PRODUCT, FACTORS, SIGNED, POWER, POSTFIX = range(11)

_BINARY = {
    "or": (OR, OR, AND), "and": (AND, AND, NOT), "in": (COMPARISON, ARITH, ARITH), "+": (ARITH, ARITH, PRODUCT),
    "-": (ARITH, ARITH, PRODUCT), "*": (FACTORS, FACTORS, SIGNED), "/": (FACTORS, FACTORS, SIGNED),
    "//": (FACTORS, FACTORS, SIGNED), "%": (FACTORS, FACTORS, SIGNED), "**": (POWER, POSTFIX, SIGNED),
}  # fmt: skip
"""Of each binary operator: how tightly it binds, and how tightly its sides must."""


def level(e: s.Expr) -> int:
    """How tightly an expression binds."""
    match e:
        case s.IfExpr():
            return EXPR
        case s.Binary():
            # A reduction may be the last factor of a product, and takes all that follows.
            return PRODUCT if e.op in ("*", "/") and isinstance(e.right, s.Reduce) else _BINARY[e.op][0]
        case s.Compare():
            return COMPARISON
        case s.Unary():
            return NOT if e.op == "not" else PRODUCT if isinstance(e.operand, s.Reduce) else SIGNED
        case s.Reduce():
            return PRODUCT
        case s.Int() if e.value < 0:
            return SIGNED
        case _:
            return POSTFIX


def expr(e: s.Expr, wanted: int = EXPR) -> Doc:
    """The document of `e` where something that binds as tightly as `wanted` is expected."""
    doc = _expr(e)
    return doc if level(e) >= wanted else ("(", Nest(None, doc), ")")


def _expr(e: s.Expr) -> Doc:
    match e:
        case s.Int():
            return str(e.value)
        case s.Real():
            return e.text
        case s.Str():
            return f'"{e.value}"'
        case s.Bool():
            return "true" if e.value else "false"
        case s.Name():
            return e.id
        case s.Unary():
            if e.op == "not":
                return ("not ", expr(e.operand, NOT))
            return ("-", expr(e.operand, PRODUCT if isinstance(e.operand, s.Reduce) else SIGNED))
        case s.Binary():
            return _binary(e)
        case s.Compare():
            links: list[Doc] = [expr(e.first, ARITH)]
            for op, right in e.rest:
                links.append((Line(), f"{op} ", expr(right, ARITH)))
            return Group(Nest(2, tuple(links)))
        case s.IfExpr():
            branches = (expr(e.then), Line(), "else ", expr(e.otherwise))
            return Group(Nest(None, ("if ", expr(e.condition), Line(), "then ", *branches)))
        case s.Call():
            return (f"{e.function}(", commas([expr(a) for a in e.args]), ")")
        case s.Index():
            return (expr(e.base, POSTFIX), "[", commas(items(e.indices)), "]", _default(e.default))
        case s.Slice():
            low, high = ("" if x is None else expr(x) for x in (e.low, e.high))
            return (expr(e.base, POSTFIX), "[", low, ":", high, "]")
        case s.ListExpr():
            return ("[", filled(items(e.items)), "]")
        case s.Comprehension():
            relation = "in" if e.relation == "in" else "<"
            ending: Doc = () if e.condition is None else (Line(), "if ", expr(e.condition))
            domain = (Line(), f"for {e.variable} {relation} ", expr(e.domain, ARITH))
            return ("[", Group(Nest(None, (expr(e.body), domain, ending))), "]")
        case s.Reduce():
            ending = () if e.condition is None else (Line(), "if ", expr(e.condition))
            head = (f"{e.kind}[", Group(Nest(None, (binders(e.binders), ending))), "]")
            return Group((*head, Nest(2, (Line(), expr(e.body, PRODUCT)))))


def _binary(e: s.Binary) -> Doc:
    """A chain of operators that bind alike, broken before each of them if it does not fit."""
    binds, left_wanted, right_wanted = _BINARY[e.op]
    chain = [(e.op, expr(e.right, PRODUCT if level(e) == PRODUCT else right_wanted))]
    left = e.left
    while binds == left_wanted and isinstance(left, s.Binary) and level(left) == binds:
        chain.append((left.op, expr(left.right, _BINARY[left.op][2])))
        left = left.left
    blank: Doc = " " if binds == POWER else Line()
    return Group(Nest(None, (expr(left, left_wanted), *((blank, f"{op} ", right) for op, right in reversed(chain)))))


def _default(default: s.Expr | None) -> Doc:
    if default is None:
        return ""
    number = default
    while isinstance(number, s.Unary) and number.op == "-":
        number = number.operand
    if isinstance(number, s.Int | s.Real):
        return ("?", expr(default))
    return ("?(", expr(default), ")")


def items(parts: Iterable[s.Expr | s.Splice]) -> list[Doc]:
    """The items of a list or an index."""
    return [("..", expr(p.value)) if isinstance(p, s.Splice) else expr(p) for p in parts]


def binders(parts: Iterable[s.Binder]) -> Doc:
    """`p < k, ..r < L`."""
    return commas([(f"{'..' if b.pack else ''}{b.name} < ", expr(b.bound, ARITH)) for b in parts])


def commas(parts: Sequence[Doc]) -> Doc:
    """Parts with commas between, one below the other if they do not fit."""
    return Group(Nest(None, joined(parts, (",", Line()))))


def filled(parts: Sequence[Doc]) -> Doc:
    """Parts with commas between, as many on a line as fit."""
    return Nest(None, (*parts[:1], *((",", Group((Line(), part))) for part in parts[1:])))


# --- shapes and terms --------------------------------------------------------------------------------------------


def operand(o: s.Operand) -> Doc:
    """`const w: [k, n] = 1.0`."""
    name = f"{'const ' if o.const else ''}{'..' if o.variadic else ''}{o.name}{'?' if o.optional else ''}: "
    return (name, tensor_type(o.type), () if o.value is None else (" = ", expr(o.value)))


def tensor_type(t: s.TensorType) -> Doc:
    """`float[..S, m, k]`."""
    dims = [f"{d.name}[]" if isinstance(d, s.PerOperand) else items([d])[0] for d in t.dims]
    return (f"{t.dtype or ''}[", commas(dims), "]")


def term(t: s.Term) -> Doc:
    """A term of a rule or axiom."""
    match t:
        case s.Apply():
            attrs = [attr_arg(a) for a in t.attrs] + ([f"..{t.rest}"] if t.rest is not None else [])
            brackets: Doc = ("[", commas(attrs), "]") if attrs else ""
            return (t.op, brackets, "(", commas([term(a) for a in t.args]), ")")
        case s.Var():
            return t.name + ("?" if t.optional else "")
        case s.Literal():
            return expr(t.value)
        case s.Absent():
            return "absent"
        case s.Wildcard():
            return "_"
        case s.Variadic():
            return f"..{t.name}"
        case s.VariadicMap():
            return ("..[", term(t.term), f" for {t.variable} in {t.source}]")


def attr_arg(a: s.AttrArg) -> Doc:
    return (f"{a.name}=", expr(a.value))


def entries(pairs: Iterable[tuple[str, s.Expr]]) -> Doc:
    """`m=5, k=3`."""
    return filled([(f"{name}=", expr(value)) for name, value in pairs])
