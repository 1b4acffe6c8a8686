"""Writing files whole or not at all: into a temporary neighbour first, which then takes the file's place."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import onnx

from tasodsl.errors import UserError
from tasodsl.graph.onnx_in import load_model
from tasodsl.graph.onnx_out import save_model
from tasodsl.runtime import read_model


def require_writable(target: Path) -> None:
    """UserError unless a file can be made beside `target` to take its place: found out before any work is done."""
    if target.is_dir():
        raise UserError(f"{target}: cannot write: it is a folder")
    if not target.parent.is_dir():
        raise UserError(f"{target}: cannot write: there is no folder {target.parent}")
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise UserError(f"{target}: cannot write: {error.strerror or error}") from error


def write_text(target: Path, text: str) -> None:
    """Write `text` to `target`, whole or not at all."""
    with _replacing(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


def copy_model(source: Path, target: Path) -> None:
    """Make `target` the same model as `source`: the same bytes where all is in one file."""
    if target.exists() and target.samefile(source):
        return
    if external_files(source):
        save_model(load_model(source).model, target)
        return
    with _replacing(target) as temporary:
        shutil.copyfile(source, temporary)


def model_bytes(path: Path) -> int:
    """The size of a model with its external data."""
    return path.stat().st_size + sum((path.parent / f).stat().st_size for f in external_files(path))


def external_files(path: Path) -> set[str]:
    """The files, relative to the model's, that hold its initializers' external data."""
    proto = read_model(path).proto
    return {
        entry.value
        for tensor in proto.graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }


@contextmanager
def _replacing(target: Path) -> Generator[Path]:
    """A new file's path in the target's folder; it takes the target's place when all went well, else it is removed."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(_usual_mode())
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _usual_mode() -> int:
    """The mode of a file made the usual way (`mkstemp` makes private ones)."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
