"""From text to syntax tree, with every syntax error of the text.

A text is cut into pieces at the words that begin a declaration, and each piece is parsed by itself, so that one error
hides no other declaration. Within a declaration with an error the clause at fault is blanked and the rest is parsed
again, to find the errors of its other clauses too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from lark import Tree

from tasodsl import syntax as s
from tasodsl.build import Builder
from tasodsl.comments import place_comments
from tasodsl.diagnostics import Diagnostic
from tasodsl.explain import CLAUSES, DECLARATIONS, Failure, explain
from tasodsl.grammar import Node, Stop, parse_text
from tasodsl.source import Source, Span

MOST_ERRORS_A_PIECE = 5
DEEPEST = 100
"""Nesting beyond this is refused: the passes walk the tree recursively."""

_LINE_WORD = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*)\b(?=[ \t]+[A-Za-z_])?", re.MULTILINE)
_CLAUSE = re.compile(
    rf"^[ \t]*(for(?=\s+(?:const\s+)?(?:\.\.)?\w+\??\s*:)|(?:{'|'.join(sorted(CLAUSES - {'for'}))})\b)", re.MULTILINE
)
_ABOVE = re.compile(r"[ \t\r]*(?:///|#|$)")


def parse(source: Source) -> s.Module:
    """The module in `source`, which must have no errors; `ValueError` otherwise."""
    module, problems = parse_source(source)
    if problems:
        raise ValueError(f"{problems[0].span}: {problems[0].message}")
    return module


def parse_source(source: Source) -> tuple[s.Module, list[Diagnostic]]:
    """The declarations of `source` that have no errors, and all the errors found."""
    builder = Builder(source)
    declarations: list[s.AnyDecl] = []
    problems: list[Diagnostic] = []
    for piece in pieces(source):
        tree, errors = parse_piece(piece)
        problems.extend(errors)
        if tree is not None:
            builder.offset = piece.start
            declarations.extend(builder.declarations(tree))
    problems.extend(builder.problems)
    module = s.Module(tuple(declarations), span=Span(source, 0, len(source.text)))
    return module if problems else place_comments(module), problems


# --- pieces ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a source that is parsed by itself."""

    source: Source
    start: int
    text: str

    def span(self, start: int, end: int) -> Span:
        """The span of characters of the piece."""
        return Span(self.source, self.start + start, self.start + end)


def pieces(source: Source) -> Iterator[Piece]:
    """The source cut before each declaration that begins a line, its comments with it."""
    text = source.text
    if text.startswith("\ufeff"):  # a byte order mark says nothing in UTF-8
        text = " " + text[1:]
    start = 0
    for found in _LINE_WORD.finditer(text):
        if not _begins_declaration(found[1], followed=found.end() < len(text) and text[found.end()] in " \t"):
            continue
        cut = _above(source, found.start())
        if cut > start:
            yield Piece(source, start, text[start:cut])
            start = cut
    yield Piece(source, start, text[start:])


def _begins_declaration(word: str, followed: bool) -> bool:
    if word in DECLARATIONS:
        return True
    # A misspelt keyword begins a piece too, or it would spoil the declaration before it.
    return followed and word not in CLAUSES and bool(get_close_matches(word.lower(), DECLARATIONS, 1, 0.74))


def _above(source: Source, start: int) -> int:
    """Where the comment and doc lines directly above the line at `start` begin."""
    number = source.position(start)[0]
    while number > 1 and _ABOVE.match(source.line(number - 1)):
        number -= 1
    return source.starts[number - 1]


# --- one piece ---------------------------------------------------------------------------------------------------


def parse_piece(piece: Piece) -> tuple[Node | None, list[Diagnostic]]:
    """Lark's tree of a piece, or the errors in it."""
    problems: list[Diagnostic] = []
    text = piece.text
    while len(problems) < MOST_ERRORS_A_PIECE:
        tree = parse_text(text)
        if isinstance(tree, Stop):
            failure = Failure(piece.source, piece.start, text, tree.good, tree.bad, tree.position, tree.accepted)
            problems.append(explain(failure))
            rest = _without_clause(text, _fault(failure, problems[-1]))
            if rest is None:
                break
            text = rest
            continue
        if not problems and _depth(tree) > DEEPEST:
            problems.append(
                Diagnostic(
                    "E0112",
                    "this declaration is nested too deeply",
                    piece.span(tree.meta.start_pos, tree.meta.start_pos + 1),
                    f"more than {DEEPEST} levels",
                    "name parts of it with `let` or `fn`",
                )
            )
        return (None if problems else tree), problems
    return None, problems


def _fault(failure: Failure, problem: Diagnostic) -> int:
    """A position within the clause at fault. A clause keyword that does not fit ends a clause that is not complete."""
    start = problem.span.start - failure.offset
    return start - 1 if failure.bad in CLAUSES and start == failure.position else start


def _without_clause(text: str, position: int) -> str | None:
    """The text with the clause at `position` made blank; None where there is none, or nothing after it."""
    starts = [m.start(1) for m in _CLAUSE.finditer(text)]
    before = [p for p in starts if p <= position]
    after = [p for p in starts if p > position]
    if not before or not after:
        return None
    start, end = before[-1], after[0]
    return text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]


def _depth(tree: Node) -> int:
    """The height of a tree, counted without recursion."""
    deepest, todo = 0, [(tree, 1)]
    while todo:
        node, depth = todo.pop()
        deepest = max(deepest, depth)
        todo.extend((child, depth + 1) for child in node.children if isinstance(child, Tree))
    return deepest
