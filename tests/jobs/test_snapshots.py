"""Snapshots in the store: there once, whole, and for as long as a submission names them."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import SnapshotRecord, SnapshotState
from stado.core.spec import Snapshot, Spec, make_request
from stado.core.states import State
from stado.errors import Conflict, Refused, Unavailable
from stado.jobs import snapshots
from stado.jobs.changes import cancel, rerun, retry
from stado.jobs.deletion import delete
from stado.jobs.submit import submit
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import CountingStore, Operation
from stado.storage.port import Fetch, Store
from tests.jobs.actors import Actor, Crash, mortal
from tests.jobs.world import World

DIGEST = "ab" * 32
SNAPSHOT = Snapshot(digest=DIGEST, files=3, bytes=10)
RECORD = keys.snapshot(DIGEST)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "tree.tar.gz"
    path.write_bytes(b"the archive")
    return path


def record(world: World) -> SnapshotRecord:
    return world.repo.read(SnapshotRecord, RECORD).value


def archives(world: World) -> list[str]:
    return world.names(f"snapshots/{DIGEST}/archive/")


def references(world: World) -> list[str]:
    return [key.rpartition("/")[2] for key in world.names(keys.snapshot_references(DIGEST))]


def fetch_from(world: World) -> Fetch:
    return lambda key, path, size: world.store.download(key, path)


def fetched(world: World, folder: Path) -> bytes:
    path = folder / "fetched"
    snapshots.download(world.repo, DIGEST, path, fetch_from(world))
    return path.read_bytes()


def submit_with(world: World, run_id: str, store: Store | None = None) -> str:
    repo = world.repo_over(store or world.store)
    request = make_request(["x"], Spec(command="", snapshot=SNAPSHOT), batch=False)
    return submit(repo, run_id=run_id, request=request, submitter="ada").base_id


# --- there, once ------------------------------------------------------------------------------


def test_a_snapshot_is_uploaded_once_however_many_name_it(world: World, archive: Path) -> None:
    """R24"""
    assert snapshots.ensure(world.repo, SNAPSHOT, archive)
    assert not snapshots.ensure(world.repo, SNAPSHOT, archive)
    for run in ("one", "two"):
        submit_with(world, run)
    assert len(archives(world)) == 1
    assert references(world) == ["one", "two"]
    assert fetched(world, archive.parent) == b"the archive"


def test_a_submit_with_a_snapshot_makes_the_requests_of_the_protocol(
    world: World, archive: Path
) -> None:
    snapshots.ensure(world.repo, SNAPSHOT, archive)
    counting = CountingStore(world.store, world.tasks)
    repo = world.repo_over(counting)
    submit(
        repo,
        run_id="plain",
        request=make_request(["x"], Spec(command=""), batch=False),
        submitter="ada",
    )
    plain = counting.snapshot()
    assert repo.find_run("with") is None  # as pinning does
    snapshots.ensure(repo, SNAPSHOT, archive)
    submit_with(world, "with", counting)
    more = _by_operation(counting.since(plain).counts) - _by_operation(plain.counts)
    assert more == {Operation.CREATE: 1, Operation.GET: 4, Operation.HEAD: 1}


def _by_operation(counts: Counter[tuple[Operation, str]]) -> Counter[Operation]:
    total: Counter[Operation] = Counter()
    for (operation, _), count in counts.items():
        total[operation] += count
    return total


@pytest.mark.parametrize("applied", [False, True])
def test_a_submitter_that_dies_at_any_request_leaves_nothing_that_counts_as_whole(
    archive: Path, applied: bool
) -> None:
    for at in range(20):
        world = World()
        repo = world.repo_over(mortal(world.store, at=at, applied=applied))
        try:
            snapshots.ensure(repo, SNAPSHOT, archive)
        except Crash:
            pass
        else:
            assert at > 2
            return
        if world.has(RECORD):
            assert fetched(world, archive.parent) == b"the archive"
        snapshots.ensure(world.repo, SNAPSHOT, archive)
        assert fetched(world, archive.parent) == b"the archive"
        assert record(world).state is SnapshotState.WHOLE
    raise AssertionError("it never came to its end")


def test_an_upload_that_fails_leaves_no_record(world: World, archive: Path) -> None:
    faults = ScriptedFaults(Fault(FaultKind.UNAVAILABLE, operation=Operation.UPLOAD))
    store = FaultyStore(world.store, world.clock, faults)
    with pytest.raises(Unavailable):
        snapshots.ensure(world.repo_over(store), SNAPSHOT, archive)
    assert not world.has(RECORD)


def test_two_that_upload_at_once_leave_one_archive(world: World, archive: Path) -> None:
    for steps in range(5):
        world = World()
        actors = [_ensures(world, archive) for _ in range(2)]
        actors[0].step(steps)
        actors[1].finish()
        actors[0].finish()
        assert [actor.error for actor in actors] == [None, None]
        assert archives(world) == [keys.snapshot_archive(DIGEST, record(world).archive)]


def _ensures(world: World, archive: Path) -> Actor:
    return Actor(
        world.store, lambda store: snapshots.ensure(world.repo_over(store), SNAPSHOT, archive)
    )


def test_an_archive_that_somebody_deleted_or_a_record_that_is_nonsense_is_replaced(
    world: World, archive: Path
) -> None:
    snapshots.ensure(world.repo, SNAPSHOT, archive)
    world.store.delete(archives(world)[0], None)
    assert snapshots.ensure(world.repo, SNAPSHOT, archive)
    assert fetched(world, archive.parent) == b"the archive"
    world.store.put(RECORD, b"nonsense")
    assert snapshots.ensure(world.repo, SNAPSHOT, archive)
    assert fetched(world, archive.parent) == b"the archive"


def test_an_archive_that_is_not_what_its_record_says_is_not_taken(
    world: World, archive: Path
) -> None:
    snapshots.ensure(world.repo, SNAPSHOT, archive)
    world.store.put(archives(world)[0], b"another one")
    with pytest.raises(Conflict):
        fetched(world, archive.parent)
    assert not (archive.parent / "fetched").exists()


# --- for as long as it is named -----------------------------------------------------------------


def test_it_goes_with_the_last_submission_that_names_it(world: World, archive: Path) -> None:
    """R24, R56: what is gone is said by submit and rerun, with the remedy."""
    snapshots.ensure(world.repo, SNAPSHOT, archive)
    job = submit_with(world, "one")
    submit_with(world, "two")
    snapshots.drop_reference(world.repo, DIGEST, "one")
    assert not snapshots.remove_unnamed(world.repo, DIGEST)
    assert fetched(world, archive.parent) == b"the archive"
    snapshots.drop_reference(world.repo, DIGEST, "two")
    assert snapshots.remove_unnamed(world.repo, DIGEST)
    assert archives(world) == []
    assert not snapshots.remove_unnamed(world.repo, DIGEST)
    for call in (
        lambda: submit_with(world, "three"),
        lambda: rerun(world.repo, job, run_id=None, submitter="ada"),
        lambda: fetched(world, archive.parent),
    ):
        with pytest.raises(Refused, match="Submit it anew from the folder") as refused:
            call()
        assert refused.value.code == "snapshot_missing"
    assert world.repo.find_run("three") is None


def test_a_run_that_is_there_is_answered_though_its_snapshot_is_gone(
    world: World, archive: Path
) -> None:
    """And gets no reference back: its jobs were deleted."""
    snapshots.ensure(world.repo, SNAPSHOT, archive)
    job = submit_with(world, "one")
    snapshots.drop_reference(world.repo, DIGEST, "one")
    snapshots.remove_unnamed(world.repo, DIGEST)
    assert submit_with(world, "one") == job
    assert references(world) == []


def test_what_is_gone_can_be_brought_again(world: World, archive: Path) -> None:
    snapshots.ensure(world.repo, SNAPSHOT, archive)
    snapshots.remove_unnamed(world.repo, DIGEST)
    assert record(world).state is SnapshotState.GONE
    assert snapshots.ensure(world.repo, SNAPSHOT, archive)
    submit_with(world, "one")
    assert fetched(world, archive.parent) == b"the archive"


def test_a_rerun_has_a_reference_of_its_own(world: World, archive: Path) -> None:
    snapshots.ensure(world.repo, SNAPSHOT, archive)
    job = submit_with(world, "one")
    rerun(world.repo, job, run_id="again", submitter="ada")
    assert references(world) == ["again", "one"]


def _adds(world: World, archive: Path) -> Actor:
    """A submitter as the command line is one; it submits again what was removed meanwhile."""

    def work(store: Store) -> None:
        repo = world.repo_over(store)
        for _ in range(5):
            snapshots.ensure(repo, SNAPSHOT, archive)
            with suppress(Refused):  # it was removed meanwhile
                submit_with(world, "new", store)
                return
        raise AssertionError("it was removed again and again")

    return Actor(world.store, work)


def _removes(world: World) -> Actor:
    def work(store: Store) -> None:
        repo = world.repo_over(store)
        snapshots.drop_reference(repo, DIGEST, "old")
        snapshots.remove_unnamed(repo, DIGEST)

    return Actor(world.store, work)


def _set_stage(archive: Path) -> World:
    world = World()
    snapshots.ensure(world.repo, SNAPSHOT, archive)
    submit_with(world, "old")
    return world


@pytest.mark.parametrize("removers", [1, 2])
def test_who_adds_a_reference_and_who_removes_the_last_one_never_miss_each_other(
    archive: Path, removers: int
) -> None:
    """R24: whichever of them is stopped at whichever request, for a while or for ever, a submission
    that was acknowledged has its snapshot."""
    kept = removed = 0
    for adding, removing, kill in itertools.product(range(14), range(8), (False, True)):
        world = _set_stage(archive)
        adder = _adds(world, archive)
        others = [_removes(world) for _ in range(removers)]
        others[0].step(removing)
        adder.step(adding)
        for other in others[1:]:
            other.finish()
        if kill:
            others[0].kill()
        else:
            others[0].finish()
        adder.finish()
        assert adder.error is None
        assert all(other.error is None or isinstance(other.error, Crash) for other in others)
        snapshots.remove_unnamed(world.repo, DIGEST)
        assert fetched(world, archive.parent) == b"the archive"
        assert record(world).state is SnapshotState.WHOLE
        kept, removed = kept + (adder.requests == 10), removed + (adder.requests > 10)
    assert kept
    assert removed, "in some of them it was removed, and brought again"


@pytest.mark.parametrize("applied", [False, True])
def test_who_dies_while_removing_leaves_what_the_next_one_finishes(
    archive: Path, applied: bool
) -> None:
    for at in range(20):
        world = _set_stage(archive)
        snapshots.drop_reference(world.repo, DIGEST, "old")
        repo = world.repo_over(mortal(world.store, at=at, applied=applied))
        try:
            snapshots.remove_unnamed(repo, DIGEST)
        except Crash:
            pass
        else:
            assert at > 3
            return
        snapshots.remove_unnamed(world.repo, DIGEST)
        assert archives(world) == []
        assert record(world).state is SnapshotState.GONE
    raise AssertionError("it never came to its end")


def test_a_snapshot_that_was_never_there_is_missing(world: World, tmp_path: Path) -> None:
    assert not snapshots.remove_unnamed(world.repo, DIGEST)
    with pytest.raises(Refused, match=DIGEST[:12]):
        snapshots.download(world.repo, DIGEST, tmp_path / "x", fetch_from(world))


def test_it_goes_with_the_last_job_that_took_it_along(world: World, archive: Path) -> None:
    """R24: a run keeps its id, and cannot bring it back."""
    snapshots.ensure(world.repo, SNAPSHOT, archive)
    first, second = submit_with(world, "first"), submit_with(world, "second")
    for job in (first, second):
        cancel(world.repo, job, by="ada")
    delete(world.repo, first, by="ada")
    assert references(world) == ["second"]
    assert len(archives(world)) == 1
    retry(world.repo, second, by="ada")
    cancel(world.repo, second, by="ada")
    delete(world.repo, second, by="ada")
    assert (references(world), archives(world)) == ([], [])
    with pytest.raises(Refused) as error:
        submit_with(world, "second")
    assert error.value.code == "job_deleted"
    with pytest.raises(Refused) as error:
        submit_with(world, "third")
    assert error.value.code == "snapshot_missing"


def test_a_job_without_its_snapshot_is_not_retried(world: World, archive: Path) -> None:
    """R24, R56"""
    snapshots.ensure(world.repo, SNAPSHOT, archive)
    job = submit_with(world, "first")
    cancel(world.repo, job, by="ada")
    snapshots.drop_reference(world.repo, DIGEST, "first")
    snapshots.remove_unnamed(world.repo, DIGEST)
    with pytest.raises(Refused) as error:
        retry(world.repo, job, by="ada")
    assert error.value.code == "snapshot_missing"
    assert world.states(job) == {State.CANCELLED}


def test_a_batch_keeps_it_until_its_last_job_is_deleted(world: World, archive: Path) -> None:
    snapshots.ensure(world.repo, SNAPSHOT, archive)
    request = make_request(["x", "y"], Spec(command="", snapshot=SNAPSHOT), batch=True)
    for job in submit(world.repo, run_id="two", request=request, submitter="ada").job_ids:
        assert references(world) == ["two"]
        cancel(world.repo, job, by="ada")
        delete(world.repo, job, by="ada")
    assert (references(world), archives(world)) == ([], [])
    assert world.names("index/by-user/ada/") == []
