"""Objects that nobody of ours would write, under every prefix that there is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from stado.core import keys
from stado.core.states import State
from tests.core.records import queued

STRANGER = "mmmmmmmmmmmmmmmm"
"""A job that exists in what is planted only."""

PAYLOADS: dict[str, bytes] = {
    "empty": b"",
    "no text": b"\xff\xfe\x00\x1b[2J",
    "a list": b"[]",
    "null": b"null",
    "an empty object": b"{}",
    "brackets": b'{"a":' * 100_000,
    "of another job": queued().encode(),
    "numbers": json.dumps(
        {**json.loads(queued(id=STRANGER).encode()), "epoch": 10**18, "queued_ms": -(10**18)}
    ).encode(),
    "a newer schema": b'{"schema": 99}',
}


def planted_keys() -> Iterator[str]:
    """Names that look right and names that do not, in every folder."""
    for state in State:
        yield keys.record(state, STRANGER)
        yield f"{keys.prefix(state)}!junk"
        yield f"{keys.prefix(state)}no-job.json"
        yield f"{keys.prefix(state)}zzzz/deeper.json"
    yield from _beside_a_job(STRANGER)
    yield from (f"{keys.READY}{name}" for name in ("!junk", "zz", "0-0-0", _lying_entry()))
    yield from (f"{keys.RUNS}{name}" for name in ("!junk", "a-run.json", "zz/y"))
    yield from (f"{keys.CAPACITY}{name}" for name in ("!junk", "mallory.json", "~0.json"))
    yield "index/by-user/ada/!junk"
    yield "index/by-user/ada/zz"
    yield "control/junk"
    yield "status/junk"
    yield "junk"


def _beside_a_job(job_id: str) -> Iterator[str]:
    yield keys.claim_cell(job_id, 1)
    yield keys.end_cell(job_id, 1)
    yield from _harmless_beside(job_id)
    yield keys.heartbeat(job_id)
    yield keys.asks(job_id, 1)
    yield keys.output_manifest(job_id, 1)
    yield keys.checkpoint_manifest(job_id, 1, 1)


def _harmless_beside(job_id: str) -> Iterator[str]:
    """What no healthy job is hurt by either."""
    yield f"{keys.cells(job_id)}junk"
    yield f"{keys.cells(job_id)}{'9' * 30}.claim.json"
    yield f"status/{job_id}/cells.json"
    yield keys.asks(job_id, 77)
    yield keys.late(job_id, 1)
    yield f"{keys.log_folder(job_id)}junk"
    yield f"{keys.log_folder(job_id)}000000-0000000000000000"
    yield f"{keys.checkpoints_folder(job_id)}junk"
    yield f"status/{job_id}/output/junk"


def _lying_entry() -> str:
    """An entry at the very head of the queue, of a job that is not there."""
    return f"0000000000000000000-0000000000000-{STRANGER}.1.aaaaaaaa~c1.m1"


def plant(put: Any, payload: bytes, *, beside: list[str]) -> list[str]:
    """Puts a payload under every planted key; returns those keys."""
    planted = [*planted_keys(), *(key for job in beside for key in _harmless_beside(job))]
    for key in planted:
        put(key, payload)
    return planted
