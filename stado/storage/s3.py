"""A store in a bucket of S3, or of a server that speaks its protocol.

A version is the ETag without its quotes. It is a digest of the content: equal bytes have equal
versions, so records that are replaced must differ in every writing.
"""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from boto3.s3.transfer import TransferConfig
from botocore.exceptions import BotoCoreError, ClientError

from stado.errors import (
    Conflict,
    Denied,
    Exists,
    Misconfigured,
    NotFound,
    NotModified,
    StoreError,
    Unavailable,
)
from stado.ports import Clock, Tasks
from stado.storage.answers import (
    NOT_THE_STORES,
    answer_errors,
    check_length_told,
    find_date,
    part_of,
)
from stado.storage.bucket_rules import BucketRules, s3_drops_versions, s3_rules
from stado.storage.keys import check_key, check_prefix, check_range, is_listed
from stado.storage.meter import RequestMeter
from stado.storage.pieces import PIECE_BYTES, fetch_pieces
from stado.storage.port import LIST_LIMIT_MAX, Blob, Entry, FileDigest, Version
from stado.storage.s3_clients import RECORDS, UPLOADS, WHOLE, Patience, S3Clients
from stado.storage.s3_errors import is_beyond_the_end, is_unsigned_absence, store_errors
from stado.storage.transfer import CHUNK_BYTES, HashingReader, pour_into_file

CONCURRENT_CREATES = 32
_WHOLE_BYTES_MAX = 4 << 20
"""So much goes up in one request, from memory."""
_PART_BYTES = 8 << 20
_PARTS_AT_ONCE = 6
"""Of one file: each is in memory."""
_PARTS_MAX = 9_000
"""S3 takes 10,000."""
_MIB = 1 << 20

_TOLD_OF_BUCKETS = {
    "lifecycle rules": "get_bucket_lifecycle_configuration",
    "versioning": "get_bucket_versioning",
}

Result = TypeVar("Result")


class S3Store:
    """`endpoint` None is AWS itself. Objects lie under `prefix/` when there is a prefix.

    Making one sends nothing and starts no thread; connections belong to the process that first
    used them, and a forked copy makes its own. `conditional_delete=False` is for servers that
    ignore the condition of a delete: the version is then compared first, which is no lock."""

    def __init__(  # noqa: PLR0913 - ports and options by name
        self,
        bucket: str,
        prefix: str = "",
        *,
        clock: Clock,
        tasks: Tasks,
        endpoint: str | None = None,
        region: str | None = None,
        conditional_delete: bool = True,
        meter: RequestMeter | None = None,
    ) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._clock = clock
        self._tasks = tasks
        with store_errors(self.address, writing=False):
            self._clients = S3Clients(clock, tasks, endpoint, region, meter)
        self._conditional_delete = conditional_delete
        self._clock_read: tuple[datetime, float] | None = None

    @property
    def address(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def get(self, key: str, *, unless: Version | None = None) -> Blob:
        condition = {} if unless is None else {"IfNoneMatch": f'"{unless}"'}

        def ask(client: Any) -> Blob:
            answer = client.get_object(**self._place(key), **condition)
            check_length_told(_headers(answer))
            data: bytes = answer["Body"].read()
            self._note(answer)
            return Blob(data, _version(answer))

        blob = self._ask(key, ask, writing=False)
        if blob.version == unless:
            raise NotModified(key)
        return blob

    def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(key, start, length)
        wanted = f"bytes={start}-{start + length - 1}"

        def ask(client: Any) -> bytes:
            try:
                answer = client.get_object(**self._place(key), Range=wanted)
            except ClientError as error:
                if is_beyond_the_end(error):
                    return b""
                raise
            check_length_told(_headers(answer))
            data: bytes = answer["Body"].read()
            self._note(answer)
            return part_of(data, _headers(answer), start, length)

        return self._ask(key, ask, writing=False)

    def head(self, key: str) -> Entry:
        anybodys_answers: list[ClientError] = []

        def ask(client: Any) -> Entry:
            try:
                answer = client.head_object(**self._place(key))
            except ClientError as error:
                if is_unsigned_absence(error):
                    anybodys_answers.append(error)
                raise
            self._note(answer)
            return Entry(key, _version(answer), answer["ContentLength"], answer["LastModified"])

        try:
            return self._ask(key, ask, writing=False)
        except NotFound:
            # A missing bucket looks the same here, and so does a proxy's 404: a listing tells.
            if anybodys_answers or self._clock_read is None:
                page, _ = self._list_page(key, "", 1)
                if any(entry.key == key for entry in page):
                    raise Unavailable(key, f"not found, but listed: {NOT_THE_STORES}") from None
            raise

    def create(self, key: str, data: bytes) -> Version:
        try:
            return self._write(key, data, {"IfNoneMatch": "*"})
        except Conflict as error:
            raise Exists(key) from error

    def create_many(self, items: Sequence[tuple[str, bytes]]) -> list[Version | None]:
        return self._tasks.map(self._create_or_none, items, limit=CONCURRENT_CREATES)

    def replace(self, key: str, data: bytes, version: Version) -> Version:
        try:
            # Without quotes: all servers take that, and some compare it as it stands.
            return self._write(key, data, {"IfMatch": version})
        except NotFound as error:
            raise Conflict(key) from error

    def put(self, key: str, data: bytes) -> Version:
        return self._write(key, data, {})

    def delete(self, key: str, version: Version | None) -> None:
        if version is None:
            self._delete(key, {})
        elif self._conditional_delete:
            self._delete_version(key, version)
        else:
            self._compare_and_delete(key, version)

    def list(
        self, prefix: str, *, start_after: str = "", limit: int = LIST_LIMIT_MAX
    ) -> list[Entry]:
        """Pages may come short before the end, so it asks until the end is said."""
        check_prefix(prefix, limit, LIST_LIMIT_MAX)
        entries: list[Entry] = []
        after, page_size = start_after, limit
        while len(entries) < limit:
            page, more = self._list_page(prefix, after, page_size)
            entries.extend(
                entry for entry in page if entry.key > start_after and is_listed(entry.key, prefix)
            )
            if not page or not more:
                break
            after, page_size = page[-1].key, LIST_LIMIT_MAX
        return entries[:limit]

    def first_keys(self, limit: int) -> builtins.list[str]:
        """What is there, whoever put it there: keys as they stand, of one request."""
        return [entry.key for entry in self._list_page("", "", limit)[0]]

    def rules(self) -> BucketRules:
        """What the bucket does by itself, as far as it is told. Two requests."""
        untold: builtins.list[tuple[str, str]] = []
        answers: dict[str, Mapping[str, Any]] = {}
        for what, operation in _TOLD_OF_BUCKETS.items():
            try:
                answers[what] = self._ask_of(
                    self._bucket, partial(self._told_of_bucket, operation), writing=False
                )
            except NotFound:
                answers[what] = {}  # that there is none is told so
            except StoreError as error:
                untold.append((what, str(error)))
        prefix, lifecycle = self._prefix.strip("/"), answers.get("lifecycle rules", {})
        kept = answers.get("versioning")
        return BucketRules(
            prefix,
            rules=tuple(s3_rules(lifecycle)),
            keeps_versions=None if kept is None else kept.get("Status") == "Enabled",
            drops_versions=s3_drops_versions(lifecycle, prefix),
            untold=tuple(untold),
        )

    def _told_of_bucket(self, operation: str, client: Any) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = getattr(client, operation)(Bucket=self._bucket)
        return answer

    def now(self) -> datetime:
        if self._clock_read is None:
            self._list_page("", "", 1)
        if self._clock_read is None:
            raise Misconfigured(self.address, "its answers carry no Date header")
        at, monotonic = self._clock_read
        return at + timedelta(seconds=self._clock.monotonic() - monotonic)

    def upload(self, key: str, path: Path) -> FileDigest:
        size = path.stat().st_size
        if size <= _WHOLE_BYTES_MAX:
            return self._upload_whole(key, path)

        def ask(client: Any) -> FileDigest:
            with closing(HashingReader(path)) as source:
                client.upload_fileobj(source, Config=_in_parts(size), **self._place(key))
                return source.digest()

        return self._ask(key, ask, writing=True, patience=UPLOADS)

    def _upload_whole(self, key: str, path: Path) -> FileDigest:
        """One request, without the threads that the SDK starts for each transfer."""
        data = path.read_bytes()
        self._ask(
            key,
            lambda client: client.put_object(**self._place(key), Body=data),
            writing=True,
            patience=WHOLE,
        )
        return FileDigest(len(data), hashlib.sha256(data).hexdigest())

    def download(self, key: str, path: Path) -> FileDigest:
        """A large object in pieces, of which the first tells how many, if the server knows ranges:
        one that does not sends the whole."""

        def ask(client: Any) -> FileDigest:
            try:
                first = client.get_object(**self._place(key), Range=_range(0, PIECE_BYTES))
            except ClientError as error:
                if not is_beyond_the_end(error):
                    raise
                first = client.get_object(**self._place(key))  # it is empty
            check_length_told(_headers(first))
            size = _size_behind(first)
            if size is None or size <= PIECE_BYTES:
                return pour_into_file(_chunks(first), path)
            return self._download_in_pieces(client, key, path, size, first)

        return self._ask(key, ask, writing=False, patience=WHOLE)

    def _download_in_pieces(
        self, client: Any, key: str, path: Path, size: int, first: Mapping[str, Any]
    ) -> FileDigest:
        unread = [first]

        def fetch(start: int, length: int) -> Iterator[bytes]:
            if start == 0 and unread:
                return _chunks(unread.pop())
            answer = client.get_object(**self._place(key), Range=_range(start, length))
            told = _headers(answer).get("content-range", "")
            if not told.startswith(f"bytes {start}-"):
                answer["Body"].close()
                raise ValueError(f"it is another part: {told or 'the whole'}")
            return _chunks(answer)

        return fetch_pieces(fetch, path, size, tasks=self._tasks, again=(BotoCoreError,))

    def close(self) -> None:
        self._clients.close()

    def _place(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + key}

    def _ask(
        self,
        key: str,
        call: Callable[[Any], Result],
        *,
        writing: bool,
        patience: Patience = RECORDS,
    ) -> Result:
        """What `call` makes of the answer to the request that it sends by the client it is given:
        once, or twice where credentials were refused."""
        check_key(key)
        return self._ask_of(key, call, writing=writing, patience=patience)

    def _ask_of(
        self,
        place: str,
        call: Callable[[Any], Result],
        *,
        writing: bool,
        patience: Patience = RECORDS,
    ) -> Result:
        try:
            with (
                store_errors(place, writing=writing, now=self._clock.now()),
                answer_errors(place, writing=writing),
            ):
                return self._clients.ask(place, call, patience)
        except Denied as error:
            raise self._clients.explained(place, error) from None

    def _write(self, key: str, data: bytes, condition: Mapping[str, str]) -> Version:
        def ask(client: Any) -> Version:
            answer = client.put_object(**self._place(key), Body=data, **condition)
            self._note(answer)
            return _version(answer)

        return self._ask(key, ask, writing=True)

    def _create_or_none(self, item: tuple[str, bytes]) -> Version | None:
        try:
            return self.create(*item)
        except Exists:
            return None

    def _delete(self, key: str, condition: Mapping[str, str]) -> None:
        with suppress(NotFound):
            self._ask(
                key,
                lambda client: client.delete_object(**self._place(key), **condition),
                writing=True,
            )

    def _delete_version(self, key: str, version: Version) -> None:
        try:
            self._delete(key, {"IfMatch": version})
        except Conflict:
            # Some servers call the absence of the object a failed condition.
            with suppress(NotFound):
                self.head(key)
                raise

    def _compare_and_delete(self, key: str, version: Version) -> None:
        with suppress(NotFound):
            if self.head(key).version != version:
                raise Conflict(key)
            self._delete(key, {})

    def _list_page(self, prefix: str, after: str, limit: int) -> tuple[builtins.list[Entry], bool]:
        """A page as the server has it, and whether there is more."""
        begin = {"StartAfter": self._prefix + after} if after else {}

        def ask(client: Any) -> tuple[builtins.list[Entry], bool]:
            answer: Mapping[str, Any] = client.list_objects_v2(
                Bucket=self._bucket, Prefix=self._prefix + prefix, MaxKeys=limit, **begin
            )
            self._note(answer)
            entries = [self._entry(item) for item in answer.get("Contents", [])]
            return entries, bool(answer["IsTruncated"])

        return self._ask_of(prefix or self.address, ask, writing=False)

    def _entry(self, item: Mapping[str, Any]) -> Entry:
        key: str = item["Key"][len(self._prefix) :]
        return Entry(key, item["ETag"].strip('"'), item["Size"], item["LastModified"])

    def _note(self, answer: Mapping[str, Any]) -> None:
        """The first answer with a date sets the store's clock."""
        if self._clock_read is None:
            date = find_date(_headers(answer))
            if date is not None:
                self._clock_read = date, self._clock.monotonic()


def _range(start: int, length: int) -> str:
    return f"bytes={start}-{start + length - 1}"


def _chunks(answer: Mapping[str, Any]) -> Iterator[bytes]:
    chunks: Iterator[bytes] = answer["Body"].iter_chunks(CHUNK_BYTES)
    return chunks


def _size_behind(part: Mapping[str, Any]) -> int | None:
    """Of the object that this is the beginning of; None when it is the whole. Raises
    `ValueError`."""
    told = _headers(part).get("content-range", "")
    if not told:
        return None
    if not told.startswith("bytes 0-"):
        raise ValueError(f"it is another part: {told}")
    return int(told.rpartition("/")[2])


def _in_parts(size: int) -> TransferConfig:
    part_bytes = max(_PART_BYTES, -(-size // _PARTS_MAX) // _MIB * _MIB + _MIB)
    config = TransferConfig(
        multipart_threshold=_PART_BYTES,
        multipart_chunksize=part_bytes,
        max_concurrency=_PARTS_AT_ONCE,
    )
    config.max_in_memory_upload_chunks = _PARTS_AT_ONCE
    return config


def _headers(answer: Mapping[str, Any]) -> Mapping[str, str]:
    """By names in small letters."""
    headers: Mapping[str, str] = answer["ResponseMetadata"]["HTTPHeaders"]
    return headers


def _version(answer: Mapping[str, Any]) -> Version:
    """Raises `ValueError` for one that was cut off: no write would ever match it."""
    version: str = answer["ETag"]
    if version.startswith('"') and not (len(version) > 1 and version.endswith('"')):
        raise ValueError(f"its ETag {version} is cut off")
    return version.strip('"')
