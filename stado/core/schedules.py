"""Schedules: what is submitted again and again, and when. Pure.

Each due time is one submission, whose run id follows from the schedule's name and the due time.
What is to be submitted is decided by one change of the schedule's document (`firing`), and brought
about afterwards by whoever meets it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from stado.core import ids, keys
from stado.core.cron import count_due, cron_flaw, due_after, latest_due
from stado.core.documents import Count, Document, Instant, Part
from stado.core.records import BaseId, Code, Line, Record, RunId
from stado.core.spec import JobId, Request
from stado.core.states import State
from stado.errors import Refused

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAME_FORM = "1 to 64 letters, digits and . _ -, a letter or digit first"

ZONE_DEFAULT = "UTC"
REQUEST_BYTES_MAX = 1024 * 1024
"""Of a schedule's commands: its document is written twice for each due time."""

FIRES_MAX = 20
"""Submissions that a schedule remembers, for their jobs may be live; of more the oldest go."""

REMOVED_KEPT = timedelta(days=1)
"""For so long after its removal the document of a schedule stays."""

FIRST_YEAR, LAST_YEAR = 1971, 9000
"""Of what a schedule names: there is room before and behind for what is worked out from it."""

COUNTED_MAX = 1000
"""Due times that were missed are counted up to here."""

LEASES_LATE = 2
"""What is later by so many leases was missed: another coordinator takes over sooner."""

_RUN_ID = re.compile(
    rf"({NAME_PATTERN.pattern})@(?:([0-9]{{8}}T[0-9]{{6}}Z)(-[a-z]{{6}})?|definition-[0-9]{{1,20}})"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RUN_TIME = "%Y%m%dT%H%M%SZ"

Name = Annotated[str, msgspec.Meta(pattern=rf"\A{NAME_PATTERN.pattern}\Z")]
CronText = Annotated[str, msgspec.Meta(max_length=200)]
ZoneName = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z][A-Za-z0-9_+/-]{0,63}\Z")]


class OverlapPolicy(StrEnum):
    """What becomes of a due time while jobs of an earlier one are live."""

    SKIP = "skip"
    """Nothing is submitted."""
    QUEUE = "queue"
    """It is submitted once they have ended; one waits at most."""
    REPLACE = "replace"
    """They are cancelled, and it is submitted once they have ended."""
    ALLOW = "allow"


class MissedPolicy(StrEnum):
    """What becomes of due times that nobody heeded for long."""

    LATEST = "latest"
    """The last of them is submitted."""
    SKIP = "skip"


class DropReason(StrEnum):
    """Why nothing was submitted for a due time."""

    OVERLAP = "overlap"
    MISSED = "missed"
    REFUSED = "refused"


class Fire(Part, frozen=True, kw_only=True):
    """A submission of a schedule."""

    run_id: RunId
    due_at: Instant | None = None
    """None: somebody asked for it."""
    at: Instant
    """When it was decided."""
    by: Line
    base_id: BaseId | None = None
    """None until it was submitted."""


class DroppedFire(Part, frozen=True, kw_only=True):
    """The last due times for which nothing was submitted."""

    due_at: Instant
    """The last of them."""
    count: Count = 1
    """1,000: so many or more."""
    reason: DropReason
    job_id: JobId | None = None
    """That was live."""
    detail: Line | None = None
    at: Instant


class ScheduleStop(Part, frozen=True, kw_only=True):
    """That somebody wants nothing submitted."""

    by: Line
    at: Instant


class Schedule(Document, frozen=True, kw_only=True):
    """`schedules/<name>.json`."""

    name: Name
    nonce: Code
    """New at each write."""
    cron: CronText
    zone: ZoneName = ZONE_DEFAULT
    overlap: OverlapPolicy = OverlapPolicy.SKIP
    missed: MissedPolicy = MissedPolicy.LATEST
    start_at: Instant | None = None
    end_at: Instant | None = None
    request: Request
    created_at: Instant
    created_by: str
    """Whose jobs they are."""
    changed_at: Instant
    changed_by: Line
    paused: ScheduleStop | None = None
    removed: ScheduleStop | None = None
    """It is no schedule any more. The document stays for a day, so that none that was written
    before and comes late brings it back."""
    next_at: Instant | None = None
    """The first due time about which nothing is decided; None: there is none."""
    waiting_at: Instant | None = None
    """A due time that waits until earlier jobs have ended."""
    firing: Fire | None = None
    """What is being submitted."""
    fires: Annotated[list[Fire], msgspec.Meta(max_length=FIRES_MAX)] = msgspec.field(
        default_factory=list
    )
    """The last that was submitted, and before it those whose jobs were live when one looked."""
    dropped: DroppedFire | None = None

    def own_key(self) -> str:
        return keys.schedule(self.name)

    def flaw(self) -> str | None:
        commands = len(self.request.commands)
        if not commands or (commands > 1 and not self.request.batch):
            return f"it has {commands} commands"
        if not all(FIRST_YEAR <= at.year <= LAST_YEAR for at in self._instants()):
            return f"it names an instant that is not in the years {FIRST_YEAR} to {LAST_YEAR}"
        flaw = cron_flaw(self.cron)
        return None if flaw is None else f"its cron expression cannot be used: {flaw}"

    def _instants(self) -> Iterator[datetime]:
        stated = (self.start_at, self.end_at, self.next_at, self.waiting_at, self.created_at)
        yield from (at for at in stated if at is not None)
        if self.removed is not None:
            yield self.removed.at

    @property
    def last(self) -> Fire | None:
        return self.fires[-1] if self.fires else None

    @property
    def snapshot_digest(self) -> str | None:
        snapshot = self.request.shared.snapshot
        return snapshot.digest if snapshot is not None else None

    def job_ids(self, fire: Fire) -> list[str]:
        """None as long as it was not submitted."""
        if fire.base_id is None:
            return []
        count = len(self.request.commands)
        return ids.job_ids(fire.base_id, count=count, batch=self.request.batch)

    def needs_a_look(self, now: datetime) -> bool:
        """Whether a coordinator has something to do here."""
        if self.removed is not None:
            return self.is_forgotten(now)
        if self.firing is not None:
            return True
        if self.paused is not None:
            return False
        return self.waiting_at is not None or (self.next_at is not None and self.next_at <= now)

    def is_forgotten(self, now: datetime) -> bool:
        """Whether the document of a schedule that was removed may go."""
        return self.removed is not None and now >= self.removed.at + REMOVED_KEPT


# --- names --------------------------------------------------------------------------------


def check_name(name: str) -> None:
    """Raises `Refused`."""
    if not NAME_PATTERN.fullmatch(name):
        raise Refused(
            "schedule_name_invalid", f"schedule name {name!r} cannot be used: {NAME_FORM}"
        )


def fire_run_id(name: str, due_at: datetime) -> str:
    """`nightly@20260329T013000Z`."""
    return f"{name}@{due_at.astimezone(UTC).strftime(_RUN_TIME)}"


def asked_run_id(name: str, at: datetime, letters: str) -> str:
    """Of a submission that somebody asked for; `letters`: six."""
    return f"{fire_run_id(name, at)}-{letters}"


def snapshot_holder(schedule: Schedule) -> str:
    """Under this name a schedule refers to the snapshot that its jobs take along; no run has it,
    and no other schedule of its name, so that who removes one takes nothing from the next. The
    digits: when it was made, in microseconds."""
    made_us = (schedule.created_at - _EPOCH) // timedelta(microseconds=1)
    return f"{schedule.name}@definition-{made_us}"


def parse_fire_run_id(run_id: str) -> tuple[str, datetime, bool] | None:
    """(schedule, its due time or when it was asked for, whether it was due) of a run that a
    schedule has submitted; None for any other."""
    match = _RUN_ID.fullmatch(run_id)
    if match is None or match[2] is None:
        return None
    try:
        at = datetime.strptime(match[2], _RUN_TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
    return match[1], at, match[3] is None


def schedule_of_run(run_id: str) -> str | None:
    """The name of the schedule that has submitted a run; None: none has."""
    parsed = parse_fire_run_id(run_id)
    return None if parsed is None else parsed[0]


def check_not_of_schedule(run_id: str) -> None:
    """Raises `Refused` (`run_id_reserved`)."""
    if _RUN_ID.fullmatch(run_id):
        raise Refused(
            "run_id_reserved",
            f"run id {run_id!r} cannot be used: a schedule's submissions are named so. "
            "Use another run id.",
        )


# --- what to do ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Due:
    """What a schedule whose `next_at` has come is to do."""

    at: datetime | None
    """The due time that is to be submitted; None: none is."""
    next_at: datetime | None
    """The first later one."""
    missed: DroppedFire | None
    """Those before it that were missed."""


def first_due(schedule: Schedule, zone: tzinfo, now: datetime) -> datetime | None:
    """The first due time that is later than `now`, not before the schedule's start and not after
    its end."""
    after = now
    if schedule.start_at is not None:  # its start can be due itself
        after = max(now, schedule.start_at - timedelta(microseconds=1))
    return _within(schedule, due_after(schedule.cron, zone, after))


def coming(schedule: Schedule, zone: tzinfo, now: datetime, *, count: int) -> list[datetime]:
    """The next due times: of one that is not paused from the first on about which nothing was
    decided yet."""
    due = schedule.next_at if schedule.paused is None else first_due(schedule, zone, now)
    found: list[datetime] = []
    while due is not None and len(found) < count:
        found.append(due)
        due = _within(schedule, due_after(schedule.cron, zone, due))
    return found


def due(schedule: Schedule, zone: tzinfo, now: datetime, *, late_seconds: float) -> Due | None:
    """None where nothing is due. `late_seconds`: what is later was missed."""
    first = schedule.next_at
    if first is None or first > now or schedule.paused is not None:
        return None
    if (now - first).total_seconds() <= late_seconds:
        return Due(first, _following(schedule, zone, first), None)
    since = first - timedelta(seconds=1)
    until = now if schedule.end_at is None else min(now, schedule.end_at)
    latest = latest_due(schedule.cron, zone, since=since, until=until) or first
    following = _following(schedule, zone, latest)
    if schedule.missed is MissedPolicy.SKIP:
        return Due(None, following, _missed(schedule, zone, since, latest, now))
    before = latest - timedelta(seconds=1)
    return Due(latest, following, _missed(schedule, zone, since, before, now))


def _missed(
    schedule: Schedule, zone: tzinfo, since: datetime, until: datetime, now: datetime
) -> DroppedFire | None:
    count = count_due(schedule.cron, zone, since=since, until=until, most=COUNTED_MAX)
    if not count:
        return None
    last = latest_due(schedule.cron, zone, since=since, until=until)
    return DroppedFire(due_at=last or until, count=count, reason=DropReason.MISSED, at=now)


def _following(schedule: Schedule, zone: tzinfo, at: datetime) -> datetime | None:
    return _within(schedule, due_after(schedule.cron, zone, at))


def _within(schedule: Schedule, due_at: datetime | None) -> datetime | None:
    if due_at is None or (schedule.end_at is not None and due_at > schedule.end_at):
        return None
    return due_at


def fired(schedule: Schedule, base_id: str) -> dict[str, Any]:
    """The fields that change once what was decided was submitted."""
    assert schedule.firing is not None
    fires = [*schedule.fires, schedule.firing.evolve(base_id=base_id)]
    if schedule.overlap is OverlapPolicy.ALLOW:
        fires = fires[-1:]
    return {"firing": None, "fires": fires[-FIRES_MAX:]}


def differences(old: Schedule, new: Schedule) -> list[str]:
    """What tells two definitions apart, one sentence each; of what they submit only that they
    differ there (`stado.core.spec.differing_fields` says more)."""
    names = ("cron", "zone", "overlap", "missed", "start_at", "end_at")
    return [
        f"{name}: {_said(getattr(old, name))} is there, now {_said(getattr(new, name))}"
        for name in names
        if getattr(old, name) != getattr(new, name)
    ]


def _said(value: object) -> str:
    if isinstance(value, datetime):
        return instant_words(value)
    return "nothing" if value is None else repr(str(value))


# --- words --------------------------------------------------------------------------------


def instant_words(instant: datetime) -> str:
    """`2026-03-29T01:30:00Z`: whole seconds, for logs."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class PriorJob:
    """A job of an earlier submission that is live."""

    job_id: str
    record: Record | None
    """None: it cannot be read."""
    started_at: datetime | None = None
    """Of the command of an epoch that runs."""
    lease_until: datetime | None = None
    """Before then nobody judges its worker dead; None: nobody has heard of it yet."""
    more: int = 0
    """Further jobs of that submission that are live."""


def prior_words(prior: PriorJob, now: datetime) -> str:
    """`prior job x is still running, started 2026-03-29T01:30:00Z (95 s ago), worker lease until
    2026-03-29T01:33:35Z, on local@lab-7`; then what put it back, and how many more there are."""
    record = prior.record
    if record is None:
        return f"prior job {prior.job_id} cannot be read"
    said = [f"prior job {record.id} is still {record.state.value}"]
    if record.state is State.RUNNING:
        said += _running_words(prior, record, now)
    elif record.state is State.QUEUED:
        since = datetime.fromtimestamp(record.queued_ms / 1000, tz=UTC)
        said.append(f"since {instant_words(since)} ({_age(since, now)} s ago)")
    if record.lease_losses:
        said.append(f"put back after: worker lease expired (restarts {record.lease_losses})")
    if prior.more:
        said.append(f"and {prior.more} more of its jobs are live")
    return ", ".join(said)


def _running_words(prior: PriorJob, record: Record, now: datetime) -> list[str]:
    started = prior.started_at
    said = ["not started yet"]
    if started is not None:
        said = [f"started {instant_words(started)} ({_age(started, now)} s ago)"]
    if prior.lease_until is not None:
        said.append(f"worker lease until {instant_words(prior.lease_until)}")
    if record.holder is not None:
        said.append(f"on {record.holder.consumer}")
    return said


def count_words(count: int) -> str:
    return f"{COUNTED_MAX:,} or more" if count >= COUNTED_MAX else str(count)


def _age(since: datetime, now: datetime) -> int:
    return max(0, int((now - since).total_seconds()))
