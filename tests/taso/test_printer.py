"""The printer: parsing what it prints gives the tree back, with its comments."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from trees import exprs, modules

from tasodsl import syntax as s
from tasodsl.parse import parse, parse_source
from tasodsl.print_expr import expr
from tasodsl.layout import layout
from tasodsl.printer import WIDTH, formatted, print_module
from tasodsl.resources import rules_path
from tasodsl.source import Source

SLOW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
GOLDEN = sorted((Path(__file__).parent / "fmt").glob("*.in.taso"))


@SLOW
@given(exprs)
def test_an_expression_survives_printing(e: s.Expr) -> None:
    for width in (20, WIDTH):
        text = f"fn f() = {layout(expr(e), width)}"
        (decl,) = parse(Source("<printed>", text)).declarations
        assert isinstance(decl, s.FnDecl)
        assert decl.body == e, text


@SLOW
@given(modules)
def test_a_module_survives_printing_with_its_comments(module: s.Module) -> None:
    text = print_module(module)
    again, problems = parse_source(Source("<printed>", text))
    assert not problems, text
    assert again.declarations == module.declarations, text
    assert again.trailing == module.trailing, text
    assert print_module(again) == text
