"""What an optimization gained and how it came about: a table on the command line, JSON on request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one run. Seconds are those of one inference; what was not timed is None.

    `estimated_*` come from the cost table, `measured_*` from whole models on the clock. `ratio` is the original's time
    over the result's. When the original was kept, `kept` says why and "after" repeats "before".
    """

    nodes_before: int
    nodes_after: int
    bytes_before: int
    bytes_after: int
    estimated_before: float
    estimated_after: float
    measured_before: float | None
    measured_after: float | None
    ratio: float | None
    ratio_quartiles: tuple[float, float] | None
    largest_difference: float | None
    """The largest difference of an output from the original's, as a part of the output's own scale."""
    rules: Mapping[str, int]
    """How often each rule was applied on the way to the result."""
    simplifications: Mapping[str, int]
    dropped_rules: Mapping[str, str] = field(default_factory=dict[str, str])
    """Rules that made a wrong result and were left out, with what was wrong."""
    runtime_noise: float | None = None
    """The difference that the runtime's own optimizations make to that output of the original, on the same scale."""
    kept: str = ""
    rewrites_tried: int = 0
    search_ended: str = ""
    seconds: float = 0.0
    """How long the whole run took."""

    @property
    def interrupted(self) -> bool:
        return self.search_ended == "interrupted"

    def to_json(self) -> dict[str, object]:
        """The report as plain JSON data, under its fields' names."""
        return asdict(self)
