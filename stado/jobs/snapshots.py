"""Snapshots: trees of files that jobs take along, once each however many submissions name them.

A snapshot lies below its digest: an archive under the token of its upload, a record that commits
it, and an empty object for each submission that names it. The record is never deleted. Who adds a
reference writes it first and reads the record then; who removes what nobody names marks the
record first and lists the references then. So one of the two sees the other.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from stado.core import keys
from stado.core.records import SnapshotRecord, SnapshotState
from stado.core.spec import Snapshot
from stado.core.trees import shown
from stado.errors import Ambiguous, Conflict, Exists, NotFound, Refused, StoreError, Unreadable
from stado.jobs.repository import Repository
from stado.sizes import file_size
from stado.storage.port import Fetch, Version

log = logging.getLogger(__name__)


def ensure(repo: Repository, snapshot: Snapshot, archive: Path) -> bool:
    """Sees to it that the store has the snapshot; whether it had to be uploaded.

    The archive goes up first, under a key of its own, then the record that names it. A crash
    between leaves an archive that no record names, and nobody reads."""
    made = None
    for _ in repo.rounds():
        known, version = _look(repo, snapshot.digest)
        if known is not None and _is_there(repo, known):
            if made is not None:
                _delete_archive(repo, made)
            return False
        made = made or _upload(repo, snapshot, archive)
        if _commit(repo, made, version):
            if known is not None:
                _delete_archive(repo, known)
            return True
    raise Ambiguous(keys.snapshot(snapshot.digest), "others keep changing it: try again")


def refer(repo: Repository, digest: str, run_id: str) -> None:
    """Says that a submission names a snapshot, before there is a submission: from here on it is
    not removed. Raises `Refused` (`snapshot_missing`) when it is not there any more.

    A crash after it, or a refusal, leaves a reference of a submission that is not there. It is not
    taken back: the same submission may be under way elsewhere, and need it."""
    with suppress(Exists):
        repo.store.create(keys.snapshot_reference(digest, run_id), b"")
    for _ in repo.rounds():
        known, version = _look(repo, digest)
        if known is None or known.state is SnapshotState.GONE:
            raise missing(digest)
        if known.state is SnapshotState.WHOLE:
            return
        if _commit(repo, _changed(repo, known, SnapshotState.WHOLE), version):
            return
    raise Ambiguous(keys.snapshot(digest), "others keep changing it: try again")


def drop_reference(repo: Repository, digest: str, run_id: str) -> None:
    """For who deletes the last job of a submission; `remove_unnamed` comes next."""
    repo.store.delete(keys.snapshot_reference(digest, run_id), None)


def remove_unnamed(repo: Repository, digest: str) -> bool:
    """Removes the archive of a snapshot unless a submission names it; whether it did. A few
    hundred bytes stay: the record, which says that it is gone.

    Marks the record as leaving, lists the references, marks it as gone, deletes the archive. A
    crash after the first mark: it is there, the next caller goes on, and who adds a reference
    takes the mark back. After the second: the archive takes room until this is called again, or
    the same tree is submitted again."""
    for _ in repo.rounds():
        known, version = _look(repo, digest)
        if known is None or known.state is SnapshotState.GONE:
            if known is not None:
                _delete_archive(repo, known)
            return False
        leaving = known.state is SnapshotState.LEAVING
        if is_named(repo, digest):
            if not leaving or _commit(repo, _changed(repo, known, SnapshotState.WHOLE), version):
                return False
        elif not leaving:
            _commit(repo, _changed(repo, known, SnapshotState.LEAVING), version)
        elif _commit(repo, _changed(repo, known, SnapshotState.GONE), version):
            _delete_archive(repo, known)
            return True
    raise Ambiguous(keys.snapshot(digest), "others keep changing it: try again")


def may_be_used(repo: Repository, digest: str) -> bool:
    """Whether it is there, for a job that names it. One read."""
    known, _ = _look(repo, digest)
    return known is not None and known.state is not SnapshotState.GONE


def is_named(repo: Repository, digest: str) -> bool:
    """Whether a submission names it. One listing."""
    return bool(repo.store.list(keys.snapshot_references(digest), limit=1))


def download(repo: Repository, digest: str, path: Path, fetch: Fetch) -> None:
    """Fetches the archive into a new file. Raises `Refused` (`snapshot_missing`), `Conflict` when
    it is not what the record says, `Unreadable`."""
    stored = repo.find(SnapshotRecord, keys.snapshot(digest))
    if stored is None or stored.value.state is SnapshotState.GONE:
        raise missing(digest)
    key = keys.snapshot_archive(digest, stored.value.archive)
    try:
        got = fetch(key, path, stored.value.archive_bytes)
    except NotFound:
        raise missing(digest) from None
    if (got.size, got.sha256) != (stored.value.archive_bytes, stored.value.archive_sha256):
        path.unlink(missing_ok=True)
        raise Conflict(key, "the archive does not have the size and SHA-256 of its record")


def text_of(snapshot: Snapshot) -> str:
    """`snapshot 1a2b3c4d5e6f: 12 files, 34 KiB`."""
    files = f"{snapshot.files:,} file{'' if snapshot.files == 1 else 's'}"
    return f"snapshot {shown(snapshot.digest)}: {files}, {file_size(snapshot.bytes)}"


def missing(digest: str) -> Refused:
    return Refused(
        "snapshot_missing",
        f"snapshot {shown(digest)} is not in the store any more: it went with the last job that "
        "named it, or was deleted. Submit it anew from the folder (--workdir)",
    )


def _look(repo: Repository, digest: str) -> tuple[SnapshotRecord | None, Version | None]:
    """One that cannot be read says nothing of an archive, and is replaced like one that is not
    there."""
    key = keys.snapshot(digest)
    try:
        stored = repo.find(SnapshotRecord, key)
    except Unreadable as error:
        repo.tell_unreadable(error)
        return None, repo.store.head(key).version
    return (None, None) if stored is None else (stored.value, stored.version)


def _is_there(repo: Repository, known: SnapshotRecord) -> bool:
    if known.state is SnapshotState.GONE:
        return False
    try:
        there = repo.store.head(keys.snapshot_archive(known.digest, known.archive))
    except NotFound:
        return False
    return there.size == known.archive_bytes


def _upload(repo: Repository, snapshot: Snapshot, archive: Path) -> SnapshotRecord:
    token = repo.entropy.token()
    uploaded = repo.store.upload(keys.snapshot_archive(snapshot.digest, token), archive)
    return SnapshotRecord(
        digest=snapshot.digest,
        state=SnapshotState.WHOLE,
        nonce=repo.entropy.token(),
        archive=token,
        archive_bytes=uploaded.size,
        archive_sha256=uploaded.sha256,
        files=snapshot.files,
        bytes=snapshot.bytes,
        at=repo.now(),
    )


def _changed(repo: Repository, known: SnapshotRecord, state: SnapshotState) -> SnapshotRecord:
    return known.evolve(state=state, nonce=repo.entropy.token(), at=repo.now())


def _commit(repo: Repository, record: SnapshotRecord, version: Version | None) -> bool:
    """Whether the record stands now as it is here: False when another one got ahead."""
    key = keys.snapshot(record.digest)
    if version is None:
        return repo.create(key, record) is not None
    try:
        repo.store.replace(key, record.encode(), version)
    except Conflict:
        return False
    return True


def _delete_archive(repo: Repository, record: SnapshotRecord) -> None:
    """Best effort: one that stays takes room, and no record that counts names it."""
    key = keys.snapshot_archive(record.digest, record.archive)
    try:
        repo.store.delete(key, None)
    except StoreError as error:
        log.warning("event=archive_left key=%s error=%r", key, str(error))
