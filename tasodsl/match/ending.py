"""The last part of a generated matcher: one function for each rule, called where the structure fits.

It binds sizes, asks the `where`s and whatever else needs all names, and records the match. The order of its steps is
that of `ShapeBinder`, which binds the shapes of operators in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from tasodsl import syntax as s
from tasodsl.elaborate import names, resolve_axis
from tasodsl.graph.dims import Dim, Shape
from tasodsl.graph.graph import AttributeValue, Graph, Node, NodeId
from tasodsl.match.expressions import Constants, ExpressionWriter, binary
from tasodsl.match.pattern import Pattern, pack_split
from tasodsl.match.predicates import Program
from tasodsl.match.questions import in_class
from tasodsl.match.target import TARGET, attribute_is
from tasodsl.source import NOWHERE
from tasodsl.values import Mismatch, Value, compare


@dataclass(frozen=True, slots=True)
class Signature:
    """What an ending is handed besides the graph: cases of a rule that agree in it share one ending."""

    pattern: str
    tensors: tuple[str, ...]
    lists: tuple[str, ...]
    results: tuple[str, ...]
    absent: tuple[str, ...]
    attributes: tuple[str, ...]
    rests: tuple[str, ...]
    deferred: tuple[tuple[str, str, s.Expr], ...]
    settled: bool
    """Whether the tree has made sure that inner values are read inside the match only."""


def signature_of(program: Program) -> Signature:
    bound, groups = program.bound, dict(program.case.groups)
    members = {m for group in groups.values() for m in group}
    two_nodes = len(bound.nodes) <= 2 and all(len(at) > 1 and k == 0 for at, k in bound.inner)
    return Signature(
        program.pattern.name,
        tuple(sorted(n for n in bound.variables if n not in members)),
        tuple(sorted({*bound.lists, *groups})),
        tuple(sorted(bound.results)),
        tuple(sorted(program.case.absent)),
        tuple(sorted(bound.attributes)),
        tuple(sorted(bound.rests)),
        tuple((d.op, d.name, d.stated) for d in bound.deferred),
        two_nodes,
    )


class EndingWriter:
    """Writes the body of one ending. Parameters: `t_k` tensors, `l_k` lists of operands, `y_k` results, `a_k`
    attributes, `r_k` rests of attributes, `e_k` attributes to be compared with an expression and `b_k` the operand
    whose rank counts."""

    def __init__(self, pattern: Pattern, signature: Signature, writer: ExpressionWriter, constants: Constants) -> None:
        self.pattern = pattern
        self.signature = signature
        self.writer = writer
        self.constants = constants
        self.lines: list[str] = []
        self.scope: dict[str, str] = {name: f"a_{k}" for k, name in enumerate(signature.attributes)}
        self.tensors = {name: f"t_{k}" for k, name in enumerate(signature.tensors)}
        self.lists = {name: f"l_{k}" for k, name in enumerate(signature.lists)}
        self.results = {name: f"y_{k}" for k, name in enumerate(signature.results)}
        self.rests = {name: f"r_{k}" for k, name in enumerate(signature.rests)}
        self.late: list[tuple[s.Expr, str]] = []
        writer.operands = {name: f"info[{local}]" for name, local in self.tensors.items()}
        writer.operands.update(dict.fromkeys(signature.absent))

    @property
    def parameters(self) -> list[str]:
        compared = [f"{letter}_{k}" for k in range(len(self.signature.deferred)) for letter in "eb"]
        groups = (self.tensors, self.lists, self.results)
        attributes = [f"a_{k}" for k in range(len(self.signature.attributes))]
        return [*(local for g in groups for local in g.values()), *attributes, *self.rests.values(), *compared]

    def body(self) -> list[str]:
        """The statements; a condition that can never hold leaves nothing but a return."""
        try:
            self._shapes()
            self._numbers()
            bound = dict(self.scope)
            self._clauses()
            self._deferred()
        except Mismatch as problem:
            return [f"return  # never: {str(problem)!r}"]
        self._surroundings()
        self._record(bound)
        return self.lines

    def emit(self, line: str) -> None:
        self.lines.append(line)

    def unless(self, condition: str) -> None:
        self.emit(f"if {condition}:")
        self.emit("    return")

    # --- sizes ---

    def _shapes(self) -> None:
        for name, declared in self.pattern.variables.items():
            if name in self.tensors:
                shape = f"s_{self.tensors[name]}"
                self.emit(f"{shape} = info[{self.tensors[name]}].shape  # {name}")
                self._shape(declared, shape, False)
            elif name in self.lists:
                self._list(name, declared)
        for part, size in self.late:
            unbound = sorted({n for n in names(part) if n not in self.scope and n not in self.writer.functions})
            if len(unbound) > 1:
                raise Mismatch(f"{' and '.join(unbound)} are both unknown")
            if not unbound:
                self.unless(f"{self.writer.write(part, self.scope)} != {size}")
                continue
            written = self.writer.write(part, {**self.scope, unbound[0]: "x"})
            self.emit(f"{self._bind(unbound[0])} = solved(lambda x: {written}, {size})")

    def _bind(self, name: str) -> str:
        """A fresh local for a name that is bound here."""
        self.scope[name] = f"d_{len(self.scope)}"
        return self.scope[name]

    def _list(self, name: str, declared: s.Operand) -> None:
        local = self.lists[name]
        packs, fixed = self._extent(declared)
        most = self.pattern.scope.max_rank if packs else min(fixed, self.pattern.scope.max_rank)
        wanted = f"{fixed - packs}, {most}, {declared.type.dtype or 'float'!r}, {declared.const}"
        self.emit(f"s_{local} = shapes(graph, {local}, {wanted})  # ..{name}")
        self.unless(f"s_{local} is None")
        self.emit(f"f_{local} = s_{local}[0]")
        each = self._shape(declared, f"f_{local}", True)
        shared = f"without(x, {', '.join(i for _, i in each)})" if each else "x"
        self.unless(f"any([{shared} != {shared.replace('x', f'f_{local}', 1)} for x in s_{local}[1:]])")
        for size, index in each:
            listed = f"tuple([x[{index}] for x in s_{local}])"
            if size in self.scope:
                self.unless(f"{listed} != {self.scope[size]}")
            else:
                self.emit(f"{self._bind(size)} = {listed}")

    def _extent(self, declared: s.Operand) -> tuple[int, int]:
        packs = sum(isinstance(d, s.Splice) for d in declared.type.dims)
        return packs, len(declared.type.dims)

    def _shape(self, declared: s.Operand, shape: str, listed: bool) -> list[tuple[str, str]]:
        """Agree a shape with its pattern. The sizes that each operand of a list has for itself come back with their
        places."""
        dims = declared.type.dims
        packs = [k for k, d in enumerate(dims) if isinstance(d, s.Splice)]
        unknown = [k for k in packs if self._unknown(dims[k])]
        lengths = {k: f"len({self._known(dims[k], f'p_{shape}_{k}')})" for k in packs if k not in unknown}
        for k in unknown[:-1]:
            lengths[k] = self._stated(dims[k], f"p_{shape}_{k}")
        fixed = len(dims) - len(packs)
        if unknown == packs and len(packs) == 1 and not listed:
            # The usual case; the tree has seen that the shape has room for the other dimensions.
            self._around_pack(dims, packs[0], shape)
            return []
        others = " - ".join([f"len({shape}) - {fixed}", *lengths.values()])
        if unknown:
            lengths[unknown[-1]] = f"p_{shape}_{unknown[-1]}"
            self.emit(f"{lengths[unknown[-1]]} = {others}")
            if len(packs) > 1 or listed:
                self.unless(f"{lengths[unknown[-1]]} < 0")
        elif packs:
            self.unless(f"{others} != 0")
        each: list[tuple[str, str]] = []
        for k, part in enumerate(dims):
            before = [lengths[j] for j in packs if j < k]
            index = " + ".join([str(k - len(before)), *before]) if before else str(k)
            if before and not any(j > k for j in packs):
                index = str(k - len(dims))
            if isinstance(part, s.Splice):
                start = " + ".join([str(k - len(before)), *before])
                self._pack(part, f"{shape}[{start}:{start} + {lengths[k]}]")
            elif isinstance(part, s.PerOperand):
                each.append((part.name, index))
            else:
                self._dim(part, f"{shape}[{index}]", listed or len(packs) > 1)
        return each

    def _around_pack(self, dims: Sequence[s.Expr | s.Splice | s.PerOperand], pack: int, shape: str) -> None:
        for k, part in enumerate(dims):
            if isinstance(part, s.Splice):
                behind = len(dims) - k - 1
                self._pack(part, f"{shape}[{k or ''}:{f'-{behind}' if behind else ''}]")
            elif not isinstance(part, s.PerOperand):
                self._dim(part, f"{shape}[{k if k < pack else k - len(dims)}]", False)

    def _unknown(self, part: s.Expr | s.Splice | s.PerOperand) -> bool:
        return isinstance(part, s.Splice) and isinstance(part.value, s.Name) and part.value.id not in self.scope

    def _known(self, part: s.Expr | s.Splice | s.PerOperand, local: str) -> str:
        assert isinstance(part, s.Splice)
        if isinstance(part.value, s.Name):
            return self.scope[part.value.id]
        self.emit(f"{local} = {self.writer.write(part.value, self.scope)}")
        return local

    def _stated(self, part: s.Expr | s.Splice | s.PerOperand, local: str) -> str:
        """The rank of a pack as a condition states it."""
        assert isinstance(part, s.Splice)
        assert isinstance(part.value, s.Name)
        stated = pack_split(self.pattern, part.value.id)
        if stated is None:
            raise Mismatch(f"nothing says the rank of {part.value.id}")
        self.emit(f"{local} = {self.writer.write(stated, self.scope)}")
        self.unless(f"not isinstance({local}, int) or {local} < 0")
        return local

    def _pack(self, part: s.Splice, sizes: str) -> None:
        if self._unknown(part):
            assert isinstance(part.value, s.Name)
            self.emit(f"{self._bind(part.value.id)} = {sizes}")
        else:
            self.unless(f"{self.writer.write(part.value, self.scope)} != {sizes}")

    def _dim(self, part: s.Expr, size: str, ask_numbers: bool) -> None:
        if isinstance(part, s.Name) and part.id not in self.scope:
            self.emit(f"{self._bind(part.id)} = {size}")
        elif isinstance(part, s.Name):
            self.unless(f"{self.scope[part.id]} != {size}")
        elif isinstance(part, s.Int):
            if ask_numbers:  # else the tree has asked
                self.unless(f"{part.value} != {size}")
        else:
            self.late.append((part, size))

    # --- numbers, conditions ---

    def _numbers(self) -> None:
        for name, declared in self.pattern.variables.items():
            stated = declared.value
            if stated is None or name not in self.tensors or not names(stated):
                continue
            constant = f"constants[{self.tensors[name]}]"
            if not isinstance(stated, s.Name) or stated.id in self.pattern.computed:
                self.unless(f"not facts.equals({constant}, Fraction({self.writer.write(stated, self.scope)}))")
                continue
            known = self.scope.get(stated.id)
            held = f"u_{self.tensors[name]}" if known else self._bind(stated.id)
            self.emit(f"{held} = facts.uniform({constant})")
            self.unless(f"{held} is None" + (f" or {held} != {known}" if known else ""))

    def _clauses(self) -> None:
        for clause in self.pattern.rule.clauses:
            if isinstance(clause, s.LetScalar):
                value = self.writer.write(clause.value, self.scope)
                self.emit(f"{self._bind(clause.name)} = {value}")
            elif isinstance(clause, s.Where):
                self.unless(f"not {self.writer.write(clause.condition, self.scope)}")

    def _deferred(self) -> None:
        for k, (op, name, stated) in enumerate(self.signature.deferred):
            (attr,) = (a for a in self.pattern.declaration(op).attrs if a.name == name)
            value = self.writer.write(stated, self.scope)
            type_ = self.constants.name(attr.type)
            self.unless(f"not states(graph, {op!r}, {type_}, e_{k}, {value}, b_{k})")

    # --- the rest of the graph ---

    def _surroundings(self) -> None:
        self.emit("ids = ordered(nodes)")
        if not self.signature.settled:
            self.unless("not all([private(graph, v, ids) for v in inner])")
        for output, variables in self.pattern.crossings:
            found = [f"*{self.lists[v]}" if v in self.lists else self.tensors.get(v, "") for v in variables]
            listed = "".join(f"{f}, " for f in found if f)
            if listed:
                self.unless(f"crosses(graph, {self.results[output]}, ({listed}))")

    def _record(self, bound: Mapping[str, str]) -> None:
        entries = {**bound, **{f"%{n}": local for n, local in (self.tensors | self.lists | self.results).items()}}
        entries.update({f"%{n}": '""' for n in self.signature.absent})
        entries.update({f"..{n}": local for n, local in self.rests.items()})
        binding = "".join(f"({name!r}, {local}), " for name, local in sorted(entries.items()))
        self.emit(f"found.append(Match({self.pattern.name!r}, ids[0], ids, ({binding})))")


def ordered(nodes: tuple[Node, ...]) -> tuple[NodeId, ...]:
    """The root, then the other nodes, each once."""
    root, *others = (node.id for node in nodes)
    return (root, *sorted({*others} - {root}))


def shapes(graph: Graph, values: tuple[str, ...], least: int, most: int, dtype: Any, const: bool) -> list[Shape] | None:
    """The shapes of a variadic's operands, where each is of the class and has a rank within the bounds."""
    found: list[Shape] = []
    for value in values:
        info = graph.info.get(value)
        if info is None or info.shape is None or not least <= len(info.shape) <= most:
            return None
        if not in_class(info.dtype, dtype) or (const and value not in graph.constants):
            return None
        found.append(info.shape)
    return found


def without(shape: Shape, *indices: int) -> Shape:
    """The sizes at all other places."""
    dropped = {i % len(shape) for i in indices}
    return tuple(d for k, d in enumerate(shape) if k not in dropped)


def solved(at: Callable[[Value], Value], size: Dim) -> Value:
    """The x with `at(x) == size`, where `at` is linear with a positive factor; `Mismatch` where none is known."""
    at0 = at(0)
    factor = binary("-", at(1), at0)
    if isinstance(factor, int) and factor <= 0:
        raise Mismatch("the size cannot be solved")
    rest = binary("-", size, at0)
    value = rest if isinstance(factor, int) and factor == 1 else binary("//", rest, factor)
    if not compare("<=", 0, value, NOWHERE, TARGET) or at(value) != size:
        raise Mismatch("the size is no multiple")
    return value


def states(graph: Graph, op: str, type_: s.AttrType, actual: AttributeValue, stated: Value, base: str) -> bool:
    """Whether an attribute is what an expression says, a negative axis counted from the end of the operand `base`."""
    if type_.kind in ("axis", "axes"):
        shape = graph.shape(base)
        if shape is None:
            return False
        stated = resolve_axis(type_, stated, len(shape), op)
    return attribute_is(type_, actual, stated)


def unread(graph: Graph, outputs: Sequence[str], k: int) -> bool:
    """Whether a node's result `k` is not used at all."""
    if len(outputs) <= k or not outputs[k]:
        return True
    return outputs[k] not in graph.output_set and not graph.readers.get(outputs[k])


HELPERS: Mapping[str, object] = MappingProxyType(
    {
        "Fraction": Fraction,
        "ordered": ordered,
        "shapes": shapes,
        "without": without,
        "solved": solved,
        "states": states,
        "unread": unread,
    }
)
