"""What others put into a folder or bucket of ours under names that no key has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import boto3.session
import pytest
import requests

from stado.storage.file import FileStore
from stado.storage.port import Store
from tests.servers import Server
from tests.storage.stores import BUCKET, CLOCK, ENTROPY, Stores, gcs_store, s3_store

STRAYS = ["", " copy", "a (copy).json", "b copy.json", "ž.json", "x" * 201, "folder/", "old/a.json"]
"""Below `queue/`: copies, markers of folders as consoles make them, whole folders."""

OURS = ["queue/a.json", "queue/b.json", "queue/c.json"]


def _put_s3(server: Server, key: str) -> None:
    session = boto3.session.Session()
    client = session.client("s3", endpoint_url=server.endpoint)
    client.put_object(Bucket=BUCKET, Key=key, Body=b"")
    client.close()


def _put_gcs(server: Server, key: str) -> None:
    url = f"{server.endpoint}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quote(key)}"
    requests.post(url, data=b"", timeout=5).raise_for_status()


def _put_file(root: Path, key: str) -> None:
    path = root / key
    if key.endswith("/"):
        path.mkdir(exist_ok=True)
    else:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")


def _assert_strays_are_passed_over(store: Store, put: Callable[[str], None]) -> None:
    for key in OURS:
        store.create(key, b"")
    for name in STRAYS:
        put(f"queue/{name}")
    assert [entry.key for entry in store.list("queue/")] == OURS
    assert [entry.key for entry in store.list("queue/", limit=2)] == OURS[:2]
    assert [entry.key for entry in store.list("queue/", start_after=OURS[0], limit=2)] == OURS[1:]
    assert [entry.key for entry in store.list("queue/b")] == OURS[1:2]


@pytest.mark.parametrize("name", ["ministack", "seaweedfs"])
def test_listings_of_s3_pass_over_stray_names(stores: Stores, name: str) -> None:
    server = stores.server(name)
    store = s3_store(server, "strays")
    _assert_strays_are_passed_over(store, lambda key: _put_s3(server, f"strays/{key}"))


def test_listings_of_gcs_pass_over_stray_names(stores: Stores) -> None:
    server = stores.server("fake-gcs")
    store = gcs_store(server, "strays")
    _assert_strays_are_passed_over(store, lambda key: _put_gcs(server, f"strays/{key}"))


def test_listings_of_a_directory_pass_over_stray_names(tmp_path: Path) -> None:
    store = FileStore(tmp_path, CLOCK, ENTROPY, durable=False)
    _assert_strays_are_passed_over(store, lambda key: _put_file(tmp_path, key))
