"""`example` and `reject`: the match side is built with the sizes given, and the matcher is asked.

An `example` must be matched and rewritten, and both sides must agree, by the definitions and in onnxruntime. A `reject`
must not be matched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from random import Random
from typing import cast

import numpy as np

from tasodsl import syntax as s
from tasodsl.graph.graph import Constant, Graph, ValueInfo
from tasodsl.match.compiled import CompiledRules, compile_rules
from tasodsl.match.pattern import Scope, subterms
from tasodsl.match.target import TARGET
from tasodsl.prove.instances import KINDS, Arrays, Choices, Instance, build, draw, left_values, right_values
from tasodsl.prove.model import NodeMaker, run_side, typed, value_names
from tasodsl.prove.obligations import Pattern, pattern_of
from tasodsl.prove.refute import RUNTIME_TOLERANCE, differs, evaluated, folded
from tasodsl.prove.suggest import suggestions
from tasodsl.prove.walk import Walk
from tasodsl.ruleset import RuleSet
from tasodsl.runtime import RuntimeRefused
from tasodsl.scalar import evaluate
from tasodsl.source import Span
from tasodsl.values import Environment, Mismatch, Value

ATTEMPTS = 800
HINTS = 40
ENOUGH = 12
"""Instances among which the one with the most distinct sizes is taken."""
WIDEST = Scope(max_rank=8, max_arity=8)
"""An example is about the pattern, not about how far its proof goes."""


def example_faults(rule: s.RuleDecl, rules: RuleSet) -> list[tuple[Span, str]]:
    """The examples that are not as they say, each with what is wrong."""
    if not rule.examples:
        return []
    pattern = pattern_of(rule)
    matcher = compile_rules(rules, [rule], {rule.name: WIDEST}, lambda op, dtype: True)
    out: list[tuple[Span, str]] = []
    for example in rule.examples:
        why = _fault(example, pattern, rules, matcher)
        if why:
            out.append((example.span, why))
    return out


def _fault(example: s.Example, pattern: Pattern, rules: RuleSet, matcher: CompiledRules) -> str:
    """What is wrong with an example; empty when nothing is."""
    instance = _built(example, pattern, rules)
    if instance is None:
        return "no match side has these sizes"
    entries = _valid_entries(instance, example.kind == "example")
    if entries is None:
        return "no entries that were tried make finite numbers"
    graph = as_graph(instance, entries)
    matches = [m for m in matcher.matches(graph) if m.rule == pattern.name]
    if example.kind == "reject":
        return "it is matched, and should not be" if matches else ""
    if not matches:
        miss = matcher.why_not(graph, pattern.name)
        return "it is not matched" + (f": not so: {miss.condition}" if miss is not None else "")
    if all(matcher.apply(graph, m) is None for m in matches):
        return "it is matched, and the rewrite is refused"
    return _disagreement(instance, entries)


def _built(example: s.Example, pattern: Pattern, rules: RuleSet) -> Instance | None:
    """An instance with the sizes given; of what is chosen, the sizes are distinct where that fits. A `reject` need not
    fulfil the conditions."""
    given = _given(example, pattern)
    found: list[Instance] = []
    for choices in _attempts(given, pattern, rules):
        with suppress(Mismatch):
            found.append(build(pattern, rules, choices, example.kind == "example"))
        if len(found) == ENOUGH or choices.made.keys() <= given.keys():
            break
    return max(found, key=_distinct, default=None)


def _attempts(given: Mapping[str, Value], pattern: Pattern, rules: RuleSet) -> Iterator[Choices]:
    rng = Random(pattern.name)
    for _ in range(ATTEMPTS):
        yield Choices(given, rng, size=5, usual=True)
    for hint in islice(suggestions(pattern, rules, _scope_of(given)), HINTS):
        yield Choices({**hint, **given}, rng, size=5, usual=True)


def _scope_of(given: Mapping[str, Value]) -> Scope:
    ranks = [v for name, v in given.items() if name.startswith("rank of ")]
    return Scope(max(4, *ranks, 0) + 1, 4)


def _distinct(instance: Instance) -> tuple[int, int, int]:
    tensors = [*instance.operands().values(), *instance.left.values()]
    sizes = [d for t in tensors for d in t.shape]
    return -sizes.count(0), len(set(sizes)), -instance.elements


def _given(example: s.Example, pattern: Pattern) -> dict[str, Value]:
    """The bindings by the names of choices: a name may stand for a size, a pack, an attribute, a number, the presence
    of an operand or the number of operands, and only one of these is asked for."""
    rests = {t.rest for b in pattern.match for t in subterms(b.term) if isinstance(t, s.Apply) and t.rest}
    out: dict[str, Value] = {}
    for name, expr in example.bindings:
        value = evaluate(expr, Environment(), TARGET)
        out |= {f"{name} present": value, f"operands of {name}": value}
        for label in (name, *(f"{rest}.{name}" for rest in rests)):
            out[label] = value
            if isinstance(value, tuple):
                listed = cast(tuple[Value, ...], value)
                out |= {f"rank of {label}": len(listed), f"length of {label}": len(listed)}
                out |= {f"{label}[{k}]": v for k, v in enumerate(listed)}
    return out


def _valid_entries(instance: Instance, folds: bool) -> Arrays | None:
    """Entries that the match side accepts and of which finite numbers are made, in folds too."""
    for seed in range(8):
        for kind in KINDS[::-1]:
            entries = draw(instance, np.random.default_rng(seed), kind)
            try:
                left = left_values(instance, entries)
                if folds and right_values(instance, entries, left) is None:
                    continue
            except Mismatch:
                continue
            if all(np.isfinite(array.astype(np.float64)).all() for array in left.values()):
                return entries
    return None


def as_graph(instance: Instance, entries: Arrays) -> Graph:
    """The match side as a graph: `const` operands are constants, the others inputs."""
    arrays = typed(instance, entries)
    info = {name: ValueInfo(t.dtype, t.shape) for name, t in instance.operands().items()}
    maker = NodeMaker(instance.rules, dict(info))
    env = instance.environment(value_names(entries))
    results = Walk(instance.rules, maker, env, dict(instance.rests)).side(instance.pattern.match)
    const = {v.name for v in instance.pattern.variables if v.const}
    constants = {n: Constant.of(a, info[n].dtype) for n, a in arrays.items() if n.partition("[")[0] in const}
    inputs = [name for name in arrays if name not in constants]
    rewritten = {name for bind in instance.pattern.rewrite for name in bind.names}
    outputs = [value for name, value in results.items() if name in rewritten]
    return Graph.build(maker.nodes, inputs, outputs, maker.info, {**constants, **maker.constants})


def _disagreement(instance: Instance, entries: Arrays) -> str:
    found = evaluated(instance, entries)
    if found is not None:
        return found.reason
    pattern = instance.pattern
    try:
        left = run_side(instance, pattern.match, entries, {})
        right = run_side(instance, pattern.rewrite, entries, folded(instance, entries, left_values(instance, entries)))
    except RuntimeRefused:
        return ""  # it lacks a kernel of one of the operators
    for name in left.keys() & right.keys():
        if differs(left[name], right[name], RUNTIME_TOLERANCE):
            return f"{name} differs in onnxruntime"
    return ""
