"""Timing in blocks, with sessions and a clock that are played: no test here depends on real time."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import pytest

from tasodsl.cost import timing
from tasodsl.cost.timing import MIN_BLOCKS, MIN_RUNS, Timing, compare
from tasodsl.runtime import ModelSource, RuntimeRefused


def relu_model() -> bytes:
    x, y = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in "xy")
    body = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    return onnx.helper.make_model(
        body, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()


class Machine:
    """A clock that moves only when a session runs, and a drift that slows everything down more and more."""

    def __init__(self) -> None:
        self.now = 0.0
        self.drift = 1.0
        self.log: list[bytes] = []

    def clock(self) -> float:
        return self.now


class PlayedSession:
    """Takes as long as its model says; the first run after another model's is slow."""

    def __init__(self, machine: Machine, model: bytes) -> None:
        self.machine, self.model = machine, model

    def run(self, feed: object) -> list[object]:
        cold = not self.machine.log or self.machine.log[-1] != self.model
        self.machine.log.append(self.model)
        self.machine.now += float(self.model) * self.machine.drift * (10 if cold else 1)
        self.machine.drift *= 1.001
        return []


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    played = Machine()

    def open_session(model: ModelSource, threads: int) -> PlayedSession:
        assert isinstance(model, bytes)
        return PlayedSession(played, model)

    monkeypatch.setattr(timing, "_open", open_session)
    return played


def test_a_drifting_machine_does_not_change_the_ratio(machine: Machine) -> None:
    (found,) = compare(b"2.0", [b"1.0"], [{}], seconds=0, clock=machine.clock)
    assert found.ratio == pytest.approx(2.0, rel=0.05)
    assert found.low <= found.ratio <= found.high
    assert found.blocks == MIN_BLOCKS


def test_each_block_discards_its_first_run(machine: Machine) -> None:
    compare(b"1.0", [b"1.5"], [{}], seconds=0, clock=machine.clock)
    changes = sum(a != b for a, b in zip(machine.log, machine.log[1:], strict=False))
    assert changes >= MIN_BLOCKS
    assert len(machine.log) == 2 * (2 + MIN_BLOCKS * (MIN_RUNS + 1))


def test_small_models_get_longer_blocks_and_the_time_is_used(machine: Machine) -> None:
    (found,) = compare(b"0.001", [b"0.001"], [{}], seconds=2.0, clock=machine.clock)
    assert found.blocks > MIN_BLOCKS
    assert machine.now >= 2.0
    assert len(machine.log) > 2 * MIN_BLOCKS * (MIN_RUNS + 10)


def test_candidates_are_judged_in_their_order(machine: Machine) -> None:
    found = compare(b"4.0", [b"1.0", b"8.0", b"4.0"], [{}], seconds=0, clock=machine.clock)
    assert [round(t.ratio, 1) for t in found] == pytest.approx([4.0, 0.5, 1.0], rel=0.1)


def test_rounds_go_on_with_fresh_sessions_until_it_is_decided(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair of sessions with bad luck, and two with none: the blocks of all count."""
    opened: list[bytes] = []
    asked: list[int] = []

    def open_session(model: ModelSource, threads: int) -> PlayedSession:
        assert isinstance(model, bytes)
        opened.append(model)
        return PlayedSession(machine, b"4.0" if opened == [b"2.0", b"1.0"] else model)

    def decided(timings: Sequence[Timing]) -> bool:
        asked.append(timings[0].blocks)
        return timings[0].ratio > 1.5

    monkeypatch.setattr(timing, "_open", open_session)
    (found,) = compare(b"2.0", [b"1.0"], [{}], seconds=0, clock=machine.clock, rounds=4, decided=decided)
    assert asked == [MIN_BLOCKS, 2 * MIN_BLOCKS, 3 * MIN_BLOCKS]
    assert opened == [b"2.0", b"1.0"] * 3
    assert found.ratio == pytest.approx(2.0, rel=0.05)
    compare(b"2.0", [b"2.0"], [{}], seconds=0, clock=machine.clock, rounds=2, decided=decided)
    assert len(opened) == 10, "rounds are an end to it"


def test_the_median_is_known_the_better_the_more_blocks() -> None:
    few, many = (Timing(1.0, 0.9, 1.2, 1.0, 1.0, blocks) for blocks in (9, 900))
    assert few.least < many.least < 1 < many.most < few.most
    assert many.most - 1 == pytest.approx(1 - many.least), "a quartile close to the median may be luck"


def test_nothing_to_compare() -> None:
    assert compare(relu_model(), [], [{}]) == []


def test_a_model_that_does_not_load_is_refused() -> None:
    with pytest.raises(RuntimeRefused):
        compare(relu_model(), [b"no model"], [{}])
