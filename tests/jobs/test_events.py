"""The timeline of a job: every move leaves its trace, with who made it, when and why."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from stado.core import keys
from stado.core.events import Event, EventKind
from stado.core.pipelines import parse_step
from stado.core.records import Ending, Intent, JobWarning, LateResult, Phase
from stado.core.spec import After, Spec
from stado.core.states import AfterWhen, Reason, Verdict, WarningCode
from stado.errors import Denied, NotFound, Refused
from stado.jobs.changes import cancel, pause, rerun, resume, retry
from stado.jobs.claim import Claimed, adopt, holder_of
from stado.jobs.deletion import delete
from stado.jobs.endings import claim_for_intent, give_verdict, settle, write_late
from stado.jobs.events import events_of
from stado.jobs.life import LifeSigns
from stado.jobs.priority import set_priority
from stado.jobs.queue_index import Repair
from stado.jobs.reaping import Reaper
from stado.storage.observe import WRITES, CountingStore, Operation
from tests.jobs.actors import GuardedStore
from tests.jobs.world import ALICE, World, give_back


def told(world: World, job: str) -> list[Event]:
    return events_of(world.repo, job).events


def kinds(world: World, job: str) -> list[str]:
    return [event.kind.value for event in told(world, job)]


def only(world: World, job: str, kind: EventKind) -> Event:
    (event,) = [one for one in told(world, job) if one.kind is kind]
    return event


def started(world: World, spec: Spec | None = None) -> tuple[str, Claimed]:
    """A job whose command runs for a minute by now."""
    job = world.submit(spec=spec)
    world.clock.sleep(5)
    claimed = world.claimed_of(job)
    LifeSigns(world.repo, claimed.record).beat(Phase.RUNNING, world.clock.now())
    world.clock.sleep(60)
    return job, claimed


def finish(world: World, claimed: Claimed, verdict: Verdict, **fields: object) -> None:
    """As the supervisor does that had it started a minute ago."""
    now = world.repo.now()
    stated = {"started_at": now - timedelta(seconds=60), "ended_at": now, "by": ALICE.consumer}
    ending = Ending(verdict=verdict, **(stated | fields))  # type: ignore[arg-type]
    give_verdict(world.repo, claimed.record, ending)
    settle(world.repo, claimed.record.id, claimed.record.epoch)


def lose(world: World) -> None:
    world.lose(Reaper(world.repo, by="coordinator"))


# --- from the queue to a host -------------------------------------------------------------------


def test_a_submission_is_the_first_event(world: World) -> None:
    """T1"""
    job = world.submit(run_id="sweep")
    (event,) = told(world, job)
    assert (event.kind, event.epoch, event.actor) == (EventKind.SUBMITTED, 1, "ada")
    assert event.at == world.repo.now()
    assert event.text == "submitted by ada as run sweep"


def test_another_priority_is_told_where_it_was_given(world: World) -> None:
    """R146, T2: also after the job has been lost, and once only."""
    job = world.submit()
    set_priority(world.repo, job, 1000, by="bob")
    world.claimed_of(job)
    lose(world)
    set_priority(world.repo, job, 3, by="ada")
    assert kinds(world, job) == ["submitted", "priority_set", "claimed", "lost", "priority_set"]
    first, second = (one for one in told(world, job) if one.kind is EventKind.PRIORITY_SET)
    assert (first.epoch, first.actor, first.text) == (
        1,
        "bob",
        "bob set its priority to 1,000; it was 0",
    )
    assert (second.epoch, second.text) == (2, "ada set its priority to 3; it was 1,000")


def test_a_claim_and_a_start_name_the_host(world: World) -> None:
    """T6, T8: a worker took it, and executed its command."""
    job, _ = started(world)
    submitted, claimed, begun = told(world, job)
    assert (claimed.kind, claimed.actor, claimed.host) == (EventKind.CLAIMED, "alice", "host-a")
    assert claimed.at - submitted.at == timedelta(seconds=5)
    assert (begun.kind, begun.host) == (EventKind.STARTED, "host-a")


def test_a_preparation_is_told_while_it_takes(world: World) -> None:
    """T7: with what keeps it."""
    job = world.submit()
    signs = LifeSigns(world.repo, world.claimed_of(job).record)
    trouble = "the image is being pulled, for 40 s"
    signs.beat(Phase.PREPARING, None, phase_since=world.clock.now(), trouble=trouble)
    assert kinds(world, job) == ["submitted", "claimed", "preparing", "trouble"]
    assert only(world, job, EventKind.TROUBLE).text == trouble


def test_what_could_not_be_prepared_was_not_started(world: World) -> None:
    """T9"""
    job = world.submit()
    detail = "input data is gone"
    finish(
        world,
        world.claimed_of(job),
        Verdict.FAILED,
        started_at=None,
        reason=Reason.INPUT_UNAVAILABLE,
        detail=detail,
    )
    assert kinds(world, job) == ["submitted", "claimed", "failed"]
    failed = only(world, job, EventKind.FAILED)
    assert failed.reason is Reason.INPUT_UNAVAILABLE
    assert failed.text == f"failed (input_unavailable): {detail}, its command was not started"


# --- from a host to its end ---------------------------------------------------------------------


def test_runs_of_one_epoch_are_counted(world: World) -> None:
    """T10: by the beats while it runs, by the verdict afterwards."""
    job, claimed = started(world)
    LifeSigns(world.repo, claimed.record).beat(Phase.RUNNING, world.clock.now(), runs=2)
    assert only(world, job, EventKind.RAN_AGAIN).text == "its command was run 2 times by then"
    finish(world, claimed, Verdict.COMPLETED, runs=3)
    assert only(world, job, EventKind.RAN_AGAIN).text == "its command was run 3 times by then"


def test_a_completion_tells_its_warnings(world: World) -> None:
    """T11"""
    job, claimed = started(world)
    warning = JobWarning(code=WarningCode.OUTPUT_URI_FAILED, detail="the copy was refused")
    finish(world, claimed, Verdict.COMPLETED, warnings=[warning])
    assert kinds(world, job) == ["submitted", "claimed", "started", "warning", "completed"]
    assert only(world, job, EventKind.COMPLETED).host == "host-a"


def test_a_failure_tells_why(world: World) -> None:
    """T12"""
    job, claimed = started(world)
    finish(world, claimed, Verdict.FAILED, reason=Reason.JOB_FAILED, exit_code=3)
    failed = only(world, job, EventKind.FAILED)
    assert (failed.reason, failed.actor) == (Reason.JOB_FAILED, "alice")
    assert failed.text == "failed (job_failed): exit code 3"


def test_another_try_is_told_with_its_time(world: World) -> None:
    """T13: and the next epoch goes on below."""
    job, claimed = started(world)
    retry_at = world.repo.now() + timedelta(seconds=60)
    finish(world, claimed, Verdict.RETRYING, reason=Reason.JOB_FAILED, retry_at=retry_at)
    world.clock.sleep(61)
    world.claimed_of(job)
    event = only(world, job, EventKind.RETRYING)
    assert (event.epoch, event.due_at) == (1, retry_at)
    assert event.text.endswith(", epoch 2 follows")
    assert (told(world, job)[-1].kind, told(world, job)[-1].epoch) == (EventKind.CLAIMED, 2)


def test_a_time_limit_is_told_with_whose_it_was(world: World) -> None:
    """T14"""
    job, claimed = started(world)
    reason, detail = Reason.ORG_RUNTIME_LIMIT_EXCEEDED, "it reached its own time limit of 1m"
    finish(world, claimed, Verdict.TIMED_OUT, reason=reason, detail=detail)
    event = only(world, job, EventKind.TIMED_OUT)
    assert (event.reason, event.text) == (reason, f"timed_out ({reason}): {detail}")


def test_a_silent_worker_whose_time_is_up_is_judged_by_others(world: World) -> None:
    """T15"""
    job, _ = started(world, Spec(command="", timeout_seconds=70))
    lose(world)
    event = only(world, job, EventKind.TIMED_OUT)
    assert (event.actor, event.host) == ("coordinator", None)
    assert event.text.endswith(", by coordinator")


def test_a_deadline_that_passes_in_the_queue_is_told(world: World) -> None:
    """T16"""
    deadline = world.repo.now() + timedelta(seconds=60)
    job = world.submit(spec=Spec(command="", deadline_at=deadline))
    world.clock.sleep(61)
    Repair(world.repo, by="coordinator").turn()
    assert kinds(world, job) == ["submitted", "timed_out"]
    event = only(world, job, EventKind.TIMED_OUT)
    assert (event.actor, event.reason) == ("coordinator", Reason.DEADLINE_PASSED)


# --- stopped ------------------------------------------------------------------------------------


def test_a_cancel_in_the_queue_is_one_event(world: World) -> None:
    """T17: who did it, and why."""
    job = world.submit()
    cancel(world.repo, job, by="bea", note="a wrong seed")
    assert kinds(world, job) == ["submitted", "cancelled"]
    event = only(world, job, EventKind.CANCELLED)
    assert (event.actor, event.reason) == ("bea", Reason.CANCELLED_BY_USER)
    assert "a wrong seed" in event.text


def test_an_obeyed_cancel_is_told_from_the_asking_on(world: World) -> None:
    """T18"""
    job, claimed = started(world)
    cancel(world.repo, job, by="bea", note="a wrong seed")
    world.clock.sleep(15)
    finish(world, claimed, Verdict.CANCELLED, reason=Reason.CANCELLED)
    assert kinds(world, job)[-2:] == ["cancel_asked", "cancelled"]
    asked = only(world, job, EventKind.CANCEL_ASKED)
    assert (asked.actor, asked.note) == ("bea", "a wrong seed")
    assert only(world, job, EventKind.CANCELLED).at - asked.at == timedelta(seconds=15)


def test_a_cancel_of_a_silent_worker_is_told_from_the_asking_on(world: World) -> None:
    """T19"""
    job, _ = started(world)
    cancel(world.repo, job, by="bea")
    lose(world)
    assert kinds(world, job)[-2:] == ["cancel_asked", "cancelled"]
    event = only(world, job, EventKind.CANCELLED)
    assert (event.actor, event.reason) == ("bea", Reason.CANCELLED_BY_USER)


@pytest.mark.parametrize("ask", [cancel, pause])
def test_what_was_asked_for_too_late_is_told_so(world: World, ask: Callable[..., object]) -> None:
    """T20: the outcome of its own stands."""
    job, claimed = started(world)
    ask(world.repo, job, by="bea")
    finish(world, claimed, Verdict.COMPLETED)
    asked, ended = told(world, job)[-2:]
    assert asked.text.endswith("ed, but it has completed")
    assert ended.kind is EventKind.COMPLETED


def test_a_pause_of_a_running_job_is_told_from_the_asking_on(world: World) -> None:
    """T21"""
    job, claimed = started(world)
    pause(world.repo, job, by="bea", note="the cluster is needed")
    finish(world, claimed, Verdict.PAUSED, reason=Reason.PAUSED_BY_USER)
    assert kinds(world, job)[-2:] == ["pause_asked", "paused"]
    assert only(world, job, EventKind.PAUSE_ASKED).note == "the cluster is needed"


def test_a_pause_in_the_queue_is_one_event(world: World) -> None:
    """T22"""
    job = world.submit()
    pause(world.repo, job, by="bea")
    assert kinds(world, job) == ["submitted", "paused"]
    assert only(world, job, EventKind.PAUSED).actor == "bea"


def test_an_intent_that_nobody_finished_is_told_by_itself(world: World) -> None:
    """To who may not write, and so does not finish it."""
    job = world.submit()
    record = world.find(job).record
    claim_for_intent(world.repo, record, intent=Intent.PAUSE, by="bea", note="later")

    def refuse(operation: Operation, key: str) -> None:
        if operation in WRITES:
            raise Denied(key, "read only")

    reader = world.repo_over(GuardedStore(world.store, before=refuse))
    event = events_of(reader, job).events[-1]
    assert (event.kind, event.actor, event.note) == (EventKind.PAUSE_ASKED, "bea", "later")


# --- out of its rest ----------------------------------------------------------------------------


def test_a_resume_opens_the_next_epoch(world: World) -> None:
    """T23"""
    job = world.submit()
    pause(world.repo, job, by="bea")
    world.clock.sleep(60)
    resume(world.repo, job, by="cy", note="there is room")
    event = only(world, job, EventKind.RESUMED)
    assert (event.epoch, event.actor, event.note) == (2, "cy", "there is room")


def test_a_cancel_of_a_paused_job_is_told(world: World) -> None:
    """T24"""
    job = world.submit()
    pause(world.repo, job, by="bea")
    cancel(world.repo, job, by="cy")
    assert kinds(world, job) == ["submitted", "paused", "cancel_asked", "cancelled"]
    assert {event.actor for event in told(world, job)[2:]} == {"cy"}


def test_a_lost_lease_is_told_with_who_judged(world: World) -> None:
    """T25"""
    job, _ = started(world)
    lose(world)
    event = only(world, job, EventKind.LOST)
    assert (event.actor, event.reason, event.host) == ("coordinator", Reason.LEASE_EXPIRED, None)
    assert event.text.endswith("by coordinator, epoch 2 follows")


def test_the_loss_too_many_is_told(world: World) -> None:
    """T26"""
    job, _ = started(world, Spec(command="", max_lease_losses=0))
    lose(world)
    assert kinds(world, job)[-1] == "failed"
    assert only(world, job, EventKind.FAILED).reason is Reason.LEASE_EXPIRED_MAX_ATTEMPTS


def test_an_agent_that_is_gone_as_declared_is_told(world: World) -> None:
    """T27"""
    job, _ = started(world, Spec(command="", terminates_agent=True))
    lose(world)
    event = only(world, job, EventKind.COMPLETED)
    assert (event.actor, event.reason) == ("coordinator", Reason.AGENT_TERMINATED_AS_DECLARED)
    assert told(world, job)[-1] == event


def test_a_retry_opens_the_next_epoch(world: World) -> None:
    """T29"""
    job, claimed = started(world)
    finish(world, claimed, Verdict.FAILED, reason=Reason.JOB_FAILED)
    world.clock.sleep(60)
    retry(world.repo, job, by="cy", note="the disk was full")
    event = only(world, job, EventKind.RETRIED)
    assert (event.epoch, event.actor, event.note) == (2, "cy", "the disk was full")
    assert told(world, job)[-1] == event


def test_a_rerun_names_its_original_and_leaves_no_trace_there(world: World) -> None:
    """T30"""
    job = world.submit()
    before = told(world, job)
    again = rerun(world.repo, job, run_id="again", submitter="cy").base_id
    assert told(world, again)[0].text == f"submitted by cy as run again, a rerun of {job}"
    assert told(world, job) == before


def test_a_deleted_job_still_tells_what_happened(world: World) -> None:
    """T31: its cells stay."""
    job, claimed = started(world)
    finish(world, claimed, Verdict.COMPLETED)
    delete(world.repo, job, by="cy", note="disk")
    assert kinds(world, job) == ["submitted", "claimed", "started", "completed", "deleted"]
    event = only(world, job, EventKind.DELETED)
    assert (event.actor, event.note) == ("cy", "disk")


def test_nothing_follows_a_completion(world: World) -> None:
    """T32: a refused retry leaves no trace."""
    job, claimed = started(world)
    finish(world, claimed, Verdict.COMPLETED)
    before = told(world, job)
    with pytest.raises(Refused, match="has completed"):
        retry(world.repo, job, by="cy")
    assert told(world, job) == before


# --- what else happens --------------------------------------------------------------------------


def test_an_adoption_is_no_second_start(world: World) -> None:
    job, claimed = started(world)
    give_back(world, job)
    queued = world.find(job).record
    holder = claimed.record.holder
    assert holder is not None
    taken = adopt(world.repo, queued, holder_of(world.repo, ALICE, adopts=holder))
    assert taken is not None
    finish(world, taken, Verdict.COMPLETED)
    assert kinds(world, job) == [
        "submitted", "claimed", "started", "lost", "adopted", "completed",
    ]  # fmt: skip


def test_what_a_host_gave_back_is_no_loss(world: World) -> None:
    job = world.submit()
    finish(world, world.claimed_of(job), Verdict.LOST, started_at=None, reason=Reason.HOST_UNABLE)
    assert kinds(world, job) == ["submitted", "claimed", "given_back"]


def test_a_late_result_comes_after_the_verdict(world: World) -> None:
    job, _ = started(world)
    lose(world)
    late = LateResult(
        job_id=job, epoch=1, consumer="alice", at=world.repo.now(), exit_code=0, detail="it ended"
    )
    write_late(world.repo, late)
    event = told(world, job)[-1]
    assert (event.kind, event.epoch) == (EventKind.LATE_RESULT, 1)
    assert event.text == "alice said after the verdict: exit code 0: it ended"


@pytest.mark.parametrize(
    ("verdict", "kind"), [(Verdict.COMPLETED, "released"), (Verdict.FAILED, "doomed")]
)
def test_the_end_of_a_job_that_was_waited_for_is_told(
    world: World, verdict: Verdict, kind: str
) -> None:
    """At the moment at which that ended."""
    parent, claimed = started(world)
    child = world.submit(spec=Spec(command="", after=[After(job_id=parent, when=AfterWhen.OK)]))
    world.clock.sleep(30)
    finish(world, claimed, verdict)
    world.clock.sleep(30)
    event = told(world, child)[1]
    assert event.kind.value == kind
    assert event.at == only(world, parent, EventKind(verdict.value)).at
    assert parent in told(world, child)[0].text


def test_steps_are_told_with_the_job_before_them(world: World) -> None:
    root, claimed = started(world, Spec(command="", then=[parse_step("eval=check it")]))
    finish(world, claimed, Verdict.COMPLETED)
    event = told(world, root)[-1]
    assert event.kind is EventKind.STEP_LAUNCHED
    step = event.text.removeprefix("step 1 (eval) was queued as job ")
    assert f"step 1 (eval) of pipeline_{root}" in told(world, step)[0].text


# --- reading it ---------------------------------------------------------------------------------


def test_a_timeline_costs_a_listing_and_a_few_reads_an_epoch(world: World) -> None:
    job, claimed = started(world)
    finish(world, claimed, Verdict.COMPLETED)
    store = CountingStore(world.store, world.tasks)
    events_of(world.repo_over(store), job)
    made = store.snapshot()
    assert (made.lists, made.reads, made.writes, made.deletes) == (1, 6, 0, 0)


def test_of_many_epochs_the_newest_are_told(world: World) -> None:
    job = world.submit()
    for _ in range(3):
        pause(world.repo, job, by="bea")
        resume(world.repo, job, by="bea")
    answer = events_of(world.repo, job, epochs_max=2)
    assert answer.earlier_epochs == 2
    assert [event.epoch for event in answer.events] == [1, 3, 3, 4]


def test_what_cannot_be_read_is_named_and_costs_nothing_else(world: World) -> None:
    job, claimed = started(world)
    cancel(world.repo, job, by="bea")
    finish(world, claimed, Verdict.CANCELLED, reason=Reason.CANCELLED)
    world.store.put(keys.asks(job, 1), b"nonsense")
    answer = events_of(world.repo, job)
    assert answer.unreadable == [keys.asks(job, 1)]
    assert [event.kind.value for event in answer.events][-1] == "cancelled"


def test_an_unknown_job_has_no_timeline(world: World) -> None:
    with pytest.raises(NotFound):
        events_of(world.repo, "zzzzzzzzzzzzzzzz")
