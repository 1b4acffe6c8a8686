"""`tasodsl fmt`: what it changes, what it leaves alone, and how it ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from commands import Done, run

ROUGH = "rule r for x:[n] match y=Relu(Relu(x)) # twice\nrewrite y=Relu(x)"
SMOOTH = "rule r\n  for x: [n]\n  match   y = Relu(Relu(x))  # twice\n  rewrite y = Relu(x)\n"
BROKEN = "rule r for x:[n match y=Relu(x)\n"


def fmt(*args: object) -> Done:
    return run("fmt", *args)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.taso"
    path.write_text(ROUGH)
    return path


def test_a_file_is_formatted_in_place(file: Path) -> None:
    file.chmod(0o640)
    result = fmt(file)
    assert (result.exit_code, result.output) == (0, f"formatted {file}\n")
    assert file.read_text() == SMOOTH
    assert file.stat().st_mode & 0o777 == 0o640
    assert os.listdir(file.parent) == ["a.taso"]


def test_a_formatted_file_is_not_written_again(file: Path) -> None:
    file.write_text(SMOOTH)
    before = file.stat()
    result = fmt(file)
    assert result.exit_code == 0
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_check_changes_nothing_and_tells(file: Path) -> None:
    result = fmt("--check", file)
    assert (result.exit_code, result.output) == (1, f"would format {file}\n")
    assert file.read_text() == ROUGH
    file.write_text(SMOOTH)
    assert fmt("--check", file).exit_code == 0


def test_a_file_with_errors_is_left_alone_and_the_others_are_not(file: Path) -> None:
    broken = file.with_name("b.taso")
    broken.write_text(BROKEN)
    result = fmt(file.parent)
    assert result.exit_code == 1
    assert f"--> {broken}:1:14" in result.output
    assert broken.read_text() == BROKEN
    assert file.read_text() == SMOOTH


def test_a_file_that_is_no_text_is_left_alone(file: Path) -> None:
    file.write_bytes(b"fn f(x) = x # \xff\n")
    assert fmt(file).exit_code == 1
    assert file.read_bytes() == b"fn f(x) = x # \xff\n"


def test_a_missing_file(tmp_path: Path) -> None:
    result = fmt(tmp_path / "no.taso")
    assert result.exit_code == 1
    assert "there is no file" in result.output


def test_a_link_stays_a_link(file: Path) -> None:
    link = file.with_name("link.taso")
    link.symlink_to(file.name)
    assert fmt(link).exit_code == 0
    assert link.is_symlink()
    assert file.read_text() == SMOOTH


def test_a_failed_write_leaves_the_file_and_nothing_else(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = fmt(file)
    assert result.exit_code == 1
    assert "the disk is full" in result.output
    assert file.read_text() == ROUGH
    assert os.listdir(file.parent) == ["a.taso"]


def test_wrong_usage() -> None:
    assert fmt().exit_code == 2
