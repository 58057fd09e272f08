"""What a program asks of its bucket, and which permissions that takes in a cloud."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from stado.storage.observe import WRITES, Operation
from stado.storage.port import LIST_LIMIT_MAX, Blob, Entry, FileDigest, Store, Version

IF_ABSENT = "s3:if-none-match"
IF_VERSION = "s3:if-match"


@dataclass(frozen=True, slots=True, order=True)
class Request:
    """An operation and its key. `versioned`: a delete of one version alone."""

    operation: Operation
    key: str
    versioned: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Ask:
    """A permission that a request takes. `key` None is the bucket itself; `condition` is the
    condition that the request carries, `listed` the beginning of the names that it lists."""

    permission: str
    key: str | None
    condition: str | None = None
    listed: str | None = None


_READS = (Operation.GET, Operation.GET_RANGE, Operation.HEAD, Operation.DOWNLOAD)


def s3_asks(request: Request) -> Iterator[Ask]:
    """A write under a condition takes the right to read as well: S3 compares versions for those
    alone who may read them, and after a lost answer the key is read back. And a read takes the
    right to list its key: others are not told that there is nothing."""
    key, operation = request.key, request.operation
    reads = operation in _READS or _is_conditional(request)
    if reads or operation is Operation.LIST:
        yield Ask("s3:ListBucket", None, listed=key)
    if reads:
        yield Ask("s3:GetObject", key)
    if operation is Operation.CREATE:
        yield Ask("s3:PutObject", key, IF_ABSENT)
    if operation is Operation.REPLACE:
        yield Ask("s3:PutObject", key, IF_VERSION)
    if operation in (Operation.PUT, Operation.UPLOAD):
        yield Ask("s3:PutObject", key)
    if operation is Operation.UPLOAD:  # a large file that fails on its way is taken back
        yield Ask("s3:AbortMultipartUpload", key)
    if operation is Operation.DELETE:
        yield Ask("s3:DeleteObject", key)


def gcs_asks(request: Request) -> Iterator[Ask]:
    """Writing over an object takes the right to delete it. That is asked of a create too: what
    the service answers to one that comes too late, by somebody who may not overwrite, is not
    documented."""
    key, operation = request.key, request.operation
    if operation is Operation.LIST:
        yield Ask("storage.objects.list", None)
    if operation in _READS or _is_conditional(request):
        yield Ask("storage.objects.get", key)
    if operation in WRITES - {Operation.DELETE}:
        yield Ask("storage.objects.create", key)
    if operation in WRITES:
        yield Ask("storage.objects.delete", key)


def _is_conditional(request: Request) -> bool:
    return request.versioned or request.operation in (Operation.CREATE, Operation.REPLACE)


class RecordingStore:
    """Notes each request that is made of it."""

    def __init__(self, inner: Store, requests: set[Request]) -> None:
        self._inner = inner
        self._requests = requests

    def _note(self, operation: Operation, key: str, *, versioned: bool = False) -> None:
        self._requests.add(Request(operation, key, versioned))

    @property
    def address(self) -> str:
        return self._inner.address

    def get(self, key: str, *, unless: Version | None = None) -> Blob:
        self._note(Operation.GET, key)
        return self._inner.get(key, unless=unless)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self._note(Operation.GET_RANGE, key)
        return self._inner.get_range(key, start, length)

    def head(self, key: str) -> Entry:
        self._note(Operation.HEAD, key)
        return self._inner.head(key)

    def create(self, key: str, data: bytes) -> Version:
        self._note(Operation.CREATE, key)
        return self._inner.create(key, data)

    def create_many(self, items: Sequence[tuple[str, bytes]]) -> builtins.list[Version | None]:
        for key, _ in items:
            self._note(Operation.CREATE, key)
        return self._inner.create_many(items)

    def replace(self, key: str, data: bytes, version: Version) -> Version:
        self._note(Operation.REPLACE, key)
        return self._inner.replace(key, data, version)

    def put(self, key: str, data: bytes) -> Version:
        self._note(Operation.PUT, key)
        return self._inner.put(key, data)

    def delete(self, key: str, version: Version | None) -> None:
        self._note(Operation.DELETE, key, versioned=version is not None)
        self._inner.delete(key, version)

    def list(
        self, prefix: str, *, start_after: str = "", limit: int = LIST_LIMIT_MAX
    ) -> builtins.list[Entry]:
        self._note(Operation.LIST, prefix)
        return self._inner.list(prefix, start_after=start_after, limit=limit)

    def now(self) -> datetime:
        return self._inner.now()

    def upload(self, key: str, path: Path) -> FileDigest:
        self._note(Operation.UPLOAD, key)
        return self._inner.upload(key, path)

    def download(self, key: str, path: Path) -> FileDigest:
        self._note(Operation.DOWNLOAD, key)
        return self._inner.download(key, path)

    def close(self) -> None:
        self._inner.close()
