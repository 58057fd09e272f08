"""The seal of a train job's policy: what of its checkpoints counts, decided once, for ever.

Whoever settles the job at rest makes it, from what is committed by then. The first one counts.
"""

from __future__ import annotations

import logging

from stado.core import keys
from stado.core.records import Checkpoint, PolicySeal, Record, SaveRef, policy_name
from stado.errors import NotFound, Unavailable, Unreadable
from stado.jobs.checkpoints import best_as_of, newest_manifests, read_manifest
from stado.jobs.repository import Repository

log = logging.getLogger(__name__)

_TRIED_MAX = 3


def seal_policy(repo: Repository, final: Record) -> None:
    """One listing, one read where something was saved, one write. `final` is the record at rest,
    which must not be written before. Safe to repeat: a seal that stands is left."""
    newest = _newest_save(repo, final.id)
    best = _best_of(repo, newest) if newest is not None else None
    assert final.ending is not None  # of a record at rest
    seal = PolicySeal(
        job_id=final.id,
        revision=final.policy_revision,
        epoch=final.epoch,
        at=final.ending.ended_at,
        latest=newest[1] if newest is not None else None,
        best=best,
    )
    repo.create(seal.own_key(), seal)


def find_seal(repo: Repository, job_id: str, revision: int = 1) -> PolicySeal | None:
    """The policy that a job made; None when it is not sealed, or makes none. One read."""
    found = repo.find(PolicySeal, keys.policy(policy_name(job_id, revision)))
    return found.value if found is not None else None


def saves_named(repo: Repository, job_id: str, *, revisions: int) -> list[str]:
    """The manifests of all saves that the first so many policies of a job name: they stay for
    ever. A read for each."""
    seals = [find_seal(repo, job_id, number) for number in range(1, revisions + 1)]
    saves = [save for seal in seals if seal is not None for save in (seal.latest, seal.best)]
    return sorted({save.manifest for save in saves if save is not None})


def _best_of(repo: Repository, newest: tuple[Checkpoint, SaveRef]) -> SaveRef | None:
    """As the newest save that can be read knew it; None where it has been swept for a newer one
    that cannot be read."""
    best = best_as_of(*newest)
    if best is None or best == newest[1]:
        return best
    try:
        repo.store.head(best.manifest)
    except NotFound:
        return None
    return best


def _newest_save(repo: Repository, job_id: str) -> tuple[Checkpoint, SaveRef] | None:
    """Raises `Unavailable` where a store names again and again what it has not."""
    for _ in repo.rounds():
        try:
            return _newest_readable(repo, newest_manifests(repo, job_id, limit=_TRIED_MAX))
        except NotFound:
            continue  # swept since, for a newer one that we have not seen
    raise Unavailable(keys.checkpoints_folder(job_id), "its checkpoints cannot be read: try again")


def _newest_readable(repo: Repository, manifests: list[str]) -> tuple[Checkpoint, SaveRef] | None:
    for key in manifests:
        try:
            return read_manifest(repo, key)
        except Unreadable as error:
            repo.tell_unreadable(error)
    return None
