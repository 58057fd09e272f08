"""Inputs of jobs: from what somebody named to exact content, and from that to the files of it.

A pin is the digest of a manifest, which has the digest of each file. Nothing that is written later
changes what a spec means; what is gone, or is not what it was, is an error that names it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from stado.core import keys
from stado.core.documents import decode
from stado.core.inputs import JobOutput, PinnedObject, PublishedArtifact, Wanted
from stado.core.records import Artifact, Manifest, OutputFile
from stado.core.spec import Input
from stado.errors import Conflict, NotFound, Refused
from stado.jobs.artifacts import job_at_rest, output_of, part_of, read_artifact
from stado.jobs.repository import Repository


@dataclass(frozen=True, slots=True)
class Piece:
    """A file of an input, as this store has it."""

    path: str
    """Below the input's folder."""
    key: str
    size: int
    sha256: str


def pin_input(
    repo: Repository,
    wanted: Wanted,
    *,
    job_named: Callable[[str], str],
    tell: Callable[[str], None],
) -> Input:
    """What a submitter named, as it is now. Raises `Refused` with the remedy when it is not there,
    or not final."""
    reference = wanted.reference
    if isinstance(reference, PinnedObject):
        return Input(name=wanted.name, source=reference.address, sha256=reference.sha256)
    try:
        if isinstance(reference, JobOutput):
            return _pin_output(repo, wanted.name, reference, job_named(reference.job), tell)
        return _pin_artifact(repo, wanted.name, reference, tell)
    except Refused as error:
        raise Refused(error.code, f"input {wanted.name}: {error.text}") from None


def _pin_output(
    repo: Repository, name: str, reference: JobOutput, job_id: str, tell: Callable[[str], None]
) -> Input:
    record = job_at_rest(repo, job_id)
    manifest, digest = output_of(repo, record, reference.path)
    if manifest.partial:
        tell(f"input {name}: job {job_id} is {record.state.value}: what it left may be half done")
    key = keys.output_manifest(job_id, manifest.epoch)
    return Input(name=name, source=key, sha256=digest, path=reference.path)


def _pin_artifact(
    repo: Repository, name: str, reference: PublishedArtifact, tell: Callable[[str], None]
) -> Input:
    artifact, digest = read_artifact(repo, reference.name, reference.version)
    said = f"artifact {artifact.name}@{artifact.version}"
    if not part_of(artifact.files, _below(artifact, reference.path)):
        raise Refused("output_missing", f"{said} has nothing at {reference.path!r}")
    if artifact.partial:
        tell(f"input {name}: {said} is of a job that did not complete: it may be half done")
    elif reference.version is None:
        tell(f"input {name}: {said}, the newest")
    return Input(name=name, source=artifact.own_key(), sha256=digest, path=reference.path)


def pieces_of(repo: Repository, pinned: Input) -> list[Piece]:
    """The files of an input that this store has. Raises `NotFound`, `Unreadable`, `Conflict` when
    the document is not the one that was pinned, `Refused` when it is none."""
    files, path = _files_of(repo, pinned)
    found = part_of(files, path)
    if not found:
        raise Refused("input_invalid", f"{pinned.source} has nothing at {path!r}")
    return [Piece(below, file.key, file.size, file.sha256) for below, file in found.items()]


def _files_of(repo: Repository, pinned: Input) -> tuple[list[OutputFile], str]:
    kind = _kind_of(pinned.source)
    try:
        data = repo.store.get(pinned.source).data
    except NotFound:
        raise NotFound(pinned.source, "it is not there any more") from None
    digest = hashlib.sha256(data).hexdigest()
    if digest != pinned.sha256:
        raise Conflict(
            pinned.source, f"its SHA-256 is {digest}; {pinned.sha256} was pinned at the submit"
        )
    document = decode(kind, pinned.source, data)
    if isinstance(document, Artifact):
        return document.files, _below(document, pinned.path)
    return document.files, pinned.path


def _kind_of(key: str) -> type[Manifest] | type[Artifact]:
    """Only what says of each file what it must be; no key of anything else is read."""
    if keys.parse_output_manifest(key) is not None:
        return Manifest
    if keys.parse_artifact(key) is not None:
        return Artifact
    raise Refused(
        "input_invalid", f"{key!r} is neither a manifest of a job's output nor an artifact"
    )


def _below(artifact: Artifact, path: str) -> str:
    """The path in the whole output of one in the artifact; a single file is named by its name."""
    if not artifact.path:
        return path
    if [file.path for file in artifact.files] == [artifact.path]:
        own_name = artifact.path.rpartition("/")[2]
        return artifact.path if path in ("", own_name) else f"{artifact.path}/{path}"
    return f"{artifact.path}/{path}" if path else artifact.path
