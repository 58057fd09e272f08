"""Notices: made by whoever settles, sent by a coordinator, at least once, and in nobody's way."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from stado.core import keys
from stado.core.pipelines import parse_step
from stado.core.records import Record, Undelivered
from stado.core.settings import DeploymentSettings, NotifySettings
from stado.core.spec import Spec
from stado.core.states import State, Verdict
from stado.errors import SendFailed
from stado.jobs.changes import cancel, pause, resume, retry
from stado.jobs.deletion import delete
from stado.jobs.deliveries import (
    FALSE_SECONDS,
    FORGET_SECONDS,
    GIVE_UP_SECONDS,
    Deliveries,
)
from stado.jobs.endings import settle
from stado.jobs.events import events_of
from stado.jobs.notices import oldest_pending_seconds, undelivered
from stado.jobs.reaping import Reaper
from stado.storage.observe import CountingStore
from tests.jobs.actors import Crash, mortal
from tests.jobs.world import ALICE, World, claim_head, end, heal

TEAM = ["team:completed,failed,cancelled,timed_out"]


class Fake:
    """Channels that take every message, until a test says otherwise."""

    def __init__(self, *channels: str) -> None:
        self.channels = frozenset(channels)
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.fails: set[str] = set()
        self.calls = 0
        self.before: Callable[[], None] = lambda: None

    def send(self, channel: str, body: bytes) -> None:
        self.calls += 1
        self.before()
        if channel in self.fails:
            raise SendFailed("it answered with HTTP 500")
        self.heard.append((channel, json.loads(body)))

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(channel, message["id"]) for channel, message in self.heard]


@pytest.fixture
def fake() -> Fake:
    return Fake("team", "pager")


@pytest.fixture
def deliveries(world: World, fake: Fake) -> Deliveries:
    return Deliveries(world.repo, fake)


def job_with(world: World, *rules: str, **stated: Any) -> str:
    return world.submit(spec=Spec(command="", notify=list(rules) or TEAM, **stated))


def pending(world: World) -> list[str]:
    return [key.removeprefix(keys.NOTICES) for key in world.names(keys.NOTICES)]


# --- what is noted ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "verdict", [Verdict.COMPLETED, Verdict.FAILED, Verdict.CANCELLED, Verdict.TIMED_OUT]
)
def test_an_end_is_noted_for_each_channel_with_a_rule_for_it(
    world: World, verdict: Verdict
) -> None:
    """R226"""
    job = job_with(world, *TEAM, f"pager:{verdict}", "other:running")
    world.end(world.claimed_of(job), verdict)
    assert set(pending(world)) == {
        f"{job}.1.{verdict}.pager",
        f"{job}.1.{verdict}.team",
        f"{job}.1.running.other",
    }


def test_without_a_rule_there_is_no_request_more(world: World) -> None:
    """R226"""
    job, store = world.submit(), CountingStore(world.store, world.tasks)
    repo = world.repo_over(store)
    claimed = claim_head(repo, ALICE)
    assert claimed is not None
    end(repo, claimed)
    made = store.snapshot()
    assert (made.writes, made.reads, made.deletes) == (4, 2, 3)
    assert world.states(job) == {State.COMPLETED}


def test_queued_jobs_that_are_stopped_are_noted(world: World, fake: Fake) -> None:
    job = job_with(world, "team:paused,cancelled,running")
    pause(world.repo, job, by="bea")
    resume(world.repo, job, by="bea")
    cancel(world.repo, job, by="bea")
    assert pending(world) == [f"{job}.1.paused.team", f"{job}.2.cancelled.team"]


def test_what_goes_on_is_not_noted(world: World) -> None:
    """An epoch that is lost, or tried again, is no end."""
    job = job_with(world)
    world.start()
    world.lose(Reaper(world.repo, by="coordinator"))
    assert world.states(job) == {State.QUEUED}
    assert pending(world) == []


def test_the_rules_of_the_deployment_are_those_of_the_first_claim(world: World) -> None:
    settings = DeploymentSettings(notify=NotifySettings(rules=["pager:failed"]))
    job = world.submit()
    world.end(world.claimed_of(job, settings), Verdict.FAILED)
    assert pending(world) == [f"{job}.1.failed.pager"]
    retry(world.repo, job, by="bea")
    world.end(world.claimed_of(job), Verdict.FAILED)
    assert pending(world) == [f"{job}.1.failed.pager"]


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("at", range(5))
def test_a_holder_that_dies_at_any_request_of_its_settling_leaves_a_notice(
    at: int, applied: bool
) -> None:
    """R226"""
    world = World()
    job = job_with(world)
    claimed = world.start()
    with contextlib.suppress(Crash):
        end(world.repo_over(mortal(world.store, at=at, applied=applied)), claimed)
    heal(world, job)
    (notice,) = pending(world)
    assert notice in (f"{job}.1.completed.team", f"{job}.2.completed.team")


def test_settling_again_notes_nothing_twice(world: World) -> None:
    job = job_with(world)
    world.end(world.claimed_of(job))
    settle(world.repo, job, 1)
    assert pending(world) == [f"{job}.1.completed.team"]


# --- pipelines ----------------------------------------------------------------------------------


def step_of(world: World, name: str) -> Record:
    records = [world.record(State.QUEUED, entry.job_id) for entry in world.entries()]
    return next(one for one in records if one.spec.step_of and one.spec.step_of.name == name)


def piped(world: World, *, parallel: bool = False) -> str:
    steps = [parse_step("export=e"), parse_step("eval=v")]
    return job_with(world, "team:pipeline", then=steps, then_parallel=parallel)


def run_step(world: World, name: str, verdict: Verdict = Verdict.COMPLETED) -> str:
    step = step_of(world, name).id
    world.end(world.claimed_of(step), verdict)
    return step


def test_a_pipeline_is_told_once_all_of_it_is_over(
    world: World, fake: Fake, deliveries: Deliveries
) -> None:
    """R226"""
    root = piped(world)
    world.end(world.claimed_of(root))
    run_step(world, "export")
    deliveries.turn()
    assert fake.heard == []
    run_step(world, "eval")
    deliveries.turn()
    ((channel, message),) = fake.heard
    assert (channel, message["id"]) == ("team", f"{root}.3.pipeline")
    assert (message["status"], message["job_id"]) == ("succeeded", root)
    assert message["text"] == f"pipeline_{root} of run run-1 has succeeded"


def test_a_pipeline_that_is_partial_and_then_mended_is_told_twice(
    world: World, fake: Fake, deliveries: Deliveries
) -> None:
    root = piped(world)
    world.end(world.claimed_of(root))
    step = run_step(world, "export", Verdict.FAILED)
    deliveries.turn()
    retry(world.repo, step, by="bea")
    world.end(world.claimed_of(step))
    run_step(world, "eval")
    deliveries.turn()
    assert [message["status"] for _, message in fake.heard] == ["partial", "succeeded"]
    assert len(set(fake.told)) == 2


@pytest.mark.parametrize(
    ("verdict", "told"), [(Verdict.FAILED, "failed"), (Verdict.CANCELLED, "stopped")]
)
def test_a_root_that_does_not_complete_is_the_end_of_its_pipeline(
    world: World, fake: Fake, deliveries: Deliveries, verdict: Verdict, told: str
) -> None:
    root = piped(world)
    world.end(world.claimed_of(root), verdict)
    deliveries.turn()
    assert [message["status"] for _, message in fake.heard] == [told]


def test_parallel_steps_make_one_notice(world: World) -> None:
    root = piped(world, parallel=True)
    world.end(world.claimed_of(root))
    run_step(world, "eval")
    run_step(world, "export")
    assert pending(world) == [f"{root}.3.pipeline.team"]


# --- what is sent -------------------------------------------------------------------------------


def test_a_notice_is_sent_as_the_cells_say_and_goes(
    world: World, fake: Fake, deliveries: Deliveries
) -> None:
    job = job_with(world)
    world.end(world.claimed_of(job), Verdict.FAILED)
    deliveries.turn()
    ((channel, message),) = fake.heard
    assert channel == "team"
    assert message == {
        "schema": 1,
        "id": f"{job}.1.failed",
        "job_id": job,
        "epoch": 1,
        "run_id": "run-1",
        "batch_id": None,
        "pipeline_id": None,
        "type": "job",
        "submitter": "ada",
        "at": world.repo.now().isoformat(timespec="milliseconds"),
        "text": f"job {job} of run run-1: failed",
        "status": "failed",
        "status_reason": None,
        "exit_code": 0,
        "host": "host-a",
    }
    assert pending(world) == []


def test_a_claim_is_told_as_running(world: World, fake: Fake, deliveries: Deliveries) -> None:
    job = job_with(world, "team:running")
    world.claimed_of(job)
    deliveries.turn()
    assert [message["text"] for _, message in fake.heard] == [f"job {job} of run run-1 is running"]


def test_a_coordinator_that_dies_after_sending_is_followed_by_the_same_message(
    world: World,
) -> None:
    """R226: At least once, with an id by which the second can be dropped."""
    fake = Fake("team")
    job = job_with(world)
    world.end(world.claimed_of(job))
    with pytest.raises(Crash):
        Deliveries(world.repo_over(mortal(world.store, at=2, applied=False)), fake).turn()
    Deliveries(world.repo, fake).turn()
    assert len(fake.heard) == 2
    assert fake.heard[0] == fake.heard[1]
    assert pending(world) == []


def test_a_job_that_was_deleted_is_told_of_all_the_same(
    world: World, fake: Fake, deliveries: Deliveries
) -> None:
    job = job_with(world)
    world.end(world.claimed_of(job))
    delete(world.repo, job, by="bea")
    deliveries.turn()
    assert fake.told == [("team", f"{job}.1.completed")]


def test_a_false_notice_is_sent_nowhere_and_goes_after_a_while(world: World) -> None:
    """R227: Whoever may write to the store can make names: they say nothing by themselves."""
    fake = Fake("team", "pager")
    deliveries = Deliveries(world.repo, fake)
    job = job_with(world)
    world.end(world.claimed_of(job))
    quiet = world.submit()
    world.end(world.claimed_of(quiet))
    false = [
        keys.notice(job, 1, "failed", "team"),
        keys.notice(job, 2, "completed", "team"),
        keys.notice(job, 1, "completed", "pager"),
        keys.notice(quiet, 1, "completed", "team"),
        keys.notice(job, 1, "pipeline", "team"),
        keys.notice("a" * 16, 1, "running", "team"),
    ]
    for key in false:
        world.store.create(key, b"{}")
    world.store.create(f"{keys.NOTICES}nonsense", b"")
    deliveries.turn()
    assert fake.told == [("team", f"{job}.1.completed")]
    world.clock.sleep(FALSE_SECONDS)
    deliveries.turn()
    assert fake.calls == 1
    assert pending(world) == ["nonsense"]


# --- channels that fail -------------------------------------------------------------------------


def test_a_channel_that_fails_is_tried_again_with_growing_pauses(
    world: World, fake: Fake, deliveries: Deliveries
) -> None:
    job = job_with(world)
    world.end(world.claimed_of(job))
    fake.fails = {"team"}
    for _ in range(600):
        deliveries.turn()
        world.clock.sleep(1)
    assert 6 <= fake.calls <= 9
    fake.fails = set()
    world.clock.sleep(800)
    deliveries.turn()
    assert fake.told == [("team", f"{job}.1.completed")]


def test_a_channel_that_fails_keeps_no_other_from_its_turn(
    world: World, fake: Fake, deliveries: Deliveries
) -> None:
    """R226"""
    jobs = [job_with(world, "pager:completed", "team:completed") for _ in range(20)]
    for job in jobs:
        world.end(world.claimed_of(job))
    fake.fails = {"pager"}
    deliveries.turn()
    assert sorted(fake.told) == sorted(("team", f"{job}.1.completed") for job in jobs)
    assert fake.calls == 20 + 3


def test_a_dead_channel_is_given_up_after_a_day_and_the_job_tells_it(
    world: World, fake: Fake, deliveries: Deliveries
) -> None:
    """R226"""
    job = job_with(world)
    world.end(world.claimed_of(job))
    fake.fails = {"team"}
    for _ in range(6):
        deliveries.turn()
        world.clock.sleep(GIVE_UP_SECONDS / 5)
    assert pending(world) == []
    (lost,) = undelivered(world.repo, limit=10)
    assert (lost.channel, lost.why) == ("team", "it answered with HTTP 500")
    event = events_of(world.repo, job).events[-1]
    assert event.text == (
        "that it is completed was not told on channel team: it answered with HTTP 500"
    )
    world.clock.sleep(FORGET_SECONDS)
    Deliveries(world.repo, fake).turn()
    assert undelivered(world.repo, limit=10) == []


def test_a_channel_that_no_coordinator_has_is_left_to_others_for_a_day(
    world: World, fake: Fake, deliveries: Deliveries
) -> None:
    job = job_with(world, "nobody:completed")
    world.end(world.claimed_of(job))
    deliveries.turn()
    assert pending(world) == [f"{job}.1.completed.nobody"]
    world.clock.sleep(GIVE_UP_SECONDS)
    assert oldest_pending_seconds(world.repo) == GIVE_UP_SECONDS
    deliveries.turn()
    assert pending(world) == []
    key = keys.undelivered(job, 1, "completed", "nobody")
    assert "no coordinator" in world.repo.read(Undelivered, key).value.why


def test_a_turn_looks_at_a_page_and_the_next_goes_on_behind_it(world: World, fake: Fake) -> None:
    jobs = [job_with(world) for _ in range(5)]
    for job in jobs:
        world.end(world.claimed_of(job))
    deliveries = Deliveries(world.repo, fake, page_size=2)
    fake.fails = {"team"}
    for _ in range(3):
        deliveries.turn()
    assert fake.calls == 5
