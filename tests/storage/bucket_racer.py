"""A process that races for keys of a bucket: `bucket_racer ENDPOINT BUCKET ROUNDS NAME`."""

from __future__ import annotations

import sys

from stado.errors import Conflict, Exists
from stado.storage.open import open_store
from tests.storage.stores import CLOCK, ENTROPY, TASKS


def main(endpoint: str, address: str, rounds: str, name: str) -> None:
    """Prints the keys that it created; then counts up one object by compare-and-swap."""
    store = open_store(
        address, endpoint=endpoint, region=None, clock=CLOCK, entropy=ENTROPY, tasks=TASKS
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
