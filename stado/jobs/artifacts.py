"""Output of jobs under names of its own: versions 1, 2, 3 … that never change.

A version is one document, made by a create. The files stay where their job left them, so whoever
deletes a job has to ask `uses_of` first.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stado.core import keys
from stado.core.documents import AnyDocument, decode
from stado.core.inputs import check_artifact_name
from stado.core.records import Artifact, Manifest, OutputFile, Record
from stado.core.states import Leftover, State
from stado.errors import Exists, NotFound, Refused, Unreadable
from stado.jobs.expired import check_there, find_expired, refusal
from stado.jobs.finding import find_job, was_deleted
from stado.jobs.outputs import find_present_manifest
from stado.jobs.repository import PARALLEL_REQUESTS, Repository
from stado.storage.port import LIST_LIMIT_MAX, walk

VERSIONS_MAX = 999_999
_ATTEMPTS_MAX = 1000
"""At the next version, while others take one after another."""

_NAMES_WALKED_MAX = 20 * LIST_LIMIT_MAX
_NEAR_MAX = 8
_PARALLEL_READS = 4


@dataclass(frozen=True, slots=True)
class Published:
    """The answer to a publish."""

    artifact: Artifact
    created: bool
    """False when this output had been published under the name before."""


@dataclass(frozen=True, slots=True)
class Name:
    """An artifact in a list. `newest` is None when that cannot be read; `problem` says why."""

    name: str
    version: int
    """The newest."""
    versions: int
    newest: Artifact | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Names:
    """A page of names, in order. Where more may follow, `after` is the name to go on after."""

    rows: list[Name]
    after: str | None

    @property
    def more(self) -> bool:
        return self.after is not None


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that is not what its artifact says."""

    path: str
    key: str
    why: str


def read_known(repo: Repository, kind: type[AnyDocument], key: str) -> tuple[AnyDocument, str]:
    """A document and the SHA-256 of its bytes. Raises `NotFound`, `Unreadable`."""
    data = repo.store.get(key).data
    return decode(kind, key, data), hashlib.sha256(data).hexdigest()


def part_of(files: Sequence[OutputFile], path: str) -> dict[str, OutputFile]:
    """The files at or below a path of an output, by where they are below it. One that is the path
    itself has its own name."""
    found = {}
    for file in files:
        if file.path == path:
            found[file.path.rpartition("/")[2]] = file
        elif not path or file.path.startswith(f"{path}/"):
            found[file.path[len(path) + 1 if path else 0 :]] = file
    return found


def output_of(repo: Repository, record: Record, path: str) -> tuple[Manifest, str]:
    """What a job at rest left, with the SHA-256 of that manifest. Raises `Refused` when it left
    nothing there, or that has gone for its age."""
    newest = find_present_manifest(repo, record.id, record.epoch, record.state)
    if newest is None or not newest.files:
        check_there(repo, record, Leftover.OUTPUTS)
        raise Refused("output_missing", f"job {record.id} left no files")
    try:
        manifest, digest = read_known(repo, Manifest, keys.output_manifest(record.id, newest.epoch))
    except NotFound:
        raise _just_deleted(record.id) from None
    if not part_of(manifest.files, path):
        raise Refused(
            "output_missing",
            f"job {record.id} left nothing at {path!r}{_near_paths(manifest.files, path)}",
        )
    return manifest, digest


def job_at_rest(repo: Repository, job_id: str) -> Record:
    """A job that has ended. Raises `Refused` for one that is not there, or whose output may still
    change."""
    found = find_job(repo, job_id)
    if found is None:
        raise Refused("job_unknown", f"there is no job {job_id!r} in {repo.store.address}")
    if not found.state.terminal:
        raise Refused(
            "job_not_at_rest",
            f"job {job_id} is {found.state.value}, and what it leaves is not final: wait for its "
            f"end (`stado job watch {job_id} --follow`)",
        )
    return found.record


# --- publishing ---------------------------------------------------------------------------


def publish(
    repo: Repository, *, job_id: str, name: str, path: str = "", by: str, partial: bool = False
) -> Published:
    """Gives a job's output, or a part of it, the next version of a name. The same again answers
    the version that there is.

    Writes the use, then the version. A crash between leaves a use without a version, which keeps
    the job from being deleted until somebody publishes it. Raises `Refused`."""
    check_artifact_name(name)
    record = job_at_rest(repo, job_id)
    if record.state is not State.COMPLETED and not partial:
        raise Refused(
            "output_partial",
            f"job {job_id} is {record.state.value}, not completed: what it left may be half done. "
            "Publish it all the same with --partial",
        )
    manifest, digest = output_of(repo, record, path)
    draft = Artifact(
        name=name,
        version=1,
        job_id=job_id,
        epoch=manifest.epoch,
        run_id=record.run_id,
        manifest_sha256=digest,
        path=path,
        partial=manifest.partial or record.state is not State.COMPLETED,
        files=list(part_of(manifest.files, path).values()),
        published_at=repo.now(),
        published_by=by,
    )
    version = newest_version(repo, name)
    published = _find_same(repo, draft)
    return published or _create_next(repo, draft, version)


def _find_same(repo: Repository, draft: Artifact) -> Published | None:
    """What has been published already. Listed after the versions: of one that is among those, the
    use was written before."""
    for name, version in _listed_uses(repo, draft.job_id):
        if name != draft.name:
            continue
        stored = repo.find(Artifact, keys.artifact(name, version))
        if stored is not None and _is_same(stored.value, draft):
            return Published(stored.value, created=False)
    return None


def _create_next(repo: Repository, draft: Artifact, newest: int) -> Published:
    for version in range(newest + 1, newest + 1 + _ATTEMPTS_MAX):
        if version > VERSIONS_MAX:
            raise Refused("artifact_invalid", f"artifact {draft.name} has {VERSIONS_MAX} versions")
        artifact = draft.evolve(version=version)
        _write_use(repo, artifact)
        try:
            repo.store.create(artifact.own_key(), artifact.encode())
        except Exists:
            stored = repo.read_taken(Artifact, artifact.own_key())
            if _is_same(stored.value, draft):
                return Published(stored.value, created=False)
            continue
        return Published(artifact, created=True)
    raise Refused("artifact_busy", f"others publish {draft.name} all the time: try again")


def _write_use(repo: Repository, artifact: Artifact) -> None:
    """Who deletes the job, or what it left, marks it, then lists its uses; we write ours, then look
    for the mark: one of the two sees the other."""
    with suppress(Exists):
        repo.store.create(keys.artifact_use(artifact.job_id, artifact.name, artifact.version), b"")
    try:
        repo.store.head(keys.output_manifest(artifact.job_id, artifact.epoch))
    except NotFound:
        raise _just_deleted(artifact.job_id) from None
    if was_deleted(repo, artifact.job_id):
        raise _just_deleted(artifact.job_id)
    expired = find_expired(repo, Leftover.OUTPUTS, artifact.job_id, epoch=artifact.epoch)
    if expired is not None:
        raise refusal(expired)


def _just_deleted(job_id: str) -> Refused:
    return Refused("output_missing", f"job {job_id} has just been deleted")


def _is_same(one: Artifact, other: Artifact) -> bool:
    def said(artifact: Artifact) -> tuple[object, ...]:
        source = (artifact.job_id, artifact.epoch, artifact.manifest_sha256)
        return (*source, artifact.path)

    return said(one) == said(other)


def uses_of(repo: Repository, job_id: str) -> list[tuple[str, int]]:
    """Names and versions that need this job's output: who would delete it must not. One that is
    about to be published, or whose publisher died before it was, counts. One listing, and a read
    for each use."""
    return [
        (name, version)
        for name, version in _listed_uses(repo, job_id)
        if _needs(repo, job_id, name, version)
    ]


def _needs(repo: Repository, job_id: str, name: str, version: int) -> bool:
    """A use stays behind where somebody else got the version; then that says whose it is."""
    try:
        stored = repo.find(Artifact, keys.artifact(name, version))
    except Unreadable:
        return True
    return stored is None or stored.value.job_id == job_id


def _listed_uses(repo: Repository, job_id: str) -> Iterator[tuple[str, int]]:
    for entry in walk(repo.store, keys.artifact_uses(job_id)):
        parsed = keys.parse_artifact_use(entry.key)
        if parsed is not None:
            yield parsed


# --- looking ------------------------------------------------------------------------------


def newest_version(repo: Repository, name: str) -> int:
    """0 when there is none. A listing for each 1,000 versions."""
    return max(_versions(repo, name), default=0)


def _versions(repo: Repository, name: str) -> list[int]:
    found = (keys.parse_artifact(e.key) for e in walk(repo.store, keys.artifact_versions(name)))
    return [parsed[1] for parsed in found if parsed is not None]


def read_artifact(repo: Repository, name: str, version: int | None) -> tuple[Artifact, str]:
    """A version (None: the newest), and the SHA-256 of its document. Raises `Refused`, with names
    that look like it; `Unreadable`."""
    wanted = version if version is not None else newest_version(repo, name)
    try:
        return read_known(repo, Artifact, keys.artifact(name, max(wanted, 1)))
    except NotFound:
        raise _unknown(repo, name, version) from None


def _unknown(repo: Repository, name: str, version: int | None) -> Refused:
    newest = newest_version(repo, name) if version is not None else 0
    if newest:
        return Refused(
            "artifact_unknown",
            f"artifact {name} has no version {version}: the newest is {newest}",
        )
    near = _near_names(repo, name)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    return Refused(
        "artifact_unknown",
        f"there is no artifact {name!r} in {repo.store.address}; {meant}"
        "`stado artifact list` lists them",
    )


def names(repo: Repository, *, part: str = "", after: str = "", limit: int) -> Names:
    """Names that hold `part`, in order. A listing for each 1,000 versions (some 20 at most), and a
    read for each row."""
    found: list[tuple[str, list[int]]] = []
    last, is_cut = after, False
    for name, group in itertools.groupby(_walked(repo, after), key=_name_of):
        if name is None:
            is_cut = True
            break
        last = name
        if part in name:
            found.append((name, [one[1] for one in group if one is not None]))
        if len(found) > limit:
            break
    if is_cut and found and found[-1][0] == last:
        found[-1] = last, _versions(repo, last)
    rows = repo.tasks.map(lambda one: _row(repo, *one), found[:limit], limit=PARALLEL_REQUESTS)
    if len(found) > limit:
        last = rows[-1].name
    return Names(rows, after=last if is_cut or len(found) > limit else None)


def _walked(repo: Repository, after: str) -> Iterator[tuple[str, int] | None]:
    """Name and version, in the order of the names. None: there are more than anybody looks at at
    once, and the last name may have other versions."""
    entries = walk(repo.store, keys.ARTIFACTS, start_after=_behind(after))
    for count, entry in enumerate(entries):
        if count == _NAMES_WALKED_MAX:
            yield None
            return
        parsed = keys.parse_artifact(entry.key)
        if parsed is not None:
            yield parsed


def _name_of(one: tuple[str, int] | None) -> str | None:
    return None if one is None else one[0]


def _behind(name: str) -> str:
    return f"{keys.artifact_versions(name)}~" if name else ""


def _row(repo: Repository, name: str, versions: list[int]) -> Name:
    version = max(versions)
    try:
        newest = repo.find(Artifact, keys.artifact(name, version))
    except Unreadable as error:
        return Name(name, version, len(versions), None, str(error))
    return Name(name, version, len(versions), newest.value if newest else None)


def verify(
    repo: Repository, artifact: Artifact, folder: Path
) -> Iterator[tuple[int, list[Damage]]]:
    """Reads every file of an artifact anew, some at a time, by way of a folder: how many have been
    read so far, and what was wrong with the last ones. Errors of the store are raised."""
    for start in range(0, len(artifact.files), _PARALLEL_READS):
        some = artifact.files[start : start + _PARALLEL_READS]
        looked = repo.tasks.map(
            lambda file: _damage(repo, file, folder), some, limit=_PARALLEL_READS
        )
        yield start + len(some), [damage for damage in looked if damage is not None]


def _damage(repo: Repository, file: OutputFile, folder: Path) -> Damage | None:
    place = folder / repo.entropy.token()
    try:
        digest = repo.store.download(file.key, place)
    except NotFound:
        return Damage(file.path, file.key, "it is missing")
    finally:
        place.unlink(missing_ok=True)
    if (digest.size, digest.sha256) == (file.size, file.sha256):
        return None
    return Damage(
        file.path,
        file.key,
        f"it has {digest.size} bytes, SHA-256 {digest.sha256}; "
        f"published were {file.size}, {file.sha256}",
    )


def _near_names(repo: Repository, name: str) -> list[str]:
    from difflib import get_close_matches

    walked = itertools.islice(walk(repo.store, keys.ARTIFACTS), _NAMES_WALKED_MAX)
    known = dict.fromkeys(p[0] for e in walked if (p := keys.parse_artifact(e.key)) is not None)
    holding = [one for one in known if name.lower() in one.lower()]
    close = get_close_matches(name, known, n=_NEAR_MAX)
    return list(dict.fromkeys([*holding, *close]))[:_NEAR_MAX]


def _near_paths(files: Sequence[OutputFile], path: str) -> str:
    from difflib import get_close_matches

    folders = {
        file.path[:place]
        for file in files
        for place, letter in enumerate(file.path)
        if letter == "/"
    }
    known = sorted({file.path for file in files} | folders)
    close = get_close_matches(path, known, n=_NEAR_MAX) or known[:_NEAR_MAX]
    return f"; there is {', '.join(map(repr, close))}"
