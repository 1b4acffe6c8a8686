"""Questions about a graph that matching asks over and over: readers above a value, cycles, what a constant holds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from tasodsl.graph.dtypes import numpy_dtype
from tasodsl.graph.graph import Constant, Graph, NodeId
from tasodsl.syntax import DtypeClass

CLASSES: Mapping[DtypeClass, frozenset[str]] = MappingProxyType(
    {
        "float": frozenset({"float32", "float64"}),
        "half": frozenset({"float16", "bfloat16"}),
        "int": frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}),
        "bool": frozenset({"bool"}),
    }
)

NAMED = CLASSES["float"] | CLASSES["half"] | CLASSES["int"] | CLASSES["bool"]
"""The dtypes that rules speak of."""


def in_class(dtype: str, name: DtypeClass) -> bool:
    """Whether a tensor's element type belongs to a class of the language; an unknown one belongs to none."""
    return dtype != "" if name == "any" else dtype in CLASSES[name]


def above(graph: Graph, value: str, depth: int) -> tuple[NodeId, ...]:
    """The nodes that `value` reaches by exactly `depth` reads, sorted."""
    if depth == 1:
        return graph.readers.get(value, ())
    values = [value]
    found: set[NodeId] = set()
    for _ in range(depth):
        found = {r for v in values for r in graph.readers.get(v, ())}
        values = [o for r in found for o in graph.nodes[r].outputs if o]
    return tuple(sorted(found))


def private(graph: Graph, value: str, nodes: Collection[NodeId]) -> bool:
    """Whether nothing but `nodes` reads the value, and it is no graph output."""
    if value in graph.output_set:
        return False
    return all(reader in nodes for reader in graph.readers.get(value, ()))


def crosses(graph: Graph, start: str, values: Iterable[str]) -> bool:
    """Whether one of `values` is `start` or computed from it.

    Both ends are followed at once, and the one with fewer nodes ends the walk: one of them is often near a border.
    """
    goal = {v for v in values if v}
    if start in goal:
        return True
    down: set[NodeId] = set(graph.readers.get(start, ()))
    up: set[NodeId] = {p for v in goal if (p := graph.producer.get(v)) is not None}
    new_down, new_up = set(down), set(up)
    while new_down and new_up:
        if not down.isdisjoint(up):
            return True
        if len(new_down) <= len(new_up):
            outs = [o for n in new_down for o in graph.nodes[n].outputs if o]
            new_down = {r for o in outs for r in graph.readers.get(o, ())} - down
            down |= new_down
        else:
            ins = [v for n in new_up for v in graph.nodes[n].operands()]
            new_up = {p for v in ins if (p := graph.producer.get(v)) is not None} - up
            up |= new_up
    return not down.isdisjoint(up)


class ConstantFacts:
    """What constants hold, read once for each content."""

    def __init__(self) -> None:
        self._uniform: dict[str, float | None] = {}

    def uniform(self, constant: Constant) -> float | None:
        """The one finite number that every entry is; None where there is none (or no entry)."""
        if constant.key not in self._uniform:
            self._uniform[constant.key] = _uniform(constant)
        return self._uniform[constant.key]

    def equals(self, constant: Constant, number: Fraction | int) -> bool:
        """Whether every entry is `number` as the constant's dtype has it, or next to it."""
        held = self.uniform(constant)
        return held is not None and is_rounded(held, number, constant.dtype)


def _uniform(constant: Constant) -> float | None:
    if 0 in constant.shape or constant.dtype not in _NUMBERS:
        return None
    entries = constant.array().reshape(-1)
    first = entries[0]
    if entries[-1] != first or not np.all(entries == first):
        return None
    held = float(first)
    return held if np.isfinite(held) else None


_NUMBERS = CLASSES["float"] | CLASSES["half"] | CLASSES["int"]


def is_rounded(held: float, number: Fraction | int, dtype: str) -> bool:
    """Whether `held`, an entry of a tensor of `dtype`, is `number` rounded to that dtype, or next to that."""
    if dtype in CLASSES["int"]:
        return held == number
    kind = numpy_dtype(dtype).type
    with np.errstate(over="ignore"):
        rounded = kind(float(number))
    if not np.isfinite(rounded):
        return False
    low, high = (float(np.nextafter(rounded, kind(end))) for end in (-np.inf, np.inf))
    return low <= held <= high
