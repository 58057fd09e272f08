"""The store's clock goes on evenly, whatever happens to that of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stado.storage.file import FileStore
from stado.storage.gcs import GcsStore
from stado.storage.port import Store
from stado.storage.s3 import S3Store
from tests.storage.canned_server import Answer, CannedServer, canned_server
from tests.storage.fakes import SeededEntropy
from tests.storage.stores import TASKS, Stores

_NOTHING = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
_STORES_TIME = datetime(2031, 5, 1, 12, 0, tzinfo=UTC)
_DATE = "Thu, 01 May 2031 12:00:00 GMT"


class JumpingClock:
    """Two clocks of a machine, of which one is set by hand."""

    def __init__(self) -> None:
        self.wall = datetime(2020, 1, 1, tzinfo=UTC)
        self.seconds = 1000.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.pass_by(seconds)

    def pass_by(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.seconds += seconds


@pytest.fixture
def server() -> Iterator[CannedServer]:
    with canned_server() as running:
        running.date = _DATE
        yield running


@pytest.mark.parametrize("jump", [timedelta(days=-400), timedelta(hours=-1), timedelta(days=3650)])
@pytest.mark.parametrize("kind", ["s3", "gcs", "file"])
def test_setting_this_machines_clock_does_not_move_the_stores(
    stores: Stores, server: CannedServer, tmp_path: Path, kind: str, jump: timedelta
) -> None:
    clock = JumpingClock()
    store: Store
    if kind == "s3":
        server.answers(Answer(200, _NOTHING))
        store = S3Store("bucket", clock=clock, tasks=TASKS, endpoint=server.endpoint)
    elif kind == "gcs":
        server.answers(Answer(200, b"{}"))
        store = GcsStore("bucket", clock=clock, tasks=TASKS, endpoint=server.endpoint)
    else:
        store = FileStore.make(tmp_path, clock, SeededEntropy())
    before = store.now()
    if kind != "file":
        assert before == _STORES_TIME
    clock.pass_by(10)
    clock.wall += jump
    server.date = "Wed, 01 Jan 2020 00:00:00 GMT"
    store.list("a/")
    assert store.now() == before + timedelta(seconds=10)
