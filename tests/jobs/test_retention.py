"""What ended jobs left goes by age, and never what somebody names."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from stado.core import keys, moves
from stado.core.inputs import parse_wanted
from stado.core.pipelines import step_run_id
from stado.core.records import Ending
from stado.core.retention import (
    PARTS,
    Keeps,
    RetentionSettings,
    Rules,
    rules_of,
)
from stado.core.schedules import Schedule
from stado.core.spec import Spec, Step, make_request
from stado.core.states import JobType, Leftover, State, Verdict
from stado.errors import NotFound, Refused, Unreadable
from stado.jobs import outputs, schedules
from stado.jobs.artifacts import publish, read_artifact
from stado.jobs.changes import cancel, rerun, retry
from stado.jobs.downloads import download
from stado.jobs.endings import give_verdict, project, settle
from stado.jobs.expired import (
    LOG_EXPIRED,
    OUTPUTS_EXPIRED,
    check_there,
    find_expired,
    going_text,
    gone_of,
    told_expired,
)
from stado.jobs.expiring import Holding, expire
from stado.jobs.finding import was_deleted
from stado.jobs.inputs import pieces_of, pin_input
from stado.jobs.retention import Outcome, Retention, check_unchanged
from stado.jobs.settings import change_setting
from stado.jobs.submit import submit
from stado.storage.observe import CountingStore, Operation
from stado.storage.port import Store
from tests.jobs.actors import Actor, Crash, GuardedStore, mortal
from tests.jobs.test_artifacts import FILES, left, published
from tests.jobs.test_policies import Folder
from tests.jobs.world import World

DAY = 86_400
ALL = RetentionSettings(
    logs=30 * DAY, outputs=30 * DAY, checkpoints=30 * DAY, jobs=None, keep_newest=0
)
JOBS = RetentionSettings(jobs=30 * DAY, keep_newest=0)


def only(kind: Leftover, days: int = 30, newest: int = 0) -> Rules:
    return Rules(ages={kind: days * DAY}, keep_newest=newest)


def applied(
    world: World, rules: Rules, *, store: Store | None = None, apply: bool = True, most: int = 10**6
) -> list[Outcome]:
    repo = world.repo if store is None else world.repo_over(store)
    walk = Retention(repo, rules, by="ada").outcomes(apply=apply, jobs_max=most)
    return [outcome for some in walk for outcome in some]


def keeps(outcomes: list[Outcome]) -> dict[tuple[str, Leftover], Keeps | None]:
    return {(one.job_id, one.kind): one.keeps for one in outcomes}


def ended(world: World, folder: Path, verdict: Verdict = Verdict.COMPLETED, **spec: object) -> str:
    """A job at rest that left a log, files and a checkpoint."""
    job = left(world, folder, verdict=verdict) if not spec else _of_spec(world, verdict, **spec)
    world.store.create(keys.log_segment(job, 1, 0), b"printed\n")
    world.store.create(keys.log_segment(job, 1, 8), b"more\n")
    Folder(world, folder / "saves" / job, job).save()
    return job


def _of_spec(world: World, verdict: Verdict, **spec: object) -> str:
    job = world.submit(spec=Spec(command="", **spec))  # type: ignore[arg-type]
    world.end(world.claimed_of(job), verdict)
    return job


def later(world: World, days: float = 31) -> None:
    world.clock.sleep(days * DAY)


def files_of(world: World, job: str) -> dict[Leftover, list[str]]:
    """What there is of each kind, other marks aside."""
    output = [keys.output_file(job, 1, path) for path in FILES]
    return {
        Leftover.LOG: world.names(keys.log_folder(job)),
        Leftover.OUTPUTS: [key for key in output if world.has(key)],
        Leftover.CHECKPOINTS: world.names(keys.checkpoints_folder(job)),
    }


def record(world: World, job: str) -> State:
    (state,) = world.states(job)
    return state


# --- rules -----------------------------------------------------------------------------------


def test_nothing_goes_and_nothing_is_asked_while_no_rule_is_set(
    world: World, tmp_path: Path
) -> None:
    """R270"""
    job = ended(world, tmp_path)
    later(world, 3000)
    store = CountingStore(world.store, world.tasks)
    assert applied(world, rules_of(RetentionSettings()), store=store) == []
    assert store.snapshot().of() == 0
    assert all(files_of(world, job).values())


@pytest.mark.parametrize("kind", PARTS)
def test_each_kind_goes_by_its_own_age_and_alone(
    world: World, tmp_path: Path, kind: Leftover
) -> None:
    """R270: what is younger stays, and so does all else of the job."""
    old = ended(world, tmp_path)
    later(world, 20)
    young = ended(world, tmp_path)
    later(world, 11)
    before = files_of(world, old)
    assert keeps(applied(world, only(kind), apply=False)) == {(old, kind): None}
    assert files_of(world, old) == before, "a look deletes nothing"
    (outcome,) = applied(world, only(kind))
    assert outcome.objects >= len(before[kind])
    assert outcome.size > 0
    assert {**before, kind: []} == files_of(world, old)
    assert all(files_of(world, young).values())
    assert applied(world, only(kind)) == [], "what has gone is not looked at again"
    assert record(world, old) is State.COMPLETED


def test_the_newest_jobs_are_not_touched(world: World, tmp_path: Path) -> None:
    """R271"""
    jobs = []
    for _ in range(4):
        jobs.append(ended(world, tmp_path))
        later(world, 1)
    later(world)
    found = keeps(applied(world, only(Leftover.LOG, newest=2)))
    assert [found[job, Leftover.LOG] for job in jobs] == [None, None, Keeps.NEWEST, Keeps.NEWEST]
    assert [bool(files_of(world, job)[Leftover.LOG]) for job in jobs] == [False, False, True, True]


def test_a_job_goes_with_all_that_it_left_and_its_run_id_stays_taken(
    world: World, tmp_path: Path
) -> None:
    """R270"""
    job = ended(world, tmp_path)
    later(world)
    applied(world, only(Leftover.LOG))
    (outcome,) = applied(world, rules_of(JOBS))
    assert (outcome.kind, outcome.keeps) == (Leftover.JOB, None)
    assert was_deleted(world.repo, job)
    assert not any(files_of(world, job).values())
    assert world.states(job) == set()
    assert world.names(keys.expired_folder("log")) == []
    request = make_request(["true"], Spec(command=""), batch=False)
    with pytest.raises(Refused) as error:
        submit(world.repo, run_id="run-1", request=request, submitter="ada")
    assert error.value.code == "job_deleted"


def test_of_so_many_jobs_those_that_stay_do_not_count(world: World, tmp_path: Path) -> None:
    """So that each run gets further, however much is kept."""
    jobs = [ended(world, tmp_path) for _ in range(3)]
    kept = [ended(world, tmp_path) for _ in range(3)]
    for job in kept:
        published(world, job)
    later(world)
    assert sum(one.keeps is None for one in applied(world, only(Leftover.OUTPUTS), most=2)) == 2
    assert sum(one.keeps is None for one in applied(world, only(Leftover.OUTPUTS), most=2)) == 1
    assert not any(files_of(world, job)[Leftover.OUTPUTS] for job in jobs)


@pytest.mark.parametrize("apply", [False, True])
def test_jobs_that_left_nothing_are_bounded_apart(
    world: World, tmp_path: Path, apply: bool
) -> None:
    """So that a look finds what goes behind them, and says where it ended before."""
    job = ended(world, tmp_path)
    later(world, 1)
    for _ in range(5):
        world.end(world.claimed_of(world.submit()))
    later(world)
    assert any(one.goes for one in applied(world, only(Leftover.LOG), apply=False, most=3))
    short = Retention(world.repo, only(Leftover.LOG), by="ada", empty_max=3)
    found = [one for some in short.outcomes(apply=apply, jobs_max=9) for one in some]
    assert short.is_cut
    assert not any(one.goes for one in found)
    assert files_of(world, job)[Leftover.LOG]


# --- what keeps ------------------------------------------------------------------------------


def test_what_an_artifact_names_stays(world: World, tmp_path: Path) -> None:
    """R272"""
    job = ended(world, tmp_path)
    published(world, job)
    later(world)
    for rules in (only(Leftover.OUTPUTS), rules_of(JOBS)):
        (kind,) = rules.ages
        assert keeps(applied(world, rules)) == {(job, kind): Keeps.PUBLISHED}
    assert all(files_of(world, job).values())


def _taking(world: World, job: str) -> Spec:
    wanted = pin_input(
        world.repo, parse_wanted(f"data={job}"), job_named=lambda name: name, tell=lambda _: None
    )
    return Spec(command="", inputs=[wanted])


@pytest.mark.parametrize(
    "verdict", [None, Verdict.FAILED, Verdict.CANCELLED, Verdict.TIMED_OUT, Verdict.PAUSED]
)
def test_what_a_job_takes_along_that_may_still_start_stays(
    world: World, tmp_path: Path, verdict: Verdict | None
) -> None:
    """R272: also where it may be retried."""
    job = ended(world, tmp_path)
    child = world.submit(spec=_taking(world, job))
    if verdict is not None:
        world.end(world.claimed_of(child), verdict)
    later(world)
    rules = only(Leftover.OUTPUTS)
    assert keeps(applied(world, rules))[job, Leftover.OUTPUTS] is Keeps.TAKEN_ALONG
    found = keeps(applied(world, rules_of(JOBS), apply=False))
    assert found[job, Leftover.JOB] is Keeps.TAKEN_ALONG
    if verdict in (Verdict.FAILED, Verdict.CANCELLED, Verdict.TIMED_OUT):
        assert retry(world.repo, child, by="ada", note=None)


def test_it_goes_once_all_that_take_it_along_have_completed_or_are_deleted(
    world: World, tmp_path: Path
) -> None:
    """R272: of a batch each job counts; one that is completed and deleted counts once."""
    job = ended(world, tmp_path)
    batch = world.submit("one", "two", spec=_taking(world, job))
    world.end(world.claimed_of(f"{batch}-1"))
    world.end(world.claimed_of(f"{batch}-2"), Verdict.FAILED)
    later(world)
    assert keeps(applied(world, only(Leftover.OUTPUTS)))[job, Leftover.OUTPUTS] is (
        Keeps.TAKEN_ALONG
    )
    stored = world.repo.find_run("run-2")
    assert stored is not None
    noted = stored.value.evolve(deleted=[1])  # as whoever deletes it notes before the record goes
    world.store.replace(keys.run("run-2"), noted.encode(), stored.version)
    assert keeps(applied(world, only(Leftover.OUTPUTS)))[job, Leftover.OUTPUTS] is (
        Keeps.TAKEN_ALONG
    )
    retry(world.repo, f"{batch}-2", by="ada", note=None)
    world.end(world.claimed_of(f"{batch}-2"))
    assert keeps(applied(world, only(Leftover.OUTPUTS)))[job, Leftover.OUTPUTS] is None


def test_what_a_schedule_takes_along_stays_until_it_is_removed(
    world: World, tmp_path: Path
) -> None:
    """R272"""
    job = ended(world, tmp_path)
    request = make_request(["true"], _taking(world, job), batch=False)
    now = world.repo.now()
    schedules.create(
        world.repo,
        Schedule(
            name="nightly",
            cron="0 3 * * *",
            zone="UTC",
            request=request,
            created_at=now,
            created_by="ada",
            changed_at=now,
            changed_by="ada",
            nonce="",
        ),
    )
    later(world)
    rules = only(Leftover.OUTPUTS)
    assert keeps(applied(world, rules)) == {(job, Leftover.OUTPUTS): Keeps.TAKEN_ALONG}
    schedules.remove(world.repo, "nightly", by="ada")
    assert keeps(applied(world, rules)) == {(job, Leftover.OUTPUTS): None}


def test_checkpoints_of_a_job_that_may_be_retried_stay_and_so_do_those_of_policies(
    world: World, tmp_path: Path
) -> None:
    """R272"""
    failed = ended(world, tmp_path, Verdict.FAILED)
    train = world.submit(spec=Spec(command="", type=JobType.TRAIN))
    claimed = world.claimed_of(train)
    saves = Folder(world, tmp_path / "train", train)
    kept = [saves.save(value) for value in (3.0, 1.0, 2.0)]
    world.end(claimed)
    later(world)
    found = keeps(applied(world, only(Leftover.CHECKPOINTS)))
    assert found[failed, Leftover.CHECKPOINTS] is Keeps.MAY_BE_RETRIED
    assert found[train, Leftover.CHECKPOINTS] is None
    assert world.names(keys.checkpoints_folder(failed))
    there = set(world.names(keys.checkpoints_folder(train)))
    for save in (kept[0], kept[2]):  # the best, and the latest
        assert {save.ref.manifest, *(p for f in save.checkpoint.files for p in f.parts)} <= there
    assert kept[1].ref.manifest not in there


def test_a_job_that_goes_on_is_left_alone(world: World, tmp_path: Path) -> None:
    """R272: what a slow writer left under a prefix at rest says nothing."""
    job = ended(world, tmp_path, Verdict.FAILED)
    stale = world.record(State.FAILED, job)
    later(world)
    retry(world.repo, job, by="ada", note=None)
    world.store.create(keys.record(State.FAILED, job), stale.encode())
    later(world)
    found = keeps(applied(world, rules_of(ALL.evolve(jobs=40 * DAY, logs=10 * DAY))))
    assert set(found.values()) <= {Keeps.GOES_ON}
    assert world.states(job) == {State.FAILED, State.QUEUED}


def test_what_a_later_life_left_goes_by_its_own_age(world: World, tmp_path: Path) -> None:
    job = ended(world, tmp_path, Verdict.FAILED)
    later(world)
    applied(world, only(Leftover.LOG))
    retry(world.repo, job, by="ada", note=None)
    claimed = world.claimed_of(job)
    world.store.create(keys.log_segment(job, 2, 0), b"again\n")
    world.end(claimed)
    assert applied(world, only(Leftover.LOG)) == []
    later(world)
    assert keeps(applied(world, only(Leftover.LOG))) == {(job, Leftover.LOG): None}
    assert world.names(keys.log_folder(job)) == []


# --- who asks for it -------------------------------------------------------------------------


def test_who_asks_for_what_has_gone_is_told_so(world: World, tmp_path: Path) -> None:
    """R273: and not that the job left nothing."""
    job = ended(world, tmp_path)
    nothing = world.submit()
    world.end(world.claimed_of(nothing))
    later(world)
    applied(world, rules_of(ALL))
    for kind, code in ((Leftover.LOG, LOG_EXPIRED), (Leftover.OUTPUTS, OUTPUTS_EXPIRED)):
        with pytest.raises(Refused, match=f"retention.{kind.value}") as error:
            check_there(world.repo, world.record(State.COMPLETED, job), kind)
        assert error.value.code == code
        check_there(world.repo, world.record(State.COMPLETED, nothing), kind)
    for call in (
        lambda: publish(world.repo, job_id=job, name="digits", by="ada"),
        lambda: _taking(world, job),
    ):
        with pytest.raises(Refused) as error:
            call()
        assert error.value.code == OUTPUTS_EXPIRED


def test_a_download_that_loses_its_files_on_the_way_says_so_and_keeps_what_it_has(
    world: World, tmp_path: Path
) -> None:
    """R273"""
    job = ended(world, tmp_path)
    later(world)
    before = world.record(State.COMPLETED, job)

    def fetch(folder: Path) -> object:
        return download(world.repo, job_id=job, epoch=1, folder=folder)

    folder = tmp_path / "here"
    gone = [False]

    with pytest.raises(Refused) as error, told_expired(world.repo, before):
        world.store.delete(keys.output_file(job, 1, "model/w"), None)
        world.store.create(keys.expiring("outputs", job, 1), _going(world, job))
        gone[0] = True
        fetch(folder)
    assert gone[0]
    assert error.value.code == OUTPUTS_EXPIRED
    assert (folder / "note").read_bytes() == FILES["note"]


def _left_marked(world: World, job: str, kind: Leftover) -> None:
    """By somebody who died over it right after the mark."""
    died = [False]

    def before(_asked: Operation, _key: str) -> None:
        if died[0]:
            raise Crash

    def after(asked: Operation, key: str) -> None:
        if asked is Operation.CREATE and key.startswith(keys.expired_folder(kind.value)):
            died[0] = True

    with pytest.raises(Crash):
        applied(world, only(kind), store=GuardedStore(world.store, before=before, after=after))


def test_what_was_to_go_and_is_there_is_shown(world: World, tmp_path: Path) -> None:
    """R273: a mark alone says that it was to go, and the rule may be unset by then."""
    job = ended(world, tmp_path)
    later(world)
    at_rest = world.record(State.COMPLETED, job)
    for kind in (Leftover.OUTPUTS, Leftover.LOG):
        _left_marked(world, job, kind)
        told = going_text(world.repo, at_rest, kind)
        assert told is not None
        assert "may not be whole any more: it was to go at 20" in told
    with told_expired(world.repo, at_rest):
        download(world.repo, job_id=job, epoch=1, folder=tmp_path / "here")
    assert (tmp_path / "here" / "note").read_bytes() == FILES["note"]
    assert (tmp_path / "here" / "log.txt").read_bytes() == b"printed\nmore\n"
    with pytest.raises(Refused) as error:
        published(world, job)
    assert error.value.code == OUTPUTS_EXPIRED


def test_a_mark_that_cannot_be_read_keeps_nobody_from_what_is_there(
    world: World, tmp_path: Path
) -> None:
    """R273: but is not taken for none where nothing is there, nor by who publishes."""
    job = ended(world, tmp_path)
    later(world)
    at_rest = world.record(State.COMPLETED, job)
    for kind in PARTS:
        world.store.create(keys.expiring(kind.value, job, 1), b"{broken")
    with told_expired(world.repo, at_rest):
        download(world.repo, job_id=job, epoch=1, folder=tmp_path / "here")
    assert gone_of(world.repo, at_rest) == []
    with pytest.raises(Unreadable):
        published(world, job)
    world.store.delete(keys.output_manifest(job, 1), None)
    with pytest.raises(Unreadable), told_expired(world.repo, at_rest):
        pass


def test_what_an_earlier_life_left_and_has_gone_is_told(world: World, tmp_path: Path) -> None:
    """R273: of a job that was retried since, and left nothing."""
    job = ended(world, tmp_path, Verdict.FAILED)
    later(world)
    applied(world, rules_of(ALL))
    retry(world.repo, job, by="ada", note=None)
    cancel(world.repo, job, by="ada")
    later(world)
    applied(world, rules_of(ALL))
    for kind in (Leftover.LOG, Leftover.OUTPUTS):
        with pytest.raises(Refused, match=f"retention.{kind.value}"):
            check_there(world.repo, world.record(State.CANCELLED, job), kind)


def _going(world: World, job: str) -> bytes:
    from stado.core.records import Expired

    return Expired(
        job_id=job,
        epoch=1,
        kind=Leftover.OUTPUTS,
        at=world.repo.now(),
        by="ada",
        rule="retention.outputs 30d",
        gone=False,
    ).encode()


def test_of_what_ended_within_a_day_nobody_asks(world: World, tmp_path: Path) -> None:
    """The lowest age that can be set is a day."""
    job = ended(world, tmp_path)
    later(world, 0.9)
    store = CountingStore(world.store, world.tasks)
    check_there(world.repo_over(store), world.record(State.COMPLETED, job), Leftover.LOG)
    assert store.snapshot().of() == 0


# --- who is interrupted, and who comes in between --------------------------------------------


@pytest.mark.parametrize("kind", [*PARTS, Leftover.JOB])
@pytest.mark.parametrize("applied_before", [True, False])
def test_who_applies_the_rules_may_die_at_any_request(
    tmp_path: Path, kind: Leftover, applied_before: bool
) -> None:
    """R274: the next run completes it, and nothing else goes."""
    for number in itertools.count():
        world = World()
        job, other = (ended(world, tmp_path / f"{number}") for _ in range(2))
        published(world, other)
        later(world)
        store = mortal(world.store, at=number, applied=applied_before)
        try:
            applied(world, only(kind), store=store)
        except Crash:
            died = True
        else:
            died = False
        for _ in range(2):
            applied(world, only(kind))
        found = files_of(world, job)
        assert not any(found.values()) if kind is Leftover.JOB else not found[kind]
        assert all(files_of(world, other)[one] for one in PARTS if one is not kind)
        assert files_of(world, other)[Leftover.OUTPUTS] or kind not in (
            Leftover.OUTPUTS,
            Leftover.JOB,
        )
        if kind is Leftover.JOB:
            assert world.states(job) == set()
            assert world.states(other) == {State.COMPLETED}
        else:
            marks = world.names(keys.expired_folder(kind.value))
            assert keys.expired(kind.value, job, 1) in marks
            if kind is not Leftover.LOG:
                assert all(files_of(world, job)[one] for one in PARTS if one is not kind)
        if not died:
            break
    assert number > 6


def _each_meeting(
    tmp_path: Path,
    rules: Rules,
    other: Callable[[World, Store, str], object],
    prepared: Callable[[World, Path], str],
    check: Callable[[World, str, Actor], None],
    stride: int = 1,
) -> int:
    """The one who applies the rules stops after each of its requests; the other does all of what
    it does, or stops after each, and the first goes on."""
    meetings = 0
    for theirs in itertools.count(step=stride):
        for ours in itertools.count(step=stride):
            world = World()
            job = prepared(world, tmp_path / f"{theirs}-{ours}")
            keeper = Actor(world.store, lambda store, w=world: applied(w, rules, store=store))
            comer = Actor(world.store, lambda store, w=world, j=job: other(w, store, j))
            comer_alive = comer.step(theirs)
            keeper_alive = keeper.step(ours)
            comer.finish()
            keeper.finish()
            if keeper.error is not None:
                raise keeper.error
            check(world, job, comer)
            meetings += 1
            if not keeper_alive:
                break
        if not comer_alive:
            return meetings
    raise AssertionError


def _old_job(world: World, folder: Path) -> str:
    job = left(world, folder, files={"note": b"hi"})
    later(world)
    return job


@pytest.mark.parametrize("kind", [Leftover.OUTPUTS, Leftover.JOB])
def test_of_a_publish_and_retention_none_leaves_a_version_without_files(
    tmp_path: Path, kind: Leftover
) -> None:
    """R274"""

    def check(world: World, job: str, publisher: Actor) -> None:
        if publisher.error is not None:
            assert isinstance(publisher.error, Refused)
            return
        artifact, _ = read_artifact(world.repo, "digits", 1)
        assert all(world.has(file.key) for file in artifact.files)

    meetings = _each_meeting(
        tmp_path,
        only(kind),
        lambda world, store, job: publish(
            world.repo_over(store), job_id=job, name="digits", by="ada"
        ),
        _old_job,
        check,
    )
    assert meetings > 100


@pytest.mark.parametrize("kind", [Leftover.OUTPUTS, Leftover.JOB])
def test_of_a_submission_and_retention_none_is_acknowledged_whose_input_is_gone(
    tmp_path: Path, kind: Leftover
) -> None:
    """R274"""

    def take(world: World, store: Store, job: str) -> object:
        repo = world.repo_over(store)
        wanted = pin_input(
            repo, parse_wanted(f"data={job}"), job_named=lambda name: name, tell=lambda _: None
        )
        request = make_request(["true"], Spec(command="", inputs=[wanted]), batch=False)
        return submit(repo, run_id="child", request=request, submitter="ada")

    def check(world: World, job: str, submitter: Actor) -> None:
        if submitter.error is not None:
            assert isinstance(submitter.error, Refused | NotFound)
            return
        run = world.repo.find_run("child")
        assert run is not None
        (pinned,) = run.value.request.shared.inputs
        assert world.has(pinned.source)
        for piece in pieces_of(world.repo, pinned):
            assert world.has(piece.key)

    assert _each_meeting(tmp_path, only(kind), take, _old_job, check) > 100


def test_what_a_pipeline_needs_that_goes_on_meanwhile_stays(world: World, tmp_path: Path) -> None:
    """R272, R274: a step that had failed is retried and completes between two looks; the next one,
    which is not there yet, takes the output of the root along."""
    then = [Step(name="export", command="./export"), Step(name="eval", command="./eval")]
    root = world.submit("./train", spec=Spec(command="", then=then))
    claimed = world.start()
    (tmp_path / "model").write_bytes(b"weights")
    publisher = outputs.OutputPublisher(world.repo, job_id=root, epoch=1, folder=tmp_path)
    publisher.publish(partial=False)
    world.end(claimed)
    failed = world.end(world.start(), Verdict.FAILED)
    later(world)

    def complete() -> None:
        retry(world.repo, failed.id, by="bob", note=None)
        again = world.claimed_of(failed.id)
        now = world.clock.now()
        ending = Ending(verdict=Verdict.COMPLETED, started_at=now, ended_at=now, by="bob")
        cell, _ = give_verdict(world.repo, again.record, ending)
        project(world.repo, moves.after(cell))

    store = _once(world, Operation.LIST, keys.artifact_uses(root), complete)
    found = keeps(applied(world, only(Leftover.OUTPUTS), store=store))
    assert found[root, Leftover.OUTPUTS] is Keeps.PIPELINE
    settle(world.repo, failed.id, 2)
    assert world.repo.find_run(step_run_id(root, 2)) is not None
    assert world.has(keys.output_file(root, 1, "model"))


def test_the_pipeline_is_looked_at_once_more_after_the_mark(world: World, tmp_path: Path) -> None:
    """R274"""
    then = [Step(name="export", command="./export")]
    root = world.submit("./train", spec=Spec(command="", then=then))
    at_rest = world.end(world.start())
    world.store.create(keys.output_file(root, 1, "model"), b"weights")
    holding = Holding([keys.output_file(root, 1, "model")], 7)
    kept = expire(world.repo, at_rest, Leftover.OUTPUTS, holding, rule="any", by="ada")
    assert kept is Keeps.PIPELINE
    assert world.has(keys.output_file(root, 1, "model"))


def test_a_retry_meanwhile_loses_nothing(tmp_path: Path) -> None:
    """R274: neither what it goes on from, nor what it prints."""
    kinds = Rules(ages=dict.fromkeys(PARTS, 30 * DAY), keep_newest=0)

    def prepared(world: World, folder: Path) -> str:
        job = ended(world, folder, Verdict.FAILED)
        later(world)
        return job

    def go_on(world: World, store: Store, job: str) -> object:
        answer = retry(world.repo_over(store), job, by="ada", note=None)
        store.create(keys.log_segment(job, 2, 0), b"again\n")
        return answer

    def check(world: World, job: str, retrier: Actor) -> None:
        assert retrier.error is None
        assert world.find(job).state is State.QUEUED
        assert world.names(keys.checkpoints_folder(job))
        assert world.has(keys.log_segment(job, 2, 0))

    assert _each_meeting(tmp_path, kinds, go_on, prepared, check) > 50


def test_a_job_that_was_retried_and_has_ended_meanwhile_stays(world: World, tmp_path: Path) -> None:
    """R274: it is minutes old, whatever was seen of it before."""
    job = ended(world, tmp_path, Verdict.FAILED)
    later(world)

    def live_again() -> None:
        retry(world.repo, job, by="bob", note=None)
        claimed = world.claimed_of(job)
        world.store.create(keys.log_segment(job, 2, 0), b"again\n")
        world.end(claimed)

    store = _once(world, Operation.LIST, keys.log_folder(job), live_again)
    found = keeps(applied(world, rules_of(JOBS), store=store))
    assert found == {(job, Leftover.JOB): Keeps.GOES_ON}
    assert world.states(job) == {State.COMPLETED}
    assert not was_deleted(world.repo, job)
    assert world.has(keys.log_segment(job, 2, 0))


def _once(
    world: World, operation: Operation, beginning: str, act: Callable[[], object]
) -> GuardedStore:
    """Somebody else acts right before the first such request."""
    fired = [False]

    def before(asked: Operation, key: str) -> None:
        if not fired[0] and asked is operation and key.startswith(beginning):
            fired[0] = True
            act()

    return GuardedStore(world.store, before=before)


def test_two_who_apply_the_rules_at_once_do_what_one_does(tmp_path: Path) -> None:
    """R274"""
    rules = rules_of(ALL.evolve(jobs=60 * DAY))

    def check(world: World, job: str, second: Actor) -> None:
        assert second.error is None
        assert not any(files_of(world, job).values())

    def again(world: World, store: Store, _job: str) -> object:
        return applied(world, rules, store=store)

    def prepared(world: World, folder: Path) -> str:
        job = ended(world, folder)
        later(world)
        return job

    assert _each_meeting(tmp_path, rules, again, prepared, check, stride=3) > 50


def test_rules_that_were_changed_meanwhile_are_named(world: World) -> None:
    """R270: nobody goes on by a rule that was unset."""
    change_setting(world.repo, "retention.logs", 30 * DAY, by="ada")
    rules = rules_of(RetentionSettings(logs=30 * DAY))
    check_unchanged(world.repo, rules)
    change_setting(world.repo, "retention.logs", None, by="ada")
    with pytest.raises(Refused, match="logs was changed meanwhile") as error:
        check_unchanged(world.repo, rules)
    assert error.value.code == "retention_changed"


# --- requests --------------------------------------------------------------------------------


def test_nothing_is_noted_as_nothing_that_another_run_lets_go(world: World, tmp_path: Path) -> None:
    """R273, R274: it has deleted all of it, and has not said so yet."""
    job = ended(world, tmp_path)
    later(world)
    rules = only(Leftover.LOG)
    second = Actor(world.store, lambda store: applied(world, rules, store=store))

    def deleted_by_another() -> None:
        while files_of(world, job)[Leftover.LOG]:
            assert second.step(1)

    store = _once(world, Operation.LIST, keys.log_folder(job), deleted_by_another)
    applied(world, rules, store=store)
    second.finish()
    mark = find_expired(world.repo, Leftover.LOG, job, epoch=1)
    assert mark is not None
    assert mark.left
    assert world.names(keys.expired_folder("log")) == [keys.expired("log", job, 1)]


def test_requests_of_a_walk_and_of_each_job_that_goes(world: World, tmp_path: Path) -> None:
    """R275: what is young, or has gone, costs listings of a thousand and nothing else."""
    job = ended(world, tmp_path)
    later(world)
    for _ in range(30):
        world.submit()
        world.end(world.claimed_of(world.entries()[0].job_id))
    walk, cells = 4 + 1, 1  # the prefixes, the marks of a kind; the cells
    for kind, lists, reads, objects in (
        (Leftover.LOG, 1, 1, 2),
        (Leftover.OUTPUTS, 4, 2, len(FILES) + 1),
        (Leftover.CHECKPOINTS, 1, 1, 2),
    ):
        store = CountingStore(world.store, world.tasks)
        applied(world, only(kind), store=store)
        asked = store.snapshot()
        assert asked.of(Operation.LIST) == walk + cells + lists, kind
        assert asked.of(Operation.GET) == reads, kind
        assert asked.of(Operation.CREATE) == 2, kind
        assert asked.of(Operation.DELETE) == objects + 1, kind
    gone = CountingStore(world.store, world.tasks)
    applied(world, rules_of(ALL), store=gone)
    assert (gone.snapshot().of(Operation.LIST), gone.snapshot().of()) == (4 + 3, 4 + 3)
    assert not any(files_of(world, job).values())


def test_a_rerun_of_what_took_it_along_is_refused(world: World, tmp_path: Path) -> None:
    """R273"""
    job = ended(world, tmp_path)
    child = world.submit(spec=_taking(world, job))
    world.end(world.claimed_of(child))
    later(world)
    applied(world, only(Leftover.OUTPUTS))
    with pytest.raises(Refused) as error:
        rerun(world.repo, child, run_id=None, submitter="ada")
    assert error.value.code == "input_missing"


def test_jobs_of_batches_meet_their_own_marks(world: World) -> None:
    """R275: in the order in which the store lists both."""
    for run in range(3):
        base = world.submit(*map(str, range(12)))
        single = world.submit()
        for job in [*(f"{base}-{number:02d}" for number in range(1, 13)), single]:
            claimed = world.claimed_of(job)
            if run != 1:
                world.store.create(keys.log_segment(job, 1, 0), b"printed\n")
            world.end(claimed, Verdict.FAILED if job.endswith("3") else Verdict.COMPLETED)
    later(world)
    rules = only(Leftover.LOG)
    assert sum(one.objects for one in applied(world, rules)) == 2 * 13
    store = CountingStore(world.store, world.tasks)
    assert applied(world, rules, store=store) == []
    assert store.snapshot().of() == store.snapshot().of(Operation.LIST) == 4 + 1
