"""`tasodsl check`: what it prints and how it ends, for good files and bad ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Done, run

GOOD = """/// Relu twice is Relu once.
rule relu_twice
  for x: [..S]
  match   y = Relu(Relu(x))
  rewrite y = Relu(x)
  example S=[2, 3]
"""
BAD = GOOD.replace("= Relu(x)", "= Rellu(z)")


def check(*args: object) -> Done:
    return run("check", *args)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a.taso"


def test_a_good_file(file: Path) -> None:
    file.write_text(GOOD)
    result = check(file)
    assert result.exit_code == 0
    assert result.output.startswith("1 rule, 0 axioms, ")
    assert result.output.endswith("operators: no errors\n")


def test_every_error_is_shown_with_its_place(file: Path) -> None:
    file.write_text(BAD)
    result = check(file)
    assert result.exit_code == 1
    assert f"--> {file}:5:15" in result.output
    assert f"--> {file}:5:21" in result.output
    assert "did you mean `Relu`?" in result.output
    assert result.output.endswith("\n2 errors\n")


def test_warnings_are_shown_and_are_no_failure(file: Path) -> None:
    file.write_text(GOOD.replace("  example S=[2, 3]\n", ""))
    result = check(file)
    assert result.exit_code == 0
    assert "warning[W0302]" in result.output
    assert "1 warning" in result.output


def test_json(file: Path) -> None:
    file.write_text(BAD)
    result = check("--json", file)
    assert result.exit_code == 1
    first, second = json.loads(result.output)
    assert (first["code"], first["severity"], first["file"]) == ("E0202", "error", str(file))
    assert (first["line"], first["column"], first["end_line"], first["end_column"]) == (5, 15, 5, 20)
    assert second["code"] == "E0201"


def test_json_of_a_good_file_is_an_empty_list(file: Path) -> None:
    file.write_text(GOOD)
    result = check("--json", file)
    assert result.exit_code == 0
    assert json.loads(result.output) == []


def test_an_empty_file_is_no_error(file: Path) -> None:
    file.write_text("")
    assert check(file).exit_code == 0


def test_a_missing_file(file: Path) -> None:
    result = check(file)
    assert result.exit_code == 1
    assert f"there is no file `{file}`" in result.output


def test_a_file_that_is_no_text(file: Path) -> None:
    file.write_bytes(b"/// Gr\xfc\xdfe.\nfn f(x) = x\n")
    result = check(file)
    assert result.exit_code == 1
    assert "is not UTF-8 text: the byte 0xfc at offset 6" in result.output
    assert f"--> {file}:1:7" in result.output


def test_a_folder_without_rule_files(tmp_path: Path) -> None:
    result = check(tmp_path)
    assert result.exit_code == 1
    assert "holds no `.taso` files" in result.output


def test_a_folder_is_searched_to_the_bottom(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.taso").write_text(GOOD)
    (tmp_path / "a" / "notes.txt").write_text("rule")
    result = check(tmp_path)
    assert result.exit_code == 0
    assert result.output.startswith("1 rule, ")


def test_a_file_given_twice_is_read_once(file: Path) -> None:
    file.write_text(GOOD)
    assert check(file, file.parent, file).exit_code == 0


def test_two_files_with_one_name_clash(tmp_path: Path) -> None:
    (tmp_path / "a.taso").write_text(GOOD)
    (tmp_path / "b.taso").write_text(GOOD)
    result = check(tmp_path)
    assert result.exit_code == 1
    assert "the rule `relu_twice` is declared twice" in result.output
    assert f"::: {tmp_path / 'a.taso'}:2:6" in result.output


def test_a_shipped_operator_is_not_declared_again(file: Path) -> None:
    file.write_text("/// Mine.\nop Relu(X: [n]) -> Y: [n]\n  def Y[i] = X[i]\n")
    result = check(file)
    assert result.exit_code == 1
    assert "the operator `Relu` is declared twice" in result.output


def test_the_shipped_rules_have_neither_errors_nor_warnings() -> None:
    from tasodsl.resources import rules_path

    result = check(rules_path())
    assert result.exit_code == 0
    assert "[" not in result.output, result.output


@pytest.mark.parametrize("args", [[], ["--jason", "x"]])
def test_wrong_usage(args: list[str]) -> None:
    assert check(*args).exit_code == 2


def test_a_terminal_without_unicode_still_gets_the_message(file: Path) -> None:
    file.write_text("/// Größe.\nrule größe\n")
    command = [sys.executable, "-m", "tasodsl", "check", str(file)]
    done = subprocess.run(
        command, capture_output=True, env={"PYTHONIOENCODING": "ascii"}, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 1
    assert b"error[E0102]" in done.stdout
    assert done.stderr == b""
