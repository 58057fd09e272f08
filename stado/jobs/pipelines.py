"""Launching the steps of a pipeline: by whoever settles the end of the job before.

A launch is a submission under a run id that follows from the root's, so that it happens once,
however many settle; it comes before the last step of settling, so that it is not forgotten.
"""

from __future__ import annotations

import hashlib
import logging

from stado.core import keys, pipelines
from stado.core.documents import decode
from stado.core.pipelines import Held, Launch
from stado.core.records import Manifest, Record, RunRecord, SaveRef
from stado.core.spec import Input, StartFrom, make_request
from stado.core.states import Kind, State
from stado.errors import NotFound, Refused, Unreadable
from stado.jobs import snapshots, submission, taking
from stado.jobs.policy_seals import find_seal
from stado.jobs.repository import Repository, Stored

log = logging.getLogger(__name__)


def launch_following(repo: Repository, final: Record, *, though_cancelled: bool = False) -> None:
    """Queues what is to follow a job, if it has completed and that is not done yet; nothing where a
    cancel was asked of it before it had, but for who is about to cancel what this queues.

    Two reads, and one more for each further step, where there is one; else none. A crash on the way
    leaves a run that is not complete, which the next settler finishes once it is older than a
    lease, and else the submission sweep, or none, which the next settler makes.

    What cannot be launched is told and left: the job before it has completed all the same."""
    launches = pipelines.launches(final) if final.state is State.COMPLETED else []
    if not launches or (not though_cancelled and _is_cancelled(repo, final.id, final.epoch)):
        return
    for launch in launches:
        try:
            _launch_once(repo, final, launch)
        except (Refused, Unreadable) as error:
            _tell_not_launched(final, launch, error)


def _launch_once(repo: Repository, final: Record, launch: Launch) -> None:
    root = pipelines.root_of(final)
    run_id = pipelines.step_run_id(root, launch.number)
    stored, held = _find_step(repo, root, launch.number)
    if held is not None:
        _tell_not_launched(final, launch, f"run id {run_id} is another run's")
    elif stored is None:
        _launch(repo, final, launch, run_id)
    elif _was_left(repo, stored.value):
        submission.finish_begun(repo, stored)


def _was_left(repo: Repository, run: RunRecord) -> bool:
    """Whether its launcher is gone: whoever else writes the same would queue a job again that has
    been claimed meanwhile."""
    age_seconds = (repo.now() - run.submitted_at).total_seconds()
    return not run.complete and age_seconds > repo.deployment.lease_seconds


def find_step(repo: Repository, root: str, number: int) -> tuple[RunRecord | None, Held | None]:
    """The run of a step; or why there will be none. One read."""
    stored, held = _find_step(repo, root, number)
    return None if stored is None else stored.value, held


def _find_step(
    repo: Repository, root: str, number: int
) -> tuple[Stored[RunRecord] | None, Held | None]:
    stored = repo.find_run(pipelines.step_run_id(root, number))
    if stored is None:
        return None, None
    if not pipelines.is_of_step(stored.value, root, number):
        return None, Held.RUN_ID_TAKEN
    return stored, None


def held_after(repo: Repository, job_id: str, epoch: int) -> Held | None:
    """Why nothing follows a job that has completed in this epoch; None: what is to follow it is
    about to be launched. Two reads."""
    if _is_cancelled(repo, job_id, epoch):
        return Held.CANCELLED
    return Held.DELETED if repo.find_open(job_id, epoch + 1) is not None else None


def _is_cancelled(repo: Repository, job_id: str, epoch: int) -> bool:
    """What cannot be read asks for nothing."""
    try:
        asked = repo.find_asks(job_id, epoch)
    except Unreadable as error:
        repo.tell_unreadable(error)
        return False
    return asked is not None and asked.value.cancel


def _tell_not_launched(final: Record, launch: Launch, why: object) -> None:
    log.error("event=step_not_launched job=%s step=%d why=%r", final.id, launch.number, why)


def _launch(repo: Repository, final: Record, launch: Launch, run_id: str) -> None:
    left, start_from = _left_by(repo, final), _start_of(repo, final)
    spec = pipelines.step_spec(final, launch, left=left, start_from=start_from)
    request = make_request([spec.command], spec, batch=False)
    if spec.snapshot is not None:
        snapshots.refer(repo, spec.snapshot.digest, run_id)
    taking.take_along(repo, spec.inputs, run_id)
    stored, created = submission.run_record_of(repo, run_id, request, final.submitter, None)
    if created:
        submission.write_jobs(repo, stored)


def _left_by(repo: Repository, final: Record) -> Input | None:
    """The output of the completed epoch, pinned; None where it left no file. One read."""
    key = keys.output_manifest(final.id, final.epoch)
    try:
        data = repo.store.get(key).data
    except NotFound:
        return None
    if not decode(Manifest, key, data).files:
        return None
    name = pipelines.name_left_by(final)
    return Input(name=name, source=key, sha256=hashlib.sha256(data).hexdigest())


def _start_of(repo: Repository, final: Record) -> StartFrom | None:
    """The save of the root's policy that its steps start from; None where it makes none."""
    if final.policy_id is None:
        return None
    seal = find_seal(repo, final.id, final.policy_revision)
    if seal is None:
        return None
    saves: dict[Kind, SaveRef | None] = {Kind.BEST: seal.best, Kind.LATEST: seal.latest}
    for kind in pipelines.wanted_save(final.spec):
        save = saves[kind]
        if save is not None:
            return StartFrom(
                policy=seal.policy_id, kind=kind, manifest=save.manifest, sha256=save.sha256
            )
    return None
