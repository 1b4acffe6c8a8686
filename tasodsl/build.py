"""Lark's trees turned into the dataclasses of `syntax`.

What the grammar lets through but a tree cannot hold (an unknown dtype class, a number too large) goes to `problems`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from fractions import Fraction
from types import MappingProxyType
from typing import Literal, TypeVar

from lark import Token
from lark import Tree as LarkTree

from tasodsl import syntax as s
from tasodsl.diagnostics import Diagnostic
from tasodsl.grammar import Node
from tasodsl.source import Source, Span

Raw = Node | Token | None
T = TypeVar("T")
AttrKind = Literal["int", "real", "bool", "axis", "axes", "perm", "dtype"]

DTYPE_CLASSES: Mapping[str, s.DtypeClass] = MappingProxyType(
    {"float": "float", "half": "half", "int": "int", "bool": "bool", "any": "any"}
)
ATTR_KINDS: Mapping[str, AttrKind] = MappingProxyType(
    {"int": "int", "real": "real", "bool": "bool", "axis": "axis", "axes": "axes", "perm": "perm", "dtype": "dtype"}
)
REDUCERS: Mapping[str, Literal["sum", "max", "min", "all", "any"]] = MappingProxyType(
    {"sum": "sum", "max": "max", "min": "min", "all": "all", "any": "any"}
)
LONGEST_INT = 18
LARGEST_EXPONENT = 400


class Builder:
    """Builds the declarations of a source's pieces; `offset` is where the piece at hand starts."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.offset = 0
        self.problems: list[Diagnostic] = []

    def span(self, raw: Raw) -> Span:
        if isinstance(raw, Token):
            start, end = raw.start_pos or 0, raw.end_pos or 0
        elif raw is None or raw.meta.empty:
            start = end = 0
        else:
            start, end = raw.meta.start_pos, raw.meta.end_pos
        return Span(self.source, self.offset + start, self.offset + end)

    def problem(self, code: str, message: str, raw: Raw, label: str = "", help: str = "") -> None:
        self.problems.append(Diagnostic(code, message, self.span(raw), label, help))

    def one_of(self, raw: Raw, known: Mapping[str, T], what: str, code: str, otherwise: T) -> T:
        """The meaning of a word that must be one of a few."""
        word = str(raw)
        if word in known:
            return known[word]
        like = get_close_matches(word, known, 1)
        help = f"did you mean `{like[0]}`?" if like else f"one of {', '.join(f'`{k}`' for k in known)}"
        self.problem(code, f"`{word}` is no {what}", raw, "unknown", help)
        return otherwise

    # --- declarations ---

    def declarations(self, tree: Node) -> list[s.AnyDecl]:
        """The declarations of one piece."""
        return [self.declaration(c) for c in nodes(tree.children)]

    def declaration(self, tree: Node) -> s.AnyDecl:
        doc_tree, body = nodes(tree.children)
        doc = tuple(str(t)[3:].removeprefix(" ").rstrip() for t in doc_tree.children)
        name, *rest = children(body)
        build = {
            "fn_decl": self.fn_decl,
            "op_decl": self.op_decl,
            "axiom_decl": self.axiom_decl,
            "rule_decl": self.rule_decl,
        }
        return build[body.data](str(name), rest, doc, body)

    def fn_decl(self, name: str, rest: list[Raw], doc: tuple[str, ...], body: Node) -> s.FnDecl:
        params, value = rest
        return s.FnDecl(name, words(params), self.expr(value), doc=doc, span=self.span(body))

    def op_decl(self, name: str, rest: list[Raw], doc: tuple[str, ...], body: Node) -> s.OpDecl:
        operands, results, since, *clauses = rest
        built: list[s.OpClause] = []
        for clause in nodes(clauses):
            match clause.data:
                case "attr_clause":
                    built.extend(self.attr_decl(c) for c in nodes(clause.children))
                case "require":
                    built.append(s.Require(self.expr(clause.children[0]), span=self.span(clause)))
                case "let_scalar":
                    built.append(self.let_scalar(clause))
                case "definition":
                    built.append(self.definition(clause))
                case _:
                    built.append(s.Prop(str(clause.children[0]), span=self.span(clause)))
        number = self.integer(since.children[0]) if isinstance(since, LarkTree) else None
        return s.OpDecl(
            name, self.operands(operands), self.operands(results), number, tuple(built), doc=doc, span=self.span(body)
        )

    def axiom_decl(self, name: str, rest: list[Raw], doc: tuple[str, ...], body: Node) -> s.AxiomDecl:
        operands, *clauses, left, right = rest
        built = tuple(
            self.let_scalar(c) if c.data == "let_scalar" else s.Where(self.expr(c.children[0]), span=self.span(c))
            for c in nodes(clauses)
        )
        return s.AxiomDecl(
            name, self.operands(operands), built, self.term(left), self.term(right), doc=doc, span=self.span(body)
        )

    def rule_decl(self, name: str, rest: list[Raw], doc: tuple[str, ...], body: Node) -> s.RuleDecl:
        variables: list[s.Operand] = []
        match: list[s.Bind] = []
        rewrite: list[s.Bind] = []
        clauses: list[s.RuleClause] = []
        words: list[Raw] = []
        for clause in nodes(rest):
            if clause.data == "for_clause":
                variables.extend(self.operands(clause.children[0]))
            elif clause.data == "match_clause":
                match.extend(self.bind(c) for c in nodes(clause.children))
            elif clause.data == "rewrite_clause":
                words.append(clause.children[0])
                rewrite.extend(self.bind(c) for c in nodes(clause.children))
            else:
                clauses.append(self.rule_clause(clause))
        head = body.children[0]
        for side, binds in (("match", match), ("rewrite", rewrite)):
            if not binds:
                help = f"add `{side} y = …`"
                self.problem("E0115", f"the rule `{name}` has no `{side}` clause", head, "incomplete", help)
        if len({str(w) for w in words}) > 1:
            self.problem(
                "E0116", "a rule has either `rewrite` or `birewrite`", words[-1], "", "keep one of the two words"
            )
        both = any(str(w) == "birewrite" for w in words)
        return s.RuleDecl(
            name, tuple(variables), tuple(match), tuple(rewrite), tuple(clauses), both, doc=doc, span=self.span(body)
        )

    # --- clauses ---

    def rule_clause(self, clause: Node) -> s.RuleClause:
        span, c = self.span(clause), children(clause)
        match clause.data:
            case "where":
                return s.Where(self.expr(c[0]), span=span)
            case "let_scalar":
                return self.let_scalar(clause)
            case "let_tensor":
                return s.LetTensor(str(c[0]), self.binders(c[1]), self.expr(c[2]), span=span)
            case "example":
                return s.Example("example" if str(c[0]) == "example" else "reject", self.entries(c[1]), span=span)
            case "unproved":
                return s.Unproved(string(c[0]), span=span)
            case _:
                return s.Meta(self.entries(c[0]), span=span)

    def attr_decl(self, tree: Node) -> s.AttrDecl:
        name, kind, default = children(tree)
        assert isinstance(kind, LarkTree)
        if kind.data == "attr_choice":
            type_ = s.AttrType("choice", None, tuple(string(c) for c in kind.children), span=self.span(kind))
        else:
            word, length = children(kind)
            known: AttrKind = self.one_of(word, ATTR_KINDS, "type of an attribute", "E0117", "int")
            type_ = s.AttrType(known, self.attr_length(length), (), span=self.span(kind))
        return s.AttrDecl(str(name), type_, self.maybe(default), span=self.span(tree))

    def attr_length(self, length: Raw) -> s.Expr | Literal["any"] | None:
        if not isinstance(length, LarkTree):
            return None
        (size,) = children(length)
        return "any" if size is None else self.expr(size)

    def let_scalar(self, tree: Node) -> s.LetScalar:
        name, value = children(tree)
        return s.LetScalar(str(name), self.expr(value), span=self.span(tree))

    def definition(self, tree: Node) -> s.Def:
        name, first, second, body = children(tree)
        operand: str | None = None
        if second is not None:
            which = self.items(children(first)[0])
            operand = which[0].id if len(which) == 1 and isinstance(which[0], s.Name) else ""
            if not operand:
                help = f"write `def {name}[k][…]`"
                self.problem("E0118", "the first bracket names the number of the result", first, "", help)
        indices: list[s.Name | s.Splice] = []
        (listed,) = children(second or first)
        for raw, item in zip(nodes(children(listed)), self.items(listed), strict=True):
            if isinstance(item, s.Name) or (isinstance(item, s.Splice) and isinstance(item.value, s.Name)):
                indices.append(item)
            else:
                help = "write `i`, or `..i` for several dimensions"
                self.problem("E0118", "an index of a definition is a new name", raw, "not a name", help)
        return s.Def(str(name), operand, tuple(indices), self.expr(body), span=self.span(tree))

    def entries(self, tree: Raw) -> tuple[tuple[str, s.Expr], ...]:
        return tuple((str(e.children[0]), self.expr(e.children[1])) for e in nodes(children(tree)))

    def bind(self, tree: Node) -> s.Bind:
        names, term = children(tree)
        return s.Bind(words(names), self.term(term), span=self.span(tree))

    # --- operands and terms ---

    def operands(self, tree: Raw) -> tuple[s.Operand, ...]:
        return tuple(self.operand(c) for c in nodes(children(tree)))

    def operand(self, tree: Node) -> s.Operand:
        const, dots, name, query, type_, value = children(tree)
        return s.Operand(
            str(name),
            self.tensor_type(type_),
            const is not None,
            query is not None,
            dots is not None,
            self.maybe(value),
            span=self.span(tree),
        )

    def tensor_type(self, tree: Raw) -> s.TensorType:
        assert isinstance(tree, LarkTree)
        word, items = children(tree)
        dims = tuple(
            s.PerOperand(d.base.id, span=d.span)
            if isinstance(d, s.Index) and isinstance(d.base, s.Name) and not d.indices and d.default is None
            else d
            for d in self.items(items)
        )
        dtype = None if word is None else self.dtype_class(word)
        return s.TensorType(dims, dtype, span=self.span(tree))

    def dtype_class(self, word: Raw) -> s.DtypeClass:
        return self.one_of(word, DTYPE_CLASSES, "class of dtypes", "E0119", "any")

    def term(self, raw: Raw) -> s.Term:
        assert isinstance(raw, LarkTree)
        span, c = self.span(raw), children(raw)
        match raw.data:
            case "apply":
                return self.apply(raw)
            case "variable":
                return s.Wildcard(span=span) if str(c[0]) == "_" else s.Var(str(c[0]), c[1] is not None, span=span)
            case "absent":
                return s.Absent(span=span)
            case "variadic":
                return s.Variadic(str(c[0]), span=span)
            case "variadic_map":
                return s.VariadicMap(self.term(c[0]), str(c[1]), str(c[-1]), span=span)
            case _:
                return s.Literal(self.expr(c[0]), span=span)

    def apply(self, raw: Node) -> s.Apply:
        name, attrs, *args = children(raw)
        given: list[s.AttrArg] = []
        rest: str | None = None
        for attr in nodes(children(attrs)):
            if attr.data == "attr_value":
                given.append(s.AttrArg(str(attr.children[0]), self.expr(attr.children[1]), span=self.span(attr)))
            elif rest is None:
                rest = str(attr.children[0])
            else:
                self.problem(
                    "E0120",
                    "the remaining attributes are taken twice",
                    attr,
                    "a second `..`",
                    "keep one `..` in the brackets",
                )
        return s.Apply(str(name), tuple(given), rest, tuple(self.term(a) for a in nodes(args)), span=self.span(raw))

    # --- expressions ---

    def maybe(self, raw: Raw) -> s.Expr | None:
        return None if raw is None else self.expr(raw)

    def items(self, raw: Raw) -> list[s.Expr | s.Splice]:
        return [
            s.Splice(self.expr(c.children[0]), span=self.span(c)) if c.data == "splice" else self.expr(c)
            for c in nodes(children(raw))
        ]

    def binders(self, raw: Raw) -> tuple[s.Binder, ...]:
        out: list[s.Binder] = []
        for b in nodes(children(raw)):
            dots, name, _, bound = children(b)
            out.append(s.Binder(str(name), self.expr(bound), dots is not None, span=self.span(b)))
        return tuple(out)

    def expr(self, raw: Raw) -> s.Expr:
        assert isinstance(raw, LarkTree)
        span, c = self.span(raw), children(raw)
        match raw.data:
            case "int":
                return s.Int(self.integer(c[0]), span=span)
            case "real":
                return self.real(c[0])
            case "negative":
                return s.Unary("-", self.expr(c[-1]), span=span)
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
                return s.Call(str(c[0]), tuple(self.expr(a) for a in nodes(children(c[1]))), span=span)
            case "index":
                return s.Index(self.expr(c[0]), tuple(self.items(c[1])), self.maybe(c[2]), span=span)
            case "slice":
                low, high = (self.maybe(x.children[0]) for x in nodes(c[1:]))
                return s.Slice(self.expr(c[0]), low, high, span=span)
            case "list":
                return s.ListExpr(tuple(self.items(c[0])), span=span)
            case "comprehension":
                relation = "in" if str(c[2]) == "in" else "<"
                return s.Comprehension(
                    self.expr(c[0]), str(c[1]), relation, self.expr(c[3]), self.maybe(c[4]), span=span
                )
            case _:
                return s.Reduce(REDUCERS[str(c[0])], self.binders(c[1]), self.maybe(c[2]), self.expr(c[3]), span=span)

    def integer(self, raw: Raw) -> int:
        text = str(raw)
        if len(text.lstrip("0")) > LONGEST_INT:
            self.problem("E0121", "this number is too large", raw, f"more than {LONGEST_INT} digits")
            return 0
        return int(text)

    def real(self, raw: Raw) -> s.Real:
        text = str(raw)
        exponent = text.lower().partition("e")[2].lstrip("+-")
        if len(text) > 60 or (exponent and (len(exponent) > 4 or int(exponent) > LARGEST_EXPONENT)):
            self.problem("E0121", "this number is too large, too small or too long", raw, "no float64 holds it")
            text = "0.0"
        return s.Real(Fraction(text), text, span=self.span(raw))


def children(raw: Raw) -> Sequence[Raw]:
    """The children of a tree, or none."""
    return raw.children if isinstance(raw, LarkTree) else ()


def nodes(raw: Sequence[Raw]) -> list[Node]:
    """Those that are trees."""
    return [c for c in raw if isinstance(c, LarkTree)]


def words(raw: Raw) -> tuple[str, ...]:
    """The names of a list of names."""
    return tuple(str(c) for c in children(raw))


def string(raw: Raw) -> str:
    """The text between the quotes."""
    return str(raw)[1:-1]
