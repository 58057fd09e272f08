"""A process that races for keys of a bucket: `bucket_racer ENDPOINT ADDRESS ROUNDS NAME`."""

from __future__ import annotations

import sys

from stado.errors import Conflict, Exists
from stado.storage.open import open_store
from stado.system.clock import LiveClock
from stado.system.entropy import LiveEntropy
from stado.system.tasks import LiveTasks


def main(endpoint: str, address: str, rounds: str, name: str) -> None:
    """Prints the keys that it created; then counts up one object by compare-and-swap."""
    store = open_store(
        address,
        endpoint=endpoint,
        region=None,
        clock=LiveClock(),
        entropy=LiveEntropy(),
        tasks=LiveTasks(),
    )
    for number in range(int(rounds)):
        key = f"race/{number:03}"
        try:
            store.create(key, name.encode())
        except Exists:
            continue
        print(key)
    done = 0
    while done < int(rounds):
        blob = store.get("counter/n")
        value = int(blob.data.split()[0]) + 1
        try:
            store.replace("counter/n", f"{value} {name} {done}".encode(), blob.version)
        except Conflict:
            continue
        done += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
