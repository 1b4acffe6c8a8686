"""What a matcher demands of a place before its rule may fire there, in words.

The list is made from the predicates that the generated code is made from, so that it can be compared with the
hypotheses of the rule's proof. Structure (which operator stands where) is left out: it is the pattern itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from tasodsl import syntax as s
from tasodsl.layout import layout
from tasodsl.match.cases import cases_of
from tasodsl.match.pattern import Pattern
from tasodsl.match.predicates import EITHER, Position, Predicate, Program, flatten
from tasodsl.print_expr import expr, tensor_type

_WIDTH = 10_000


def describe(pattern: Pattern) -> list[str]:
    """The hypotheses that are checked, each once, sorted."""
    found: set[str] = set()
    for case in cases_of(pattern):
        program = flatten(pattern, case)
        where = _Places(program)
        for predicate in program.predicates:
            found.update(where.told(predicate))
        found.update(_ending(program))
    return sorted(found)


class _Places:
    """Names for the positions of one case."""

    def __init__(self, program: Program) -> None:
        members = {m: v for v, group in program.case.groups for m in group}
        asked = [p for p in program.predicates if p.question.kind in ("operator", "maker")]
        self.operators = {p.question.at: str(p.answer) for p in asked}
        self.variables: dict[Position, str] = {}
        for name, at in program.bound.variables.items():
            self.variables[at] = f"each of {members[name]}" if name in members else name

    def operand(self, at: Position) -> str:
        """A variable's name, or the operand by its operator and number."""
        if at in self.variables:
            return self.variables[at]
        if at[-1] >= EITHER:
            return f"an operand of {self.operators[at[:-1]]}"
        return f"operand {at[-1]} of {self.operators[at[:-1]]}"

    def told(self, predicate: Predicate) -> Iterator[str]:
        q = predicate.question
        match q.kind:
            case "attribute":
                yield f"{self.operators[q.at]}'s {q.more[2]} is {_value(predicate.answer)}"
            case "entries":
                yield f"{self.operators[q.at]}'s {q.more[2]} has at most {q.more[1]} entries"
            case "known dtype":
                yield f"{self.operators[q.at]}'s {q.more[1]} is a number's dtype"
            case "operands between":
                at_most = int(q.more[1]) - int(q.more[0]) + 1
                yield f"a variadic of {self.operators[q.at]} has at most {at_most} operands"
            case "constant":
                yield f"{self.operand(q.at)} is a constant"
            case "number":
                yield f"every entry of {self.operand(q.at)} is {_value(q.more[0])}"
            case "rank":
                yield f"{self.operand(q.at)} has {predicate.answer} dimensions"
            case "ranks":
                yield f"{self.operand(q.at)} has {q.more[0]} to {q.more[1]} dimensions"
            case "result ranks":
                yield f"the results of {self.operators[q.at]} have at most {q.more[0]} dimensions"
            case "dtype":
                yield f"{self.operand(q.at)} is {q.more[0]}"
            case _:
                return


def _ending(program: Program) -> Iterator[str]:
    """What is asked once all names are bound."""
    pattern, bound = program.pattern, program.bound
    groups = {name for name, _ in program.case.groups}
    for name, declared in pattern.variables.items():
        listed = name in bound.lists or name in groups
        if not listed and name not in bound.variables:
            continue
        who = f"each of {name}" if listed else name
        yield f"{who} has the shape {layout(tensor_type(declared.type), _WIDTH)}"
        if listed:
            yield f"{who} is {declared.type.dtype or 'float'}"
            yield f"..{name} has at most {pattern.scope.max_arity} operands"
        if listed and declared.const:
            yield f"{who} is a constant"
        if isinstance(declared.value, s.Name) and declared.value.id not in pattern.computed:
            yield f"every entry of {name} is one number, {declared.value.id}"
    for fact in pattern.facts:
        yield f"where {layout(expr(fact), _WIDTH)}"
    for deferred in bound.deferred:
        yield f"{deferred.op}'s {deferred.name} is {layout(expr(deferred.stated), _WIDTH)}"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, cast(tuple[object, ...], value)))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
