"""What the pages show is so: their commands are run and end as they say, their texts and their paths are real."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from tasodsl.cli import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OLD_PAGES = {"language.md", "errors.md"}
"""Pages with longer lines."""
TABLE = ("nodes", "file", "estimated time", "measured time")
NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")


class Command(NamedTuple):
    """A command of a `console` block, and what the page says of how it ends."""

    words: list[str]
    exit_code: int
    output: list[str]

    def __str__(self) -> str:
        return " ".join(self.words)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def commands() -> Iterator[Command]:
    for block in (b for page in PAGES for b in blocks(page, "console")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, *output = part.splitlines()
            stated = re.search(r"# exit code (\d+)$", line)
            words = shlex.split(line, comments=True)
            yield Command(words, int(stated[1]) if stated else 0, output)


COMMANDS = list(commands())


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader has who ran `make example` in a checkout."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "rules").symlink_to(ROOT / "rules")
    maker = [sys.executable, str(ROOT / "examples" / "make_small_network.py"), str(folder / "small.onnx")]
    subprocess.run(maker, check=True, capture_output=True)
    return folder


@pytest.fixture(autouse=True)
def _as_a_reader(workplace: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("TASODSL_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("COLUMNS", "120")


def run(words: list[str]) -> tuple[int, str]:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out), pytest.raises(SystemExit) as end:
        app(words[1:])
    return int(end.value.code or 0), out.getvalue()


def gist(line: str) -> str:
    """A line without its numbers and its spacing."""
    return " ".join(NUMBER.sub("N", line).replace("on record", "N").split())


def test_the_pages_show_each_command() -> None:
    assert {c.words[1] for c in COMMANDS} == {"check", "fmt", "verify", "optimize"}


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_ends_as_its_page_says(command: Command) -> None:
    assert command.words[0] == "tasodsl"
    exit_code, printed = run(command.words)
    assert exit_code == command.exit_code, printed
    if command.words[1] == "optimize":  # what is faster depends on the machine
        assert all(any(line.startswith(row) for line in printed.splitlines()) for row in TABLE), printed
        assert Path(command.words[command.words.index("-o") + 1]).exists()
        return
    shown = {gist(line) for line in printed.splitlines()}
    assert [line for line in command.output if gist(line) not in shown] == []


@pytest.mark.parametrize("block", [b for page in PAGES for b in blocks(page, "python")])
def test_python_of_the_pages_runs(block: str) -> None:
    exec(compile(block, "page", "exec"), {})
    assert Path("folded.opt.onnx").exists()


def test_rules_of_the_pages_are_those_of_the_examples() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "examples").glob("*.taso")))
    shown = [block for page in PAGES for block in blocks(page, "taso")]
    assert shown
    assert [block for block in shown if block not in texts] == []


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.taso")), ids=lambda path: path.stem)
def test_examples_are_well_formed_and_formatted(path: Path) -> None:
    assert run(["tasodsl", "check", str(path)])[0] == 0
    assert run(["tasodsl", "fmt", "--check", str(path)])[0] == 0


def test_places_that_the_pages_name_exist() -> None:
    missing: list[str] = []
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        named = re.findall(r"`((?:[a-z_*]+/)*[a-z_*]+(?:\.py|\.taso|\.lark|\.lock|/))`", text)
        linked = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
        homes = (ROOT, ROOT / "rules", ROOT / "tasodsl", ROOT / "tasodsl" / "prove")
        missing += [f"{page.name}: {n}" for n in named if not any(list(home.glob(n.rstrip("/"))) for home in homes)]
        missing += [f"{page.name}: {link}" for link in linked if not (page.parent / link).exists()]
    assert missing == []


def test_lines_are_not_too_long() -> None:
    pages = [page for page in PAGES if page.name not in OLD_PAGES]
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    assert [line for line in lines if len(line) > 120] == []


def test_no_anchor_is_broken() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        anchors = {title.lower().replace(" ", "-") for title in titles}
        assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= anchors
