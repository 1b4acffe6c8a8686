"""The clean-up that needs no rules: what is dead, does nothing, is constant or is there twice.

Every step takes a graph to an equal one with fewer nodes, or with more of it understood; they are repeated until
nothing changes. The same graph always gives the same result.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256

import numpy as np

from tasodsl.graph.dim_values import DimTensor, constant_dims, follow
from tasodsl.graph.dims import Shape
from tasodsl.graph.fold import call_of, folded, is_deterministic
from tasodsl.graph.graph import Constant, Graph, Node, NodeId, ValueInfo, fresh_name
from tasodsl.graph.lower import CannotLower
from tasodsl.graph.normalize import normalize
from tasodsl.graph.shapes import infer_call, infer_node

DUPLICATE_BYTES = 1024
"""Equal constants below this size are not worth rewriting their readers."""

RESULT_BYTES = 64
"""What a computed constant may weigh beyond its operands without counting as growth: the node weighs as much."""


@dataclass(slots=True)
class _State:
    """The graph so far, what was done to it, and how much larger the file may still become."""

    graph: Graph
    growth_left: int
    done: Counter[str] = field(default_factory=Counter[str])
    refused: set[tuple[NodeId, tuple[str, ...]]] = field(default_factory=set[tuple[NodeId, tuple[str, ...]]])
    """Nodes that could not be computed, with the operands they had."""


def simplify(graph: Graph, max_growth_bytes: int) -> tuple[Graph, Counter[str]]:
    """The graph cleaned up, and how often each kind of simplification was made.

    Computed constants may make the file larger by at most `max_growth_bytes`.
    """
    state = _State(graph, max_growth_bytes)
    while True:
        before = state.graph
        for step in (_drop_dead, _drop_no_ops, _understand, _shape_arithmetic, _fold, _merge_constants, _merge_nodes):
            step(state)
        _name_outputs(state)
        if state.graph.hash == before.hash:
            return state.graph, state.done


def _nodes(state: _State) -> list[NodeId]:
    return [n.id for n in state.graph.topological()]


def _drop_dead(state: _State) -> None:
    graph = state.graph
    live: set[NodeId] = set()
    stack = [p for o in graph.outputs if (p := graph.producer.get(o)) is not None]
    while stack:
        node_id = stack.pop()
        if node_id in live:
            continue
        live.add(node_id)
        stack.extend(p for v in graph.nodes[node_id].operands() if (p := graph.producer.get(v)) is not None)
    dead = sorted(n for n in graph.nodes if n not in live)
    if dead:
        state.graph = graph.rewrite(dead, ())
        state.done["dead node"] += len(dead)


def _drop_no_ops(state: _State) -> None:
    for node_id in _nodes(state):
        graph = state.graph
        node = graph.nodes.get(node_id)
        if node is None or not _does_nothing(graph, node):
            continue
        if node.op_type == "Identity" and _keeps_name(graph, node_id):
            continue
        state.graph = graph.rewrite([node_id], (), redirected={node_id: node.inputs[0]})
        state.done[f"{node.op_type} that does nothing"] += 1


def _keeps_name(graph: Graph, value: str) -> bool:
    """Whether something outside the nodes' operands knows the value by name."""
    return graph.is_output(value) or any(value in graph.nodes[r].captures for r in graph.reader_ids(value))


def _does_nothing(graph: Graph, node: Node) -> bool:
    """Whether the node's one output is its first operand."""
    if node.domain or node.captures or len(node.outputs) != 1:
        return False
    if not node.defined:
        if not graph.originals[node.origin].known:
            return False
        if node.op_type in ("Sum", "Max", "Min"):
            return len(node.inputs) == 1
        return node.op_type in ("Reshape", "Expand") and _same_shape(graph, node)
    match node.op_type:
        case "Identity" | "Dropout":
            return True
        case "Transpose":
            perm = node.attribute("perm")
            return isinstance(perm, tuple) and list(perm) == list(range(len(perm)))
        case "Cast":
            return graph.dtype(node.inputs[0]) == node.attribute("to")
        case "Concat":
            return len(node.inputs) == 1
        case "Split":
            return True
        case "Slice":
            steps = node.attribute("steps")
            return isinstance(steps, tuple) and all(s == 1 for s in steps) and _same_shape(graph, node)
        case "Pad" | "Reshape" | "Flatten" | "Expand" | "Squeeze" | "Unsqueeze":
            return _same_shape(graph, node)
        case _:
            return False


def _same_shape(graph: Graph, node: Node) -> bool:
    shape = graph.shape(node.inputs[0])
    return shape is not None and shape == graph.shape(node.outputs[0])


def _understand(state: _State) -> None:
    """Give nodes that were carried their normal form, and values their shape, where that is known by now."""
    for node_id in _nodes(state):
        graph = state.graph
        node = graph.nodes.get(node_id)
        if node is None or node.domain or node.captures:
            continue
        if not node.defined and not graph.originals[node.origin].known:
            continue
        if not node.defined:
            _normalize_again(state, node)
            graph = state.graph
            node = graph.nodes[node_id]
        shapes = [graph.shape(o) for o in node.outputs if o]
        if all(s is not None and all(isinstance(d, int) for d in s) for s in shapes):
            continue
        found = _inferred(graph, node)
        if found:
            known = graph.info.mutate()
            known.update(found)
            state.graph = replace(graph, info=known.finish())


def _normalize_again(state: _State, node: Node) -> None:
    graph = state.graph
    proto, _ = call_of(graph, node)

    def used(value: str) -> bool:
        return graph.is_output(value) or bool(graph.reader_ids(value))

    normal = normalize(proto, graph.opset, graph.info, graph.constants.get, used)
    if normal is None or normal.outputs[0] != node.outputs[0]:
        return
    made = Node(normal.op_type, normal.inputs, normal.outputs, normal.attributes, origin=node.origin)
    info = {name: ValueInfo(c.dtype, c.shape) for name, c in normal.constants.items()}
    state.graph = graph.rewrite([node.id], [made], constants=normal.constants, info=info)


def _inferred(graph: Graph, node: Node) -> dict[str, ValueInfo]:
    """Outputs of which more can be told than is known."""
    if node.defined:
        try:
            infos = infer_node(node, graph.info, graph.constants, graph.opset)
        except CannotLower:
            return {}
    else:
        proto, _ = call_of(graph, node)
        infos = infer_call(node, proto, graph.opset, graph.info, graph.constants.get, lambda _: None)
    found: dict[str, ValueInfo] = {}
    for output, new in zip(node.outputs, infos, strict=True):
        old = graph.info.get(output)
        if output and (old is None or _numbers(new) > _numbers(old)):
            found[output] = new
    return found


def _numbers(info: ValueInfo) -> int:
    """How much is known: dimensions that are numbers, and the rank."""
    return -1 if info.shape is None else sum(isinstance(d, int) for d in info.shape)


def _shape_arithmetic(state: _State) -> None:
    """Compute what follows from shapes, and let reshapes take constants."""
    dims: dict[str, DimTensor] = {}

    def dims_of(value: str) -> DimTensor | None:
        return dims.get(value) or constant_dims(state.graph.constants.get(value))

    for node_id in _nodes(state):
        graph = state.graph
        node = graph.nodes.get(node_id)
        if node is None or node.domain or (not node.defined and not graph.originals[node.origin].known):
            continue
        if node.op_type == "Reshape" and not node.defined:
            _constant_target(state, node, dims_of)
            continue
        elements = follow(node, graph.info, dims_of)
        if elements is None:
            continue
        dims[node_id] = elements
        numbers = elements.numbers()
        if numbers is not None and node.op_type != "Identity" and len(node.outputs) == 1:
            constant = _dims_constant(numbers, elements)
            _become_constants(state, node, {node_id: constant})
            state.done["shape arithmetic"] += 1
        elif node.op_type in ("Slice", "Gather", "Squeeze", "Unsqueeze"):
            _drop_casts(state, node)


def _dims_constant(numbers: tuple[int, ...], like: DimTensor) -> Constant:
    return Constant.of(np.array(numbers, like.dtype).reshape((-1,) if like.rank else ()))


def _constant_target(state: _State, node: Node, dims_of: Callable[[str], DimTensor | None]) -> None:
    """Let a Reshape take a constant instead of a computed shape: 0 copies a dimension, -1 stands for an unknown one."""
    graph = state.graph
    if len(node.inputs) != 2 or node.inputs[1] in graph.constants:
        return
    target, shape = dims_of(node.inputs[1]), graph.shape(node.inputs[0])
    if target is None or shape is None:
        return
    numbers = _target_numbers(target.elements, shape, dict(node.attributes).get("allowzero", 0) == 1)
    if numbers is None:
        return
    constant = _dims_constant(numbers, target)
    name = fresh_name("Constant", constant.key)
    info = {name: ValueInfo(constant.dtype, constant.shape)}
    made = replace(node, inputs=(node.inputs[0], name))
    state.graph = graph.rewrite([node.id], [made], constants={name: constant}, info=info)
    state.done["shape arithmetic"] += 1


def _target_numbers(elements: Shape, shape: Shape, allow_zero: bool) -> tuple[int, ...] | None:
    """Numbers that say what the elements say for every size; None when there are none.

    A new -1 must not stand beside a 0: the runtime refuses that for tensors without elements, where the elements that
    it replaces were good.
    """
    unknown = [i for i, d in enumerate(elements) if not isinstance(d, int)]
    numbers = [d if isinstance(d, int) else -1 for d in elements]
    if len(unknown) == 1 and numbers.count(-1) == 1 and 0 not in numbers:
        return tuple(numbers)
    for i in unknown:
        if allow_zero or i >= len(shape) or shape[i] != elements[i]:
            return None
        numbers[i] = 0
    return tuple(numbers)


def _drop_casts(state: _State, node: Node) -> None:
    """Pick dimensions from the tensor itself instead of from its cast, where they are cast back anyway."""
    graph = state.graph
    cast = graph.producer_node(node.inputs[0])
    if cast is None or cast.op_type != "Cast" or not cast.defined or _keeps_name(graph, node.id):
        return
    source = cast.inputs[0]
    back = [graph.nodes[r] for r in graph.reader_ids(node.id)]
    if not all(b.op_type == "Cast" and b.defined and b.attribute("to") == graph.dtype(source) for b in back):
        return
    name = fresh_name(node.op_type, repr((node.attributes, source, node.inputs[1:], node.id)))
    made = replace(node, inputs=(source, *node.inputs[1:]), outputs=(name,))
    info = {name: ValueInfo(graph.dtype(source), graph.shape(node.id))}
    removed = [node.id, *(b.id for b in back)]
    state.graph = graph.rewrite(removed, [made], info=info, redirected={b.id: name for b in back})
    state.done["shape arithmetic"] += 1


def _fold(state: _State) -> None:
    for node_id in _nodes(state):
        graph = state.graph
        node = graph.nodes.get(node_id)
        if node is None or any(v and v not in graph.constants for v in node.inputs):
            continue
        if (node_id, node.inputs) in state.refused:
            continue
        constants = None if _too_large(state, node) else folded(graph, node)
        grown = 0 if constants is None else _growth(graph, node, constants)
        if constants is None or grown > state.growth_left:
            state.refused.add((node_id, node.inputs))
            continue
        state.growth_left -= max(grown, 0)
        _become_constants(state, node, constants)
        state.done[f"{node.op_type} of constants"] += 1


def _too_large(state: _State, node: Node) -> bool:
    """Whether the results are sure to be too large, which saves computing them."""
    graph = state.graph
    least = -sum(graph.constants[v].nbytes for v in node.inputs if v) - RESULT_BYTES
    for output in node.outputs:
        shape = graph.shape(output) or ()
        least += math.prod(d for d in shape if isinstance(d, int)) if all(isinstance(d, int) for d in shape) else 0
    return least > state.growth_left


def _growth(graph: Graph, node: Node, constants: dict[str, Constant]) -> int:
    """By how many bytes the file grows when the node's constants take its place."""
    freed = {v for v in node.inputs if v and not graph.is_output(v) and graph.reader_ids(v) == (node.id,)}
    grown = sum(c.nbytes for c in constants.values()) - sum(graph.constants[v].nbytes for v in freed)
    return grown - RESULT_BYTES


def _become_constants(state: _State, node: Node, constants: dict[str, Constant]) -> None:
    names = {value: fresh_name("Constant", c.key) for value, c in constants.items()}
    made = {names[value]: c for value, c in constants.items()}
    info = {name: ValueInfo(c.dtype, c.shape) for name, c in made.items()}
    state.graph = state.graph.rewrite([node.id], (), constants=made, info=info, redirected=names)


def _merge_constants(state: _State) -> None:
    """Let readers of equal constants read one of them."""
    graph = state.graph
    alike: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for name in sorted(graph.constants):
        constant = graph.constants[name]
        if constant.nbytes >= DUPLICATE_BYTES and graph.reader_ids(name) and not _keeps_name(graph, name):
            alike.setdefault((constant.dtype, constant.shape), []).append(name)
    for names in alike.values():
        if len(names) < 2:
            continue
        first: dict[str, str] = {}
        for name in names:
            kept = first.setdefault(sha256(graph.constants[name].array().tobytes()).hexdigest(), name)
            if kept != name:
                state.graph = state.graph.rewrite((), (), redirected={name: kept})
                state.done["equal constants"] += 1


def _merge_nodes(state: _State) -> None:
    """Compute once what is computed twice. What draws random numbers, or may keep a state, is never merged."""
    seen: dict[tuple[object, ...], NodeId] = {}
    for node_id in _nodes(state):
        graph = state.graph
        node = graph.nodes.get(node_id)
        if node is None or node.op_type == "Identity" or not is_deterministic(graph, node):
            continue
        first = graph.nodes.get(seen.setdefault(_meaning(graph, node), node_id))
        if first is None or first.id == node_id:
            continue
        pairs = dict(zip(node.outputs, first.outputs, strict=True))
        if any(old and not new for old, new in pairs.items()):
            continue
        state.graph = graph.rewrite([node_id], (), redirected={old: new for old, new in pairs.items() if old})
        state.done["equal nodes"] += 1


def _meaning(graph: Graph, node: Node) -> tuple[object, ...]:
    """Equal for nodes that compute the same. Zeros keep their sign, and constants go by content."""
    operands = tuple("#" + c.key if (c := graph.constants.get(v)) is not None else v for v in node.inputs)
    text = b""
    if not node.defined:
        proto, _ = call_of(graph, node)
        del proto.input[:]
        del proto.output[:]
        proto.name = proto.doc_string = ""
        text = proto.SerializeToString(deterministic=True)
    return (node.op_type, node.defined, repr(node.attributes), operands, len(node.outputs), text)


def _name_outputs(state: _State) -> None:
    """Let the producer of a value write the graph output that an Identity copies it to."""
    for node_id in _nodes(state):
        graph = state.graph
        node = graph.nodes.get(node_id)
        if node is None or node.op_type != "Identity" or not node.defined or not graph.is_output(node_id):
            continue
        value = node.inputs[0]
        source = graph.producer_node(value)
        if source is None or _keeps_name(graph, value):
            continue
        renamed = replace(source, outputs=tuple(node_id if o == value else o for o in source.outputs))
        state.graph = graph.rewrite([source.id, node_id], [renamed], redirected={value: node_id})
        state.done["Identity that names an output"] += 1
