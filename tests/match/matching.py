"""Small graphs and rules for the matchers' tests: graphs built operator by operator, evaluated by the definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tasodsl.check import load_rules
from tasodsl.elaborate import DimTarget, apply_op
from tasodsl.evaluate import evaluate_op
from tasodsl.graph.dims import Dim
from tasodsl.graph.dtypes import numpy_dtype
from tasodsl.graph.graph import Constant, Graph, Node, ValueInfo
from tasodsl.match.compiled import CompiledRules, compile_rules
from tasodsl.match.pattern import Scope
from tasodsl.parse import parse_source
from tasodsl.ruleset import RuleSet
from tasodsl.source import Source
from tasodsl.syntax import RuleDecl

SCOPE = Scope(max_rank=4, max_arity=4)


@cache
def operators() -> RuleSet:
    """The shipped operators and functions."""
    rules, problems = load_rules([])
    assert not problems
    return rules


def rule_set(text: str) -> RuleSet:
    """The shipped operators and the declarations in `text`."""
    module, problems = parse_source(Source("rules/test.taso", text))
    assert not problems, problems
    shipped = operators()
    return RuleSet.of([*shipped.ops.values(), *shipped.fns.values(), *module.declarations])


def compiled(text: str, scope: Scope = SCOPE, supported: Any = lambda op, dtype: True) -> CompiledRules:
    rules = rule_set(text)
    return compile_rules(rules, list(rules.rules.values()), dict.fromkeys(rules.rules, scope), supported)


def shipped_rules() -> list[RuleDecl]:
    rules, _ = load_rules(sorted(p for p in Path("rules").iterdir() if p.name not in ("ops", "axioms")))
    return list(rules.rules.values())


class Net:
    """A graph being built. Values are called v1, v2, … unless named."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.inputs: list[str] = []
        self.info: dict[str, ValueInfo] = {}
        self.constants: dict[str, Constant] = {}

    def fresh(self) -> str:
        return f"v{len(self.info) + 1}"

    def input(self, name: str, *dims: Dim, dtype: str = "float32") -> str:
        self.inputs.append(name)
        self.info[name] = ValueInfo(dtype, tuple(dims))
        return name

    def unranked(self, name: str, dtype: str = "float32") -> str:
        self.inputs.append(name)
        self.info[name] = ValueInfo(dtype, None)
        return name

    def const(self, array: Any, name: str = "", dtype: str = "float32") -> str:
        name = name or self.fresh()
        value = np.asarray(array, dtype=numpy_dtype(dtype))
        self.constants[name] = Constant.of(value, dtype)
        self.info[name] = ValueInfo(dtype, value.shape)
        return name

    def weights(self, *shape: int, seed: int = 0) -> str:
        return self.const(np.random.default_rng(seed + len(self.info)).standard_normal(shape))

    def op(self, op: str, *inputs: str, names: Sequence[str] = (), **attributes: Any) -> Any:
        """The result (a tuple of several) of an operator."""
        declared = operators().ops[op]
        operands = [self.info[v] if v else None for v in inputs]
        ranked = all(o is None or o.shape is not None for o in operands)
        applied = apply_op(declared, operators().fns, operands, attributes, DimTarget()) if ranked else None
        full: dict[str, Any] = {}
        for attr in declared.attrs:
            value = applied.env.values[attr.name] if applied else attributes[attr.name]
            if attr.type.kind == "real":
                value = tuple(map(_single, value)) if isinstance(value, tuple) else _single(value)
            full[attr.name] = int(value) if attr.type.kind == "bool" else value
        dtype = next(o.dtype for o in operands if o is not None)
        results: list[str] = []
        for declared_result, shape in zip(declared.results, applied.results if applied else [None], strict=True):
            for sh in shape if declared_result.variadic else (shape,):
                name = names[len(results)] if len(results) < len(names) else self.fresh()
                kind = "bool" if declared_result.type.dtype == "bool" else full.get("to", dtype)
                self.info[name] = ValueInfo(kind, sh)
                results.append(name)
        self.nodes.append(Node(op, inputs, tuple(results), tuple(sorted(full.items()))))
        return results[0] if len(results) == 1 else tuple(results)

    def opaque(self, op: str, *inputs: str, captures: Sequence[str] = ()) -> str:
        """A carried node that no rule may match."""
        name = self.fresh()
        self.info[name] = self.info[inputs[0]]
        self.nodes.append(Node(op, inputs, (name,), defined=False, origin=len(self.nodes), captures=tuple(captures)))
        return name

    def graph(self, *outputs: str) -> Graph:
        """The graph of what the outputs need."""
        needed = set(outputs)
        nodes: list[Node] = []
        for node in reversed(self.nodes):
            if not needed.isdisjoint(node.outputs):
                nodes.append(node)
                needed.update(node.operands())
        return Graph.build(nodes[::-1], self.inputs, outputs, self.info, self.constants)


def _single(value: Any) -> float:
    return float(np.float32(float(value)))


def run(graph: Graph, feeds: Mapping[str, Any]) -> list[np.ndarray]:
    """The outputs of a graph of defined operators on concrete inputs, in float64."""
    values: dict[str, Any] = {name: np.asarray(array, np.float64) for name, array in feeds.items()}
    rules = operators()

    def read(name: str) -> Any:
        return values[name] if name in values else graph.constants[name].array()

    for node in graph.topological():
        declared = rules.ops[node.op_type]
        types = {a.name: a.type.kind for a in declared.attrs}
        attributes = {n: bool(v) if types[n] == "bool" else v for n, v in node.attributes}
        results = evaluate_op(declared, rules.fns, [read(v) if v else None for v in node.inputs], attributes)
        values.update({name: r for name, r in zip(node.outputs, results, strict=True) if name})
    return [read(o) for o in graph.outputs]


def feeds_of(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    sizes = {name: [d if isinstance(d, int) else 2 for d in graph.shape(name) or ()] for name in graph.inputs}
    return {name: rng.standard_normal(size) for name, size in sizes.items()}


def same_results(before: Graph, after: Graph, tolerance: float = 1e-5) -> bool:
    """Whether two graphs agree on random inputs."""
    feeds = feeds_of(before)
    pairs = zip(run(before, feeds), run(after, feeds), strict=True)
    return all(a.shape == b.shape and np.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in pairs)


def well_formed(graph: Graph) -> bool:
    """Whether the graph's maps agree with its nodes and it has no cycle."""
    again = Graph.build(graph.nodes.values(), graph.inputs, graph.outputs, graph.info, graph.constants, graph.opset)
    seen = {*graph.inputs, *graph.constants}
    for node in graph.topological():
        if not seen.issuperset(node.operands()):
            return False
        seen.update(node.outputs)
    return again.hash == graph.hash and again.readers == graph.readers and again.producer == graph.producer
