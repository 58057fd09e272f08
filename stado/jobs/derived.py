"""A document that a coordinator works out anew and again, and that others only go by."""

from __future__ import annotations

import logging
from typing import Generic

from stado.core.documents import decode
from stado.errors import Conflict, NotFound, Unreadable
from stado.jobs.repository import Repository, Value
from stado.storage.port import Version

log = logging.getLogger(__name__)


def find_derived(repo: Repository, kind: type[Value], key: str) -> Value | None:
    """None: there is none, or none that can be read. One read."""
    try:
        found = repo.find(kind, key)
    except Unreadable as error:
        repo.tell_unreadable(error)
        return None
    return None if found is None else found.value


class Derived(Generic[Value]):
    """As its writer knows it. Where somebody else writes it too, it is read again first."""

    def __init__(self, repo: Repository, kind: type[Value], key: str) -> None:
        self._repo = repo
        self._kind = kind
        self._key = key
        self._known: Value | None = None
        self._version: Version | None = None
        self._loaded = False

    def get(self) -> Value | None:
        """As it was written last, by whomever; None where there is none, or none that can be
        read: the next write replaces it. A read at the first call, and after a lost write."""
        if not self._loaded:
            self._known, self._version = self._find()
            self._loaded = True
        return self._known

    def _find(self) -> tuple[Value | None, Version | None]:
        try:
            found = self._repo.find(self._kind, self._key)
        except Unreadable as error:
            self._repo.tell_unreadable(error)
            return None, self._version_of_it()
        return (None, None) if found is None else (found.value, found.version)

    def _version_of_it(self) -> Version | None:
        try:
            return self._repo.store.head(self._key).version
        except NotFound:
            return None

    def write(self, document: Value) -> bool:
        """Whether it stands. Not where another writer was first: `get` then tells what it said.
        What nobody could read is told in the log, and not written."""
        data = document.encode()
        try:
            decode(self._kind, self._key, data)
        except Unreadable as error:
            log.error("event=not_written key=%s error=%r", self._key, str(error))
            return False
        try:
            version = self._write(document, data)
        except Conflict:
            version = None
        self._loaded = version is not None
        if version is not None:
            self._known, self._version = document, version
        return version is not None

    def _write(self, document: Value, data: bytes) -> Version | None:
        if self._version is None:
            return self._repo.create(self._key, document)
        return self._repo.store.replace(self._key, data, self._version)
