"""What a job may do again by itself, from what it states and what its deployment allows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from stado.core import moves
from stado.core.ids import milliseconds
from stado.core.order import entry_name, parse_entry
from stado.core.records import EndCell, Ending, Record
from stado.core.retries import DELAY_SECONDS_DEFAULT, RetryRule, RetrySettings, rule_of
from stado.core.settings import DeploymentSettings
from stado.core.spec import Spec, make_request
from stado.core.states import Opening, Reason, State, Verdict
from stado.errors import Refused
from tests.core.records import HOLDER, queued

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
USUAL = [Reason.JOB_FAILED, Reason.BODY_HUNG]
MEMORY = Reason.MEMORY_LIMIT_EXCEEDED


def rule(settings: RetrySettings | None = None, **stated: object) -> RetryRule | None:
    fields = {"retries": None, "on": [], "delay_seconds": None, **stated}
    return rule_of(settings or RetrySettings(), **fields)  # type: ignore[arg-type]


def job(**stated: object) -> Record:
    spec = Spec(command="train", **stated)  # type: ignore[arg-type]
    return moves.claimed(queued().evolve(spec=spec), HOLDER.evolve(claimed_at=NOON))


def failure(reason: Reason = Reason.JOB_FAILED, **changes: object) -> Ending:
    failed = Ending(
        verdict=Verdict.FAILED, reason=reason, started_at=NOON, ended_at=NOON, exit_code=3, by="x"
    )
    return failed.evolve(**changes)


def end_of(record: Record, ending: Ending) -> EndCell:
    return EndCell(token="zyxwvuts76543210", ending=ending, record=moves.ended(record, ending))


def tried_again(record: Record) -> Record:
    """The queue record that follows its failure."""
    return moves.after(end_of(record, moves.retried(record, failure(), jitter=0)))


def test_nothing_is_tried_again_unless_somebody_says_so() -> None:
    """Decision 9: off without a budget."""
    assert rule() is None
    assert rule(retries=0) is None
    assert rule(RetrySettings(default=0)) is None
    assert moves.retried(job(), failure(), jitter=0) == failure()


def test_a_job_and_its_deployment_together_say_what_counts() -> None:
    """R20, R54: the job's own word first, within what the deployment allows."""
    assert rule(retries=2) == RetryRule(retries=2, on=USUAL, delay_seconds=DELAY_SECONDS_DEFAULT)
    deployment = RetrySettings(default=1, most=3, on=[Reason.VERIFY_FAILED], delay_seconds=9)
    assert rule(deployment) == RetryRule(retries=1, on=[Reason.VERIFY_FAILED], delay_seconds=9)
    stated = rule(deployment, retries=50, on=[Reason.BODY_HUNG], delay_seconds=4)
    assert stated == RetryRule(retries=3, on=[Reason.BODY_HUNG], delay_seconds=4)
    assert rule(RetrySettings(most=0), retries=50) is None


def test_want_of_memory_is_tried_again_only_where_the_deployment_says_so() -> None:
    """Decision 6"""
    alone = rule(retries=1, on=[MEMORY, Reason.JOB_FAILED])
    assert alone is not None
    assert alone.on == [Reason.JOB_FAILED]
    listed = rule(RetrySettings(on=[MEMORY]), retries=1)
    assert listed is not None
    assert listed.on == [MEMORY]


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        (Reason.JOB_REFUSED, {}),
        (Reason.VERIFY_FAILED, {}),
        (Reason.INPUT_UNAVAILABLE, {}),
        (Reason.TIMEOUT, {}),
        (Reason.JOB_FAILED, {"started_at": None}),
        (Reason.CANCELLED, {"verdict": Verdict.CANCELLED}),
        (Reason.ORG_RUNTIME_LIMIT_EXCEEDED, {"verdict": Verdict.TIMED_OUT}),
    ],
)
def test_what_no_other_try_would_mend_is_not_tried_again(
    reason: Reason, changes: dict[str, object]
) -> None:
    """R53, T9, T12: only after its command was started, and after some failures."""
    ending = failure(reason, **changes)
    assert moves.retried(job(retries=5), ending, jitter=0) == ending


def test_a_failure_leads_to_the_queue_and_waits_there() -> None:
    """T13, R18: the same job, one row, with its losses and its clock as they were."""
    before = job(retries=2, retry_delay_seconds=30)
    after = tried_again(before)
    assert (after.state, after.epoch, after.starts) == (State.QUEUED, 2, 1)
    assert (after.auto_retries, after.lease_losses, after.manual_retries) == (1, 0, 0)
    assert after.due_ms == after.queued_ms == milliseconds(NOON) + 30_000
    assert after.picked_up_at == before.picked_up_at
    assert after.ending is not None
    assert (after.ending.verdict, after.ending.reason) == (Verdict.RETRYING, Reason.JOB_FAILED)
    again = moves.claimed(after, HOLDER)
    assert (again.due_ms, again.retry_rule) == (None, before.retry_rule)


def test_the_pause_doubles_and_the_tries_come_to_an_end() -> None:
    """R20"""
    record, pauses = job(retries=3, retry_delay_seconds=30), []
    for _ in range(3):
        after = tried_again(record)
        assert after.due_ms is not None
        pauses.append((after.due_ms - milliseconds(NOON)) / 1000)
        record = moves.claimed(after, HOLDER)
    assert pauses == [30, 60, 120]
    assert record.auto_retries_left == 0
    assert moves.retried(record, failure(), jitter=0) == failure()


def test_a_pause_has_a_bound_and_some_chance() -> None:
    rule_of_hours = RetryRule(retries=100, on=USUAL, delay_seconds=3600)
    assert rule_of_hours.pause_seconds(1, 0) == 7200
    assert rule_of_hours.pause_seconds(99, 0) == 6 * 3600
    assert rule_of_hours.pause_seconds(0, 1) == 4500
    day = RetryRule(retries=100, on=USUAL, delay_seconds=86_400)
    assert day.pause_seconds(5, 0) == 86_400


@pytest.mark.parametrize(
    "limit",
    [{"timeout_seconds": 30}, {"deadline_at": NOON + timedelta(seconds=20)}],
    ids=["time limit", "deadline"],
)
def test_no_try_is_planned_for_when_its_time_is_up(limit: dict[str, object]) -> None:
    record = job(retries=1, retry_delay_seconds=30, **limit)
    assert moves.retried(record, failure(), jitter=0).verdict is Verdict.FAILED


def test_a_retry_by_somebody_gives_all_tries_again() -> None:
    """R21: what is shown counts on."""
    record = moves.claimed(tried_again(job(retries=1)), HOLDER)
    failed = moves.ended(record, moves.retried(record, failure(), jitter=0))
    again = moves.opened(failed, Opening.RETRY, token="zyxwvuts76543210", at=NOON)
    assert (again.auto_retries, again.auto_retries_used, again.retry_rule) == (1, 0, None)
    assert moves.claimed(again, HOLDER).auto_retries_left == 1


def test_the_rule_is_that_of_the_first_claim() -> None:
    later = DeploymentSettings(retries=RetrySettings(default=9))
    first = job()
    lost = moves.ended(first, failure(Reason.LEASE_EXPIRED, verdict=Verdict.LOST))
    assert moves.claimed(lost.evolve(epoch=2), HOLDER, later).retry_rule is None
    assert moves.claimed(queued(), HOLDER, later).auto_retries_left == 9


def test_an_entry_that_is_not_due_sorts_behind_all_others_and_says_until_when() -> None:
    after = tried_again(job(retries=1))
    name = entry_name(after)
    assert name > entry_name(queued())
    entry = parse_entry(name)
    assert entry is not None
    assert entry.due_ms == after.due_ms
    assert not entry.is_due(after.due_ms - 1)
    assert entry.is_due(after.due_ms)


@pytest.mark.parametrize(
    ("stated", "text"),
    [
        ({"retries": -1}, "retries -1 must be a whole number from 0 to 100"),
        ({"retries": True}, "retries True must be a whole number"),
        (
            {"retry_on": [Reason.CANCELLED]},
            "nothing is tried again after 'cancelled': there is job",
        ),
        ({"retry_delay_seconds": 0}, "retry-delay 0 must be"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(stated: dict[str, object], text: str) -> None:
    with pytest.raises(Refused, match=text):
        make_request(["train"], Spec(command="", **stated), batch=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stated", "changes", "why"),
    [
        ({"timeout_seconds": 30}, {}, "the pause would last until after its time limit"),
        (
            {"deadline_at": NOON + timedelta(seconds=20)},
            {},
            "the pause would last until after its deadline",
        ),
        ({}, {"started_at": None}, "its command was not started"),
        ({}, {"reason": Reason.JOB_REFUSED}, "not after job_refused"),
        ({}, {"reason": Reason.LEASE_EXPIRED_MAX_ATTEMPTS}, "it was lost too often"),
    ],
)
def test_a_failure_that_was_not_tried_again_says_why(
    stated: dict[str, object], changes: dict[str, object], why: str
) -> None:
    record = job(retries=1, retry_delay_seconds=30, **stated)
    final = moves.retried(record, failure(**changes), jitter=0)  # type: ignore[arg-type]
    assert moves.why_not_retried(moves.ended(record, final)) == why


def test_what_has_used_its_tries_needs_no_other_reason() -> None:
    last = job(retries=1).evolve(auto_retries_used=1)
    assert moves.why_not_retried(moves.ended(last, failure())) is None
    assert moves.why_not_retried(moves.ended(job(), failure())) is None
