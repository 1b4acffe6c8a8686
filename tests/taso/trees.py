"""Random syntax trees: all that the grammar can say, whether or not it makes sense."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st

from tasodsl import syntax as s
from tasodsl.parts import HEAD, parts

names = st.sampled_from(["a", "b1", "S", "inside", "format", "x_y", "_u", "Matchy", "sums"])
texts = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"], exclude_characters='"'), max_size=6)


def real(text: str) -> s.Real:
    return s.Real(Fraction(text), text)


numbers = st.one_of(
    st.integers(0, 99).map(s.Int),
    st.sampled_from(["0.5", "2.0", "1e-5", "1.25e+3", "7E2"]).map(real),
)
leaves = st.one_of(
    numbers,
    names.map(s.Name),
    st.booleans().map(s.Bool),
    texts.map(s.Str),
)


def _grown(inner: st.SearchStrategy[s.Expr]) -> st.SearchStrategy[s.Expr]:
    maybe = st.none() | inner
    comparison = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    operators = st.sampled_from(["+", "-", "*", "/", "//", "%", "**", "and", "or", "in"])
    parts = items(inner)
    reducers = st.sampled_from(["sum", "max", "min", "all", "any"])
    return st.one_of(
        st.builds(s.Unary, st.sampled_from(["-", "not"]), inner),
        st.builds(s.Binary, operators, inner, inner),
        st.builds(s.Binary, operators, inner, inner),
        st.builds(s.Compare, inner, st.lists(st.tuples(comparison, inner), min_size=1, max_size=3).map(tuple)),
        st.builds(s.IfExpr, inner, inner, inner),
        st.builds(s.Call, names | reducers, st.lists(inner, max_size=3).map(tuple)),
        st.builds(s.Index, inner, parts, maybe),
        st.builds(s.Slice, inner, maybe, maybe),
        st.builds(s.ListExpr, parts),
        st.builds(s.Comprehension, inner, names, st.sampled_from(["in", "<"]), inner, maybe),
        st.builds(s.Reduce, reducers, binders(inner, 1), maybe, inner),
    )


def items(inner: st.SearchStrategy[s.Expr]) -> st.SearchStrategy[tuple[s.Expr | s.Splice, ...]]:
    return st.lists(inner | st.builds(s.Splice, inner), max_size=3).map(tuple)


def binders(inner: st.SearchStrategy[s.Expr], least: int) -> st.SearchStrategy[tuple[s.Binder, ...]]:
    return st.lists(st.builds(s.Binder, names, inner, st.booleans()), min_size=least, max_size=2).map(tuple)


exprs = st.recursive(leaves, _grown, max_leaves=12)
small = st.recursive(leaves, _grown, max_leaves=4)


def is_per_operand(e: object) -> bool:
    return isinstance(e, s.Index) and isinstance(e.base, s.Name) and not e.indices and e.default is None


tensor_types = st.builds(
    s.TensorType,
    st.lists(
        small.filter(lambda e: not is_per_operand(e)) | st.builds(s.Splice, small) | names.map(s.PerOperand), max_size=3
    ).map(tuple),
    st.sampled_from([None, "float", "half", "int", "bool", "any"]),
)
operands = st.builds(s.Operand, names, tensor_types, st.booleans(), st.booleans(), st.booleans(), st.none() | small)


def some(strategy: st.SearchStrategy[object], least: int = 0, most: int = 2) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(strategy, min_size=least, max_size=most).map(tuple)


negative = st.recursive(numbers, lambda inner: st.builds(s.Unary, st.just("-"), inner), max_leaves=3)
terms_without_apply = st.one_of(
    st.builds(s.Var, names, st.booleans()),
    negative.map(s.Literal),
    st.just(s.Absent()),
    st.just(s.Wildcard()),
    names.map(s.Variadic),
)


def applies(inner: st.SearchStrategy[s.Term]) -> st.SearchStrategy[s.Term]:
    return st.builds(s.Apply, names, some(st.builds(s.AttrArg, names, small)), st.none() | names, some(inner))


terms = st.recursive(
    terms_without_apply,
    lambda inner: applies(inner) | st.builds(s.VariadicMap, inner, names, names),
    max_leaves=6,
)
binds = st.builds(s.Bind, some(names | st.just("_"), 1), terms)

lets = st.builds(s.LetScalar, names, exprs)
indices = some(names.map(s.Name) | names.map(lambda n: s.Splice(s.Name(n))), 0, 3)
attr_types = st.builds(
    s.AttrType,
    st.sampled_from(["int", "real", "bool", "axis", "axes", "perm", "dtype"]),
    st.none() | st.just("any") | small,
) | st.builds(s.AttrType, st.just("choice"), st.none(), some(texts, 1, 3))
op_clauses = st.one_of(
    st.builds(s.AttrDecl, names, attr_types, st.none() | small),
    st.builds(s.Require, exprs),
    lets,
    st.builds(s.Def, names, st.none() | names, indices, exprs),
    st.builds(s.Prop, names),
)
wheres = st.builds(s.Where, exprs)
bindings = some(st.tuples(names, small))
rule_clauses = st.one_of(
    wheres,
    lets,
    st.builds(s.LetTensor, names, binders(small, 0), exprs),
    st.builds(s.Example, st.sampled_from(["example", "reject"]), bindings),
    st.builds(s.Unproved, texts),
    st.builds(s.Meta, some(st.tuples(names, small), 1)),
)

docs = some(st.text(st.sampled_from("ab /#\"'é"), max_size=8).map(str.rstrip))
plain = st.one_of(
    st.builds(s.FnDecl, names, some(names), exprs, doc=docs),
    st.builds(
        s.OpDecl,
        names,
        some(operands),
        some(operands, 1),
        st.none() | st.integers(1, 23),
        some(op_clauses, 0, 4),
        doc=docs,
    ),
    st.builds(s.AxiomDecl, names, some(operands), some(wheres | lets), applies(terms), terms, doc=docs),
    st.builds(
        s.RuleDecl,
        names,
        some(operands),
        some(binds, 1),
        some(binds, 1),
        some(rule_clauses, 0, 4),
        st.booleans(),
        doc=docs,
    ),
)

comments = st.text(st.sampled_from('ab /#"é'), max_size=8).map(lambda t: f"#{t}".rstrip())


@st.composite
def blocks(draw: st.DrawFn, ending: bool) -> tuple[str, ...]:
    """Comment lines with single blank lines between them, and perhaps one at the end."""
    lines: list[str] = []
    for comment in draw(st.lists(comments, max_size=3)):
        lines.append(comment)
        if draw(st.booleans()):
            lines.append("")
    while lines and not lines[-1] and not ending:
        lines.pop()
    return tuple(lines)


@st.composite
def declarations(draw: st.DrawFn) -> s.AnyDecl:
    """A declaration with comments at some of the places where comments can be."""
    from dataclasses import replace

    decl = draw(plain)
    last = len(parts(decl))
    placed: list[tuple[int, s.Trivia]] = []
    for place in sorted(draw(st.sets(st.integers(HEAD, last), max_size=3))):
        before = draw(blocks(ending=True)) if place == HEAD else draw(some(comments))
        after = draw(st.none() | comments) if place != last else None
        if before or after:
            placed.append((place, s.Trivia(before, after)))
    return replace(decl, comments=tuple(placed))


modules = st.builds(s.Module, some(declarations(), 0, 3), blocks(ending=False))
