"""Models put into files: whole, or not at all.

Everything is written beside its destination and moved there in one step, so that neither a full disk nor an interrupt
leaves half a file or harms what was there.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import cast

import onnx
import onnx_ir

from tasodsl.graph.onnx_in import CarriedModel, ModelError

_SOURCE = "tasodsl.source"
"""Where an exported model keeps the carried model that it came from, among onnx_ir's unsaved notes."""

LARGEST_BYTES = 2_000_000_000
"""A model with more bytes of tensors is written with external data: ONNX's message ends at 2 GiB."""

SMALLEST_EXTERNAL_BYTES = 1024
ALIGNMENT = 4096


def notes(store: object) -> dict[str, object]:
    """The unsaved notes on one of onnx_ir's objects."""
    return cast("dict[str, object]", store)


def note_source(model: onnx_ir.Model, source: CarriedModel) -> None:
    notes(model.meta)[_SOURCE] = source


def source_of(model: onnx_ir.Model) -> CarriedModel | None:
    """The carried model that `model` was exported from."""
    return cast("CarriedModel | None", notes(model.meta).get(_SOURCE))


def to_proto(model: onnx_ir.Model) -> onnx.ModelProto:
    """The exported model as ONNX's own message, with what onnx_ir does not carry; `ModelError` when it has none."""
    try:
        proto = onnx_ir.to_proto(model)
    except onnx_ir.serde.SerdeError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise ModelError(
            f"the model cannot be written: {(str(cause) or type(cause).__name__).splitlines()[0]}"
        ) from error
    source = source_of(model)
    if source is not None:
        proto.training_info.extend(source.proto.training_info)
    return proto


def save_model(model: onnx_ir.Model, path: str | Path) -> None:
    """Write the model to `path`; `ModelError` when that cannot be done.

    The tensors go into a file of external data beside it when they are too large for one file, or when the model that
    this one was exported from kept them so.
    """
    target = Path(path).resolve()
    source = source_of(model)
    external = frozenset[Path]() if source is None else source.external
    try:
        if external or sum(t.nbytes for _, t in _tensors(model)) > LARGEST_BYTES:
            _save_with_data(model, target, external)
        else:
            with _replacement(target) as temporary:
                temporary.write_bytes(to_proto(model).SerializeToString())
    except OSError as error:
        raise ModelError(f"cannot write {path}: {error.strerror or error}") from None


def save_bytes(content: bytes, path: str | Path) -> None:
    """Write `content` to `path`, whole or not at all."""
    try:
        with _replacement(Path(path).resolve()) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise ModelError(f"cannot write {path}: {error.strerror or error}") from None


def _save_with_data(model: onnx_ir.Model, target: Path, used: frozenset[Path]) -> None:
    data, replaced = _data_path(target, used)
    before = list(_tensors(model))
    try:
        # The data takes its place first: a model must never be there without it.
        with _replacement(target) as temporary, _replacement(data) as temporary_data:
            with temporary_data.open("wb") as file:
                for value, tensor in before:
                    if tensor.nbytes < SMALLEST_EXTERNAL_BYTES or tensor.dtype == onnx_ir.DataType.STRING:
                        continue
                    file.write(b"\0" * (-file.tell() % ALIGNMENT))
                    offset = file.tell()
                    file.write(tensor.tobytes())
                    value.const_value = onnx_ir.ExternalTensor(
                        data.name,
                        offset,
                        file.tell() - offset,
                        tensor.dtype,
                        shape=onnx_ir.Shape(tensor.shape.numpy()),
                        name=value.name or "",
                        base_dir=data.parent,
                    )
            temporary.write_bytes(to_proto(model).SerializeToString())
    finally:
        for value, tensor in before:
            value.const_value = tensor
    for old in replaced:
        old.unlink(missing_ok=True)


def _data_path(target: Path, used: frozenset[Path]) -> tuple[Path, list[Path]]:
    """A new file for the data, and the files that it replaces: those of earlier models at `target`, unless in use."""
    taken: list[Path] = []
    while True:
        count = len(taken)
        data = target.with_name(f"{target.name}.data" if count == 0 else f"{target.name}.{count}.data")
        if not data.exists():
            return data, [t for t in taken if t.resolve() not in used]
        taken.append(data)


def _tensors(model: onnx_ir.Model) -> Iterator[tuple[onnx_ir.Value, onnx_ir.TensorProtocol]]:
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value, value.const_value


@contextlib.contextmanager
def _replacement(target: Path) -> Generator[Path]:
    """A new file in the target's folder, which takes the target's place when all went well."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, _mode(target))
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _mode(target: Path) -> int:
    """The permissions of the file there, or those that a new file gets."""
    try:
        return target.stat().st_mode & 0o777
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
