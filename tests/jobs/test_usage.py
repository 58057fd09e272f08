from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from stado.core import keys
from stado.core.ids import milliseconds
from stado.core.records import Ending, Phase, Ran
from stado.core.spec import Spec, Step
from stado.core.states import JobType, Reason, State, Verdict
from stado.core.usage import parse_use
from stado.jobs.changes import cancel, retry
from stado.jobs.claim import Claimed
from stado.jobs.deletion import delete
from stado.jobs.endings import give_verdict, settle, settle_own
from stado.jobs.life import LifeSigns, seal_epoch
from stado.jobs.reaping import Reaper
from stado.jobs.usage import Question, Sum, UsageReport, report_usage
from stado.storage.observe import CountingStore
from tests.jobs.actors import Crash, mortal
from tests.jobs.world import BOB, LEASE, TICK, World, heal

DAY = timedelta(days=1)


def ended(
    world: World,
    claimed: Claimed,
    verdict: Verdict = Verdict.COMPLETED,
    *,
    seconds: float = 60.0,
    gpus: int = 0,
    crash_at: int | None = None,
) -> None:
    """The holder's verdict, so long after the start, settled unless it dies on the way."""
    began_at = world.clock.now()
    world.clock.sleep(seconds)
    now = world.clock.now()
    record = claimed.record
    assert record.holder is not None
    record = record.evolve(holder=record.holder.evolve(gpus=gpus))
    ending = Ending(
        verdict=verdict,
        started_at=began_at,
        ended_at=now,
        ran=Ran(began_at=began_at, ended_at=now),
        by=record.holder.consumer,
    )
    cell, ours = give_verdict(world.repo, record, ending)
    assert ours
    store = world.store if crash_at is None else mortal(world.store, at=crash_at, applied=False)
    settle_own(world.repo_over(store), cell, claimed.running_version)


def report(
    world: World, by: str = "job", *, user: str | None = None, since: timedelta = DAY
) -> UsageReport:
    begin = world.clock.now() - since
    return report_usage(world.repo, Question(since=begin, by=by, user=user))


def seconds_of(told: UsageReport) -> dict[str | None, float]:
    return {name: group.wall_ms / 1000 for name, group in told.tally.groups.items()}


def uses(world: World) -> list[str]:
    return [key.rpartition("/")[2] for key in world.names(keys.USAGE)]


# --- noted --------------------------------------------------------------------------------


def test_an_end_after_a_start_makes_one_write_more(world: World) -> None:
    world.submit()
    claimed = world.start()
    counting = CountingStore(world.store, world.tasks)
    repo = world.repo_over(counting)
    now = world.clock.now()
    ending = Ending(
        verdict=Verdict.COMPLETED,
        started_at=now,
        ended_at=now,
        ran=Ran(began_at=now, ended_at=now),
        by="alice",
    )
    cell, _ = give_verdict(repo, claimed.record, ending)
    settle_own(repo, cell, claimed.running_version)
    asked = counting.snapshot()
    assert (asked.writes, asked.deletes, asked.lists, asked.reads) == (3, 1, 0, 1)


def test_what_was_never_started_is_not_noted(world: World) -> None:
    """R25: neither time in the queue nor a claim counts."""
    job = world.submit()
    world.clock.sleep(3600)
    cancel(world.repo, job, by="ada")
    assert uses(world) == []
    assert report(world).tally.total == Sum()


def test_all_who_settle_note_the_same(world: World) -> None:
    """R26, R27, R63"""
    job = world.submit()
    ended(world, world.start(), gpus=2)
    for _ in range(2):
        settle(world.repo, job, 1)
    (name,) = uses(world)
    use = parse_use(name)
    assert use is not None
    assert (use.job_id, use.epoch, use.user) == (
        job,
        1,
        world.record(State.COMPLETED, job).submitter,
    )
    assert (use.wall_ms, use.gpus, use.share_milli) == (60_000, 2, 2_000)
    assert world.record(State.COMPLETED, job).usage.gpu_ms == 120_000


@pytest.mark.parametrize("at", range(5))
def test_a_holder_that_dies_before_it_has_noted_it_costs_nothing(world: World, at: int) -> None:
    job = world.submit()
    try:
        ended(world, world.start(), crash_at=at)
    except Crash:
        heal(world, job)
    assert len(uses(world)) == 1
    assert seconds_of(report(world)) == {job: 60.0}


def test_nothing_shows_that_an_epoch_was_lost_before_its_use_is_noted(world: World) -> None:
    """Else it could be forgotten: the cancel of the queued job removes the running record of the
    epoch before, by which others would find that it has to be settled."""
    job = world.submit()
    claimed = world.start()
    ended_lost(world, claimed)
    for at in range(12):
        with suppress(Crash):
            settle(world.repo_over(mortal(world.store, at=at, applied=False)), job, 1)
        if State.QUEUED in world.states(job):
            break
    cancel(world.repo, job, by="ada")
    heal(world, job)
    assert len(uses(world)) == 1


def ended_lost(world: World, claimed: Claimed) -> None:
    began_at = world.clock.now()
    world.clock.sleep(60)
    now = world.clock.now()
    ending = Ending(
        verdict=Verdict.LOST,
        reason=Reason.LEASE_EXPIRED,
        started_at=began_at,
        ended_at=now,
        ran=Ran(began_at=began_at, ended_at=now, estimated=True),
        by="coordinator",
    )
    give_verdict(world.repo, claimed.record, ending)


def test_a_lost_epoch_counts_until_its_last_beat(world: World) -> None:
    """And not until somebody noticed."""
    job = world.submit()
    claimed = world.start()
    began_at, signs = world.clock.now(), LifeSigns(world.repo, claimed.record)
    world.clock.sleep(2 * TICK)
    signs.beat(Phase.RUNNING, began_at)
    world.lose(Reaper(world.repo, by="coordinator"))
    told = report(world)
    assert seconds_of(told) == {job: 2 * TICK}
    assert told.tally.total.estimated
    assert world.record(State.QUEUED, job).usage.estimated


def test_a_save_after_the_last_beat_is_a_sign_of_life_too(world: World) -> None:
    job = world.submit()
    claimed = world.start()
    judge = Reaper(world.repo, by="coordinator")
    judge.turn()
    world.clock.sleep(LEASE / 2)
    judge.turn()
    world.store.put(keys.checkpoint_part(job, claimed.record.epoch, 1, 0), b"weights")
    world.lose(judge)
    assert seconds_of(report(world)) == {job: LEASE / 2}


def test_a_seal_says_when_its_epoch_was_heard_last(world: World) -> None:
    """Whoever gives the verdict after a sealer that died goes by it."""
    job = world.submit()
    claimed = world.start()
    began_at = world.clock.now()
    world.clock.sleep(TICK)
    assert LifeSigns(world.repo, claimed.record).beat(Phase.RUNNING, began_at)
    world.clock.sleep(LEASE)
    assert seal_epoch(world.repo, claimed.record, world.repo.find_heartbeat(job), by="x")
    world.lose(Reaper(world.repo, by="coordinator"))
    assert seconds_of(report(world)) == {job: TICK}


def test_what_only_uploads_any_more_counts_until_its_command_ended(world: World) -> None:
    job = world.submit()
    claimed = world.start()
    began_at = world.clock.now()
    world.clock.sleep(TICK)
    exited_at = world.clock.now()
    world.clock.sleep(TICK)
    signs = LifeSigns(world.repo, claimed.record)
    assert signs.beat(Phase.UPLOADING, began_at, phase_since=exited_at)
    assert seconds_of(report(world)) == {job: TICK}
    world.lose(Reaper(world.repo, by="coordinator"))
    assert seconds_of(report(world)) == {job: TICK}


# --- asked --------------------------------------------------------------------------------


def test_a_deleted_job_stays_counted(world: World) -> None:
    job = world.submit()
    ended(world, world.start())
    delete(world.repo, job, by="ada")
    assert world.states(job) == set()
    assert seconds_of(report(world)) == {job: 60.0}


def test_a_retried_job_counts_with_all_its_epochs(world: World) -> None:
    job = world.submit()
    ended(world, world.start(), Verdict.FAILED)
    retry(world.repo, job, by="ada")
    ended(world, world.start(), seconds=30.0)
    told = report(world)
    assert seconds_of(told) == {job: 90.0}
    assert told.tally.total.epochs == 2
    assert world.record(State.COMPLETED, job).usage.wall_ms == 90_000


def test_a_pipelines_figure_is_the_sum_over_its_jobs(world: World) -> None:
    step = Step(name="eval", command="true", type=JobType.EVAL)
    root = world.submit(spec=Spec(command="", then=[step]))
    ended(world, world.start(), gpus=1)
    ended(world, world.start(), seconds=30.0, gpus=4)
    alone = world.submit()
    ended(world, world.start(), seconds=5.0)
    told = report(world, "pipeline")
    assert seconds_of(told) == {root: 90.0, None: 5.0}
    assert told.tally.groups[root].gpu_ms == 180_000
    assert len(report(world, "job").tally.groups) == 3
    assert alone in report(world, "job").tally.groups


def test_what_runs_counts_up_to_now_and_once(world: World) -> None:
    job = world.submit()
    claimed = world.start()
    world.clock.sleep(TICK)
    told = report(world)
    assert seconds_of(told) == {job: TICK}
    assert [one.record.id for one in told.running] == [job]
    assert (told.tally.total.running, told.tally.total.estimated) == (1, False)
    ended(world, claimed, seconds=0.0)
    assert report(world).running == []


def test_what_ends_while_it_is_looked_at_counts_once(world: World) -> None:
    """Its running record is still there, and its use is noted."""
    job = world.submit()
    claimed = world.start()
    with pytest.raises(Crash):
        ended(world, claimed, crash_at=2)
    assert world.states(job) & {State.RUNNING}
    told = report(world)
    assert (seconds_of(told), told.running) == ({job: 60.0}, [])


def test_who_is_not_heard_counts_until_the_last_beat(world: World) -> None:
    world.submit()
    world.start()
    world.clock.sleep(LEASE + 1)
    told = report(world)
    assert (told.tally.total.wall_ms, told.tally.total.estimated) == (0, True)
    assert told.tally.total.running == 1


@pytest.mark.parametrize("user", ["ada", "eve"])
def test_one_user_is_told_of_their_own_jobs(world: World, user: str) -> None:
    world.submit()
    submitter = world.find(world.submit()).record.submitter
    ended(world, world.start())
    world.start(BOB)
    mine = report(world, "user", user=submitter)
    assert (len(mine.running), seconds_of(mine)) == (1, {submitter: 60.0})
    other = report(world, "user", user=f"{user}-2")
    assert (other.running, seconds_of(other)) == ([], {})


def test_days_are_cut_at_midnight_and_at_the_moment_asked_for(world: World) -> None:
    world.submit()
    claimed = world.start()
    ended(world, claimed, seconds=2 * 86_400.0)
    days = {"2026-01-01": 86_400.0, "2026-01-02": 86_400.0}
    assert seconds_of(report(world, "day", since=3 * DAY)) == days
    half = seconds_of(report(world, "day", since=DAY / 2))
    assert half == {"2026-01-02": 43_200.0}


def test_only_the_time_in_question_is_looked_at(world: World) -> None:
    """However many jobs there were before."""
    world.submit()
    ended(world, world.start())
    world.clock.sleep(100 * 86_400)
    counting = CountingStore(world.store, world.tasks)
    question = Question(since=world.clock.now() - 7 * DAY, by="job")
    told = report_usage(world.repo_over(counting), question)
    assert told.tally.groups == {}
    asked = counting.snapshot()
    assert (asked.lists, asked.reads, asked.writes) == (2, 1, 0)
    whole = report(world, since=3_000 * DAY)
    assert whole.tally.total.wall_ms == 60_000


def test_two_names_of_one_epoch_count_once(world: World) -> None:
    """As from two versions of the program, one of which says more."""
    world.submit()
    ended(world, world.start())
    (name,) = uses(world)
    world.store.create(keys.usage(f"{name}~mbig"), b"")
    world.store.create(keys.usage("what somebody left".replace(" ", "-")), b"")
    assert report(world).tally.total == Sum(wall_ms=60_000, epochs=1)


def test_what_cannot_be_read_costs_itself_alone(world: World) -> None:
    job = world.submit()
    world.start()
    world.store.put(keys.record(State.RUNNING, job), b"{")
    told = report(world)
    assert (told.unreadable, told.running) == ([job], [])


def test_nothing_was_used_before_the_deployment_was_there(world: World) -> None:
    """A name that says so is cut, and makes no day of its own."""
    now_ms = milliseconds(world.repo.now())
    name = f"{now_ms:013d}-zrnzgwmctjguoask.1~w{10**13 - 1}.g1.s0.e0~uada"
    world.store.create(keys.usage(name), b"")
    since = world.repo.now() - timedelta(days=3660)
    told = report_usage(world.repo, Question(since=since, by="day"))
    assert 1 <= len(told.tally.groups) <= 3
