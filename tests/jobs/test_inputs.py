"""Inputs are pinned to what is there at the submit, and mean that for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from stado.core import keys
from stado.core.inputs import parse_wanted
from stado.core.spec import Input, Spec, make_request
from stado.core.states import Verdict
from stado.errors import Conflict, NotFound, Refused, Unreadable
from stado.jobs.artifacts import publish
from stado.jobs.inputs import pieces_of, pin_input
from stado.pinning import Submitter, Unpinned, pin
from tests.jobs.test_artifacts import left
from tests.jobs.world import World

DIGEST = "ab" * 32


def pinned(world: World, text: str, told: list[str] | None = None) -> Input:
    lines = [] if told is None else told
    return pin_input(world.repo, parse_wanted(text), job_named=lambda job: job, tell=lines.append)


def files(world: World, text: str) -> dict[str, bytes]:
    """What an input is made of."""
    return {
        piece.path: world.store.get(piece.key).data
        for piece in pieces_of(world.repo, pinned(world, text))
    }


def test_an_output_an_artifact_and_parts_of_them_are_their_files(
    world: World, tmp_path: Path
) -> None:
    """R139: by paths below what was named."""
    job = left(world, tmp_path)
    publish(world.repo, job_id=job, name="digits", by="ada")
    publish(world.repo, job_id=job, name="model", path="model", by="ada")
    publish(world.repo, job_id=job, name="note", path="note", by="ada")
    model = {"w": b"weights", "deep/b": b"bias"}
    whole = {"note": b"hi", "model/w": b"weights", "model/deep/b": b"bias"}
    for text, expected in {
        job: whole,
        "artifact:digits": whole,
        f"{job}/model": model,
        "artifact:digits@1/model/": model,
        "artifact:model": model,
        "artifact:model/deep": {"b": b"bias"},
        f"{job}/model/w": {"w": b"weights"},
        "artifact:model/w": {"w": b"weights"},
        "artifact:note": {"note": b"hi"},
        "artifact:note@1/note": {"note": b"hi"},
    }.items():
        assert files(world, f"data={text}") == expected, text


def test_a_pin_means_the_same_whatever_is_published_later(world: World, tmp_path: Path) -> None:
    """R139"""
    job = left(world, tmp_path)
    publish(world.repo, job_id=job, name="digits", by="ada")
    told: list[str] = []
    before = pinned(world, "data=artifact:digits", told)
    assert told == ["input data: artifact digits@1, the newest"]
    publish(world.repo, job_id=left(world, tmp_path), name="digits", by="ada")
    assert pinned(world, "data=artifact:digits") != before
    assert pinned(world, "data=artifact:digits@1") == before
    assert {piece.key.split("/")[1] for piece in pieces_of(world.repo, before)} == {job}


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("{queued}", "job_not_at_rest", "wait for its end"),
        ("{running}", "job_not_at_rest", "is running"),
        ("{empty}", "output_missing", "left no files"),
        ("{job}/modle", "output_missing", "there is 'model'"),
        ("artifact:digit", "artifact_unknown", "did you mean digits"),
        ("artifact:digits@2", "artifact_unknown", "the newest is 1"),
        ("artifact:digits/x", "output_missing", "has nothing at 'x'"),
    ],
)
def test_what_is_not_there_or_not_final_is_refused_with_the_input_and_the_remedy(
    world: World, tmp_path: Path, text: str, code: str, told: str
) -> None:
    job, empty = left(world, tmp_path), left(world, tmp_path, files={})
    publish(world.repo, job_id=job, name="digits", by="ada")
    running = world.submit()
    world.claimed_of(running)
    queued = world.submit()
    said = text.format(job=job, empty=empty, running=running, queued=queued)
    with pytest.raises(Refused) as refused:
        pinned(world, f"data={said}")
    assert refused.value.code == code
    assert refused.value.text.startswith("input data: ")
    assert told in refused.value.text


def test_what_a_failed_job_left_is_taken_and_told(world: World, tmp_path: Path) -> None:
    job = left(world, tmp_path, verdict=Verdict.FAILED)
    told: list[str] = []
    assert pinned(world, f"data={job}", told).source == keys.output_manifest(job, 1)
    assert told == [f"input data: job {job} is failed: what it left may be half done"]


def test_all_of_a_request_is_pinned_in_the_order_of_names(world: World, tmp_path: Path) -> None:
    job = left(world, tmp_path)
    request = make_request(["a", "b"], Spec(command="", cpu=2), batch=True)
    words = (f"z={job}", f"a=s3://lab/x#sha256={DIGEST}")
    unpinned = Unpinned(input_artifacts=tuple(map(parse_wanted, words)))
    found = pin(world.repo, request, unpinned)
    assert [one.name for one in found.shared.inputs] == ["a", "z"]
    assert found.shared.cpu == 2
    assert all(spec.takes_along for spec in found.specs())
    other_order = Unpinned(input_artifacts=tuple(map(parse_wanted, reversed(words))))
    assert pin(world.repo, request, other_order).digest() == found.digest()
    twice = Unpinned(input_artifacts=tuple(map(parse_wanted, (words[0], words[0]))))
    with pytest.raises(Refused, match="input z is given twice"):
        pin(world.repo, request, twice)
    unknown = Unpinned(input_artifacts=(parse_wanted("x=last"),))
    with pytest.raises(Refused, match="there is no job 'last'"):
        pin(world.repo, request, unknown)
    named = Submitter(job_named=lambda _, text: {"last": job}[text])
    assert pin(world.repo, request, unknown, named).shared.inputs[0].source.split("/")[1] == job


# --- what has become of it ------------------------------------------------------------------


def test_a_document_that_is_not_the_pinned_one_is_not_believed(
    world: World, tmp_path: Path
) -> None:
    """R139"""
    job, other = left(world, tmp_path), left(world, tmp_path)
    one = pinned(world, f"data={job}")
    key = keys.output_manifest(job, 1)
    world.store.put(key, world.store.get(key).data + b" ")
    with pytest.raises(Conflict, match=r"its SHA-256 is .*; .* was pinned at the submit"):
        pieces_of(world.repo, one)
    world.store.delete(key, None)
    with pytest.raises(NotFound, match="not there any more"):
        pieces_of(world.repo, one)
    planted = one.evolve(source=keys.output_manifest(other, 1))
    with pytest.raises(Conflict):
        pieces_of(world.repo, planted)


@pytest.mark.parametrize(
    "source", ["stado.json", "../x", "status/x/heartbeat", "runs/a.json", "artifacts/uses/x/y@1"]
)
def test_nothing_but_manifests_is_read_as_one(world: World, source: str) -> None:
    with pytest.raises(Refused, match="neither a manifest"):
        pieces_of(world.repo, Input(name="x", source=source, sha256=DIGEST))


def test_a_document_that_names_files_of_others_is_unreadable(world: World, tmp_path: Path) -> None:
    """Although its digest is the one that a hostile spec states."""
    job, victim = left(world, tmp_path), left(world, tmp_path)
    artifact = publish(world.repo, job_id=job, name="digits", by="ada").artifact
    stolen = artifact.evolve(
        files=[file.evolve(key=file.key.replace(job, victim)) for file in artifact.files]
    )
    world.store.put(artifact.own_key(), stolen.encode())
    one = pinned_bytes(artifact.own_key(), stolen.encode())
    with pytest.raises(Unreadable, match="not its own"):
        pieces_of(world.repo, one)


def pinned_bytes(key: str, data: bytes) -> Input:
    import hashlib

    return Input(name="x", source=key, sha256=hashlib.sha256(data).hexdigest())
