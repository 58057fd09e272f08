"""Which host should get which job: what a coordinator makes of what it sees."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stado.core import keys
from stado.core.documents import COUNT_MAX
from stado.core.hints import Assignments, Estimates
from stado.core.ids import milliseconds
from stado.core.records import Capacity
from stado.core.runtimes import RunTime, RunTimes, no_run_time_text
from stado.core.spec import Spec
from stado.core.usage import Use, use_key
from stado.jobs.assignments import Assigner, AssignReport, read_assignments
from stado.jobs.changes import pause_queue
from stado.jobs.claim import Place
from stado.jobs.derived import Derived
from stado.jobs.estimates import Measuring, read_estimates
from stado.jobs.settings import change_setting
from stado.storage.observe import CountingStore
from tests.jobs.world import ALICE, TICK, World

KNOWN = Spec(command="", runtime_seconds_estimate=60)


def broadcast(
    world: World, consumer: str = "alice", *, cores: float = 4.0, counter: int = 1
) -> None:
    capacity = Capacity(
        consumer=consumer,
        incarnation=f"{consumer}-1",
        host="host",
        at=world.clock.now(),
        counter=counter,
        broadcast_seconds=TICK,
        cpu_total=cores,
        cpu_free=cores,
        memory_total_gb=64,
        memory_free_gb=64,
        disk_free_gb=4,
        disk_left_gb=4,
        version="1",
    )
    world.store.put(keys.capacity(consumer), capacity.encode())


def assigned(world: World) -> dict[str, str]:
    """Host by job."""
    found = read_assignments(world.repo)
    entries = {entry.name: entry.job_id for entry in world.entries()}
    if found is None:
        return {}
    return {
        entries.get(job.entry, job.entry): host.consumer
        for host in found.hosts
        for job in host.jobs
    }


def document(world: World) -> Assignments:
    found = read_assignments(world.repo)
    assert found is not None
    return found


def test_a_job_of_known_run_time_is_assigned_and_the_others_are_left_to_all(world: World) -> None:
    """R162, R164: whatever the priority."""
    broadcast(world)
    known = world.submit(spec=KNOWN)
    world.submit()
    world.submit(spec=Spec(command="", priority=9))
    Assigner(world.repo, by="one").turn()
    assert assigned(world) == {known: "alice"}
    (skipped,) = document(world).skipped
    assert (skipped.code, skipped.count) == ("no_run_time", 2)
    assert skipped.text == no_run_time_text("any host that could run it")


def test_what_the_deployment_does_not_let_start_now_is_not_assigned(world: World) -> None:
    """R64: it would only keep others from a host."""
    broadcast(world)
    known = world.submit(spec=KNOWN)
    held_up = world.submit(spec=KNOWN.evolve(group="big"))
    change_setting(world.repo, "windows.rules", ["group.big:daily@08:00-09:00@UTC"], by="operator")
    Assigner(world.repo, by="one").turn()
    assert assigned(world) == {known: "alice"}
    world.clock.sleep(8 * 3600)
    broadcast(world, counter=2)
    Assigner(world.repo, by="one").turn()
    assert assigned(world) == {known: "alice", held_up: "alice"}


def test_an_assignment_is_cleared_once_nothing_speaks_for_it(world: World) -> None:
    """R165: the job is there for all."""
    broadcast(world)
    job = world.submit(spec=KNOWN)
    assigner = Assigner(world.repo, by="one")
    assigner.turn()
    assert assigned(world) == {job: "alice"}
    world.clock.sleep(4 * TICK)  # the host is silent
    assigner.turn()
    assert assigned(world) == {}
    assert [one.code for one in document(world).skipped] == ["no_host"]


def test_every_group_is_told_the_most_frequent_first(world: World) -> None:
    """R166: none is left out, however many there are."""
    broadcast(world)
    for number in range(1, 31):
        world.submit(*["true"] * number, spec=Spec(command="", model=f"model-{number}"))
    Assigner(world.repo, by="one").turn()
    skipped = document(world).skipped
    assert [(one.model, one.count) for one in skipped] == [
        (f"model-{number}", number) for number in range(30, 0, -1)
    ]


def test_it_is_written_again_when_it_says_something_else_or_is_about_to_expire(
    world: World,
) -> None:
    assigner = Assigner(world.repo, by="one")
    assert not assigner.turn().written
    broadcast(world)
    world.submit(spec=KNOWN)
    assert assigner.turn().written
    since = document(world).hosts[0].jobs[0].since_ms
    written = []
    for counter in range(2, 6):
        world.clock.sleep(TICK)
        broadcast(world, counter=counter)
        written.append(assigner.turn().written)
    assert written == [False, False, True, False]
    assert document(world).hosts[0].jobs[0].since_ms == since


def test_another_coordinator_that_acts_too_is_no_trouble(world: World) -> None:
    broadcast(world)
    one, other = (Assigner(world.repo, by=by) for by in ("one", "other"))
    world.submit(spec=KNOWN)
    assert one.turn().written
    assert not other.turn().written
    world.submit(spec=KNOWN)
    assert other.turn().written
    assert not one.turn().written
    assert not one.turn().written
    assert document(world).by == "other"


def test_nothing_is_assigned_while_the_queue_is_paused(world: World) -> None:
    broadcast(world)
    world.submit(spec=KNOWN)
    assigner = Assigner(world.repo, by="one")
    assigner.turn()
    pause_queue(world.repo, by="ada")
    assigner.turn()
    assert assigned(world) == {}


def test_what_runs_there_is_counted_though_its_host_has_not_told_of_it_yet(world: World) -> None:
    broadcast(world, cores=1)
    world.submit(spec=KNOWN)
    world.start(ALICE)
    waiting = world.submit(spec=KNOWN)
    Assigner(world.repo, by="one").turn()
    ((job,),) = [host.jobs for host in document(world).hosts]
    assert assigned(world) == {waiting: "alice"}
    assert job.begins_ms == pytest.approx(milliseconds(world.clock.now()) + 60_000, abs=1000)


def test_a_document_that_is_spoilt_is_written_anew(world: World) -> None:
    broadcast(world)
    job = world.submit(spec=KNOWN)
    for key in (keys.ASSIGNMENTS, keys.ESTIMATES):
        world.store.put(key, b"nonsense")
    Assigner(world.repo, by="one").turn()
    assert assigned(world) == {job: "alice"}


# --- what others put into the bucket -------------------------------------------------------


def put_entry(world: World, job_id: str, *, epoch: int, needs: str) -> str:
    """A name that no queue record computes to; it may be another's work."""
    (first,) = [one for one in world.entries() if one.job_id == job_id][:1]
    head = first.name.partition(".")[0]
    name = f"{head}.{epoch}.forged~{needs}"
    world.store.create(keys.ready(name), b"")
    return name


def test_a_job_with_two_entries_is_assigned_once_by_its_latest_epoch(world: World) -> None:
    broadcast(world)
    job = world.submit(spec=KNOWN)
    later = put_entry(world, job, epoch=2, needs="c1000.m1024.r90")
    put_entry(world, job, epoch=1, needs="c1000.m1024.r30")
    assert Assigner(world.repo, by="one").turn() == AssignReport(1, 0, written=True)
    ((assignment,),) = [host.jobs for host in document(world).hosts]
    assert assignment.entry == later


def test_ends_that_no_document_can_hold_are_cut(world: World) -> None:
    """Jobs of ten years each on one host: the last begins after the year 2286."""
    broadcast(world, cores=1)
    world.submit(*["true"] * 40, spec=Spec(command="", runtime_seconds_estimate=3660 * 86_400))
    Assigner(world.repo, by="one").turn()
    found = document(world)
    assert (found.planned, found.ends_ms) == (40, 9_999_999_999_999)
    assert 20 < len(found.hosts[0].jobs) < 40


def test_what_a_forged_document_says_is_put_right(world: World) -> None:
    broadcast(world)
    world.submit(spec=KNOWN)
    assigner = Assigner(world.repo, by="one")
    assigner.turn()
    known = document(world)
    late = [
        host.evolve(jobs=[job.evolve(since_ms=9_999_999_999_999) for job in host.jobs])
        for host in known.hosts
    ]
    forged = known.evolve(counter=COUNT_MAX, hosts=late)
    world.store.put(keys.ASSIGNMENTS, forged.encode())
    world.submit(spec=KNOWN)
    assert Assigner(world.repo, by="two").turn().written
    now_ms = milliseconds(world.repo.now())
    assert all(job.since_ms <= now_ms for job in document(world).hosts[0].jobs)


def test_what_nobody_could_read_is_not_written(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    derived = Derived(world.repo, Assignments, keys.ASSIGNMENTS)
    now = world.repo.now()
    good = Assignments(counter=1, at=now, expires_at=now, by="one")
    assert derived.write(good)
    assert not derived.write(good.evolve(ends_ms=10**14))
    assert document(world) == good
    assert "event=not_written key=assignments.json" in caplog.text
    assert derived.write(good.evolve(counter=2))


# --- what was measured --------------------------------------------------------------------


def run_once(world: World, *, seconds: float, model: str = "resnet") -> None:
    job = world.submit(spec=Spec(command="", model=model))
    claimed = world.claimed_of(job, place=Place(hardware="cpu"))
    started_at = world.repo.now()
    world.clock.sleep(seconds)
    record = claimed.record
    use = Use(
        record.id,
        1,
        "ada",
        None,
        ended_ms=milliseconds(world.repo.now()),
        wall_ms=round((world.repo.now() - started_at).total_seconds() * 1000),
        whole=True,
        model=model,
        hardware="cpu",
    )
    world.store.create(use_key(use), b"")


def test_run_times_are_learned_from_names_alone(world: World) -> None:
    """R160: no record of a job is read for it."""
    for seconds in (10, 30, 20):
        run_once(world, seconds=seconds)
    counting = CountingStore(world.store, world.tasks)
    measuring = Measuring(world.repo_over(counting))
    measuring.turn_when_due()
    assert measuring.times.of(Spec(command="", model="resnet"), "cpu") == RunTime(20, runs=3)
    seen = counting.snapshot().counts
    assert {operation.name for operation, _ in seen} == {"GET", "LIST", "CREATE"}
    assert RunTimes(read_estimates(world.repo)).measured("resnet") != []


def test_the_next_coordinator_goes_on_where_the_last_one_was(world: World) -> None:
    run_once(world, seconds=10)
    Measuring(world.repo).turn_when_due()
    run_once(world, seconds=50)
    measuring = Measuring(world.repo)
    measuring.turn_when_due()
    assert measuring.times.of(Spec(command="", model="resnet"), "cpu") == RunTime(30, runs=2)
    found = world.repo.read(Estimates, keys.ESTIMATES).value
    assert found.measured[0].seconds == [10, 50]


def test_history_is_not_read_through(world: World) -> None:
    """A turn lists ten pages at most; the next goes on behind them."""
    now_ms = milliseconds(world.repo.now())
    base = Use("abcdefghijklmnop", 1, "ada", None, ended_ms=now_ms, wall_ms=5000)
    base = replace(base, whole=True, model="resnet", hardware="cpu")
    for number in range(12_000):
        use = replace(base, epoch=number + 1, ended_ms=now_ms - 86_400_000 + 5000 * number)
        world.store.create(use_key(use), b"")
    counting = CountingStore(world.store, world.tasks)
    measuring = Measuring(world.repo_over(counting))
    measuring.turn_when_due()
    first = counting.snapshot().of()
    assert first < 25
    measuring.turn_when_due()
    assert counting.snapshot().of() < first + 15
    assert measuring.times.of(Spec(command="", model="resnet"), "cpu") == RunTime(5, runs=50)


@pytest.mark.parametrize("gap_ms", [0, 1, 50])
def test_very_many_ends_within_minutes_are_passed_by(world: World, gap_ms: int) -> None:
    """R160: a look that several turns make comes to its end, and its place never falls."""
    now_ms = milliseconds(world.repo.now())
    base = Use("abcdefghijklmnop", 1, "ada", None, ended_ms=now_ms, wall_ms=5000)
    base = replace(base, whole=True, model="resnet", hardware="cpu")
    for number in range(10_500):
        use = replace(base, epoch=number + 1, ended_ms=now_ms + gap_ms * number)
        world.store.create(use_key(use), b"")
    world.clock.sleep(530)
    late = replace(base, epoch=1, ended_ms=milliseconds(world.repo.now()), model="late")
    world.store.create(use_key(late), b"")
    measuring = Measuring(world.repo)
    places = []
    for _ in range(8):
        measuring.turn_when_due()
        known = read_estimates(world.repo)
        places.append(0 if known is None else known.read_to_ms)
        world.clock.sleep(61)
    assert measuring.times.of(Spec(command="", model="late"), "cpu") == RunTime(5, runs=1)
    assert places == sorted(places)
    other = Measuring(world.repo)
    for _ in range(4):
        other.turn_when_due()
    assert other.times.of(Spec(command="", model="late"), "cpu") == RunTime(5, runs=1)
