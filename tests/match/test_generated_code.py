"""The generated code itself: what it says, that it computes what the language says, and that no text becomes code."""

from __future__ import annotations

import ast
import linecache
import re
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matching import SCOPE, Net, compiled, operators, rule_set

from tasodsl import syntax as s
from tasodsl.match.compiled import compile_rules
from tasodsl.match.expressions import HELPERS, Constants, ExpressionWriter
from tasodsl.match.pattern import Scope
from tasodsl.match.target import TARGET
from tasodsl.parse import parse_source
from tasodsl.ruleset import RuleSet
from tasodsl.scalar import evaluate
from tasodsl.source import Source
from tasodsl.values import Environment, Mismatch

NAMES = {"i": 3, "j": -2, "p": (2, 0, 1), "q": (1, 2), "b": True, "r": 0.5, "t": "float32"}


def expressions() -> st.SearchStrategy[s.Expr]:
    """Well-kinded expressions over `NAMES`; they may still have no value (an entry out of range)."""
    integers = st.deferred(lambda: integer)
    lists = st.deferred(lambda: listed)
    booleans = st.deferred(lambda: boolean)
    reals = st.deferred(lambda: real)
    integer = st.one_of(
        st.integers(-3, 5).map(s.Int),
        st.sampled_from(["i", "j"]).map(s.Name),
        st.builds(s.Binary, st.sampled_from(["+", "-", "*", "//", "%"]), integers, integers),
        st.builds(lambda a: s.Unary("-", a), integers),
        st.builds(s.IfExpr, booleans, integers, integers),
        st.builds(lambda e, k: s.Index(e, (k,)), lists, integers),
        st.builds(lambda f, e: s.Call(f, (e,)), st.sampled_from(["len", "sum", "prod", "min", "max"]), lists),
        st.builds(lambda a, c: s.Call("max", (a, c)), integers, integers),
        st.builds(lambda e, x: s.Call("index", (e, x)), lists, integers),
        st.builds(
            lambda kind, n, c, e: s.Reduce(kind, (s.Binder("k", n),), c, s.Binary("+", s.Name("k"), e)),
            st.sampled_from(["sum", "max", "min"]), integers, st.none() | booleans, integers,
        ),
    )  # fmt: skip
    listed = st.one_of(
        st.sampled_from(["p", "q"]).map(s.Name),
        st.lists(st.one_of(integers, lists.map(s.Splice)), max_size=3).map(lambda e: s.ListExpr(tuple(e))),
        st.builds(lambda e, d: s.Comprehension(s.Binary("*", s.Name("x"), e), "x", "in", d), integers, lists),
        st.builds(lambda n, c: s.Comprehension(s.Name("x"), "x", "<", n, c), integers, st.none() | booleans),
        st.builds(s.Slice, lists, st.none() | integers, st.none() | integers),
        st.builds(lambda a, c: s.Call("broadcast", (a, c)), lists, lists),
        st.builds(lambda a: s.Call("identity_of", (a,)), lists),
    )
    boolean = st.one_of(
        st.just(s.Name("b")),
        st.booleans().map(s.Bool),
        st.builds(lambda a, op, c: s.Compare(a, ((op, c),)), integers, st.sampled_from(["==", "<", ">="]), integers),
        st.builds(lambda a, c, d: s.Compare(a, (("<=", c), ("<", d))), integers, integers, integers),
        st.builds(lambda a, c: s.Compare(a, (("!=", c),)), lists, lists),
        st.builds(lambda a: s.Compare(s.Name("t"), (("==", a),)), st.sampled_from(["float32", 'x"y']).map(s.Str)),
        st.builds(s.Binary, st.sampled_from(["and", "or"]), booleans, booleans),
        st.builds(lambda a: s.Unary("not", a), booleans),
        st.builds(lambda a, e: s.Binary("in", a, e), integers, lists),
        st.builds(lambda a, op, c: s.Compare(a, ((op, c),)), reals, st.sampled_from(["==", "<"]), reals),
        st.builds(
            lambda kind, n, c: s.Reduce(kind, (s.Binder("k", n),), None, c),
            st.sampled_from(["all", "any"]), integers, booleans,
        ),
    )  # fmt: skip
    real = st.one_of(
        st.just(s.Name("r")),
        st.sampled_from([s.Real(Fraction(1, 10), "0.1"), s.Real(Fraction(3), "3.0")]),
        st.builds(s.Binary, st.sampled_from(["+", "*", "/"]), reals, reals),
        st.builds(lambda f, a: s.Call(f, (a,)), st.sampled_from(["sqrt", "exp", "floor", "abs"]), reals),
        st.builds(lambda a: s.Call("real", (a,)), integers),
    )
    return st.one_of(integer, listed, boolean, real)


FNS = {"identity_of": s.FnDecl("identity_of", ("a",), s.Call("range", (s.Call("len", (s.Name("a"),)),)))}


def outcome(compute: Any) -> Any:
    try:
        return compute()
    except Mismatch:
        return "no value"


@settings(max_examples=100, deadline=None)
@given(expressions())
def test_expressions_mean_the_same_as_python(e: s.Expr):
    constants = Constants()
    writer = ExpressionWriter({"identity_of": "fn_0"}, constants)
    scope = {name: f"v_{k}" for k, name in enumerate(NAMES)}
    source = writer.write(e, scope)
    body = writer.write(FNS["identity_of"].body, {"a": "a"})
    namespace: dict[str, Any] = {**HELPERS, **constants.values}
    namespace.update({scope[name]: value for name, value in NAMES.items()})
    exec(f"def fn_0(a): return {body}", namespace)
    expected = outcome(lambda: evaluate(e, Environment(FNS, dict(NAMES)), TARGET))
    assert outcome(lambda: eval(source, namespace)) == expected


def source_of(text: str) -> str:
    return compiled(text).generated.source


def test_code_shows_the_position_of_each_rule():
    source = source_of("rule a for x: [..S] match y = Relu(Relu(x)) rewrite y = Relu(x)\n\nrule b\n  for x: [..S]\n"
                       "  match y = Neg(Neg(x)) rewrite y = x")  # fmt: skip
    assert "# rules/test.taso:1 a\n" in source
    assert "# rules/test.taso:3 b\n" in source


def test_traceback_through_generated_code_shows_its_lines():
    rules = compiled("rule a for x: [..S] match y = Relu(Relu(x)) rewrite y = Relu(x)")
    matcher = rules.generated.roots["Relu"]
    with pytest.raises(AttributeError) as error:
        matcher(None, None, None, [])  # type: ignore[arg-type]
    frame = error.traceback[-1]
    line = linecache.getline(frame.frame.code.raw.co_filename, frame.lineno + 1)
    assert "graph" in line


def test_one_tree_for_each_root_operator():
    text = "\n".join(f"rule r{k} for x: [..S] match y = Relu({op}(x)) rewrite y = {op}(Relu(x))"
                     for k, op in enumerate(["Neg", "Tanh", "Exp", "Neg"]))  # fmt: skip
    source = source_of(text)
    assert len(re.findall(r"^def match_", source, re.M)) == 1
    assert len(re.findall(r"^def ending_", source, re.M)) == 4
    assert source.count("'Neg'") == 1  # asked once for both rules


@pytest.mark.parametrize("evil", ['"""\nimport os', "'; raise SystemExit", "{x}", "\\", "\n    raise SystemExit #"])
def test_no_text_becomes_code(evil: str):
    quoted = evil.replace('"', "").replace("\n", " ")
    rules = rule_set(f"""
    rule r
      for x: any[..S]
      match y = Cast[to=t](x)
      where t == "{quoted}" or t == "float32"
      rewrite y = Identity(x)
    """)
    (rule,) = (r for r in rules.rules.values())
    span = s.Span(Source(f"a{evil}.taso", rule.span.source.text), rule.span.start, rule.span.end)  # type: ignore[attr-defined]
    moved = s.RuleDecl(rule.name, rule.variables, rule.match, rule.rewrite, rule.clauses, rule.both, span=span)
    made = compile_rules(rules, [moved], {rule.name: SCOPE}, lambda op, dtype: True)
    tree = ast.parse(made.generated.source)
    assert all(isinstance(node, ast.FunctionDef) for node in tree.body)
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.Raise | ast.Import)]
    net = Net()
    assert len(made.matches(net.graph(net.op("Cast", net.input("x", 2), to="float32")))) == 1


def test_names_of_a_text_are_never_names_of_the_code():
    source = source_of("""
    rule r
      for nodes: [..found], graph: [..info], const Match: [] = facts
      match y = Mul(Mul(nodes, graph), Match)
      where facts > 0.0 and rank(found) >= rank(info)
      rewrite y = Mul(Mul(graph, nodes), facts)
    """)
    used = {n.id for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    allowed = {"nodes", "ids", "readers", "info", "constants", "asked", "reader"}
    assert all(name in allowed or re.fullmatch(r"[a-z](_[a-z])*(_m?\d+)*", name) for name in used), used


def test_condition_that_never_holds_compiles_to_a_return():
    rules = compiled("rule r for x: [..S] match y = Relu(x) where T == S rewrite y = x")
    assert "return  # never: " in rules.generated.source


def test_many_commutative_operators_do_not_multiply_the_code():
    term, value, net = "x", "", Net()
    value = net.input("x", 2)
    for k in range(16):
        term = f"Add({term}, {k}.5)"
        value = net.op("Add", *((value, net.const(k + 0.5)) if k % 2 else (net.const(k + 0.5), value)))
    rules = compiled(f"rule r for x: [..S] match y = {term} rewrite y = Relu(x)")
    assert len(rules.generated.source.splitlines()) < 400
    assert len(rules.matches(net.graph(value))) == 1


def test_deep_patterns_stay_within_pythons_nesting():
    term = "x"
    for _ in range(60):
        term = f"Relu({term})"
    rules = compiled(f"rule r for x: [..S] match y = {term} rewrite y = Relu(x)")
    net = Net()
    value = net.input("x", 2)
    for _ in range(60):
        value = net.op("Relu", value)
    assert len(rules.matches(net.graph(value))) == 1


HYPOTHESES = """
rule r
  for x: [n, c, h, w], const k: [m, d, 1, 1], b?: [m], const z: [..T] = 0.5, ..xs: any[..S, s[], ..R]
  match   y1 = Mul(Conv[pads=p, dilations=[1, 1], strides=[1, 1]](x, k, b?), z)
          y2 = Split[..r](Concat[axis=a](..xs))
  where   rank(S) == a
  where   p == [0, 0, 0, 0] or m > 3
  rewrite y1 = Mul(z, y1)
"""


def test_hypotheses_are_listed():
    rules, module = operators(), parse_source(Source("r.taso", HYPOTHESES))[0]
    every = RuleSet.of([*rules.ops.values(), *rules.fns.values(), *module.declarations])
    made = compile_rules(every, list(every.rules.values()), {"r": Scope(5, 3)}, lambda op, dtype: True)
    assert made.describe("r") == [
        "..xs has at most 3 operands",
        "Conv's dilations is [1, 1]",
        "Conv's group is 1",
        "Conv's strides is [1, 1]",
        "Split's split has at most 10 entries",
        "a variadic of Concat has at most 3 operands",
        "b has 1 dimensions",
        "b has the shape [m]",
        "b is float",
        "each of xs has the shape any[..S, s[], ..R]",
        "each of xs is any",
        "every entry of z is 1/2",
        "k has 4 dimensions",
        "k has the shape [m, d, 1, 1]",
        "k is a constant",
        "k is float",
        "where p == [0, 0, 0, 0] or m > 3",
        "where rank(S) == a",
        "x has 4 dimensions",
        "x has the shape [n, c, h, w]",
        "x is float",
        "z has 0 to 5 dimensions",
        "z has the shape [..T]",
        "z is a constant",
        "z is float",
    ]
