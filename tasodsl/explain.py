"""Syntax errors in plain words: what stands there, what was expected, and which common slip it looks like."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from lark import Token

from tasodsl.diagnostics import Diagnostic
from tasodsl.source import Source, Span

DECLARATIONS = ("op", "fn", "axiom", "rule")
CLAUSES = frozenset({"for", "attr", "require", "let", "def", "prop", "match", "where", "rewrite", "birewrite"}) | {
    "example", "reject", "unproved", "meta",
}  # fmt: skip
RESERVED = CLAUSES | {*DECLARATIONS, "since", "absent", "if", "then", "else", "sum", "max", "min", "all", "any"} | {
    "const", "or", "and", "not", "in", "true", "false",
}  # fmt: skip
"""Words that are no names."""

BRACKETS = MappingProxyType({"(": ")", "[": "]", "{": "}"})

_STARTS_EXPRESSION = frozenset({"INT", "REAL", "STRING", "TRUE", "FALSE", "NAME", "LPAR", "LSQB", "MINUS", "NOT"}) | {
    "SUM", "MAX", "MIN", "ALL", "ANY", "_IF", "DOTS",
}  # fmt: skip
_STARTS_ITEM = _STARTS_EXPRESSION - {"LPAR", "LSQB", "MINUS"} | {"_ABSENT", "CONST"}
_STARTS_TERM = frozenset({"NAME", "_ABSENT", "DOTS", "INT", "REAL", "MINUS"})
_OPERATORS = frozenset({"OR", "AND", "IN", "PLUS", "MINUS", "STAR", "SLASH", "FLOOR", "PERCENT", "POWER"}) | {
    "EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL",
}  # fmt: skip
_STARTS_DECLARATION = frozenset({"DOC", *(f"_{word.upper()}" for word in DECLARATIONS)})
_STARTS_CLAUSE = frozenset({"REWRITE", "BIREWRITE", "EXAMPLE", "REJECT", *(f"_{word.upper()}" for word in CLAUSES)})
_WORDS = {
    "NAME": "a name", "INT": "a whole number", "REAL": "a number", "STRING": "a string", "COMMA": "`,`", "COLON": "`:`",
    "LPAR": "`(`", "RPAR": "`)`", "LSQB": "`[`", "RSQB": "`]`", "LBRACE": "`{`", "RBRACE": "`}`", "_ASSIGN": "`=`",
    "_ARROW": "`->`", "DOTS": "`..`", "QUERY": "`?`", "LESS": "`<`", "EQUAL": "`==`", "IN": "`in`", "_FOR": "`for`",
    "_THEN": "`then`", "_ELSE": "`else`", "_IF": "`if`", "_SINCE": "`since`", "MINUS": "`-`",
}  # fmt: skip
_CHARACTERS = {
    "&": "write `and`",
    "|": "write `or`",
    "!": "write `not`, or `!=` for inequality",
    "^": "a power is written `**`",
    ";": "clauses need no separator: begin the next one with its keyword",
    "'": 'strings stand in double quotes: `"…"`',
    "“": 'strings stand in plain double quotes: `"…"`',
    "”": 'strings stand in plain double quotes: `"…"`',
    "×": "a product is written `*`",
    "≤": "write `<=`",
    "≥": "write `>=`",
    "≠": "write `!=`",
    "−": "write the plain minus sign `-`",
    "→": "write `->`",
    "…": "write `..`",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """Where parsing a piece of a source stopped. `bad` is the token that does not fit; None where none begins."""

    source: Source
    offset: int
    text: str
    good: tuple[Token, ...]
    bad: Token | None
    position: int
    accepted: frozenset[str]

    def span(self, start: int, end: int) -> Span:
        return Span(self.source, self.offset + start, self.offset + end)

    def here(self) -> Span:
        """The bad token; at the end of the text, the last thing before it."""
        if self.bad is None:
            return self.span(self.position, self.position + 1)
        if self.bad.type == "$END":
            end = _end(self.good[-1]) if self.good else len(self.text.rstrip())
            return self.span(end, end)
        return self.span(_start(self.bad), _end(self.bad))

    def first_on_line(self, token: Token) -> bool:
        start = _start(token)
        return not self.text[self.text.rfind("\n", 0, start) + 1 : start].strip()

    def open_brackets(self) -> list[Token]:
        """The brackets that are open where parsing stopped."""
        stack: list[Token] = []
        for token in self.good:
            if token in BRACKETS:
                stack.append(token)
            elif token in BRACKETS.values() and stack:
                stack.pop()
        return stack


def explain(failure: Failure) -> Diagnostic:
    """The most helpful thing to say about a syntax error."""
    slips: Sequence[Callable[[Failure], Diagnostic | None]] = (
        _bad_character,
        _misspelt_keyword,
        _reserved_name,
        _unclosed_bracket,
        _wrong_bracket,
        _slashes,
        _equals,
        _nameless_result,
        _bare_operand,
        _doc_out_of_place,
        _missing_comma,
    )
    for slip in slips:
        found = slip(failure)
        if found is not None:
            return found
    if failure.bad is not None and failure.bad.type == "$END":
        return Diagnostic(
            "E0111", f"the text ends too early: expected {expected(failure.accepted)}", failure.here(), "ends here"
        )
    wanted = expected(failure.accepted)
    if failure.bad in RESERVED and failure.good and failure.first_on_line(failure.bad):
        # What comes next is in order: the line before it is not complete.
        end = _end(failure.good[-1])
        return Diagnostic(
            "E0101", f"expected {wanted} after `{failure.good[-1]}`", failure.span(end, end), "incomplete"
        )
    message = f"expected {wanted}, found {found_words(failure.bad)}"
    return Diagnostic("E0101", message, failure.here(), "not expected here")


def expected(accepted: frozenset[str]) -> str:
    """What could have come, in plain words, the most telling first."""
    left = set(accepted)
    words: list[str] = []
    if {"TRUE", "STRING", "LPAR"} <= left:
        left -= _STARTS_EXPRESSION
        words.append("an expression")
    elif {"_ABSENT", "NAME"} <= left:
        left -= _STARTS_TERM
        words.append("a term")
    last: list[str] = []
    if len(left & _OPERATORS) > 3:
        left -= _OPERATORS | {"LPAR", "LSQB"}
        last.append("an operator")
    if len(left & _STARTS_CLAUSE) > 2:
        left -= _STARTS_CLAUSE
        last.append("the next clause")
    if left & _STARTS_DECLARATION:
        left -= _STARTS_DECLARATION | {"$END"}
        last.append("the next declaration (`op`, `fn`, `axiom` or `rule`)")
    left -= {"$END"}
    words += sorted(_WORDS.get(name, f"`{name.strip('_').lower()}`") for name in left)
    words += last
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def found_words(token: Token | None) -> str:
    if token is None:
        return "nothing"
    if token.type == "$END":
        return "the end of the text"
    if token in RESERVED:
        return f"the keyword `{token}`"
    kind = {"STRING": "the string ", "INT": "the number ", "REAL": "the number "}.get(token.type, "")
    return f"{kind}`{token}`"


# --- common slips ------------------------------------------------------------------------------------------------


def _bad_character(f: Failure) -> Diagnostic | None:
    if f.bad is not None:
        return None
    char = f.text[f.position]
    if char == '"':
        end = f.text.find("\n", f.position)
        span = f.span(f.position, len(f.text) if end < 0 else end)
        return Diagnostic(
            "E0109", "this string is not closed", span, 'no `"` before the end of the line', 'end it with `"`'
        )
    if char == ".":
        digits = re.compile(r"\.[0-9]").match(f.text, f.position)
        help = (
            "a number has digits on both sides of the point: `0.5`, `2.0`"
            if digits or _after_digit(f)
            else "a pack or the rest is written `..`"
        )
        return Diagnostic("E0102", "a single `.` means nothing here", f.here(), "", help)
    name = unicodedata.name(char, "")
    shown = f"`{char}`" if char.isprintable() else f"U+{ord(char):04X}"
    known = f" ({name.lower()})" if name and not char.isascii() else ""
    return Diagnostic(
        "E0102", f"the character {shown}{known} means nothing here", f.here(), "", _CHARACTERS.get(char, "")
    )


def _after_digit(f: Failure) -> bool:
    return f.position > 0 and f.text[f.position - 1].isdecimal()


def _misspelt_keyword(f: Failure) -> Diagnostic | None:
    """A first word of a line that is like a keyword: the word itself, or the one before, read as a name."""
    for token in (f.bad, f.good[-1] if f.good else None):
        if token is None or token.type != "NAME" or not f.first_on_line(token):
            continue
        at_top = all(t.type == "DOC" for t in f.good if t is not token)
        words = DECLARATIONS if at_top else (*sorted(CLAUSES), *DECLARATIONS)
        like = get_close_matches(token.lower(), words, 1, 0.6)
        span = f.span(_start(token), _end(token))
        if at_top:
            help = f"did you mean `{like[0]}`?" if like else "a declaration begins with `op`, `fn`, `axiom` or `rule`"
            return Diagnostic("E0108", f"`{token}` begins no declaration", span, "not a keyword", help)
        if f.open_brackets() and token is f.bad:
            return None
        if like:
            return Diagnostic(
                "E0107", f"there is no clause `{token}`", span, "not a keyword", f"did you mean `{like[0]}`?"
            )
        if token is f.bad and f.accepted & _STARTS_CLAUSE and "COMMA" not in f.accepted:
            colon = f.text[_end(token) :].lstrip().startswith(":")
            help = (
                "variables stand after `for`" if colon else "a clause begins with a keyword, such as `where` or `let`"
            )
            return Diagnostic("E0107", f"there is no clause `{token}`", span, "not a keyword", help)
    return None


def _unclosed_bracket(f: Failure) -> Diagnostic | None:
    stack = f.open_brackets()
    if f.bad is None or not stack:
        return None
    at_end = f.bad.type == "$END"
    # No clause begins within brackets; only `for` has a place there.
    if not at_end and (
        f.bad not in CLAUSES | frozenset(DECLARATIONS) or (f.bad == "for" and not f.first_on_line(f.bad))
    ):
        return None
    bracket = stack[-1]
    where = "the text ends" if at_end else f"the clause `{f.bad}` begins"
    span = f.span(_start(bracket), _end(bracket))
    notes = () if at_end else ((f.here(), "where the next clause begins"),)
    return Diagnostic(
        "E0104",
        f"this `{bracket}` is not closed before {where}",
        span,
        "opened here",
        f"close it with `{BRACKETS[bracket]}`",
        notes=notes,
    )


def _wrong_bracket(f: Failure) -> Diagnostic | None:
    if f.bad is None or f.bad not in BRACKETS.values():
        return None
    stack = f.open_brackets()
    if not stack:
        return Diagnostic(
            "E0105", f"this `{f.bad}` closes nothing", f.here(), "no bracket is open", "remove it, or open one before"
        )
    wanted = BRACKETS[stack[-1]]
    if wanted == f.bad:
        return None
    notes = ((f.span(_start(stack[-1]), _end(stack[-1])), "opened here"),)
    return Diagnostic(
        "E0105", f"`{stack[-1]}` is closed with `{f.bad}`", f.here(), f"expected `{wanted}`", "", notes=notes
    )


def _reserved_name(f: Failure) -> Diagnostic | None:
    if f.bad is None or f.bad not in RESERVED or "NAME" not in f.accepted:
        return None
    if f.bad in CLAUSES | frozenset(DECLARATIONS) and f.first_on_line(f.bad):
        return None  # the name is missing rather than badly chosen
    return Diagnostic(
        "E0103",
        f"`{f.bad}` is a reserved word and cannot be a name",
        f.here(),
        "reserved",
        f"choose another name, such as `{f.bad}_`",
    )


def _slashes(f: Failure) -> Diagnostic | None:
    """`//` meant as a comment."""
    line = f.text.count("\n", 0, f.position)
    tokens = (*f.good, f.bad) if f.bad is not None else f.good
    for token in tokens:
        if token.type == "FLOOR" and f.text.count("\n", 0, _start(token)) == line:
            span = f.span(_start(token), _end(token))
            return Diagnostic(
                "E0110",
                "`//` divides whole numbers; this is no division",
                span,
                "read as a division",
                "a comment begins with `#`",
            )
    return None


def _equals(f: Failure) -> Diagnostic | None:
    if f.bad is None:
        return None
    if f.bad.type == "_ASSIGN" and "EQUAL" in f.accepted:
        return Diagnostic("E0106", "`=` is no comparison", f.here(), "binds a name", "to compare, write `==`")
    # Where only `=` is expected, `==` is read as two of them.
    first = f.good[-1] if f.good else f.bad
    if f.bad.type == first.type == "_ASSIGN" and _end(first) == _start(f.bad):
        span = f.span(_start(first), _end(f.bad))
        return Diagnostic("E0106", "`==` binds no name", span, "compares", "to bind a name, write `=`")
    return None


def _nameless_result(f: Failure) -> Diagnostic | None:
    """`match Relu(x)`."""
    if f.bad is None or f.bad.type not in ("LPAR", "LSQB") or not {"_ASSIGN", "COMMA"} <= f.accepted:
        return None
    name = f.good[-1]
    help = f"bind it to a name: `y = {name}(…)`"
    return Diagnostic("E0122", f"the result of `{name}` has no name", f.span(_start(name), _end(name)), "no name", help)


def _bare_operand(f: Failure) -> Diagnostic | None:
    """`y = Relu x`: the operand is read as the name of another result."""
    if len(f.good) < 3 or [t.type for t in f.good[-3:]] != ["_ASSIGN", "NAME", "NAME"]:
        return None
    operator, operand = f.good[-2:]
    if f.first_on_line(operand):
        return None
    span = f.span(_start(operand), _end(operand))
    help = f"write `{operator}({operand})`"
    return Diagnostic("E0123", f"the operands of `{operator}` stand in parentheses", span, "not in parentheses", help)


def _doc_out_of_place(f: Failure) -> Diagnostic | None:
    docs = [t for t in f.good if t.type == "DOC"]
    if f.bad is not None and f.bad.type == "$END" and f.good and f.good[-1].type == "DOC":
        return Diagnostic(
            "E0113",
            "this doc comment documents nothing",
            f.span(_start(docs[-1]), _end(docs[-1])),
            "",
            "put it before a declaration, or begin it with `#`",
        )
    if f.bad is not None and f.bad.type == "DOC":
        return Diagnostic(
            "E0113",
            "a doc comment stands before a declaration",
            f.here(),
            "",
            "inside a declaration, comments begin with `#`",
        )
    if f.good and f.good[-1].type == "DOC" and len(docs) < len(f.good):
        return Diagnostic(
            "E0113",
            "a doc comment stands before a declaration",
            f.span(_start(docs[-1]), _end(docs[-1])),
            "",
            "inside a declaration, comments begin with `#`",
        )
    return None


def _missing_comma(f: Failure) -> Diagnostic | None:
    if f.bad is None or "COMMA" not in f.accepted or not f.good:
        return None
    if f.bad.type not in _STARTS_ITEM or f.bad.type in f.accepted:
        return None
    end = _end(f.good[-1])
    return Diagnostic("E0114", f"a `,` is missing before `{f.bad}`", f.span(end, end), "expected `,`", "")


def _start(token: Token) -> int:
    return token.start_pos or 0


def _end(token: Token) -> int:
    return token.end_pos or 0
