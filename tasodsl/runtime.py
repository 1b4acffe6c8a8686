"""The one door to onnxruntime's CPU provider: sessions are opened, run and profiled here and nowhere else.

The runtime is imported when the first session is opened, so that commands which run no model start fast. Whatever it
raises becomes `RuntimeRefused` with one line of text.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard, cast

import numpy as np
import onnx

ModelSource = bytes | str | Path
"""A serialized model, or the path of its file. Models with external data are given by path."""

Feed = dict[str, np.ndarray]
"""One run's inputs by name."""


class RuntimeRefused(Exception):
    """The runtime did not load or run a model; the text is the first line of its reason."""


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """One kernel's call in a profiled run."""

    node: str
    op_type: str
    domain: str
    seconds: float


def is_array(value: object) -> TypeGuard[np.ndarray]:
    """Whether a value of a run is a tensor (it may be a sequence, a map, or nothing)."""
    return isinstance(value, np.ndarray)


def _module() -> Any:
    return importlib.import_module("onnxruntime")


def runtime_version() -> str:
    """The installed onnxruntime's version."""
    return str(_module().__version__)


class Session:
    """A loaded model on the CPU provider."""

    def __init__(
        self,
        model: ModelSource,
        *,
        optimize: bool,
        threads: int = 1,
        profile_prefix: str | None = None,
        external_folder: Path | None = None,
    ) -> None:
        """Load `model`; `external_folder` is where a model given as bytes keeps its external data."""
        runtime = _module()
        options = runtime.SessionOptions()
        levels = runtime.GraphOptimizationLevel
        options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 4
        if external_folder is not None:
            options.add_session_config_entry(
                "session.model_external_initializers_file_folder_path", str(external_folder)
            )
        if profile_prefix is not None:
            options.enable_profiling = True
            options.profile_file_prefix = profile_prefix
        source = model if isinstance(model, bytes) else str(model)
        self._session = cast(
            Any, _guarded(lambda: runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"]))
        )

    def run(self, feed: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None) -> list[object]:
        """The values of `outputs` (of all graph outputs when None), in order."""
        names = None if outputs is None else list(outputs)
        return cast("list[object]", _guarded(lambda: self._session.run(names, dict(feed))))

    def output_names(self) -> list[str]:
        return [str(o.name) for o in self._session.get_outputs()]

    def profile(self) -> list[KernelEvent]:
        """End the profiling that was begun on loading; kernels' calls in order of time. The profile is deleted."""
        path = Path(str(self._session.end_profiling()))
        try:
            records = json.loads(path.read_text())
        except ValueError as error:
            raise RuntimeRefused("its profile is cut short: is the disk full?") from error
        finally:
            path.unlink(missing_ok=True)
        events: list[KernelEvent] = []
        for record in records:
            name = str(record.get("name", ""))
            if record.get("cat") != "Node" or not name.endswith("_kernel_time"):
                continue
            args = record.get("args", {})
            op_type, domain = str(args.get("op_name", "")), str(args.get("domain", ""))
            events.append(KernelEvent(name.removesuffix("_kernel_time"), op_type, domain, float(record["dur"]) * 1e-6))
        return events


def _guarded(call: Any) -> object:
    """What `call` returns. The runtime's exceptions share no base class of their own, so all of them are taken."""
    try:
        return call()
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise RuntimeRefused(lines[0]) from error


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model's graph in memory, its external data left where it is."""

    proto: onnx.ModelProto
    folder: Path | None
    """Where external data lies; None for a model that was given as bytes."""

    def open(self, *, optimize: bool, threads: int = 1, extra_outputs: Sequence[str] = ()) -> Session:
        """A session that gives `extra_outputs` after the model's own outputs."""
        proto = self.proto
        if extra_outputs:
            proto = onnx.ModelProto()
            proto.CopyFrom(self.proto)
            proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in extra_outputs)
        return Session(proto.SerializeToString(), optimize=optimize, threads=threads, external_folder=self.folder)


def read_model(model: ModelSource) -> ModelFile:
    """Parse a model without loading its external data."""
    if isinstance(model, bytes):
        return ModelFile(onnx.load_model_from_string(model), None)
    path = Path(model).resolve()
    return ModelFile(onnx.load_model_from_string(path.read_bytes()), path.parent)
