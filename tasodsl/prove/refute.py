"""Engine 4: the two sides of a rule evaluated on random instances, in search of one on which they differ.

A counterexample is an instance that the match side accepts and on which the rewrite side is not valid, has another
type, or has another value than rounding explains. It is made as small as it goes before it is shown, and onnxruntime is
asked whether it sees the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tasodsl import syntax as s
from tasodsl.elaborate import names
from tasodsl.evaluate import evaluate_tensor
from tasodsl.match.pattern import subterms
from tasodsl.match.target import TARGET
from tasodsl.prove.instances import (
    KINDS,
    Arrays,
    Choices,
    Instance,
    build,
    draw,
    left_values,
    members,
    right_values,
)
from tasodsl.prove.model import run_side
from tasodsl.prove.obligations import Pattern
from tasodsl.prove.verdict import Counterexample
from tasodsl.ruleset import RuleSet
from tasodsl.runtime import RuntimeRefused
from tasodsl.scalar import evaluate
from tasodsl.source import Span
from tasodsl.values import Environment, Mismatch, Value

Array = NDArray[Any]

TOLERANCE = 1e-6
"""Of the scale of the values: what float64 cannot lose in a sum of a few products."""
RUNTIME_TOLERANCE = 1e-3
AXIOM_SIDES = "left and right"
"""The name that a pattern made of an axiom gives to both sides."""
LARGEST = 600
"""Instances with more entries than this show no more than smaller ones."""


UNCONFIRMED = 3
"""Counterexamples after the first that are tried when onnxruntime does not confirm it."""
REPEATS = 12
"""Draws of entries for an instance that is to be a smaller counterexample."""
LEVELS = 3
"""Sizes, ranks and numbers of operands grow in so many steps."""


Hints = Iterable[Mapping[str, Value]]


@dataclass(frozen=True, slots=True)
class Effort:
    """How many instances are tried. The numbers are counts, not seconds, so that a verdict does not depend on load."""

    attempts: int
    """Random choices, most of which the match side refuses."""
    instances: int
    """Valid instances."""


SHORT = Effort(attempts=200, instances=6)
LONG = Effort(attempts=3000, instances=150)


@dataclass(frozen=True, slots=True)
class Difference:
    """What one instance shows. The arrays are by variable and by result; a result the rewrite side lacks is missing."""

    instance: Instance
    reason: str
    span: Span
    entries: Arrays
    left: Arrays
    right: Arrays


def refute(
    pattern: Pattern,
    rules: RuleSet,
    effort: Effort,
    hints: Hints = (),
    likely: Hints = (),
    seed: int = 0,
) -> Counterexample | None:
    """A counterexample, as small as was found. `hints` are choices to try when random ones seldom fit,
    `likely` ones to try in any case."""
    fallback: Counterexample | None = None
    for k, found in enumerate(differences(pattern, rules, effort, hints, likely, seed)):
        example = shown(_simpler_entries(_smaller(found)))
        if example.confirmed:
            return example
        fallback = fallback or example
        if k == UNCONFIRMED:
            break
    return fallback


def differences(
    pattern: Pattern, rules: RuleSet, effort: Effort, hints: Hints, likely: Hints, seed: int
) -> Iterator[Difference]:
    """Instances on which the sides differ: small ones first, those with empty tensors last."""
    empty: list[Difference] = []
    for instance in instances(pattern, rules, effort, hints, likely, seed):
        found = difference(instance)
        if found is None:
            continue
        if _empties(instance):
            empty.append(found)
        else:
            yield found
    yield from empty


def instances(
    pattern: Pattern, rules: RuleSet, effort: Effort, hints: Hints = (), likely: Hints = (), seed: int = 0
) -> Iterator[Instance]:
    """Valid instances, the smaller ones first, each once."""
    rng = Random(f"{seed} {pattern.name}")
    valid = 0
    seen: set[tuple[tuple[str, Value], ...]] = set()

    def fresh(choices: Choices) -> Instance | None:
        try:
            instance = build(pattern, rules, choices)
        except Mismatch:
            return None
        key = tuple(sorted(choices.made.items(), key=lambda item: item[0]))
        if key in seen or instance.elements > LARGEST:
            return None
        seen.add(key)
        return instance

    for level in range(LEVELS):
        for _ in range(effort.attempts // LEVELS):
            made = fresh(Choices({}, rng, size=2 + level, rank=2 + level // 2, arity=2 + level // 2))
            if made is not None:
                valid += 1
                yield made
            if valid >= effort.instances * (level + 1) // LEVELS:
                break
    for hint in likely:
        made = fresh(Choices(hint, rng))
        if made is not None:
            yield made
    if valid >= effort.instances:
        return
    for hint in hints:
        made = fresh(Choices(hint, rng))
        if made is not None:
            valid += 1
            yield made
        if valid >= effort.instances:
            return


def difference(instance: Instance, draws: int = 2) -> Difference | None:
    """What is wrong with this instance: seen in two draws of entries, so that it is no accident of rounding."""
    for kind in KINDS:
        for k in range(draws):
            first = _drawn(instance, kind, k)
            if first is None:
                continue
            if instance.problem is not None or any(_drawn(instance, kind, k + j) for j in range(1, REPEATS)):
                return first
            break
    return None


def _drawn(instance: Instance, kind: str, seed: int) -> Difference | None:
    """The difference on one draw of entries; None also where the match side does not accept them."""
    entries = draw(instance, np.random.default_rng([seed, KINDS.index(kind)]), kind)
    return evaluated(instance, entries)


def evaluated(instance: Instance, entries: Arrays) -> Difference | None:
    try:
        left = left_values(instance, entries)
    except Mismatch:
        return None
    if instance.problem is not None:
        reason, span = instance.problem
        return Difference(instance, reason, span, entries, left, {})
    try:
        right = right_values(instance, entries, left)
    except Mismatch as mismatch:
        reason = f"the rewrite side is not valid: {mismatch}"
        return Difference(instance, reason, instance.pattern.rewrite[0].span, entries, left, {})
    if right is None:
        return None
    for bind in instance.pattern.rewrite:
        for name in bind.names:
            if name in left and name in right and differs(left[name], right[name]):
                reason = "the two sides differ" if name == AXIOM_SIDES else f"{name} differs"
                return Difference(instance, reason, bind.span, entries, left, right)
    return None


def differs(left: Array, right: Array, tolerance: float = TOLERANCE) -> bool:
    """Whether some finite entry on the left has another value on the right."""
    if left.shape != right.shape:
        return True
    if left.dtype.kind in "biu" and right.dtype.kind in "biu":
        return not np.array_equal(left, right)
    a, b = left.astype(np.float64), right.astype(np.float64)
    finite = np.isfinite(a)
    both = finite & np.isfinite(b)
    if (finite & ~both).any():
        return True
    scale = max(1.0, float(np.abs(a[both]).max(initial=0)), float(np.abs(b[both]).max(initial=0)))
    return bool((np.abs(a[both] - b[both]) > tolerance * scale).any())


# --- making it smaller ---


def _smaller(found: Difference) -> Difference:
    """Simpler choices, one or two at a time, while there is still a difference."""
    best = found
    improved = True
    while improved:
        improved = False
        for changes in _changes(best.instance.choices):
            candidate = _again(best, {**best.instance.choices, **changes})
            if candidate is not None and _weight(candidate.instance) < _weight(best.instance):
                best, improved = candidate, True
                break
    return best


def _changes(choices: Mapping[str, Value]) -> Iterator[dict[str, Value]]:
    """Single choices made simpler, then pairs of equal sizes: they often have to agree."""
    for name, value in choices.items():
        yield from ({name: simpler} for simpler in _simpler(value))
    sizes = [(name, value) for name, value in choices.items() if type(value) is int and value > 1]
    for (a, n), (b, m) in itertools.combinations(sizes, 2):
        if n == m:
            yield {a: n - 1, b: n - 1}


def _again(found: Difference, choices: Mapping[str, Value]) -> Difference | None:
    old = found.instance
    try:
        instance = build(old.pattern, old.rules, Choices(choices))
    except Mismatch:
        return None
    if (instance.problem is None) != (old.problem is None) or _empties(instance) > _empties(old):
        return None
    return difference(instance, REPEATS)


def _empties(instance: Instance) -> int:
    """How many sizes are 0: such instances are hard to read, and runtimes often refuse them."""
    return sum(d == 0 for t in instance.operands().values() for d in t.shape)


def _simpler(value: Value) -> list[Value]:
    """Values to try in the place of a choice, the simplest first."""
    if isinstance(value, bool):
        return [False] if value else []
    if isinstance(value, int):
        return [v for v in (1, 0, 2, value - 1, abs(value)) if v != value]
    if isinstance(value, Fraction):
        return [Fraction(v) for v in (1, 0, 2) if v != value]
    return []


def _weight(instance: Instance) -> tuple[float, float]:
    """What is to be made small: the entries, then the numbers chosen."""
    numbers = sum(abs(float(v)) + (v < 0) for v in instance.choices.values() if isinstance(v, int | Fraction))
    return instance.elements + _empties(instance), numbers


def _simpler_entries(found: Difference) -> Difference:
    """Entries made 0 or 1, one after another, while there is still a difference."""
    declared = {v.name: v for v in found.instance.pattern.variables}
    best = found
    for name, array in members(found.entries):
        variable = name.partition("[")[0]
        if declared[variable].value is not None or array.size > 64:
            continue
        for place in np.ndindex(*array.shape):
            for simple in (0, 1, 2, -1):
                current = dict(members(best.entries))[name]
                if current[place] == simple:
                    break
                changed = current.copy()
                changed[place] = simple
                candidate = evaluated(best.instance, _with(best.entries, name, changed))
                if candidate is not None:
                    best = candidate
                    break
    return best


def _with(entries: Arrays, name: str, array: Array) -> Arrays:
    variable, _, rest = name.partition("[")
    if not rest:
        return {**entries, name: array}
    listed = cast(tuple[Array, ...], entries[variable])
    place = int(rest[:-1])
    return {**entries, variable: (*listed[:place], array, *listed[place + 1 :])}


# --- showing it ---


def shown(found: Difference) -> Counterexample:
    """The difference with what onnxruntime says of it."""
    runtime, confirmed, fault = _ask_runtime(found)
    return Counterexample(
        found.reason,
        found.span,
        _settings(found.instance),
        tuple(members(found.entries)),
        _results(found.left),
        _results(found.right),
        runtime,
        confirmed,
        fault,
    )


def _results(arrays: Arrays) -> tuple[tuple[str, Array], ...]:
    return tuple(("result" if name == AXIOM_SIDES else name, array) for name, array in members(arrays))


def _settings(instance: Instance) -> tuple[tuple[str, str], ...]:
    """The names that are neither sizes nor packs, and what `..a` took where that is not the default."""
    shapes = {n for v in instance.pattern.variables for d in v.type.dims for n in _dim_names(d)}
    out = [(name, value_text(value)) for name, value in instance.values.items() if name not in shapes]
    for rest, taken in instance.rests.items():
        usual = _defaults(instance, rest)
        out.extend((f"{rest}.{name}", value_text(v)) for name, v in taken.items() if v != usual.get(name))
    return tuple(out)


def _defaults(instance: Instance, rest: str) -> dict[str, Value]:
    """The default values of the attributes that `..rest` takes."""
    for term in (t for b in instance.pattern.match for t in subterms(b.term)):
        if isinstance(term, s.Apply) and term.rest == rest:
            declared = instance.rules.ops[term.op].attrs
            return {a.name: evaluate(a.default, Environment(), TARGET) for a in declared if a.default is not None}
    return {}


def _dim_names(part: s.Expr | s.Splice | s.PerOperand) -> set[str]:
    return {part.name} if isinstance(part, s.PerOperand) else names(part)


def value_text(value: Value) -> str:
    """A value as the language writes it."""
    if isinstance(value, tuple):
        listed = cast(tuple[Value, ...], value)
        return "[" + ", ".join(map(value_text, listed)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Fraction | float):
        return f"{float(value):.6g}" if value != int(value) else f"{int(value)}.0"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _ask_runtime(found: Difference) -> tuple[str, bool, bool]:
    """What it says, whether that confirms the difference, and whether a definition is at fault."""
    pattern = found.instance.pattern
    try:
        left = run_side(found.instance, pattern.match, found.entries, {})
    except RuntimeRefused as refused:
        return f"onnxruntime cannot run the match side: {refused}", False, False
    for name, array in found.left.items():
        if name in left and differs(array, left[name], RUNTIME_TOLERANCE):
            return f"onnxruntime gives another {name} for the match side than the definitions", False, True
    try:
        right = run_side(
            found.instance, pattern.rewrite, found.entries, folded(found.instance, found.entries, found.left)
        )
    except RuntimeRefused as refused:
        if found.right:
            return f"onnxruntime cannot run the rewrite side: {refused}", False, False
        return "confirmed by onnxruntime, which refuses the rewrite side", True, False
    outputs = [n for b in pattern.rewrite for n in b.names if n in left and n in right]
    if any(differs(left[n], right[n], RUNTIME_TOLERANCE) for n in outputs):
        return "confirmed by onnxruntime", True, False
    return "not confirmed: onnxruntime gives the same on both sides", False, False


def folded(instance: Instance, entries: Arrays, left: Arrays) -> Arrays:
    """The compile-time tensors, by name."""
    env = instance.environment({**entries, **left})
    out: Arrays = {}
    for let in instance.pattern.lets:
        if isinstance(let, s.LetTensor):
            out[let.name] = env.tensors[let.name] = evaluate_tensor(let, env)
    return out
