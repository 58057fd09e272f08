"""Everything that agents, coordinators and submitters do with jobs, on a store in memory that
notes their requests: the usual ways, and what is left to others when one of them dies."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from msgspec.structs import replace

from stado.core import keys
from stado.core.costs import NO_CATALOG
from stado.core.events import EventKind
from stado.core.inputs import JobOutput, Wanted
from stado.core.pipelines import parse_step
from stado.core.records import Capacity, Ending, Expired, HostOrder, Intent, Phase, Ran
from stado.core.retention import PARTS
from stado.core.retention import Rules as RetentionRules
from stado.core.schedules import REMOVED_KEPT, OverlapPolicy, Schedule
from stado.core.settings import DeploymentSettings, GroupSettings
from stado.core.spec import After, Snapshot, Spec, Step, make_request
from stado.core.states import JobType, Leftover, State, Verdict
from stado.core.usage import Use, use_key
from stado.errors import Denied, NotFound, Refused, SendFailed
from stado.jobs import saving, schedules, snapshots
from stado.jobs.asking import ask, ask_to_yield
from stado.jobs.assignments import Assigner, read_assignments
from stado.jobs.budget_keeping import BudgetKeeping
from stado.jobs.budgets import read_budgets
from stado.jobs.capacity import write_capacity
from stado.jobs.changes import cancel, pause, rerun, resume, retry
from stado.jobs.claim import Claimed, claim
from stado.jobs.deletion import delete
from stado.jobs.deliveries import FORGET_SECONDS, GIVE_UP_SECONDS, Deliveries
from stado.jobs.deployments import read_deployment
from stado.jobs.endings import give_verdict, settle
from stado.jobs.estimates import read_estimates
from stado.jobs.events import events_of
from stado.jobs.expired import check_there
from stado.jobs.finding import find_job
from stado.jobs.followers import RENEWAL_SECONDS, FollowerNote
from stado.jobs.health import Holdings, agents
from stado.jobs.host_orders import (
    close_host,
    consumer_named,
    find_orders,
    forget_host,
    open_host,
)
from stado.jobs.host_reaps import newest_reaps, reap
from stado.jobs.inputs import pin_input
from stado.jobs.ledger import Compaction, Ledger, Pace, look_at_ledger, read_uses
from stado.jobs.ledger_rebuild import Rebuild
from stado.jobs.life import LifeSigns
from stado.jobs.limit_sight import LimitSight
from stado.jobs.listings import newest
from stado.jobs.notices import undelivered
from stado.jobs.outputs import publish
from stado.jobs.policies import download_save, find_save, newest_policies
from stado.jobs.priority import set_priority
from stado.jobs.reaping import Reaper
from stado.jobs.repository import Repository
from stado.jobs.rest_rows import RestRowsKept
from stado.jobs.retention import Retention
from stado.jobs.rooms import Rooms
from stado.jobs.settings import change_setting, read_settings
from stado.jobs.status import story
from stado.jobs.submit import submit
from stado.jobs.upkeep import Passes, Upkeep
from stado.ports import HostProcess, ProcessIdentity, ReapEnd
from stado.storage.observe import WRITES, Operation
from stado.storage.port import FileDigest, Store
from stado_agent.guidance import Guidance
from stado_agent.log_spool import LogLimit
from stado_agent.rules import Rules
from stado_coordinator.coordinator import Coordinator
from tests.agent.fakes import Script
from tests.agent.scene import Scene
from tests.jobs.actors import Actor, Crash, GuardedStore, mortal
from tests.jobs.broadcasts import Agent
from tests.jobs.test_finding import MOVES, Move
from tests.jobs.world import ALICE, BOB, LEASE, TICK, World, claim_head, end
from tests.security.asking import RecordingStore, Request

Tick = Callable[[], object]

_STEPS_MAX = 60
_SNAPSHOT = Snapshot(digest="ab" * 32, files=1, bytes=1)
_TICKS = int(3 * LEASE / TICK)
_ENDED = (Verdict.COMPLETED, Verdict.FAILED, Verdict.CANCELLED, Verdict.TIMED_OUT)
_RETRIED = (Verdict.FAILED, Verdict.CANCELLED, Verdict.TIMED_OUT)
_FILES = {"output/result": b"42", "checkpoints/model": b"weights"}


def requests_of_submitters() -> set[Request]:
    requests: set[Request] = set()
    _open(requests)
    _look_at_a_host(requests)
    _read_settings(requests)
    _settle_late(requests)
    for move in _moves().values():
        _meet_what_is_left(move, lambda store: RecordingStore(store, requests), _look_around)
    world = World()
    repo = world.repo_over(RecordingStore(world.store, requests))
    _submit_twice(repo)
    job = world.submit()
    rerun(repo, job, run_id=None, submitter="ada")
    cancel(repo, job, by="ada")
    _follow(world, repo, job)
    _cancel_of_a_silent_holder(world, repo)
    _take_code_along(requests)
    _look_for_what_was_lost(world, repo)
    _end_a_training(requests, lambda world, repo, job: find_job(repo, job))
    _take_a_policy(requests)
    _tell(requests, lambda world, repo, job: find_job(repo, job))
    _hear_of_what_was_not_told(requests)
    for move in _submitters_moves().values():
        move_world = World()
        move(move_world, RecordingStore(move_world.store, requests), move_world.submit())
    _give_a_place_back(requests)
    _see_who_has_the_places(requests)
    _read_hints(requests)
    _read_the_ledger(requests)
    _keep_a_schedule(requests)
    _take_along(requests)
    _let_go(requests, apply=True)
    return requests


def requests_of_readers() -> set[Request]:
    """What is not refused."""
    requests: set[Request] = set()
    _open(requests)
    _look_at_a_host(requests)
    _read_settings(requests)
    for move in _moves().values():
        _meet_what_is_left(
            move,
            lambda store: GuardedStore(RecordingStore(store, requests), before=_refuse_writes),
            _look_around,
        )
    _take_a_policy(requests)
    _hear_of_what_was_not_told(requests)
    _see_who_has_the_places(requests)
    _read_hints(requests)
    _read_the_ledger(requests)
    _look_at_schedules(requests)
    _let_go(requests, apply=False)
    return requests


def requests_of_coordinators() -> set[Request]:
    """Their lease, and all that dead ones left."""
    requests: set[Request] = set()
    _open(requests)
    _settle_late(requests)
    _find_what_was_lost(_passes_of, requests)
    for move in _moves().values():
        _meet_what_is_left(move, lambda store: RecordingStore(store, requests), _coordinate)
    _forget_an_agent(_passes_of, requests)
    _end_a_training(requests, _coordinate)
    _tell(requests, _coordinate)
    _send_notices(requests)
    _assign(requests)
    _give_a_place_back(requests)
    _compact(requests)
    _keep_rows(requests)
    _keep_budgets(requests)
    _fire(_passes_of, requests)
    return requests


def requests_of_operators() -> set[Request]:
    """What `doctor` reads where something was not told, and who is assigned what; the rest they do
    in their days."""
    requests: set[Request] = set()
    _read_hints(requests)
    world = World()
    job = _not_told(world, world.repo)
    lost = undelivered(world.repo_over(RecordingStore(world.store, requests)), limit=5)
    assert job in {one.job_id for one in lost}
    _rebuild_the_ledger(requests)
    _look_at_schedules(requests)
    _keep_a_host(requests)
    _reap_on_a_host(requests)
    _see_who_has_the_places(requests)
    _list_what_is_paused(requests)
    return requests


def _list_what_is_paused(requests: set[Request]) -> None:
    world = World()
    job = world.submit()
    pause(world.repo, job, by="ada")
    (row,) = newest(world.repo_over(RecordingStore(world.store, requests)), limit=5).rows
    assert row.record is not None


def _keep_a_host(requests: set[Request]) -> None:
    """It is closed, opened and forgotten."""
    world = World()
    Agent(world).broadcast()
    repo = world.repo_over(RecordingStore(world.store, requests))
    name = consumer_named(repo, ALICE.consumer, agents(repo))
    close_host(repo, name, HostOrder.DRAIN, by="ada", reason=None)
    open_host(repo, name, by="ada")
    world.clock.sleep(10 * TICK)
    (sight,) = agents(repo)
    forget_host(repo, name, sight, Holdings(repo).under({name})[name])
    assert agents(repo) == []


def _reap_on_a_host(requests: set[Request]) -> None:
    world = World()
    repo = world.repo_over(RecordingStore(world.store, requests))
    left = HostProcess(
        identity=ProcessIdentity(7, 1),
        job_id=world.submit(),
        epoch=1,
        program="sleep",
        names=frozenset({"sleep"}),
        started_at=0.0,
        uid=0,
        held_by=None,
    )
    reap(repo, _Ending(), [left], host="a", command="sleep", by="ada", grace_seconds=1.0)
    assert len(list(newest_reaps(repo, limit=5))) == 1


class _Ending:
    """A host on which all ends that is to."""

    def look(self) -> tuple[list[HostProcess], int]:
        return [], 0

    def end(self, found: Sequence[HostProcess], *, grace_seconds: float) -> list[ReapEnd]:
        assert grace_seconds
        return [ReapEnd.ENDED] * len(found)


def _evict(requests: set[Request]) -> None:
    """Of a job that somebody has asked something, and of one that nobody has."""
    world = World()
    for asked in (False, True):
        job = world.submit()
        world.claimed_of(job)
        if asked:
            pause(world.repo, job, by="ada")
        repo = world.repo_over(RecordingStore(world.store, requests))
        ask_to_yield(repo, job, 1, by="ada", note="", evict=True)


def _look_at_a_host(requests: set[Request]) -> None:
    world = World()
    find_orders(world.repo_over(RecordingStore(world.store, requests)), ALICE.consumer)


def requests_of_agents(folder: Path) -> set[Request]:
    """Their jobs, and a coordinator's part while there is none."""
    requests: set[Request] = set()
    _open(requests)
    _read_settings(requests)
    _heed_assignments(requests)
    _heed_budgets(requests)
    _look_at_a_host(requests)
    _evict(requests)
    _settle_late(requests)
    _find_what_was_lost(lambda repo: _upkeep_of(repo).turn_when_due, requests)
    for move in _moves().values():
        _meet_what_is_left(move, lambda store: RecordingStore(store, requests), _upkeep)
        _meet_what_is_left(move, lambda store: RecordingStore(store, requests), _claim)
    _forget_an_agent(lambda repo: _upkeep_of(repo).turn_when_due, requests)
    _fetch_code(requests, folder)
    for move in (_claim_prioritized, *_following_moves().values()):
        world = World()
        move(world, RecordingStore(world.store, requests), world.submit())
    _tell(requests, _upkeep)
    for number, life in enumerate(_LIVES):
        life(RecordedScene(folder / str(number), requests))
    _take_a_place(requests)
    _make_room(requests)
    _fire(lambda repo: _upkeep_of(repo).turn_when_due, requests)
    return requests


# --- one who dies, and who comes after ----------------------------------------------------


def _moves() -> dict[str, Move]:
    own: dict[str, Move] = {
        "submit": lambda world, store, _: _submit_twice(world.repo_over(store)),
        "cancel what runs": _cancel_running,
        "fail": _fail,
        "time out": _time_out,
        "beat": _beat,
        "set a priority": _prioritize,
        "pause": _pause,
        "pause what runs": _pause_running,
        "resume": _resume,
        "cancel what is paused": _cancel_paused,
        **{f"retry what {state.value}": partial(_retry, state) for state in _RETRIED},
        "delete": _delete,
        **_following_moves(),
    }
    return MOVES | own


def _following_moves() -> dict[str, Move]:
    """Of jobs that follow others."""
    return {
        "submit what waits": _submit_waiting,
        "end what is waited for": _end_awaited,
        "complete what a step follows": _complete_root,
        "complete what a step cannot follow": _complete_expired_root,
    }


def _submitters_moves() -> dict[str, Move]:
    return {
        "set a priority": _prioritize,
        "pause": _pause,
        "resume": _resume,
        "cancel what is paused": _cancel_paused,
        **{f"retry what {state.value}": partial(_retry, state) for state in _RETRIED},
        "delete": _delete,
        **{f"delete what {verdict.value}": partial(_delete_left, verdict) for verdict in _ENDED},
        **_following_moves(),
    }


def _delete_left(verdict: Verdict, world: World, store: Store, job: str) -> None:
    """The gated day deletes one that left more."""
    claimed = claim_head(world.repo, ALICE)
    assert claimed is not None
    end(world.repo, claimed, verdict)
    delete(world.repo_over(store), job, by="ada")


def _meet_what_is_left(
    move: Move, wrapped: Callable[[Store], Store], meet: Callable[[World, Repository, str], None]
) -> None:
    """The mover dies after each of its requests; somebody else meets what it left."""
    for stopped_after in range(_STEPS_MAX):
        world = World()
        job = world.submit()
        mover = Actor(world.store, partial(_moved, move, world, job))
        alive = mover.step(stopped_after)
        mover.kill()
        meet(world, world.repo_over(wrapped(world.store)), job)
        if not alive:
            return
    raise AssertionError("the mover never ended")


def _moved(move: Move, world: World, job: str, store: Store) -> object:
    return move(world, store, job)


def _submit_twice(repo: Repository) -> None:
    request = make_request(["one", "two"], Spec(command=""), batch=True)
    for _ in range(2):
        submit(repo, run_id="twice", request=request, submitter="ada")


def _cancel_running(world: World, store: Store, job: str) -> None:
    repo = world.repo_over(store)
    claim_head(repo, ALICE)
    cancel(repo, job, by="ada")


def _fail(world: World, store: Store, job: str) -> None:
    repo = world.repo_over(store)
    claimed = claim_head(repo, ALICE)
    assert claimed is not None
    end(repo, claimed, Verdict.FAILED)


def _time_out(world: World, store: Store, job: str) -> None:
    repo = world.repo_over(store)
    claimed = claim_head(repo, ALICE)
    assert claimed is not None
    end(repo, claimed, Verdict.TIMED_OUT)


def _prioritize(world: World, store: Store, job: str) -> None:
    set_priority(world.repo_over(store), job, 5, by="ada")


def _claim_prioritized(world: World, store: Store, job: str) -> None:
    """It gets another priority while it is claimed, which its holder takes over."""

    def prioritize(operation: Operation, key: str) -> None:
        if key.startswith(keys.prefix(State.RUNNING)) and operation is Operation.CREATE:
            set_priority(world.repo, job, 5, by="ada")

    claimed = claim_head(world.repo_over(GuardedStore(store, before=prioritize)), ALICE)
    assert claimed is not None
    assert claimed.record.priority == 5


def _pause(world: World, store: Store, job: str) -> None:
    pause(world.repo_over(store), job, by="ada")


def _pause_running(world: World, store: Store, job: str) -> None:
    """Its holder gives the verdict."""
    repo = world.repo_over(store)
    claimed = claim_head(repo, ALICE)
    assert claimed is not None
    pause(repo, job, by="ada")
    end(repo, claimed, Verdict.PAUSED)


def _resume(world: World, store: Store, job: str) -> None:
    pause(world.repo, job, by="ada")
    resume(world.repo_over(store), job, by="ada")


def _cancel_paused(world: World, store: Store, job: str) -> None:
    pause(world.repo, job, by="ada")
    cancel(world.repo_over(store), job, by="ada")


def _retry(verdict: Verdict, world: World, store: Store, job: str) -> None:
    claimed = claim_head(world.repo, ALICE)
    assert claimed is not None
    end(world.repo, claimed, verdict)
    retry(world.repo_over(store), job, by="ada")


def _delete(world: World, store: Store, job: str) -> None:
    cancel(world.repo, job, by="ada")
    delete(world.repo_over(store), job, by="ada")


def _submit_waiting(world: World, store: Store, job: str) -> None:
    request = make_request(["one"], Spec(command="", after=[After(job_id=job)]), batch=False)
    submit(world.repo_over(store), run_id="waits", request=request, submitter="ada")


def _end_awaited(world: World, store: Store, job: str) -> None:
    _submit_waiting(world, world.store, job)
    end(world.repo_over(store), world.claimed_of(job))


def _complete_root(world: World, store: Store, job: str) -> None:
    """Its step takes the same code along."""
    with TemporaryDirectory() as folder:
        archive = Path(folder) / "archive"
        archive.write_bytes(b"x")
        _bring(world.repo, archive)
    steps = [Step(name="export", command="make")]
    root = world.submit(spec=Spec(command="", snapshot=_SNAPSHOT, then=steps))
    claimed = world.claimed_of(root)
    _leave_a_file(world, root)
    end(world.repo_over(store), claimed)


def _complete_expired_root(world: World, store: Store, job: str) -> None:
    """What it left is marked as gone: its step is not launched."""
    steps = [Step(name="export", command="make")]
    root = world.submit(spec=Spec(command="", then=steps))
    claimed = world.claimed_of(root)
    _leave_a_file(world, root)
    _mark(world, root)
    end(world.repo_over(store), claimed)


def _leave_a_file(world: World, job: str) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "result").write_bytes(b"42")
        publish(world.repo, job_id=job, epoch=1, folder=Path(folder), partial=False)


def _mark(world: World, job: str) -> None:
    mark = Expired(
        job_id=job,
        epoch=1,
        kind=Leftover.OUTPUTS,
        at=world.repo.now(),
        by="ada",
        rule="retention.outputs 30d",
        gone=True,
    )
    world.repo.create(mark.own_key(), mark)


def _let_go(requests: set[Request], *, apply: bool) -> None:
    """By age: what each of some jobs left, then the jobs; one of them is taken along by another."""
    world = World()
    first, second = world.submit(), world.submit()
    for job in (first, second):
        claimed = world.claimed_of(job)
        _leave_a_file(world, job)
        world.store.create(keys.log_segment(job, 1, 0), b"printed")
        world.store.create(keys.checkpoint_part(job, 1, 1, 1), b"part")
        world.end(claimed)
    wanted = Wanted("data", JobOutput(first, ""))
    taken = pin_input(world.repo, wanted, job_named=lambda name: name, tell=lambda _: None)
    world.submit(spec=Spec(command="", inputs=[taken]))
    world.clock.sleep(40 * 86_400)
    store = RecordingStore(world.store, requests)
    ages = {Leftover.JOB: 60 * 86_400, **dict.fromkeys(PARTS, 30 * 86_400)}
    parts = RetentionRules(ages, keep_newest=0)
    list(Retention(world.repo_over(store), parts, by="ada").outcomes(apply=apply, jobs_max=9))
    _mark(world, second)
    with pytest.raises(Refused):
        check_there(world.repo_over(store), world.find(second).record, Leftover.OUTPUTS)
    world.clock.sleep(40 * 86_400)
    list(Retention(world.repo_over(store), parts, by="ada").outcomes(apply=apply, jobs_max=9))
    assert (find_job(world.repo, second) is None) == apply


def _take_along(requests: set[Request]) -> None:
    """By a submission, and by a schedule; and no more."""
    world = World()
    job = world.submit()
    claimed = world.claimed_of(job)
    _leave_a_file(world, job)
    world.end(claimed)
    repo = world.repo_over(RecordingStore(world.store, requests))
    taken = pin_input(
        repo, Wanted("data", JobOutput(job, "")), job_named=lambda name: name, tell=lambda _: None
    )
    request = make_request(["true"], Spec(command="", inputs=[taken]), batch=False)
    base = submit(repo, run_id="taking", request=request, submitter="ada").base_id
    cancel(repo, base, by="ada")
    delete(repo, base, by="ada")
    assert not world.names(keys.taken_folder(job))


def _beat(world: World, store: Store, job: str) -> None:
    repo = world.repo_over(store)
    claimed = claim_head(repo, ALICE)
    assert claimed is not None
    assert LifeSigns(repo, claimed.record).beat(Phase.RUNNING, world.clock.now())


def _settle_late(requests: set[Request]) -> None:
    """A settler looks at a loss and sleeps. Meanwhile the job is claimed again, and a cancel that
    had looked before is asked of the epoch that was lost."""
    world = World()
    job = world.submit()
    lost = world.start()
    give_verdict(
        world.repo, lost.record, Ending(verdict=Verdict.LOST, ended_at=world.repo.now(), by="x")
    )
    recording = RecordingStore(world.store, requests)
    settler = Actor(recording, lambda store: settle(world.repo_over(store), job, 1))
    settler.step()
    settle(world.repo, job, 1)
    world.start(BOB)
    ask(world.repo, job, 1, Intent.CANCEL, by="ada")
    settler.finish()
    assert settler.error is None
    asks = world.repo.find_asks(job, 2)
    assert asks is not None
    assert asks.value.cancel


def _train(world: World) -> str:
    """A training that has saved and is over; nobody has settled it yet."""
    job = world.submit(spec=Spec(command="", type=JobType.TRAIN))
    claimed = world.start()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "it").mkdir()
        (Path(folder) / "it" / "model").write_bytes(b"weights")
        saving.save(world.repo, job_id=job, epoch=1, sequence=1, folder=Path(folder) / "it")
    now = world.repo.now()
    ending = Ending(verdict=Verdict.FAILED, started_at=now, ended_at=now, by="x")
    give_verdict(world.repo, claimed.record, ending)
    return job


def _end_a_training(
    requests: set[Request], meet: Callable[[World, Repository, str], object]
) -> None:
    world = World()
    job = _train(world)
    meet(world, world.repo_over(RecordingStore(world.store, requests)), job)
    assert world.has(keys.policy(job))


def _tell(requests: set[Request], meet: Callable[[World, Repository, str], object]) -> None:
    """A job that is to be told of is over; nobody has settled it yet."""
    world = World()
    job = world.submit(spec=Spec(command="", notify=["team:failed"]))
    claimed = world.start()
    now = world.repo.now()
    ending = Ending(verdict=Verdict.FAILED, started_at=now, ended_at=now, by="x")
    give_verdict(world.repo, claimed.record, ending)
    meet(world, world.repo_over(RecordingStore(world.store, requests)), job)
    assert world.has(keys.notice(job, 1, "failed", "team"))


class _Messenger:
    """One channel takes what it is given, the other one never does."""

    channels = frozenset(("team", "dead"))

    def send(self, channel: str, body: bytes) -> None:
        if channel == "dead":
            raise SendFailed("it answered with HTTP 500")


def _not_told(world: World, repo: Repository) -> str:
    """A job with a notice that was sent, and one that was given up."""
    rules = ["team:running,completed,pipeline", "dead:completed"]
    steps = [parse_step("eval=check")]
    job = world.submit(spec=Spec(command="", notify=rules, then=steps))
    for _ in range(2):
        world.end(world.start())
    deliveries = Deliveries(repo, _Messenger())
    for _ in range(5):
        deliveries.turn()
        world.clock.sleep(GIVE_UP_SECONDS / 4)
    assert undelivered(world.repo, job_id=job, limit=1)
    return job


def _send_notices(requests: set[Request]) -> None:
    world = World()
    repo = world.repo_over(RecordingStore(world.store, requests))
    job = _not_told(world, repo)
    world.clock.sleep(FORGET_SECONDS)
    Deliveries(repo, _Messenger()).turn()
    assert not undelivered(world.repo, job_id=job, limit=1)


def _hear_of_what_was_not_told(requests: set[Request]) -> None:
    world = World()
    job = _not_told(world, world.repo)
    repo = world.repo_over(RecordingStore(world.store, requests))
    assert events_of(repo, job).events[-1].kind is EventKind.NOT_TOLD


def _take_a_policy(requests: set[Request]) -> None:
    world = World()
    job = _train(world)
    settle(world.repo, job, 1)
    repo = world.repo_over(RecordingStore(world.store, requests))
    assert newest_policies(repo, limit=5).seals
    seal, _, save = find_save(repo, f"policy_{job}:latest")
    with tempfile.TemporaryDirectory() as folder:
        download_save(repo, seal, save, Path(folder))


def _find_what_was_lost(tick_of: Callable[[Repository], Tick], requests: set[Request]) -> None:
    """A store without delete by version can lose a record. The sweep finds the job again."""
    world = World()
    job = world.submit()
    world.start()
    running = keys.record(State.RUNNING, job)
    world.store.delete(running, None)
    tick = tick_of(world.repo_over(RecordingStore(world.store, requests)))
    for _ in range(10 * _TICKS):
        tick()
        world.clock.sleep(TICK)
        if world.names(keys.cells(job)) != [keys.claim_cell(job, 1)]:
            return
    raise AssertionError("nobody found it")


def _open(requests: set[Request]) -> None:
    """What every program does first."""
    read_deployment(RecordingStore(World().store, requests))


def _read_settings(requests: set[Request]) -> None:
    world = World()
    read_settings(world.repo_over(RecordingStore(world.store, requests)))


def _look_around(world: World, repo: Repository, job: str) -> None:
    newest(repo, limit=10)
    find_job(repo, job)
    with suppress(NotFound):
        story(repo, job)


def _coordinate(world: World, repo: Repository, job: str) -> None:
    coordinator = Coordinator(repo, holder="coordinator@box:1")
    _let_pass(world, coordinator.tick)
    stop = world.tasks.event()
    stop.set()
    coordinator.run(stop)


def _assign(requests: set[Request]) -> None:
    """Which host should get which job, by what is stated and by what was measured; written first,
    and replaced."""
    world = World()
    world.submit(spec=Spec(command="", runtime_seconds_estimate=60))
    Agent(world).broadcast()
    use = Use("abcdefghijklmnop", 1, "ada", None, ended_ms=world.repo.now_ms(), wall_ms=9000)
    measured = replace(use, whole=True, model="resnet", hardware="cpu")
    assigner = Assigner(world.repo_over(RecordingStore(world.store, requests)), by="coordinator")
    for epoch in (1, 2):
        world.store.create(use_key(replace(measured, epoch=epoch)), b"")
        world.submit(spec=Spec(command="", model="bert"))
        assigner.turn()
        world.clock.sleep(60)
        Agent(world).broadcast()


_ONE_AT_A_TIME = DeploymentSettings(groups=GroupSettings(limits={"licences": 1}))
_LICENSED = Spec(command="", group="licences")


def _limited_worlds() -> Iterator[World]:
    """On stores of both kinds: those that delete only what has not changed, and the others."""
    for conditional_delete in (True, False):
        world = World()
        proof = world.deployment.proof.evolve(conditional_delete=conditional_delete)
        world.deployment = world.deployment.evolve(proof=proof)
        world.repo = world.repo_over(world.store)
        world.submit(spec=_LICENSED)
        yield world


def _take_a_place(requests: set[Request]) -> None:
    """Under a limit; who finds it full sees who has the places."""
    for world in _limited_worlds():
        repo = world.repo_over(RecordingStore(world.store, requests))
        claimed = claim(repo, world.entries()[0], ALICE, _ONE_AT_A_TIME)
        assert claimed is not None
        _end_under_a_limit(world, claimed, repo)


def _give_a_place_back(requests: set[Request]) -> None:
    """Whoever meets the end of a job that ran under a limit."""
    for world in _limited_worlds():
        claimed = claim(world.repo, world.entries()[0], ALICE, _ONE_AT_A_TIME)
        assert claimed is not None
        _end_under_a_limit(world, claimed, world.repo_over(RecordingStore(world.store, requests)))


def _end_under_a_limit(world: World, claimed: Claimed, repo: Repository) -> None:
    end = Ending(
        verdict=Verdict.COMPLETED, ended_at=world.repo.now(), by=ALICE.consumer, exit_code=0
    )
    give_verdict(world.repo, claimed.record, end)
    settle(repo, claimed.record.id, claimed.record.epoch)


def _see_who_has_the_places(requests: set[Request]) -> None:
    world = next(_limited_worlds())
    world.store.create(keys.SETTINGS, _ONE_AT_A_TIME.encode())
    waiting = world.submit(spec=_LICENSED)
    assert claim(world.repo, world.entries()[0], ALICE, _ONE_AT_A_TIME) is not None
    repo = world.repo_over(RecordingStore(world.store, requests))
    assert list(LimitSight(repo).gates(world.record(State.QUEUED, waiting)))


def _make_room(requests: set[Request]) -> None:
    """For a job that finds none; another host may keep some already."""
    world = World()
    repo = world.repo_over(RecordingStore(world.store, requests))
    rooms = Rooms(repo, consumer=ALICE.consumer, incarnation=ALICE.incarnation)
    job = world.submit()
    assert rooms.keep(job) is not None
    kept = rooms.keep(job)
    assert kept is not None
    rooms.give_up(kept)


_AT_ONCE = Pace(names_min=1)


def _use(world: World, epoch: int) -> None:
    use = Use("abcdefghijklmnop", epoch, "ada", None, ended_ms=world.repo.now_ms(), wall_ms=9000)
    world.store.create(use_key(use), b"")


def _compact(requests: set[Request]) -> None:
    """Twice, so that a segment is taken over; after a rival who was killed, whose segment is
    swept, and beside one who is faster."""
    world = World()
    for kill_at in (5, None):
        _use(world, 1 if kill_at else 2)
        store: Store = RecordingStore(world.store, requests)
        if kill_at is not None:
            store = mortal(store, at=kill_at, applied=False)
        with suppress(Crash):
            Compaction(world.repo_over(store), by="coordinator", pace=_AT_ONCE).turns(60)
        world.clock.sleep(31 * LEASE)
    for epoch in (3, 4):
        _use(world, epoch)
        repo = world.repo_over(RecordingStore(world.store, requests))
        Compaction(repo, by="coordinator", pace=_AT_ONCE).turns(60)


def _keep_rows(requests: set[Request]) -> None:
    """Of lists; first, and after something ended."""
    world = World()
    kept = RestRowsKept(world.repo_over(RecordingStore(world.store, requests)), missing_max=1)
    for _ in range(2):
        job = _train(world)
        settle(world.repo, job, 1)
        assert kept.turn() == 1


def _read_the_ledger(requests: set[Request]) -> None:
    world = World()
    _use(world, 1)
    Compaction(world.repo, by="coordinator", pace=_AT_ONCE).turns(60)
    repo = world.repo_over(RecordingStore(world.store, requests))
    assert len(list(read_uses(Ledger(repo), repo, from_ms=0).uses())) == 1
    assert look_at_ledger(repo).rows == 1


def _rebuild_the_ledger(requests: set[Request]) -> None:
    """One that is there, and one of which nothing is."""
    world = World()
    world.submit()
    now = world.repo.now()
    ran = Ran(began_at=now, ended_at=now)
    ending = Ending(verdict=Verdict.COMPLETED, started_at=now, ended_at=now, ran=ran, by="alice")
    give_verdict(world.repo, world.start().record, ending)
    repo = world.repo_over(RecordingStore(world.store, requests))
    for _ in range(2):
        Rebuild(repo, by="ada").run()
    assert look_at_ledger(repo).rows == 1


def _read_hints(requests: set[Request]) -> None:
    world = World()
    repo = world.repo_over(RecordingStore(world.store, requests))
    read_assignments(repo)
    read_estimates(repo)
    read_budgets(repo)


def _keep_budgets(requests: set[Request]) -> None:
    """First, and again."""
    world = World()
    change_setting(world.repo, "budgets.rules", ["all:1usd/day"], by="operator")
    repo = world.repo_over(RecordingStore(world.store, requests))
    keeping = BudgetKeeping(repo, by="coordinator", catalog=NO_CATALOG)
    for _ in range(2):
        keeping.turn()
    assert read_budgets(world.repo) is not None


def _heed_budgets(requests: set[Request]) -> None:
    world = World()
    change_setting(world.repo, "budgets.rules", ["all:1usd/day"], by="operator")
    repo = world.repo_over(RecordingStore(world.store, requests))
    Rules(repo, now=repo.now).refresh_when_due()


def _heed_assignments(requests: set[Request]) -> None:
    world = World()
    repo = world.repo_over(RecordingStore(world.store, requests))
    Guidance(repo, consumer=ALICE.consumer, incarnation=ALICE.incarnation).refresh_when_due()


def _schedule(world: World, name: str, **stated: Any) -> Schedule:
    """One that is due each minute."""
    request = make_request(["true"], Spec(command="", **stated), batch=False)
    now = world.clock.now()
    return Schedule(
        name=name,
        nonce="0",
        cron="* * * * *",
        overlap=OverlapPolicy.REPLACE,
        request=request,
        created_at=now,
        created_by="ada",
        changed_at=now,
        changed_by="ada",
    )


def _keep_a_schedule(requests: set[Request]) -> None:
    """From its making to its end, with what its jobs take along; and one that a coordinator died
    over."""
    world = World()
    repo = world.repo_over(RecordingStore(world.store, requests))
    with TemporaryDirectory() as folder:
        archive = Path(folder) / "archive"
        archive.write_bytes(b"x")
        _bring(world.repo, archive)
    schedules.create(repo, _schedule(world, "nightly", snapshot=_SNAPSHOT))
    schedules.pause(repo, "nightly", by="ada")
    schedules.resume(repo, "nightly", by="ada")
    schedules.run_now(repo, "nightly", by="ada")
    world.end(world.start())
    _see_schedules(repo)
    schedules.remove(repo, "nightly", by="ada")
    schedules.create(repo, _schedule(world, "nightly"))
    with pytest.raises(Refused):
        schedules.create(repo, _schedule(world, "nightly", snapshot=_SNAPSHOT))


def _look_at_schedules(requests: set[Request]) -> None:
    world = World()
    schedules.create(world.repo, _schedule(world, "nightly"))
    schedules.run_now(world.repo, "nightly", by="ada")
    _see_schedules(world.repo_over(RecordingStore(world.store, requests)))


def _see_schedules(repo: Repository) -> None:
    schedules.list_schedules(repo, limit=10)
    schedule = schedules.find_schedule(repo, schedules.schedule_named(repo, "night"))
    schedules.history(repo, schedule, limit=10)


def _fire(tick_of: Callable[[Repository], Tick], requests: set[Request]) -> None:
    """What is due takes the place of what waits, and of what runs."""
    world = World()
    with TemporaryDirectory() as folder:
        archive = Path(folder) / "archive"
        archive.write_bytes(b"x")
        _bring(world.repo, archive)
    schedules.create(world.repo, _schedule(world, "nightly", snapshot=_SNAPSHOT))
    schedules.create(world.repo, _schedule(world, "busy"))
    tick = tick_of(world.repo_over(RecordingStore(world.store, requests)))
    for _ in range(_TICKS):
        tick()
        world.clock.sleep(TICK)
        claimed = world.claim()
        if claimed is not None and claimed.record.run_id.startswith("nightly"):
            world.end(claimed)
    assert len(world.names(keys.runs_of_schedule("nightly"))) > 2
    assert world.names(keys.runs_of_schedule("busy"))
    for name in ("nightly", "busy"):
        schedules.remove(world.repo, name, by="ada")
    world.clock.sleep(REMOVED_KEPT.total_seconds())
    for _ in range(_TICKS):
        tick()
        world.clock.sleep(TICK)
    assert not world.names(keys.SCHEDULES)


def _upkeep(world: World, repo: Repository, job: str) -> None:
    _let_pass(world, _upkeep_of(repo).turn_when_due)


def _claim(world: World, repo: Repository, job: str) -> None:
    claim_head(repo, ALICE)


def _upkeep_of(repo: Repository) -> Upkeep:
    return Upkeep(repo, by="local@host-a")


def _passes_of(repo: Repository) -> Tick:
    return Passes(repo, by="coordinator").tick


def _let_pass(world: World, tick: Tick) -> None:
    for _ in range(_TICKS):
        tick()
        world.clock.sleep(TICK)


def _follow(world: World, repo: Repository, job: str) -> None:
    note = FollowerNote(repo, job)
    for _ in range(2):
        note.renew_when_due()
        world.clock.sleep(RENEWAL_SECONDS)


def _cancel_of_a_silent_holder(world: World, repo: Repository) -> None:
    """As the command line does: it asks, waits, and judges."""
    job = world.submit()
    held = world.claimed_of(job)
    assert LifeSigns(world.repo, held.record).beat(Phase.RUNNING, world.clock.now())
    cancel(repo, job, by="ada")
    reaper = Reaper(repo, by="ada")
    _let_pass(world, partial(reaper.turn_for, job))
    found = find_job(repo, job)
    assert found is not None
    assert found.state.at_rest


def _take_code_along(requests: set[Request]) -> None:
    """Brought, while another one brings it too; named, while somebody removes it; brought again."""
    with TemporaryDirectory() as folder:
        archive = Path(folder) / "archive"
        archive.write_bytes(b"x")
        world = World()
        repo = world.repo_over(RecordingStore(world.store, requests))
        rival = Actor(world.store, lambda store: _bring(world.repo_over(store), archive))
        rival.step()
        _bring(repo, archive)
        rival.finish()
        slow = Actor(
            RecordingStore(world.store, requests),
            lambda store: _bring(world.repo_over(store), archive),
        )
        world.store.delete(keys.snapshot(_SNAPSHOT.digest), None)
        slow.step(2)
        _bring(world.repo, archive)
        slow.finish()
        remover = Actor(
            world.store,
            lambda store: snapshots.remove_unnamed(world.repo_over(store), _SNAPSHOT.digest),
        )
        remover.step(3)
        request = make_request(["one"], Spec(command="", snapshot=_SNAPSHOT), batch=False)
        submit(repo, run_id="with-code", request=request, submitter="ada")
        remover.finish()


def _fetch_code(requests: set[Request], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / "archive"
    archive.write_bytes(b"x")
    world = World()
    _bring(world.repo, archive)
    repo = world.repo_over(RecordingStore(world.store, requests))

    def fetch(key: str, path: Path, _: int) -> FileDigest:
        return repo.store.download(key, path)

    snapshots.download(repo, _SNAPSHOT.digest, folder / "fetched", fetch)


def _bring(repo: Repository, archive: Path) -> None:
    snapshots.ensure(repo, _SNAPSHOT, archive)


def _look_for_what_was_lost(world: World, repo: Repository) -> None:
    """A running record that is gone is put back by who misses it."""
    job = world.submit()
    world.claimed_of(job)
    world.store.delete(keys.record(State.RUNNING, job), None)
    assert find_job(repo, job) is not None
    assert world.has(keys.record(State.RUNNING, job))


def _forget_an_agent(tick_of: Callable[[Repository], Tick], requests: set[Request]) -> None:
    world = World()
    capacity = Capacity(
        consumer="gone@box",
        incarnation="i1",
        host="box",
        at=world.repo.now(),
        counter=1,
        broadcast_seconds=15,
        cpu_total=1,
        cpu_free=1,
        memory_total_gb=1,
        memory_free_gb=1,
        disk_free_gb=1,
        version="1",
        stopped=True,
    )
    write_capacity(world.repo, capacity)
    repo = world.repo_over(RecordingStore(world.store, requests))
    world.clock.sleep(timedelta(days=2).total_seconds())
    _let_pass(world, tick_of(repo))
    assert not world.names(keys.CAPACITY)


def _refuse_writes(operation: Operation, key: str) -> None:
    if operation in WRITES:
        raise Denied(key, "AccessDenied")


# --- a job on its host --------------------------------------------------------------------


class RecordedScene(Scene):
    """Whose supervisors' requests are noted."""

    def __init__(self, folder: Path, requests: set[Request]) -> None:
        super().__init__(folder, Spec(command="", verify="check", output_uri="stado://copies"))
        self._recorded = requests
        self.script(Script(seconds=50, files=_FILES))
        self.script(Script(seconds=5), "check")

    def store(self, *args: object, **options: object) -> Store:
        return RecordingStore(super().store(*args, **options), self._recorded)  # type: ignore[arg-type]


def _completes(scene: RecordedScene) -> None:
    scene.run(scene.claim())


def _is_cancelled(scene: RecordedScene) -> None:
    scene.clock.at(20, lambda: cancel(scene.world.repo, scene.job, by="ada"))
    scene.run(scene.claim())


def _goes_on_from_a_checkpoint(scene: RecordedScene) -> None:
    """Its command writes four of them, of which two are kept; then its host is gone."""
    scene.script(Script(seconds=400, files=_FILES))
    for number in range(1, 5):
        scene.clock.at(60.0 * number, partial(_write_checkpoint, scene, number))
    claimed = scene.claim()
    scene.clock.at(390, lambda: _kill(scene))
    scene.run(claimed)
    scene.world.lose(Reaper(scene.world.repo, by="coordinator"))
    scene.entry = scene.world.entries()[0]
    scene.script(Script(seconds=10))
    scene.run(scene.claim())


def _trains(scene: RecordedScene) -> None:
    """It is fenced at its last loss, when its policy is sealed, and has something to say later."""
    scene.job = scene.world.submit(
        "train", spec=Spec(command="", type=JobType.TRAIN, max_lease_losses=0)
    )
    scene.entry = next(one for one in scene.world.entries() if one.job_id == scene.job)
    scene.clock.at(scene.clock.monotonic() + 40, lambda: _end_by_loss(scene))
    scene.run(scene.claim())


def _end_by_loss(scene: RecordedScene) -> None:
    scene.seal()
    record = scene.world.find(scene.job).record
    now = scene.world.repo.now()
    ending = Ending(verdict=Verdict.FAILED, started_at=now, ended_at=now, by="coordinator")
    give_verdict(scene.world.repo, record, ending)
    settle(scene.world.repo, scene.job, 1)


def _kill(scene: RecordedScene) -> None:
    """The supervisor that was forked last."""
    scene.processes.forked[-1].kill()


def _write_checkpoint(scene: RecordedScene, number: int) -> None:
    folder = scene.folder.workspace(scene.job, 1).checkpoints
    (folder / "model").write_bytes(b"weights" * number)


def _is_adopted(scene: RecordedScene) -> None:
    scene.clock.at(40, scene.give_back)
    scene.run(scene.claim())


def _is_late(scene: RecordedScene) -> None:
    scene.clock.at(40, scene.give_to_bob)
    scene.run(scene.claim())


def _is_sealed_and_cancelled(scene: RecordedScene) -> None:
    def cancel_and_seal() -> None:
        cancel(scene.world.repo, scene.job, by="ada")
        scene.seal()

    scene.clock.at(31, cancel_and_seal)
    scene.run(scene.claim())


def _is_followed(scene: RecordedScene) -> None:
    """It is old enough to print more often than is shipped without."""
    FollowerNote(scene.world.repo, scene.job).renew_when_due()
    for second in range(25, 45):
        scene.clock.at(second, lambda: scene.processes.executions[0].process.print(b"y\n"))
    scene.run(scene.claim())


def _prints_more_than_is_kept(scene: RecordedScene) -> None:
    scene.log_limit = LogLimit(16_000)
    claimed = scene.claim()
    line = b"y" * 99 + b"\n"
    for second in range(1, 15):
        scene.clock.at(second, lambda: scene.processes.executions[0].process.print(line * 100))
    scene.run(claimed)


_LIVES: tuple[Callable[[RecordedScene], None], ...] = (
    _completes,
    _is_cancelled,
    _goes_on_from_a_checkpoint,
    _is_adopted,
    _is_late,
    _is_sealed_and_cancelled,
    _is_followed,
    _prints_more_than_is_kept,
    _trains,
)
