"""Random graphs over the shipped operators, drawn by hypothesis or by a seed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from matching import Net

from tasodsl.graph.dims import Undecided, symbol
from tasodsl.graph.graph import Graph
from tasodsl.values import Mismatch

Pick = Callable[[int], int]
"""A number below the one given."""


def random_graph(pick: Pick, nodes: int, symbolic: bool = True) -> Graph:
    """A graph of up to `nodes` nodes that often repeats the shapes rules look for."""
    net = Net()
    n = symbol("n") if symbolic else 4
    values = [
        net.input("x", 2, 3),
        net.input("z", 3, 3),
        net.input("s", n, 3),
        net.input("q", 2, 3, 3),
        net.input("h", 2, 3, dtype="float64"),
        net.input("i", 2, 3, dtype="int64"),
        net.const(2.0),
        net.const(0.0),
        net.const([0.0, 0.0, 0.0]),
        net.const([[3.0]]),
        net.const(np.arange(9.0).reshape(3, 3)),
        net.const(np.arange(6.0).reshape(3, 2)),
    ]
    makers = _makers(net, pick)
    for _ in range(nodes):
        near = values[-6:] if pick(2) else values
        chosen = [near[pick(len(near))], values[pick(len(values))], values[pick(len(values))]]
        try:
            made = makers[pick(len(makers))](*chosen)
        except (Mismatch, Undecided, IndexError):
            continue
        values.extend(made if isinstance(made, tuple) else (made,))
    read = {v for node in net.nodes for v in node.operands()}
    ends: list[str] = []
    for node in net.nodes:
        # Some results of a Split stay unused.
        ends.extend(v for v in node.outputs if pick(12) == 0 or (v not in read and (len(node.outputs) == 1 or pick(2))))
    return net.graph(*ends)


def _makers(net: Net, pick: Pick) -> list[Callable[..., Any]]:
    def rank(v: str) -> int:
        return len(net.info[v].shape or ())

    def same_dtype(*values: str) -> None:
        if len({net.info[v].dtype for v in values}) > 1:
            raise Mismatch("dtypes")

    def unary(op: str, **attributes: Any) -> Callable[..., Any]:
        return lambda x, *_: net.op(op, x, **attributes)

    def binary(op: str) -> Callable[..., Any]:
        def make(a: str, b: str, *_: str) -> Any:
            same_dtype(a, b)
            a, b = (a, b) if pick(2) else (b, a)
            if op == "MatMul" and (net.info[a].shape or ())[-1] != (net.info[b].shape or ())[-2]:
                raise Mismatch("inner sizes")
            return net.op(op, a, b)

        return make

    def transpose(x: str, *_: str) -> Any:
        perms = list(itertools.permutations(range(rank(x))))
        return net.op("Transpose", x, perm=perms[pick(len(perms))])

    def reduce_sum(x: str, *_: str) -> Any:
        if rank(x) < 2:
            raise Mismatch("no axis 1")
        return net.op("ReduceSum", x, axes=(1,), keepdims=bool(pick(2)))

    def split(x: str, *_: str) -> Any:
        axis = pick(max(rank(x), 1))
        size = (net.info[x].shape or ())[axis]
        if not isinstance(size, int) or size < 2:
            raise Mismatch("nothing to split")
        at = size // 2 if size % 2 == 0 else 1 + pick(size - 1)
        return net.op("Split", x, axis=axis, split=(at, size - at))

    def concat(*values: str) -> Any:
        same_dtype(*values)
        return net.op("Concat", *values[: 1 + pick(3)], axis=pick(max(rank(values[0]), 1)))

    def reshape(x: str, *_: str) -> Any:
        shape = net.info[x].shape or ()
        if not all(isinstance(d, int) for d in shape):
            raise Mismatch("unknown sizes")
        return net.op("Reshape", x, shape=shape if pick(2) else (int(np.prod(shape)),))  # type: ignore[arg-type]

    def clip(x: str, *_: str) -> Any:
        bounds = [["v1"], ["", "v1"], ["v1", "v2"], []][pick(4)]
        return net.op("Clip", x, *(net.const(1.0) if b else "" for b in bounds))

    def concat_of(op: str) -> Callable[..., Any]:
        def make(*values: str) -> Any:
            same_dtype(*values)
            return net.op("Concat", *(net.op(op, v) for v in values[: 1 + pick(3)]), axis=0)

        return make

    def tree(text: Any, *values: str) -> Any:
        """Nested tuples as operators over the values, by number."""
        if isinstance(text, int):
            return values[text]
        if isinstance(text, str):
            return text
        op, *args = text
        inputs = [tree(a, *values) for a in args if not isinstance(a, dict)]
        same_dtype(*inputs)
        return net.op(op, *inputs, **{k: v for a in args if isinstance(a, dict) for k, v in a.items()})

    def shaped(*texts: Any) -> Callable[..., Any]:
        return lambda *values: tuple(tree(t, *values) for t in texts)

    def matmuls(x: str, *_: str) -> Any:
        return tuple(net.op("MatMul", x, w) for w in ("v11", "v12", "v11")[: 2 + pick(2)])

    def diamond(x: str, *_: str) -> Any:
        t = net.op("Relu", x)
        return net.op("Add", net.op("Tanh", t), net.op("Neg", t))

    def whole_split(*values: str) -> Any:
        same_dtype(*values)
        parts = values[: 2 + pick(2)]
        sizes = [(net.info[v].shape or ())[0] for v in parts]
        split = net.op("Split", net.op("Concat", *parts, axis=0), axis=0, split=tuple(sizes))
        return split if pick(2) else net.op("Add", net.op("Relu", split[1]), split[0])

    half = {"axis": 0, "split": (1, 1)}
    along = {"axis": 0}
    return [
        matmuls,
        diamond,
        whole_split,
        shaped(("Neg", ("Neg", 0))),
        shaped(("Relu", 0), ("Tanh", 0), ("Neg", 0)),
        shaped(("Add", ("Mul", 0, 1), ("Mul", 0, 2))),
        shaped(("LeakyRelu", ("LeakyRelu", 0), {"alpha": 0.5})),
        shaped(("Cast", ("Cast", 0, {"to": "float64"}), {"to": "float32"})),
        shaped(("Relu", ("Add", 0, 1)), ("Tanh", ("Neg", 1))),
        shaped(("Mul", ("Mul", 0, "v7"), "v7")),
        shaped(("Mul", ("Mul", 0, "v11"), "v11")),
        shaped(("Add", 0, ("Transpose", 0, {"perm": (1, 0)}))),
        shaped(("Softmax", ("Neg", 0), {"axis": 1})),
        shaped(("Softmax", ("Softmax", 0, {"axis": 0}), {"axis": 0})),
        shaped(("Concat", ("Add", 0, "v7"), ("Add", "v7", 1), along)),
        shaped(("Concat", 0, ("Concat", 1, 2, along), along)),
        shaped(("Concat", 0, ("Relu", 1), along)),
        shaped(("Concat", ("Mul", 0, "v7"), ("Mul", "v7", 1), along)),
        shaped(("Add", ("Mul", ("Add", 1, ("Relu", 0)), 2), ("Mul", 0, 2))),
        shaped(("Add", ("Mul", 0, 2), ("Mul", 2, ("Add", ("Relu", 0), 0)))),
        lambda x, *_: net.op("Relu", net.op("Split", x, **half)[0]),
        lambda x, *_: (lambda a, b: net.op("Add", net.op("Relu", b), a))(*net.op("Split", x, **half)),
        shaped(("Transpose", ("Transpose", 0, {"perm": (1, 0)}), {"perm": (1, 0)})),
        shaped(("Transpose", ("Transpose", "q", {"perm": (1, 2, 0)}), {"perm": (1, 0, 2)})),
        *(unary(op) for op in ("Relu", "Relu", "Neg", "Tanh", "LeakyRelu", "Softmax")),
        *(binary(op) for op in ("Add", "Add", "Mul", "Mul", "Sub", "MatMul", "MatMul")),
        unary("LeakyRelu", alpha=0.5),
        unary("Softmax", axis=0),
        reduce_sum,
        unary("Cast", to="float64"),
        unary("Cast", to="float32"),
        transpose,
        split,
        concat,
        concat_of("Relu"),
        reshape,
        clip,
        lambda x, *_: net.op("Relu", net.op("Relu", x)),
        lambda x, *_: net.op("Add", x, x),
        lambda x, *_: net.op("Add", net.op("Tanh", net.op("Relu", x, names=[f"r{len(net.info)}"])), net.op("Neg", x)),
    ]
