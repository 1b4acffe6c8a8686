"""A directed rule as matchers see it: which binds are roots, which values are outputs, what must not close a cycle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from tasodsl import syntax as s
from tasodsl.ruleset import RuleSet

MAP_ARITY = 8
"""The most operands that `..[term for x in xs]` is matched with: matchers hold one case for each number."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a rule is proved for: no operand or matched result has more than `max_rank` dimensions, no `..xs` more than
    `max_arity` operands, and no attribute of free length more than `max_entries`."""

    max_rank: int
    max_arity: int

    @property
    def max_entries(self) -> int:
        return 2 * self.max_rank  # room for `pads`


@dataclass(frozen=True, slots=True)
class Pattern:
    """One direction of a rule, with the facts about it that matching and rewriting share."""

    name: str
    rule: s.RuleDecl
    rules: RuleSet
    match: tuple[s.Bind, ...]
    rewrite: tuple[s.Bind, ...]
    scope: Scope
    variables: Mapping[str, s.Operand]
    results: Mapping[str, tuple[int, int]]
    """A matched name: its bind and the position among the bind's results."""
    outputs: tuple[str, ...]
    """Names bound on both sides, in the order of the match side."""
    roots: tuple[int, ...]
    """Binds that no other bind reads; each but the first shares a variable with one before it."""
    crossings: tuple[tuple[str, tuple[str, ...]], ...]
    """An output, and the variables read by the rewrite side that the output is not computed from: were one of them
    computed from the output, the rewrite would close a cycle."""

    def declaration(self, op: str) -> s.OpDecl:
        return self.rules.ops[op]

    def variable(self, name: str) -> s.Operand | None:
        return self.variables.get(name)

    @property
    def height(self) -> int:
        """The most nodes that a path down the match side has."""
        return max(self._nodes_below(b.term) for b in self.match)

    def _nodes_below(self, term: s.Term) -> int:
        match term:
            case s.Apply():
                return 1 + max((self._nodes_below(a) for a in term.args), default=0)
            case s.Var() if term.name in self.results:
                return self._nodes_below(self.match[self.results[term.name][0]].term)
            case s.VariadicMap():
                return self._nodes_below(term.term)
            case _:
                return 0

    @property
    def facts(self) -> tuple[s.Expr, ...]:
        return tuple(w.condition for w in self.rule.wheres)

    @property
    def computed(self) -> frozenset[str]:
        """Names that `let` gives a value: an attribute pattern compares with them and never binds them."""
        return frozenset(let.name for let in self.rule.lets)


def patterns_of(rule: s.RuleDecl, rules: RuleSet, scope: Scope) -> list[Pattern]:
    """The directions in which the rule rewrites."""
    found = [_pattern(rule.name, rule, rules, rule.match, rule.rewrite, scope)]
    if rule.both:
        found.append(_pattern(f"{rule.name}.reverse", rule, rules, rule.rewrite, rule.match, scope))
    return found


def _pattern(
    name: str, rule: s.RuleDecl, rules: RuleSet, match: tuple[s.Bind, ...], rewrite: tuple[s.Bind, ...], scope: Scope
) -> Pattern:
    if any(isinstance(t, s.VariadicMap) for b in match for t in subterms(b.term)):
        scope = Scope(scope.max_rank, min(scope.max_arity, MAP_ARITY))
    results = {n: (k, i) for k, b in enumerate(match) for i, n in enumerate(b.names) if n != "_"}
    rewritten = {n for b in rewrite for n in b.names if n != "_"}
    outputs = tuple(n for n in results if n in rewritten)
    variables = {v.name: v for v in rule.variables}
    read = {n for b in match for n in _reads(b.term) if n in results}
    roots = [k for k, b in enumerate(match) if not read.intersection(b.names)]
    leaves = [_leaves(match, results, k) for k in range(len(match))]
    used = {n for b in rewrite for n in _reads(b.term) if n in variables and not variables[n].const}
    crossings: list[tuple[str, tuple[str, ...]]] = []
    for output in outputs:
        foreign = tuple(sorted(used - leaves[results[output][0]]))
        if foreign:
            crossings.append((output, foreign))
    order = _connected(roots, leaves)
    return Pattern(name, rule, rules, match, rewrite, scope, variables, results, outputs, order, tuple(crossings))


def _connected(roots: list[int], leaves: list[set[str]]) -> tuple[int, ...]:
    """The roots in an order in which each one shares a variable with those before it, where there is such an order."""
    order, known, left = roots[:1], set(leaves[roots[0]]), roots[1:]
    while left:
        following = next((k for k in left if known & leaves[k]), left[0])
        left.remove(following)
        order.append(following)
        known |= leaves[following]
    return tuple(order)


def _leaves(match: tuple[s.Bind, ...], results: Mapping[str, tuple[int, int]], bind: int) -> set[str]:
    """The variables that a bind's value is computed from, through other binds."""
    found: set[str] = set()
    for name in _reads(match[bind].term):
        if name in results:
            found |= _leaves(match, results, results[name][0])
        else:
            found.add(name)
    return found


def _reads(term: s.Term) -> Iterator[str]:
    """The variables and bound values that a term reads (a map reads its list, not its own variable)."""
    match term:
        case s.Var() | s.Variadic():
            yield term.name
        case s.Apply():
            for arg in term.args:
                yield from _reads(arg)
        case s.VariadicMap():
            yield term.source
            yield from (n for n in _reads(term.term) if n != term.variable)
        case _:
            return


def subterms(term: s.Term) -> Iterator[s.Term]:
    """The term and all terms in it, outermost first."""
    yield term
    if isinstance(term, s.Apply):
        for arg in term.args:
            yield from subterms(arg)
    elif isinstance(term, s.VariadicMap):
        yield from subterms(term.term)


def may_add_rank(op: s.OpDecl) -> bool:
    """Whether a result may have more dimensions than every operand; False only where the shapes show that it cannot."""
    operands = [_parts(o.type) for o in op.operands]
    for packs, fixed in (_parts(r.type) for r in op.results):
        whole = any(have >= fixed and set(packs) <= set(given) for given, have in operands)
        if whole and len(packs) == len(set(packs)):
            continue
        joined = _broadcast_packs(packs[0]) if len(packs) == 1 else None
        if joined is None or not all(any(p in given and have >= fixed for given, have in operands) for p in joined):
            return True
    return False


def _parts(type_: s.TensorType) -> tuple[list[s.Expr], int]:
    """The packs of a shape, and how many dimensions it has besides."""
    packs = [d.value for d in type_.dims if isinstance(d, s.Splice)]
    return packs, len(type_.dims) - len(packs)


def _broadcast_packs(e: s.Expr) -> set[s.Expr] | None:
    """The packs that are broadcast together, or None where that is not all that happens."""
    if isinstance(e, s.Name | s.Index):
        return {e}
    if not isinstance(e, s.Call) or e.function != "broadcast":
        return None
    parts = [_broadcast_packs(a) for a in e.args]
    return None if any(p is None for p in parts) else {n for p in parts if p is not None for n in p}


def has_free_length(type_: s.AttrType) -> bool:
    """Whether an attribute may have any number of entries."""
    return type_.kind in ("int", "real") and type_.length is not None and not isinstance(type_.length, s.Int)


def pack_split(pattern: Pattern, pack: str) -> s.Expr | None:
    """The right side of a condition `rank(pack) == e`, which says where a shape with two packs is divided."""
    for fact in pattern.facts:
        if not isinstance(fact, s.Compare) or len(fact.rest) != 1 or fact.rest[0][0] != "==":
            continue
        sides = (fact.first, fact.rest[0][1])
        for one, other in (sides, sides[::-1]):
            if isinstance(one, s.Call) and one.function in ("rank", "len") and one.args == (s.Name(pack),):
                return other
    return None


def depth_of(term: s.Term, name: str, match: tuple[s.Bind, ...], results: Mapping[str, tuple[int, int]]) -> int | None:
    """How many reads lie between the term's node and the variable `name` (1 for an operand); None where it is not read.

    The first occurrence counts, in the order in which operands are written.
    """
    match term:
        case s.Var() if term.name in results:
            return depth_of(match[results[term.name][0]].term, name, match, results)
        case s.Var() | s.Variadic():
            return 0 if term.name == name else None
        case s.Apply():
            for arg in term.args:
                inner = depth_of(arg, name, match, results)
                if inner is not None:
                    return inner + 1
            return None
        case s.VariadicMap():
            return None if term.variable == name else depth_of(term.term, name, match, results)
        case _:
            return None


def members(bound: Any) -> tuple[str, ...]:
    """The values that a name stands for: none where it is absent, several for a variadic."""
    if isinstance(bound, tuple):
        return cast(tuple[str, ...], bound)
    return (bound,) if bound else ()
