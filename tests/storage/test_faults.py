from __future__ import annotations

import pytest

from stado.errors import Ambiguous, Denied, NotFound, Unavailable
from stado.storage.faults import Fault, FaultKind, FaultyStore, RandomFaults, ScriptedFaults
from stado.storage.memory import MemoryStore
from stado.storage.observe import CountingStore, Operation, folder_kind
from tests.storage.fakes import FakeClock, SeededEntropy
from tests.storage.stores import TASKS


def _store(*faults: Fault) -> tuple[FaultyStore, MemoryStore, FakeClock]:
    clock = FakeClock()
    memory = MemoryStore(clock, TASKS)
    return FaultyStore(memory, clock, ScriptedFaults(*faults)), memory, clock


def test_fault_meets_the_requests_that_it_names() -> None:
    store, memory, _ = _store(
        Fault(FaultKind.DENIED, Operation.CREATE, key_prefix="b/", skip=1, times=2)
    )
    store.create("a/1", b"")
    store.create("b/1", b"")
    for _ in range(2):
        with pytest.raises(Denied):
            store.create("b/2", b"")
    store.create("b/2", b"")
    assert len(memory.list("b/")) == 2


def test_lost_answer_is_applied_and_lost_request_is_not() -> None:
    store, memory, _ = _store(Fault(FaultKind.LOST_ANSWER), Fault(FaultKind.LOST_REQUEST))
    for key in ("a", "b"):
        with pytest.raises(Ambiguous):
            store.put(key, b"")
    assert [entry.key for entry in memory.list("")] == ["a"]


def test_read_without_answer_is_unavailable() -> None:
    store, memory, _ = _store(Fault(FaultKind.LOST_ANSWER, Operation.GET))
    memory.create("a", b"")
    with pytest.raises(Unavailable):
        store.get("a")


def test_late_write_lands_when_told() -> None:
    store, memory, _ = _store(Fault(FaultKind.LATE))
    with pytest.raises(Ambiguous):
        store.create("a", b"late")
    assert store.late_writes == 1
    with pytest.raises(NotFound):
        memory.get("a")
    store.land_late_writes()
    assert memory.get("a").data == b"late"
    assert store.late_writes == 0


def test_late_write_that_lost_its_race_changes_nothing() -> None:
    store, memory, _ = _store(Fault(FaultKind.LATE))
    with pytest.raises(Ambiguous):
        store.create("a", b"late")
    memory.create("a", b"first")
    store.land_late_writes()
    assert memory.get("a").data == b"first"


def test_delay_passes_on_the_clock() -> None:
    store, _, clock = _store(Fault(FaultKind.DELAY, seconds=7.0))
    store.put("a", b"")
    assert clock.monotonic() == 7.0


def test_pages_can_be_stale_dropped_and_repeated() -> None:
    store, memory, _ = _store(
        Fault(FaultKind.STALE_PAGE, Operation.LIST, skip=1),
        Fault(FaultKind.DROPPED_PAGE, Operation.LIST, skip=1),
        Fault(FaultKind.REPEATED_PAGE, Operation.LIST, skip=1),
    )
    memory.create("q/1", b"")
    assert len(store.list("q/")) == 1
    memory.create("q/2", b"")
    assert len(store.list("q/")) == 1
    assert len(store.list("q/")) == 1
    assert [e.key for e in store.list("q/", start_after="q/1")] == ["q/1", "q/2"]
    assert [e.key for e in store.list("q/", start_after="q/1")] == ["q/2"]


def test_stale_read_ends() -> None:
    store, _, clock = _store(Fault(FaultKind.STALE_READ, Operation.CREATE, seconds=5.0))
    store.create("a", b"x")
    with pytest.raises(NotFound):
        store.get("a")
    clock.sleep(5.0)
    assert store.get("a").data == b"x"


def test_truncated_read_keeps_the_version() -> None:
    store, memory, _ = _store(Fault(FaultKind.TRUNCATED, Operation.GET))
    version = memory.create("a", b"12345678")
    blob = store.get("a")
    assert (blob.data, blob.version) == (b"1234", version)


def test_dice_fall_the_same_for_one_seed() -> None:
    def kinds(seed: int) -> list[bool]:
        dice = RandomFaults(SeededEntropy(seed), {Fault(FaultKind.UNAVAILABLE): 0.3})
        return [dice.next(Operation.GET, "a") is not None for _ in range(200)]

    assert kinds(1) == kinds(1) != kinds(2)
    assert 30 < sum(kinds(1)) < 90


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("stado.json", ""),
        ("queue/abc.json", "queue"),
        ("index/ready/0-1", "index/ready"),
        ("index/after/parent/child", "index/after/parent"),
        ("status/abc/heartbeat", "status/*"),
        ("status/abc/cells/1.claim.json", "status/*/cells"),
        ("status/abc/cells/", "status/*/cells"),
        ("status/abc/output/1/a/b", "status/*/output"),
    ],
)
def test_folder_kind_leaves_ids_out(key: str, kind: str) -> None:
    assert folder_kind(key) == kind


def test_requests_are_counted_by_operation_and_folder() -> None:
    store = CountingStore(MemoryStore(FakeClock(), TASKS), TASKS)
    store.create("queue/a", b"")
    before = store.snapshot()
    store.create_many([("queue/b", b""), ("running/a", b"")])
    store.put("capacity/x", b"")
    store.get("queue/b")
    with pytest.raises(NotFound):
        store.get("queue/none")
    store.list("queue/")
    store.delete("queue/b", None)
    since = store.since(before)
    assert (since.writes, since.reads, since.lists, since.deletes) == (3, 2, 1, 1)
    assert since.of(Operation.CREATE) == 2
    assert since.of(kind="queue") == 5
    assert since.of(Operation.CREATE, kind="running") == 1
