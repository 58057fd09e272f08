"""Processes that race on a real server: one winner a key, and no update lost."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.storage.stores import BUCKET, Stores, gcs_store, s3_store

PROCESSES = 3
ROUNDS = 8


@pytest.mark.parametrize("name", ["seaweedfs", "ministack", "fake-gcs"])
def test_processes_race_on_a_server(stores: Stores, name: str) -> None:
    server = stores.server(name)
    make = gcs_store if server.scheme == "gs" else s3_store
    store = make(server, "processes")
    store.create("counter/n", b"0")
    address = f"{server.scheme}://{BUCKET}/processes"
    argv = [
        sys.executable,
        "-m",
        "tests.storage.bucket_racer",
        server.endpoint,
        address,
        str(ROUNDS),
    ]
    environment = {**os.environ, **server.environment}
    racers = [
        subprocess.Popen([*argv, f"p{n}"], stdout=subprocess.PIPE, text=True, env=environment)
        for n in range(PROCESSES)
    ]
    try:
        won = sorted(key for racer in racers for key in racer.communicate(timeout=100)[0].split())
    finally:
        for racer in racers:
            racer.kill()
            racer.wait(10)
    assert won == [f"race/{number:03}" for number in range(ROUNDS)]
    assert store.get("counter/n").data.split()[0] == f"{PROCESSES * ROUNDS}".encode()
