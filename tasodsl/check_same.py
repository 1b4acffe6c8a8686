"""Rules that say the same: equal but for the names of what they bind."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import cast

from tasodsl import syntax as s
from tasodsl.diagnostics import Findings
from tasodsl.parts import name_span


def check_same(rules: Iterable[s.RuleDecl], out: Findings) -> None:
    """Reports each rule that an earlier one repeats."""
    seen: dict[Hashable, s.RuleDecl] = {}
    for rule in rules:
        first = seen.setdefault(canonical(rule), rule)
        if first is not rule:
            message = f"`{rule.name}` says the same as `{first.name}`"
            notes = ((name_span(first), "the first one"),)
            out.error("E0240", message, name_span(rule), "again", "remove one of the two", notes)


def canonical(rule: s.RuleDecl) -> Hashable:
    """What a rule says, with its names numbered in the order in which they come."""
    numbers: dict[str, int] = {}
    sides = _renamed((rule.match, rule.rewrite), numbers)
    # The order of `for` means nothing: variables go by their first use.
    variables = sorted(rule.variables, key=lambda v: numbers.get(v.name, len(numbers)))
    clauses = tuple(c for c in rule.clauses if isinstance(c, s.Where | s.LetScalar | s.LetTensor))
    return sides, _renamed(tuple(variables), numbers), _renamed(clauses, numbers), rule.both


_NAMES: Mapping[type[s.Tree], set[str]] = MappingProxyType(
    {
        s.Name: {"id"},
        s.Var: {"name"},
        s.Variadic: {"name"},
        s.VariadicMap: {"variable", "source"},
        s.Apply: {"rest"},
        s.Bind: {"names"},
        s.Operand: {"name"},
        s.LetScalar: {"name"},
        s.LetTensor: {"name"},
        s.Binder: {"name"},
        s.Comprehension: {"variable"},
        s.PerOperand: {"name"},
    }
)
"""The fields that hold names a rule chooses; other words (operators, attributes, functions) mean something."""


def _renamed(tree: object, numbers: dict[str, int], names: bool = False) -> Hashable:
    if isinstance(tree, str):
        return numbers.setdefault(tree, len(numbers)) if names and tree != "_" else tree
    if isinstance(tree, tuple):
        return tuple(_renamed(part, numbers, names) for part in cast("tuple[object, ...]", tree))
    if isinstance(tree, s.Tree):
        chosen = _NAMES.get(type(tree), set[str]())
        fields = [f for f in tree.__dataclass_fields__ if f not in ("span", "text")]
        return type(tree).__name__, *(_renamed(getattr(tree, f), numbers, f in chosen) for f in fields)
    return cast(Hashable, tree)
