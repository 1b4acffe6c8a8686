"""Random inputs for a model: seeded, of several kinds, and such that the model runs on them.

A model's file does not say which integers index a table or which sizes its free dimensions may take, so sizes and
ranges are tried, likely ones first, until the model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx

from tasodsl.runtime import Feed, ModelSource, RuntimeRefused, Session, read_model

FREE_SIZES = (64, 32, 224, 16, 8, 128, 4, 2, 1)
"""Sizes tried for a dimension that neither the model nor the person gives, in this order."""
INTEGER_LIMITS = (100, 8, 2, 1)
"""Random integers are drawn from 0 up to the first of these bounds with which the model runs."""


class NoFeeds(Exception):
    """No inputs were found on which the model runs; the text says what the runtime said."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input that must be fed: name, element type (numpy's name) and dims, free ones by name ("" when unnamed)."""

    name: str
    dtype: str
    dims: tuple[int | str, ...]

    def sizes(self, dims: Mapping[str, int], free: int) -> tuple[int, ...]:
        """Concrete sizes: the person's first, 1 for a free leading dim, else `free`."""
        return tuple(size_of(d, self.name, axis, dims, free) for axis, d in enumerate(self.dims))


def size_of(dim: int | str, name: str, axis: int, dims: Mapping[str, int], free: int) -> int:
    """The size that stands for dim `axis` of the input `name`; `dims` may name it as INPUT.AXIS or by its symbol."""
    if isinstance(dim, int):
        return dim
    for key in (f"{name}.{axis}", dim):
        if key in dims:
            return dims[key]
    return 1 if axis == 0 else free


def input_specs(proto: onnx.ModelProto) -> list[InputSpec]:
    """The inputs without a default value. NoFeeds when one of them is no tensor."""
    defaults = {i.name for i in proto.graph.initializer} | {s.values.name for s in proto.graph.sparse_initializer}
    specs: list[InputSpec] = []
    for value in proto.graph.input:
        if value.name in defaults:
            continue
        if not value.type.HasField("tensor_type"):
            raise NoFeeds(f"input {value.name!r} is not a tensor")
        tensor = value.type.tensor_type
        dims = tuple(
            d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param for d in tensor.shape.dim
        )
        specs.append(InputSpec(value.name, _dtype_name(tensor.elem_type), dims))
    return specs


def make_feeds(model: ModelSource, dims: Mapping[str, int] | None = None, seed: int = 0, runs: int = 4) -> list[Feed]:
    """`runs` sets of inputs on which the model runs. NoFeeds when none are found.

    The first is drawn from the normal distribution, the second is positive, then they take turns with wide and small
    ones; where dims are free and the model allows it, the last one has other sizes than the rest.
    """
    given = dict(dims or {})
    source = read_model(model)
    specs = input_specs(source.proto)
    try:
        session = source.open(optimize=False)
    except RuntimeRefused as error:
        raise NoFeeds(str(error)) from error
    limits, free = _find_ranges(session, specs, given, seed)
    feeds = [_draw(specs, given, free, limits, seed, run) for run in range(runs)]
    if runs > 1 and _has_free(specs, given):
        other = _draw(specs, {**_leading(specs, given, 2), **given}, free + free // 2 or 2, limits, seed, runs - 1)
        if _runs(session, other) is None:
            feeds[-1] = other
    checked = [feed for i, feed in enumerate(feeds) if i == 0 or _runs(session, feed) is None]
    return checked or feeds


def _find_ranges(
    session: Session, specs: Sequence[InputSpec], dims: Mapping[str, int], seed: int
) -> tuple[dict[str, int], int]:
    """The upper bound of each integer input and the size of free dims with which the model runs."""
    integers = [s.name for s in specs if _is_integer(s.dtype)]
    reason = ""
    for free in FREE_SIZES if _has_free(specs, dims) else FREE_SIZES[:1]:
        for limit in INTEGER_LIMITS if integers else INTEGER_LIMITS[:1]:
            limits = dict.fromkeys(integers, limit)
            refusal = _runs(session, _draw(specs, dims, free, limits, seed, 0))
            if refusal is None:
                return _widened(session, specs, dims, free, limits, seed), free
            reason = reason or refusal
    raise NoFeeds(reason)


def _widened(
    session: Session, specs: Sequence[InputSpec], dims: Mapping[str, int], free: int, limits: dict[str, int], seed: int
) -> dict[str, int]:
    """Each integer input is given the widest range of its own: a table of two entries must not narrow the others."""
    for name in limits if len(limits) > 1 else ():
        for wider in INTEGER_LIMITS:
            if wider <= limits[name]:
                break
            trial = {**limits, name: wider}
            if _runs(session, _draw(specs, dims, free, trial, seed, 0)) is None:
                limits = trial
                break
    return limits


def _runs(session: Session, feed: Feed) -> str | None:
    """None when the model runs on `feed`, else why not."""
    try:
        session.run(feed)
    except RuntimeRefused as error:
        return str(error) or "the runtime gave no reason"
    return None


def _has_free(specs: Sequence[InputSpec], dims: Mapping[str, int]) -> bool:
    return any(s.sizes(dims, 3) != s.sizes(dims, 5) for s in specs)


def _leading(specs: Sequence[InputSpec], dims: Mapping[str, int], size: int) -> dict[str, int]:
    """Sizes for the free leading dims."""
    return {f"{s.name}.0": size for s in specs if s.dims and not isinstance(s.dims[0], int) and s.dims[0] not in dims}


def _draw(
    specs: Sequence[InputSpec], dims: Mapping[str, int], free: int, limits: Mapping[str, int], seed: int, run: int
) -> Feed:
    rng = np.random.default_rng([seed, run])
    return {s.name: _tensor(rng, s.dtype, s.sizes(dims, free), limits.get(s.name, 1), run) for s in specs}


def _tensor(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], limit: int, run: int) -> np.ndarray:
    if dtype == "bool":
        return rng.random(shape) < (0.8, 0.5)[run % 2]
    if dtype == "object":
        return rng.choice(np.array(["a", "bc", ""], dtype=object), size=shape)
    if _is_integer(dtype):
        return np.asarray(rng.integers(0, limit, shape)).astype(dtype)
    if dtype.startswith("complex"):
        return np.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    values = _FLOAT_KINDS[run % len(_FLOAT_KINDS)](rng, shape)
    return np.asarray(values).astype(getattr(ml_dtypes, dtype, dtype))


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(rng.standard_normal(shape))


def _positive(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(rng.uniform(0.0, 1.0, shape))


def _wide(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(rng.standard_normal(shape) * 4.0 + 0.5)


def _small(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(rng.standard_normal(shape) * 0.1)


_FLOAT_KINDS: tuple[Callable[[np.random.Generator, tuple[int, ...]], np.ndarray], ...] = (
    _normal,
    _positive,
    _wide,
    _small,
)


def _is_integer(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))


def _dtype_name(elem_type: int) -> str:
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(elem_type)).name
