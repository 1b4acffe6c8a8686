"""The printer: parsing what it prints gives the tree back, with its comments."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from trees import exprs, modules

from tasodsl import syntax as s
from tasodsl.layout import layout
from tasodsl.parse import parse, parse_source
from tasodsl.print_expr import expr
from tasodsl.printer import WIDTH, formatted, print_module
from tasodsl.resources import rules_path
from tasodsl.source import Source

MANY = settings(
    max_examples=100, deadline=None, phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck)
)
GOLDEN = sorted((Path(__file__).parent / "fmt").glob("*.in.taso"))


@MANY
@given(exprs)
def test_an_expression_survives_printing(e: s.Expr) -> None:
    for width in (20, WIDTH):
        text = f"fn f() = {layout(expr(e), width)}"
        (decl,) = parse(Source("<printed>", text)).declarations
        assert isinstance(decl, s.FnDecl)
        assert decl.body == e, text


@MANY
@given(modules)
def test_a_module_survives_printing_with_its_comments(module: s.Module) -> None:
    text = print_module(module)
    again, problems = parse_source(Source("<printed>", text))
    assert not problems, text
    assert again.declarations == module.declarations, text
    assert again.trailing == module.trailing, text
    assert print_module(again) == text


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_a_text_gets_the_one_layout(path: Path, golden: Callable[[Path, str], None]) -> None:
    source = Source(path.name, path.read_text(encoding="utf-8"))
    text, problems = formatted(source)
    assert text is not None, problems
    golden(path.with_name(path.name.replace(".in.", ".out.")), text)
    assert formatted(Source(path.name, text)) == (text, [])
    assert max(map(len, text.splitlines())) <= WIDTH


@pytest.mark.parametrize("path", sorted(rules_path().rglob("*.taso")), ids=lambda p: p.stem)
def test_the_shipped_rules_keep_every_word_and_comment(path: Path) -> None:
    source = Source(path.name, path.read_text(encoding="utf-8"))
    text, problems = formatted(source)
    assert text is not None, problems
    assert words(text) == words(source.text)


def words(text: str) -> list[str]:
    """The words of a text, its comments among them: brackets and blanks are the printer's to choose."""
    return re.findall(r"(?:#|///)[^\n]*|\w+", text)


def test_brackets_stand_only_where_they_mean_something() -> None:
    text, _ = formatted(
        Source(
            "<text>", "fn f(a, b) = ((a) + (b * (a))) - (-(b)) - (a - b) + (a // b) * a + ((sum[i < (a)] (b)) + 1)\n"
        )
    )
    assert text == "fn f(a, b) = a + b * a - -b - (a - b) + a // b * a + (sum[i < a] b + 1)\n"


def test_an_empty_text_stays_empty() -> None:
    assert formatted(Source("<text>", "")) == ("", [])
    assert formatted(Source("<text>", "\n\n  \n")) == ("", [])


def test_line_ends_and_the_byte_order_mark_go() -> None:
    assert formatted(Source("<text>", "\ufefffn f(a) = a  # é\r\n# end\r\n")) == ("fn f(a) = a  # é\n\n# end\n", [])
