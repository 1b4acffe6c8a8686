"""The one way to write a text: a syntax tree printed with its comments, so that parsing gives the tree back.

Two blanks of indentation, keywords padded so that what they introduce stands in one column, at most 120 columns where
the text can be broken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tasodsl import syntax as s
from tasodsl.diagnostics import Diagnostic
from tasodsl.layout import Doc, Group, Line, Nest, layout
from tasodsl.parse import parse, parse_source
from tasodsl.parts import HEAD, Part, parts
from tasodsl.print_expr import binders, commas, entries, expr, filled, items, operand, term
from tasodsl.source import Source

WIDTH = 120
INDENT = "  "
PADDED_OP = frozenset({"attr", "let", "def", "prop"})
"""Clauses of an operator whose contents stand in one column; `require` is longer than the others and stands apart."""


def print_module(module: s.Module) -> str:
    """The text of a module, ending in a newline; empty for an empty module."""
    chunks: list[str] = []
    previous: s.AnyDecl | None = None
    for decl in module.declarations:
        if previous is not None and not (_plain_fn(previous) and _plain_fn(decl)):
            chunks.append("")
        chunks += _declaration(decl)
        previous = decl
    if chunks and module.trailing:
        chunks.append("")
    chunks += module.trailing
    return "".join(line + "\n" for line in chunks)


def formatted(source: Source) -> tuple[str | None, list[Diagnostic]]:
    """The text of `source` in the one layout; None, with the errors, where it cannot be parsed."""
    module, problems = parse_source(source)
    if problems:
        return None, problems
    text = print_module(module)
    again = parse(Source(source.name, text))
    if again.declarations != module.declarations or again.trailing != module.trailing:
        raise RuntimeError(
            f"printing {source.name} changes what it says"
        )  # our own fault: better no file than a wrong one
    return text, []


def _plain_fn(decl: s.AnyDecl) -> bool:
    return isinstance(decl, s.FnDecl) and not decl.doc and not decl.comments


def _declaration(decl: s.AnyDecl) -> list[str]:
    comments = dict(decl.comments)
    clauses = _clauses(decl, comments)
    head = comments.get(HEAD, s.Trivia())
    lines = [*head.before, *(f"/// {d}".rstrip() for d in decl.doc)]
    lines += _with_comment(layout(_head(decl), WIDTH), head)
    return lines + clauses


def _with_comment(text: str, trivia: s.Trivia) -> list[str]:
    return [f"{text}  {trivia.after}" if trivia.after else text]


# --- heads -------------------------------------------------------------------------------------------------------


def _head(decl: s.AnyDecl) -> Doc:
    match decl:
        case s.FnDecl():
            return Group((f"fn {decl.name}({', '.join(decl.params)}) =", Nest(2, (Line(), expr(decl.body)))))
        case s.OpDecl():
            since = f" since {decl.since}" if decl.since is not None else ""
            results = (Line(), "-> ", filled([operand(r) for r in decl.results]), since)
            return Group((f"op {decl.name}(", filled([operand(o) for o in decl.operands]), ")", Nest(4, results)))
        case s.AxiomDecl():
            return f"axiom {decl.name}"
        case s.RuleDecl():
            return f"rule {decl.name}"


# --- clauses -----------------------------------------------------------------------------------------------------


def _clauses(decl: s.AnyDecl, comments: Mapping[int, s.Trivia]) -> list[str]:
    numbered = list(enumerate(parts(decl)))
    pad = _padding(decl, [p for _, p in numbered])
    lines: list[str] = []
    while numbered:
        number, part = numbered.pop(0)
        trivia = comments.get(number, s.Trivia())
        content = _content(part)
        # Attributes without comments share a line as long as they fit on it.
        while part.keyword == "attr" and trivia.after is None and numbered and numbered[0][1].keyword == "attr":
            longer = (content, ",  ", _content(numbered[0][1]))
            if numbered[0][0] in comments or len(_flat(longer)) + len(INDENT) + pad + 1 > WIDTH:
                break
            content = longer
            numbered.pop(0)
        lines += [f"{INDENT}{c}" for c in trivia.before]
        keyword = _keyword(part.keyword, pad, decl)
        text = INDENT + keyword + layout(content, WIDTH, len(INDENT) + len(keyword))
        lines += _with_comment(text, trivia)
    tail = comments.get(len(parts(decl)), s.Trivia())
    return lines + [f"{INDENT}{c}" for c in tail.before]


def _flat(doc: Doc) -> str:
    return layout(Group(doc), 1_000_000)


def _padding(decl: s.AnyDecl, clauses: Sequence[Part]) -> int:
    """The width of the column of keywords."""
    if isinstance(decl, s.OpDecl):
        return max((len(p.keyword) for p in clauses if p.keyword in PADDED_OP), default=0)
    if isinstance(decl, s.AxiomDecl):
        return max((len(p.keyword) for p in clauses if p.keyword != "for"), default=0)
    return max(len("rewrite"), *(len(p.keyword) for p in clauses)) if clauses else 0


def _keyword(keyword: str, pad: int, decl: s.AnyDecl) -> str:
    """A keyword with the blanks behind it."""
    if keyword == "" and isinstance(decl, s.AxiomDecl):
        return ""
    if keyword == "for" or (isinstance(decl, s.OpDecl) and keyword not in PADDED_OP):
        return f"{keyword} "
    return f"{keyword.ljust(pad)} "


def _content(part: Part) -> Doc:
    """What stands behind a clause's keyword."""
    first = part.trees[0]
    if part.keyword == "for":
        return filled([operand(o) for o in cast("tuple[s.Operand, ...]", part.trees)])
    match first:
        case s.AttrDecl():
            return _attr(first)
        case s.Require() | s.Where():
            return expr(first.condition)
        case s.LetScalar():
            return _bound(first.name, first.value)
        case s.LetTensor():
            return _bound((f"{first.name}[", binders(first.binders), "]"), first.body)
        case s.Def():
            which = f"[{first.operand}]" if first.operand is not None else ""
            return _bound((f"{first.result}{which}[", commas(items(first.indices)), "]"), first.body)
        case s.Prop():
            return first.name
        case s.Bind():
            return (", ".join(first.names), " = ", term(first.term))
        case s.Example():
            return entries(first.bindings)
        case s.Meta():
            return entries(first.entries)
        case s.Unproved():
            return f'"{first.reason}"'
        case _:
            left, right = cast("tuple[s.Term, s.Term]", part.trees)
            return Group((term(left), Nest(2, (Line(), "== ", term(right)))))


def _bound(name: Doc, value: s.Expr) -> Doc:
    return Group((name, " =", Nest(2, (Line(), expr(value)))))


def _attr(attr: s.AttrDecl) -> Doc:
    type_ = attr.type
    kind: Doc = type_.kind
    if type_.kind == "choice":
        kind = ("{", filled([f'"{c}"' for c in type_.choices]), "}")
    elif type_.length is not None:
        kind = (kind, "[", "" if type_.length == "any" else expr(type_.length), "]")
    return (f"{attr.name}: ", kind, () if attr.default is None else (" = ", expr(attr.default)))
