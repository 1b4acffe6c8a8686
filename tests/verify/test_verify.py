"""`tasodsl verify` and the records it keeps: what is proved again, what is not, and what a person sees."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random

import pytest

from tasodsl.check import load_rules
from tasodsl.cli import app
from tasodsl.parse import parse_source
from tasodsl.prove.driver import claims, verdicts_of
from tasodsl.prove.examples import example_faults
from tasodsl.prove.lock import read_lock, trusted_verdicts, user_lock
from tasodsl.prove.obligations import pattern_of
from tasodsl.prove.refute import SHORT, refute
from tasodsl.prove.verdict import Verdict
from tasodsl.prove.verify import judge
from tasodsl.ruleset import RuleSet
from tasodsl.source import Source

RIGHT = """
fn twice(k) = 2 * k

/// The positive part of the positive part.
rule relu_twice
  for x: [m, n]
  match   y = Relu(Relu(x))
  rewrite y = Relu(x)
  example m=2, n=3
"""
WRONG = """
/// A difference depends on the order.
rule swapped
  for x: [n], z: [n]
  match   y = Sub(x, z)
  rewrite y = Sub(z, x)
  example n=2
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TASODSL_CACHE", str(tmp_path / "cache"))


def tasodsl(*words: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command, run in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
        app([str(w) for w in words])
    return int(end.value.code or 0), out.getvalue(), err.getvalue()


def written(folder: Path, text: str) -> Path:
    path = folder / "rules.taso"
    path.write_text(text)
    return path


def rules_in(text: str) -> RuleSet:
    """The shipped operators and the declarations in `text`."""
    shipped, _ = load_rules([])
    module, problems = parse_source(Source("test.taso", text))
    assert not problems, problems
    return RuleSet.of([*shipped.ops.values(), *shipped.fns.values(), *module.declarations])


def verdict_on(text: str) -> Verdict:
    rules = rules_in(text)
    (claim,) = claims(RuleSet.of([*rules.rules.values(), *rules.axioms.values()]))
    return judge(claim, rules, 10.0)


# --- the command ---


def test_a_proved_rule_is_told_with_its_scope(tmp_path: Path):
    code, out, err = tasodsl("verify", written(tmp_path, RIGHT), "--jobs", 1)
    assert (code, err) == (0, "")
    assert "relu_twice  proved   definitions  all sizes, rank <= 5, at most 4 operands" in out
    assert out.endswith("1 proved\n")


def test_a_wrong_rule_is_shown_with_its_line_and_numbers(tmp_path: Path):
    code, out, _ = tasodsl("verify", written(tmp_path, WRONG), "--jobs", 1)
    assert code == 1
    assert "rules.taso:6:11" in out
    assert "6 |   rewrite y = Sub(z, x)" in out
    assert "    x = [0]\n    z = [1]\n  the match side gives\n    y = [-1]\n" in out
    assert "confirmed by onnxruntime" in out


def test_json_holds_the_verdicts(tmp_path: Path):
    code, out, _ = tasodsl("verify", written(tmp_path, RIGHT + WRONG), "--json", "--jobs", 1)
    right, wrong = json.loads(out)
    assert code == 1
    assert (right["status"], right["scope"]["max_rank"]) == ("proved", 5)
    assert (wrong["status"], wrong["findings"][0]["line"]) == ("refuted", 15)
    assert wrong["counterexample"]["operands"]["z"] == {"shape": [1], "entries": [1.0]}


def test_a_broken_file_is_told_as_by_check(tmp_path: Path):
    path = written(tmp_path, "rule broken for x: [n] match y = Rely(x) rewrite y = x")
    code, _, err = tasodsl("verify", path)
    assert code == 1
    assert "error[E0" in err
    assert "did you mean `Relu`?" in err


def test_processes_agree_with_one(tmp_path: Path):
    path = written(tmp_path, RIGHT + WRONG)
    command = [sys.executable, "-m", "tasodsl", "verify", str(path), "--jobs", "2", "--json", "--cold"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert [v["status"] for v in json.loads(done.stdout)] == ["proved", "refuted"]


# --- records ---


def test_a_proof_is_kept_until_something_changes(tmp_path: Path):
    path = written(tmp_path, RIGHT)
    tasodsl("verify", path, "--jobs", 1)
    assert [e.name for e in read_lock(user_lock())] == ["relu_twice"]
    _, out, _ = tasodsl("verify", path)
    assert "on record" in out
    _, out, _ = tasodsl("verify", path, "--cold", "--jobs", 1)
    assert "on record" not in out
    written(tmp_path, RIGHT.replace("Relu(Relu(x))", "Relu(Identity(x))"))
    _, out, _ = tasodsl("verify", path, "--jobs", 1)
    assert "on record" not in out


def test_words_for_readers_change_nothing():
    before, after = rules_in(RIGHT), rules_in("# A comment.\n" + RIGHT.replace("The positive part", "Relu"))
    verdicts_of(before, list(before.rules.values()), 10.0, 1)
    assert set(trusted_verdicts(after)) == {"relu_twice"}


def test_a_changed_operator_makes_proofs_stale():
    rules = rules_in(RIGHT)
    verdicts_of(rules, list(rules.rules.values()), 10.0, 1)
    assert set(trusted_verdicts(rules)) == {"relu_twice"}
    (other,) = parse_source(Source("other.taso", "op Relu(X: [..S]) -> Y: [..S] def Y[..i] = X[..i]"))[0].declarations
    declarations = [other, *rules.ops.values(), *rules.fns.values(), *rules.rules.values()]
    assert trusted_verdicts(RuleSet.of(declarations)) == {}


def test_a_wrong_rule_is_never_on_record():
    rules = rules_in(WRONG)
    (verdict,) = verdicts_of(rules, list(rules.rules.values()), 10.0, 1)
    assert verdict.status == "refuted"
    assert trusted_verdicts(rules) == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "tasodsl proofs 1", "proofs": [{"name": 1}]}'])
def test_a_damaged_record_is_ignored(text: str):
    user_lock().parent.mkdir(parents=True)
    user_lock().write_text(text)
    assert read_lock(user_lock()) == []


# --- verdicts ---


def test_a_waived_rule_holds_visibly_unless_it_is_wrong():
    waived = verdict_on('rule r for x: [n] match y = Relu(Relu(x)) rewrite y = Relu(x) unproved "later"')
    assert (waived.status, waived.holds, waived.why) == ("unproved", True, "later")
    wrong = verdict_on('rule r for x: [n] match y = Relu(x) rewrite y = x unproved "believe me"')
    assert (wrong.status, wrong.holds) == ("refuted", False)


def test_both_directions_of_a_birewrite_are_judged():
    text = "rule r for x: [n], z: [n] match y = Add(x, z) birewrite y = Sub(x, Neg(z))"
    assert verdict_on(text).status == "proved"
    assert verdict_on("rule r for x: [n] match y = Relu(Relu(x)) birewrite y = Relu(x)").status == "proved"


def test_commutativity_is_a_claim():
    operands = "op Minus(A: [..S], B: [..T]) -> Y: [..broadcast(S, T)]"
    rules = rules_in(f"{operands} def Y[..i] = A[..i] - B[..i] prop commutative")
    (claim,) = [c for c in claims(rules) if c.name == "Minus is commutative"]
    assert judge(claim, rules, 10.0).status == "refuted"


# --- examples ---


@pytest.mark.parametrize(
    ("clause", "fault"),
    [
        ("example n=2", ""),
        ("reject n=2", "it is matched, and should not be"),
        ("reject n=5", ""),
        ("example n=5", "no match side has these sizes"),
    ],
)
def test_examples_are_held_to_their_word(clause: str, fault: str):
    rules = rules_in(f"rule r for x: [n] match y = Relu(Relu(x)) where n < 4 rewrite y = Relu(x) {clause}")
    found = example_faults(rules.rules["r"], rules)
    assert [why for _, why in found] == ([fault] if fault else [])


# --- random rules ---

UNARY = ("Relu", "Neg", "Abs", "Exp", "Sigmoid", "Tanh")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")


@pytest.mark.parametrize("seed", range(12))
def test_what_evaluation_tells_apart_is_not_proved(seed: int):
    rng = Random(seed)

    def term(depth: int) -> str:
        if depth == 0:
            return rng.choice("xz")
        if rng.random() < 0.5:
            return f"{rng.choice(UNARY)}({term(depth - 1)})"
        return f"{rng.choice(BINARY)}({term(depth - 1)}, {term(depth - 1)})"

    rules = rules_in(
        f"rule r for x: [n], z: [n] match y = Add({term(2)}, Sub(x, z)) rewrite y = Add({term(2)}, Sub(x, z))"
    )
    rule = rules.rules["r"]
    wrong = refute(pattern_of(rule), rules, SHORT) is not None
    verdict = judge(rule, rules, 10.0)
    assert verdict.status != "contradiction"
    assert not wrong or verdict.status == "refuted"
