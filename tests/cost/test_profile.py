"""When a measurement has enough runs."""

from __future__ import annotations

import pytest

from tasodsl.cost.profile import MAX_RUNS, MIN_RUNS, is_enough


@pytest.mark.parametrize(
    ("times", "enough"),
    [
        ([], False),
        ([0.01] * (MIN_RUNS - 1), False),
        ([0.01] * MIN_RUNS, True),
        ([1.0] * (MIN_RUNS - 1), False),
        ([1e-6] * MIN_RUNS, False),
        ([1e-6] * MAX_RUNS, True),
        ([0.010, 0.011, 0.012, 0.013, 0.014, 0.015, 0.016], False),
        ([0.010, 0.0101, 0.0102, 0.013, 0.014, 0.015, 0.016], True),
        ([0.010, 0.011, 0.012, 0.013, 0.014, 0.015, 0.016, 0.2], True),
    ],
)
def test_runs_go_on_until_the_fastest_agree(times: list[float], enough: bool) -> None:
    assert is_enough(times) is enough
    assert is_enough(times[::-1]) is enough
