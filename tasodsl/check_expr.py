"""Expressions: every name known, every function called rightly, no value used as what it certainly is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import cast

from tasodsl import syntax as s
from tasodsl.check_types import BOOL, INT, INTS, LIST, REAL, STRING, UNKNOWN, Kind, Scope, Tensor, entry_kind, joined
from tasodsl.diagnostics import Findings, did_you_mean
from tasodsl.lists import ARITY
from tasodsl.source import Span

RESULTS: Mapping[str, Kind] = MappingProxyType(
    {
        **dict.fromkeys(("len", "rank", "index", "flatten", "piece", "offset", "resize_index"), INT),
        **dict.fromkeys(("range", "broadcast", "unflatten"), INTS),
        **dict.fromkeys(("exp", "log", "sqrt", "erf", "tanh", "sin", "cos", "pow", "floor", "real"), REAL),
        "present": BOOL,
        "dtype": STRING,
    }
)
"""What built-in functions return, where it does not depend on their arguments."""

LISTS_FIRST = frozenset({"len", "rank", "prod", "index", "broadcast", "flatten", "offset", "piece"})
"""Built-in functions whose first argument is a list."""


DEEPEST_CALL = 2
"""How far the kind of a function's result is looked for through calls within calls."""


def check_expr(e: s.Expr, scope: Scope, out: Findings) -> Kind:
    """The kind of `e`, with all that is wrong in it added to `out`."""
    match e:
        case s.Int():
            return INT
        case s.Real():
            return REAL
        case s.Str():
            return STRING
        case s.Bool():
            return BOOL
        case s.Name():
            return check_name(e.id, e.span, scope, out)
        case s.Unary():
            wanted = BOOL if e.op == "not" else REAL
            kind = _wanted(e.operand, wanted, f"`{e.op}`", scope, out)
            return BOOL if e.op == "not" else kind
        case s.Binary():
            return _binary(e, scope, out)
        case s.Compare():
            return _compare(e, scope, out)
        case s.IfExpr():
            condition(e.condition, scope, out)
            then, otherwise = check_expr(e.then, scope, out), check_expr(e.otherwise, scope, out)
            both = joined(then, otherwise)
            if both is None:
                message = f"one branch is {then}, the other {otherwise}"
                out.error("E0210", message, e.span, "branches differ", "give both branches the same kind of value")
            return both or UNKNOWN
        case s.Call():
            return _call(e, scope, out)
        case s.Index():
            return _index(e, scope, out)
        case s.Slice():
            kind = _wanted(e.base, LIST, "a slice", scope, out)
            for bound in (e.low, e.high):
                if bound is not None:
                    _wanted(bound, INT, "the bound of a slice", scope, out)
                    _not_negative(bound, out)
            return Kind("list", kind.element)
        case s.ListExpr():
            return _list(e, scope, out)
        case s.Comprehension():
            return _comprehension(e, scope, out)
        case s.Reduce():
            return _reduce(e, scope, out)


def condition(e: s.Expr, scope: Scope, out: Findings) -> None:
    """Checks an expression that must be true or false."""
    kind = check_expr(e, scope, out)
    if not kind.may_be(BOOL):
        out.error("E0210", f"a condition is expected, this is {kind}", e.span, str(kind), "compare it with something")


def check_name(name: str, span: Span, scope: Scope, out: Findings) -> Kind:
    """What a name stands for in an expression."""
    if name in scope.values:
        return scope.values[name]
    if name in scope.tensors:
        help = f"read an entry, `{name}[…]`, or use a name from its shape"
        out.error("E0212", f"`{name}` is a tensor, not a number", span, "a whole tensor", help)
    elif name in scope.later:
        out.error("E0229", f"`{name}` is used before it is bound", span, "not bound yet", "move its `let` up")
    elif name == "_":
        out.error("E0201", "`_` has no value", span, "", "give it a name where it is bound")
    else:
        help = did_you_mean(name, scope.values, "bind it by a shape, an attribute or a `let`")
        out.error("E0201", f"`{name}` is not bound", span, "unknown name", help)
    return UNKNOWN


def splice(part: s.Splice, scope: Scope, out: Findings) -> Kind:
    """What stands behind `..`: a list."""
    return _wanted(part.value, LIST, "`..`", scope, out)


def check_items(parts: Sequence[s.Expr | s.Splice], wanted: Kind, what: str, scope: Scope, out: Findings) -> list[Kind]:
    """The kinds of a list's or an index's items, those of spliced lists by their elements."""
    kinds: list[Kind] = []
    for part in parts:
        if isinstance(part, s.Splice):
            kinds.append(splice(part, scope, out).element or UNKNOWN)
        else:
            kinds.append(_wanted(part, wanted, what, scope, out))
    return kinds


def bind_all(binders: Sequence[s.Binder], scope: Scope, out: Findings) -> Scope:
    """The scope within a reduction or a `let` of a tensor."""
    seen: set[str] = set()
    for b in binders:
        _wanted(b.bound, LIST if b.pack else INT, "the range of a pack" if b.pack else "a range", scope, out)
        if b.name in seen:
            out.error("E0206", f"`{b.name}` is bound twice here", b.span, "the second time", "choose another name")
        seen.add(b.name)
        scope = scope.with_values({b.name: INTS if b.pack else INT})
    return scope


def check_tensor_read(e: s.Index, name: str, tensor: Tensor, scope: Scope, out: Findings) -> Kind:
    """An entry of a tensor; its indices are whole numbers, as many as the tensor has dimensions."""
    kinds = check_items(e.indices, INT, "an index", scope, out)
    plain = sum(not isinstance(i, s.Splice) for i in e.indices)
    exact = plain == len(e.indices)
    ranks = tensor.ranks
    if (ranks.most is not None and plain > ranks.most) or (exact and plain < ranks.least):
        message = f"`{name}` has {ranks}, but is read with {len(kinds)} {'index' if len(kinds) == 1 else 'indices'}"
        out.error("E0217", message, e.span, "wrong number of indices")
    if tensor.optional and e.default is None:
        help = f"read `{name}[…]?0`, or test `present({name})`"
        out.error("E0220", f"`{name}` may be absent, but is read without `?`", e.span, "may be absent", help)
    if e.default is not None:
        check_expr(e.default, scope, out)
    return entry_kind(tensor.dtype)


# --- one form each -----------------------------------------------------------------------------------------------


def _wanted(e: s.Expr, wanted: Kind, what: str, scope: Scope, out: Findings) -> Kind:
    kind = check_expr(e, scope, out)
    if not kind.may_be(wanted):
        out.error("E0210", f"{what} takes {wanted}, this is {kind}", e.span, str(kind))
        return UNKNOWN
    return kind


def _binary(e: s.Binary, scope: Scope, out: Findings) -> Kind:
    what = f"`{e.op}`"
    match e.op:
        case "and" | "or":
            for side in (e.left, e.right):
                _wanted(side, BOOL, what, scope, out)
            return BOOL
        case "in":
            element = check_expr(e.left, scope, out)
            listed = _wanted(e.right, LIST, what, scope, out)
            if listed.element is not None and joined(element, listed.element) is None:
                out.error("E0210", f"{element} is never in a list of such values", e.span, "never true")
            return BOOL
        case _:
            left, right = (_wanted(side, REAL, what, scope, out) for side in (e.left, e.right))
    if e.op in ("//", "%"):
        for side, kind in ((e.left, left), (e.right, right)):
            if kind == REAL:
                help = "for reals write `/`" if e.op == "//" else "the remainder of reals is not defined"
                out.error("E0211", f"{what} takes whole numbers, this is a real number", side.span, "real", help)
        divisor = literal(e.right)
        if divisor is not None and divisor <= 0:
            help = "the divisor of `//` and `%` must be greater than 0"
            out.error("E0213", f"{what} by {divisor} has no value", e.right.span, "not positive", help)
        return INT
    if e.op == "/":
        if left == right == INT:
            help = "write `//` for whole numbers, or `real(…)` around one side"
            out.error("E0211", "`/` divides reals, and both sides are whole numbers", e.span, "whole numbers", help)
        if isinstance(e.right, s.Real) and e.right.value == 0:
            out.error("E0213", "`/` by 0 has no value", e.right.span, "zero")
        return REAL
    if e.op == "**":
        return REAL
    return UNKNOWN if UNKNOWN in (left, right) else REAL if REAL in (left, right) else INT


def literal(e: s.Expr) -> int | None:
    """The value of a whole number written out."""
    if isinstance(e, s.Int):
        return e.value
    if isinstance(e, s.Unary) and e.op == "-" and isinstance(e.operand, s.Int):
        return -e.operand.value
    return None


def _compare(e: s.Compare, scope: Scope, out: Findings) -> Kind:
    left = check_expr(e.first, scope, out)
    for op, right_expr in e.rest:
        right = check_expr(right_expr, scope, out)
        if joined(left, right) is None:
            out.error("E0210", f"{left} is compared with {right}", right_expr.span, "never equal")
        elif op not in ("==", "!="):
            for kind in (left, right):
                if not kind.number:
                    help = "lists, strings and conditions compare with `==` and `!=` only"
                    out.error("E0210", f"`{op}` takes numbers, this is {kind}", e.span, str(kind), help)
                    break
        left = right
    return BOOL


def _call(e: s.Call, scope: Scope, out: Findings) -> Kind:
    name, declared = e.function, scope.fns.get(e.function)
    if name in ("present", "dtype") and len(e.args) == 1:
        return _about_operand(e, e.args[0], scope, out)
    kinds = [check_expr(a, scope, out) for a in e.args]
    if declared is not None:
        if len(kinds) != len(declared.params):
            _arity(e, len(declared.params), len(declared.params), out)
            return UNKNOWN
        # What is wrong inside is told where the function is declared; what it returns matters here.
        params = dict(zip(declared.params, kinds, strict=True))
        inner = Scope(scope.fns, params, depth=scope.depth + 1)
        return UNKNOWN if scope.depth == DEEPEST_CALL else check_expr(declared.body, inner, Findings())
    if name not in ARITY:
        known = {*ARITY, *scope.fns}
        out.error("E0204", f"there is no function `{name}`", e.span, "unknown function", did_you_mean(name, known))
        return UNKNOWN
    least, most = ARITY[name]
    if len(kinds) < least or (most is not None and len(kinds) > most):
        _arity(e, least, most, out)
        return UNKNOWN
    return _builtin(e, name, kinds, out)


def _about_operand(e: s.Call, operand: s.Expr, scope: Scope, out: Findings) -> Kind:
    """`present(B)` and `dtype(x)`."""
    tensor = scope.tensors.get(operand.id) if isinstance(operand, s.Name) else None
    if tensor is None:
        out.error("E0210", f"`{e.function}` takes the name of an operand", operand.span, "not an operand")
    elif e.function == "present" and not tensor.optional:
        help = f"only an operand declared with `?` may be absent: `{operand.span.text}?`"
        out.error("E0220", f"`{operand.span.text}` is always present", operand.span, "not optional", help)
    return RESULTS[e.function]


def _builtin(e: s.Call, name: str, kinds: list[Kind], out: Findings) -> Kind:
    wants_list = name in LISTS_FIRST or (name in ("sum", "min", "max") and len(kinds) == 1)
    if wants_list and not kinds[0].may_be(LIST):
        help = f"give `{name}` two arguments or more, or one list" if name in ("min", "max") else ""
        out.error("E0210", f"`{name}` takes a list, this is {kinds[0]}", e.args[0].span, str(kinds[0]), help)
        return UNKNOWN
    if name in RESULTS:
        return RESULTS[name]
    if name in ("sum", "prod", "min", "max") and len(kinds) == 1:
        return kinds[0].element or UNKNOWN
    if name in ("min", "max", "abs", "sign"):
        for kind, arg in zip(kinds, e.args, strict=True):
            if not kind.number:
                out.error("E0210", f"`{name}` takes numbers, this is {kind}", arg.span, str(kind))
        return UNKNOWN if UNKNOWN in kinds else REAL if REAL in kinds else INT
    return UNKNOWN


def _arity(e: s.Call, least: int, most: int | None, out: Findings) -> None:
    wanted = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
    noun = "argument" if wanted == "1" else "arguments"
    out.error("E0214", f"`{e.function}` takes {wanted} {noun}, not {len(e.args)}", e.span, "wrong number of arguments")


def calls(tree: object) -> set[str]:
    """The functions called in a tree."""
    return {t.function for t in walk(tree) if isinstance(t, s.Call)}


def walk(tree: object) -> list[s.Tree]:
    """All the trees in a tree, itself included, in the order of the text."""
    found: list[s.Tree] = []
    todo: list[object] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, s.Tree):
            found.append(node)
            todo.extend(getattr(node, f) for f in reversed(tuple(node.__dataclass_fields__)) if f != "span")
        elif isinstance(node, tuple):
            todo.extend(reversed(cast("tuple[object, ...]", node)))
    return found


def _index(e: s.Index, scope: Scope, out: Findings) -> Kind:
    base = e.base
    if isinstance(base, s.Name) and base.id in scope.tensors:
        tensor = scope.tensors[base.id]
        if tensor.variadic:
            help = f"pick one first: `{base.id}[k][…]`"
            out.error("E0221", f"`{base.id}` is several tensors", e.span, "one bracket", help)
            return UNKNOWN
        return check_tensor_read(e, base.id, tensor, scope, out)
    if isinstance(base, s.Index) and isinstance(base.base, s.Name) and base.base.id in scope.tensors:
        name = base.base.id
        if not scope.tensors[name].variadic:
            out.error(
                "E0221",
                f"`{name}` is one tensor",
                base.span,
                "two brackets",
                f"put all indices in one bracket: `{name}[…]`",
            )
            return UNKNOWN
        check_items(base.indices, INT, "an index", scope, out)
        return check_tensor_read(e, name, scope.tensors[name], scope, out)
    kind = check_expr(base, scope, out)
    if not kind.may_be(LIST):
        if not (isinstance(base, s.Name) and base.id not in scope.values):
            out.error("E0210", f"only lists and tensors have entries, this is {kind}", base.span, str(kind))
        return UNKNOWN
    if e.default is not None:
        out.error("E0210", "`?` reads a tensor; an index of a list must be within it", e.span, "a list")
    if len(e.indices) != 1 or isinstance(e.indices[0], s.Splice):
        out.error("E0210", "a list is read with one index", e.span, "a list")
        return UNKNOWN
    _wanted(e.indices[0], INT, "an index", scope, out)
    _not_negative(e.indices[0], out)
    which = literal(e.indices[0])
    if which is not None and kind.length is not None and which >= kind.length:
        help = f"the last one is {kind.length - 1}" if kind.length else ""
        out.error("E0244", f"entry {which} of {kind}", e.indices[0].span, "out of range", help)
    return kind.element or UNKNOWN


def _not_negative(e: s.Expr, out: Findings) -> None:
    which = literal(e)
    if which is not None and which < 0:
        help = "indices count from 0; write `L[len(L) - 1]` for the last"
        out.error("E0244", "a list has no negative indices", e.span, "negative", help)


def _list(e: s.ListExpr, scope: Scope, out: Findings) -> Kind:
    element: Kind | None = None
    for k, kind in enumerate(check_items(e.items, UNKNOWN, "a list", scope, out)):
        both = kind if k == 0 else joined(element or UNKNOWN, kind)
        if both is None:
            message = f"the elements of this list are {element} and {kind}"
            out.error("E0210", message, e.items[k].span, str(kind), "a list holds one kind of value")
        element = both or UNKNOWN
    fixed = not any(isinstance(i, s.Splice) for i in e.items)
    return Kind("list", element, len(e.items) if fixed else None)


def _comprehension(e: s.Comprehension, scope: Scope, out: Findings) -> Kind:
    counted = e.relation == "<"
    domain = _wanted(e.domain, INT if counted else LIST, f"`for … {e.relation}`", scope, out)
    inner = scope.with_values({e.variable: INT if counted else domain.element or UNKNOWN})
    if e.condition is not None:
        condition(e.condition, inner, out)
    return Kind("list", check_expr(e.body, inner, out))


def _reduce(e: s.Reduce, scope: Scope, out: Findings) -> Kind:
    inner = bind_all(e.binders, scope, out)
    if e.condition is not None:
        condition(e.condition, inner, out)
    if e.kind in ("all", "any"):
        kind = check_expr(e.body, inner, out)
        if not kind.may_be(BOOL):
            help = f"a reduction's body is one product: put a comparison in parentheses, `{e.kind}[…] (…)`"
            out.error("E0210", f"`{e.kind}` takes a condition, this is {kind}", e.body.span, str(kind), help)
        return BOOL
    kind = _wanted(e.body, REAL, f"`{e.kind}`", inner, out)
    if e.kind in ("max", "min"):
        for read in _direct_reads(e.body):
            if read.default is not None and not _optional(read, scope):
                help = f"restrict the points instead: `{e.kind}[… if 0 <= i < n] …`"
                message = f"a default under `{e.kind}` would take part in the {e.kind}imum"
                out.error("E0233", message, read.span, "read with `?`", help)
    return kind


def _direct_reads(e: s.Expr) -> list[s.Index]:
    """The entries that an expression is computed from directly, not through another reduction."""
    match e:
        case s.Index():
            return [e]
        case s.Unary():
            return _direct_reads(e.operand)
        case s.Binary():
            return _direct_reads(e.left) + _direct_reads(e.right)
        case s.IfExpr():
            return _direct_reads(e.then) + _direct_reads(e.otherwise)
        case _:
            return []


def _optional(read: s.Index, scope: Scope) -> bool:
    tensor = scope.tensors.get(read.base.id) if isinstance(read.base, s.Name) else None
    return tensor is not None and tensor.optional
