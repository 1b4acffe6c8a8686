"""The matcher said plainly: every way in which a pattern fits a graph, found by walking its syntax tree.

Slow and simple. It is what the generated matchers are tested against, and what tells how far a rule came where it does
not fire: each condition that fails is reported to `miss`, together with the number of conditions that held before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from tasodsl import syntax as s
from tasodsl.elaborate import Conditions, ShapeBinder, resolve_axis
from tasodsl.graph.dims import Undecided
from tasodsl.graph.graph import AttributeValue, Constant, Graph, Node, NodeId, ValueInfo
from tasodsl.match.api import Match
from tasodsl.match.pattern import Pattern, depth_of, has_free_length, may_add_rank, members
from tasodsl.match.questions import NAMED, ConstantFacts, above, crosses, in_class, private
from tasodsl.match.target import TARGET, as_value, attribute_is
from tasodsl.scalar import evaluate
from tasodsl.values import Environment, Mismatch

Miss = Callable[[int, NodeId, str], None]
"""Told of a failed condition: how many held before it, the root of the attempt, the condition in words."""


@dataclass(frozen=True, slots=True)
class State:
    """A partial match: what names stand for, and conditions to be asked once all names are bound."""

    nodes: tuple[NodeId, ...] = ()
    tensors: dict[str, Any] = field(default_factory=dict[str, Any])
    """Variables and results: a value's name, "" where absent, a tuple for a variadic."""
    attributes: dict[str, AttributeValue] = field(default_factory=dict[str, AttributeValue])
    rests: dict[str, tuple[tuple[str, AttributeValue], ...]] = field(
        default_factory=dict[str, tuple[tuple[str, AttributeValue], ...]]
    )
    binds: dict[int, NodeId] = field(default_factory=dict[int, NodeId])
    later: tuple[tuple[s.OpDecl, s.AttrDecl, s.Expr, Node], ...] = ()
    inner: tuple[str, ...] = ()
    """Values that must have no reader outside the match."""
    held: int = 0

    def tensor(self, name: str, value: Any) -> State:
        return replace(self, tensors={**self.tensors, name: value}, held=self.held + 1)


class Interpreter:
    """All the matches of one pattern in one graph."""

    def __init__(self, pattern: Pattern, graph: Graph, facts: ConstantFacts, miss: Miss | None = None) -> None:
        self.pattern = pattern
        self.graph = graph
        self.facts = facts
        self.miss = miss
        self.root: NodeId = ""

    def matches(self) -> list[Match]:
        """The matches, each once, ordered by root."""
        found: dict[Match, None] = {}
        for root in sorted(self.graph.nodes):
            found.update(dict.fromkeys(self.at(root)))
        return list(found)

    def at(self, root: NodeId) -> Iterator[Match]:
        """The matches whose first root is the node `root`."""
        self.root = root
        first, *others = self.pattern.roots
        for state in self._bind(first, self.graph.nodes[root], State()):
            yield from self._roots(others, state)

    def _fail(self, state: State, condition: str) -> None:
        if self.miss is not None:
            self.miss(state.held, self.root, condition)

    def _roots(self, binds: list[int], state: State) -> Iterator[Match]:
        if not binds:
            yield from self._finish(state)
            return
        first, *others = binds
        for node_id in self._candidates(first, state):
            if node_id in (state.binds[r] for r in self.pattern.roots if r in state.binds):
                continue
            for following in self._bind(first, self.graph.nodes[node_id], state):
                yield from self._roots(others, following)

    def _candidates(self, bind: int, state: State) -> tuple[NodeId, ...]:
        """Nodes that may be the root: those as far above a value bound before as the root is in the pattern."""
        p = self.pattern
        for name, value in state.tensors.items():
            depth = depth_of(p.match[bind].term, name, p.match, p.results) if name in p.variables else None
            if depth is not None and isinstance(value, str) and value:
                return above(self.graph, value, depth)
        return tuple(sorted(self.graph.nodes))

    # --- terms ---

    def _bind(self, bind: int, node: Node, state: State) -> Iterator[State]:
        if bind in state.binds:
            if state.binds[bind] == node.id:
                yield state
            return
        declared = self.pattern.match[bind]
        assert isinstance(declared.term, s.Apply)
        names = dict(enumerate(declared.names))
        state = replace(state, binds={**state.binds, bind: node.id})
        for following in self._apply(declared.term, node, len(names), state):
            tensors = dict(following.tensors)
            inner = list(following.inner)
            unused = True
            for k, out in enumerate(node.outputs):
                name = names.get(k, "_")
                if name == "_":
                    unused &= not out or private(self.graph, out, ())
                    continue
                if not out:
                    unused = False
                    continue
                tensors[name] = out
                if name not in self.pattern.outputs:
                    inner.append(out)
            if not unused:
                self._fail(following, f"the results of {node.op_type} that the pattern does not use are unused")
                continue
            yield replace(following, tensors=tensors, inner=tuple(inner), held=following.held + 1)

    def _term(self, term: s.Term, value: str, state: State) -> Iterator[State]:
        match term:
            case s.Wildcard():
                if value:
                    yield state
            case s.Absent():
                if not value:
                    yield state
                else:
                    self._fail(state, "an optional operand is absent")
            case s.Var() if term.name in self.pattern.results:
                bind, k = self.pattern.results[term.name]
                node = self.graph.producer_node(value)
                if node is not None and len(node.outputs) > k and node.outputs[k] == value:
                    yield from self._bind(bind, node, state)
            case s.Var():
                if not value and not self._may_be_absent(term):
                    return
                bound = state.tensors.get(term.name)
                if bound is None:
                    yield state.tensor(term.name, value)
                elif bound == value:
                    yield replace(state, held=state.held + 1)
                else:
                    self._fail(state, f"both {term.name} are one value")
            case s.Literal():
                constant = self.graph.constants.get(value)
                number = evaluate(term.value, Environment(), TARGET)
                if constant is not None and constant.shape == () and self.facts.equals(constant, number):
                    yield replace(state, held=state.held + 1)
                else:
                    self._fail(state, f"an operand is the number {term.value.span.text}")
            case s.Apply():
                node = self.graph.producer_node(value)
                if node is None or node.outputs[0] != value:
                    self._fail(state, f"an operand is a {term.op}")
                    return
                for following in self._apply(term, node, 1, state):
                    rest = node.outputs[1:]
                    if all(not o or private(self.graph, o, ()) for o in rest):
                        yield replace(following, inner=(*following.inner, value))
            case _:
                return

    def _may_be_absent(self, var: s.Var) -> bool:
        declared = self.pattern.variable(var.name)
        return var.optional or (declared is not None and declared.optional)

    def _apply(self, term: s.Apply, node: Node, results: int, state: State) -> Iterator[State]:
        if not node.defined or node.op_type != term.op:
            self._fail(state, f"an operand is a {term.op}" if state.nodes else f"the node is a {term.op}")
            return
        op = self.pattern.declaration(term.op)
        if any(r.variadic for r in op.results) and len(node.outputs) != results:
            self._fail(state, f"{term.op} has {results} results")
            return
        nodes = state.nodes if node.id in state.nodes else (*state.nodes, node.id)
        following = self._attributes(term, op, node, replace(state, nodes=nodes, held=state.held + 2))
        if following is None:
            return
        orders = [term.args]
        if op.commutative and len(term.args) == 2:
            orders.append(term.args[::-1])
        if may_add_rank(op) and not self._results_in_scope(node):
            self._fail(following, f"the results of {term.op} have at most {self.pattern.scope.max_rank} dimensions")
            return
        variadic = any(o.variadic for o in op.operands)
        values = node.inputs
        if not variadic:
            values = (*values, *("" for _ in range(len(op.operands) - len(values))))
        for args in orders:
            padded = args if variadic else (*args, *(s.Absent() for _ in range(len(values) - len(args))))
            yield from self._operands(padded, values, following)

    def _results_in_scope(self, node: Node) -> bool:
        shapes = [self.graph.shape(o) for o in node.outputs if o]
        return all(shape is not None and len(shape) <= self.pattern.scope.max_rank for shape in shapes)

    def _operands(self, args: tuple[s.Term, ...], values: tuple[str, ...], state: State) -> Iterator[State]:
        if not args:
            if not values:
                yield state
            else:
                self._fail(state, "an operator has as many operands as the pattern")
            return
        first, *others = args
        rest = tuple(others)
        if isinstance(first, s.Variadic | s.VariadicMap):
            for n in range(1, min(len(values) - len(rest), self.pattern.scope.max_arity) + 1):
                for following in self._variadic(first, values[:n], state):
                    yield from self._operands(rest, values[n:], following)
            return
        if not values:
            self._fail(state, "an operator has as many operands as the pattern")
            return
        for following in self._term(first, values[0], state):
            yield from self._operands(rest, values[1:], following)

    def _variadic(self, term: s.Variadic | s.VariadicMap, values: tuple[str, ...], state: State) -> Iterator[State]:
        if isinstance(term, s.Variadic):
            yield from self._list(term.name, values, state)
            return

        def go(left: tuple[str, ...], taken: tuple[str, ...], state: State) -> Iterator[State]:
            if not left:
                yield from self._list(term.source, taken, state)
                return
            for following in self._term(term.term, left[0], state):
                member = following.tensors[term.variable]
                tensors = {k: v for k, v in following.tensors.items() if k != term.variable}
                yield from go(left[1:], (*taken, member), replace(following, tensors=tensors))

        yield from go(values, (), state)

    def _list(self, name: str, values: tuple[str, ...], state: State) -> Iterator[State]:
        if not all(values):
            return
        if name not in state.tensors:
            yield state.tensor(name, values)
        elif state.tensors[name] == values:
            yield state
        else:
            self._fail(state, f"both ..{name} are the same values")

    # --- attributes ---

    def _attributes(self, term: s.Apply, op: s.OpDecl, node: Node, state: State) -> State | None:
        attributes, rests, later = dict(state.attributes), dict(state.rests), list(state.later)
        written = {a.name: a.value for a in term.attrs}
        rest: list[tuple[str, AttributeValue]] = []
        for declared in sorted(op.attrs, key=lambda a: a.name):
            actual = node.attribute(declared.name)
            stated = written.get(declared.name)
            bound = isinstance(stated, s.Name) and stated.id not in {*attributes, *self.pattern.computed}
            if (bound or (stated is None and term.rest is not None)) and not self._within(declared, actual):
                self._fail(state, f"the proof goes as far as {term.op}'s {declared.name}")
                return None
            if stated is None and term.rest is not None:
                rest.append((declared.name, actual))
            elif isinstance(stated, s.Name) and stated.id not in self.pattern.computed:
                value = as_value(declared.type, actual)
                if attributes.setdefault(stated.id, value) != value:
                    self._fail(state, f"{term.op}'s {declared.name} is {stated.id}")
                    return None
            elif stated is not None:
                later.append((op, declared, stated, node))
            else:
                assert declared.default is not None
                default = evaluate(declared.default, Environment(self.pattern.rules.fns), TARGET)
                if not self._attribute_is(op, declared, node, default):
                    self._fail(state, f"{term.op}'s {declared.name} is {declared.default.span.text} (its default)")
                    return None
        if term.rest is not None and rests.setdefault(term.rest, tuple(rest)) != tuple(rest):
            self._fail(state, f"both ..{term.rest} are the same attributes")
            return None
        return replace(state, attributes=attributes, rests=rests, later=tuple(later), held=state.held + 1)

    def _within(self, declared: s.AttrDecl, actual: AttributeValue) -> bool:
        """Whether the proof covers an attribute that the pattern leaves free."""
        if declared.type.kind == "dtype":
            return actual in NAMED
        if not has_free_length(declared.type):
            return True
        assert isinstance(actual, tuple)
        return len(actual) <= self.pattern.scope.max_entries

    def _attribute_is(self, op: s.OpDecl, declared: s.AttrDecl, node: Node, stated: Any) -> bool:
        actual = node.attribute(declared.name)
        if declared.type.kind in ("axis", "axes"):
            shape = self.graph.shape(node.inputs[0])
            if shape is None:
                return False
            stated = resolve_axis(declared.type, stated, len(shape), op.name)
        return attribute_is(declared.type, actual, stated)

    # --- when all is bound ---

    def _finish(self, state: State) -> Iterator[Match]:
        try:
            env = self._environment(state)
        except (Mismatch, Undecided) as problem:
            self._fail(replace(state, held=state.held + 100), str(problem) or "the sizes leave it open")
            return
        if env is None:
            return
        state = replace(state, held=state.held + 200)
        failed = self._entangled(state)
        if failed is not None:
            self._fail(state, failed)
            return
        binding: dict[str, object] = dict(env.values)
        binding.update({f"%{name}": value for name, value in state.tensors.items()})
        binding.update({f"..{name}": rest for name, rest in state.rests.items()})
        root, *others = state.nodes
        yield Match(self.pattern.name, root, (root, *sorted(others)), tuple(sorted(binding.items())))

    def _entangled(self, state: State) -> str | None:
        """The condition on the rest of the graph that fails: a value is read elsewhere, or a cycle would come about."""
        for value in state.inner:
            if not private(self.graph, value, state.nodes):
                return f"nothing outside the match reads {value!r}"
        for output, variables in self.pattern.crossings:
            for name in variables:
                if crosses(self.graph, state.tensors[output], members(state.tensors.get(name, ""))):
                    return f"{name} is not computed from {output}"
        return None

    def _environment(self, state: State) -> Environment | None:
        """Sizes bound and conditions asked; None (reported) where one fails."""
        p = self.pattern
        tensors: dict[str, Any] = {}
        env = Environment(p.rules.fns, dict(state.attributes), tensors)
        binder = ShapeBinder(env, TARGET, p.facts, Conditions())
        for name, declared in p.variables.items():
            if name not in state.tensors:
                continue
            bound = state.tensors[name]
            if not self._counted(declared, env, len(members(bound))):
                self._fail(replace(state, held=state.held + 100), f"each operand of ..{name} has its size")
                return None
            infos: list[ValueInfo] = []
            for value in members(bound):
                info = self._tensor(name, declared, value, state)
                if info is None:
                    return None
                infos.append(info)
                binder.bind(declared.type, info.shape or (), len(infos) - 1)
            tensors[name] = tuple(infos) if isinstance(bound, tuple) else infos[0] if infos else None
        binder.finish()
        bound_names = set(env.values)
        for name, declared in p.variables.items():
            value = state.tensors.get(name)
            if declared.value is None or not value:
                continue
            if not self._holds_number(declared, self.graph.constants[value], env, bound_names):
                number = declared.value.span.text
                self._fail(replace(state, held=state.held + 110), f"every entry of {name} is {number}")
                return None
        kept = {k: v for k, v in env.values.items() if k in bound_names}
        for clause in p.rule.clauses:
            if isinstance(clause, s.LetScalar):
                env.values[clause.name] = evaluate(clause.value, env, TARGET)
            elif isinstance(clause, s.Where) and evaluate(clause.condition, env, TARGET) is not True:
                self._fail(replace(state, held=state.held + 120), f"where {clause.condition.span.text}")
                return None
        for op, attr, stated, node in state.later:
            if not self._attribute_is(op, attr, node, evaluate(stated, env, TARGET)):
                self._fail(replace(state, held=state.held + 50), f"{op.name}'s {attr.name} is {stated.span.text}")
                return None
        return Environment(p.rules.fns, kept, tensors)

    def _tensor(self, name: str, declared: s.Operand, value: str, state: State) -> ValueInfo | None:
        """What is known of a variable's value, where that satisfies the declaration apart from sizes."""
        info = self.graph.info.get(value)
        state = replace(state, held=state.held + 30)
        if info is None or info.shape is None:
            return self._fail(state, f"the rank of {name} is known")
        if not in_class(info.dtype, declared.type.dtype or "float"):
            return self._fail(state, f"{name} has the dtype class {declared.type.dtype or 'float'}")
        if declared.const and value not in self.graph.constants:
            return self._fail(state, f"{name} is a constant")
        packs = any(isinstance(d, s.Splice) for d in declared.type.dims)
        if len(info.shape) > self.pattern.scope.max_rank:
            return self._fail(state, f"{name} has at most {self.pattern.scope.max_rank} dimensions (the proof's scope)")
        if not packs and len(info.shape) != len(declared.type.dims):
            return self._fail(state, f"{name} has {len(declared.type.dims)} dimensions")
        return info

    def _counted(self, declared: s.Operand, env: Environment, count: int) -> bool:
        """Whether lists of sizes that were bound before have one for each operand."""
        lists = [d.name for d in declared.type.dims if isinstance(d, s.PerOperand)]
        return all(len(env.values[name]) == count for name in lists if name in env.values)

    def _holds_number(self, declared: s.Operand, constant: Constant, env: Environment, bound: set[str]) -> bool:
        """Whether all entries are the declared number; a fresh name takes it."""
        stated = declared.value
        held = self.facts.uniform(constant)
        if held is None:
            return False
        if isinstance(stated, s.Name) and stated.id not in self.pattern.computed:
            bound.add(stated.id)
            return env.values.setdefault(stated.id, held) == held
        assert stated is not None
        number = evaluate(stated, env, TARGET)
        return self.facts.equals(constant, Fraction(number))
