"""Whether an optimized model computes what the original computes, judged by running both.

Outputs alone cannot tell: a wrong factor on one channel vanishes under a saturated softmax or in a dead branch. So
inner values that both models still share are compared too, spread over the depth, each against its own scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import onnx

from tasodsl.feeds import NoFeeds, make_feeds
from tasodsl.runtime import Feed, ModelFile, ModelSource, RuntimeRefused, Session, is_array, read_model

__all__ = ["EqualityReport", "NoFeeds", "ValueDifference", "check_equal", "make_feeds"]

RELATIVE_TOLERANCE = 1e-4
NOISE_FACTOR = 4.0
"""A difference of up to this many times the runtime's own (with and without its optimizations) is taken for equal."""
MAX_INNER_VALUES = 96
"""Shared inner values that are compared; more are thinned out evenly over the depth."""


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """The largest difference of one value over all runs, what it may be, and the value's own scale."""

    value: str
    difference: float
    tolerance: float
    scale: float
    reason: str = ""
    """Set where values cannot be subtracted: another shape, another type, a failed run."""
    noise: float = 0.0
    """What the runtime's own optimizations change the original's value by."""

    @property
    def within(self) -> bool:
        return not self.reason and self.difference <= self.tolerance

    @property
    def relative(self) -> float:
        """The difference as a part of the scale."""
        return self._relative(self.difference)

    @property
    def relative_noise(self) -> float:
        """The runtime's own as a part of the scale: large where its kernels have an absolute precision only, as the
        sigmoid's has for small results."""
        return self._relative(self.noise)

    def _relative(self, amount: float) -> float:
        return amount / self.scale if self.scale > 0 else amount


@dataclass(frozen=True, slots=True)
class EqualityReport:
    """What was compared: graph outputs first, then inner values in the order of the original."""

    outputs: tuple[ValueDifference, ...]
    inner: tuple[ValueDifference, ...]
    runs: int

    @property
    def equal(self) -> bool:
        return all(v.within for v in (*self.outputs, *self.inner))

    @property
    def failures(self) -> list[ValueDifference]:
        """The values that differ by too much, in the order of the original: the first one is nearest to the cause."""
        return [v for v in (*self.inner, *self.outputs) if not v.within]

    @property
    def largest(self) -> ValueDifference | None:
        """The output with the largest difference relative to its scale."""
        return max(self.outputs, key=lambda v: v.relative, default=None)


def check_equal(
    original: ModelSource, optimized: ModelSource, shared: Sequence[str], feeds: Sequence[Mapping[str, np.ndarray]]
) -> EqualityReport:
    """Run both models on `feeds` and compare outputs and those of the `shared` values that both still compute.

    A model that the runtime refuses is reported as a difference; that the original runs is taken for granted
    (`make_feeds` tried), and RuntimeRefused is raised when it does not.
    """
    before, after = read_model(original), read_model(optimized)
    inner = _chosen(before.proto, after.proto, shared)
    outputs = [o.name for o in before.proto.graph.output]
    if outputs != [o.name for o in after.proto.graph.output]:
        return _refused(outputs, "the outputs are not the original's", 0)
    plain = before.open(optimize=False, extra_outputs=inner)
    # The runtime's noise is a bonus: where its optimizations do not load, only the fixed tolerance is left.
    optimizing = _try_open(before, inner)
    try:
        candidate = after.open(optimize=False, extra_outputs=inner)
    except RuntimeRefused as error:
        return _refused(outputs, str(error), 0)
    names = [*outputs, *inner]
    worst: list[ValueDifference | None] = [None] * len(names)
    for feed in feeds:
        ours = dict(feed)
        expected = plain.run(ours)
        noisy = _try_run(optimizing, ours) or expected
        try:
            actual = candidate.run(ours)
        except RuntimeRefused as error:
            return _refused(outputs, str(error), len(feeds))
        for i, name in enumerate(names):
            worst[i] = _worse(worst[i], compare_values(name, expected[i], actual[i], noisy[i]))
    found = [w for w in worst if w is not None]
    return EqualityReport(tuple(found[: len(outputs)]), tuple(found[len(outputs) :]), len(feeds))


def compare_values(name: str, expected: object, actual: object, noisy: object) -> ValueDifference:
    """One value of the original, of the optimized model, and of the original under the runtime's optimizations."""
    if not is_array(expected) or not is_array(actual):
        return _compare_sequences(name, expected, actual, noisy)
    if expected.shape != actual.shape:
        return _unlike(name, f"shape {actual.shape} instead of {expected.shape}")
    if expected.dtype != actual.dtype:
        return _unlike(name, f"type {actual.dtype} instead of {expected.dtype}")
    if expected.dtype == object:
        same = bool(np.all(expected == actual))
        return ValueDifference(name, 0.0 if same else 1.0, 0.0, 1.0)
    scale, exact = _scale(expected), expected.dtype.kind in "iub"
    noise = _distance(expected, noisy) if is_array(noisy) and noisy.shape == expected.shape else 0.0
    fixed = 0.0 if exact else RELATIVE_TOLERANCE * scale
    tolerance = max(NOISE_FACTOR * noise, fixed)
    return ValueDifference(name, _distance(expected, actual), tolerance, scale, noise=noise)


def _compare_sequences(name: str, expected: object, actual: object, noisy: object) -> ValueDifference:
    """Sequences element by element, absent optionals and maps by plain equality."""
    if not isinstance(expected, list) or not isinstance(actual, list):
        return ValueDifference(name, 0.0 if expected == actual else 1.0, 0.0, 1.0)
    left, right = cast("list[object]", expected), cast("list[object]", actual)
    other = cast("list[object]", noisy) if isinstance(noisy, list) else left
    if len(left) != len(right):
        return _unlike(name, f"{len(right)} elements instead of {len(left)}")
    worst: ValueDifference | None = ValueDifference(name, 0.0, 0.0, 1.0)
    for a, b, c in zip(left, right, other, strict=False):
        worst = _worse(worst, compare_values(name, a, b, c))
    return worst or _unlike(name, "nothing to compare")


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    """The largest absolute difference; infinite where only one is NaN, or infinities differ."""
    if a.size == 0:
        return 0.0
    x, y = _wide(a), _wide(b)
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(x - y)
    alike = (x == y) | (np.isnan(x) & np.isnan(y))
    gap = np.where(alike, 0.0, np.where(np.isnan(gap), np.inf, gap))
    return float(gap.max())


def _scale(a: np.ndarray) -> float:
    """The largest finite magnitude."""
    wide = np.abs(_wide(a))
    finite = wide[np.isfinite(wide)]
    return float(finite.max()) if finite.size else 0.0


def _wide(a: np.ndarray) -> np.ndarray:
    """Wide enough to subtract: 64-bit integers keep more digits than float64, so they stay what they are if equal."""
    if a.dtype.kind == "c":
        return a.astype(np.complex128)
    return a.astype(np.longdouble) if a.dtype.kind in "iu" and a.dtype.itemsize == 8 else a.astype(np.float64)


def _worse(a: ValueDifference | None, b: ValueDifference) -> ValueDifference:
    """The one that is farther out of (or nearer to the edge of) its tolerance."""
    return b if a is None or _badness(b) > _badness(a) else a


def _badness(v: ValueDifference) -> tuple[bool, float]:
    if v.difference <= 0:
        return bool(v.reason), 0.0
    if np.isinf(v.difference) and np.isinf(v.tolerance):
        return bool(v.reason), 1.0
    return bool(v.reason), v.difference / v.tolerance if v.tolerance > 0 else float("inf")


def _unlike(name: str, reason: str) -> ValueDifference:
    return ValueDifference(name, float("inf"), 0.0, 0.0, reason)


def _refused(outputs: Sequence[str], reason: str, runs: int) -> EqualityReport:
    return EqualityReport(tuple(_unlike(name, reason) for name in outputs), (), runs)


def _chosen(before: onnx.ModelProto, after: onnx.ModelProto, shared: Sequence[str]) -> list[str]:
    """Shared values that a node of each model computes, in the original's order, thinned out evenly."""
    wanted = set(shared) - {o.name for o in before.graph.output}
    kept = {o for node in after.graph.node for o in node.output}
    names = [o for node in before.graph.node for o in node.output if o and o in wanted and o in kept]
    if len(names) <= MAX_INNER_VALUES:
        return names
    picks = np.linspace(0, len(names) - 1, MAX_INNER_VALUES).round().astype(int)
    return [names[i] for i in picks]


def _try_open(model: ModelFile, extra_outputs: Sequence[str]) -> Session | None:
    try:
        return model.open(optimize=True, extra_outputs=extra_outputs)
    except RuntimeRefused:
        return None


def _try_run(session: Session | None, feed: Feed) -> list[object] | None:
    try:
        return None if session is None else session.run(feed)
    except RuntimeRefused:
        return None
