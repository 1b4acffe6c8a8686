"""The cost table: what it keeps, and that its file is never a reason to fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tasodsl.cost.table import CostTable, cpu_name, default_path

WRITER = """
import sys
from pathlib import Path
from tasodsl.cost.table import CostTable
table = CostTable(Path(sys.argv[1]))
for i in range(40):
    table.put("env", {f"{sys.argv[2]} {i}": float(i)})
"""


def test_an_entry_is_found_by_the_next_process(tmp_path: Path) -> None:
    CostTable(tmp_path / "deep" / "costs.sqlite").put("env", {"Conv": 0.25})
    again = CostTable(tmp_path / "deep" / "costs.sqlite")
    assert again.get("env", "Conv") == 0.25
    assert again.get("other env", "Conv") is None
    assert again.get("env", "MatMul") is None


def test_a_later_measurement_replaces_an_earlier_one(tmp_path: Path) -> None:
    table = CostTable(tmp_path / "costs.sqlite")
    table.put("env", {"Conv": 1.0})
    table.put("env", {"Conv": 2.0})
    assert CostTable(tmp_path / "costs.sqlite").get("env", "Conv") == 2.0


@pytest.mark.parametrize("content", [b"this is not a database" * 100, b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_damaged_file_is_left_alone_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    path = tmp_path / "costs.sqlite"
    path.write_bytes(content)
    table = CostTable(path)
    table.put("env", {"Conv": 1.0})
    table.put("env", {"MatMul": 2.0})
    assert table.in_memory
    assert table.get("env", "MatMul") == 2.0
    assert len(caplog.records) == 1
    assert "will not be kept" in caplog.text
    assert path.read_bytes() == content


def test_a_folder_that_cannot_be_made_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    table = CostTable(tmp_path / "file" / "costs.sqlite")
    table.put("env", {"Conv": 1.0})
    assert table.in_memory
    assert table.get("env", "Conv") == 1.0


def test_a_file_that_another_version_wrote_differently_is_no_failure(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "costs.sqlite") as db:
        db.execute("CREATE TABLE costs (something TEXT)")
    assert CostTable(tmp_path / "costs.sqlite").in_memory


def test_two_processes_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in ("a", "b")]
    assert [w.wait() for w in writers] == [0, 0]
    assert len(CostTable(path)) == 80


def test_export_and_merge(tmp_path: Path) -> None:
    one, two = CostTable(tmp_path / "one.sqlite"), CostTable(tmp_path / "two.sqlite")
    one.put("env", {"Conv": 1.0})
    one.put("env", {"MatMul": 2.0})
    two.put("env", {"Conv": 9.0})
    one.export(tmp_path / "costs.json")
    assert two.merge(tmp_path / "costs.json") == 1
    assert two.get("env", "Conv") == 9.0
    assert CostTable(tmp_path / "two.sqlite").get("env", "MatMul") == 2.0


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", json.dumps({"format": "tasodsl costs 1", "entries": [{"kernel": 1}]}), "5"],
)
def test_merging_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "costs.json").write_text(text)
    with pytest.raises(ValueError, match=r".+"):
        CostTable(tmp_path / "costs.sqlite").merge(tmp_path / "costs.json")


def test_the_file_lies_where_the_person_wants_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("TASODSL_CACHE", raising=False)
    assert default_path() == tmp_path / "xdg" / "tasodsl" / "costs.sqlite"
    monkeypatch.setenv("TASODSL_CACHE", str(tmp_path / "mine"))
    assert default_path() == tmp_path / "mine" / "costs.sqlite"


def test_the_processor_has_a_stable_name() -> None:
    assert cpu_name() == cpu_name()
    assert len(cpu_name().split()[-1]) == 12
