"""What is counted of what goes to a bucket."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stado.errors import Exists, NotFound
from stado.storage.gcs import GcsStore
from stado.storage.meter import RequestMeter
from stado.storage.port import Billed, Store
from stado.storage.s3 import S3Store
from tests.storage.canned_server import Answer, canned_server
from tests.storage.stores import BUCKET, CLOCK, TASKS, Stores, retrying

_MIB = 1 << 20


class Metered:
    """A store of which each call is told by what it costs."""

    def __init__(self, make: Callable[..., Store], endpoint: str, **options: bool) -> None:
        self.meter = RequestMeter(TASKS)
        options_of_all = {"clock": CLOCK, "tasks": TASKS, "endpoint": endpoint}
        self.store = make(BUCKET, "metered", meter=self.meter, **options_of_all, **options)

    def cost(self, call: Callable[[Store], object]) -> Billed:
        before = self.meter.reading()
        call(self.store)
        return self.meter.reading().since(before)


@pytest.fixture(params=["s3", "gcs"])
def metered(request: pytest.FixtureRequest, stores: Stores) -> Metered:
    if request.param == "s3":
        return Metered(S3Store, stores.server("seaweedfs").endpoint)
    endpoint = stores.server("fake-gcs").endpoint
    return Metered(GcsStore, endpoint, conditional_delete=False)


def test_each_request_is_of_the_class_that_it_is_billed_as(metered: Metered) -> None:
    """R260: writes and listings, reads; deletes are free."""
    version = ""

    def create(store: Store) -> None:
        nonlocal version
        version = store.create("a/1", b"12345")

    def refused(store: Store) -> None:
        with pytest.raises(Exists):
            store.create("a/1", b"x")

    def absent(store: Store) -> None:
        with pytest.raises(NotFound):
            store.get("a/none")

    classes = {
        create: (1, 0),
        refused: (1, 0),
        absent: (0, 1),
        (lambda store: store.get("a/1")): (0, 1),
        (lambda store: store.get_range("a/1", 1, 2)): (0, 1),
        (lambda store: store.head("a/1")): (0, 1),
        (lambda store: store.list("a/")): (1, 0),
        (lambda store: store.replace("a/1", b"67", version)): (1, 0),
        (lambda store: store.put("a/2", b"")): (1, 0),
        (lambda store: store.create_many([("a/3", b"3"), ("a/4", b"4")])): (2, 0),
        (lambda store: store.delete("a/2", None)): (0, 0),
    }
    found = [metered.cost(call)[:2] for call in classes]
    assert found == list(classes.values())


def test_bytes_are_those_of_bodies(metered: Metered) -> None:
    """R260: GCS has a few more around a small object, which are sent."""
    sent = metered.cost(lambda store: store.put("b/1", bytes(10_000)))
    assert 10_000 <= sent.sent_bytes < 11_000
    assert metered.cost(lambda store: store.get("b/1")).received_bytes == 10_000
    assert metered.cost(lambda store: store.head("b/1")).received_bytes < 1_000
    assert metered.cost(lambda store: store.list("b/")).received_bytes > 50


def test_a_large_file_counts_by_its_parts(stores: Stores, tmp_path: Path) -> None:
    """R260"""
    metered = Metered(S3Store, stores.server("seaweedfs").endpoint)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(_MIB) * 20)
    up = metered.cost(lambda store: store.upload("c/large", source))
    assert (up.dear, up.cheap) == (1 + 3 + 1, 0)
    assert 20 * _MIB <= up.sent_bytes < 20 * _MIB + 10_000
    down = metered.cost(lambda store: store.download("c/large", target))
    assert (down.dear, down.cheap, down.received_bytes) == (0, 3, 20 * _MIB)


def test_what_is_sent_again_counts_again(stores: Stores) -> None:
    """R260: whether it was refused or nobody answered."""
    assert stores
    with canned_server() as server:
        metered = Metered(S3Store, server.endpoint)
        server.answers(Answer(503), Answer(0), Answer(200, b"", {"ETag": "e"}))
        cost = metered.cost(lambda store: retrying(store).put("a", b"123"))
        assert (cost.dear, cost.sent_bytes) == (3, 9)
        metered.store.close()
