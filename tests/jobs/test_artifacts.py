"""Output under names: versions that never change, whoever publishes at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import Artifact
from stado.core.states import State, Verdict
from stado.errors import Refused, Unreadable
from stado.jobs.artifacts import (
    Published,
    names,
    newest_version,
    publish,
    read_artifact,
    uses_of,
    verify,
)
from stado.jobs.changes import pause
from stado.jobs.deletion import delete
from stado.jobs.outputs import publish as leave
from stado.storage.port import Store
from tests.jobs.actors import Actor, Crash, mortal
from tests.jobs.world import World

FILES = {"note": b"hi", "model/w": b"weights", "model/deep/b": b"bias"}


def left(
    world: World,
    folder: Path,
    *,
    files: dict[str, bytes] | None = None,
    verdict: Verdict = Verdict.COMPLETED,
) -> str:
    """A job at rest, with what it left."""
    job = world.submit()
    claimed = world.claimed_of(job)
    place = folder / job
    for name, data in (FILES if files is None else files).items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    place.mkdir(exist_ok=True)
    partial = verdict is not Verdict.COMPLETED
    leave(world.repo, job_id=job, epoch=1, folder=place, partial=partial)
    world.end(claimed, verdict)
    return job


def published(world: World, job: str, name: str = "digits", path: str = "") -> Published:
    return publish(world.repo, job_id=job, name=name, path=path, by="ada")


def refused(call: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as error:
        call()
    return error.value


def test_versions_count_up_and_the_same_again_is_the_same(world: World, tmp_path: Path) -> None:
    one, two = left(world, tmp_path), left(world, tmp_path)
    first = published(world, one)
    assert (first.artifact.version, first.created) == (1, True)
    assert published(world, two).artifact.version == 2
    again = published(world, one)
    assert (again.artifact, again.created) == (first.artifact, False)
    assert newest_version(world.repo, "digits") == 2
    part = published(world, one, path="model")
    assert part.artifact.version == 3
    assert [file.path for file in part.artifact.files] == ["model/deep/b", "model/w"]


def test_a_version_says_where_it_is_from(world: World, tmp_path: Path) -> None:
    job = left(world, tmp_path)
    artifact = published(world, job).artifact
    assert (artifact.job_id, artifact.epoch, artifact.partial) == (job, 1, False)
    assert artifact.published_by == "ada"
    assert read_artifact(world.repo, "digits", None)[0] == artifact
    assert [file.key for file in artifact.files] == [
        keys.output_file(job, 1, path) for path in ("model/deep/b", "model/w", "note")
    ]


def test_what_is_not_final_or_not_there_is_refused_with_the_remedy(
    world: World, tmp_path: Path
) -> None:
    failed = left(world, tmp_path, verdict=Verdict.FAILED)
    empty = left(world, tmp_path, files={})
    good = left(world, tmp_path)
    queued = world.submit()
    assert "--partial" in refused(lambda: published(world, failed)).text
    assert refused(lambda: published(world, empty)).code == "output_missing"
    assert "'model'" in refused(lambda: published(world, good, path="modle")).text
    assert refused(lambda: published(world, queued)).code == "job_not_at_rest"
    pause(world.repo, queued, by="ada")
    assert "is paused" in refused(lambda: published(world, queued)).text
    assert refused(lambda: published(world, "a" * 16)).code == "job_unknown"
    assert refused(lambda: published(world, good, name="a@b")).code == "artifact_invalid"
    assert not world.names(keys.ARTIFACTS)
    done = publish(world.repo, job_id=failed, name="half", by="ada", partial=True)
    assert done.artifact.partial


def test_of_an_unknown_name_the_near_ones_are_told(world: World, tmp_path: Path) -> None:
    published(world, left(world, tmp_path))
    assert "did you mean digits" in refused(lambda: read_artifact(world.repo, "digit", None)).text
    assert "the newest is 1" in refused(lambda: read_artifact(world.repo, "digits", 9)).text


# --- several at once ------------------------------------------------------------------------


def _publisher(world: World, job: str) -> Callable[[Store], object]:
    def work(store: Store) -> Published:
        return publish(world.repo_over(store), job_id=job, name="digits", by="ada")

    return work


@pytest.mark.parametrize("same", [True, False])
def test_two_publishers_at_once_get_two_versions_or_the_same_one(
    world: World, tmp_path: Path, same: bool
) -> None:
    """However their requests fall: the first stops after each of its own, and goes on once the
    second is done."""
    for stopped_after in itertools.count():
        world = World()
        one = left(world, tmp_path / f"{stopped_after}")
        two = one if same else left(world, tmp_path / f"{stopped_after}")
        first = Actor(world.store, _publisher(world, one))
        goes_on = first.step(stopped_after)
        second = Actor(world.store, _publisher(world, two))
        second.finish()
        first.finish()
        assert isinstance(first.result, Published)
        assert isinstance(second.result, Published)
        got = [done.artifact.version for done in (first.result, second.result)]
        assert sorted(got) == ([1, 1] if same else [1, 2]), stopped_after
        assert len(world.names(keys.ARTIFACTS)) == len(set(got))
        for done in (first.result, second.result):
            version = done.artifact.version
            assert read_artifact(world.repo, "digits", version)[0].job_id == done.artifact.job_id
            assert ("digits", version) in uses_of(world.repo, done.artifact.job_id)
        if not goes_on:
            break
    assert stopped_after > 6


@pytest.mark.parametrize("applied", [True, False])
def test_a_publisher_that_dies_leaves_nothing_that_is_in_the_way(
    tmp_path: Path, applied: bool
) -> None:
    """And at each moment a version whose files a delete could take has its use."""
    for number in itertools.count():
        world = World()
        job = left(world, tmp_path / f"{number}")
        store = mortal(world.store, at=number, applied=applied)
        try:
            _publisher(world, job)(store)
        except Crash:
            died = True
        else:
            died = False
        there = len(world.names(keys.ARTIFACTS))
        assert len(uses_of(world.repo, job)) >= there
        assert published(world, job).artifact.version == 1
        if not died:
            break
    assert number > 6


# --- what a delete has to ask ---------------------------------------------------------------


def test_a_job_is_needed_by_each_of_its_versions_and_by_no_other(
    world: World, tmp_path: Path
) -> None:
    one, two = left(world, tmp_path), left(world, tmp_path)
    assert uses_of(world.repo, one) == []
    published(world, one)
    published(world, one, "weights", "model")
    published(world, two)
    world.store.create(keys.artifact_use(two, "digits", 1), b"")  # as the loser of a race leaves
    assert uses_of(world.repo, one) == [("digits", 1), ("weights", 1)]
    assert uses_of(world.repo, two) == [("digits", 2)]


def test_a_use_without_a_version_and_one_that_cannot_be_read_keep_the_job(
    world: World, tmp_path: Path
) -> None:
    job = left(world, tmp_path)
    world.store.create(keys.artifact_use(job, "coming", 1), b"")
    world.store.create(keys.artifact_use(job, "torn", 1), b"")
    world.store.create(keys.artifact(("torn"), 1), b"{ cut")
    assert uses_of(world.repo, job) == [("coming", 1), ("torn", 1)]


def test_a_publisher_of_a_job_that_is_being_deleted_publishes_nothing(
    world: World, tmp_path: Path
) -> None:
    """The delete has taken the manifest, and lists the uses: one of the two sees the other."""
    job = left(world, tmp_path)
    publisher = Actor(world.store, _publisher(world, job))
    while publisher.pending_key != keys.artifact_use(job, "digits", 1):
        assert publisher.step()
    world.store.delete(keys.output_manifest(job, 1), None)
    assert uses_of(world.repo, job) == []
    publisher.finish()
    assert isinstance(publisher.error, Refused)
    assert world.names(keys.ARTIFACTS) == []


# --- looking --------------------------------------------------------------------------------


def test_names_come_by_pages_with_their_newest_versions(world: World, tmp_path: Path) -> None:
    one, two = left(world, tmp_path), left(world, tmp_path)
    for name in ("b", "a", "a.x", "a-x"):
        published(world, one, name)
    published(world, two, "a")
    page = names(world.repo, limit=3)
    assert [(row.name, row.version, row.versions) for row in page.rows] == [
        ("a-x", 1, 1),
        ("a.x", 1, 1),
        ("a", 2, 2),
    ]
    assert (page.more, page.after) == (True, "a")
    rest = names(world.repo, after="a", limit=3)
    assert ([row.name for row in rest.rows], rest.more) == (["b"], False)
    assert [row.name for row in names(world.repo, part="x", limit=9).rows] == ["a-x", "a.x"]


def test_a_look_at_very_many_versions_says_where_to_go_on(world: World, tmp_path: Path) -> None:
    """And does not take for the newest version the last one that it saw."""
    last = published(world, left(world, tmp_path), "z").artifact
    many = 20_100
    for version in range(1, many + 1):
        world.store.put(keys.artifact("a", version), b"")
    world.store.put(keys.artifact("b", 1), b"")
    page = names(world.repo, limit=9)
    assert [(row.name, row.version, row.versions) for row in page.rows] == [("a", many, many)]
    assert (page.more, page.after) == (True, "a")
    searched = names(world.repo, part="z", limit=9)
    assert (searched.rows, searched.more, searched.after) == ([], True, "a")
    rest = names(world.repo, part="z", after="a", limit=9)
    assert [row.newest for row in rest.rows] == [last]
    assert (rest.more, rest.after) == (False, None)


def test_a_version_that_cannot_be_read_costs_its_own_row(world: World, tmp_path: Path) -> None:
    published(world, left(world, tmp_path))
    world.store.create(keys.artifact("torn", 1), b"{ cut")
    world.store.create(f"{keys.ARTIFACTS}junk", b"")
    rows = names(world.repo, limit=9).rows
    assert [(row.name, row.newest is None) for row in rows] == [("digits", False), ("torn", True)]
    with pytest.raises(Unreadable):
        read_artifact(world.repo, "torn", None)


@pytest.mark.parametrize(
    "lie", [{"version": 2}, {"name": "other"}, {"job_id": "b" * 16}, {"epoch": 2}]
)
def test_a_version_that_speaks_for_another_is_unreadable(
    world: World, tmp_path: Path, lie: dict[str, object]
) -> None:
    """Neither another key nor files of another job."""
    artifact = published(world, left(world, tmp_path)).artifact
    world.store.put(artifact.own_key(), artifact.evolve(**lie).encode())
    with pytest.raises(Unreadable):
        read_artifact(world.repo, "digits", 1)


def test_a_check_finds_each_damage_and_nothing_else(world: World, tmp_path: Path) -> None:
    job = left(world, tmp_path)
    artifact = published(world, job).artifact
    assert _damages(world, artifact, tmp_path) == {}
    world.store.put(keys.output_file(job, 1, "note"), b"ho")
    world.store.delete(keys.output_file(job, 1, "model/w"), None)
    found = _damages(world, artifact, tmp_path)
    assert found["model/w"] == "it is missing"
    assert "published were 2" in found["note"]
    assert set(found) == {"model/w", "note"}
    assert list((tmp_path / "check").iterdir()) == []


def _damages(world: World, artifact: Artifact, folder: Path) -> dict[str, str]:
    place = folder / "check"
    place.mkdir(exist_ok=True)
    looked = list(verify(world.repo, artifact, place))
    assert looked[-1][0] == len(artifact.files)
    return {damage.path: damage.why for _, damages in looked for damage in damages}


# --- and the deletion of their jobs ---------------------------------------------------------


def test_a_job_whose_output_is_published_is_not_deleted(world: World, tmp_path: Path) -> None:
    job = left(world, tmp_path)
    published(world, job)
    error = refused(lambda: delete(world.repo, job, by="ada"))
    assert error.code == "output_published"
    assert "published as digits@1" in str(error)
    assert world.states(job) == {State.COMPLETED}


def test_what_a_deleted_job_left_is_gone(world: World, tmp_path: Path) -> None:
    job = left(world, tmp_path)
    assert delete(world.repo, job, by="ada").objects == len(FILES) + 1
    assert world.states(job) == set()
    assert world.names(f"status/{job}/output/1/files/") == []
    assert refused(lambda: published(world, job)).code == "job_unknown"


def test_of_a_publish_and_a_delete_none_leaves_a_version_without_files(
    world: World, tmp_path: Path
) -> None:
    """Wherever either of them sleeps meanwhile."""
    outcomes = set()
    for steps, publisher_first in itertools.product(range(20), (True, False)):
        job = left(world, tmp_path)
        name = f"of-{job}"

        def publishing(store: Store, job: str = job, name: str = name) -> object:
            return publish(world.repo_over(store), job_id=job, name=name, by="ada")

        def deleting(store: Store, job: str = job) -> object:
            return delete(world.repo_over(store), job, by="ada")

        one, other = (publishing, deleting) if publisher_first else (deleting, publishing)
        slow = Actor(world.store, one)
        slow.step(steps)
        fast = Actor(world.store, other)
        fast.finish()
        slow.finish()
        publisher, deleter = (slow, fast) if publisher_first else (fast, slow)
        outcomes.add((publisher.error is None, deleter.error is None))
        if publisher.error is None:
            artifact, _ = read_artifact(world.repo, name, None)
            assert [
                damage for _, some in verify(world.repo, artifact, tmp_path) for damage in some
            ] == []
        else:
            assert isinstance(publisher.error, Refused)
    assert {(True, False), (False, True)} <= outcomes
