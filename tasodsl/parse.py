"""From text to syntax tree: Lark's tree turned into the dataclasses of `syntax`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

from lark import Lark, Token, UnexpectedInput
from lark import Tree as LarkTree

from tasodsl import syntax as s
from tasodsl.diagnostics import Diagnostic
from tasodsl.resources import grammar_path
from tasodsl.source import Source, Span

Raw = LarkTree[Token] | Token | None


@cache
def parser() -> Lark:
    """The LALR parser of `grammar/taso.lark`, built once a process."""
    return Lark(
        grammar_path().read_text(encoding="utf-8"), parser="lalr", lexer="contextual", propagate_positions=True, maybe_placeholders=True
    )


def parse(source: Source) -> s.Module:
    """The module in `source`; Lark's `UnexpectedInput` on the first error."""
    return Builder(source, 0).module(parser().parse(source.text))


class Builder:
    """Turns Lark's tree of (part of) a source into ours; `offset` is where the parsed text starts in the source."""

    def __init__(self, source: Source, offset: int) -> None:
        self.source = source
        self.offset = offset

    def span(self, raw: Raw) -> Span:
        if isinstance(raw, Token):
            start, end = raw.start_pos or 0, raw.end_pos or 0
        elif raw is None or raw.meta.empty:
            start = end = 0
        else:
            start, end = raw.meta.start_pos, raw.meta.end_pos
        return Span(self.source, self.offset + start, self.offset + end)

    # --- declarations ---

    def module(self, tree: Raw) -> s.Module:
        assert isinstance(tree, LarkTree)
        return s.Module(tuple(self.declaration(c) for c in trees(tree)), span=self.span(tree))

    def declaration(self, tree: LarkTree[Token]) -> s.AnyDecl:
        doc_tree, body = trees(tree)
        doc = tuple(str(t)[3:].removeprefix(" ").rstrip() for t in doc_tree.children)
        name, *rest = body.children
        build: Callable[..., s.AnyDecl] = getattr(self, body.data)
        return build(str(name), rest, doc, self.span(body))

    def fn_decl(self, name: str, rest: list[Raw], doc: tuple[str, ...], span: Span) -> s.FnDecl:
        params, body = rest
        return s.FnDecl(name, self.names(params), self.expr(body), doc=doc, span=span)

    def op_decl(self, name: str, rest: list[Raw], doc: tuple[str, ...], span: Span) -> s.OpDecl:
        operands, results, since, *clauses = rest
        built: list[s.OpClause] = []
        for clause in clauses:
            assert isinstance(clause, LarkTree)
            if clause.data == "attr_clause":
                built.extend(self.attr_decl(c) for c in trees(clause))
            else:
                built.append(self.clause(clause))
        number = int(str(since.children[0])) if isinstance(since, LarkTree) else None
        return s.OpDecl(name, self.operands(operands), self.operands(results), number, tuple(built), doc=doc, span=span)

    def axiom_decl(self, name: str, rest: list[Raw], doc: tuple[str, ...], span: Span) -> s.AxiomDecl:
        operands, *clauses, left, right = rest
        built = tuple(self.clause(c) for c in clauses)
        return s.AxiomDecl(name, self.operands(operands), built, self.term(left), self.term(right), doc=doc, span=span)

    def rule_decl(self, name: str, rest: list[Raw], doc: tuple[str, ...], span: Span) -> s.RuleDecl:
        variables: list[s.Operand] = []
        match: list[s.Bind] = []
        rewrite: list[s.Bind] = []
        clauses: list[s.RuleClause] = []
        both = False
        for clause in rest:
            assert isinstance(clause, LarkTree)
            if clause.data == "for_clause":
                variables.extend(self.operands(clause.children[0]))
            elif clause.data == "match_clause":
                match.extend(self.bind(c) for c in trees(clause))
            elif clause.data == "rewrite_clause":
                both = both or str(clause.children[0]) == "birewrite"
                rewrite.extend(self.bind(c) for c in trees(clause))
            else:
                clauses.append(self.clause(clause))
        return s.RuleDecl(
            name, tuple(variables), tuple(match), tuple(rewrite), tuple(clauses), both, doc=doc, span=span
        )

    def clause(self, tree: Raw) -> Any:
        """A clause whose builder is the method named like its grammar rule."""
        assert isinstance(tree, LarkTree)
        build: Callable[[LarkTree[Token]], object] = getattr(self, tree.data)
        return build(tree)

    def attr_decl(self, tree: LarkTree[Token]) -> s.AttrDecl:
        name, kind, default = tree.children
        assert isinstance(kind, LarkTree)
        if kind.data == "attr_choice":
            type_ = s.AttrType("choice", None, tuple(string(c) for c in kind.children), span=self.span(kind))
        else:
            word, length = kind.children
            size: Any = None
            if isinstance(length, LarkTree):
                size = "any" if length.children[0] is None else self.expr(length.children[0])
            type_ = s.AttrType(str(word), size, (), span=self.span(kind))  # type: ignore[arg-type]  # checked by `check`
        return s.AttrDecl(str(name), type_, self.maybe(default), span=self.span(tree))

    def require(self, tree: LarkTree[Token]) -> s.Require:
        return s.Require(self.expr(tree.children[0]), span=self.span(tree))

    def let_scalar(self, tree: LarkTree[Token]) -> s.LetScalar:
        name, value = tree.children
        return s.LetScalar(str(name), self.expr(value), span=self.span(tree))

    def let_tensor(self, tree: LarkTree[Token]) -> s.LetTensor:
        name, binders, body = tree.children
        return s.LetTensor(str(name), self.binders(binders), self.expr(body), span=self.span(tree))

    def definition(self, tree: LarkTree[Token]) -> s.Def:
        name, first, second, body = tree.children
        operand: str | None = None
        if second is not None:
            (which,) = self.items(first)
            operand = which.id if isinstance(which, s.Name) else ""
            first = second
        return s.Def(str(name), operand, tuple(self.items(first)), self.expr(body), span=self.span(tree))  # type: ignore[arg-type]

    def prop(self, tree: LarkTree[Token]) -> s.Prop:
        return s.Prop(str(tree.children[0]), span=self.span(tree))

    def where(self, tree: LarkTree[Token]) -> s.Where:
        return s.Where(self.expr(tree.children[0]), span=self.span(tree))

    def example(self, tree: LarkTree[Token]) -> s.Example:
        kind, entries = tree.children
        return s.Example(str(kind), self.entries(entries), span=self.span(tree))  # type: ignore[arg-type]

    def unproved(self, tree: LarkTree[Token]) -> s.Unproved:
        return s.Unproved(string(tree.children[0]), span=self.span(tree))

    def meta(self, tree: LarkTree[Token]) -> s.Meta:
        return s.Meta(self.entries(tree.children[0]), span=self.span(tree))

    def entries(self, tree: Raw) -> tuple[tuple[str, s.Expr], ...]:
        if tree is None:
            return ()
        assert isinstance(tree, LarkTree)
        return tuple((str(e.children[0]), self.expr(e.children[1])) for e in trees(tree))

    def bind(self, tree: LarkTree[Token]) -> s.Bind:
        names, term = tree.children
        return s.Bind(self.names(names), self.term(term), span=self.span(tree))

    def names(self, tree: Raw) -> tuple[str, ...]:
        return () if tree is None else tuple(str(c) for c in tree.children)  # type: ignore[union-attr]

    # --- operands and terms ---

    def operands(self, tree: Raw) -> tuple[s.Operand, ...]:
        return () if tree is None else tuple(self.operand(c) for c in trees(tree))

    def operand(self, tree: LarkTree[Token]) -> s.Operand:
        const, dots, name, query, type_, value = tree.children
        return s.Operand(
            str(name), self.tensor_type(type_), const is not None, query is not None, dots is not None, self.maybe(value),
            span=self.span(tree),
        )

    def tensor_type(self, tree: Raw) -> s.TensorType:
        assert isinstance(tree, LarkTree)
        word, items = tree.children
        dims = tuple(
            s.PerOperand(d.base.id, span=d.span) if isinstance(d, s.Index) and isinstance(d.base, s.Name) and not d.indices else d
            for d in self.items(items)
        )
        return s.TensorType(dims, None if word is None else str(word), span=self.span(tree))  # type: ignore[arg-type]

    def term(self, raw: Raw) -> s.Term:
        assert isinstance(raw, LarkTree)
        span, children = self.span(raw), raw.children
        match raw.data:
            case "apply":
                name, attrs, *args = children
                given: list[s.AttrArg] = []
                rest: str | None = None
                for attr in trees(attrs) if isinstance(attrs, LarkTree) else []:
                    if attr.data == "attr_rest":
                        rest = str(attr.children[0])
                    else:
                        given.append(s.AttrArg(str(attr.children[0]), self.expr(attr.children[1]), span=self.span(attr)))
                terms = tuple(self.term(a) for a in args if a is not None)
                return s.Apply(str(name), tuple(given), rest, terms, span=span)
            case "variable":
                name, query = children
                if str(name) == "_":
                    return s.Wildcard(span=span)
                return s.Var(str(name), query is not None, span=span)
            case "literal":
                return s.Literal(self.expr(children[0]), span=span)
            case "absent":
                return s.Absent(span=span)
            case "variadic":
                return s.Variadic(str(children[0]), span=span)
            case _:
                term, variable, listed = children
                return s.VariadicMap(self.term(term), str(variable), str(listed), span=span)

    # --- expressions ---

    def maybe(self, raw: Raw) -> s.Expr | None:
        return None if raw is None else self.expr(raw)

    def items(self, raw: Raw) -> list[Any]:
        if raw is None:
            return []
        assert isinstance(raw, LarkTree)
        return [
            s.Splice(self.expr(c.children[0]), span=self.span(c)) if isinstance(c, LarkTree) and c.data == "splice" else self.expr(c)
            for c in raw.children
        ]

    def binders(self, raw: Raw) -> tuple[s.Binder, ...]:
        if raw is None:
            return ()
        assert isinstance(raw, LarkTree)
        out: list[s.Binder] = []
        for b in trees(raw):
            dots, name, _, bound = b.children
            out.append(s.Binder(str(name), self.expr(bound), dots is not None, span=self.span(b)))
        return tuple(out)

    def expr(self, raw: Raw) -> s.Expr:
        assert isinstance(raw, LarkTree)
        span, c = self.span(raw), raw.children
        match raw.data:
            case "int":
                return s.Int(int(str(c[0])), span=span)
            case "real":
                return s.Real(Fraction(str(c[0])), str(c[0]), span=span)
            case "negative":
                return s.Unary("-", self.expr(c[1]), span=span)
            case "string":
                return s.Str(string(c[0]), span=span)
            case "bool":
                return s.Bool(str(c[0]) == "true", span=span)
            case "name":
                return s.Name(str(c[0]), span=span)
            case "if_expr":
                return s.IfExpr(self.expr(c[0]), self.expr(c[1]), self.expr(c[2]), span=span)
            case "unary":
                return s.Unary("not" if str(c[0]) == "not" else "-", self.expr(c[1]), span=span)
            case "binary":
                return s.Binary(str(c[1]), self.expr(c[0]), self.expr(c[2]), span=span)
            case "compare":
                rest = tuple((str(c[i]), self.expr(c[i + 1])) for i in range(1, len(c), 2))
                return s.Compare(self.expr(c[0]), rest, span=span)
            case "call":
                args = tuple(self.expr(a) for a in trees(c[1])) if isinstance(c[1], LarkTree) else ()
                return s.Call(str(c[0]), args, span=span)
            case "index":
                return s.Index(self.expr(c[0]), tuple(self.items(c[1])), self.maybe(c[2]), span=span)
            case "slice":
                low, high = (self.maybe(x.children[0]) for x in trees_of(c[1:]))
                return s.Slice(self.expr(c[0]), low, high, span=span)
            case "list":
                return s.ListExpr(tuple(self.items(c[0])), span=span)
            case "comprehension":
                relation = "in" if str(c[2]) == "in" else "<"
                return s.Comprehension(self.expr(c[0]), str(c[1]), relation, self.expr(c[3]), self.maybe(c[4]), span=span)
            case _:
                kind, binders, condition, body = c
                return s.Reduce(str(kind), self.binders(binders), self.maybe(condition), self.expr(body), span=span)  # type: ignore[arg-type]


def trees(tree: Raw) -> list[LarkTree[Token]]:
    """The children that are trees."""
    assert isinstance(tree, LarkTree)
    return trees_of(tree.children)


def trees_of(children: Sequence[Raw]) -> list[LarkTree[Token]]:
    return [c for c in children if isinstance(c, LarkTree)]


def string(raw: Raw) -> str:
    return str(raw)[1:-1]


def parse_source(source: Source) -> tuple[s.Module, list[Diagnostic]]:
    """The module in `source` and what could not be parsed."""
    try:
        return parse(source), []
    except UnexpectedInput as error:
        start = error.pos_in_stream or 0
        return s.Module(()), [Diagnostic("E0101", "unexpected text", Span(source, start, start + 1))]
