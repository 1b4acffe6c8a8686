"""How much faster generated matchers are than the plain interpreter, and what a rewrite with its new matches costs.

usage: matchers.py [PATH…] [--nodes N]

PATHs are rule files; without them the shipped rules are used. The graph is made of convolutional and transformer blocks
with what exporters leave behind. Exits 1 when the matchers disagree or are less than 20 times as fast.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasodsl.check import load_rules
from tasodsl.elaborate import DimTarget, apply_op
from tasodsl.graph.graph import AttributeValue, Constant, Graph, Node, ValueInfo
from tasodsl.match.compiled import CompiledRules, compile_rules
from tasodsl.match.interpret import Interpreter
from tasodsl.match.pattern import Scope
from tasodsl.resources import rules_path
from tasodsl.ruleset import RuleSet

LEAST_RATIO = 20.0


class Builder:
    """A graph of shipped operators, value by value."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules
        self.nodes: list[Node] = []
        self.info: dict[str, ValueInfo] = {}
        self.constants: dict[str, Constant] = {}
        self.random = np.random.default_rng(0)

    def input(self, name: str, *shape: int) -> str:
        self.info[name] = ValueInfo("float32", shape)
        return name

    def constant(self, value: Any) -> str:
        name, array = f"w{len(self.info)}", np.asarray(value, np.float32)
        self.constants[name] = Constant.of(array)
        self.info[name] = ValueInfo("float32", array.shape)
        return name

    def weights(self, *shape: int) -> str:
        return self.constant(self.random.standard_normal(shape))

    def positive(self, *shape: int) -> str:
        return self.constant(self.random.uniform(0.5, 1.0, shape))

    def op(self, op: str, *inputs: str, **attributes: AttributeValue) -> str:
        declared = self.rules.ops[op]
        applied = apply_op(declared, self.rules.fns, [self.info[v] for v in inputs], attributes, DimTarget())
        full: dict[str, Any] = {a.name: applied.env.values[a.name] for a in declared.attrs}
        kinds = {a.name: a.type.kind for a in declared.attrs}
        normal = {n: float(np.float32(float(v))) if kinds[n] == "real" else v for n, v in full.items()}
        name = f"v{len(self.info)}"
        self.info[name] = ValueInfo("float32", applied.results[0])
        self.nodes.append(Node(op, inputs, (name,), tuple(sorted(normal.items()))))
        return name

    def graph(self, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
        return Graph.build(self.nodes, inputs, outputs, self.info, self.constants)


def convolutional(b: Builder, x: str) -> str:
    """A residual block with two branches, as exported before batch normalization is folded."""
    branches: list[str] = []
    for _ in range(2):
        y = b.op("Conv", x, b.weights(8, 8, 1, 1))
        y = b.op("BatchNormalization", y, *(b.weights(8) for _ in range(3)), b.positive(8))
        y = b.op("Relu", y)
        y = b.op("Conv", y, b.weights(8, 8, 3, 3), b.weights(8), pads=(1, 1, 1, 1))
        y = b.op("Mul", y, b.op("Sigmoid", y))
        branches.append(b.op("Transpose", b.op("Transpose", y, perm=(0, 2, 3, 1)), perm=(0, 3, 1, 2)))
    y = b.op("Concat", *branches, axis=1)
    return b.op("Relu", b.op("Add", x, b.op("Conv", y, b.weights(8, 16, 1, 1))))


def transformer(b: Builder, x: str) -> str:
    """Attention and a feed-forward part."""
    q, k, v = (b.op("Add", b.op("MatMul", x, b.weights(16, 16)), b.weights(16)) for _ in range(3))
    heads = [b.op("Transpose", b.op("Reshape", t, shape=(1, 6, 4, 4)), perm=(0, 2, 1, 3)) for t in (q, k, v)]
    scores = b.op("MatMul", heads[0], b.op("Transpose", heads[1], perm=(0, 1, 3, 2)))
    weights = b.op("Softmax", b.op("Div", scores, b.constant(2.0)), axis=3)
    mixed = b.op("Transpose", b.op("MatMul", weights, heads[2]), perm=(0, 2, 1, 3))
    x = b.op("Add", x, b.op("MatMul", b.op("Reshape", mixed, shape=(1, 6, 16)), b.weights(16, 16)))
    x = b.op("LayerNormalization", x, b.weights(16), b.weights(16), axis=2)
    y = b.op("Gelu", b.op("Add", b.op("MatMul", x, b.weights(16, 32)), b.weights(32)))
    return b.op("Add", x, b.op("Add", b.op("MatMul", y, b.weights(32, 16)), b.weights(16)))


def build(rules: RuleSet, nodes: int) -> Graph:
    b = Builder(rules)
    image, text = b.input("image", 1, 8, 6, 6), b.input("text", 1, 6, 16)
    x, t = image, text
    while len(b.nodes) < nodes:
        x, t = convolutional(b, x), transformer(b, t)
    return b.graph([image, text], [x, t])


def median_seconds(run: Callable[[], object], times: int) -> float:
    found: list[float] = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def interpret(rules: CompiledRules, graph: Graph) -> int:
    """The number of matches that the interpreter finds."""
    return sum(len(Interpreter(p, graph, rules.facts).matches()) for p in rules.patterns.values())


def time_rewrites(rules: CompiledRules, graph: Graph) -> list[tuple[str, float, float]]:
    """For a match of each rule, the seconds to apply it and to find the matches around what it made."""
    rows: list[tuple[str, float, float]] = []
    for match in {m.rule: m for m in rules.matches(graph)}.values():
        after = rules.apply(graph, match)
        if after is None:
            continue
        made = [n for n in after.nodes if after.nodes.get(n) is not graph.nodes.get(n)]
        applying = median_seconds(lambda m=match: rules.apply(graph, m), 9)
        matching = median_seconds(lambda a=after, near=made: rules.matches(a, near), 9)
        rows.append((match.rule, applying, matching))
    return rows


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Time generated matchers against the interpreter.")
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    parser.add_argument("--nodes", type=int, default=2000)
    options = parser.parse_args(argv)
    rule_set, problems = load_rules(options.paths or [rules_path()])
    if any(p.severity == "error" for p in problems):
        print(f"the rules have errors: {problems[0].message}", file=sys.stderr)
        return 2
    start = time.perf_counter()
    scopes = dict.fromkeys(rule_set.rules, Scope(max_rank=6, max_arity=4))
    rules = compile_rules(rule_set, list(rule_set.rules.values()), scopes, lambda op, dtype: True)
    compiling = time.perf_counter() - start
    graph = build(rule_set, options.nodes)
    found = len(rules.matches(graph))
    fast = median_seconds(lambda: rules.matches(graph), 15)
    start = time.perf_counter()
    expected = interpret(rules, graph)
    slow = time.perf_counter() - start
    ratio = slow / fast
    lines = len(rules.generated.source.splitlines())
    print(f"{len(rule_set.rules)} rules, compiled in {compiling:.2f} s to {lines} lines; {len(graph.nodes)} nodes")
    print(f"generated   {fast * 1e3:8.2f} ms   {found} matches")
    print(f"interpreted {slow * 1e3:8.2f} ms   {expected} matches   ratio {ratio:.0f}")
    for rule, applying, matching in time_rewrites(rules, graph):
        print(f"  {rule:40} rewrite {applying * 1e6:8.0f} µs   matches around it {matching * 1e6:8.0f} µs")
    return 0 if found == expected and ratio >= LEAST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
