"""Policies: what train jobs left for others, found by what people type, and brought here.

A reference names a policy and one of its two saves, `policy_<job id>:best`. A policy is what was
sealed when its job came to rest (`policy_seals`); of a job that still runs there is none yet.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stado.core import keys
from stado.core.ids import is_job_id
from stado.core.records import Checkpoint, PolicySeal, Record, SaveRef, policy_id, policy_name
from stado.core.spec import POLICY_PREFIX, StartFrom
from stado.core.states import Kind
from stado.errors import Conflict, NotFound, Refused, Unreadable
from stado.jobs.checkpoints import restore
from stado.jobs.finding import find_job
from stado.jobs.folders import folder_for, remove_folder
from stado.jobs.policy_seals import find_seal
from stado.jobs.repository import PARALLEL_REQUESTS, Repository
from stado.jobs.status import near_matches
from stado.storage.port import walk

PART_LENGTH_MIN = 3
"""Of a part of an id that people may type."""

_CANDIDATES_MAX = 8
_NAMES_MAX = 20_000
_SHOWN_MAX = 120


@dataclass(frozen=True, slots=True)
class PolicyRef:
    """What somebody typed: `policy_x:best`, `policy_x.r2:best`. `part`: an id of a job, or a part
    of one."""

    part: str
    revision: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class PolicyListing:
    """Policies, those of the newest jobs first."""

    seals: list[PolicySeal]
    unreadable: list[Unreadable]
    more: bool


# --- what people type -----------------------------------------------------------------------


def parse_ref(text: str) -> PolicyRef:
    """Blanks around it and capital letters are forgiven. Raises `Refused`."""
    typed = text.strip().lower()
    name, colon, word = typed.partition(":")
    kinds = [kind.value for kind in Kind]
    if not name.startswith(POLICY_PREFIX):
        raise Refused(
            "checkpoint_ref_is_job",
            f"{_short(text)} names no policy: a checkpoint is one of a policy's, such as "
            f"{POLICY_PREFIX}{name or 'x'}:best; job ids name everything else",
        )
    if not colon or word not in kinds:
        raise Refused(
            "checkpoint_ref_invalid",
            f"{_short(text)} does not say which checkpoint: write {name[:40]}:best or "
            f"{name[:40]}:latest",
        )
    part, revision = keys.parse_policy_name(name.removeprefix(POLICY_PREFIX))
    return PolicyRef(part, revision, Kind(word))


def find_save(repo: Repository, text: str) -> tuple[PolicySeal, Kind, SaveRef]:
    """The save that a reference names. Raises `Refused`, by name and with the remedy."""
    ref = parse_ref(text)
    seal = find_policy(repo, ref.part, ref.revision)
    save = seal.save(ref.kind)
    if save is not None:
        return seal, ref.kind, save
    if seal.latest is None:
        why = "its job saved none; `stado logs` of it may say why"
    else:
        why = f"none of its saves told a metric; {seal.policy_id}:latest is there"
    raise Refused("checkpoint_unavailable", f"{seal.policy_id} has no {ref.kind.value}: {why}")


def pin_start(repo: Repository, text: str) -> StartFrom:
    """The exact save that a reference means now, and for ever. Raises `Refused`."""
    seal, kind, save = find_save(repo, text)
    return StartFrom(policy=seal.policy_id, kind=kind, manifest=save.manifest, sha256=save.sha256)


def find_policy(repo: Repository, part: str, revision: int = 1) -> PolicySeal:
    """The sealed policy of a job. Raises `Refused` when there is none, when the part of an id
    means several, or when the job still runs."""
    if is_job_id(part):
        return _policy_of(repo, part, revision)
    if len(part) < PART_LENGTH_MIN:
        raise Refused(
            "policy_not_found",
            f"{POLICY_PREFIX}{part} names no policy: type at least {PART_LENGTH_MIN} characters "
            "of its id; `stado policy list` lists them",
        )
    job_ids = list(dict.fromkeys(job for job, _ in _policy_names(repo) if part in job))
    job_ids = job_ids or near_matches(repo, part, limit=_CANDIDATES_MAX).job_ids
    if not job_ids:
        raise _unknown(repo, part)
    if len(job_ids) > 1:
        told = ", ".join(policy_id(job) for job in job_ids[:_CANDIDATES_MAX])
        rest = len(job_ids) - _CANDIDATES_MAX
        raise Refused(
            "policy_ambiguous",
            f"{POLICY_PREFIX}{part} could mean {len(job_ids)} of them: {told}"
            f"{f', {rest} more' if rest > 0 else ''}; type more of the id",
        )
    return _policy_of(repo, job_ids[0], revision)


def newest_policies(repo: Repository, *, limit: int) -> PolicyListing:
    """One listing, and a read for each."""
    names = list(itertools.islice(_policy_names(repo), limit + 1))
    unreadable: list[Unreadable] = []

    def read(name: tuple[str, int]) -> PolicySeal | None:
        try:
            return find_seal(repo, *name)
        except Unreadable as error:
            unreadable.append(error)
            return None

    found = repo.tasks.map(read, names[:limit], limit=PARALLEL_REQUESTS)
    seals = [seal for seal in found if seal is not None]
    return PolicyListing(seals, unreadable, more=len(names) > limit)


def _policy_names(repo: Repository) -> Iterator[tuple[str, int]]:
    """Ids of jobs that have a policy, newest first, each with the revision."""
    for entry in itertools.islice(walk(repo.store, keys.POLICIES), _NAMES_MAX):
        name = keys.parse_policy_name(keys.job_of_record(entry.key))
        if is_job_id(name[0]):
            yield name


def _policy_of(repo: Repository, job_id: str, revision: int) -> PolicySeal:
    found = find_seal(repo, job_id, revision)
    if found is not None:
        return found
    job = find_job(repo, job_id)
    if job is None:
        raise _unknown(repo, job_id)
    found = find_seal(repo, job_id, revision)  # it may have come to rest just now
    if found is not None:
        return found
    if revision > job.record.policy_revision:
        raise _unknown(repo, policy_name(job_id, revision))
    raise _not_sealed(job.record)


def _not_sealed(record: Record) -> Refused:
    if record.policy_id is None:
        return Refused(
            "policy_not_found",
            f"job {record.id} makes no policy: it is of type {record.spec.type.value}, and only a "
            "job that was submitted with --type train makes one",
        )
    return Refused(
        "policy_not_sealed",
        f"{record.policy_id} is not sealed: its job is {record.state.value}, and its best may "
        f"still change. Try again when it has ended (`stado job watch {record.id} --follow` "
        "waits), or cancel it: what it has saved stays",
    )


def _unknown(repo: Repository, part: str) -> Refused:
    return Refused(
        "policy_not_found",
        f"there is no {_short(POLICY_PREFIX + part)} in {repo.store.address}; "
        "`stado policy list` lists the newest",
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…")


# --- bringing one here ----------------------------------------------------------------------


def download_save(
    repo: Repository,
    seal: PolicySeal,
    save: SaveRef,
    folder: Path,
    *,
    between: Callable[[], None] | None = None,
) -> Checkpoint:
    """Fills a new or an empty folder with a save's files, each checked against the manifest, and
    that against the policy. Raises `Refused`: `checkpoint_folder_not_empty`, or
    `checkpoint_unavailable` when something of it is gone or damaged; then the folder is as it was.
    A crash leaves a folder `.stado-<token>` in there, which anybody may remove."""
    check_free(folder)
    with restored_beside(repo, seal, save, folder, between=between) as (checkpoint, restored):
        for path in sorted(restored.iterdir()):
            os.replace(path, folder / path.name)
    return checkpoint


def check_free(folder: Path) -> None:
    """Raises `Refused` unless a folder is absent or empty."""
    if folder.exists() and not folder.is_dir():
        raise Refused("checkpoint_folder_not_empty", f"{folder} is a file: name a folder")
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    if names:
        raise Refused(
            "checkpoint_folder_not_empty",
            f"{folder} holds other files ({names[0]!r}, {len(names)} in all): "
            "name a new or an empty folder",
        )


@contextmanager
def restored_beside(
    repo: Repository,
    seal: PolicySeal,
    save: SaveRef,
    folder: Path,
    *,
    between: Callable[[], None] | None = None,
) -> Iterator[tuple[Checkpoint, Path]]:
    """A save's files in a temporary folder within `folder`, which is made."""
    with folder_for(folder):
        temporary = folder / f".stado-{repo.entropy.token()}"
        temporary.mkdir()
        try:
            restored = temporary / "files"
            checkpoint, _ = restore(
                repo, save.manifest, restored, sha256=save.sha256, between=between
            )
            yield checkpoint, restored
        except (NotFound, Conflict, Unreadable) as error:
            raise Refused(
                "checkpoint_unavailable",
                f"a checkpoint of {seal.policy_id} is gone or damaged: {error}",
            ) from error
        finally:
            remove_folder(temporary)
