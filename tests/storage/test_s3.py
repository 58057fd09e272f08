"""What S3's answers mean, and what its adapter asks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import ClientError, IncompleteReadError, ResponseStreamingError
from botocore.parsers import ResponseParserError
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
from stado.storage.open import open_store
from stado.storage.port import Store
from stado.storage.s3 import S3Store
from stado.storage.s3_errors import store_errors
from tests.servers.catalogue import ACCESS_KEY, CLIENT_ENVIRONMENT, SECRET_KEY
from tests.storage.canned_server import Answer, CannedServer, canned_server
from tests.storage.stores import CLOCK, ENTROPY, TASKS, Stores, s3_store

SILENCE = Answer(0)
_DATE = "Thu, 01 May 2031 00:00:00 GMT"


@pytest.fixture(scope="module")
def server() -> Iterator[CannedServer]:
    with canned_server() as running:
        yield running


@pytest.fixture(scope="module")
def shared_store(stores: Stores, server: CannedServer) -> Iterator[S3Store]:
    """Made once, for making a client costs more than all its requests here."""
    made = S3Store("bucket", "pre", clock=CLOCK, tasks=TASKS, endpoint=server.endpoint)
    yield made
    made.close()


@pytest.fixture
def canned(server: CannedServer) -> CannedServer:
    server.requests.clear()
    return server


@pytest.fixture
def store(shared_store: S3Store) -> S3Store:
    return shared_store


def _error(status: int, code: str, message: str = "why") -> Answer:
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Answer(status, body.encode(), {"Content-Type": "application/xml"})


WRITES: dict[str, Callable[[Store], object]] = {
    "create": lambda store: store.create("a", b"1"),
    "replace": lambda store: store.replace("a", b"1", "etag"),
    "put": lambda store: store.put("a", b"1"),
    "delete": lambda store: store.delete("a", "etag"),
}
READS: dict[str, Callable[[Store], object]] = {
    "get": lambda store: store.get("a"),
    "list": lambda store: store.list("a/"),
}


@pytest.mark.parametrize("call", [*WRITES.values(), *READS.values()], ids=[*WRITES, *READS])
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (_error(403, "AccessDenied"), Denied),
        (_error(400, "ExpiredToken"), Denied),
        (_error(403, "SignatureDoesNotMatch"), Denied),
        (_error(401, "Other"), Denied),
        (_error(403, "RequestTimeTooSkewed"), Denied),
        (_error(400, "RequestTimeout"), Unavailable),
        (_error(429, "TooManyRequests"), Throttled),
        (_error(503, "SlowDown"), Throttled),
        (_error(409, "ConditionalRequestConflict"), Unavailable),
        (_error(404, "NoSuchBucket"), Misconfigured),
        (_error(501, "NotImplemented"), Misconfigured),
        (_error(400, "AuthorizationHeaderMalformed", "expecting eu-west-1"), Misconfigured),
    ],
    ids=lambda value: value.body.decode()[13:24] if isinstance(value, Answer) else "",
)
def test_error_means_the_same_for_every_operation(
    store: S3Store,
    canned: CannedServer,
    call: Callable[[Store], object],
    answer: Answer,
    error: type[StoreError],
) -> None:
    canned.answers(answer)
    with pytest.raises(error) as raised:
        call(store)
    assert type(raised.value) is error
    refused = any(word in answer.body for word in (b"ExpiredToken", b"Signature", b"Other"))
    assert len(canned.requests) == (2 if refused else 1), "the SDK has tried again by itself"
    assert SECRET_KEY not in repr(raised.value)
    assert ACCESS_KEY not in repr(raised.value)


@pytest.mark.parametrize("answer", [_error(500, "InternalError"), _error(502, "Bad"), SILENCE])
def test_failure_on_the_way_leaves_writes_unclear_and_reads_undone(
    store: S3Store, canned: CannedServer, answer: Answer
) -> None:
    canned.answers(answer)
    for write in WRITES.values():
        with pytest.raises(Ambiguous):
            write(store)
    for read in READS.values():
        with pytest.raises(Unavailable):
            read(store)


@pytest.mark.parametrize("answer", [_error(412, "PreconditionFailed"), _error(412, "Other")])
def test_failed_condition_is_told_by_the_operation(
    store: S3Store, canned: CannedServer, answer: Answer
) -> None:
    canned.answers(answer)
    with pytest.raises(Exists):
        store.create("a", b"1")
    with pytest.raises(Conflict):
        store.replace("a", b"1", "etag")


def test_failed_condition_of_a_delete_conflicts_if_something_is_there(
    store: S3Store, canned: CannedServer
) -> None:
    there = {"ETag": '"x"', "Last-Modified": _DATE}
    canned.answers(_error(412, "PreconditionFailed"), Answer(200, b"", there))
    with pytest.raises(Conflict):
        store.delete("a", "etag")
    canned.answers(
        _error(412, "PreconditionFailed"),
        Answer(404),
        Answer(
            200,
            b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
            {"Date": _DATE},
        ),
    )
    store.delete("a", "etag")


def test_absence_is_told_by_the_operation(store: S3Store, canned: CannedServer) -> None:
    canned.answers(_error(404, "NoSuchKey"))
    with pytest.raises(NotFound):
        store.get("a")
    with pytest.raises(Conflict):
        store.replace("a", b"1", "etag")
    store.delete("a", "etag")


def test_missing_bucket_is_not_taken_for_a_missing_object(
    stores: Stores, canned: CannedServer
) -> None:
    """An answer to HEAD has no body, so it cannot tell them apart."""
    store = S3Store("bucket", clock=CLOCK, tasks=TASKS, endpoint=canned.endpoint)
    canned.answers(Answer(404), _error(404, "NoSuchBucket"))
    with pytest.raises(Misconfigured, match="create the bucket"):
        store.head("a")


def test_requests_carry_the_conditions(store: S3Store, canned: CannedServer) -> None:
    canned.answers(Answer(200, b"", {"ETag": '"v1"'}))
    assert store.create("a", b"1") == "v1"
    store.replace("a", b"2", "v1")
    store.put("a", b"3")
    store.delete("a", "v1")
    store.delete("a", None)
    sent = [
        (r.method, r.path, r.headers.get("If-None-Match"), r.headers.get("If-Match"))
        for r in canned.requests
    ]
    assert sent == [
        ("PUT", "/bucket/pre/a", "*", None),
        ("PUT", "/bucket/pre/a", None, "v1"),
        ("PUT", "/bucket/pre/a", None, None),
        ("DELETE", "/bucket/pre/a", None, "v1"),
        ("DELETE", "/bucket/pre/a", None, None),
    ]


def test_unchanged_object_is_not_sent(store: S3Store, canned: CannedServer) -> None:
    canned.answers(Answer(304, b"", {"ETag": '"v1"'}))
    with pytest.raises(NotModified):
        store.get("a", unless="v1")
    assert canned.requests[0].headers["If-None-Match"] == '"v1"'


def test_server_that_ignores_the_condition_of_a_read_is_seen_through(
    store: S3Store, canned: CannedServer
) -> None:
    canned.answers(Answer(200, b"1", {"ETag": '"v1"'}))
    with pytest.raises(NotModified):
        store.get("a", unless="v1")


@pytest.mark.parametrize("body", [b"<html><br></html>", b"<html></html>", b"{"])
def test_answer_of_a_proxy_says_nothing(store: S3Store, canned: CannedServer, body: bytes) -> None:
    canned.answers(Answer(200, body))
    for name in ("create", "replace", "put"):
        with pytest.raises(Ambiguous):
            WRITES[name](store)
    for read in [*READS.values(), lambda store: store.head("a")]:
        with pytest.raises(Unavailable):
            read(store)


def test_an_answer_that_was_cut_off_in_its_headers_says_nothing(
    store: S3Store, canned: CannedServer, tmp_path: Path
) -> None:
    """It is no empty object: a seal that is read as nothing would be beaten over."""
    canned.answers(Answer(200, b"", {"ETag": '"v1"'}, tells_length=False))
    for read in [store.get, lambda key: store.download(key, tmp_path / "file")]:
        with pytest.raises(Unavailable, match="how long"):
            read("a")
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("etag", ['"', '"v', '"v1'])
def test_a_version_that_was_cut_off_is_none(
    store: S3Store, canned: CannedServer, etag: str
) -> None:
    """A write by such a one would be refused as if somebody else had been faster."""
    modified = {"Last-Modified": _DATE}
    canned.answers(Answer(200, b"", {"ETag": etag, **modified}))
    for name in ("create", "replace", "put"):
        with pytest.raises(Ambiguous, match="cut off"):
            WRITES[name](store)
    for read in (store.get, store.head):
        with pytest.raises(Unavailable, match="cut off"):
            read("a")


def test_a_date_that_was_cut_off_sets_no_clock(stores: Stores, canned: CannedServer) -> None:
    """Half a date can be read as a whole one of another minute."""
    store = S3Store("bucket", clock=CLOCK, tasks=TASKS, endpoint=canned.endpoint)
    headers = {"ETag": '"v1"'}
    canned.answers(Answer(200, b"", headers))
    canned.date = "Thu, 01 May 2031 10:4"
    try:
        store.put("a", b"")
        canned.date = "Thu, 01 May 2031 10:48:00 GMT"
        store.put("a", b"")
    finally:
        canned.date = None
    assert abs(store.now() - datetime(2031, 5, 1, 10, 48, tzinfo=UTC)) < timedelta(minutes=1)
    store.close()


def test_an_answer_in_chunks_is_whole(store: S3Store, canned: CannedServer) -> None:
    headers = {"ETag": '"v1"', "Transfer-Encoding": "chunked"}
    canned.answers(Answer(200, b"2\r\nab\r\n0\r\n\r\n", headers, tells_length=False))
    assert store.get("a").data == b"ab"


@pytest.mark.parametrize("body", [b"<html>404 Not Found</html>", b"404 page not found\n", b""])
def test_a_proxys_404_is_no_absence(store: S3Store, canned: CannedServer, body: bytes) -> None:
    """Absent and unreachable are two answers."""
    canned.answers(Answer(404, body))
    for write in WRITES.values():
        with pytest.raises(Ambiguous, match="proxy"):
            write(store)
    for read in [*READS.values(), lambda store: store.head("a")]:
        with pytest.raises(Unavailable, match="proxy"):
            read(store)


def test_an_absence_that_the_listing_denies_is_none(store: S3Store, canned: CannedServer) -> None:
    """A proxy may answer one request of many by itself."""
    listed = b"""<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>pre/a</Key>
        <ETag>"v1"</ETag><Size>1</Size><LastModified>2026-03-29T01:30:00Z</LastModified></Contents>
        </ListBucketResult>"""
    canned.answers(Answer(404), Answer(200, listed))
    with pytest.raises(Unavailable, match="listed"):
        store.head("a")


def test_absence_with_the_number_of_a_request_is_asked_for_once(
    store: S3Store, canned: CannedServer
) -> None:
    store.now()
    canned.requests.clear()
    canned.answers(Answer(404, b"", {"x-amz-request-id": "1"}))
    with pytest.raises(NotFound):
        store.head("a")
    assert [request.method for request in canned.requests] == ["HEAD"]


@pytest.mark.parametrize(
    "raised",
    [
        S3UploadFailedError("why"),
        ResponseParserError("no XML"),
        ReadTimeoutError(None, "", "a stream that was cut"),  # type: ignore[arg-type]
        IncompleteReadError(actual_bytes=1, expected_bytes=2),
        ResponseStreamingError(error="cut"),
        ClientError(
            {"Error": {"Code": "NoSuchUpload"}, "ResponseMetadata": {"HTTPStatusCode": 404}},
            "CompleteMultipartUpload",
        ),
    ],
    ids=lambda raised: type(raised).__name__,
)
def test_what_else_the_sdk_raises_of_a_transfer_is_unclear(raised: Exception) -> None:
    with pytest.raises(Ambiguous), store_errors("a", writing=True):
        raise raised


def test_transfers_in_an_outage_end_in_an_error_of_ours(
    store: S3Store, canned: CannedServer, tmp_path: Path
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"1")
    cut = Answer(200, b"1", {"Content-Length": "10", "ETag": "e", "Connection": "close"})
    for answer in (SILENCE, _error(503, "SlowDown"), _error(404, "NoSuchUpload")):
        canned.answers(answer)
        with pytest.raises((Unavailable, Ambiguous)):
            store.upload("a", source)
    for answer in (SILENCE, cut):
        canned.answers(answer)
        with pytest.raises(Unavailable):
            store.download("a", target)
    assert not target.exists()


def test_short_page_is_not_taken_for_the_end(store: S3Store, canned: CannedServer) -> None:
    def page(name: str, more: str) -> Answer:
        item = (
            f"<Contents><Key>pre/q/{name}</Key><ETag>e</ETag><Size>1</Size>"
            "<LastModified>2031-05-01T00:00:00Z</LastModified></Contents>"
        )
        body = f"<ListBucketResult><IsTruncated>{more}</IsTruncated>{item}</ListBucketResult>"
        return Answer(200, body.encode())

    canned.answers(page("1", "true"), page("2", "false"))
    assert [entry.key for entry in store.list("q/", limit=10)] == ["q/1", "q/2"]
    assert "start-after=pre%2Fq%2F1" in canned.requests[1].path


def test_clock_is_the_servers(stores: Stores, canned: CannedServer) -> None:
    store = S3Store("bucket", clock=CLOCK, tasks=TASKS, endpoint=canned.endpoint)

    canned.answers(
        Answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
    )
    assert abs((store.now() - CLOCK.now()).total_seconds()) < 3
    store.now()
    assert len(canned.requests) == 1


def test_nothing_listening_is_unavailable_at_once(stores: Stores) -> None:
    store = S3Store("bucket", clock=CLOCK, tasks=TASKS, endpoint="http://127.0.0.1:9")
    begun = time.monotonic()
    for call in [*WRITES.values(), *READS.values()]:
        with pytest.raises(Unavailable):
            call(store)
    assert time.monotonic() - begun < 5


def test_missing_credentials_are_denied_with_the_remedy(
    canned: CannedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in CLIENT_ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    store = S3Store(
        "bucket", clock=CLOCK, tasks=TASKS, endpoint=canned.endpoint, region="us-east-1"
    )
    with pytest.raises(Denied, match="check the credentials"):
        store.put("a", b"")
    assert not canned.requests


def test_store_made_before_a_fork_serves_the_copy(stores: Stores) -> None:
    """The parent has used it too: connections are not shared with the copy."""
    store = s3_store(stores.server("ministack"), "fork")
    store.put("parent/a", b"1")
    pid = os.fork()
    if pid == 0:
        # No exception may leave this branch: the copy would go on as a second test run.
        code = 1
        try:
            store.put("child/a", store.get("parent/a").data)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert store.get("child/a").data == b"1"


def test_making_a_store_starts_no_thread_and_sends_nothing(canned: CannedServer) -> None:
    before = set(threading.enumerate())
    open_store(
        "s3://bucket/x",
        endpoint=canned.endpoint,
        region=None,
        clock=CLOCK,
        entropy=ENTROPY,
        tasks=TASKS,
    )
    assert set(threading.enumerate()) <= before
    assert not canned.requests


@pytest.mark.parametrize("name", ["ministack", "seaweedfs"])
def test_large_file_goes_in_parts(stores: Stores, name: str, tmp_path: Path) -> None:
    """In two whole ones and a shorter one."""
    store = s3_store(stores.server(name), "large")
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(1 << 20) * 20)
    sent = store.upload("f/large", source)
    assert store.download("f/large", target) == sent
    assert sent.size == 20 << 20
    assert target.read_bytes() == source.read_bytes()


def test_missing_bucket_of_a_real_server_is_named(stores: Stores) -> None:
    store = s3_store(stores.server("ministack"), bucket="stado-none")
    for call in [*WRITES.values(), *READS.values()]:
        with pytest.raises(Misconfigured, match="create the bucket"):
            call(store)
    with pytest.raises(Misconfigured, match="create the bucket"):
        store.head("a")


def test_thousand_jobs_are_created_in_seconds(stores: Stores) -> None:
    """Two objects a job, through the front door, on a server that stores them for good. Half the
    time on an idle machine of two cores."""
    store = open_store(
        "s3://stado-contract/bulk",
        endpoint=stores.server("seaweedfs").endpoint,
        region=None,
        clock=CLOCK,
        entropy=ENTROPY,
        tasks=TASKS,
    )
    begun = time.monotonic()
    for folder in ("index/ready", "queue"):
        items = [(f"{folder}/{number:04}", b"x" * 300) for number in range(1000)]
        assert None not in store.create_many(items)
    assert time.monotonic() - begun < 30
    assert len(store.list("queue/")) == 1000
