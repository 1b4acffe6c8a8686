"""Decision trees as Python: one function a root operator, one ending a rule.

The source is made from the checked tree alone. It is readable (`GeneratedMatchers.source`), carries the position of
each rule, and is known to `linecache`, so that a traceback through it shows its lines.
"""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tasodsl.graph.dims import Undecided
from tasodsl.graph.graph import Graph, Node, ValueInfo
from tasodsl.match import ending, expressions
from tasodsl.match.api import Match
from tasodsl.match.ending import EndingWriter, Signature, signature_of
from tasodsl.match.expressions import Constants, ExpressionWriter
from tasodsl.match.pattern import Pattern
from tasodsl.match.predicates import EITHER, AttributeAt, Position, Program, Question
from tasodsl.match.questions import CLASSES, NAMED, ConstantFacts, above, crosses, private
from tasodsl.match.target import single
from tasodsl.match.tree import Branch, Leaf, Step
from tasodsl.ruleset import RuleSet
from tasodsl.values import Mismatch

RootMatcher = Callable[[Node, Graph, ConstantFacts, list[Match]], None]
_INDENT = "    "
_DEEPEST = 40
"""Levels of nesting after which a tree goes on in a function of its own: Python allows a hundred."""
_MOST_LOOPS = 12
"""Loops in each other after which it does: Python allows twenty."""


@dataclass(frozen=True, slots=True)
class GeneratedMatchers:
    """The matchers of a rule set: `roots` by operator, and the source that they were made from."""

    roots: Mapping[str, RootMatcher]
    source: str


def emit(rules: RuleSet, trees: Mapping[str, Sequence[Step]]) -> GeneratedMatchers:
    """The matchers for decision trees, which are given by the operator at the first root."""
    module = _Module(rules)
    names = {op: module.root(number, op, steps) for number, (op, steps) in enumerate(trees.items())}
    source = module.source()
    filename = f"<matchers {hashlib.blake2b(source.encode(), digest_size=6).hexdigest()}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {**_NAMESPACE, **module.constants.values}
    exec(compile(source, filename, "exec"), namespace)
    return GeneratedMatchers(MappingProxyType({op: namespace[name] for op, name in names.items()}), source)


class _Module:
    """The text of all functions, endings first."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules
        self.constants = Constants()
        self.functions = {name: f"fn_{k}" for k, name in enumerate(rules.fns)}
        self.endings: dict[Signature, str] = {}
        self.top: list[str] = []
        self.parts: list[str] = []
        self.trees: list[str] = []

    def source(self) -> str:
        functions: list[str] = []
        writer = ExpressionWriter(self.functions, self.constants)
        for name, declared in self.rules.fns.items():
            scope = {p: f"v_{k}" for k, p in enumerate(declared.params)}
            try:
                body = writer.write(declared.body, scope)
            except Mismatch as problem:
                body = f"never({str(problem)!r})"
            head = f"def {self.functions[name]}({', '.join(scope.values())}):  # {name}"
            functions += [head, f"    return {body}", ""]
        return "\n".join([*functions, *self.top, *self.parts, *self.trees])

    def root(self, number: int, op: str, steps: Sequence[Step]) -> str:
        name = f"match_{number}"
        lines = [f"def {name}(n_0, graph, facts, found):  # {op}", *(_INDENT + line for line in _VIEWS)]
        lines += _Tree(self, frozenset({"n_0"})).steps(steps, 1)
        self.trees += [*lines, ""]
        return name

    def part(self, steps: Sequence[Step], known: frozenset[str]) -> str:
        """A call of a function that takes the steps where a tree has become too deep."""
        parameters = ", ".join([*sorted(known), "graph", "facts", "found"])
        lines = [*(_INDENT + line for line in _VIEWS), *_Tree(self, known).steps(steps, 1)]
        name = f"part_{sum(line.startswith('def ') for line in self.parts)}"
        self.parts += [f"def {name}({parameters}):", *lines, ""]
        return f"{name}({parameters})"

    def ending(self, program: Program) -> tuple[str, Signature]:
        signature = signature_of(program)
        if signature not in self.endings:
            name = self.endings[signature] = f"ending_{len(self.endings)}"
            writer = EndingWriter(
                program.pattern, signature, ExpressionWriter(self.functions, self.constants), self.constants
            )
            parameters = ", ".join(["graph", "facts", "found", "nodes", "inner", *writer.parameters])
            self.top += [f"def {name}({parameters}):", f"    # {position(program.pattern)}"]
            self.top += ["    info, constants = graph.info, graph.constants", "    try:"]
            self.top += [f"        {line}" for line in writer.body()]
            self.top += ["    except (Mismatch, Undecided):", "        return", ""]
        return self.endings[signature], signature


def position(pattern: Pattern) -> str:
    """The rule's place in its text, in one line whatever the file is called."""
    span = pattern.rule.span
    file = "".join(c if c.isprintable() else "?" for c in span.source.name)
    return f"{file}:{span.line} {pattern.name}"


_VIEWS = ("nodes, readers, info, constants = graph.nodes, graph.readers, graph.info, graph.constants",)


class _Tree:
    """Writes steps. `known` holds the locals that are assigned where the next line stands."""

    def __init__(self, module: _Module, known: frozenset[str], loops: int = 0) -> None:
        self.module = module
        self.known = set(known)
        self.loops = loops

    def steps(self, steps: Sequence[Step], depth: int) -> list[str]:
        lines: list[str] = []
        for step in steps:
            lines += self.leaf(step, depth) if isinstance(step, Leaf) else self.branch(step, depth)
        return lines

    def inside(self, steps: Sequence[Step], depth: int) -> list[str]:
        """Steps in a block of their own: what is assigned there is not known after it."""
        if depth > _DEEPEST or self.loops > _MOST_LOOPS:
            return [_INDENT * depth + self.module.part(steps, frozenset(self.known))]
        return _Tree(self.module, frozenset(self.known), self.loops).steps(steps, depth)

    def branch(self, branch: Branch, depth: int) -> list[str]:
        question, arms = branch.question, branch.arms
        pad = _INDENT * depth
        lines: list[str] = []
        if question.kind == "readers":
            return self.readers(question, arms[0][1], depth)
        if question.kind == "orders":
            return self.orders(question, arms[0][1], depth)
        guard, subject = self.ask(question, lines, pad)
        if subject is None:
            lines.append(f"{pad}if {guard}:")
            return lines + self.inside(arms[0][1], depth + 1)
        if len(arms) > 1 and guard:
            lines.append(f"{pad}if {guard}:")
            depth, pad, guard = depth + 1, pad + _INDENT, ""
        if len(arms) > 1:
            lines.append(f"{pad}asked = {subject}")
            subject = "asked"
        for k, (answer, steps) in enumerate(arms):
            test = _is(subject, answer)
            lines.append(f"{pad}{'elif' if k else 'if'} {f'{guard} and ' if guard else ''}{test}:")
            lines += self.inside(steps, depth + 1)
        return lines

    def orders(self, question: Question, steps: Sequence[Step], depth: int) -> list[str]:
        """Both orders of a commutative operator's operands."""
        operands = [_value((*question.at, EITHER + k)) for k in range(2)]
        inputs = f"{_node(question.at)}.inputs"
        head = f"{_INDENT * depth}for {', '.join(operands)} in ({inputs}, {inputs}[::-1]):"
        inner = _Tree(self.module, frozenset({*self.known, *operands}), self.loops + 1)
        return [head, *inner.inside(steps, depth + 1)]

    def readers(self, question: Question, steps: Sequence[Step], depth: int) -> list[str]:
        root, reads = question.more
        pad, lines = _INDENT * depth, list[str]()
        listed = "sorted(nodes)"
        if reads:
            value = self.value(question.at, lines, pad)
            listed = f"above(graph, {value}, {reads})" if reads > 1 else f"readers.get({value}, ())"
        lines.append(f"{pad}for reader in {listed}:")
        lines.append(f"{pad}{_INDENT}{_node(root)} = nodes[reader]")
        inner = _Tree(self.module, frozenset({*self.known, _node(root)}), self.loops + 1)
        return lines + inner.inside(steps, depth + 1)

    def ask(self, q: Question, lines: list[str], pad: str) -> tuple[str, str | None]:
        """A condition under which the question has a subject, and the subject that is compared with the answers; for
        questions whose answer is yes, the condition alone."""
        node = _node(q.at)
        match q.kind:
            case "operator" | "maker":
                if len(q.at) == 1:
                    return f"{node}.defined", f"{node}.op_type"
                value = self.value(q.at, lines, pad)
                if q.kind == "maker":
                    self.known.discard(node)
                    value = f"graph.producer.get({value})"
                self.assign(node, f"nodes.get({value})", lines, pad)
                return f"{node} is not None and {node}.defined", f"{node}.op_type"
            case "results":
                return "", f"len({node}.outputs)"
            case "unused":
                return f"unread(graph, {node}.outputs, {q.more[0]})", None
            case "operands":
                return "", f"len({node}.inputs)"
            case "operands between":
                return f"{q.more[0]} <= len({node}.inputs) <= {q.more[1]}", None
            case "present":
                parent, k = _node(q.at[:-1]), q.at[-1]
                value = _value(q.at)
                self.assign(value, f'{parent}.inputs[{k}] if len({parent}.inputs) > {k} else ""', lines, pad)
                return "", f'({value} != "")'
            case "attribute":
                index, kind, _ = q.more
                subject = f"{node}.attributes[{index}][1]"
                return "", f"rounded({subject})" if kind == "real" else subject
            case "entries":
                return f"len({node}.attributes[{q.more[0]}][1]) <= {q.more[1]}", None
            case "known dtype":
                return f"{node}.attributes[{q.more[0]}][1] in known_dtypes", None
            case "same attribute":
                index, other, place, _ = q.more
                return f"{node}.attributes[{index}][1] == {_node(other)}.attributes[{place}][1]", None
            case "same rest":
                indices, other, places = q.more
                return f"{_rest(q.at, indices)} == {_rest(other, places)}", None
            case "distinct":
                return f"{node} is not {_node(q.more[0])}", None
            case "result ranks":
                return f"ranked(info, {node}.outputs, {q.more[0]})", None
            case "same" if q.more[0] == "value":
                return f"{self.value(q.at, lines, pad)} == {self.value(q.more[1], lines, pad)}", None
            case "same":
                _, before, behind, other, other_before, other_behind = q.more
                return f"{_list(q.at, before, behind)} == {_list(other, other_before, other_behind)}", None
            case "result":
                at, k = q.more
                return f"{_node(at)}.outputs[{k}:{k + 1}] == ({self.value(q.at, lines, pad)},)", None
            case "constant":
                return f"{self.value(q.at, lines, pad)} in constants", None
            case "private":
                value = self.value(q.at, lines, pad)
                return f"len(readers.get({value}, ())) <= {q.more[0]} and {value} not in graph.output_set", None
            case _:
                return self.ask_tensor(q, lines, pad)

    def ask_tensor(self, q: Question, lines: list[str], pad: str) -> tuple[str, str | None]:
        """Questions about what is known of a value."""
        value = self.value(q.at, lines, pad)
        shape = _local("s", q.at)
        if q.kind in ("rank", "ranks", "dim"):
            self.assign(shape, f"shape_of(info.get({value}))", lines, pad)
        match q.kind:
            case "rank":
                return f"{shape} is not None", f"len({shape})"
            case "ranks":
                return f"{shape} is not None and {q.more[0]} <= len({shape}) <= {q.more[1]}", None
            case "dim":
                return "", f"{shape}[{q.more[0]}]"
            case "dtype":
                name = q.more[0]
                return f"info[{value}].dtype " + ('!= ""' if name == "any" else f"in {name}_dtypes"), None
            case _:
                return f"facts.equals(constants[{value}], {self.module.constants.name(q.more[0])})", None

    def value(self, at: Position, lines: list[str], pad: str) -> str:
        """The local that holds the operand at a position."""
        self.assign(_value(at), f"{_node(at[:-1])}.inputs[{at[-1]}]", lines, pad)
        return _value(at)

    def assign(self, local: str, value: str, lines: list[str], pad: str) -> None:
        if local not in self.known:
            lines.append(f"{pad}{local} = {value}")
            self.known.add(local)

    def leaf(self, leaf: Leaf, depth: int) -> list[str]:
        program, pad, lines = leaf.program, _INDENT * depth, list[str]()
        bound, groups = program.bound, dict(program.case.groups)
        name, signature = self.module.ending(program)
        args = [self.value(bound.variables[n], lines, pad) for n in signature.tensors]
        for n in signature.lists:
            if n in groups:
                args.append(f"({''.join(f'{self.value(bound.variables[m], lines, pad)}, ' for m in groups[n])})")
            else:
                args.append(_list(*bound.lists[n]))
        args += [f"{_node(at)}.outputs[{k}]" for at, k in (bound.results[n] for n in signature.results)]
        args += [_attribute(bound.attributes[n]) for n in signature.attributes]
        args += [_rest(*bound.rests[n]) for n in signature.rests]
        for deferred in bound.deferred:
            args += [_attribute(deferred.attribute), self.value((*deferred.attribute.at, 0), lines, pad)]
        nodes = "".join(f"{_node(at)}, " for at in bound.nodes)
        inner = "".join(f"{_node(at)}.outputs[{k}], " for at, k in bound.inner)
        lines.append(f"{pad}{name}(graph, facts, found, ({nodes}), ({inner}), {', '.join(args)})")
        lines[-1] += f"  # {program.pattern.name}"
        return lines


def _local(letter: str, at: Position) -> str:
    return "_".join([letter, *(f"m{-k}" if k < 0 else f"e{k - EITHER}" if k >= EITHER else str(k) for k in at)])


def _node(at: Position) -> str:
    return _local("n", at)


def _value(at: Position) -> str:
    return _local("v", at)


def _attribute(place: AttributeAt) -> str:
    subject = f"{_node(place.at)}.attributes[{place.index}][1]"
    return f"bool({subject})" if place.type.kind == "bool" else subject


def _rest(at: Position, indices: Sequence[int]) -> str:
    return f"({''.join(f'{_node(at)}.attributes[{k}], ' for k in indices)})"


def _list(at: Position, before: int, behind: int) -> str:
    return f"{_node(at)}.inputs[{before}:{f'-{behind}' if behind else ''}]"


def _is(subject: str, answer: Hashable) -> str:
    if answer is True:
        return subject
    if answer is False:
        return f"not {subject}"
    return f"{subject} == {answer!r}"


def shape_of(info: Any) -> Any:
    return None if info is None else info.shape


def ranked(info: Mapping[str, ValueInfo], outputs: Sequence[str], most: int) -> bool:
    """Whether all results are known to have at most so many dimensions."""
    shapes = [shape_of(info.get(o)) for o in outputs if o]
    return all(shape is not None and len(shape) <= most for shape in shapes)


def rounded(value: Any) -> Any:
    """An attribute of real numbers as single precision has them."""
    return tuple(single(v) for v in value) if isinstance(value, tuple) else single(value)  # pyright: ignore


def never(why: str) -> Any:
    raise Mismatch(why)


_NAMESPACE: Mapping[str, object] = MappingProxyType(
    {
        **expressions.HELPERS,
        **ending.HELPERS,
        **{f"{name}_dtypes": dtypes for name, dtypes in CLASSES.items()},
        "Match": Match,
        "Mismatch": Mismatch,
        "Undecided": Undecided,
        "above": above,
        "crosses": crosses,
        "private": private,
        "known_dtypes": NAMED,
        "ranked": ranked,
        "shape_of": shape_of,
        "rounded": rounded,
        "never": never,
    }
)
