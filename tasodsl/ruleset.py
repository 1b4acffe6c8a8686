"""A rule set: all the declarations of one run by name, in the order of the texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tasodsl import syntax as s


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Checked declarations; names of one kind are unique. Only a rule set without errors may be compiled or proved."""

    ops: Mapping[str, s.OpDecl]
    fns: Mapping[str, s.FnDecl]
    axioms: Mapping[str, s.AxiomDecl]
    rules: Mapping[str, s.RuleDecl]

    @staticmethod
    def of(declarations: Iterable[s.AnyDecl]) -> RuleSet:
        """The declarations by kind and name; of two with one name the first."""
        ops: dict[str, s.OpDecl] = {}
        fns: dict[str, s.FnDecl] = {}
        axioms: dict[str, s.AxiomDecl] = {}
        rules: dict[str, s.RuleDecl] = {}
        for declaration in declarations:
            match declaration:
                case s.OpDecl():
                    ops.setdefault(declaration.name, declaration)
                case s.FnDecl():
                    fns.setdefault(declaration.name, declaration)
                case s.AxiomDecl():
                    axioms.setdefault(declaration.name, declaration)
                case s.RuleDecl():
                    rules.setdefault(declaration.name, declaration)
        return RuleSet(MappingProxyType(ops), MappingProxyType(fns), MappingProxyType(axioms), MappingProxyType(rules))
