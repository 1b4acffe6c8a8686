"""What kernels cost on this machine, kept across runs in a small SQLite file.

An entry is (environment, kernel) -> seconds: the environment names the runtime, its version, the number of threads and
the processor; the kernel names operators, attributes, types and shapes. (An entry `layout KERNEL` is no time: 1 when
the kernel reads blocked images, and 2 more when it writes them.) The file is only a cache: when it is damaged or cannot
be written, the table lives in memory, and the person is told once.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import cast

FORMAT = "tasodsl costs 1"
BUSY_SECONDS = 10.0
"""How long to wait for another process that is writing."""

_log = logging.getLogger(__name__)


def default_path() -> Path:
    """`$TASODSL_CACHE`, or a folder of ours in the user's cache folder, with the table's file name."""
    chosen = os.environ.get("TASODSL_CACHE")
    if chosen:
        return Path(chosen) / "costs.sqlite"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tasodsl" / "costs.sqlite"


def cpu_name() -> str:
    """The processor's model and a digest of what it can do: kernels are chosen by its flags."""
    model, flags = platform.processor() or platform.machine(), ""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            field, _, value = line.partition(":")
            if field.strip() == "model name":
                model = value.strip()
            elif field.strip() in ("flags", "Features"):
                flags = " ".join(sorted(value.split()))
                break
    except OSError:
        flags = platform.version()
    return f"{model} {blake2b(flags.encode(), digest_size=6).hexdigest()}"


class CostTable:
    """Seconds by environment and kernel. Safe to share a file between processes: every entry is written on its own."""

    def __init__(self, path: Path | None = None) -> None:
        """Open or create the file at `path` (the user's own table when None)."""
        self.path = default_path() if path is None else path
        self.in_memory = False
        self._known: dict[tuple[str, str], float] = {}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connect()) as db:
                with db:
                    db.execute(
                        "CREATE TABLE IF NOT EXISTS costs (environment TEXT, kernel TEXT, seconds REAL NOT NULL,"
                        " PRIMARY KEY (environment, kernel)) WITHOUT ROWID"
                    )
                self._known = _rows(db)
        except (OSError, sqlite3.Error, ValueError, TypeError) as error:
            self._give_up(error)

    def get(self, environment: str, kernel: str) -> float | None:
        """The seconds of an entry; None when it was never measured."""
        return self._known.get((environment, kernel))

    def put(self, environment: str, entries: Mapping[str, float]) -> None:
        """Keep seconds by kernel, replacing older ones."""
        self._write({(environment, kernel): seconds for kernel, seconds in entries.items()})

    def export(self, path: Path) -> None:
        """Write all entries as JSON, sorted, for another machine's `merge` or for reading."""
        entries = [{"environment": e, "kernel": k, "seconds": s} for (e, k), s in sorted(self._known.items())]
        path.write_text(json.dumps({"format": FORMAT, "entries": entries}, indent=1) + "\n")

    def merge(self, path: Path) -> int:
        """Take the entries of an exported file that are missing here; how many. ValueError when it is no such file."""
        try:
            data: object = json.loads(path.read_text())
            if not isinstance(data, dict) or cast("dict[str, object]", data).get("format") != FORMAT:
                raise ValueError(f"{path} is not a cost table of format {FORMAT!r}")
            rows = {
                (str(e["environment"]), str(e["kernel"])): float(cast(float, e["seconds"]))
                for e in cast("list[dict[str, object]]", cast("dict[str, object]", data)["entries"])
            }
        except (KeyError, TypeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not a cost table: {error}") from error
        missing = {key: seconds for key, seconds in rows.items() if key not in self._known}
        self._write(missing)
        return len(missing)

    def __len__(self) -> int:
        return len(self._known)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=BUSY_SECONDS)

    def _write(self, entries: dict[tuple[str, str], float]) -> None:
        self._known.update(entries)
        if self.in_memory or not entries:
            return
        try:
            with closing(self._connect()) as db:
                # What a power cut may lose can be measured again: no need to wait for the disk after every kernel.
                db.execute("PRAGMA synchronous = OFF")
                with db:
                    db.executemany(
                        "INSERT OR REPLACE INTO costs VALUES (?, ?, ?)", [(e, k, s) for (e, k), s in entries.items()]
                    )
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.in_memory = True
        _log.warning("the cost table %s cannot be used (%s); measured costs will not be kept", self.path, error)


def _rows(db: sqlite3.Connection) -> dict[tuple[str, str], float]:
    return {(str(e), str(k)): float(s) for e, k, s in db.execute("SELECT environment, kernel, seconds FROM costs")}
