"""The normal form says what the shipped definitions declare: no more, no less."""

from __future__ import annotations

import pytest
from small_models import carried
from test_normal_forms import CASES, Case, parts

from tasodsl import syntax as s
from tasodsl.check import load_rules
from tasodsl.graph.normal_forms import NORMAL_FORMS
from tasodsl.graph.onnx_in import import_graph
from tasodsl.resources import rules_path

DEFINED = [c for c in CASES if c.defined]


@pytest.fixture(scope="module")
def declared() -> dict[str, s.OpDecl]:
    return dict(load_rules([rules_path() / "ops"])[0].ops)


def test_every_definition_has_a_normal_form(declared: dict[str, s.OpDecl]) -> None:
    assert set(declared) <= set(NORMAL_FORMS)
    assert set(declared) <= {c.becomes or c.op_type for c in DEFINED}


@pytest.mark.parametrize("case", [pytest.param(c, id=f"{i}-{c.op_type}") for i, c in enumerate(DEFINED)])
def test_attributes_are_those_declared(case: Case, declared: dict[str, s.OpDecl]) -> None:
    node = import_graph(carried(parts(case, case.opsets[-1], symbolic=False)[0])).nodes["y0"]
    assert {name for name, _ in node.attributes} == {a.name for a in declared[node.op_type].attrs}
