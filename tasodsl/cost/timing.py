"""Whole models against each other on the clock: the only judge of whether a result is faster.

Times on a shared machine drift, and alternating single calls makes two models evict each other's weights. So models
run in alternating blocks, the first run of a block is thrown away, and a candidate is judged by the median over blocks
of the ratio within a block.
"""

from __future__ import annotations

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


def compare(
    original: ModelSource,
    candidates: Sequence[ModelSource],
    feeds: Sequence[Mapping[str, np.ndarray]],
    threads: int = 1,
    seconds: float = 10.0,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Timing]:
    """Time each candidate against the original on the first of `feeds`, under full runtime optimization.

    At least `MIN_BLOCKS` blocks are run even when they take longer than `seconds`; further ones until it is used up.
    RuntimeRefused when a model does not load or run.
    """
    if not candidates:
        return []
    sessions = [_open(model, threads) for model in (original, *candidates)]
    feed = feeds[0]
    start = clock()
    runs = [_runs_in_a_block(session, feed, clock) for session in sessions]
    times: list[list[float]] = [[] for _ in sessions]
    order = list(range(len(sessions)))
    while len(times[0]) < MIN_BLOCKS or clock() - start < seconds:
        for i in order:
            times[i].append(_block(sessions[i], feed, runs[i], clock))
        order.reverse()
    return [_judge(times[0], own) for own in times[1:]]


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
