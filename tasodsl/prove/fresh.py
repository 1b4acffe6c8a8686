"""Each `_` of a match side gets a name of its own, since `_` stands for something else wherever it is written."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

from tasodsl import syntax as s

T = TypeVar("T")


def with_fresh_names(tree: T, numbers: Iterator[int] | None = None) -> T:
    """`tree`, an operand, a bind or a tuple of such, with names in it that no text can contain instead of `_`."""
    counter = itertools.count(1) if numbers is None else numbers
    return cast(T, _renamed(tree, counter))


def _renamed(tree: Any, numbers: Iterator[int]) -> Any:
    if isinstance(tree, s.Name):
        return replace(tree, id=f"_{next(numbers)}'") if tree.id == "_" else tree
    if isinstance(tree, tuple):
        parts = cast(tuple[Any, ...], tree)
        return tuple(_renamed(part, numbers) for part in parts)
    if isinstance(tree, s.Tree):
        values = {f.name: getattr(tree, f.name) for f in fields(tree) if f.name != "span"}
        return replace(tree, **{name: _renamed(value, numbers) for name, value in values.items()})
    return tree
