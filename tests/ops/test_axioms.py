"""The shipped axioms hold for the numbers that their definitions give, at sizes and attributes that all differ."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from op_cases import floats

from tasodsl import syntax as s
from tasodsl.check import load_rules
from tasodsl.evaluate import evaluate_op
from tasodsl.resources import rules_path
from tasodsl.scalar import evaluate
from tasodsl.values import Environment, Target

Array = NDArray[Any]
RULES, PROBLEMS = load_rules([rules_path() / "axioms"])

SIZES = {"m": 2, "n": 3, "k": 4, "l": 5, "n1": 2, "n2": 3, "m1": 2, "m2": 4, "k1": 3, "k2": 2, "p": 2, "q": 1, "d": 1}
SPACE = {
    "n": 2,
    "c": 3,
    "e": 3,
    "m": 4,
    "h": 6,
    "w": 5,
    "r": 3,
    "s": 2,
    "c1": 3,
    "c2": 2,
    "n1": 2,
    "n2": 1,
    "m1": 3,
    "m2": 2,
}
WINDOW = {"strides": (2, 1), "pads": (1, 0, 2, 1)}
PACKS = {"S": (2,), "T": (4, 1)}

GROUPED = {**SPACE, "c": 6, "rest": {**WINDOW, "group": 2}}
PLAIN = {**SPACE, "rest": WINDOW}
POOLED = {**SPACE, "rest": {**WINDOW, "kernel_shape": (3, 2), "dilations": (1, 2)}}

# What an instance has instead of SIZES: attributes that the axiom names or leaves open, and sizes that fit together.
SPECIAL: Mapping[str, Mapping[str, Any]] = {
    "scale_from_operand_to_kernel": GROUPED,
    "scale_through_conv": GROUPED,
    "conv_distributes_over_kernels": GROUPED,
    "conv_distributes_over_operands": GROUPED,
    "conv_of_batches": GROUPED,
    "conv_of_concats": PLAIN,
    "conv_of_kernels": PLAIN,
    "conv_of_enlarged_kernel": {
        **SPACE, "z": (0, 0, 1, 2, 0, 0, 1, 2), "p": (2, 3, 2, 2), "d": (2, 1), "rest": {"strides": (1, 2)},
    },
    "conv_by_identity": {**SPACE, "z": (0, 0, 1, 2, 0, 0, 1, 2), "p": (1, 2, 1, 2)},
    "conv_by_means": {**SPACE, "a": Fraction(1, 6), "t": (1, 2), "p": (1, 0, 2, 1)},
    "average_pool_through_concat": {**SPACE, "rest": {**WINDOW, "kernel_shape": (3, 2), "count_include_pad": 0}},
    "max_pool_through_concat": POOLED,
    "max_pool_through_concat_of_batches": POOLED,
    "means_of_identity": {"c": 3, "p": 2, "q": 1, "a": Fraction(1, 15)},
}  # fmt: skip


class Instance:
    """An axiom at given sizes: its variables are random tensors."""

    def __init__(self, axiom: s.AxiomDecl) -> None:
        chosen = dict(SPECIAL.get(axiom.name, SIZES))
        self.rest: Mapping[str, Any] = chosen.pop("rest", {})
        self.env = Environment(RULES.fns, {**PACKS, **chosen}, {})
        for k, variable in enumerate(axiom.variables):
            self.env.tensors[variable.name] = self.tensor(variable, k)

    def tensor(self, variable: s.Operand, k: int) -> Array:
        shape: list[int] = []
        for dim in variable.type.dims:
            assert not isinstance(dim, s.PerOperand)
            if isinstance(dim, s.Splice):
                shape.extend(self.value(dim.value))
            else:
                shape.append(self.value(dim))
        if variable.value is not None:
            return np.full(shape, float(self.value(variable.value)))
        return floats(*shape) * (k + 1.5) - k

    def value(self, e: s.Expr) -> Any:
        return evaluate(e, self.env, Target())

    def result(self, term: s.Term) -> Array:
        if isinstance(term, s.Var):
            return self.env.tensors[term.name]
        assert isinstance(term, s.Apply)
        attributes = dict(self.rest) if term.rest is not None else {}
        attributes |= {arg.name: self.value(arg.value) for arg in term.attrs}
        (y,) = evaluate_op(RULES.ops[term.op], RULES.fns, [self.result(a) for a in term.args], attributes)
        return y


def test_there_are_43_of_them_without_faults() -> None:
    assert PROBLEMS == []
    assert len(RULES.axioms) == 43


@pytest.mark.parametrize("name", RULES.axioms)
def test_both_sides_are_equal(name: str) -> None:
    axiom = RULES.axioms[name]
    instance = Instance(axiom)
    for clause in axiom.clauses:
        if isinstance(clause, s.LetScalar):
            instance.env.values[clause.name] = instance.value(clause.value)
        else:
            assert instance.value(clause.condition) is True
    left, right = instance.result(axiom.left), instance.result(axiom.right)
    assert left.size > 0
    assert left.shape == right.shape
    np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12)
    assert len(np.unique(left)) > 1
