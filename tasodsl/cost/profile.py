"""Models run under the runtime's profiler: how long each kernel takes that the runtime makes of a model."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from tasodsl.cost.kernel import IR_VERSION
from tasodsl.runtime import Feed, KernelEvent, Session

OPSET = 13
MIN_RUNS, MAX_RUNS = 7, 100
MIN_SECONDS, MAX_SECONDS = 0.02, 0.25
"""A model is run until its times settle, within these limits."""
SETTLED = 1.03
"""Times have settled when the third fastest is within this factor of the fastest."""


def kernel_seconds(model: bytes, feed: Feed, threads: int, profiler_seconds: float) -> list[tuple[str, float]]:
    """Operator and seconds of each kernel that the runtime makes of the model; what the profiler adds is taken off."""
    calls = _profile(model, feed, threads)
    return [(events[0].op_type, max(_typical(events) - profiler_seconds, 0.0)) for events in calls]


def reorder_model(shape: tuple[int, ...]) -> tuple[bytes, Feed]:
    """A model that wants its operand in the blocked layout and does nothing else of note."""
    return _model([onnx.helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[1, 1])], "x", shape)


def _profile(model: bytes, feed: Feed, threads: int) -> list[list[KernelEvent]]:
    """The calls of each kernel that the runtime makes of the model, the first run (which allocates) left out."""
    with tempfile.TemporaryDirectory(prefix="tasodsl-") as folder:
        session = Session(model, optimize=True, threads=threads, profile_prefix=str(Path(folder) / "profile"))
        session.run(feed)
        times: list[float] = []
        while not is_enough(times):
            start = time.perf_counter()
            session.run(feed)
            times.append(time.perf_counter() - start)
        calls: dict[str, list[KernelEvent]] = {}
        for event in session.profile():
            calls.setdefault(event.node, []).append(event)
    return [events[1:] for events in calls.values() if len(events) > 1]


def is_enough(times: Sequence[float]) -> bool:
    """Whether runs that took this long say what a run takes: work elsewhere on the machine can only slow one down."""
    if len(times) < MIN_RUNS or sum(times) < MIN_SECONDS:
        return len(times) >= MAX_RUNS
    fastest = sorted(times)[:3]
    return fastest[-1] <= SETTLED * fastest[0] or len(times) >= MAX_RUNS or sum(times) >= MAX_SECONDS


def _typical(events: Sequence[KernelEvent]) -> float:
    """The mean of the fastest third: what slows a call down is other work on the machine, never the kernel itself."""
    times = sorted(e.seconds for e in events)
    return statistics.fmean(times[: (len(times) + 2) // 3])


def calibrated(threads: int) -> float:
    """Seconds that the profiler adds to each kernel: the profiled time of tiny kernels less their time on the clock."""
    short, long = 8, 72
    profiled = statistics.fmean(_typical(e) for e in _profile(*_row_model(long), threads))
    return max(
        profiled - (_clock(*_row_model(long), threads) - _clock(*_row_model(short), threads)) / (long - short), 0.0
    )


def _clock(model: bytes, feed: Feed, threads: int) -> float:
    session = Session(model, optimize=True, threads=threads)
    times: list[float] = []
    for _ in range(MAX_RUNS):
        start = time.perf_counter()
        session.run(feed)
        times.append(time.perf_counter() - start)
    return min(times)


def _row_model(length: int) -> tuple[bytes, Feed]:
    """A row of tiny kernels that the runtime cannot fuse."""
    return _model([onnx.helper.make_node("Abs", [f"v{i}"], [f"v{i + 1}"]) for i in range(length)], "v0", (4,))


def _model(nodes: Sequence[onnx.NodeProto], source: str, shape: tuple[int, ...]) -> tuple[bytes, Feed]:
    inputs = [onnx.helper.make_tensor_value_info(source, onnx.TensorProto.FLOAT, shape)]
    outputs = [onnx.ValueInfoProto(name=nodes[-1].output[0])]
    body = onnx.helper.make_graph(list(nodes), "kernel", inputs, outputs)
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(body, opset_imports=opsets, ir_version=IR_VERSION)
    return model.SerializeToString(), {source: np.full(shape, 0.5, np.float32)}
