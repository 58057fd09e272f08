"""Objects that are not in this deployment's store: in other buckets, on this host, on the web.

They are read with what this host has: its credentials, its files, its way to the network. Whoever
reads here checks the digest; nothing is believed.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from stado.core.inputs import ObjectPlace, Scheme
from stado.errors import Misconfigured, NotFound, Refused
from stado.ports import Clock
from stado.storage.port import FileDigest, OpenStore, Store
from stado_agent.downloads import Heed, Pace, download, pour, read_all


def no_other_stores(address: str, *, to_write: bool) -> Store:  # noqa: ARG001 - of `OpenStore`
    """For an agent that was given no way to open them."""
    raise Misconfigured(address, "this agent opens no other stores")


class Elsewhere:
    """Each bucket is opened once, when it is first asked for."""

    def __init__(self, clock: Clock, open_store: OpenStore = no_other_stores) -> None:
        self._clock = clock
        self._pace = Pace(clock)
        self._open_store = open_store
        self._stores: dict[str, Store] = {}

    def size(self, place: ObjectPlace) -> int | None:
        """Bytes; None where only the download tells. Raises what `download` raises."""
        if place.scheme is Scheme.FILE:
            with _open_file(place.path) as source:
                return os.fstat(source.fileno()).st_size
        if place.scheme is Scheme.HTTPS:
            return None
        return self._store(place).head(place.key).size

    def download(
        self, place: ObjectPlace, target: Path, *, size: int | None, heed: Heed
    ) -> FileDigest:
        """Writes a new file. Raises `NotFound`, `Refused` for what is no file, errors of stores
        where the object cannot be had now, and `OSError` of the target."""
        if place.scheme is Scheme.FILE:
            with _open_file(place.path) as source:
                return pour(read_all(source.read, place.path, OSError), target, heed=heed)
        if place.scheme is Scheme.HTTPS:
            from stado_agent.web import download_from_web

            return download_from_web(place.path, target, heed=heed, clock=self._clock)
        store = self._store(place)
        return download(store, place.key, target, size=size, heed=heed, pace=self._pace)

    def close(self) -> None:
        for store in self._stores.values():
            store.close()
        self._stores.clear()

    def _store(self, place: ObjectPlace) -> Store:
        address = f"{place.scheme}://{place.bucket}"
        if address not in self._stores:
            self._stores[address] = self._open_store(address, to_write=False)
        return self._stores[address]


def _open_file(path: str) -> Any:
    """A regular file: a pipe could keep us for ever, a device never ends."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(path, "there is no such file on this host") from None
    except OSError as error:
        why = f"{path}: this host does not let it be read: {error.strerror}"
        raise Refused("input_unreadable", why) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Refused("input_unreadable", f"{path} is no regular file on this host")
    return os.fdopen(descriptor, "rb")
