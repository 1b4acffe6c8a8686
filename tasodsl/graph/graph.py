"""The light immutable graph that matchers read and the search rewrites.

Everything the search does not understand stays in the carried model (`onnx_in`): a `Node` then only names its origin.
Values are called by name. A value name means one thing for ever: a rewrite keeps the names of the values it replaces,
and new inner values get fresh names made from the hash of their definition, so that independent rewrites commute and
two candidates with the same hash are the same graph (DESIGN: the sum of hash(value, definition) modulo 2**128).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import immutables
import numpy as np
import onnx

from tasodsl.graph.dims import Dim, Shape, Undecided, substitute
from tasodsl.graph.dtypes import bit_width

AttributeValue = int | float | str | bool | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
NodeId = str
HASH_MODULUS = 1 << 128


@dataclass(frozen=True, slots=True)
class Node:
    """One operator call.

    `inputs` and `outputs` hold value names, "" for an absent optional operand or an unused output. `attributes` is
    sorted by name. A node is `defined` when a rule may match it: its operator has a `def`, and the node is in that
    definition's normal form (every declared attribute present, axes non-negative, operands such as `axes` turned into
    attributes).
    `origin` is the index of the model's own node that this node came from (it may since read or write other names), or
    -1 for a node made by a rewrite. `captures` are the outer values that subgraphs of this node read: they count as
    readers. A node that is not defined has its plain attributes only; the rest is in its `Original`.
    """

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    domain: str = ""
    defined: bool = True
    origin: int = -1
    captures: tuple[str, ...] = ()

    @property
    def id(self) -> NodeId:
        """The node's identity in its graph: its first used output (every node has one)."""
        return next(o for o in self.outputs if o)

    def attribute(self, name: str) -> AttributeValue:
        """The attribute `name`; KeyError when the node has none."""
        for key, value in self.attributes:
            if key == name:
                return value
        raise KeyError(name)

    def operands(self) -> tuple[str, ...]:
        """All values the node reads, captured ones included, absent operands left out."""
        return tuple(v for v in (*self.inputs, *self.captures) if v)


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """What is known of a value: its element type ("float32", "int64", "bool", "string", … or "" when it is no tensor or
    unknown) and its shape (None when even the rank is unknown)."""

    dtype: str
    shape: Shape | None

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)


@dataclass(frozen=True, slots=True)
class Original:
    """A node of the model as it came: the `Node` it was imported as, and its own text.

    `known` says that the operator is ONNX's own, so that its meaning may be looked up by name.
    """

    node: Node
    proto: onnx.NodeProto
    known: bool


class Constant:
    """A constant tensor, known by a key and computed when first read (folded weights stay symbolic until then).

    `key` names the content: equal keys mean equal tensors. `array()` gives a read-only numpy array (ml_dtypes for
    bfloat16 and the smaller types); its shape and dtype are those stated, rank 0 included.
    """

    __slots__ = ("_array", "_make", "dtype", "key", "shape")

    def __init__(self, key: str, shape: tuple[int, ...], dtype: str, make: Callable[[], np.ndarray]) -> None:
        self.key = key
        self.shape = shape
        self.dtype = dtype
        self._make = make
        self._array: np.ndarray | None = None

    def array(self) -> np.ndarray:
        if self._array is None:
            made = np.asarray(self._make())
            assert made.shape == self.shape, (self.key, made.shape, self.shape)
            made.flags.writeable = False
            self._array = made
        return self._array

    @property
    def nbytes(self) -> int:
        """Size in the file, in bytes."""
        return (math.prod(self.shape) * bit_width(self.dtype) + 7) // 8

    @staticmethod
    def of(array: np.ndarray, dtype: str | None = None) -> Constant:
        """A constant holding `array`, keyed by its bytes."""
        array = np.asarray(array)
        name = dtype or array.dtype.name
        if name == "object":
            name = "string"
        content = repr(array.tolist()).encode() if name == "string" else array.tobytes()
        digest = hashlib.sha256(f"{name}{array.shape}".encode() + content).hexdigest()[:32]
        return Constant(digest, array.shape, name, lambda: array)


@dataclass(frozen=True, slots=True)
class Graph:
    """An immutable dataflow graph over persistent maps; an edit returns a new graph sharing all it did not change."""

    nodes: immutables.Map[NodeId, Node]
    producer: immutables.Map[str, NodeId]
    readers: immutables.Map[str, tuple[NodeId, ...]]
    """Value to the nodes that read it, once a node, sorted. Graph outputs are in `outputs`, not here."""
    info: immutables.Map[str, ValueInfo]
    constants: immutables.Map[str, Constant]
    """Initializers that no graph input can override, `Constant` nodes' values and folded values."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    hash: int
    opset: int = 21
    """The model's default-domain opset, to which nodes are lowered on the way out."""
    output_set: frozenset[str] = field(default_factory=frozenset[str], compare=False)
    originals: Mapping[int, Original] = field(default_factory=dict[int, Original], compare=False)
    """The model's own nodes, by `Node.origin`."""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int], compare=False)
    """Numbers to use for symbols where costs are reckoned (from `--dims`). They are no facts: rules never see them."""

    @staticmethod
    def build(
        nodes: Iterable[Node],
        inputs: Sequence[str],
        outputs: Sequence[str],
        info: Mapping[str, ValueInfo],
        constants: Mapping[str, Constant],
        opset: int = 21,
        originals: Mapping[int, Original] | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> Graph:
        """A graph from its parts; ValueError when two nodes write one value."""
        by_id: dict[NodeId, Node] = {}
        producer: dict[str, NodeId] = {}
        readers: dict[str, set[NodeId]] = {}
        total = 0
        for node in nodes:
            by_id[node.id] = node
            for out in filter(None, node.outputs):
                if out in producer:
                    raise ValueError(f"value {out!r} is written twice")
                producer[out] = node.id
            for value in node.operands():
                readers.setdefault(value, set()).add(node.id)
            total += node_hash(node, constants.get)
        return Graph(
            immutables.Map(by_id),
            immutables.Map(producer),
            immutables.Map({v: tuple(sorted(r)) for v, r in readers.items()}),
            immutables.Map(info),
            immutables.Map(constants),
            tuple(inputs),
            tuple(outputs),
            total % HASH_MODULUS,
            opset,
            frozenset(outputs),
            originals or {},
            sizes or {},
        )

    def producer_node(self, value: str) -> Node | None:
        """The node that writes `value`; None for inputs and constants."""
        node_id = self.producer.get(value)
        return None if node_id is None else self.nodes[node_id]

    def reader_ids(self, value: str) -> tuple[NodeId, ...]:
        return self.readers.get(value, ())

    def is_output(self, value: str) -> bool:
        return value in self.output_set

    def shape(self, value: str) -> Shape | None:
        known = self.info.get(value)
        return None if known is None else known.shape

    def dtype(self, value: str) -> str:
        known = self.info.get(value)
        return "" if known is None else known.dtype

    def dim(self, value: str, axis: int) -> Dim | None:
        shape = self.shape(value)
        return None if shape is None else shape[axis]

    def concrete(self, d: Dim) -> int | None:
        """The number that `sizes` gives for the dimension; None when it leaves a symbol open."""
        try:
            number = substitute(d, self.sizes)
        except Undecided:
            return None
        return number if isinstance(number, int) else None

    def reaches(self, start: str, targets: Iterable[str]) -> bool:
        """Whether any of `targets` is `start` or is computed from it."""
        goal = set(targets)
        if start in goal:
            return True
        seen: set[NodeId] = set()
        stack = [start]
        while stack:
            for reader in self.reader_ids(stack.pop()):
                if reader in seen:
                    continue
                seen.add(reader)
                outs = [o for o in self.nodes[reader].outputs if o]
                if not goal.isdisjoint(outs):
                    return True
                stack.extend(outs)
        return False

    def topological(self) -> list[Node]:
        """Nodes, producers first; deterministic (ties broken by the order of first need from the outputs)."""
        order: list[Node] = []
        state: set[NodeId] = set()
        roots = [self.producer[o] for o in self.outputs if o in self.producer]
        for root in (*roots, *sorted(self.nodes)):
            stack: list[tuple[NodeId, bool]] = [(root, False)]
            while stack:
                node_id, expanded = stack.pop()
                if expanded:
                    order.append(self.nodes[node_id])
                    continue
                if node_id in state:
                    continue
                state.add(node_id)
                stack.append((node_id, True))
                for value in reversed(self.nodes[node_id].operands()):
                    source = self.producer.get(value)
                    if source is not None and source not in state:
                        stack.append((source, False))
        return order

    def rewrite(
        self,
        removed: Iterable[NodeId],
        added: Sequence[Node],
        constants: Mapping[str, Constant] | None = None,
        info: Mapping[str, ValueInfo] | None = None,
        redirected: Mapping[str, str] | None = None,
    ) -> Graph:
        """The graph without `removed`, with `added`, and with every reader of a key of `redirected` reading its value.

        A value that a removed node wrote must be written by an added node, be redirected, or have no reader left. A
        redirected value that is a graph output or is read inside a subgraph keeps its name through an `Identity`. Nodes
        left without readers are removed as well. `info` must describe the new inner values; replaced values keep the
        info they had. A value never becomes a constant under the name it had: redirect it to a new constant.
        """
        nodes, producer, readers = self.nodes.mutate(), self.producer.mutate(), self.readers.mutate()
        known, consts = self.info.mutate(), self.constants.mutate()
        total = self.hash
        known.update(dict(info or {}))
        consts.update(dict(constants or {}))

        def drop(node: Node) -> None:
            nonlocal total
            total -= node_hash(node, consts.get)
            del nodes[node.id]
            for out in filter(None, node.outputs):
                if producer.get(out) == node.id:
                    del producer[out]
            for value in set(node.operands()):
                left = tuple(r for r in readers.get(value, ()) if r != node.id)
                if left:
                    readers[value] = left
                else:
                    readers.pop(value, None)

        def put(node: Node) -> None:
            nonlocal total
            assert node.id not in nodes, node
            nodes[node.id] = node
            for out in filter(None, node.outputs):
                assert out not in producer, out
                producer[out] = node.id
            for value in set(node.operands()):
                readers[value] = tuple(sorted((*readers.get(value, ()), node.id)))
            total += node_hash(node, consts.get)

        doubtful: list[str] = []
        for node_id in removed:
            doubtful.extend(self.nodes[node_id].operands())
            drop(self.nodes[node_id])
        for node in added:
            put(node)
        for old, new in (redirected or {}).items():
            named = old in self.output_set
            for reader in readers.get(old, ()):
                node = nodes[reader]
                named |= old in node.captures
                if old in node.inputs:
                    drop(node)
                    put(replace(node, inputs=tuple(new if v == old else v for v in node.inputs)))
            if named:
                put(Node("Identity", (new,), (old,)))
            doubtful.append(new)
        while doubtful:
            value = doubtful.pop()
            node_id = producer.get(value)
            if node_id is None:
                continue
            node = nodes[node_id]
            if any(o in self.output_set or readers.get(o) for o in node.outputs if o):
                continue
            doubtful.extend(node.operands())
            drop(node)
        return Graph(
            nodes.finish(),
            producer.finish(),
            readers.finish(),
            known.finish(),
            consts.finish(),
            self.inputs,
            self.outputs,
            total % HASH_MODULUS,
            self.opset,
            self.output_set,
            self.originals,
            self.sizes,
        )


def node_hash(node: Node, constant_of: Callable[[str], Constant | None]) -> int:
    """A stable 128-bit hash of what the node's outputs mean: operator, attributes, operands by name or content."""
    parts = [node.domain, node.op_type, repr(node.attributes), repr(node.outputs), repr(node.captures)]
    for value in node.inputs:
        constant = constant_of(value)
        parts.append(value if constant is None else "#" + constant.key)
    if not node.defined:
        parts.append(f"@{node.origin}")
    return int.from_bytes(hashlib.blake2b("\0".join(parts).encode(), digest_size=16).digest(), "big")


def fresh_name(op_type: str, definition: str) -> str:
    """The name of a new inner value, made from its definition: the same rewrite of the same values gives the same."""
    return f"{op_type}~{hashlib.blake2b(definition.encode(), digest_size=10).hexdigest()}"
