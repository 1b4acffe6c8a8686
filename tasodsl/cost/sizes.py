"""Numbers for symbolic dimensions: kernels are measured at one representative size of every free dimension."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def representative(
    graph: Graph, dims: Mapping[str, int] | None = None, observed: Mapping[str, tuple[int, ...]] | None = None
) -> Sizes:
    """Sizes for the graph's symbols: the person's `dims` first, then 1 for a free leading input dim, else the default.

    `dims` names a symbol, or an input's axis as INPUT.AXIS. `observed` holds shapes that values had in a real run: they
    go before the defaults, and a dim that shape inference could not express by the inputs' dims is read off there.
    """
    given = dict(dims or {})
    symbols = dict(given)
    seen = observed or {}
    for name in (*graph.inputs, *sorted(seen)):
        sizes = seen.get(name)
        for axis, dim in enumerate(graph.shape(name) or ()):
            for symbol in _plain_symbols([dim]):
                free = DEFAULT_SIZE if axis else 1
                size = sizes[axis] if sizes is not None and axis < len(sizes) else free
                symbols.setdefault(symbol, given.get(f"{name}.{axis}", size))
    return Sizes(symbols)


def values_to_observe(graph: Graph) -> set[str]:
    """Values with a dim that nothing but a run can tell: one of a free size that no input has."""
    known = {s for name in graph.inputs for s in _plain_symbols(graph.shape(name) or ())}
    return {v for v, info in graph.info.items() if set(_plain_symbols(info.shape or ())) - known}


def _plain_symbols(dims: Iterable[Dim]) -> list[str]:
    """The names of those dims that are one symbol and nothing else."""
    found: list[str] = []
    for dim in dims:
        if isinstance(dim, SymDim) and dim.constant == 0 and len(dim.terms) == 1:
            match dim.terms[0]:
                case ((("sym", str(name)),), 1):
                    found.append(name)
                case _:
                    pass
    return found
