"""Structure: what a proof goes through case by case, and how the choices of a case are found.

The elaboration of a rule asks a `Chooser` whenever structure is needed. Running it again and again, with one more
choice
each time, finds all the cases without the elaboration knowing of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tasodsl import syntax as s

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64", "bool",
)  # fmt: skip

STRUCTURAL = ("axis", "axes", "perm", "bool", "choice", "dtype")
"""Kinds of attributes whose values are gone through one by one."""

LENGTH = "length of "
OPERANDS = "operands of "


class NeedChoice(Exception):
    """The chooser was asked for more than its path says; `count` options are open."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


@dataclass(slots=True)
class Chooser:
    """Plays back a path of choices."""

    path: tuple[int, ...]
    at: int = 0
    made: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])

    def pick(self, what: str, options: Sequence[Any]) -> Any:
        if self.at == len(self.path):
            raise NeedChoice(len(options))
        chosen = options[self.path[self.at]]
        self.at += 1
        self.made.append((what, chosen))
        return chosen


def rank_of_choice(what: str, value: Any) -> int:
    """The smallest `max_rank` at which a choice is among the options."""
    if isinstance(value, bool) or not isinstance(value, int | tuple) or what.startswith(OPERANDS):
        return 0
    if isinstance(value, int):
        return (value + 1) // 2 if what.startswith(LENGTH) else value
    listed = cast(tuple[Any, ...], value)
    return max([len(listed), *(v + 1 for v in listed if isinstance(v, int))], default=0)


def asks_dtype(e: s.Expr, variable: str) -> bool:
    found = False
    stack: list[Any] = [e]
    while stack and not found:
        x = stack.pop()
        if isinstance(x, s.Call) and x.function == "dtype" and x.args == (s.Name(variable),):
            found = True
        elif isinstance(x, tuple):
            stack.extend(cast(tuple[Any, ...], x))
        elif isinstance(x, s.Tree):
            stack.extend(getattr(x, f) for f in x.__dataclass_fields__ if f != "span")
    return found


def conjuncts_of(e: s.Expr) -> list[s.Expr]:
    """The parts of a condition that are joined by `and`."""
    if isinstance(e, s.Binary) and e.op == "and":
        return [*conjuncts_of(e.left), *conjuncts_of(e.right)]
    return [e]
