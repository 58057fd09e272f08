"""Schedules: each due time is submitted once, or it is said why not, whoever is at it and whoever
dies over it."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from stado.core import keys, schedules
from stado.core.records import SnapshotRecord, SnapshotState
from stado.core.schedules import DropReason, MissedPolicy, OverlapPolicy, Schedule
from stado.core.spec import Snapshot, Spec, Step, make_request
from stado.core.states import Reason, State, Verdict
from stado.errors import Conflict, Exists, NotFound, Refused, StadoError, Unavailable
from stado.jobs import snapshots
from stado.jobs.changes import pause as pause_job
from stado.jobs.deletion import delete
from stado.jobs.firing import Firing
from stado.jobs.schedules import (
    create,
    find_schedule,
    history,
    list_schedules,
    pause,
    remove,
    resume,
    run_now,
    schedule_named,
)
from stado.jobs.submit import submit
from stado.jobs.upkeep import Passes
from stado.storage.observe import CountingStore, Operation, Requests
from stado.storage.port import Store
from tests.jobs.actors import Actor, Crash, GuardedStore, mortal
from tests.jobs.fakes import START
from tests.jobs.world import BOB, LEASE, TICK, World, give_back

MINUTE = timedelta(minutes=1)
_PLAIN = Spec(command="")


def made(
    world: World,
    name: str = "nightly",
    *,
    spec: Spec = _PLAIN,
    commands: Sequence[str] = ("run",),
    **stated: Any,
) -> Schedule:
    """Due each minute, where nothing else is stated."""
    request = make_request(list(commands), spec, batch=len(commands) > 1)
    fields = {"cron": "* * * * *", "created_by": "ada", **stated}
    now = world.clock.now()
    schedule = Schedule(
        name=name,
        nonce="0",
        request=request,
        created_at=now,
        changed_at=now,
        changed_by="",
        **fields,
    )
    return create(world.repo, schedule).schedule


def fire(world: World, store: Store | None = None, by: str = "coordinator") -> None:
    """As a coordinator does that has just begun."""
    Firing(world.repo_over(store or world.store), by=by).turn()


def run_ids(world: World, name: str = "nightly") -> list[str]:
    return [keys.run_of_key(key) for key in world.names(keys.runs_of_schedule(name))]


def run_id(minute: int, name: str = "nightly") -> str:
    return schedules.fire_run_id(name, START + minute * MINUTE)


def job_of(world: World, run: str) -> str:
    stored = world.repo.find_run(run)
    assert stored is not None
    return stored.value.base_id


def to_minute(world: World, minute: float) -> None:
    world.clock.sleep((START + minute * MINUTE - world.clock.now()).total_seconds())


def tell(caplog: pytest.LogCaptureFixture, name: str = "nightly") -> list[str]:
    return [text for text in caplog.messages if text.startswith(f"schedule {name}: ")]


# --- once ---------------------------------------------------------------------------------


def test_a_due_time_is_submitted_with_all_that_was_asked_for() -> None:
    """R208, R212: the request that was stated, as a fresh job of who declared the schedule."""
    world = World()
    asked = Spec(command="", priority=7, cpu=2, environment={"A": "b"}, secrets={"T": "item#field"})
    made(world, spec=asked)
    fire(world)
    assert run_ids(world) == []
    to_minute(world, 1)
    fire(world)
    assert run_ids(world) == [run_id(1)]
    record = world.record(State.QUEUED, job_of(world, run_id(1)))
    assert record.spec == asked.evolve(command="run")
    assert (record.submitter, record.priority) == ("ada", 7)


def test_schedules_are_looked_at_in_each_tick() -> None:
    """R213: of a coordinator, and of an agent where there is none."""
    world = World()
    made(world)
    passes = Passes(world.repo, by="coordinator")
    for _ in range(8):
        assert passes.tick()["fire"]
        world.clock.sleep(TICK)
    assert run_ids(world) == [run_id(1)]  # the next is skipped while that one is queued


def test_three_coordinators_submit_each_due_time_once() -> None:
    """R213, A87: a hundred ticks, all of them at each."""
    world = World()
    made(world, overlap=OverlapPolicy.ALLOW)
    passes = [Firing(world.repo, by=f"coordinator-{number}") for number in range(3)]
    for _ in range(100):
        for each in passes:
            each.turn()
        world.clock.sleep(TICK)
    assert run_ids(world) == [run_id(minute) for minute in range(1, 25)]
    jobs = Counter(world.record(State.QUEUED, job_of(world, run)).run_id for run in run_ids(world))
    assert jobs == dict.fromkeys(run_ids(world), 1)
    assert len(world.names(keys.prefix(State.QUEUED))) == 24


@pytest.mark.parametrize("applied", [False, True])
def test_a_coordinator_that_dies_at_any_request_costs_no_due_time_and_makes_none_twice(
    applied: bool,
) -> None:
    """A87: two others are at it with it; each due time is one job."""
    for number in count():
        world = World()
        made(world, overlap=OverlapPolicy.ALLOW)
        store = mortal(world.store, at=number, applied=applied)
        mortals = Firing(world.repo_over(store), by="dies")
        others = [Firing(world.repo, by=f"coordinator-{one}") for one in range(2)]
        died = False
        for _ in range(20):
            if not died:
                try:
                    mortals.turn()
                except Crash:
                    died = True
            for each in others:
                each.turn()
            world.clock.sleep(TICK)
        due = [run_id(minute) for minute in range(1, 5)]
        assert run_ids(world) == due, number
        assert (
            sorted(
                world.record(State.QUEUED, keys.job_of_record(key)).run_id
                for key in world.names(keys.prefix(State.QUEUED))
            )
            == due
        ), number
        assert find_schedule(world.repo, "nightly").firing is None
        if not died:
            assert number > 20
            return


@pytest.mark.parametrize("steps", range(12))
def test_of_two_that_act_at_once_one_decides(steps: int) -> None:
    """A87: one stops after each of its requests, and goes on when the other has fired and time
    has passed."""
    world = World()
    made(world)
    to_minute(world, 1)
    slow = Actor(world.store, lambda store: fire(world, store, by="slow"))
    slow.step(steps)
    fire(world)
    if steps % 2:
        to_minute(world, 2)
        fire(world)
    slow.finish()
    assert slow.error is None
    assert run_ids(world) == [run_id(1)]
    assert find_schedule(world.repo, "nightly").firing is None


def test_a_run_id_of_a_schedule_is_nobody_elses() -> None:
    world = World()
    for name in (run_id(1), f"{run_id(1)}-abcdef", "nightly@definition-1767225600000000"):
        with pytest.raises(Refused, match="a schedule's submissions are named so") as refused:
            submit(
                world.repo,
                run_id=name,
                request=make_request(["x"], Spec(command=""), batch=False),
                submitter="eve",
            )
        assert refused.value.code == "run_id_reserved"


# --- overlap ------------------------------------------------------------------------------


def test_skip_does_not_fire_while_the_job_before_is_queued_running_or_paused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R218, R219, A88: each skipped tick says what that job is doing."""
    caplog.set_level(logging.INFO)
    world = World()
    made(world)
    to_minute(world, 1)
    fire(world)
    job = job_of(world, run_id(1))
    to_minute(world, 2)
    fire(world)
    claimed = world.start()
    to_minute(world, 3)
    fire(world)
    pause_job(world.repo, job, by="ada")
    world.end(claimed, Verdict.PAUSED)
    to_minute(world, 4)
    fire(world)
    assert run_ids(world) == [run_id(1)]
    begin = f"schedule nightly: skip fire: prior job {job} is still"
    started = "started 2026-01-01T00:02:00Z (60 s ago)"
    assert tell(caplog) == [
        f"{begin} queued, since 2026-01-01T00:01:00Z (60 s ago)",
        f"{begin} running, {started}, worker lease until 2026-01-01T00:04:00Z, on alice",
        f"{begin} paused",
    ]
    dropped = find_schedule(world.repo, "nightly").dropped
    assert dropped is not None
    assert (dropped.due_at, dropped.reason) == (START + 4 * MINUTE, DropReason.OVERLAP)
    assert dropped.job_id == job


def test_a_skipped_tick_says_that_a_reaper_has_put_the_job_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """R219: with how often, and that it has not started again yet."""
    caplog.set_level(logging.INFO)
    world = World()
    made(world)
    to_minute(world, 1)
    fire(world)
    job = job_of(world, run_id(1))
    world.start()
    give_back(world, job)
    to_minute(world, 2)
    fire(world)
    assert world.claim(BOB) is not None
    to_minute(world, 3)
    fire(world)
    queued, running = tell(caplog)
    assert queued.endswith(", put back after: worker lease expired (restarts 1)")
    assert running == (
        f"schedule nightly: skip fire: prior job {job} is still running, not started yet, "
        "worker lease until 2026-01-01T00:04:00Z, on bob, "
        "put back after: worker lease expired (restarts 1)"
    )


def test_skip_fires_again_once_the_job_has_ended_or_is_deleted() -> None:
    """R218: however it ended."""
    world = World()
    made(world)
    for minute, verdict in enumerate((Verdict.COMPLETED, Verdict.FAILED, Verdict.CANCELLED), 1):
        to_minute(world, minute)
        fire(world)
        world.end(world.start(), verdict)
    delete(world.repo, job_of(world, run_id(3)), by="ada")
    to_minute(world, 4)
    fire(world)
    assert run_ids(world) == [run_id(minute) for minute in range(1, 5)]


def test_queue_lets_one_wait_at_most() -> None:
    """A88: the first one; it is submitted once the job before has ended."""
    world = World()
    made(world, overlap=OverlapPolicy.QUEUE)
    to_minute(world, 1)
    fire(world)
    claimed = world.start()
    for minute in (2, 3, 4):
        to_minute(world, minute)
        fire(world)
    schedule = find_schedule(world.repo, "nightly")
    assert schedule.waiting_at == START + 2 * MINUTE
    assert schedule.dropped is not None
    assert schedule.dropped.due_at == START + 4 * MINUTE
    world.end(claimed)
    fire(world)
    assert run_ids(world) == [run_id(1), run_id(2)]
    assert find_schedule(world.repo, "nightly").waiting_at is None


@pytest.mark.parametrize("policy", [OverlapPolicy.QUEUE, OverlapPolicy.REPLACE])
def test_what_waits_is_not_lost_when_the_next_is_due(
    policy: OverlapPolicy, caplog: pytest.LogCaptureFixture
) -> None:
    """A88: the job before has ended by then; what waits goes first, or gives way and says so."""
    caplog.set_level(logging.INFO)
    world = World()
    made(world, overlap=policy)
    to_minute(world, 1)
    fire(world)
    claimed = world.start()
    to_minute(world, 2)
    fire(world)
    assert find_schedule(world.repo, "nightly").waiting_at == START + 2 * MINUTE
    world.end(claimed)
    to_minute(world, 3)
    fire(world)
    schedule = find_schedule(world.repo, "nightly")
    gave_way = "schedule nightly: skip fire: the one due 2026-01-01T00:02:00Z gave way"
    if policy is OverlapPolicy.QUEUE:
        assert run_ids(world) == [run_id(1), run_id(2)]
        assert schedule.waiting_at == START + 3 * MINUTE
        assert schedule.dropped is None
        assert gave_way not in tell(caplog)
    else:
        assert run_ids(world) == [run_id(1), run_id(3)]
        assert schedule.waiting_at is None
        assert schedule.dropped is not None
        assert schedule.dropped.due_at == START + 2 * MINUTE
        assert gave_way in tell(caplog)


def test_what_waits_comes_before_what_was_missed() -> None:
    """A88: a coordinator that was away for a while finds both."""
    world = World()
    made(world, overlap=OverlapPolicy.QUEUE)
    to_minute(world, 1)
    fire(world)
    claimed = world.start()
    to_minute(world, 2)
    fire(world)
    world.end(claimed)
    to_minute(world, 60)
    fire(world)
    assert run_ids(world) == [run_id(1), run_id(2)]
    schedule = find_schedule(world.repo, "nightly")
    assert schedule.waiting_at == START + 60 * MINUTE
    assert schedule.dropped is not None
    assert (schedule.dropped.reason, schedule.dropped.count) == (DropReason.MISSED, 57)


def test_replace_cancels_the_job_before_and_fires_when_it_has_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A88: with the reason, so that two never run at once."""
    caplog.set_level(logging.INFO)
    world = World()
    made(world, overlap=OverlapPolicy.REPLACE)
    to_minute(world, 1)
    fire(world)
    first = job_of(world, run_id(1))
    claimed = world.start()
    to_minute(world, 2)
    fire(world)
    asked = world.repo.find_asks(first, 1)
    assert asked is not None
    assert asked.value.cancel
    assert asked.value.cancel_by == "schedule nightly"
    assert asked.value.cancel_note == (
        "replaced by what schedule nightly submits for 2026-01-01T00:02:00Z"
    )
    assert run_ids(world) == [run_id(1)]
    to_minute(world, 3)
    fire(world)
    world.end(claimed, Verdict.CANCELLED)
    fire(world)
    assert run_ids(world) == [run_id(1), run_id(3)]
    assert any(
        "skip fire: the one due 2026-01-01T00:02:00Z gave way" in one for one in tell(caplog)
    )


def test_replace_of_a_queued_job_takes_one_turn() -> None:
    world = World()
    made(world, overlap=OverlapPolicy.REPLACE)
    for minute in (1, 2):
        to_minute(world, minute)
        fire(world)
    assert run_ids(world) == [run_id(1), run_id(2)]
    first = world.find(job_of(world, run_id(1))).record
    assert (first.state, first.ending and first.ending.reason) == (
        State.CANCELLED,
        Reason.CANCELLED_BY_USER,
    )


def test_allow_looks_at_nothing() -> None:
    """A88: both run."""
    world = World()
    made(world, overlap=OverlapPolicy.ALLOW)
    for minute in (1, 2):
        to_minute(world, minute)
        fire(world)
    assert len(world.names(keys.prefix(State.QUEUED))) == 2


def test_a_submission_has_ended_when_its_steps_have() -> None:
    """R218: a step that is live is a job of the submission before."""
    world = World()
    made(world, spec=Spec(command="", then=[Step(name="eval", command="./eval")]))
    ends_with(world)


def test_a_submission_has_ended_when_all_its_jobs_have() -> None:
    """R218: of a batch."""
    world = World()
    made(world, commands=["a", "b"])
    ends_with(world)


def ends_with(world: World) -> None:
    """Its second job."""
    to_minute(world, 1)
    fire(world)
    world.end(world.start())
    to_minute(world, 2)
    fire(world)
    assert run_ids(world) == [run_id(1)]
    world.end(world.start())
    to_minute(world, 3)
    fire(world)
    assert run_ids(world) == [run_id(1), run_id(3)]


def test_a_job_that_cannot_be_read_is_not_taken_for_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    made(world)
    to_minute(world, 1)
    fire(world)
    job = job_of(world, run_id(1))
    world.store.put(keys.record(State.QUEUED, job), b"{")
    to_minute(world, 2)
    fire(world)
    assert run_ids(world) == [run_id(1)]
    assert tell(caplog) == [f"schedule nightly: skip fire: prior job {job} cannot be read"]


# --- missed -------------------------------------------------------------------------------


def test_after_a_month_the_latest_fires_alone_or_none(caplog: pytest.LogCaptureFixture) -> None:
    """Never thousands, and in no time."""
    world = World()
    made(world, "late", overlap=OverlapPolicy.ALLOW)
    made(world, "lazy", overlap=OverlapPolicy.ALLOW, missed=MissedPolicy.SKIP)
    to_minute(world, 30 * 24 * 60 + 0.5)
    counting = CountingStore(world.store, world.tasks)
    fire(world, counting)
    month = 30 * 24 * 60
    assert run_ids(world, "late") == [run_id(month, "late")]
    assert run_ids(world, "lazy") == []
    assert counting.snapshot().of() < 30
    missed = [one for one in caplog.messages if one.startswith("event=schedule_missed")]
    assert missed == [
        "event=schedule_missed schedule=late last_due=2026-01-30T23:59:00Z count=1,000 or more",
        "event=schedule_missed schedule=lazy last_due=2026-01-31T00:00:00Z count=1,000 or more",
    ]
    to_minute(world, month + 1)
    fire(world)
    assert run_ids(world, "lazy") == [run_id(month + 1, "lazy")]
    assert run_ids(world, "late") == [run_id(month, "late"), run_id(month + 1, "late")]


def test_what_is_late_by_less_than_two_leases_is_submitted_one_by_one() -> None:
    """Another coordinator takes over within a lease: nothing is lost by that."""
    world = World()
    made(world, overlap=OverlapPolicy.ALLOW)
    to_minute(world, 3.5)
    assert 2 * LEASE > 2.5 * 60
    fire(world)
    assert run_ids(world) == [run_id(1), run_id(2), run_id(3)]


def test_nothing_is_due_before_the_start_and_after_the_end() -> None:
    world = World()
    begin, end = START + 3 * MINUTE, START + 4 * MINUTE
    made(world, overlap=OverlapPolicy.ALLOW, start_at=begin, end_at=end)
    for minute in range(8):
        to_minute(world, minute)
        fire(world)
    assert run_ids(world) == [run_id(3), run_id(4)]
    assert find_schedule(world.repo, "nightly").next_at is None
    with pytest.raises(Refused, match="would never be due") as refused:
        made(world, "never", end_at=START + 5 * MINUTE)
    assert refused.value.code == "schedule_never"


def test_a_coordinator_that_comes_after_the_end_still_submits_the_latest() -> None:
    world = World()
    made(world, end_at=START + 4 * MINUTE)
    to_minute(world, 1000)
    fire(world)
    assert run_ids(world) == [run_id(4)]


# --- people -------------------------------------------------------------------------------


def test_a_paused_schedule_submits_nothing_and_catches_nothing_up() -> None:
    """R214, R222: after a resume the next due time is the first from then on."""
    world = World()
    made(world)
    schedule, now = pause(world.repo, "nightly", by="bob")
    assert now
    assert schedule.paused is not None
    assert schedule.paused.by == "bob"
    assert pause(world.repo, "nightly", by="eve") == (schedule, False)
    to_minute(world, 10.5)
    fire(world)
    schedule, now = resume(world.repo, "nightly", by="bob")
    assert (now, schedule.next_at) == (True, START + 11 * MINUTE)
    assert resume(world.repo, "nightly", by="eve")[1] is False
    fire(world)
    assert run_ids(world) == []
    to_minute(world, 11)
    fire(world)
    assert run_ids(world) == [run_id(11)]


def test_a_pause_forgets_what_waits() -> None:
    world = World()
    made(world, overlap=OverlapPolicy.QUEUE)
    for minute in (1, 2):
        to_minute(world, minute)
        fire(world)
    pause(world.repo, "nightly", by="bob")
    resume(world.repo, "nightly", by="bob")
    world.end(world.start())
    fire(world)
    assert run_ids(world) == [run_id(1)]


def test_run_submits_once_whatever_is_due_live_or_paused() -> None:
    """R221: the next due time stays where it is, and looks at that submission too."""
    world = World()
    before = made(world)
    pause(world.repo, "nightly", by="bob")
    schedule, asked = run_now(world.repo, "nightly", by="bob")
    assert schedule.next_at == before.next_at
    assert schedule.paused is not None
    assert asked.run_id.startswith("nightly@20260101T000000Z-")
    assert (asked.due_at, asked.by) == (None, "bob")
    run_now(world.repo, "nightly", by="bob")
    assert len(run_ids(world)) == 2
    assert len(world.names(keys.prefix(State.QUEUED))) == 2
    assert world.record(State.QUEUED, job_of(world, asked.run_id)).submitter == "ada"
    resume(world.repo, "nightly", by="bob")
    to_minute(world, 1)
    fire(world)
    assert len(run_ids(world)) == 2


def test_an_earlier_job_that_is_live_counts_though_another_was_submitted_since() -> None:
    """R218: one that somebody asked for has ended, and one that was due before it has not."""
    world = World()
    made(world)
    to_minute(world, 1)
    fire(world)
    first = world.start()
    run_now(world.repo, "nightly", by="bob")
    world.end(world.start())
    to_minute(world, 2)
    fire(world)
    assert len(run_ids(world)) == 2
    world.end(first)
    to_minute(world, 3)
    fire(world)
    assert run_id(3) in run_ids(world)


def test_rm_leaves_the_jobs_alone() -> None:
    """R220: with what they take along."""
    world = World()
    digest = kept_snapshot(world)
    spec = Spec(command="", snapshot=Snapshot(digest=digest, files=1, bytes=1))
    made(world, spec=spec)
    to_minute(world, 1)
    fire(world)
    job = job_of(world, run_id(1))
    remove(world.repo, "nightly", by="bob")
    to_minute(world, 2)
    fire(world)
    assert run_ids(world) == [run_id(1)]
    assert world.states(job) == {State.QUEUED}
    assert snapshots.may_be_used(world.repo, digest)
    with pytest.raises(NotFound):
        remove(world.repo, "nightly", by="bob")


def kept_snapshot(world: World) -> str:
    digest = "ab" * 32
    record = SnapshotRecord(
        digest=digest,
        state=SnapshotState.WHOLE,
        nonce="a",
        archive="a",
        archive_bytes=1,
        archive_sha256="cd" * 32,
        files=1,
        bytes=1,
        at=world.clock.now(),
    )
    world.store.create(keys.snapshot(digest), record.encode())
    world.store.put(keys.snapshot_archive(digest, "a"), b"x")
    return digest


def test_a_schedule_keeps_the_files_that_its_jobs_take_along() -> None:
    """Before the first job, and after the last one was deleted; a removal lets them go."""
    world = World()
    digest = kept_snapshot(world)
    made(world, spec=Spec(command="", snapshot=Snapshot(digest=digest, files=1, bytes=1)))
    to_minute(world, 1)
    fire(world)
    world.end(world.start())
    delete(world.repo, job_of(world, run_id(1)), by="ada")
    assert snapshots.may_be_used(world.repo, digest)
    remove(world.repo, "nightly", by="bob")
    assert not snapshots.may_be_used(world.repo, digest)


@pytest.mark.parametrize("steps", range(14))
def test_a_removal_takes_no_files_from_the_next_of_the_name(steps: int) -> None:
    """At whatever request of the removal the same schedule is made anew."""
    world = World()
    digest = kept_snapshot(world)
    spec = Spec(command="", snapshot=Snapshot(digest=digest, files=1, bytes=1))
    made(world, spec=spec)
    world.clock.sleep(1)
    slow = Actor(world.store, lambda store: remove(world.repo_over(store), "nightly", by="bob"))
    slow.step(steps)
    is_anew = not list_schedules(world.repo, limit=1).rows
    if is_anew:
        with contextlib.suppress(Refused):  # once the files are gone
            made(world, spec=spec)
    slow.finish()
    assert slow.error is None
    there = list_schedules(world.repo, limit=1).rows
    assert snapshots.may_be_used(world.repo, digest) is bool(there)
    assert snapshots.is_named(world.repo, digest) or not there


def test_of_two_that_make_it_at_once_the_loser_leaves_no_reference() -> None:
    world = World()
    digest = kept_snapshot(world)
    spec = Spec(command="", snapshot=Snapshot(digest=digest, files=1, bytes=1))
    definition = made(world, "other", spec=spec).evolve(name="nightly")
    slow = Actor(world.store, lambda store: create(world.repo_over(store), definition))
    while slow.pending_key != keys.schedule("nightly") or slow.pending is not Operation.CREATE:
        assert slow.step()
    world.clock.sleep(1)
    made(world, spec=spec)
    slow.finish()
    assert slow.error is None
    assert len(world.names(keys.snapshot_references(digest))) == 2


def test_a_removed_schedule_does_not_come_back_by_a_create_that_was_long_on_its_way() -> None:
    """R220: its document stays for a day; its name can be used again at once."""
    world = World()
    late = made(world)
    remove(world.repo, "nightly", by="bob")
    with pytest.raises(Exists):
        world.store.create(late.own_key(), late.encode())
    firing = Firing(world.repo, by="coordinator")
    for _ in range(3):
        world.clock.sleep(60)
        firing.turn()
    assert run_ids(world) == []
    world.clock.sleep(24 * 3600)
    firing.turn()
    assert world.names(keys.SCHEDULES) == []
    made(world)
    remove(world.repo, "nightly", by="bob")
    assert made(world, cron="@daily").next_at is not None
    assert [row.name for row in list_schedules(world.repo, limit=1).rows] == ["nightly"]


def test_a_list_passes_over_what_was_removed() -> None:
    world = World()
    for number in range(6):
        made(world, f"s{number}")
        if number in (0, 1, 3):
            remove(world.repo, f"s{number}", by="bob")
    found = list_schedules(world.repo, limit=2)
    assert ([row.name for row in found.rows], found.more) == (["s2", "s4"], True)
    found = list_schedules(world.repo, limit=2, after="s4")
    assert ([row.name for row in found.rows], found.more) == (["s5"], False)


CHANGES: dict[str, Callable[[World], object]] = {
    "pause": lambda world: pause(world.repo, "nightly", by="bob"),
    "remove": lambda world: remove(world.repo, "nightly", by="bob"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("steps", range(14))
def test_once_a_pause_or_a_removal_is_acknowledged_no_job_appears(change: str, steps: int) -> None:
    """R214: at whatever request of a firing it comes; and a pause made during one stays."""
    world = World()
    made(world)
    to_minute(world, 1)
    slow = Actor(world.store, lambda store: fire(world, store, by="slow"))
    slow.step(steps)
    CHANGES[change](world)
    there = run_ids(world), world.names(keys.prefix(State.QUEUED))
    slow.finish()
    assert slow.error is None
    assert (run_ids(world), world.names(keys.prefix(State.QUEUED))) == there
    to_minute(world, 2)
    fire(world)
    assert run_ids(world) == there[0]
    if change == "pause":
        schedule = find_schedule(world.repo, "nightly")
        assert schedule.paused is not None
        assert schedule.firing is None


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("change", ["pause", "resume", "run", "remove"])
def test_who_changes_a_schedule_may_die_at_any_request(change: str, applied: bool) -> None:
    """R214: the same again, and the next tick, bring it to its end."""
    moves: dict[str, Callable[[World, Store], object]] = {
        "pause": lambda world, store: pause(world.repo_over(store), "nightly", by="bob"),
        "resume": lambda world, store: resume(world.repo_over(store), "nightly", by="bob"),
        "run": lambda world, store: run_now(world.repo_over(store), "nightly", by="bob"),
        "remove": lambda world, store: remove(world.repo_over(store), "nightly", by="bob"),
    }
    for number in count():
        world = World()
        made(world)
        if change == "resume":
            pause(world.repo, "nightly", by="bob")
        died = False
        try:
            moves[change](world, mortal(world.store, at=number, applied=applied))
        except Crash:
            died = True
        if died and change != "run":
            with contextlib.suppress(NotFound):
                moves[change](world, world.store)
        fire(world)
        if change == "remove":
            assert list_schedules(world.repo, limit=9).rows == []
        else:
            schedule = find_schedule(world.repo, "nightly")
            assert schedule.firing is None
            assert (schedule.paused is not None) is (change == "pause")
        assert len(world.names(keys.prefix(State.QUEUED))) == len(run_ids(world))
        assert len(run_ids(world)) == 1 if change == "run" and not died else len(run_ids(world)) < 2
        if not died:
            return


def test_a_submission_that_cannot_be_is_told_and_the_next_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    digest = kept_snapshot(world)
    made(world, spec=Spec(command="", snapshot=Snapshot(digest=digest, files=1, bytes=1)))
    for key in world.names(keys.snapshot_references(digest)):
        world.store.delete(key, None)
    snapshots.remove_unnamed(world.repo, digest)
    to_minute(world, 1)
    fire(world)
    schedule = find_schedule(world.repo, "nightly")
    assert schedule.firing is None
    assert schedule.next_at == START + 2 * MINUTE
    assert schedule.dropped is not None
    assert schedule.dropped.reason is DropReason.REFUSED
    assert "is not in the store any more" in (schedule.dropped.detail or "")
    assert any("event=schedule_not_fired" in one for one in caplog.messages)
    with pytest.raises(Refused, match="not in the store any more"):
        run_now(world.repo, "nightly", by="bob")


def test_the_same_schedule_again_is_the_one_that_is_there() -> None:
    """R214: another one of its name is refused, with what differs."""
    world = World()
    first = made(world)
    to_minute(world, 5)
    assert made(world) == first
    with pytest.raises(Refused, match=r"cron: '\* \* \* \* \*' is there, now '@daily'") as refused:
        made(world, cron="@daily")
    assert refused.value.code == "schedule_exists"
    with pytest.raises(Refused, match="command: 'run' was submitted, now 'other'"):
        made(world, commands=["other"])
    with pytest.raises(Refused, match="1 to 64 letters") as refused:
        made(world, "a@b")
    assert refused.value.code == "schedule_name_invalid"
    with pytest.raises(Refused, match="put them into a script") as refused:
        made(world, "large", commands=["x" * 130_000] * 9)
    assert refused.value.code == "schedule_too_large"


@pytest.mark.parametrize(
    "zone", ["Mars/Olympus", "europe/berlin", "posix/UTC", "localtime", "../etc"]
)
def test_a_zone_that_there_is_not_is_refused(zone: str) -> None:
    with pytest.raises(StadoError, match="IANA names are taken") as refused:
        made(World(), zone=zone)
    assert isinstance(refused.value, Refused)
    assert refused.value.code == "zone_unknown"
    if zone == "europe/berlin":
        assert "did you mean Europe/Berlin" in refused.value.text


def test_a_schedule_is_named_by_the_beginning_of_its_name() -> None:
    world = World()
    made(world, "nightly-a")
    made(world, "nightly-b")
    made(world, "hourly")
    made(world, "hourly.old")
    assert schedule_named(world.repo, "hourly") == "hourly"
    assert schedule_named(world.repo, "nightly-a") == "nightly-a"
    assert schedule_named(world.repo, "hourly.") == "hourly.old"
    with pytest.raises(Refused, match="several schedules begin with 'night'"):
        schedule_named(world.repo, "night")
    for text in ("weekly", "", "a/b"):
        with pytest.raises(Refused, match="there is no schedule"):
            schedule_named(world.repo, text)


# --- what it costs ------------------------------------------------------------------------


def requests_of(world: World, work: Callable[[Store], object]) -> Requests:
    counting = CountingStore(world.store, world.tasks)
    work(counting)
    return counting.snapshot()


def test_a_list_costs_by_schedules_and_not_by_what_they_have_submitted() -> None:
    """R214: two hundred submissions later it takes the same requests."""
    world = World()
    made(world)
    made(world, "other", overlap=OverlapPolicy.ALLOW)
    costs = []
    for minute in (1, 101):
        to_minute(world, minute)
        fire(world)
        asked = requests_of(world, lambda store: list_schedules(world.repo_over(store), limit=50))
        costs.append(asked.counts)
        for later in range(minute + 1, minute + 100):
            to_minute(world, later)
            fire(world)
            while (claimed := world.claim()) is not None:
                world.end(claimed)
    assert len(run_ids(world)) > 100
    assert costs[0] == costs[1]
    rows = list_schedules(world.repo, limit=50).rows
    assert [row.name for row in rows] == ["nightly", "other"]
    assert list_schedules(world.repo, limit=1).more


def test_an_idle_tick_reads_no_schedule_that_has_not_changed() -> None:
    """Of thousands: one listing a thousand."""
    world = World()
    for number in range(40):
        made(world, f"yearly-{number:02d}", cron="@yearly")
    counting = CountingStore(world.store, world.tasks)
    firing = Firing(world.repo_over(counting), by="coordinator")
    firing.turn()
    assert counting.snapshot().of(Operation.GET) == 40
    pause(world.repo, "yearly-07", by="bob")
    firing.turn()
    assert counting.snapshot().of(Operation.GET) == 41
    for _ in range(5):
        firing.turn()
    assert counting.snapshot().of() == 41 + 7


def test_what_is_due_is_submitted_within_a_second() -> None:
    """A coordinator ticks at the next due time that it knows of, however slow its pace is."""
    world = World()
    made(world)
    passes = Passes(world.repo, by="coordinator")
    passes.tick()
    assert passes.next_seconds == 60
    world.clock.sleep(59.9)
    assert passes.next_seconds == 1
    world.clock.sleep(0.2)
    passes.tick()
    assert run_ids(world) == [run_id(1)]
    assert passes.next_seconds == pytest.approx(59.9)
    pause(world.repo, "nightly", by="bob")
    passes.tick()
    assert passes.next_seconds > 1000


def test_a_turn_that_has_little_time_goes_on_where_it_stopped() -> None:
    """Nothing keeps those behind it: neither what waits for a live job, nor what is due again."""
    world = World()
    for number in range(40):
        policy = OverlapPolicy.QUEUE if number < 20 else OverlapPolicy.SKIP
        made(world, f"each-{number:02d}", overlap=policy)
    to_minute(world, 1)
    firing = Firing(world.repo, by="coordinator", turn_seconds=0.0)
    firing.turn()
    assert 0 < len(world.names(keys.RUNS)) < 40
    for _ in range(39):
        firing.turn()
    assert len(world.names(keys.RUNS)) == 40
    to_minute(world, 2)  # twenty wait from here on, in each turn
    for _ in range(60):
        firing.turn()
    while (claimed := world.claim()) is not None:
        world.end(claimed)
    to_minute(world, 3)
    for _ in range(40):
        firing.turn()
    for number in range(20, 40):
        name = f"each-{number:02d}"
        assert run_id(3, name) in run_ids(world, name)


def test_a_turn_looks_at_the_clock_between_schedules() -> None:
    """What takes two seconds a schedule ends with the one that was begun when time was up."""
    world = World()
    for number in range(16):
        made(world, f"each-{number:02d}", overlap=OverlapPolicy.QUEUE)
    to_minute(world, 1)
    fire(world)
    to_minute(world, 2)

    def slowly(operation: Operation, key: str) -> None:
        if operation is Operation.REPLACE and key.startswith(keys.SCHEDULES):
            world.clock.sleep(2.0)

    slow = GuardedStore(world.store, before=slowly)
    began = world.clock.monotonic()
    Firing(world.repo_over(slow), by="coordinator", turn_seconds=15.0).turn()
    assert 15 <= world.clock.monotonic() - began <= 17
    waiting = [
        row.name
        for row in list_schedules(world.repo, limit=50).rows
        if row.schedule is not None and row.schedule.waiting_at is not None
    ]
    assert len(waiting) == 8


def test_what_fails_elsewhere_is_told_and_not_taken_for_somebody_else_at_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Only a change of the schedule's own document says that others are at it."""
    world = World()
    made(world)
    to_minute(world, 1)

    def failing(operation: Operation, key: str) -> None:
        if operation is Operation.CREATE and key.startswith(keys.RUNS):
            raise Conflict(key, "no")

    fire(world, GuardedStore(world.store, before=failing))
    assert any("event=schedule_failed schedule=nightly" in one for one in caplog.messages)
    fire(world)
    assert run_ids(world) == [run_id(1)]


def test_some_that_fail_do_not_keep_the_others_from_their_turn() -> None:
    """A turn that fails for several goes on behind them in the next."""
    world = World()
    for number in range(40):
        made(world, f"each-{number:02d}")
    to_minute(world, 1)
    bad = tuple(keys.run(run_id(1, f"each-{number:02d}")) for number in range(3))

    def failing(operation: Operation, key: str) -> None:
        if operation is Operation.CREATE and key in bad:
            raise Unavailable(key, "no")

    firing = Firing(world.repo_over(GuardedStore(world.store, before=failing)), by="coordinator")
    failed = 0
    for _ in range(4):
        try:
            firing.turn()
        except Unavailable:
            failed += 1
    assert failed
    assert len(world.names(keys.RUNS)) == 37


@pytest.mark.parametrize("year", [1, 1970, 1971, 2020, 9000, 9999])
@pytest.mark.parametrize("field", ["start_at", "end_at", "next_at", "waiting_at", "created_at"])
def test_no_instant_in_a_document_harms_who_reads_it(field: str, year: int) -> None:
    """Whoever can write there can write anything: it costs that schedule, and no other."""
    world = World()
    schedule = made(world, "a", cron="0 0 29 2 *")
    made(world, "b")
    instant = START.replace(year=year)
    world.store.put(keys.schedule("a"), schedule.evolve(**{field: instant}).encode())
    to_minute(world, 1)
    fire(world)
    assert run_ids(world, "b") == [run_id(1, "b")]
    rows = list_schedules(world.repo, limit=9).rows
    assert (rows[0].problem is not None) is (year in (1, 1970, 9999))
    if rows[0].schedule is not None:
        assert len(history(world.repo, rows[0].schedule, limit=5)) < 2
        resume(world.repo, "a", by="bob")
        pause(world.repo, "a", by="bob")
        resume(world.repo, "a", by="bob")


def test_one_that_cannot_be_read_costs_no_other_its_turn() -> None:
    world = World()
    made(world, "a")
    made(world, "b")
    made(world, "c", zone="Europe/Berlin")
    world.store.put(keys.schedule("a"), b"{")
    changed = find_schedule(world.repo, "c").evolve(zone="Mars/Olympus")
    world.store.put(keys.schedule("c"), changed.encode())
    fire(world)  # nothing is due
    to_minute(world, 1)
    with pytest.raises(Refused, match=r"schedule c is due: .* no time zone Mars/Olympus"):
        fire(world)
    assert run_ids(world, "b") == [run_id(1, "b")]
    assert run_ids(world, "c") == []
    rows = list_schedules(world.repo, limit=10).rows
    assert [row.problem is not None for row in rows] == [True, False, False]


def test_its_history_is_the_newest_first() -> None:
    """R214: with what each has come to; what is long ago is not listed."""
    world = World()
    schedule = made(world, cron="0 * * * *", overlap=OverlapPolicy.ALLOW)
    for hour in range(1, 80):
        to_minute(world, hour * 60)
        fire(world)
    world.end(world.start(), Verdict.FAILED)
    world.clock.sleep(1)
    run_now(world.repo, "nightly", by="bob")
    found = history(world.repo, schedule, limit=5)
    assert [one.was_due for one in found] == [False, True, True, True, True]
    assert found[1].at == START + timedelta(hours=79)
    assert list(found[1].states.values()) == [State.QUEUED]
    assert len(history(world.repo, schedule, limit=100)) == 80
    first = history(world.repo, schedule, limit=100)[-1]
    assert (first.at, list(first.states.values())) == (START + timedelta(hours=1), [State.FAILED])
