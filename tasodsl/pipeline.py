"""The whole way from a model's file to a faster one: read, clean up, search, check, time, write.

Nothing is written before it was compared with the original and timed against it. Rewrites that make a wrong result are
found by bisection and their rules are left out; what is not faster and not simpler than the original is not used.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import onnx

from tasodsl.cost.onnxruntime import OnnxruntimeCost
from tasodsl.cost.table import CostTable
from tasodsl.cost.timing import Timing, compare
from tasodsl.equality import EqualityReport, NoFeeds, check_equal, make_feeds
from tasodsl.errors import UsageError
from tasodsl.files import copy_model, model_bytes, require_writable, write_text
from tasodsl.graph.graph import Graph
from tasodsl.graph.lower import CannotLower
from tasodsl.graph.onnx_in import CarriedModel, import_graph, load_model
from tasodsl.graph.onnx_out import export_graph
from tasodsl.graph.save import save_model
from tasodsl.graph.simplify import simplify
from tasodsl.match.api import Rewriter
from tasodsl.report import Report
from tasodsl.rulebook import load_rulebook
from tasodsl.runtime import Feed, RuntimeRefused, read_model
from tasodsl.search.backtrack import SearchResult, search
from tasodsl.search.candidate import Candidate, CostModel
from tasodsl.search.greedy import Explorer, Limits, Progress

SEARCH_SHARE = 0.6
"""The part of the time that the search may use; the rest is for checking and timing."""
TIMING_SECONDS = 15.0
SHORT_TIMING_SECONDS = 2.0
"""After an interrupt: enough for a verdict, short enough to wait for."""
FEEDS = 3
TIMING_ROUNDS = 3
"""A round of timing takes half of the time for it; there are more where it leaves open whether a graph is slower."""
OVERTIME = 0.25
"""So large a part of the time may be exceeded before another round of timing begins."""
FASTER = 1.01
"""A measured ratio from here on is a gain."""
NOT_SLOWER = 0.99
"""A measured ratio from here on is no loss: what the clock cannot tell from 1."""
AS_FAST = 0.98
"""A measured ratio from here on is no loss where the spread of the blocks leaves 1 possible."""
SLOWER = 0.95
"""A measured ratio surely below this is a loss. Between the two, a pair of sessions may have had bad luck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a person may ask of a run; see `tasodsl optimize --help`."""

    rules: tuple[Path, ...] = ()
    alpha: float = 1.05
    budget: int = 20_000
    seconds: float = 60.0
    threads: int = 1
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    growth: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.alpha) and self.alpha >= 1):
            raise UsageError(f"alpha is a factor of at least 1, not {self.alpha}")
        if not (math.isfinite(self.seconds) and self.seconds >= 0):
            raise UsageError(f"the time is a number of seconds, not {self.seconds}")
        if not (math.isfinite(self.growth) and self.growth >= 0):
            raise UsageError(f"the growth is a part of the file's size, not {self.growth}")
        for name, least in (("budget", 0), ("threads", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} must be at least {least}")


class Listener(Protocol):
    """Whoever shows what a run is doing."""

    def stage(self, what: str) -> None: ...

    def progress(self, progress: Progress) -> None: ...

    def warn(self, message: str) -> None: ...


class Silent:
    """A listener that shows nothing."""

    def stage(self, what: str) -> None:
        pass

    def progress(self, progress: Progress) -> None:
        pass

    def warn(self, message: str) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Outcome:
    """The file to use (the original's own where nothing better was found) and the report."""

    chosen: Path
    report: Report


@dataclass(frozen=True, slots=True)
class _Trial:
    """A candidate as a file, found equal to the original."""

    candidate: Candidate
    path: Path
    nodes: int
    equality: EqualityReport


def optimize_file(
    source: Path, target: Path, options: Options, listener: Listener | None = None, json_file: Path | None = None
) -> Report:
    """Read `source`, write the best equal model found to `target` (atomically), and the report to `json_file`."""
    require_writable(target)
    if json_file is not None:
        require_writable(json_file)
        if json_file.resolve() in (source.resolve(), target.resolve()):
            raise UsageError(f"the report and the model cannot both be {json_file}")
    listener = listener or Silent()
    listener.stage("reading the model")
    model = load_model(source)
    listener.stage("reading rules")
    rules = load_rulebook(options.rules, os.cpu_count() or 1, lambda name: listener.stage(f"looking at proofs: {name}"))
    if rules.left_out:
        listener.warn(f"not proved, and so not used (see `tasodsl verify`): {', '.join(rules.left_out)}")
    with tempfile.TemporaryDirectory(prefix="tasodsl-") as folder:
        outcome = optimize_model(model, source, rules.rewriter(model.opset), options, Path(folder), listener)
        listener.stage("writing")
        copy_model(outcome.chosen, target)
    if json_file is not None:
        write_text(json_file, json.dumps(outcome.report.to_json(), indent=2) + "\n")
    return outcome.report


def optimize_model(
    model: CarriedModel, source: Path, rewriter: Rewriter, options: Options, folder: Path, listener: Listener
) -> Outcome:
    """The best file for `model`, which was read from `source`; files made on the way go to `folder`."""
    return _Run(model, source, rewriter, options, folder, listener).outcome()


class _Run:
    """One run's state, so that its steps need not pass it to each other."""

    def __init__(
        self,
        model: CarriedModel,
        source: Path,
        rewriter: Rewriter,
        options: Options,
        folder: Path,
        listener: Listener,
    ) -> None:
        self.model = model
        self.source = source
        self.rewriter = rewriter
        self.options = options
        self.folder = folder
        self.listener = listener
        self.started = time.monotonic()
        _require_known(options.dims, source)
        self.nodes_before = node_count(source)
        self.bytes_before = model_bytes(source)
        self.original_is_valid = is_valid(source)
        self.feeds: list[Feed] = []
        self.files = 0
        self.dropped: dict[str, str] = {}

    def outcome(self) -> Outcome:
        options, listener = self.options, self.listener
        try:
            self.feeds = make_feeds(self.source, options.dims, options.seed, FEEDS)
        except NoFeeds as error:
            return self._kept(f"the runtime does not run it, so nothing can be checked ({error})")
        listener.stage("cleaning up")
        # Costs are reckoned at the sizes of the first inputs, at which the models will be timed as well.
        sizes = {f"{name}.{axis}": n for name, a in self.feeds[0].items() for axis, n in enumerate(a.shape)}
        original = import_graph(self.model, sizes)
        growth = int(self.bytes_before * options.growth)
        plain, simplified = simplify(original, growth)
        cost = OnnxruntimeCost(options.threads, CostTable(), original.sizes)
        found, trials = self._checked_search(plain, cost, growth)
        if not trials:
            return self._kept("no candidate passed the comparison with the original", found)
        # The original written anew is no candidate: that the clock finds it faster is noise.
        trials = [t for t in trials if simplified or t.candidate.application is not None]
        if not trials:
            return self._kept("no rewrite that was tried improves it", found)
        listener.stage("timing")
        timed = self._timed(trials, SHORT_TIMING_SECONDS if found.ended == "interrupted" else self._timing_seconds())
        if not timed:
            return self._kept("the runtime does not run it under its own optimizations, so nothing can be timed", found)
        best = choose(self.nodes_before, [(trial.nodes, trial.candidate.seconds, timing) for trial, timing in timed])
        if best is None:
            timing = timed[0][1] if timed else None
            return self._kept("nothing found was faster, or as fast with fewer nodes", found, timing)
        return self._report(*timed[best], simplified, found)

    def _timing_seconds(self) -> float:
        """For one round."""
        return min(TIMING_SECONDS, max(self._time_left(), 0.0)) / 2

    def _time_left(self) -> float:
        return self.started + self.options.seconds - time.monotonic()

    def _checked_search(self, plain: Graph, cost: CostModel, growth: int) -> tuple[SearchResult, list[_Trial]]:
        """Search until the best candidate equals the original; a rule that spoils it is left out the next time."""
        while True:
            found = self._search(plain, cost, growth)
            self.listener.stage("comparing with the original")
            best = self._trial(found.best[0])
            if isinstance(best, _Trial):
                return found, [best, *self._other_trials(found)]
            guilty, reason = self._bisect(found.best[0], best)
            if guilty.application is None:
                self.listener.warn(f"the clean-up changed the model: {reason}")
                return found, []
            rule = guilty.application.rule
            self.dropped[rule] = reason
            self.listener.warn(f"rule {rule} is left out: with it, {reason}")
            if found.ended in ("interrupted", "time"):
                # What the bisection found good is good enough when there is no time to search again.
                assert guilty.parent is not None
                last_good = self._trial(guilty.parent)
                return found, [last_good] if isinstance(last_good, _Trial) else []

    def _search(self, plain: Graph, cost: CostModel, growth: int) -> SearchResult:
        options = self.options
        limits = Limits(
            budget=options.budget,
            seconds=max(0.0, self._time_left() - (1 - SEARCH_SHARE) * options.seconds),
            alpha=options.alpha,
            growth_bytes=growth,
            excluded=frozenset(self.dropped),
        )
        return search(plain, Explorer(self.rewriter, cost, limits), options.seed, self.listener.progress)

    def _other_trials(self, found: SearchResult) -> list[_Trial]:
        """The clean graph and the next best candidates, those that equal the original."""
        others = {c.graph.hash: c for c in (*found.best[1:], found.first) if c.graph.hash != found.best[0].graph.hash}
        trials = [self._trial(c) for c in others.values()]
        return [t for t in trials if isinstance(t, _Trial)]

    def _trial(self, candidate: Candidate) -> _Trial | str:
        """The candidate as a file equal to the original, or what is wrong with it."""
        path = self.folder / f"{self.files}.onnx"
        self.files += 1
        try:
            save_model(export_graph(self.model, candidate.graph), path)
        except CannotLower as error:
            return str(error)
        if self.original_is_valid and not is_valid(path):
            return "the model is not valid"
        shared = sorted(candidate.graph.producer)
        try:
            equality = check_equal(self.source, path, shared, self.feeds)
        except RuntimeRefused as error:
            return str(error)
        if not equality.equal:
            worst = equality.failures[0]
            return worst.reason or f"{worst.value!r} differs by {worst.relative:.1e} of its scale"
        return _Trial(candidate, path, node_count(path), equality)

    def _timed(self, trials: Sequence[_Trial], seconds: float) -> list[tuple[_Trial, Timing]]:
        """The trials that the runtime runs under its own optimizations, with their times."""
        try:
            paths = [t.path for t in trials]
            timings = compare(
                self.source,
                paths,
                self.feeds,
                self.options.threads,
                seconds,
                rounds=TIMING_ROUNDS,
                decided=lambda timings: is_decided(timings) or self._time_left() < -OVERTIME * self.options.seconds,
            )
        except RuntimeRefused:
            # One of them is refused: the others may still be timed, each by itself.
            alone = [[t] for t in trials] if len(trials) > 1 else []
            return [pair for group in alone for pair in self._timed(group, seconds / len(trials))]
        return list(zip(trials, timings, strict=True))

    def _bisect(self, candidate: Candidate, reason: str) -> tuple[Candidate, str]:
        """The first candidate of the lineage that is wrong, given that the last one is; one without a parent's
        application is the clean graph itself."""
        lineage = candidate.lineage()
        good, bad = -1, len(lineage) - 1
        while bad - good > 1:
            middle = (good + bad) // 2
            verdict = self._trial(lineage[middle])
            if isinstance(verdict, _Trial):
                good = middle
            else:
                bad, reason = middle, verdict
        return lineage[bad], reason

    def _kept(self, why: str, found: SearchResult | None = None, timing: Timing | None = None) -> Outcome:
        """The original as it was."""
        estimated = found.first.seconds if found else 0.0
        report = Report(
            nodes_before=self.nodes_before,
            nodes_after=self.nodes_before,
            bytes_before=self.bytes_before,
            bytes_after=self.bytes_before,
            estimated_before=estimated,
            estimated_after=estimated,
            measured_before=timing.original_seconds if timing else None,
            measured_after=timing.original_seconds if timing else None,
            ratio=1.0 if timing else None,
            ratio_quartiles=None,
            largest_difference=0.0,
            rules={},
            simplifications={},
            dropped_rules=self.dropped,
            kept=why,
            rewrites_tried=found.tried if found else 0,
            search_ended=found.ended if found else "",
            seconds=time.monotonic() - self.started,
        )
        return Outcome(self.source, report)

    def _report(self, trial: _Trial, timing: Timing, simplified: Counter[str], found: SearchResult) -> Outcome:
        largest = trial.equality.largest
        report = Report(
            nodes_before=self.nodes_before,
            nodes_after=trial.nodes,
            bytes_before=self.bytes_before,
            bytes_after=model_bytes(trial.path),
            estimated_before=found.first.seconds,
            estimated_after=trial.candidate.seconds,
            measured_before=timing.original_seconds,
            # By the ratio, which is the median over blocks: so the three numbers fit.
            measured_after=timing.original_seconds / timing.ratio,
            ratio=timing.ratio,
            ratio_quartiles=(timing.low, timing.high),
            largest_difference=largest.relative if largest else None,
            runtime_noise=largest.relative_noise if largest else None,
            rules=dict(trial.candidate.fired()),
            simplifications=dict(simplified),
            dropped_rules=self.dropped,
            rewrites_tried=found.tried,
            search_ended=found.ended,
            seconds=time.monotonic() - self.started,
        )
        return Outcome(trial.path, report)


def choose(nodes_before: int, trials: Sequence[tuple[int, float, Timing]]) -> int | None:
    """The trial (its nodes, its estimated seconds, its timing) to use; None where the original is as good.

    Of those that the clock cannot tell from the fastest, it is the one with the lowest estimate, and of those with
    estimates alike the one with the fewest nodes.
    """
    good = [i for i, (nodes, _, timing) in enumerate(trials) if _is_gain(timing, nodes < nodes_before)]
    if not good:
        return None
    fastest = max((trials[i][2] for i in good), key=lambda timing: timing.ratio)
    alike = [i for i in good if trials[i][2].high >= min(fastest.low, fastest.ratio * NOT_SLOWER)]
    least = min(trials[i][1] for i in alike)
    alike = [i for i in alike if trials[i][1] <= least * FASTER]
    return min(alike, key=lambda i: (trials[i][0], -trials[i][2].ratio))


def is_decided(timings: Sequence[Timing]) -> bool:
    """Whether it is clear of each graph that it is slower than the original, or that it is not."""
    return all(timing.least >= AS_FAST or timing.most < SLOWER for timing in timings)


def _is_gain(timing: Timing, simpler: bool) -> bool:
    """Whether a graph is faster than the original for sure, or simpler and not slower as far as the clock can tell."""
    if timing.ratio >= FASTER and timing.least >= 1:
        return True
    within_noise = timing.ratio >= AS_FAST and timing.most >= 1
    return simpler and (timing.ratio >= NOT_SLOWER or within_noise)


def _require_known(dims: Mapping[str, int], path: Path) -> None:
    """UsageError unless each of `dims` names a free dimension of an input, by its symbol or as INPUT.AXIS."""
    known = {
        name: dim.dim_value if dim.HasField("dim_value") else -1
        for value in read_model(path).proto.graph.input
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        for name in (dim.dim_param, f"{value.name}.{axis}")
        if name
    }
    for name, size in dims.items():
        if name not in known:
            free = ", ".join(sorted(n for n, fixed in known.items() if fixed < 0)) or "it has none"
            raise UsageError(f"the model's inputs have no dimension {name!r}; free ones: {free}")
        if known[name] not in (-1, size):
            raise UsageError(f"the dimension {name!r} is {known[name]}, not {size}")


def node_count(path: Path) -> int:
    """Nodes of the model's main graph."""
    return len(read_model(path).proto.graph.node)


def is_valid(path: Path) -> bool:
    """Whether ONNX's own checker finds nothing wrong, shapes included."""
    checker: Any = onnx.checker
    try:
        checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError):
        return False
    return True
