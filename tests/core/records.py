"""Records that the tests of the core speak of."""

from __future__ import annotations

from datetime import UTC, datetime

from stado.core.records import Holder, Record
from stado.core.spec import Spec
from stado.core.states import State

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOLDER = Holder(
    token="t" * 16,
    consumer="alice",
    incarnation="alice-1",
    host="host-a",
    claimed_at=NOW,
    lease_seconds=120.0,
)


def queued(**changes: object) -> Record:
    record = Record(
        id="abcdefghijklmnop",
        run_id="run",
        batch=False,
        spec=Spec(command="true"),
        submitted_at=NOW,
        submitter="ada",
        state=State.QUEUED,
        epoch=1,
        priority=0,
        queued_ms=1_772_366_400_000,
        nonce="abcdefgh",
    )
    return record.evolve(**changes)
