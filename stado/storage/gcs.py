"""A store in a bucket of Google Cloud Storage.

A version is the object's generation, which never repeats. Small objects go through the JSON
interface directly: the client library costs several times the processor time, and its own retries
would hide that an earlier attempt was applied.
"""

from __future__ import annotations

import builtins
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stado.errors import (
    Conflict,
    Denied,
    Exists,
    Misconfigured,
    NotFound,
    NotModified,
    StoreError,
)
from stado.ports import Clock, Tasks
from stado.storage.answers import answer_errors, check_length_told, find_date, part_of
from stado.storage.bucket_rules import (
    BucketRules,
    gcs_drops_versions,
    gcs_retention_seconds,
    gcs_rules,
)
from stado.storage.gcs_errors import check_answer, store_errors
from stado.storage.gcs_session import GcsSession
from stado.storage.keys import check_key, check_prefix, check_range, is_listed
from stado.storage.meter import RequestMeter
from stado.storage.port import LIST_LIMIT_MAX, Blob, Entry, FileDigest, Version
from stado.storage.transfer import CHUNK_BYTES, chunks_of, pour, pour_into_file

CONCURRENT_CREATES = 32
_SECONDS = (3, 10)
"""To connect, and between two packets of an answer."""

_DOWNLOAD_SECONDS = (3, 60)
_BEYOND_THE_END = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
_ABSENT = "0"
"""The generation that an object has before it is made."""

_FIELDS = "name,generation,size,updated"


class GcsStore:
    """`endpoint` None is Google's own; another one is an emulator's and gets no credentials.
    Objects lie under `prefix/` when there is a prefix.

    Making one sends nothing and starts no thread. `conditional_delete=False` is for servers that
    ignore the condition of a delete: the version is then compared first, which is no lock."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        clock: Clock,
        tasks: Tasks,
        endpoint: str | None = None,
        conditional_delete: bool = True,
        meter: RequestMeter | None = None,
    ) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._clock = clock
        self._tasks = tasks
        self._session = GcsSession(clock, tasks, endpoint, meter)
        self._conditional_delete = conditional_delete
        self._clock_read: tuple[datetime, float] | None = None
        self._objects = f"{self._session.endpoint}/storage/v1/b/{quote(bucket, safe='')}/o"
        self._uploads = f"{self._session.endpoint}/upload/storage/v1/b/{quote(bucket, safe='')}/o"

    @property
    def address(self) -> str:
        return f"gs://{self._bucket}/{self._prefix}".rstrip("/")

    def get(self, key: str, *, unless: Version | None = None) -> Blob:
        condition = {} if unless is None else {"ifGenerationNotMatch": unless}
        answer = self._ask(key, {"alt": "media", **condition})
        with answer_errors(key, writing=False):
            check_length_told(answer.headers)
            version: str = answer.headers["x-goog-generation"]
        if version == unless:
            raise NotModified(key)
        return Blob(answer.content, version)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(key, start, length)
        wanted = {"Range": f"bytes={start}-{start + length - 1}"}
        answer = self._ask(key, {"alt": "media"}, wanted)
        if answer.status_code == _BEYOND_THE_END:
            return b""
        with answer_errors(key, writing=False):
            check_length_told(answer.headers)
            return part_of(answer.content, answer.headers, start, length)

    def head(self, key: str) -> Entry:
        answer = self._ask(key, {"fields": _FIELDS})
        with answer_errors(key, writing=False):
            return self._entry(answer.json())

    def create(self, key: str, data: bytes) -> Version:
        try:
            return self._write(key, data, {"ifGenerationMatch": _ABSENT})
        except Conflict as error:
            raise Exists(key) from error

    def create_many(self, items: Sequence[tuple[str, bytes]]) -> list[Version | None]:
        return self._tasks.map(self._create_or_none, items, limit=CONCURRENT_CREATES)

    def replace(self, key: str, data: bytes, version: Version) -> Version:
        try:
            return self._write(key, data, {"ifGenerationMatch": version})
        except NotFound as error:
            raise Conflict(key) from error

    def put(self, key: str, data: bytes) -> Version:
        return self._write(key, data, {})

    def delete(self, key: str, version: Version | None) -> None:
        with suppress(NotFound):
            if version is None:
                self._delete(key, {})
            elif self._conditional_delete:
                self._delete_version(key, version)
            elif self.head(key).version == version:
                self._delete(key, {})
            else:
                raise Conflict(key)

    def list(
        self, prefix: str, *, start_after: str = "", limit: int = LIST_LIMIT_MAX
    ) -> list[Entry]:
        check_prefix(prefix, limit, LIST_LIMIT_MAX)
        entries: list[Entry] = []
        question = {
            "prefix": self._prefix + prefix,
            "maxResults": str(min(limit + 1, LIST_LIMIT_MAX)),
            "fields": f"items({_FIELDS}),nextPageToken",
        }
        if start_after:
            # The offset is part of the answer here, hence the one key more and the filter.
            question["startOffset"] = self._prefix + start_after
        while len(entries) < limit:
            found, token = self._list_page(prefix, question)
            entries.extend(
                entry for entry in found if entry.key > start_after and is_listed(entry.key, prefix)
            )
            if token is None:
                break
            question["pageToken"] = token
        return entries[:limit]

    def first_keys(self, limit: int) -> builtins.list[str]:
        """What is there, whoever put it there: keys as they stand, of one request."""
        found, _ = self._list_page("", {"prefix": self._prefix, "maxResults": str(limit)})
        return [entry.key for entry in found]

    def rules(self) -> BucketRules:
        """What the bucket does by itself, as far as it is told. One request."""
        prefix = self._prefix.strip("/")
        place, fields = self._objects.removesuffix("/o"), "lifecycle,versioning,retentionPolicy"
        try:
            with self._errors(self._bucket, writing=False):
                answer = self._session.ask(
                    self._bucket,
                    lambda session: session.get(place, params={"fields": fields}, timeout=_SECONDS),
                )
                check_answer(self._bucket, answer, writing=False)
            with answer_errors(self._bucket, writing=False):
                told: Mapping[str, Any] = answer.json()
                return BucketRules(
                    prefix,
                    rules=tuple(gcs_rules(told)),
                    keeps_versions=bool((told.get("versioning") or {}).get("enabled")),
                    drops_versions=gcs_drops_versions(told, prefix),
                    retention_seconds=gcs_retention_seconds(told),
                )
        except StoreError as error:
            untold = tuple((what, str(error)) for what in ("lifecycle rules", "versioning"))
            return BucketRules(prefix, untold=untold)

    def now(self) -> datetime:
        if self._clock_read is None:
            self._list_page("", {"prefix": self._prefix, "maxResults": "1"})
        if self._clock_read is None:
            raise Misconfigured(self.address, "its answers carry no Date header")
        at, monotonic = self._clock_read
        return at + timedelta(seconds=self._clock.monotonic() - monotonic)

    def upload(self, key: str, path: Path) -> FileDigest:
        """Reads the file twice, for the library reads it anew where it resumes."""
        check_key(key)
        digest = pour(chunks_of(path), len)
        with self._errors(key, writing=True), answer_errors(key, writing=True):
            self._session.upload(key, self._bucket, self._prefix + key, str(path))
        return digest

    def download(self, key: str, path: Path) -> FileDigest:
        url = self._url(key)
        question = {"alt": "media"}
        with (
            self._errors(key, writing=False),
            self._session.ask(
                key,
                lambda session: session.get(
                    url, params=question, stream=True, timeout=_DOWNLOAD_SECONDS
                ),
            ) as answer,
        ):
            check_answer(key, answer, writing=False)
            with answer_errors(key, writing=False):
                check_length_told(answer.headers)
            return pour_into_file(answer.iter_content(CHUNK_BYTES), path)

    def close(self) -> None:
        self._session.close()

    @contextmanager
    def _errors(self, key: str, *, writing: bool) -> Iterator[None]:
        try:
            with store_errors(key, writing=writing):
                yield
        except Denied as error:
            raise self._session.explained(key, error) from None

    def _url(self, key: str) -> str:
        check_key(key)
        return f"{self._objects}/{quote(self._prefix + key, safe='')}"

    def _ask(
        self, key: str, question: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> Any:
        """With a range among the headers, the answer may be that there is nothing in it."""
        url = self._url(key)
        with self._errors(key, writing=False):
            answer = self._session.ask(
                key,
                lambda session: session.get(
                    url, params=question, headers=headers, timeout=_SECONDS
                ),
            )
            if headers is None or answer.status_code != _BEYOND_THE_END:
                check_answer(key, answer, writing=False)
        with answer_errors(key, writing=False):
            self._note(answer)
        return answer

    def _note(self, answer: Any) -> None:
        """The first answer with a date sets the store's clock."""
        if self._clock_read is None:
            date = find_date(answer.headers)
            if date is not None:
                self._clock_read = date, self._clock.monotonic()

    def _write(self, key: str, data: bytes, condition: Mapping[str, str]) -> Version:
        """As a multipart upload, the one kind whose conditions every emulator honours."""
        check_key(key)
        boundary, body = _multipart(self._prefix + key, data)
        with self._errors(key, writing=True):
            answer = self._session.ask(
                key,
                lambda session: session.post(
                    self._uploads,
                    params={"uploadType": "multipart", "fields": "generation", **condition},
                    data=body,
                    headers={"Content-Type": f"multipart/related; boundary={boundary}"},
                    timeout=_SECONDS,
                ),
            )
            check_answer(key, answer, writing=True)
        with answer_errors(key, writing=True):
            self._note(answer)
            return str(answer.json()["generation"])

    def _create_or_none(self, item: tuple[str, bytes]) -> Version | None:
        try:
            return self.create(*item)
        except Exists:
            return None

    def _delete(self, key: str, condition: Mapping[str, str]) -> None:
        url = self._url(key)
        with self._errors(key, writing=True):
            answer = self._session.ask(
                key, lambda session: session.delete(url, params=condition, timeout=_SECONDS)
            )
            check_answer(key, answer, writing=True)

    def _delete_version(self, key: str, version: Version) -> None:
        try:
            self._delete(key, {"ifGenerationMatch": version})
        except Conflict:
            self.head(key)  # its absence may come as a failed condition, and is no error
            raise

    def _list_page(
        self, prefix: str, question: Mapping[str, str]
    ) -> tuple[builtins.list[Entry], str | None]:
        """A page as the service has it, and the token of the next one."""
        place = prefix or self.address
        with self._errors(place, writing=False):
            answer = self._session.ask(
                place,
                lambda session: session.get(self._objects, params=question, timeout=_SECONDS),
            )
            if answer.status_code == HTTPStatus.NOT_FOUND:
                raise Misconfigured(place, "there is no such bucket: create it, or check its name")
            check_answer(place, answer, writing=False)
        with answer_errors(place, writing=False):
            self._note(answer)
            page: Mapping[str, Any] = answer.json()
            return [self._entry(item) for item in page.get("items", [])], page.get("nextPageToken")

    def _entry(self, item: Mapping[str, Any]) -> Entry:
        return Entry(
            key=item["name"][len(self._prefix) :],
            version=str(item["generation"]),
            size=int(item.get("size", 0)),
            modified_at=datetime.fromisoformat(item["updated"]),
        )


def _multipart(name: str, data: bytes) -> tuple[str, bytes]:
    """The boundary and the body: metadata and content in one request.

    The boundary is a digest of the content, for then the content does not hold it."""
    boundary = hashlib.blake2b(data, digest_size=16).hexdigest()
    metadata = json.dumps({"name": name, "contentType": "application/octet-stream"})
    head = (
        f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{metadata}\r\n"
        f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
    )
    return boundary, b"".join((head.encode(), data, f"\r\n--{boundary}--".encode()))
