"""From modules to a rule set: every declaration is looked at, everything found wrong is returned, nothing is raised."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tasodsl import syntax as s
from tasodsl.check_op import check_fn, check_op
from tasodsl.check_rule import check_axiom, check_rule
from tasodsl.check_same import check_same
from tasodsl.diagnostics import Diagnostic, Findings
from tasodsl.load import read_modules
from tasodsl.parts import name_span
from tasodsl.resources import rules_path
from tasodsl.ruleset import RuleSet

__all__ = ["RuleSet", "check", "load_rules"]


def load_rules(paths: Sequence[Path]) -> tuple[RuleSet, list[Diagnostic]]:
    """The rule set in the files and folders given, together with the operators that ship with tasodsl."""
    modules, problems = read_modules([*paths, rules_path() / "ops"])
    if problems:
        return RuleSet.of(d for m in modules for d in m.declarations), problems
    return check(modules)


def check(modules: Sequence[s.Module]) -> tuple[RuleSet, list[Diagnostic]]:
    """The rule set of `modules` and what is wrong with it. With an error among the diagnostics it must not be used."""
    declarations = [d for m in modules for d in m.declarations]
    rules = RuleSet.of(declarations)
    out = Findings()
    _repeated(declarations, out)
    for fn in rules.fns.values():
        check_fn(fn, rules.fns, out)
    for op in rules.ops.values():
        check_op(op, rules.fns, out)
    for axiom in rules.axioms.values():
        check_axiom(axiom, rules, out)
    for rule in rules.rules.values():
        check_rule(rule, rules, out)
    check_same(rules.rules.values(), out)
    order = {m.span.source.name: k for k, m in enumerate(modules)}
    return rules, sorted(out.found, key=lambda d: (order.get(d.span.source.name, -1), d.span.start))


def _repeated(declarations: Sequence[s.AnyDecl], out: Findings) -> None:
    seen: dict[tuple[str, str], s.AnyDecl] = {}
    words = {s.OpDecl: "operator", s.FnDecl: "function", s.AxiomDecl: "axiom", s.RuleDecl: "rule"}
    for decl in declarations:
        word = words[type(decl)]
        first = seen.setdefault((word, decl.name), decl)
        if first is not decl:
            message = f"the {word} `{decl.name}` is declared twice"
            out.error(
                "E0205",
                message,
                name_span(decl),
                "again",
                "give one of them another name",
                ((name_span(first), "first here"),),
            )
