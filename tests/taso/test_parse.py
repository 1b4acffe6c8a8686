"""The grammar and the parser: no ambiguity, no word both reserved and a name, no text that breaks them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from corpus import HERE, findings_in
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lark import Lark

from tasodsl import syntax as s
from tasodsl.explain import CLAUSES, DECLARATIONS, RESERVED
from tasodsl.parse import parse, parse_source
from tasodsl.render import render_all
from tasodsl.resources import grammar_path
from tasodsl.source import NOWHERE, Source

GRAMMAR = grammar_path().read_text(encoding="utf-8")
TEXTS = [p.read_text(encoding="utf-8") for p in sorted((HERE / "pass").glob("*.taso"))]


def found(text: str) -> list[str]:
    return [f"{d.code} {d.span.line}:{d.span.column}" for d in parse_source(Source("<text>", text))[1]]


def test_the_grammar_is_unambiguous() -> None:
    pytest.importorskip("interegular")
    Lark(GRAMMAR, parser="lalr", lexer="contextual", maybe_placeholders=True, strict=True)


def test_the_reserved_words_are_those_of_the_grammar() -> None:
    keywords = set(re.findall(r"^_?[A-Z]+\.1: /([a-z]+)\\b/", GRAMMAR, re.MULTILINE))
    (excluded,) = re.findall(r"^NAME: /\(\?!\(\?:(.*?)\)\\b\)", GRAMMAR, re.MULTILINE)
    assert keywords == set(excluded.split("|")) == set(RESERVED)


@pytest.mark.parametrize("word", sorted(RESERVED))
def test_a_reserved_word_is_no_name_but_the_beginning_of_one(word: str) -> None:
    assert found(f"fn f({word}) = 1") == ["E0103 1:6"]
    (decl,) = parse(Source("<text>", f"fn f({word}s) = {word}s + {word}_")).declarations
    assert isinstance(decl, s.FnDecl)
    assert decl.params == (f"{word}s",)


def test_clause_words_and_declaration_words_are_reserved() -> None:
    assert set(CLAUSES) | set(DECLARATIONS) <= set(RESERVED)


def test_a_word_that_begins_with_an_operator_word_is_not_taken_apart() -> None:
    assert found("fn f(a, b) = a inb") == ["E0101 1:16"]


def test_one_error_hides_no_other_declaration() -> None:
    text = "fn f(a = 1\n\nfn g(a) = a\n\nrule r\n  match y = (\n\nfn h(a) = )\n"
    module, problems = parse_source(Source("<text>", text))
    assert [d.name for d in module.declarations] == ["g"]
    assert [p.span.line for p in problems] == [1, 6, 8]


def test_each_clause_of_a_declaration_gets_its_error() -> None:
    text = "rule r\n  for x: [a b]\n  match y = F(x\n  where a = 1\n  rewrite y = x ]\n  example a 1\n"
    assert found(text) == ["E0114 2:12", "E0104 3:14", "E0106 4:11", "E0105 5:17", "E0101 6:13"]


def test_declarations_may_stand_anywhere() -> None:
    module = parse(Source("<text>", "fn f(a) = a fn g(a) = a\n  /// Doc.\n\n  rule r match y = F(x) rewrite y = x"))
    assert [d.name for d in module.declarations] == ["f", "g", "r"]
    assert module.declarations[2].doc == ("Doc.",)


@pytest.mark.parametrize(
    "text",
    [
        "fn f(a) = " + "f(" * 400 + "a" + ")" * 400,
        "fn f(a) = " + "-" * 5000 + "a",
        "fn f(a) = " + "not " * 5000 + "a",
        "fn f(a) = " + " + ".join(["a"] * 5000),
        "fn f(a) = " + "[" * 5000,
        "fn f(a) = " + "if a then " * 3000 + "a",
    ],
    ids=["calls", "minus", "not", "sum", "open", "if"],
)
def test_deep_nesting_is_refused(text: str) -> None:
    codes = [c.split()[0] for c in found(text)]
    assert codes in (["E0112"], ["E0104"], ["E0111"])


def test_spans_give_the_text_they_stand_for() -> None:
    text = "# c\nfn f(a) = a\n\nrule r\n  for x: [n]\n  match y = F[p=q + 1](x)\n  rewrite y = x\n"
    rule = parse(Source("<text>", text)).declarations[1]
    assert isinstance(rule, s.RuleDecl)
    apply = rule.match[0].term
    assert isinstance(apply, s.Apply)
    assert apply.span.text == "F[p=q + 1](x)"
    assert apply.attrs[0].value.span.text == "q + 1"
    assert (apply.span.line, apply.span.column) == (6, 13)
    assert rule.span is not NOWHERE


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_text_breaks_the_checker(data: st.DataObject) -> None:
    """Damaged rule files: whatever is wrong with them, it is told rather than raised."""
    text = data.draw(st.sampled_from(TEXTS))
    pieces = re.findall(r"\w+|\s+|[^\w\s]", text)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(pieces) - 1))
        match data.draw(st.sampled_from(["drop", "double", "swap", "new"])):
            case "drop":
                pieces[at] = ""
            case "double":
                pieces[at] += " " + pieces[at]
            case "swap":
                other = data.draw(st.integers(0, len(pieces) - 1))
                pieces[at], pieces[other] = pieces[other], pieces[at]
            case _:
                pieces[at] = data.draw(
                    st.sampled_from(["(", "]", "..", "?", '"', "#", "///", "=", "0", "\0", "é", "for"])
                )
    problems = findings_in(Source("<damaged>", "".join(pieces)))
    assert render_all(problems).count("<damaged>") >= len(problems)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=30))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    render_all(findings_in(Source("<any>", text)))


def test_a_file_is_read_once(tmp_path: Path) -> None:
    from tasodsl.load import find_files

    (tmp_path / "a.taso").write_text("")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.taso").write_text("")
    (tmp_path / "c.txt").write_text("")
    files, problems = find_files([tmp_path / "sub" / "b.taso", tmp_path, tmp_path / "sub" / ".." / "a.taso"])
    assert not problems
    assert [f.name for f in files] == ["b.taso", "a.taso"]
