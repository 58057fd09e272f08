"""When a job's time is up, by what its record says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from stado.core import moves
from stado.core.clocks import passed_limit, runtime_limit_seconds, time_limit
from stado.core.ids import milliseconds
from stado.core.order import entry_name, parse_entry
from stado.core.records import Ending, Record
from stado.core.settings import DeploymentSettings, Limits
from stado.core.states import Reason, Verdict
from tests.core.records import HOLDER, queued

NOON = datetime(2026, 3, 29, 12, 0, tzinfo=UTC)


def job(**stated: object) -> Record:
    record = queued()
    return record.evolve(spec=record.spec.evolve(**stated))


def picked_up(record: Record, *, allowed: int | None = None) -> Record:
    return moves.claimed(
        record,
        HOLDER.evolve(claimed_at=NOON),
        DeploymentSettings(limits=Limits(runtime_seconds=allowed)),
    )


def test_nothing_limits_a_job_of_which_nobody_said_so() -> None:
    assert time_limit(job()) is None
    assert time_limit(picked_up(job())) is None


def test_a_time_limit_counts_from_the_first_claim() -> None:
    """R92: the time before does not count."""
    record = job(timeout_seconds=600)
    assert time_limit(record) is None
    limit = time_limit(picked_up(record))
    assert limit is not None
    assert limit.at_ms == milliseconds(NOON + timedelta(seconds=600))
    assert limit.reason is Reason.ORG_RUNTIME_LIMIT_EXCEEDED


@pytest.mark.parametrize(
    ("own", "allowed", "seconds", "whose"),
    [
        (600, None, 600, "its own time limit of 10m"),
        (None, 600, 600, "the deployment's time limit of 10m"),
        (600, 60, 60, "the deployment's time limit of 1m"),
        (60, 600, 60, "its own time limit of 1m"),
    ],
)
def test_the_lower_limit_counts(
    own: int | None, allowed: int | None, seconds: int, whose: str
) -> None:
    """R91."""
    record = picked_up(job(timeout_seconds=own), allowed=allowed)
    limit = time_limit(record)
    assert runtime_limit_seconds(record) == seconds
    assert limit is not None
    assert whose in limit.detail


def test_of_deadline_and_limit_the_earlier_counts() -> None:
    deadline = NOON + timedelta(seconds=60)
    record = picked_up(job(timeout_seconds=600, deadline_at=deadline))
    limit = time_limit(record)
    assert limit is not None
    assert limit.reason is Reason.DEADLINE_PASSED
    later = picked_up(job(timeout_seconds=30, deadline_at=deadline))
    limit = time_limit(later)
    assert limit is not None
    assert limit.reason is Reason.ORG_RUNTIME_LIMIT_EXCEEDED


def test_a_limit_has_passed_from_its_millisecond_on() -> None:
    record = picked_up(job(timeout_seconds=1))
    at_ms = milliseconds(NOON) + 1000
    assert passed_limit(record, at_ms - 1) is None
    assert passed_limit(record, at_ms) == time_limit(record)


def test_a_later_claim_changes_nothing() -> None:
    """R93: what was fixed at the first stays, whatever the deployment allows by then."""
    first = picked_up(job(timeout_seconds=600), allowed=300)
    lost = moves.ended(first, ending(Reason.LEASE_EXPIRED))
    again = moves.claimed(
        lost.evolve(epoch=2),
        HOLDER.evolve(claimed_at=NOON + timedelta(hours=1)),
        DeploymentSettings(limits=Limits(runtime_seconds=5)),
    )
    assert (again.picked_up_at, again.runtime_limit_seconds) == (NOON, 300)


def test_a_job_that_its_first_host_gave_back_untouched_has_used_no_time() -> None:
    first = picked_up(job(timeout_seconds=600), allowed=300)
    back = moves.ended(first, ending(Reason.HOST_UNABLE))
    assert (back.picked_up_at, back.runtime_limit_seconds) == (None, None)
    second = moves.claimed(
        moves.ended(first, ending(Reason.LEASE_EXPIRED)),
        HOLDER.evolve(claimed_at=NOON + timedelta(minutes=1)),
    )
    assert moves.ended(second, ending(Reason.HOST_UNABLE)).picked_up_at == NOON


def test_the_entry_of_a_job_says_when_its_time_is_up() -> None:
    """Also where no deadline was stated: an agent needs no record to pass it over."""
    record = picked_up(job(timeout_seconds=600)).evolve(epoch=2)
    entry = parse_entry(entry_name(record))
    assert entry is not None
    assert entry.needs.deadline_ms == milliseconds(NOON) + 600_000


def test_a_loss_after_the_time_is_up_is_no_loss() -> None:
    """T25: such a job is not queued again."""
    record = picked_up(job(timeout_seconds=600))
    loss = moves.Loss(
        started_at=NOON,
        heard_at=NOON,
        by="x",
        reason=Reason.LEASE_EXPIRED,
        detail="it was silent",
    )
    before = moves.lost(record, loss, now=NOON + timedelta(seconds=599))
    after = moves.lost(record, loss, now=NOON + timedelta(seconds=600))
    assert (before.verdict, after.verdict) == (Verdict.LOST, Verdict.TIMED_OUT)
    assert after.reason is Reason.ORG_RUNTIME_LIMIT_EXCEEDED
    assert after.detail is not None
    assert after.detail.endswith("; it was silent")
    assert moves.ended(record, after).lease_losses == 0


def test_no_instant_is_too_far_away() -> None:
    """A record may say anything."""
    last = datetime.max.replace(tzinfo=UTC)
    record = job(timeout_seconds=315_360_000).evolve(picked_up_at=last)
    entry = parse_entry(entry_name(record))
    assert entry is not None


def ending(reason: Reason) -> Ending:
    return Ending(verdict=Verdict.LOST, reason=reason, ended_at=NOON, by="x")
