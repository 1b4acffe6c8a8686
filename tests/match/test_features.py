"""What a rule matches and what it makes, one feature of the language at a time."""

from __future__ import annotations

import numpy as np
import pytest
from matching import Net, compiled, same_results, well_formed

from tasodsl.graph.dims import symbol
from tasodsl.graph.graph import Graph, Node
from tasodsl.match.compiled import CompiledRules

CANCEL = """
rule cancel
  for x: any[..S]
  match   y = Transpose[perm=p](Transpose[perm=q](x))
  where   identity(compose(q, p))
  rewrite y = x
"""
MERGE = """
rule merge
  for x: [..B, m, k], const w1: [k, n1], const w2: [k, n2]
  match   y1 = MatMul(x, w1)
          y2 = MatMul(x, w2)
  rewrite y1, y2 = Split[axis=-1, split=[n1, n2]](MatMul(x, Concat[axis=1](w1, w2)))
"""


def count(rules: CompiledRules, graph: Graph) -> int:
    return len(rules.matches(graph))


def rewritten(rules: CompiledRules, graph: Graph, tolerance: float = 1e-5) -> Graph:
    """The graph after the first match, after checking that it is whole and computes the same."""
    first, *_ = rules.matches(graph)
    after = rules.apply(graph, first)
    assert after is not None
    assert well_formed(after)
    assert same_results(graph, after, tolerance)
    return after


def ops(graph: Graph) -> list[str]:
    return [n.op_type for n in graph.topological()]


def transposes(first: list[int], second: list[int]) -> Graph:
    net = Net()
    x = net.input("x", 2, 3, 4)
    y = net.op("Transpose", net.op("Transpose", x, perm=tuple(first)), perm=tuple(second))
    return net.graph(net.op("Relu", y))


def test_where_decides_over_bound_attributes():
    rules = compiled(CANCEL)
    assert count(rules, transposes([1, 2, 0], [1, 2, 0])) == 0
    assert ops(rewritten(rules, transposes([1, 2, 0], [2, 0, 1]))) == ["Relu"]


def test_replaced_graph_output_keeps_its_name():
    net = Net()
    x = net.input("x", 2, 3)
    net.op("Transpose", net.op("Transpose", x, perm=(1, 0)), perm=(1, 0), names=["out"])
    after = rewritten(compiled(CANCEL), net.graph("out"))
    assert after.outputs == ("out",)
    assert ops(after) == ["Identity"]


def test_inner_value_read_elsewhere_or_output_is_not_matched():
    net = Net()
    x = net.input("x", 2, 3)
    inner = net.op("Transpose", x, perm=(1, 0))
    y = net.op("Transpose", inner, perm=(1, 0))
    assert count(compiled(CANCEL), net.graph(y)) == 1
    assert count(compiled(CANCEL), net.graph(y, inner)) == 0
    other = net.op("Relu", inner)
    assert count(compiled(CANCEL), net.graph(y, other)) == 0


def test_value_captured_by_a_subgraph_is_read_elsewhere():
    net = Net()
    x = net.input("x", 2, 3)
    inner = net.op("Transpose", x, perm=(1, 0))
    y = net.op("Transpose", inner, perm=(1, 0))
    loop = net.opaque("Loop", x, captures=[inner])
    assert count(compiled(CANCEL), net.graph(y, loop)) == 0


def test_opaque_nodes_never_match():
    net = Net()
    y = net.op("Relu", net.opaque("Relu", net.input("x", 2)))
    rules = compiled("rule r for x: [..S] match y = Relu(Relu(x)) rewrite y = Relu(x)")
    assert count(rules, net.graph(y)) == 0


def test_merging_two_roots():
    net = Net()
    x = net.input("x", 2, 5, 3)
    a, b = net.op("MatMul", x, net.weights(3, 4)), net.op("MatMul", x, net.weights(3, 2))
    graph = net.graph(net.op("Relu", a), net.op("Tanh", b))
    assert count(compiled(MERGE), graph) == 2  # in either order
    assert ops(rewritten(compiled(MERGE), graph)) == ["MatMul", "Split", "Relu", "Tanh"]


def test_roots_are_distinct_nodes():
    net = Net()
    y = net.op("MatMul", net.input("x", 5, 3), net.weights(3, 4))
    assert count(compiled(MERGE), net.graph(y)) == 0


def test_const_is_a_constant_that_no_input_overrides():
    net = Net()
    x, w = net.input("x", 5, 3), net.input("w", 3, 4)
    y1, y2 = net.op("MatMul", x, net.weights(3, 4)), net.op("MatMul", x, w)
    assert count(compiled(MERGE), net.graph(y1, y2)) == 0


def test_no_root_feeds_another():
    rule = """
    rule pair
      for x: [..S], z: [..S]
      match   y1 = Relu(x)
              y2 = Add(x, z)
      rewrite y1, y2 = Split[axis=0, split=[1, 1]](Concat[axis=0](Relu(x), Add(x, z)))
    """
    net = Net()
    x, z = net.input("x", 1), net.input("z", 1)
    apart = net.graph(net.op("Relu", x), net.op("Add", x, z))
    assert count(compiled(rule), apart) == 1
    net = Net()
    x = net.input("x", 1)
    y1 = net.op("Relu", x)
    joined = net.graph(net.op("Add", x, net.op("Tanh", y1)))
    assert count(compiled(rule), joined) == 0


def test_commutative_operators_match_in_both_orders():
    rule = "rule r for x: [..S], b: [..T] match y = Add(Relu(x), b) rewrite y = Add(b, Relu(x))"
    net = Net()
    x, b = net.input("x", 2, 3), net.input("b", 3)
    assert count(compiled(rule), net.graph(net.op("Add", b, net.op("Relu", x)))) == 1
    assert count(compiled(rule.replace("Add", "Sub")), net.graph(net.op("Sub", b, net.op("Relu", x)))) == 0
    both = net.op("Add", net.op("Relu", x), net.op("Relu", b))
    assert count(compiled(rule), net.graph(both)) == 2


def test_repeated_variable_is_one_value():
    rule = "rule r for x: [..S] match y = Add(x, x) rewrite y = Mul(x, 2.0)"
    net = Net()
    x, z = net.input("x", 2), net.input("z", 2)
    graph = net.graph(net.op("Add", x, x), net.op("Add", x, z))
    assert count(compiled(rule), graph) == 1
    after = rewritten(compiled(rule), graph)
    (two,) = (c for v, c in after.constants.items() if after.reader_ids(v))
    assert (two.shape, two.dtype, two.array()) == ((), "float32", 2.0)


@pytest.mark.parametrize("bias", [False, True])
def test_optional_operand_is_passed_on(bias: bool):
    rule = """
    rule r for x: [n, c, h, w], k: [m, d, 1, 1], b?: [m]
      match y = Neg(Neg(Conv[..a](x, k, b?)))
      rewrite y = Conv[..a](x, k, b?)
    """
    net = Net()
    operands = [net.input("x", 1, 2, 3, 3), net.weights(4, 2, 1, 1), *([net.weights(4)] if bias else [])]
    y = net.op("Neg", net.op("Neg", net.op("Conv", *operands)))
    after = rewritten(compiled(rule), net.graph(y))
    (conv,) = after.nodes.values()
    assert len(conv.inputs) == len(operands)


def test_operand_left_out_is_absent():
    rule = "rule r for x: [n, c, h, w], k: [m, d, u, v] match y = Relu(Conv[..a](x, k)) rewrite y = Conv[..a](x, k)"
    net = Net()
    x, k = net.input("x", 1, 2, 3, 3), net.weights(4, 2, 1, 1)
    assert count(compiled(rule), net.graph(net.op("Relu", net.op("Conv", x, k)))) == 1
    assert count(compiled(rule), net.graph(net.op("Relu", net.op("Conv", x, k, "")))) == 1
    assert count(compiled(rule), net.graph(net.op("Relu", net.op("Conv", x, k, net.weights(4))))) == 0


def test_attribute_not_written_has_its_default():
    rule = "rule r for x: [n, c, h, w], k: [m, d, u, v] match y = Conv(x, k) rewrite y = Conv(x, k)"
    net = Net()
    x, k = net.input("x", 1, 2, 3, 3), net.weights(4, 2, 1, 1)
    assert count(compiled(rule), net.graph(net.op("Conv", x, k))) == 1
    assert count(compiled(rule), net.graph(net.op("Conv", x, k, strides=(2, 1)))) == 0


@pytest.mark.parametrize("written", ["LeakyRelu(x)", "LeakyRelu[alpha=0.01](x)", "LeakyRelu[alpha=0.1 * 0.1](x)"])
def test_real_attributes_agree_when_single_precision_makes_them_one_number(written: str):
    """A model stores a hundredth as the nearest number of single precision; defaults and literals are exact."""
    rules = compiled(f"rule r for x: [n] match y = Relu({written}) rewrite y = Relu(x)")
    stored = np.float32(0.01)
    for alpha, matched in ((stored, 1), (np.nextafter(stored, np.float32(1)), 0)):
        net = Net()
        assert (
            count(rules, net.graph(net.op("Relu", net.op("LeakyRelu", net.input("x", 3), alpha=float(alpha)))))
            == matched
        )


def test_rest_of_attributes_is_equal_where_repeated():
    rule = """
    rule r for x: [n, c, h, w], const k1: [m, d, u, v], const k2: [m, d, u, v]
      match y = Add(Conv[..a](x, k1), Conv[..a](x, k2))
      rewrite y = Conv[..a](x, Add(k1, k2))
    """
    net = Net()
    x, k, k2 = net.input("x", 1, 2, 3, 3), net.weights(4, 2, 1, 1), net.weights(4, 2, 1, 1)
    same = net.graph(net.op("Add", net.op("Conv", x, k, strides=(2, 2)), net.op("Conv", x, k2, strides=(2, 2))))
    after = rewritten(compiled(rule), same)
    (conv,) = after.nodes.values()
    assert conv.attribute("strides") == (2, 2)
    other = net.op("Add", net.op("Conv", x, k, dilations=(2, 1)), net.op("Conv", x, k2, dilations=(1, 1)))
    assert count(compiled(rule), net.graph(other)) == 0


def test_folds_are_rounded_once():
    rule = """
    rule r for x: [..S], const a: [..T], const b: [..U]
      match y = Mul(Mul(x, a), b)
      rewrite y = Mul(x, Mul(Mul(a, b), 3.0))
    """
    net = Net()
    a, b = np.float32(1 / 3), np.float32(1 / 7)
    y = net.op("Mul", net.op("Mul", net.input("x", 2), net.const(a)), net.const(b))
    rules = compiled(rule)
    graph = net.graph(y)
    after = rules.apply(graph, rules.matches(graph)[0])
    assert after is not None
    (held,) = (c.array() for v, c in after.constants.items() if after.reader_ids(v))
    assert held.dtype == np.float32
    assert held == np.float32(np.float64(a) * np.float64(b) * 3)


def test_fold_that_overflows_is_refused():
    rule = "rule r for x: [..S], const a: [], const b: [] match y = Mul(Mul(x, a), b) rewrite y = Mul(x, Mul(a, b))"
    for scale, refused in ((1e10, False), (1e30, True)):
        net = Net()
        y = net.op("Mul", net.op("Mul", net.input("x", 2), net.const(scale)), net.const(scale))
        graph = net.graph(y)
        rules = compiled(rule)
        match, *_ = rules.matches(graph)
        assert (rules.apply(graph, match) is None) == refused


def test_let_tensor_is_computed_from_constants():
    rule = """
    rule r for x: [n, c, h, w], const k: [m, d, 1, 1]
      match y = Conv[pads=p, dilations=d2, ..a](x, k)
      let   k3[o < m, i < d, u < 3, v < 3] = k[o, i, u - 1, v - 1]?0
      rewrite y = Conv[pads=[p[0] + d2[0], p[1] + d2[1], p[2] + d2[0], p[3] + d2[1]], dilations=d2, ..a](x, k3)
    """
    net = Net()
    graph = net.graph(net.op("Conv", net.input("x", 1, 2, 3, 3), net.weights(4, 2, 1, 1), strides=(2, 1)))
    after = rewritten(compiled(rule), graph)
    (conv,) = after.nodes.values()
    assert after.shape(conv.inputs[1]) == (4, 2, 3, 3)
    assert conv.attribute("pads") == (1, 1, 1, 1)


ONE = float(np.float32(0.1))


@pytest.mark.parametrize(
    ("entry", "matched"),
    [
        (ONE, True),
        (float(np.nextafter(np.float32(ONE), np.float32(1))), True),
        (float(np.nextafter(np.float32(ONE), np.float32(0))), True),
        (ONE * (1 + 4e-7), False),
        (0.2, False),
    ],
)
def test_uniform_constant_matches_within_one_unit_in_the_last_place(entry: float, matched: bool):
    rule = "rule r for x: [..S], const z: [..T] = 0.1 match y = Mul(x, z) rewrite y = Mul(z, x)"
    net = Net()
    y = net.op("Mul", net.input("x", 2, 3), net.const(np.full((1, 3), entry)))
    assert count(compiled(rule), net.graph(y)) == matched


def test_uniform_constant_binds_its_number():
    rule = """
    rule r for x: [..S], const z: [..T] = c
      match y = Mul(x, z)
      where c > 0.0 and rank(T) <= rank(S)
      let   s = sqrt(c)
      rewrite y = Mul(Mul(x, s), s)
    """
    net = Net()
    x = net.input("x", 2, 3)
    after = rewritten(compiled(rule), net.graph(net.op("Mul", x, net.const([4.0, 4.0, 4.0]))))
    assert ops(after) == ["Mul", "Mul"]
    for held in ([4.0, 4.0, 5.0], [-4.0] * 3, [np.nan] * 3, [np.inf] * 3):
        assert count(compiled(rule), net.graph(net.op("Mul", x, net.const(held)))) == 0


def test_literal_matches_a_scalar_constant_only():
    rule = "rule r for x: [..S] match y = Add(x, 3.0) rewrite y = Add(3.0, x)"
    net = Net()
    x = net.input("x", 2)
    assert count(compiled(rule), net.graph(net.op("Add", x, net.const(3.0)))) == 1
    assert count(compiled(rule), net.graph(net.op("Add", x, net.const([3.0])))) == 0
    assert count(compiled(rule), net.graph(net.op("Add", x, net.const(2.0)))) == 0
    assert count(compiled(rule), net.graph(net.op("Add", x, net.input("three")))) == 0


@pytest.mark.parametrize(
    ("word", "dtypes"),
    [
        ("", {"float32", "float64"}),
        ("half", {"float16", "bfloat16"}),
        ("int", {"int64", "int32", "uint8"}),
        ("any", {"float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"}),
    ],
)
def test_dtype_classes(word: str, dtypes: set[str]):
    rule = f"rule r for x: {word}[..S] match y = Identity(x) rewrite y = x"
    found: set[str] = set()
    for dtype in ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", ""):
        net = Net()
        y = net.op("Identity", net.input("x", 2, dtype=dtype))
        if count(compiled(rule), net.graph(y)):
            found.add(dtype)
    assert found == dtypes


def test_ranks_and_arities_outside_the_proof_do_not_match():
    rule = """
    rule r for ..xs: any[..S, n[], ..T]
      match y = Concat[axis=d](..xs)
      where rank(S) == d
      rewrite y = Concat[axis=d](..xs)
    """
    net = Net()
    low, high = net.input("x", 1, 1, 1, 1), net.input("z", 1, 1, 1, 1, 1)
    assert count(compiled(rule), net.graph(net.op("Concat", low, low, axis=1))) == 1
    assert count(compiled(rule), net.graph(net.op("Concat", high, high, axis=1))) == 0
    assert count(compiled(rule), net.graph(net.op("Concat", *[low] * 4, axis=1))) == 1
    assert count(compiled(rule), net.graph(net.op("Concat", *[low] * 5, axis=1))) == 0
    unranked = net.unranked("u")
    rule = "rule r for x: [..S] match y = Relu(x) rewrite y = x"
    assert count(compiled(rule), net.graph(net.op("Relu", unranked))) == 0


def test_each_operand_of_a_variadic():
    rule = """
    rule r for ..xs: [..S, n[], ..T]
      match y = Concat[axis=d](..[Relu(x) for x in xs])
      where rank(S) == d
      rewrite y = Relu(Concat[axis=d](..xs))
    """
    net = Net()
    x, z = net.input("x", 2, 3), net.input("z", 2, 5)
    y = net.op("Concat", net.op("Relu", x), net.op("Relu", z), net.op("Relu", x), axis=1)
    assert ops(rewritten(compiled(rule), net.graph(y))) == ["Concat", "Relu"]
    assert count(compiled(rule), net.graph(net.op("Concat", net.op("Relu", x), z, axis=1))) == 0


def test_size_of_each_operand_is_bound_as_a_list():
    rule = """
    rule r for ..xs: any[..S, n[], ..T]
      match y1, y2 = Split[axis=d, split=n](Concat[axis=d](..xs))
      where rank(S) == d
      where len(n) == 2
      rewrite y1, y2 = Split[axis=d, split=n](Concat[axis=d](..xs))
    """
    net = Net()
    whole = net.op("Concat", net.input("x", 2, 3), net.input("z", 2, 5), axis=1)
    same = net.op("Split", whole, axis=1, split=(3, 5))
    assert count(compiled(rule), net.graph(*same)) == 1
    net.nodes.pop()  # the same operand cut otherwise
    other = net.op("Split", whole, axis=1, split=(4, 4))
    assert count(compiled(rule), net.graph(*other)) == 0


def test_negative_axis_counts_from_the_end():
    rule = "rule r for x: [..S, n] match y = Softmax(Relu(x)) rewrite y = Softmax(x)"
    net = Net()
    x = net.op("Relu", net.input("x", 2, 3, 4))
    assert count(compiled(rule), net.graph(net.op("Softmax", x, axis=2))) == 1
    assert count(compiled(rule), net.graph(net.op("Softmax", x, axis=1))) == 0


RESHAPE = """
rule r for x: any[..S]
  match y = Reshape[shape=s](Flatten[axis=1](x))
  where s == S
  rewrite y = x
"""


def test_sizes_that_symbols_leave_open_do_not_match():
    n = symbol("n")
    for dims, known in (((2, 3, 4), True), ((n, 3, 4), False)):
        net = Net()
        x = net.input("x", *dims)
        flat = net.op("Flatten", x, axis=1)
        y = net.fresh()
        net.info[y] = net.info[x]
        net.nodes.append(Node("Reshape", (flat,), (y,), (("shape", (2, 3, 4)),)))
        assert count(compiled(RESHAPE), net.graph(net.op("Relu", y))) == known


def test_one_symbol_is_equal_to_itself_only():
    rule = "rule r for x: [n, n] match y = Relu(x) rewrite y = x"
    m, n = symbol("m"), symbol("n")
    for dims, known in (((n, n), True), ((m, n), False), ((n, 3), False), ((n, n + 1), False), ((3, 3), True)):
        net = Net()
        assert count(compiled(rule), net.graph(net.op("Relu", net.input("x", *dims)))) == known


def test_dimension_with_arithmetic_is_solved():
    rule = """
    rule r for x: [n, c * g, h, w], k: [m, d, u, v]
      match y = Conv[group=g, ..a](x, k)
      where c == 3
      rewrite y = Conv[group=g, ..a](x, k)
    """
    net = Net()
    x, z = net.input("x", 1, 6, 3, 3), net.input("z", 1, 8, 3, 3)
    assert count(compiled(rule), net.graph(net.op("Conv", x, net.weights(4, 3, 1, 1), group=2))) == 1
    assert count(compiled(rule), net.graph(net.op("Conv", z, net.weights(4, 4, 1, 1), group=2))) == 0


def test_unused_results_must_be_unused():
    rule = """
    rule r for x: [2, k]
      match y, _ = Split[axis=0, split=[1, 1]](x)
      rewrite y = Slice[starts=[0], ends=[1], axes=[0], steps=[1]](x)
    """
    net = Net()
    y, z = net.op("Split", net.input("x", 2, 3), axis=0, split=(1, 1))
    assert ops(rewritten(compiled(rule), net.graph(net.op("Relu", y)))) == ["Slice", "Relu"]
    net = Net()
    y, z = net.op("Split", net.input("x", 2, 3), axis=0, split=(1, 1))
    assert count(compiled(rule), net.graph(y, z)) == 0


def test_bound_value_may_keep_other_readers():
    rule = """
    rule r for x: [..S]
      match   t = Neg(x)
              y = Relu(t)
      rewrite t = Mul(x, -1.0)
              y = Relu(t)
    """
    net = Net()
    t = net.op("Neg", net.input("x", 2))
    graph = net.graph(net.op("Relu", t), net.op("Tanh", t))
    assert sorted(ops(rewritten(compiled(rule), graph))) == ["Mul", "Relu", "Tanh"]


def test_missing_kernel_refuses():
    rule = "rule r for x: [..S] match y = Neg(Neg(x)) rewrite y = Identity(x)"
    net = Net()
    graph = net.graph(net.op("Neg", net.op("Neg", net.input("x", 2))))
    asked: list[tuple[str, str]] = []

    def supported(op: str, dtype: str) -> bool:
        asked.append((op, dtype))
        return False

    rules = compiled(rule, supported=supported)
    assert rules.apply(graph, rules.matches(graph)[0]) is None
    assert asked == [("Identity", "float32")]
    assert not rules.fired


def test_kernel_is_asked_for_the_dtype_that_operands_share():
    rule = "rule r for c: bool[..S], x: [..T] match y = Where(c, x, x) rewrite y = Identity(Where(c, x, x))"
    net = Net()
    graph = net.graph(net.op("Where", net.input("c", 2, dtype="bool"), net.input("x", 2), "x"))
    asked: list[tuple[str, str]] = []
    rules = compiled(rule, supported=lambda op, dtype: asked.append((op, dtype)) or True)
    rules.apply(graph, rules.matches(graph)[0])
    assert asked[0] == ("Where", "float32")


def test_result_of_another_rank_or_dtype_is_refused():
    net = Net()
    y = net.op("Relu", net.input("x", 2, 3))
    graph = net.graph(y)
    for rewrite in ('Cast[to="float16"](x)', "Unsqueeze[axes=[0]](x)", "Transpose[perm=[1, 0]](x)"):
        rules = compiled(f"rule r for x: [m, n] match y = Relu(x) rewrite y = {rewrite}")
        assert rules.apply(graph, rules.matches(graph)[0]) is None


def test_both_directions():
    rule = "rule r for x: [..S] match y = Sub(0.0, x) birewrite y = Neg(x)".replace("match", "match ")
    net = Net()
    x = net.input("x", 2)
    forth, back = net.graph(net.op("Sub", net.const(0.0), x)), net.graph(net.op("Neg", x))
    rules = compiled(rule)
    assert [m.rule for m in rules.matches(forth)] == ["r"]
    assert [m.rule for m in rules.matches(back)] == ["r.reverse"]


def test_result_that_is_all_constant_becomes_a_constant():
    rule = "rule r for const a: [..S] match y = Neg(Neg(a)) rewrite y = Mul(a, 1.0)"
    net = Net()
    y = net.op("Relu", net.op("Neg", net.op("Neg", net.weights(2, 3))))
    assert ops(rewritten(compiled(rule), net.graph(y))) == ["Relu"]


def test_same_rewrites_in_either_order_are_one_graph():
    net = Net()
    x = net.input("x", 2, 3, 4)
    ends = [net.op("Relu", net.op("Tanh", net.op("Neg", x))) for _ in range(2)]
    rules = compiled("rule r for x: [..S] match y = Tanh(Neg(x)) rewrite y = Neg(Tanh(x))")
    graph = net.graph(*ends)
    a, b = rules.matches(graph)

    def both(first: object, second: object) -> Graph:
        half = rules.apply(graph, first)  # type: ignore[arg-type]
        assert half is not None
        whole = rules.apply(half, second)  # type: ignore[arg-type]
        assert whole is not None
        return whole

    assert both(a, b).hash == both(b, a).hash
    assert well_formed(both(a, b))
