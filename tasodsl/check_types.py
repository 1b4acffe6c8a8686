"""Kinds of values and what names stand for, as far as a checker can be certain of them without sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from tasodsl import syntax as s


@dataclass(frozen=True, slots=True)
class Kind:
    """What an expression computes. `unknown` goes with everything; of a list, its length and elements where known."""

    name: Literal["int", "real", "bool", "string", "list", "unknown"]
    element: Kind | None = None
    length: int | None = None

    def __str__(self) -> str:
        words = {"int": "a whole number", "real": "a real number", "bool": "a condition", "string": "a string"}
        if self.name != "list":
            return words.get(self.name, "a value")
        return "a list" if self.length is None else f"a list of {self.length}"

    @property
    def number(self) -> bool:
        return self.name in ("int", "real", "unknown")

    def may_be(self, other: Kind) -> bool:
        """Whether a value of this kind may stand where `other` is wanted: not so only if that is certain."""
        if "unknown" in (self.name, other.name):
            return True
        if self.name == "int" and other.name == "real":
            return True
        if self.name != other.name:
            return False
        if self.length is not None and other.length is not None and self.length != other.length:
            return False
        return self.element is None or other.element is None or self.element.may_be(other.element)


UNKNOWN = Kind("unknown")
INT = Kind("int")
REAL = Kind("real")
BOOL = Kind("bool")
STRING = Kind("string")
LIST = Kind("list")
INTS = Kind("list", INT)


def joined(a: Kind, b: Kind) -> Kind | None:
    """The kind of a value that is one or the other; None where no value is both."""
    if a == b:
        return a
    if "unknown" in (a.name, b.name):
        return UNKNOWN
    if a.number and b.number:
        return REAL
    if a.name != b.name:
        return None
    element = joined(a.element, b.element) if a.element and b.element else None
    return Kind("list", element, a.length if a.length == b.length else None)


def attr_kind(type_: s.AttrType) -> Kind:
    """What an attribute of a type holds."""
    ints: Mapping[str, Kind] = {"int": INT, "axis": INT, "axes": INTS, "perm": INTS}
    others: Mapping[str, Kind] = {"real": REAL, "bool": BOOL, "dtype": STRING, "choice": STRING}
    kind = ints.get(type_.kind) or others[type_.kind]
    if type_.length is None:
        return kind
    return Kind("list", kind, type_.length.value if isinstance(type_.length, s.Int) else None)


def entry_kind(dtype: s.DtypeClass | None) -> Kind:
    """What an entry of a tensor is."""
    kinds: Mapping[str, Kind] = {"float": REAL, "half": REAL, "int": INT, "bool": BOOL, "any": UNKNOWN}
    return kinds[dtype or "float"]


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks a tensor may have; `most` is None where there is no bound."""

    least: int = 0
    most: int | None = None

    def __str__(self) -> str:
        if self.least == self.most:
            return f"rank {self.least}"
        if self.most is None:
            return f"rank {self.least} or more"
        return f"rank {self.least} to {self.most}"

    def meets(self, other: Ranks) -> bool:
        """Whether a tensor may have a rank of both."""
        low = max(self.least, other.least)
        return all(r.most is None or low <= r.most for r in (self, other))


def ranks_of(type_: s.TensorType) -> Ranks:
    """The ranks that a shape allows, its packs being of any rank."""
    plain = sum(not isinstance(d, s.Splice) for d in type_.dims)
    return Ranks(plain, plain if plain == len(type_.dims) else None)


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a tensor's name stands for."""

    ranks: Ranks = Ranks()
    dtype: s.DtypeClass | None = None
    """None where it is not known."""
    const: bool = False
    optional: bool = False
    variadic: bool = False

    @staticmethod
    def declared(operand: s.Operand) -> Tensor:
        type_ = operand.type
        return Tensor(ranks_of(type_), type_.dtype or "float", operand.const, operand.optional, operand.variadic)


@dataclass(frozen=True, slots=True)
class Scope:
    """Names in scope. Tensors have a namespace of their own: an operator may have a pack and an operand called `B`.

    `later` holds names that a clause further down binds.
    """

    fns: Mapping[str, s.FnDecl]
    values: Mapping[str, Kind] = field(default_factory=dict[str, Kind])
    tensors: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    later: frozenset[str] = frozenset()
    depth: int = 0
    """How many calls deep the expression at hand is looked at."""

    def with_values(self, values: Mapping[str, Kind]) -> Scope:
        return replace(self, values={**self.values, **values})

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Scope:
        return replace(self, tensors={**self.tensors, **tensors})

    def before(self, later: frozenset[str]) -> Scope:
        return replace(self, later=later)
