"""`tasodsl optimize` as a person uses it: what it writes, what it says, and how it ends when something is wrong."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest
from networks import tiny

from tasodsl import pipeline
from tasodsl.cli import app
from tasodsl.cli.optimize import default_output, parse_dims
from tasodsl.cost.timing import Timing
from tasodsl.errors import UsageError


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TASODSL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


SMALL = ("--rules", Path(__file__).with_name("small.taso"))
"""The shipped rules take a second to compile, which most tests need not wait for."""


def timed_alike(original: object, candidates: Sequence[object], *_: object, **__: object) -> list[Timing]:
    """A clock that finds no difference: what is written must not depend on what else the machine does."""
    return [Timing(1.0, 1.0, 1.0, 1e-3, 1e-3, 5)] * len(candidates)


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


def tasodsl(*words: object) -> Done:
    """The command, run in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as end:
        app(list(map(str, words)), prog_name="tasodsl")
    assert isinstance(end.value.code, int)
    return Done(end.value.code, out.getvalue(), err.getvalue())


def fails(*words: object, code: int = 1) -> str:
    """The message of a command that must fail with `code`: one screen, no traceback."""
    done = tasodsl(*words)
    assert done.returncode == code, done
    assert_clean(done.stdout + done.stderr)
    assert 1 <= len(done.stderr.splitlines()) <= 24
    return done.stderr


def assert_clean(text: str) -> None:
    assert "Traceback" not in text
    assert "internal error" not in text


def test_help_needs_nothing_heavy():
    heavy = "('onnx', 'onnxruntime', 'z3', 'numpy')"
    script = f"import sys; import tasodsl.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done
    assert "optimize" in tasodsl("--help").stdout


def test_it_writes_a_valid_file_a_table_and_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pipeline, "compare", timed_alike)
    source = tiny(tmp_path / "net.onnx")
    done = tasodsl("optimize", source, *SMALL, "--time", 3, "--json", tmp_path / "report.json")
    assert done.returncode == 0, done.stderr
    result = tmp_path / "net.opt.onnx"
    onnx.checker.check_model(str(result), full_check=True)
    assert "Identity" not in [n.op_type for n in onnx.load(result).graph.node]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["nodes_before"] == 5
    assert report["nodes_after"] == len(onnx.load(result).graph.node)
    assert report["largest_difference"] < 1e-4
    assert "nodes" in done.stdout
    assert "measured time" in done.stdout
    assert done.stderr == ""
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.onnx", "net.opt.onnx", "report.json"]


def test_the_shipped_rules_are_used_when_none_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pipeline, "compare", timed_alike)
    done = tasodsl("optimize", tiny(tmp_path / "net.onnx"), "--time", 3, "--json", "-")
    assert json.loads(done.stdout)["rules"] == {"conv_batchnorm": 1}


def test_json_to_stdout_is_nothing_but_json(tmp_path: Path):
    done = tasodsl("optimize", tiny(tmp_path / "net.onnx"), *SMALL, "--time", 0, "--json", "-")
    assert json.loads(done.stdout)["nodes_before"] == 5


def test_quiet_prints_nothing(tmp_path: Path):
    done = tasodsl("optimize", tiny(tmp_path / "net.onnx"), *SMALL, "--time", 0, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_input_may_be_overwritten(tmp_path: Path):
    source = tiny(tmp_path / "net.onnx")
    assert tasodsl("optimize", source, *SMALL, "-o", source, "--time", 0).returncode == 0
    onnx.checker.check_model(str(source), full_check=True)


def test_a_missing_file(tmp_path: Path):
    message = fails("optimize", tmp_path / "none.onnx")
    assert "none.onnx" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"hello, world\n" * 40, b"\x08\x07\x12\x03abc" + bytes(100)])
def test_a_file_that_is_no_model(tmp_path: Path, content: bytes):
    (tmp_path / "bad.onnx").write_bytes(content)
    assert "bad.onnx" in fails("optimize", tmp_path / "bad.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["bad.onnx"]


def test_a_truncated_model(tmp_path: Path):
    source = tiny(tmp_path / "net.onnx")
    source.write_bytes(source.read_bytes()[:-100])
    assert "net.onnx" in fails("optimize", source, *SMALL)


def test_a_folder_in_place_of_a_model(tmp_path: Path):
    assert str(tmp_path) in fails("optimize", tmp_path)


@pytest.mark.parametrize("where", ["none/out.onnx", "."])
def test_an_output_that_cannot_be_written(tmp_path: Path, where: str):
    source = tiny(tmp_path / "net.onnx")
    assert "cannot write" in fails("optimize", source, *SMALL, "-o", tmp_path / where)
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


def test_a_report_that_cannot_be_written_is_found_out_first(tmp_path: Path):
    source = tiny(tmp_path / "net.onnx")
    assert "cannot write" in fails("optimize", source, *SMALL, "--json", tmp_path / "none" / "r.json")
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


def test_a_report_in_the_place_of_the_model(tmp_path: Path):
    source = tiny(tmp_path / "net.onnx")
    before = source.read_bytes()
    assert "cannot both be" in fails("optimize", source, *SMALL, "--json", source, code=2)
    assert source.read_bytes() == before


def test_broken_rules(tmp_path: Path):
    source = tiny(tmp_path / "net.onnx")
    rules = tmp_path / "bad.taso"
    rules.write_text("rule broken\n  match y = = Relu(x)\n")
    assert "bad.taso:" in fails("optimize", source, "--rules", rules)


def test_a_rule_that_is_not_proved_is_not_used(tmp_path: Path):
    rules = tmp_path / "wrong.taso"
    rules.write_text("rule wrong\n  for x: [..S]\n  match y = Relu(x)\n  rewrite y = Abs(x)\n  example S=[2]\n")
    done = tasodsl("optimize", tiny(tmp_path / "net.onnx"), "--rules", rules, "--time", 0)
    assert "not proved" in done.stderr
    assert "wrong" in done.stderr
    assert "Abs" not in [n.op_type for n in onnx.load(tmp_path / "net.opt.onnx").graph.node]


def test_missing_rules(tmp_path: Path):
    assert "none.taso" in fails("optimize", tiny(tmp_path / "net.onnx"), "--rules", tmp_path / "none.taso")


def test_an_unknown_dimension(tmp_path: Path):
    source = tiny(tmp_path / "net.onnx", height="h")
    message = fails("optimize", source, *SMALL, "--dims", "width=8", code=2)
    assert "'width'" in message
    assert "h" in message.split("free ones:")[1]


@pytest.mark.parametrize(
    "words",
    [
        ["--alpha", "0.5"],
        ["--alpha", "nan"],
        ["--time", "inf"],
        ["--time", "-1"],
        ["--budget", "many"],
        ["--threads", "0"],
        ["--dims", "h"],
        ["--dims", "h=0"],
        ["--dims", "h=1,h=2"],
        ["--no-such-option"],
    ],
)
def test_wrong_usage(tmp_path: Path, words: list[str]):
    fails("optimize", tmp_path / "never-read.onnx", *words, code=2)


def test_dims_are_read():
    assert parse_dims(["h=640,w=320", " a.b=1 ", "x=y=3"]) == {"h": 640, "w": 320, "a.b": 1, "x=y": 3}
    for bad in ("", "h=", "=3", "h=-3", "h=1.5", "h=²"):
        with pytest.raises(UsageError):
            parse_dims([bad])


def test_the_default_output_lies_beside_the_input():
    assert default_output(Path("a/net.onnx")) == Path("a/net.opt.onnx")
    assert default_output(Path("net")) == Path("net.opt.onnx")


def scripted(patch: str, *words: object, **options: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own that runs `patch` first."""
    script = f"import os, signal, sys\n{patch}\nimport tasodsl.cli\ntasodsl.cli.main()"
    line = [sys.executable, "-c", script, *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, **options)  # pyright: ignore


CTRL_C_AT = """
import tasodsl.cli.show as show
def interrupt(self, event, before=show.Display.{method}):
    before(self, event)
    if {when}:
        os.kill(os.getpid(), signal.SIGINT)
show.Display.{method} = interrupt
"""


def test_ctrl_c_during_the_search_keeps_the_best_so_far(tmp_path: Path):
    source = tiny(tmp_path / "net.onnx")
    done = scripted(CTRL_C_AT.format(method="progress", when="True"), "optimize", source, *SMALL)
    assert done.returncode == 130, done
    assert_clean(done.stderr)
    assert "interrupted" in done.stdout
    onnx.checker.check_model(str(tmp_path / "net.opt.onnx"), full_check=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.onnx", "net.opt.onnx"]


@pytest.mark.parametrize(
    "stage",
    ["reading the model", "looking at proofs", "cleaning up", "comparing", "timing", "writing"],
)
def test_ctrl_c_elsewhere_leaves_nothing_half_done(tmp_path: Path, stage: str):
    source = tiny(tmp_path / "net.onnx")
    before = source.read_bytes()
    patch = CTRL_C_AT.format(method="stage", when=f"event.startswith({stage!r})")
    done = scripted(patch, "optimize", source, *SMALL, "-o", source, "--time", 0)
    assert done.returncode == 130, done
    assert_clean(done.stderr)
    assert "interrupted" in done.stderr
    assert source.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


def test_a_full_disk(tmp_path: Path):
    """No file may grow beyond 3000 bytes, as if the disk were full then."""
    source = tiny(tmp_path / "net.onnx", depth=8)
    before = source.read_bytes()
    patch = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))"
    done = scripted(patch, "optimize", source, *SMALL, "-o", source, "--time", 0)
    assert done.returncode == 1, done
    assert_clean(done.stderr)
    assert source.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]


def test_a_reader_that_goes_away(tmp_path: Path):
    read, write = os.pipe()
    os.close(read)
    source = tiny(tmp_path / "net.onnx")
    done = subprocess.run(
        [sys.executable, "-m", "tasodsl", "optimize", str(source), *map(str, SMALL), "--time", "0", "--json", "-"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    assert done.returncode == 141, done
    assert done.stderr == ""
    assert (tmp_path / "net.opt.onnx").exists()


def test_a_fault_of_ours_asks_for_a_report(tmp_path: Path):
    patch = "import tasodsl.pipeline as p\ndef load(path): raise AssertionError('oops')\np.load_model = load"
    done = scripted(patch, "optimize", tiny(tmp_path / "net.onnx"), *SMALL)
    assert done.returncode == 1
    assert "internal error: AssertionError" in done.stderr
    assert "report" in done.stderr
    assert "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]
