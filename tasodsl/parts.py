"""The clauses of a declaration in the order in which they are printed: what comments are attached to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tasodsl import syntax as s
from tasodsl.source import Span

HEAD = -1
"""The number of the declaration's first line, where clauses are counted from 0."""


@dataclass(frozen=True, slots=True)
class Part:
    """One clause: its keyword and the trees it is printed from."""

    keyword: str
    trees: tuple[s.Tree, ...]

    @property
    def span(self) -> Span:
        first, last = self.trees[0].span, self.trees[-1].span
        return Span(first.source, first.start, last.end)


def parts(decl: s.AnyDecl) -> list[Part]:
    """The clauses below the head. A second result of `match` or `rewrite` is a clause without a keyword."""
    match decl:
        case s.FnDecl():
            return []
        case s.OpDecl():
            return [Part(_op_keyword(c), (c,)) for c in decl.clauses]
        case s.AxiomDecl():
            clauses = [Part("where" if isinstance(c, s.Where) else "let", (c,)) for c in decl.clauses]
            return [*_variables(decl.variables), *clauses, Part("", (decl.left, decl.right))]
        case s.RuleDecl():
            # The text's order of the other clauses is kept; the rewrite side comes after the conditions.
            first = next((i for i, c in enumerate(decl.clauses) if _after_rewrite(c)), len(decl.clauses))
            clauses = [Part(_rule_keyword(c), (c,)) for c in decl.clauses]
            rewrite = _binds("birewrite" if decl.both else "rewrite", decl.rewrite)
            return [
                *_variables(decl.variables),
                *_binds("match", decl.match),
                *clauses[:first],
                *rewrite,
                *clauses[first:],
            ]


def name_span(decl: s.AnyDecl) -> Span:
    """Where the name of a declaration stands."""
    span = decl.span
    start = span.source.text.find(decl.name, span.start + 1, span.end)
    return Span(span.source, start, start + len(decl.name)) if start >= 0 else span


def head_end(decl: s.AnyDecl) -> int:
    """Where the head of a parsed declaration ends in its source, as far as its trees tell."""
    match decl:
        case s.FnDecl():
            return decl.body.span.end
        case s.OpDecl():
            return decl.results[-1].span.end
        case s.AxiomDecl() | s.RuleDecl():
            return decl.span.start + len(decl.name)  # within the name, or just before its end


def _variables(variables: tuple[s.Operand, ...]) -> list[Part]:
    return [Part("for", variables)] if variables else []


def _binds(keyword: str, binds: Sequence[s.Bind]) -> list[Part]:
    return [Part("" if i else keyword, (b,)) for i, b in enumerate(binds)]


def _after_rewrite(clause: s.RuleClause) -> bool:
    return isinstance(clause, s.Example | s.Unproved | s.Meta)


def _op_keyword(clause: s.OpClause) -> str:
    match clause:
        case s.AttrDecl():
            return "attr"
        case s.Require():
            return "require"
        case s.LetScalar():
            return "let"
        case s.Def():
            return "def"
        case s.Prop():
            return "prop"


def _rule_keyword(clause: s.RuleClause) -> str:
    match clause:
        case s.Where():
            return "where"
        case s.LetScalar() | s.LetTensor():
            return "let"
        case s.Example():
            return clause.kind
        case s.Unproved():
            return "unproved"
        case s.Meta():
            return "meta"
