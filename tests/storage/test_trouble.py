"""What is known of a store's trouble while requests are repeated."""

from __future__ import annotations

import logging

import pytest

from stado.errors import Denied, Unavailable
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.memory import MemoryStore
from stado.storage.observe import Operation
from stado.storage.retry import RetryingStore, RetryLimits
from stado.storage.trouble import StoreTrouble, TroubleSight
from stado.storage.trouble_log import AGAIN_SECONDS, TroubleLog
from tests.storage.fakes import FakeClock, SeededEntropy
from tests.storage.stores import TASKS

ALWAYS = 1_000_000


class Setting:
    """A store with scripted faults, whose trouble is looked at in each pause."""

    def __init__(self, *faults: Fault, logs: bool = False) -> None:
        self.clock = FakeClock()
        told = TroubleLog(self.clock) if logs else None
        self.trouble = StoreTrouble(self.clock, TASKS, told)
        self.plan = ScriptedFaults(*faults)
        memory = MemoryStore(self.clock, TASKS)
        memory.put("a", b"1")
        self.store = RetryingStore(
            FaultyStore(memory, self.clock, self.plan),
            clock=self.clock,
            entropy=SeededEntropy(),
            tasks=TASKS,
            trouble=self.trouble,
        )
        self.sights: list[TroubleSight] = []
        sleep = self.clock.sleep

        def look_and_sleep(seconds: float) -> None:
            self.sights.append(self.trouble.sight())
            sleep(seconds)

        self.clock.sleep = look_and_sleep  # type: ignore[method-assign]


def test_each_attempt_that_will_be_repeated_is_told_before_the_wait() -> None:
    """A64"""
    setting = Setting(Fault(FaultKind.THROTTLED, times=2), Fault(FaultKind.UNAVAILABLE))
    setting.store.get("a")
    slept = setting.clock.slept
    assert [sight.throttled for sight in setting.sights] == [1, 2, 2]
    assert [sight.failed for sight in setting.sights] == [0, 0, 1]
    for number, sight in enumerate(setting.sights):
        setback = sight.present
        assert setback is not None
        assert (setback.key, setback.attempt) == ("a", number + 1)
        assert setback.throttled is (number < 2)
        assert setback.wait_seconds == slept[number]
        assert sight.next_seconds == pytest.approx(slept[number])
        assert (setback.attempt, setback.attempts_max) == (number + 1, 8)
        assert setback.elapsed_seconds == pytest.approx(sum(slept[:number]))
        assert setback.left_seconds == pytest.approx(20.0 - setback.elapsed_seconds)
        assert sight.lost_seconds == pytest.approx(sum(slept[: number + 1]))
        assert not setback.error.startswith("a:")


def test_trouble_is_over_when_requests_are_answered() -> None:
    setting = Setting(Fault(FaultKind.THROTTLED))
    setting.store.get("a")
    setting.clock.sleep(2)
    sight = setting.trouble.sight()
    assert sight.present is None
    assert sight.silent_seconds == 0
    assert sight.throttled == 1


def test_what_ends_a_request_is_not_counted_as_put_off() -> None:
    setting = Setting(Fault(FaultKind.DENIED), Fault(FaultKind.THROTTLED, times=ALWAYS))
    with pytest.raises(Denied):
        setting.store.get("a")
    assert setting.trouble.sight().throttled == 0
    with pytest.raises(Unavailable):
        setting.store.get("a")
    assert setting.trouble.sight().throttled == RetryLimits().attempts - 1


def test_throttled_requests_are_taken_once() -> None:
    setting = Setting(Fault(FaultKind.THROTTLED, times=3))
    setting.store.get("a")
    assert setting.trouble.take_throttled() == 3
    assert setting.trouble.take_throttled() == 0
    setting.plan.add(Fault(FaultKind.THROTTLED))
    setting.store.get("a")
    assert setting.trouble.take_throttled() == 1
    assert setting.trouble.sight().throttled == 4


def test_an_attempt_without_an_answer_is_seen_while_it_lasts() -> None:
    """Also where the attempt before it was put off: the pause between them is no silence."""
    delay = Fault(FaultKind.DELAY, Operation.GET, seconds=7.0)
    setting = Setting(Fault(FaultKind.UNAVAILABLE), delay)
    setting.store.get("a")
    assert [sight.silent_seconds for sight in setting.sights] == [0.0, 0.0]
    begun = setting.trouble.begin(transfer=False)
    transfer = setting.trouble.begin(transfer=True)
    setting.clock.slept.append(3.0)
    assert setting.trouble.sight().silent_seconds == pytest.approx(3.0)
    setting.trouble.end(begun)
    assert setting.trouble.sight().silent_seconds == 0.0
    setting.trouble.end(transfer)


def test_requests_side_by_side_lose_their_time_once() -> None:
    setting = Setting(Fault(FaultKind.THROTTLED, times=8))
    begun = setting.clock.monotonic()
    with pytest.raises(Unavailable):
        setting.store.get("a")
    lost = setting.trouble.sight().lost_seconds
    assert lost == pytest.approx(setting.clock.monotonic() - begun)


def test_an_outage_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A64: not one a request; a lasting one is told again each minute."""
    caplog.set_level(logging.INFO)
    setting = Setting(Fault(FaultKind.THROTTLED), logs=True)
    setting.store.get("a")
    assert caplog.messages == []
    setting.plan.add(Fault(FaultKind.THROTTLED, times=ALWAYS))
    begun = setting.clock.monotonic()
    for _ in range(20):
        with pytest.raises(Unavailable):
            setting.store.get("a")
    lasted = setting.clock.monotonic() - begun
    assert 1 + int(lasted / (AGAIN_SECONDS + 8)) <= len(caplog.messages) <= 1 + lasted / 60
    assert caplog.messages[0].startswith("event=store_throttling requests=")
    assert "next_seconds=" in caplog.messages[0]


def test_an_unreachable_store_has_an_event_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting(Fault(FaultKind.UNAVAILABLE, times=ALWAYS), logs=True)
    with pytest.raises(Unavailable):
        setting.store.get("a")
    (line,) = caplog.messages
    assert line.startswith("event=store_unavailable requests=")
