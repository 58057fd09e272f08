"""What the memory store offers to who watches over a simulation."""

from __future__ import annotations

from stado.storage.memory import MemoryStore
from tests.jobs.fakes import FakeClock, InlineTasks


def test_a_watcher_hears_of_each_change_with_what_was_there() -> None:
    heard: list[tuple[str, bytes | None, bytes | None]] = []
    store = MemoryStore(FakeClock(), InlineTasks(), watcher=lambda *change: heard.append(change))
    store.create("a/b", b"1")
    store.put("a/b", b"2")
    store.delete("a/b", None)
    store.delete("a/b", None)
    assert heard == [("a/b", None, b"1"), ("a/b", b"1", b"2"), ("a/b", b"2", None)]


def test_a_copy_and_its_original_do_not_touch_each_other() -> None:
    store = MemoryStore(FakeClock(), InlineTasks())
    store.create("a/b", b"1")
    copy = store.copy()
    copy.put("a/b", b"2")
    copy.create("a/c", b"3")
    store.create("a/d", b"4")
    assert [entry.key for entry in store.list("a/")] == ["a/b", "a/d"]
    assert store.get("a/b").data == b"1"
    assert [entry.key for entry in copy.list("a/")] == ["a/b", "a/c"]


def test_versions_by_content_are_those_of_equal_bytes() -> None:
    store = MemoryStore(FakeClock(), InlineTasks(), versions_by_content=True)
    first = store.create("a/b", b"1")
    assert store.put("a/b", b"2") != first
    assert store.put("a/b", b"1") == first
