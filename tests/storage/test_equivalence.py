"""The directory behaves as the memory does, whatever is asked of the two in whatever order."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stado.errors import StoreError
from stado.storage.file import FileStore
from stado.storage.memory import MemoryStore
from stado.storage.port import Store
from tests.search import examples
from tests.storage.stores import CLOCK, ENTROPY, TASKS

KEYS = st.sampled_from(["q/a", "q/b", "q/b-1", "s/job/c/1", "s/job/c/2", "s/job/h"])
DATA = st.sampled_from([b"", b"1", b"22", b"333"])
NAMES = st.sampled_from(
    ["create", "replace", "put", "delete", "delete-any", "get", "part", "list", "many"]
)
STEPS = st.lists(st.tuples(NAMES, KEYS, DATA, st.booleans()), max_size=40)


class Player:
    """Plays steps on a store and notes what can be compared: all but the versions themselves."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._versions: dict[str, str] = {}
        self._moves: dict[str, Callable[[str, bytes, str], object]] = {
            "create": self._create,
            "replace": self._replace,
            "put": self._put,
            "delete": lambda key, _, version: store.delete(key, version),
            "delete-any": lambda key, _, __: store.delete(key, None),
            "get": lambda key, _, __: store.get(key).data,
            "part": lambda key, data, _: store.get_range(key, len(data), 1 + len(data)),
            "list": self._list,
            "many": self._many,
        }

    def play(self, name: str, key: str, data: bytes, *, stale: bool) -> object:
        version = "0" * 32 if stale else self._versions.get(key, "none")
        try:
            return self._moves[name](key, data, version)
        except StoreError as error:
            return type(error).__name__

    def _create(self, key: str, data: bytes, _: str) -> None:
        self._versions[key] = self._store.create(key, data)

    def _replace(self, key: str, data: bytes, version: str) -> None:
        self._versions[key] = self._store.replace(key, data, version)

    def _put(self, key: str, data: bytes, _: str) -> None:
        self._versions[key] = self._store.put(key, data)

    def _many(self, key: str, data: bytes, _: str) -> list[bool]:
        items = [(key, data), ("q/a", data), ("s/job/c/2", b"many")]
        items = list(dict(items).items())
        versions = self._store.create_many(items)
        made = {k: v for (k, _), v in zip(items, versions, strict=True) if v is not None}
        self._versions.update(made)
        return [version is not None for version in versions]

    def _list(self, key: str, data: bytes, _: str) -> list[tuple[str, int]]:
        folder = key[: key.rindex("/") + 1]
        after = key if data else ""
        entries = self._store.list(folder, start_after=after, limit=1 + len(data))
        return [(entry.key, entry.size) for entry in entries]


@given(STEPS)
@settings(examples(150), suppress_health_check=[HealthCheck.too_slow])
def test_directory_and_memory_agree(steps: list[tuple[str, str, bytes, bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        memory = Player(MemoryStore(CLOCK, TASKS))
        directory = Player(FileStore(Path(folder), CLOCK, ENTROPY, durable=False))
        for name, key, data, stale in steps:
            expected = memory.play(name, key, data, stale=stale)
            assert directory.play(name, key, data, stale=stale) == expected, (name, key)
