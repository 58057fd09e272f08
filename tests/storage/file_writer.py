"""A process that writes to a directory store: `file_writer ROOT WHAT:COUNT NUMBER`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from stado.errors import Conflict, Exists, NotFound
from stado.storage.file import FileStore
from stado.system.clock import LiveClock
from stado.system.entropy import LiveEntropy

BIG = 100_000


def create(store: FileStore, times: int, number: int) -> None:
    """Creates the same keys as its siblings and prints those that it won."""
    for race in range(times):
        key = f"race/{race:04}"
        try:
            store.create(key, f"{number}".encode())
        except Exists:
            continue
        print(key)


def swap(store: FileStore, times: int, number: int) -> None:
    """Counts up by compare-and-swap."""
    done = 0
    while done < times:
        blob = store.get("counter/n")
        value = int(blob.data.split()[0]) + 1
        try:
            store.replace("counter/n", f"{value} {number}".encode(), blob.version)
        except Conflict:
            continue
        done += 1


def turns(store: FileStore, times: int, number: int) -> None:
    """Replaces, deletes or makes one object, and prints each version that its replace took away.

    Deletes print nothing: one that finds nothing is no error, and so tells nothing."""
    for turn in range(times):
        try:
            version = store.get("turns/n").version
        except NotFound:
            with suppress(Exists):
                store.create("turns/n", f"{number} {turn} made".encode())
            continue
        with suppress(Conflict):
            if turn % 4 == 0:
                store.delete("turns/n", version)
            else:
                store.replace("turns/n", f"{number} {turn}".encode(), version)
                print(version)


def endless(store: FileStore, times: int, number: int) -> None:
    """Replaces and creates objects of one repeated byte until it is killed."""
    for turn in count():
        data = bytes([turn % 251]) * BIG
        store.put("crash/put", data)
        version = store.get("crash/put").version
        store.replace("crash/put", data[::-1], version)
        store.create(f"crash/{os.getpid()}-{turn}", data)


ACTIONS: dict[str, Callable[[FileStore, int, int], None]] = {
    "create": create,
    "swap": swap,
    "turns": turns,
    "endless": endless,
}


def main(root: str, what: str, number: str) -> None:
    name, _, times = what.partition(":")
    store = FileStore(Path(root), LiveClock(), LiveEntropy(), durable=False)
    ACTIONS[name](store, int(times or 0), int(number))


if __name__ == "__main__":
    main(*sys.argv[1:])
