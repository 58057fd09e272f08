"""What the retrying store makes of failures, above all of writes without an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.errors import (
    Ambiguous,
    Conflict,
    Denied,
    Exists,
    NotFound,
    Throttled,
    Unavailable,
)
from stado.storage.faults import Fault, FaultKind, FaultyStore, RandomFaults, ScriptedFaults
from stado.storage.memory import MemoryStore
from stado.storage.observe import CountingStore, Operation
from stado.storage.port import Version
from stado.storage.retry import RetryingStore, RetryLimits
from tests.storage.fakes import FakeClock, SeededEntropy
from tests.storage.stores import TASKS

ALWAYS = 1_000_000


class Setting:
    """A store in memory, with scripted faults, under the retrying store."""

    def __init__(self, *faults: Fault, concurrent_creates: int | None = None) -> None:
        self.clock = FakeClock()
        self.memory = MemoryStore(self.clock, TASKS)
        self.counting = CountingStore(self.memory, TASKS)
        self.plan = ScriptedFaults(*faults)
        self.faulty = FaultyStore(self.counting, self.clock, self.plan)
        self.store = RetryingStore(
            self.faulty,
            clock=self.clock,
            entropy=SeededEntropy(),
            tasks=TASKS,
            concurrent_creates=concurrent_creates,
        )


def _fault(kind: FaultKind, operation: Operation | None = None, times: int = 1) -> Fault:
    return Fault(kind, operation, times=times)


@pytest.mark.parametrize("kind", [FaultKind.UNAVAILABLE, FaultKind.THROTTLED])
def test_passing_failure_is_outlived(kind: FaultKind) -> None:
    setting = Setting(_fault(kind, times=3))
    version = setting.store.create("a", b"1")
    assert setting.memory.get("a").version == version
    assert len(setting.clock.slept) == 3


def test_waits_grow_and_are_jittered() -> None:
    setting = Setting(_fault(FaultKind.UNAVAILABLE, times=5))
    setting.store.put("a", b"1")
    limits = RetryLimits()
    for number, slept in enumerate(setting.clock.slept):
        longest = min(limits.first_wait_seconds * 2**number, limits.wait_seconds_max)
        assert longest / 2 <= slept <= longest
    assert len(set(setting.clock.slept)) == 5


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (FaultKind.UNAVAILABLE, Unavailable),
        (FaultKind.THROTTLED, Throttled),
        (FaultKind.LOST_REQUEST, Ambiguous),
    ],
)
def test_lasting_failure_ends_within_the_budget(kind: FaultKind, error: type[Exception]) -> None:
    setting = Setting(_fault(kind, times=ALWAYS))
    with pytest.raises(error):
        setting.store.create("a", b"1")
    assert setting.clock.monotonic() <= RetryLimits().total_seconds


def test_one_unclear_attempt_makes_a_spent_budget_unclear() -> None:
    setting = Setting(_fault(FaultKind.LOST_REQUEST), _fault(FaultKind.UNAVAILABLE, times=ALWAYS))
    with pytest.raises(Ambiguous):
        setting.store.put("a", b"1")


def test_slow_attempts_count_against_the_budget() -> None:
    slow = Fault(FaultKind.DELAY, Operation.GET, seconds=30.0)
    setting = Setting(slow, _fault(FaultKind.UNAVAILABLE, Operation.GET, times=ALWAYS))
    setting.memory.create("a", b"1")
    assert setting.store.get("a").data == b"1"
    with pytest.raises(Unavailable):
        setting.store.get("a")
    assert setting.clock.monotonic() <= 30.0 + RetryLimits().total_seconds


def test_denial_is_not_repeated() -> None:
    setting = Setting(_fault(FaultKind.DENIED, times=2))
    with pytest.raises(Denied):
        setting.store.get("a")
    assert not setting.clock.slept


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST])
def test_unclear_create_is_found_out(kind: FaultKind) -> None:
    setting = Setting(_fault(kind, Operation.CREATE))
    version = setting.store.create("a", b"mine")
    assert setting.memory.get("a").version == version


class _Refusing(MemoryStore):
    """Applies writes, and says once of each kind that it did not."""

    def __init__(self) -> None:
        super().__init__(FakeClock(), TASKS)
        self._told: set[Operation] = set()

    def create(self, key: str, data: bytes) -> Version:
        version = super().create(key, data)
        self._refuse_once(Operation.CREATE, key)
        return version

    def replace(self, key: str, data: bytes, version: Version) -> Version:
        replaced = super().replace(key, data, version)
        self._refuse_once(Operation.REPLACE, key)
        return replaced

    def delete(self, key: str, version: Version | None) -> None:
        super().delete(key, version)
        self._refuse_once(Operation.DELETE, key)

    def _refuse_once(self, operation: Operation, key: str) -> None:
        if operation not in self._told:
            self._told.add(operation)
            raise Throttled(key)


def test_own_write_of_which_the_store_said_that_it_was_refused_is_known_again() -> None:
    """A 503 after the write was applied, as proxies and some servers give it."""
    memory = _Refusing()
    store = RetryingStore(memory, clock=FakeClock(), entropy=SeededEntropy(), tasks=TASKS)
    first = store.create("a", b"mine")
    assert memory.get("a").version == first
    second = store.replace("a", b"newer", first)
    assert (memory.get("a").data, memory.get("a").version) == (b"newer", second)
    store.delete("a", second)
    assert memory.list("a") == []


def test_create_of_another_is_told_after_a_refused_attempt() -> None:
    setting = Setting(_fault(FaultKind.THROTTLED, Operation.CREATE))
    setting.memory.create("a", b"theirs")
    with pytest.raises(Exists):
        setting.store.create("a", b"mine")


def test_create_of_another_is_told_after_an_unclear_attempt() -> None:
    setting = Setting(_fault(FaultKind.LOST_REQUEST, Operation.CREATE))
    setting.memory.create("a", b"theirs")
    with pytest.raises(Exists):
        setting.store.create("a", b"mine")


def test_late_create_does_not_turn_on_its_own_caller() -> None:
    """The first attempt lands between the reading back and the second."""
    setting = Setting(_fault(FaultKind.LATE, Operation.CREATE))
    setting.clock.sleep = lambda seconds: setting.faulty.land_late_writes()  # type: ignore[method-assign]
    version = setting.store.create("a", b"mine")
    assert setting.memory.get("a").version == version


def test_create_whose_reading_back_fails_is_still_found_out() -> None:
    setting = Setting(
        _fault(FaultKind.LOST_ANSWER, Operation.CREATE),
        _fault(FaultKind.UNAVAILABLE, Operation.GET, times=2),
    )
    version = setting.store.create("a", b"mine")
    assert setting.memory.get("a").version == version


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST])
def test_unclear_replace_is_found_out(kind: FaultKind) -> None:
    setting = Setting(_fault(kind, Operation.REPLACE))
    first = setting.memory.create("a", b"old")
    version = setting.store.replace("a", b"new", first)
    blob = setting.memory.get("a")
    assert (blob.data, blob.version) == (b"new", version)


def test_clear_conflict_costs_one_request() -> None:
    setting = Setting()
    setting.memory.create("a", b"old")
    with pytest.raises(Conflict):
        setting.store.replace("a", b"new", "v999")
    assert setting.counting.snapshot().of() == 1


def test_replace_that_may_have_been_overwritten_stays_unclear() -> None:
    setting = Setting(_fault(FaultKind.LOST_ANSWER, Operation.REPLACE))
    first = setting.memory.create("a", b"old")
    setting.plan.add(_fault(FaultKind.UNAVAILABLE, Operation.GET))

    def overwrite(seconds: float) -> None:
        setting.memory.put("a", b"theirs")

    setting.clock.sleep = overwrite  # type: ignore[method-assign]
    with pytest.raises(Ambiguous, match="may have been applied"):
        setting.store.replace("a", b"mine", first)
    assert setting.memory.get("a").data == b"theirs"


def test_replace_after_certain_failures_conflicts_plainly() -> None:
    setting = Setting(_fault(FaultKind.UNAVAILABLE, Operation.REPLACE))
    first = setting.memory.create("a", b"old")
    setting.memory.put("a", b"theirs")
    with pytest.raises(Conflict):
        setting.store.replace("a", b"mine", first)


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST])
def test_unclear_delete_ends_deleted(kind: FaultKind) -> None:
    setting = Setting(_fault(kind, Operation.DELETE))
    version = setting.memory.create("a", b"1")
    setting.store.delete("a", version)
    with pytest.raises(NotFound):
        setting.memory.get("a")


def test_unclear_delete_spares_a_successor_and_says_so() -> None:
    setting = Setting(_fault(FaultKind.LOST_ANSWER, Operation.DELETE))
    version = setting.memory.create("a", b"1")

    def recreate(seconds: float) -> None:
        setting.memory.create("a", b"2")

    setting.clock.sleep = recreate  # type: ignore[method-assign]
    with pytest.raises(Ambiguous, match="another object"):
        setting.store.delete("a", version)
    assert setting.memory.get("a").data == b"2"


@pytest.mark.parametrize("concurrent_creates", [None, 4])
@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.UNAVAILABLE])
def test_broken_bulk_create_tells_own_objects_from_others(
    concurrent_creates: int | None, kind: FaultKind
) -> None:
    operation = Operation.CREATE_MANY if concurrent_creates is None else Operation.CREATE
    setting = Setting(_fault(kind, operation), concurrent_creates=concurrent_creates)
    setting.memory.create("q/03", b"theirs")
    items = [(f"q/{number:02}", f"{number}".encode()) for number in range(8)]
    versions = setting.store.create_many(items)
    assert [version is None for version in versions] == [key == "q/03" for key, _ in items]
    assert setting.memory.get("q/07").version == versions[7]


def test_bulk_create_does_not_wait_out_the_budget_for_each_item() -> None:
    setting = Setting(_fault(FaultKind.UNAVAILABLE, times=ALWAYS), concurrent_creates=1)
    with pytest.raises(Unavailable):
        setting.store.create_many([(f"q/{number}", b"") for number in range(100)])
    assert setting.clock.monotonic() <= RetryLimits().total_seconds


def test_transfers_and_listings_are_repeated(tmp_path: Path) -> None:
    setting = Setting()
    source = tmp_path / "source"
    source.write_bytes(b"content")
    for operation in (Operation.UPLOAD, Operation.LIST, Operation.HEAD, Operation.DOWNLOAD):
        setting.plan.add(_fault(FaultKind.UNAVAILABLE, operation))
    digest = setting.store.upload("f", source)
    assert [entry.key for entry in setting.store.list("f")] == ["f"]
    assert setting.store.head("f").size == 7
    assert setting.store.download("f", tmp_path / "target") == digest
    assert setting.plan.used_up


@pytest.mark.parametrize("seed", range(20))
def test_counter_survives_random_faults(seed: int) -> None:
    """Every increment that was reported as done is there, and none twice."""
    clock = FakeClock()
    entropy = SeededEntropy(seed)
    kinds = [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.UNAVAILABLE, FaultKind.LATE]
    dice = RandomFaults(entropy, {Fault(kind): 0.05 for kind in kinds})
    memory = MemoryStore(clock, TASKS)
    faulty = FaultyStore(memory, clock, dice)
    store = RetryingStore(faulty, clock=clock, entropy=entropy, tasks=TASKS)
    memory.create("n", b"0")
    for number in range(1, 101):
        version = store.get("n").version
        store.replace("n", f"{number}".encode(), version)
        faulty.land_late_writes(1)
    assert memory.get("n").data == b"100"
