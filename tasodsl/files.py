"""The files of a run: whether they can be written is found out before any work is done."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx

from tasodsl.errors import UserError
from tasodsl.graph.onnx_in import load_model
from tasodsl.graph.save import note_source, save_bytes, save_model
from tasodsl.runtime import read_model


def require_writable(target: Path) -> None:
    """UserError unless a file can be made beside `target` to take its place: found out before any work is done."""
    if target.is_dir():
        raise UserError(f"{target}: cannot write: it is a folder")
    if target.exists() and not target.is_file():
        # A device would be replaced by a file.
        raise UserError(f"{target}: cannot write: it is no ordinary file")
    if not target.parent.is_dir():
        raise UserError(f"{target}: cannot write: there is no folder {target.parent}")
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise UserError(f"{target}: cannot write: {error.strerror or error}") from error


def write_text(target: Path, text: str) -> None:
    """Write `text` to `target`, whole or not at all."""
    save_bytes(text.encode(), target)


def copy_model(source: Path, target: Path) -> None:
    """Make `target` the same model as `source`: the same bytes where all is in one file."""
    if target.exists() and target.samefile(source):
        return
    if not external_files(source):
        save_bytes(source.read_bytes(), target)
        return
    model = load_model(source)
    note_source(model.ir, model)  # so that the copy keeps its tensors in a file of their own, too
    save_model(model.ir, target)


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
