"""The stores under test: how each is made, and what it is known not to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stado.storage.faults import FaultyStore, ScriptedFaults
from stado.storage.file import FileStore
from stado.storage.memory import MemoryStore
from stado.storage.observe import CountingStore
from stado.storage.port import Store
from stado.storage.retry import RetryingStore
from stado.system.clock import LiveClock
from stado.system.entropy import LiveEntropy
from stado.system.tasks import LiveTasks
from tests.servers import SERVERS, Server

CLOCK = LiveClock()
ENTROPY = LiveEntropy()
TASKS = LiveTasks()
BUCKET = "stado-contract"


@dataclass(frozen=True, slots=True)
class StoreUnderTest:
    """A store, and whether deletes by version can be asked of it."""

    store: Store
    conditional_delete: bool = True


class Stores:
    """Makes each store once and keeps its server until the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._exits = ExitStack()
        self._made: dict[str, StoreUnderTest] = {}
        self._servers: dict[str, Server] = {}

    def get(self, name: str) -> StoreUnderTest:
        if name not in self._made:
            self._made[name] = MAKERS[name](self)
        return self._made[name]

    def server(self, name: str) -> Server:
        if name not in self._servers:
            server = self._exits.enter_context(SERVERS[name]())
            server.make_bucket(BUCKET)
            self._servers[name] = server
        return self._servers[name]

    def folder(self, name: str) -> Path:
        path = self._folder / name
        path.mkdir(exist_ok=True)
        return path

    def close(self) -> None:
        for made in self._made.values():
            made.store.close()
        self._exits.close()


def s3_store(server: Server, prefix: str = "", bucket: str = BUCKET, **options: Any) -> Store:
    from stado.storage.s3 import S3Store

    return S3Store(bucket, prefix, clock=CLOCK, tasks=TASKS, endpoint=server.endpoint, **options)


def gcs_store(server: Server, prefix: str = "", bucket: str = BUCKET) -> Store:
    from stado.storage.gcs import GcsStore

    return GcsStore(bucket, prefix, clock=CLOCK, tasks=TASKS, endpoint=server.endpoint)


def retrying(store: Store) -> RetryingStore:
    return RetryingStore(store, clock=CLOCK, entropy=ENTROPY, tasks=TASKS)


def _memory(stores: Stores) -> StoreUnderTest:
    return StoreUnderTest(MemoryStore(CLOCK, TASKS))


def _file(stores: Stores) -> StoreUnderTest:
    return StoreUnderTest(FileStore(stores.folder("file"), CLOCK, ENTROPY))


def _wrapped(stores: Stores) -> StoreUnderTest:
    """All wrappers on top of each other change nothing."""
    memory = FaultyStore(MemoryStore(CLOCK, TASKS), CLOCK, ScriptedFaults())
    return StoreUnderTest(retrying(CountingStore(memory, TASKS)))


def _s3(name: str, **options: Any) -> Callable[[Stores], StoreUnderTest]:
    def make(stores: Stores) -> StoreUnderTest:
        return StoreUnderTest(s3_store(stores.server(name), "deep/inside", **options))

    return make


def _seaweedfs_compared(stores: Stores) -> StoreUnderTest:
    """As for a server that ignores the condition of a delete: compared first, no more."""
    store = s3_store(stores.server("seaweedfs"), "compared", conditional_delete=False)
    return StoreUnderTest(store, conditional_delete=False)


def _fake_gcs(stores: Stores) -> StoreUnderTest:
    """It ignores `ifGenerationMatch` of a delete, which GCS itself documents."""
    return StoreUnderTest(gcs_store(stores.server("fake-gcs"), "deep"), conditional_delete=False)


MAKERS: dict[str, Callable[[Stores], StoreUnderTest]] = {
    "memory": _memory,
    "file": _file,
    "wrapped": _wrapped,
    "ministack": _s3("ministack"),
    "seaweedfs": _s3("seaweedfs"),
    "seaweedfs-compared": _seaweedfs_compared,
    "fake-gcs": _fake_gcs,
}


@contextmanager
def all_stores(folder: Path) -> Iterator[Stores]:
    stores = Stores(folder)
    try:
        yield stores
    finally:
        stores.close()
