"""What Google Cloud Storage's answers mean, and what its adapter asks.

The emulator ignores the condition of a delete; that it is sent is seen here.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import google.auth
import pytest
from google.api_core.exceptions import RetryError
from google.auth.exceptions import DefaultCredentialsError, RefreshError, TransportError
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from google.cloud.storage.retry import DEFAULT_RETRY
from urllib3.exceptions import ReadTimeoutError

from stado.errors import (
    Ambiguous,
    Conflict,
    Denied,
    Exists,
    Misconfigured,
    NotFound,
    NotModified,
    StoreError,
    Throttled,
    Unavailable,
)
from stado.storage.gcs import GcsStore
from stado.storage.gcs_errors import store_errors
from stado.storage.port import Store
from tests.storage.canned_server import Answer, CannedServer, canned_server
from tests.storage.stores import CLOCK, TASKS, Stores, gcs_store

SILENCE = Answer(0)


@pytest.fixture
def canned() -> Iterator[CannedServer]:
    with canned_server() as server:
        yield server


@pytest.fixture
def store(canned: CannedServer) -> GcsStore:
    return GcsStore("bucket", "pre", clock=CLOCK, tasks=TASKS, endpoint=canned.endpoint)


def _error(status: int, message: str = "why") -> Answer:
    body = json.dumps({"error": {"code": status, "message": message}})
    return Answer(status, body.encode(), {"Content-Type": "application/json"})


WRITES: dict[str, Callable[[Store], object]] = {
    "create": lambda store: store.create("a", b"1"),
    "replace": lambda store: store.replace("a", b"1", "7"),
    "put": lambda store: store.put("a", b"1"),
    "delete": lambda store: store.delete("a", "7"),
}
READS: dict[str, Callable[[Store], object]] = {
    "get": lambda store: store.get("a"),
    "head": lambda store: store.head("a"),
    "list": lambda store: store.list("a/"),
}


@pytest.mark.parametrize("call", [*WRITES.values(), *READS.values()], ids=[*WRITES, *READS])
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (_error(401), Denied),
        (_error(403), Denied),
        (_error(429), Throttled),
        (_error(503), Throttled),
        (_error(409), Unavailable),
        (_error(400, "bad name"), Misconfigured),
        (_error(501), Misconfigured),
        (_error(404, "The specified bucket does not exist."), Misconfigured),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Answer) else "",
)
def test_error_means_the_same_for_every_operation(
    store: GcsStore,
    canned: CannedServer,
    call: Callable[[Store], object],
    answer: Answer,
    error: type[StoreError],
) -> None:
    canned.answers(answer)
    with pytest.raises(error) as raised:
        call(store)
    assert type(raised.value) is error


@pytest.mark.parametrize("answer", [_error(500), _error(502), _error(408), SILENCE])
def test_failure_on_the_way_leaves_writes_unclear_and_reads_undone(
    store: GcsStore, canned: CannedServer, answer: Answer
) -> None:
    canned.answers(answer)
    for write in WRITES.values():
        canned.requests.clear()
        with pytest.raises(Ambiguous):
            write(store)
        assert len(canned.requests) == 1, "the SDK has tried again by itself"
    for read in READS.values():
        with pytest.raises(Unavailable):
            read(store)


def test_nothing_listening_is_unavailable() -> None:
    store = GcsStore("bucket", clock=CLOCK, tasks=TASKS, endpoint="http://127.0.0.1:9")
    for call in [*WRITES.values(), *READS.values()]:
        with pytest.raises(Unavailable):
            call(store)


def test_a_handshake_that_was_cut_off_is_worth_another_try() -> None:
    """Only a certificate that is not trusted stays so."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        store = GcsStore("bucket", clock=CLOCK, tasks=TASKS, endpoint=f"https://127.0.0.1:{port}")

        def hang_up() -> None:
            listener.accept()[0].close()

        hanging_up = TASKS.start("hang-up", hang_up)
        with pytest.raises(Unavailable):
            store.get("a")
        assert hanging_up.join(20)


def test_failed_condition_is_told_by_the_operation(store: GcsStore, canned: CannedServer) -> None:
    canned.answers(_error(412))
    with pytest.raises(Exists):
        store.create("a", b"1")
    with pytest.raises(Conflict):
        store.replace("a", b"1", "7")
    canned.answers(_error(412), Answer(200, json.dumps(_item("a", 9)).encode()))
    with pytest.raises(Conflict):
        store.delete("a", "7")
    canned.answers(_error(412), _error(404, "No such object"))
    store.delete("a", "7")
    canned.answers(Answer(304))
    with pytest.raises(NotModified):
        store.get("a", unless="7")


def test_absence_is_told_by_the_operation(store: GcsStore, canned: CannedServer) -> None:
    canned.answers(_error(404, "No such object: bucket/pre/a"))
    with pytest.raises(NotFound):
        store.get("a")
    with pytest.raises(Conflict):
        store.replace("a", b"1", "7")
    store.delete("a", "7")


def test_requests_carry_the_conditions(store: GcsStore, canned: CannedServer) -> None:
    canned.answers(Answer(200, b'{"generation": "7"}'))
    assert store.create("a", b"1") == "7"
    store.replace("a", b"2", "7")
    store.put("a", b"3")
    store.delete("a", "7")
    store.delete("a", None)
    sent = [
        (r.method, parse_qs(urlsplit(r.path).query).get("ifGenerationMatch"))
        for r in canned.requests
    ]
    assert sent == [
        ("POST", ["0"]),
        ("POST", ["7"]),
        ("POST", None),
        ("DELETE", ["7"]),
        ("DELETE", None),
    ]
    assert all("uploadType=multipart" in r.path for r in canned.requests[:3])


def test_listing_goes_on_after_the_key_and_to_the_end(
    store: GcsStore, canned: CannedServer
) -> None:
    """The service starts with the key itself, and may give short pages."""
    first = {"items": [_item("q/1", 1), _item("q/2", 1)], "nextPageToken": "more"}
    second = {"items": [_item("q/3", 1)]}
    canned.answers(*(Answer(200, json.dumps(page).encode()) for page in (first, second)))
    entries = store.list("q/", start_after="q/1", limit=5)
    assert [entry.key for entry in entries] == ["q/2", "q/3"]
    assert "pageToken=more" in canned.requests[1].path


def test_content_that_looks_like_a_boundary_comes_back_whole(stores: Stores) -> None:
    store = gcs_store(stores.server("fake-gcs"), "boundary")
    data = b"\r\n--stado\r\n\r\n--" + bytes(range(256))
    store.create("a", data)
    assert store.get("a").data == data


def test_large_file_goes_by_the_library(stores: Stores, tmp_path: Path) -> None:
    store = gcs_store(stores.server("fake-gcs"), "large")
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(range(256)) * (12 << 12))
    sent = store.upload("f/a", source)
    assert store.download("f/a", target) == sent
    assert target.read_bytes() == source.read_bytes()


def test_missing_bucket_of_the_emulator_is_named(stores: Stores) -> None:
    store = gcs_store(stores.server("fake-gcs"), bucket="stado-none")
    with pytest.raises(Misconfigured, match="bucket"):
        store.list("a/")
    with pytest.raises(Misconfigured, match="bucket"):
        store.now()


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (DefaultCredentialsError("none"), Denied),  # type: ignore[no-untyped-call]
        (RefreshError("expired"), Denied),  # type: ignore[no-untyped-call]
        (TransportError("no answer"), Unavailable),  # type: ignore[no-untyped-call]
    ],
)
def test_credentials_that_fail_are_told_apart(raised: Exception, error: type[StoreError]) -> None:
    with pytest.raises(error), store_errors("a", writing=True):
        raise raised


def test_making_a_store_looks_for_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google.auth, "default", lambda **_: pytest.fail("asked"))
    assert GcsStore("bucket", clock=CLOCK, tasks=TASKS).address == "gs://bucket"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"<html>log in</html>"),
        Answer(200, b"[]", {"Content-Type": "application/json"}),
        Answer(200, b'{"items": [{"name": "pre/a/b"}]}'),
    ],
    ids=["page", "list", "lacking"],
)
def test_answer_of_a_proxy_says_nothing(
    store: GcsStore, canned: CannedServer, answer: Answer
) -> None:
    canned.answers(answer)
    for name in ("create", "replace", "put"):
        with pytest.raises(Ambiguous, match="proxy"):
            WRITES[name](store)
    for read in READS.values():
        with pytest.raises(Unavailable, match="proxy"):
            read(store)


@pytest.mark.parametrize("body", [b"<html>404 Not Found</html>", b"404 page not found\n", b""])
def test_a_proxys_404_is_no_absence(store: GcsStore, canned: CannedServer, body: bytes) -> None:
    """Absent and unreachable are two answers."""
    canned.answers(Answer(404, body))
    for write in WRITES.values():
        with pytest.raises(Ambiguous, match="proxy"):
            write(store)
    for name in ("get", "head"):
        with pytest.raises(Unavailable, match="proxy"):
            READS[name](store)


def test_an_answer_that_was_cut_off_in_its_headers_says_nothing(
    store: GcsStore, canned: CannedServer, tmp_path: Path
) -> None:
    """It is no empty object."""
    canned.answers(Answer(200, b"", {"x-goog-generation": "1"}, tells_length=False))
    for read in [store.get, lambda key: store.download(key, tmp_path / "file")]:
        with pytest.raises(Unavailable, match="how long"):
            read("a")
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize(
    "raised",
    [
        RetryError("patience is over", cause=None),
        InvalidResponse(None, "no such header"),
        DataCorruption(None, "other bytes"),
        ReadTimeoutError(None, "", "a stream that was cut"),  # type: ignore[arg-type]
    ],
)
def test_what_else_the_library_raises_is_unclear(raised: Exception) -> None:
    with pytest.raises(Ambiguous), store_errors("a", writing=True):
        raise raised
    with pytest.raises(Unavailable), store_errors("a", writing=False):
        raise raised


def test_upload_in_an_outage_ends_in_an_error_of_ours(
    store: GcsStore, canned: CannedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library then raises what is no error of a call. Its patience is two minutes."""
    monkeypatch.setattr(DEFAULT_RETRY, "_timeout", 0.5)
    source = tmp_path / "source"
    source.write_bytes(b"1")
    for answer in (SILENCE, _error(503), Answer(200, b"<html>log in</html>")):
        canned.answers(answer)
        with pytest.raises((Unavailable, Ambiguous)):
            store.upload("a", source)


def _item(key: str, generation: int) -> dict[str, str]:
    return {
        "name": f"pre/{key}",
        "generation": str(generation),
        "size": "1",
        "updated": "2031-05-01T00:00:00.123Z",
    }
