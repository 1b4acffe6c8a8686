"""Whole models against each other on the clock: the only judge of whether a result is faster.

Times on a shared machine drift, and alternating single calls makes two models evict each other's weights. So models
run in alternating blocks, the first run of a block is thrown away, and a candidate is judged by the median over blocks
of the ratio within a block. Two sessions of one model may differ by a percent for as long as they live (where their
memory happens to lie), so a verdict that stays open gets further rounds, each with sessions of its own.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasodsl.runtime import ModelSource, Session

MIN_RUNS = 5
MIN_BLOCKS = 5
BLOCK_SECONDS = 0.05
"""A block of a small model is made longer than `MIN_RUNS` so that the clock's grain and wake-ups do not matter."""
MAX_RUNS = 200
NOTCH = 1.57
"""McGill's notch: a median is known to within so many interquartile ranges over the root of the count."""


@dataclass(frozen=True, slots=True)
class Timing:
    """A candidate against the original: `ratio` is the original's time over the candidate's, above 1 when faster."""

    ratio: float
    low: float
    high: float
    """The quartiles of the blocks' ratios."""
    original_seconds: float
    candidate_seconds: float
    blocks: int

    @property
    def least(self) -> float:
        """What the true median is hardly below, as far as the spread and number of blocks tell."""
        return self.ratio - self._doubt

    @property
    def most(self) -> float:
        """What the true median is hardly above."""
        return self.ratio + self._doubt

    @property
    def _doubt(self) -> float:
        # The wider side counts for both: of few blocks, one quartile is easily close to the median by luck.
        return 2 * NOTCH * max(self.high - self.ratio, self.ratio - self.low) / math.sqrt(self.blocks)


def compare(
    original: ModelSource,
    candidates: Sequence[ModelSource],
    feeds: Sequence[Mapping[str, np.ndarray]],
    threads: int = 1,
    seconds: float = 10.0,
    clock: Callable[[], float] = time.perf_counter,
    rounds: int = 1,
    decided: Callable[[Sequence[Timing]], bool] = lambda timings: True,
) -> list[Timing]:
    """Time each candidate against the original on the first of `feeds`, under full runtime optimization.

    A round has at least `MIN_BLOCKS` blocks even when they take longer than `seconds`, and further ones until these are
    used up. While not `decided`, up to `rounds` of them are run, and all their blocks judged together.
    RuntimeRefused when a model does not load or run.
    """
    if not candidates:
        return []
    times: list[list[float]] = [[] for _ in (original, *candidates)]
    timings: list[Timing] = []
    for _ in range(rounds):
        _round([original, *candidates], feeds[0], threads, seconds, clock, times)
        timings = [_judge(times[0], own) for own in times[1:]]
        if decided(timings):
            break
    return timings


def _round(
    models: Sequence[ModelSource],
    feed: Mapping[str, np.ndarray],
    threads: int,
    seconds: float,
    clock: Callable[[], float],
    times: Sequence[list[float]],
) -> None:
    """Add blocks of each model, run by sessions of this round's own, to its `times`."""
    sessions = [_open(model, threads) for model in models]
    start = clock()
    runs = [_runs_in_a_block(session, feed, clock) for session in sessions]
    order = list(range(len(sessions)))
    blocks = 0
    while blocks < MIN_BLOCKS or clock() - start < seconds:
        for i in order:
            times[i].append(_block(sessions[i], feed, runs[i], clock))
        order.reverse()
        blocks += 1


def _open(model: ModelSource, threads: int) -> Session:
    return Session(model if isinstance(model, bytes) else Path(model), optimize=True, threads=threads)


def _runs_in_a_block(session: Session, feed: Mapping[str, np.ndarray], clock: Callable[[], float]) -> int:
    session.run(feed)
    start = clock()
    session.run(feed)
    once = max(clock() - start, 1e-7)
    return max(MIN_RUNS, min(MAX_RUNS, round(BLOCK_SECONDS / once)))


def _block(session: Session, feed: Mapping[str, np.ndarray], runs: int, clock: Callable[[], float]) -> float:
    session.run(feed)
    times: list[float] = []
    for _ in range(runs):
        start = clock()
        session.run(feed)
        times.append(clock() - start)
    return statistics.median(times)


def _judge(original: Sequence[float], candidate: Sequence[float]) -> Timing:
    ratios = [a / max(b, 1e-9) for a, b in zip(original, candidate, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Timing(middle, low, high, statistics.median(original), statistics.median(candidate), len(ratios))
