"""Numbers for symbolic dimensions: kernels are measured at one representative size of every free dimension."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tasodsl.feeds import FREE_SIZES
from tasodsl.graph.dims import Dim, Shape, SymDim
from tasodsl.graph.graph import Graph

DEFAULT_SIZE = FREE_SIZES[0]


class NoSize(Exception):
    """A dimension has no sensible size (it came out negative, or divides by zero)."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """A size for every symbol; symbols that nobody named have the default one."""

    symbols: Mapping[str, int] = field(default_factory=dict[str, int])

    def size(self, dim: Dim) -> int:
        """The dimension's value; NoSize when it has none."""
        value = dim if isinstance(dim, int) else self._linear(dim)
        if value < 0:
            raise NoSize(str(dim))
        return value

    def shape(self, shape: Shape) -> tuple[int, ...]:
        return tuple(self.size(d) for d in shape)

    def _linear(self, dim: Dim) -> int:
        if isinstance(dim, int):
            return dim
        total = dim.constant
        for atoms, factor in dim.terms:
            for atom in atoms:
                factor *= self._atom(atom)
            total += factor
        return total

    def _atom(self, atom: object) -> int:
        match atom:
            case ("sym", str(name)):
                return self.symbols.get(name, DEFAULT_SIZE)
            case ("//", int() | SymDim() as dividend, int() | SymDim() as divisor):
                below = self._linear(divisor)
                if below <= 0:
                    raise NoSize(str(divisor))
                return self._linear(dividend) // below
            case _:
                raise NoSize(repr(atom))


def representative(graph: Graph, dims: Mapping[str, int] | None = None) -> Sizes:
    """Sizes for the graph's symbols: `dims` first, then those noted on import, then 1 for a free leading input dim.

    `dims` names a symbol, or an input's axis as INPUT.AXIS.
    """
    symbols = {**graph.sizes, **(dims or {})}
    for name in graph.inputs:
        for axis, dim in enumerate(graph.shape(name) or ()):
            if isinstance(dim, int):
                continue
            free = DEFAULT_SIZE if axis else 1
            symbols.setdefault(str(dim), symbols.get(f"{name}.{axis}", free))
    return Sizes(symbols)
