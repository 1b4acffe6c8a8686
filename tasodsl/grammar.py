"""The parser that Lark makes of `grammar/taso.lark`, with types: its tree, or where it stopped and why."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from lark import Lark, Token, Tree, UnexpectedInput

from tasodsl.resources import grammar_path

Node = Tree[Token]
OPTIONS: dict[str, Any] = {
    "parser": "lalr",
    "lexer": "contextual",
    "propagate_positions": True,
    "maybe_placeholders": True,
}


@dataclass(frozen=True, slots=True)
class Stop:
    """Where parsing stopped: the tokens read, the one that does not fit (None if none begins), what could have come."""

    good: tuple[Token, ...]
    bad: Token | None
    position: int
    accepted: frozenset[str]


@cache
def parser() -> Any:
    """The LALR parser, built once a process. Lark's own annotations leave too much unknown to use them."""
    grammar = grammar_path().read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", propagate_positions=True, maybe_placeholders=True)


def parse_text(text: str) -> Node | Stop:
    """Lark's tree of a text, or where it stopped."""
    try:
        return parser().parse(text)
    except UnexpectedInput as error:
        return _stop(text, error)


def _stop(text: str, error: UnexpectedInput) -> Stop:
    bad: Token | None = getattr(error, "token", None)
    position = len(text)
    if bad is None:
        position = int(getattr(error, "pos_in_stream", None) or 0)
    elif bad.type != "$END":
        position = bad.start_pos or 0
    state = parser().parse_interactive(text)
    good: list[Token] = []
    try:
        for token in state.lexer_thread.lex(state.parser_state):
            state.feed_token(token)
            good.append(token)
    except UnexpectedInput:
        pass
    # That parser may have reduced before it saw that the token does not fit: ask a fresh one, which has not.
    fresh = parser().parse_interactive("")
    for token in good:
        fresh.feed_token(token)
    return Stop(tuple(good), bad, position, frozenset(fresh.accepts()))
