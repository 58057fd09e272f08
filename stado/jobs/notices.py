"""Notices: names below `notify/pending/` that say what of a job has still to be told, and where.

Made by whoever settles, for a coordinator to send (`deliveries`). Where no rule asks for one there
is no request. To make one again does no harm: it is sent twice, under the same id.
"""

from __future__ import annotations

from dataclasses import dataclass

from stado.core import keys, pipelines
from stado.core.notices import channels_for
from stado.core.pipelines import Held, PipelineState
from stado.core.records import Awaited, Record, Undelivered
from stado.core.states import NotifyOn, State
from stado.errors import Exists, Unreadable
from stado.jobs.dependents import find_ended
from stado.jobs.pipelines import find_step, held_after
from stado.jobs.repository import PARALLEL_REQUESTS, Repository
from stado.storage.port import LIST_LIMIT_MAX


def announce_rest(repo: Repository, final: Record) -> None:
    """A job has come to rest, and its record says so: a write for each channel with a rule for it.
    A crash on the way leaves the job to be settled once more."""
    _create(repo, final, NotifyOn(final.state.value), final.id, final.epoch)
    if final.state.terminal and channels_for(final.notice_rules, NotifyOn.PIPELINE):
        over = _find_readable_end(repo, pipelines.root_of(final))
        if over is not None:
            _create(repo, final, NotifyOn.PIPELINE, over.root.id, over.number)


def _find_readable_end(repo: Repository, root_id: str) -> PipelineEnd | None:
    """Nothing is told of a pipeline of which something cannot be read; its job has ended all the
    same."""
    try:
        return find_pipeline_end(repo, root_id)
    except Unreadable as error:
        repo.tell_unreadable(error)
        return None


def announce_running(repo: Repository, record: Record) -> None:
    """A job has been claimed. Nothing of one that was adopted, which has run all the time."""
    if record.holder is not None and not record.holder.adopted:
        _create(repo, record, NotifyOn.RUNNING, record.id, record.epoch)


def _create(repo: Repository, record: Record, word: NotifyOn, job_id: str, epoch: int) -> None:
    for channel in channels_for(record.notice_rules, word):
        try:
            repo.store.create(keys.notice(job_id, epoch, word, channel), b"")
        except Exists:
            continue


@dataclass(frozen=True, slots=True)
class PipelineEnd:
    """What a pipeline came to. It may go on all the same, when somebody retries a step."""

    root: Record
    state: PipelineState
    number: int
    """The sum of its jobs' epochs: another one each time that it ends."""


def find_pipeline_end(repo: Repository, root_id: str) -> PipelineEnd | None:
    """None while something of it is under way, and for what is no pipeline. By cells alone: up to
    two reads and a listing for the root, and one read more for each step; two for one that is not
    launched, though its turn has come."""
    end = find_ended(repo, root_id)
    cell = repo.find_end(root_id, end.epoch) if end is not None else None
    if end is None or cell is None or not cell.record.spec.then:
        return None
    steps = _steps(repo, cell.record, end) if end.state is State.COMPLETED else []
    if steps is None:
        return None
    ends = [step for step in steps if isinstance(step, Awaited)]
    state = pipelines.roll_up(
        end.state,
        [step.state if isinstance(step, Awaited) else None for step in steps],
        parallel=cell.record.spec.then_parallel,
        held=[number for number, step in enumerate(steps, 1) if isinstance(step, Held)],
    )
    if not state.is_over:
        return None
    number = end.epoch + sum(step.epoch for step in ends)
    return PipelineEnd(cell.record, state, number)


def _steps(repo: Repository, root: Record, end: Awaited) -> list[Awaited | Held | None] | None:
    """How each ended, why it is not launched though its turn has come, None for one whose turn has
    not; or None: one goes on."""
    steps: list[Awaited | Held | None] = []
    before: Awaited | None = end
    for number in range(1, len(root.spec.then) + 1):
        run, held = find_step(repo, root.id, number)
        ended = find_ended(repo, run.base_id) if run is not None else None
        if run is not None and ended is None:
            return None
        if run is None and held is None and before is not None:
            held = held_after(repo, before.job_id, before.epoch)
        steps.append(ended or held)
        if not root.spec.then_parallel:
            before = ended if ended is not None and ended.state is State.COMPLETED else None
    return steps


def undelivered(repo: Repository, *, job_id: str = "", limit: int) -> list[Undelivered]:
    """The notices that were given up lately, of all jobs or of one: a listing, and a read each."""
    beginning = f"{keys.UNDELIVERED}{job_id}." if job_id else keys.UNDELIVERED
    entries = repo.store.list(beginning, limit=limit)
    found = repo.tasks.map(lambda one: _read(repo, one.key), entries, limit=PARALLEL_REQUESTS)
    return [one for one in found if one is not None]


def oldest_pending_seconds(repo: Repository) -> float | None:
    """How long a notice waits to be sent by now, of the first page; None: there is none."""
    entries = repo.store.list(keys.NOTICES, limit=LIST_LIMIT_MAX)
    oldest = min((entry.modified_at for entry in entries), default=None)
    return None if oldest is None else (repo.now() - oldest).total_seconds()


def _read(repo: Repository, key: str) -> Undelivered | None:
    try:
        found = repo.find(Undelivered, key)
    except Unreadable as error:
        repo.tell_unreadable(error)
        return None
    return found.value if found is not None else None
