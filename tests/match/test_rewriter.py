"""The rewriter as the search uses it: orders, counts, names, nearest misses, and rewrites that meet each other."""

from __future__ import annotations

import numpy as np
import pytest
from matching import Net, compiled, same_results, well_formed

from tasodsl.graph.dims import symbol
from tasodsl.graph.graph import Graph
from tasodsl.match.compiled import CompiledRules
from tasodsl.match.pattern import Scope
from tasodsl.match.questions import crosses

SWAP = "rule swap for x: [..S] match y = Tanh(Neg(x)) rewrite y = Neg(Tanh(x))"


def only(rules: CompiledRules, graph: Graph) -> Graph:
    (match,) = rules.matches(graph)
    after = rules.apply(graph, match)
    assert after is not None
    assert well_formed(after)
    return after


def test_matches_come_by_rule_then_root_and_repeat():
    net = Net()
    x = net.input("x", 2)
    ends = [net.op("Tanh", net.op("Neg", x), names=[name]) for name in ("b", "a", "c")]
    rules = compiled(SWAP + "\nrule first for x: [..S] match y = Neg(x) rewrite y = Mul(x, -1.0)")
    graph = net.graph(*ends)
    found = rules.matches(graph)
    assert [m.rule for m in found] == ["swap"] * 3 + ["first"] * 3
    assert [m.root for m in found[:3]] == ["a", "b", "c"]
    assert rules.matches(graph) == found
    assert len(set(found)) == len(found)


def test_applications_are_counted():
    net = Net()
    rules = compiled(SWAP)
    only(rules, net.graph(net.op("Tanh", net.op("Neg", net.input("x", 2)))))
    assert rules.fired == {"swap": 1}


def test_new_values_are_named_by_their_definition():
    names: list[str] = []
    for operand, output in (("x", "y"), ("x", "other"), ("z", "y")):
        net = Net()
        graph = net.graph(net.op("Tanh", net.op("Neg", net.input(operand, 2)), names=[output]))
        names.extend(v for v in only(compiled(SWAP), graph).producer if "~" in v)
    assert names[0] == names[1]
    assert names[0] != names[2]


def test_value_made_before_is_used_again():
    net = Net()
    x = net.input("x", 2)
    ends = [net.op("Tanh", net.op("Neg", x)) for _ in range(2)]
    rules = compiled(SWAP)
    graph = net.graph(*ends)
    for _ in range(2):
        graph = rules.apply(graph, rules.matches(graph)[0]) or graph
    assert sorted(n.op_type for n in graph.nodes.values()) == ["Neg", "Neg", "Tanh"]
    assert well_formed(graph)


def test_value_that_came_to_depend_on_the_output_is_not_used_again():
    rules = compiled("""
    rule unfold for x: [..S] match y = Neg(x) rewrite y = Tanh(Exp(x))
    rule reuse for x: [..S] match y = Sin(x) rewrite y = Cos(Exp(x))
    """)
    net = Net()
    x = net.input("x", 2)
    graph = only(rules, net.graph(net.op("Neg", x)))
    (inner,) = (v for v in graph.producer if v.startswith("Exp~"))
    # The same name, now computed from what is about to be replaced.
    net = Net()
    x = net.input("x", 2)
    y = net.op("Sin", x)
    net.op("Abs", y, names=[inner])
    graph = net.graph(net.op("Relu", inner))
    after = only(rules, graph)
    assert sorted(n.op_type for n in after.nodes.values()) == ["Abs", "Cos", "Exp", "Relu"]


def test_output_under_the_name_of_a_new_inner_value():
    rules = compiled("rule r for x: [..S] match y = Exp(x) rewrite y = Neg(Exp(x))")
    net = Net()
    first = only(rules, net.graph(net.op("Exp", net.input("x", 2))))
    (inner,) = (v for v in first.producer if v.startswith("Exp~"))
    second = rules.apply(first, next(m for m in rules.matches(first) if m.root == inner))
    assert second is not None
    assert well_formed(second)
    assert sorted(n.op_type for n in second.nodes.values()) == ["Exp", "Neg", "Neg"]


def test_leaf_that_is_an_inner_value_stays():
    rules = compiled("rule r for x: [..S], z: [..T] match y = Add(Relu(x), z) rewrite y = Add(z, Relu(x))")
    net = Net()
    t = net.op("Relu", net.input("x", 2))
    graph = net.graph(net.op("Add", t, t))
    after = only(rules, graph)
    assert same_results(graph, after)


def test_redirection_along_a_chain():
    rules = compiled("""
    rule r for x: [..S]
      match t = Identity(x)
            y = Identity(t)
      rewrite t = x
              y = t
    """)
    net = Net()
    y = net.op("Identity", net.op("Identity", net.input("x", 2)))
    after = only(rules, net.graph(net.op("Relu", y)))
    (relu,) = after.nodes.values()
    assert relu.inputs == ("x",)


@pytest.mark.parametrize("dtype", ["int64", "bool", "float16"])
def test_constants_of_any_dtype_are_moved_exactly(dtype: str):
    rules = compiled("""
    rule r for const a: any[n, ..T], const b: any[m, ..T], x: any[k, ..T]
      match y = Concat[axis=0](a, Concat[axis=0](b, x))
      rewrite y = Concat[axis=0](Concat[axis=0](a, b), x)
    """)
    net = Net()
    held = [2**62 + 1, 0, 1] if dtype == "int64" else [1, 0, 1]
    a, b = net.const(held, dtype=dtype), net.const(held[::-1], dtype=dtype)
    x = net.input("x", 2, dtype=dtype)
    after = only(rules, net.graph(net.op("Concat", a, net.op("Concat", b, x, axis=0), axis=0)))
    (concat,) = after.nodes.values()
    folded = after.constants[concat.inputs[0]]
    assert folded.dtype == dtype
    assert folded.array().tolist() == np.array([*held, *held[::-1]], dtype).tolist()


def test_moving_folds_stay_unread_until_they_are_needed():
    rules = compiled("""
    rule r for x: [m, k], const w: [n, k]
      match y = MatMul(x, Transpose[perm=[1, 0]](w))
      let   v[i < k, j < n] = w[j, i]
      rewrite y = MatMul(x, v)
    """)
    net = Net()
    w = net.weights(4, 3)
    graph = net.graph(net.op("MatMul", net.input("x", 2, 3), net.op("Transpose", w, perm=(1, 0))))
    after = only(rules, graph)
    (matmul,) = after.nodes.values()
    constant = after.constants[matmul.inputs[1]]
    assert constant._array is None  # pyright: ignore[reportPrivateUsage]
    assert same_results(graph, after)


def test_let_is_rounded_once():
    rules = compiled("""
    rule r for x: [..S], const a: [], const b: []
      match y = Mul(Mul(x, a), b)
      let   c[i < 1] = a[] * b[] * 3.0
      rewrite y = Mul(x, Reshape[shape=[]](c))
    """)
    net = Net()
    a, b = np.float32(1 / 3), np.float32(1 / 7)
    graph = net.graph(net.op("Mul", net.op("Mul", net.input("x", 2), net.const(a)), net.const(b)))
    (mul,) = only(rules, graph).nodes.values()
    folded = only(rules, graph).constants[mul.inputs[1]]
    assert folded.array() == np.float32(np.float64(a) * np.float64(b) * 3)


def test_infinite_weights_do_not_make_a_fold_overflow():
    rules = compiled("rule r for x: [..S], const a: [..T] match y = Neg(Mul(x, a)) rewrite y = Mul(x, Neg(a))")
    net = Net()
    graph = net.graph(net.op("Neg", net.op("Mul", net.input("x", 2), net.const([-np.inf, 1.0]))))
    assert "Neg" not in [n.op_type for n in only(rules, graph).nodes.values()]


def test_division_by_a_zero_weight_is_refused():
    rules = compiled("rule r for x: [..S], const a: [..T] match y = Div(x, a) rewrite y = Mul(x, Reciprocal(a))")
    for entries, refused in (([1.0, 2.0], False), ([1.0, 0.0], True)):
        net = Net()
        graph = net.graph(net.op("Div", net.input("x", 2), net.const(entries)))
        (match,) = rules.matches(graph)
        assert (rules.apply(graph, match) is None) == refused


def test_attribute_with_a_symbolic_size_is_refused():
    rules = compiled("rule r for x: [n, m] match y = Relu(x) rewrite y = Reshape[shape=[n, m]](Relu(x))")
    for size, refused in ((2, False), (symbol("n"), True)):
        net = Net()
        graph = net.graph(net.op("Relu", net.input("x", size, 3)))
        (match,) = rules.matches(graph)
        assert (rules.apply(graph, match) is None) == refused


def test_symbolic_sizes_are_kept_in_new_values():
    n = symbol("n")
    net = Net()
    graph = net.graph(net.op("Tanh", net.op("Neg", net.input("x", n, 3))))
    after = only(compiled(SWAP), graph)
    (made,) = (v for v in after.producer if "~" in v)
    assert after.shape(made) == (n, 3)


def test_results_and_attributes_beyond_the_proof_do_not_match():
    rules = compiled("rule r for x: any[..S] match y = Reshape[shape=s](Identity(x)) rewrite y = Reshape[shape=s](x)")
    small = compiled(
        "rule r for x: any[n, k] match a, b, c = Split[..r](Identity(x)) rewrite a, b, c = Split[..r](x)", Scope(1, 4)
    )
    for shape, matched in (((1, 1, 6, 1), 1), ((1, 1, 6, 1, 1), 0)):
        net = Net()
        y = net.op("Reshape", net.op("Identity", net.input("x", 2, 3)), shape=shape)
        assert len(rules.matches(net.graph(y))) == matched
    net = Net()
    assert small.matches(net.graph(*net.op("Split", net.op("Identity", net.input("x", 3, 1)), split=(1, 1, 1)))) == []


WHY = """
rule r
  for x: [n, c, h, w], const k: [m, d, 1, 1]
  match   y = Relu(Conv[group=g, ..a](x, k))
  where   g == 1
  rewrite y = Conv[group=g, ..a](x, k)
"""


@pytest.mark.parametrize(
    ("build", "condition"),
    [
        (lambda net, x: net.op("Tanh", x), "the node is a Relu"),
        (lambda net, x: net.op("Relu", net.op("Tanh", x)), "an operand is a Conv"),
        (lambda net, x: net.op("Relu", net.op("Conv", x, net.input("k", 4, 4, 1, 1))), "k is a constant"),
        (lambda net, x: net.op("Relu", net.op("Conv", x, net.weights(4, 2, 1, 1), group=2)), "where g == 1"),
        (lambda net, x: net.op("Relu", net.op("Conv", x, net.weights(4, 4, 1, 1), net.weights(4))),
         "an optional operand is absent"),
    ],
)  # fmt: skip
def test_nearest_miss(build: object, condition: str):
    net = Net()
    x = net.input("x", 1, 4, 3, 3)
    graph = net.graph(net.op("Exp", x), build(net, x))  # type: ignore[operator]
    missed = compiled(WHY).why_not(graph, "r")
    assert missed is not None
    assert missed.condition == condition


def test_no_miss_where_the_rule_matches():
    net = Net()
    graph = net.graph(net.op("Relu", net.op("Conv", net.input("x", 1, 4, 3, 3), net.weights(4, 4, 1, 1))))
    assert compiled(WHY).why_not(graph, "r") is None


def test_value_read_outside_is_named_in_the_nearest_miss():
    net = Net()
    t = net.op("Conv", net.input("x", 1, 4, 3, 3), net.weights(4, 4, 1, 1), names=["conv"])
    missed = compiled(WHY).why_not(net.graph(net.op("Relu", t), t), "r")
    assert missed is not None
    assert missed.condition == "nothing outside the match reads 'conv'"


def test_crossing_is_found_from_either_end():
    net = Net()
    x, z = net.input("x", 2), net.input("z", 2)
    chain = [x]
    for _ in range(6):
        chain.append(net.op("Relu", chain[-1]))
    side = net.op("Tanh", z)
    joined = net.op("Add", chain[3], side)
    graph = net.graph(chain[-1], joined)
    assert crosses(graph, x, [joined])
    assert crosses(graph, chain[2], [side, joined])
    assert crosses(graph, chain[2], [chain[2]])
    assert not crosses(graph, side, [chain[-1]])
    assert not crosses(graph, joined, [x, z])
