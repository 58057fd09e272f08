"""Waiting for all of a submission to end, the steps that follow its jobs too, and telling how."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from stado.cli import exits, render, views
from stado.cli.failures import going_on
from stado.cli.following import Patience, pause_text, wait_all_ended
from stado.cli.last_lines import tell_last_lines
from stado.cli.outcomes import outcome_line
from stado.cli.pipeline import summary
from stado.cli.progress import shown_progress
from stado.cli.wait_reasons import WaitReasons
from stado.core.pipelines import PipelineState
from stado.core.states import State
from stado.jobs.job_log import EpochBegins
from stado.jobs.pipeline_sight import look
from stado.jobs.sight import JobSight, Pace, present_record

if TYPE_CHECKING:
    from stado.core.records import Record
    from stado.core.spec import Request
    from stado.jobs.pipeline_sight import PipelineSight, StepSight
    from stado.jobs.repository import Repository
    from stado.jobs.submit import Submission

_FAILED_TOLD_MAX = 3
"""Of a batch: with their last lines. As many again are told of its partial pipelines."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What has become of a submission."""

    states: dict[str, State]
    pipelines: list[PipelineSight]
    """Of its jobs, where steps follow them."""


def wait_for(
    repo: Repository,
    submission: Submission,
    request: Request,
    *,
    reason_told: str | None = None,
) -> Ended:
    """Returns once all has ended. Ctrl-C stops the waiting alone. `reason_told`: the code of why
    its jobs are queued, where that was told already."""
    base, steps = submission.base_id, bool(request.shared.then)
    whole = f"pipeline_{base}" if steps and not request.batch else base
    with going_on(
        "no longer waiting; what was submitted goes on",
        f"look again: `stado {'status' if whole == base else 'pipeline show'} {whole}`",
        f"stop it: `stado cancel {whole}`",
    ):
        with shown_progress(len(submission.job_ids)) as show:
            states = wait_all_ended(repo, submission.job_ids, base, show, reason_told=reason_told)
        roots = submission.job_ids if steps else []
        waited = (_wait_for_steps(repo, root, quiet=request.batch) for root in roots)
        return Ended(states, list(waited))


def tell_end(repo: Repository, submission: Submission, request: Request, ended: Ended) -> int:
    """Tells how it ended, of a batch by numbers and its first failures; the exit code."""
    if request.batch:
        return _tell_batch(repo, submission.base_id, ended)
    record = present_record(repo, submission.base_id)
    if not ended.pipelines:
        tell_outcome(repo, record)
        return exits.of_job(record)
    (seen,) = ended.pipelines
    render.tell(summary(seen))
    return exits.of_pipeline(seen.state)


def tell_outcome(repo: Repository, record: Record, *, name: str = "") -> None:
    """Of a job that has ended, with the last lines of one that failed."""
    render.tell(f"{name}{outcome_line(record)}")
    tell_last_lines(repo, record)


def _tell_batch(repo: Repository, base_id: str, ended: Ended) -> int:
    failed = [job_id for job_id, state in ended.states.items() if state is State.FAILED]
    for job_id in failed[:_FAILED_TOLD_MAX]:
        tell_outcome(repo, present_record(repo, job_id))
    if len(failed) > _FAILED_TOLD_MAX:
        render.tell(f"{len(failed) - _FAILED_TOLD_MAX} more failed: `stado status {base_id}`")
    partial_ones = [seen for seen in ended.pipelines if seen.state is PipelineState.PARTIAL]
    _tell_partial(repo, base_id, partial_ones)
    render.tell(f"batch {base_id}: {views.count_text(ended.states.values())}")
    if any(state is not State.COMPLETED for state in ended.states.values()):
        return exits.FAILED
    return exits.PARTIAL if partial_ones else exits.OK


def _tell_partial(repo: Repository, base_id: str, pipelines: list[PipelineSight]) -> None:
    """Of a batch's pipelines that are partial: the first ones, with what did not complete."""
    for seen in pipelines[:_FAILED_TOLD_MAX]:
        for one in seen.steps:
            if one.state is not State.COMPLETED:
                _tell_step(repo, one)
        render.tell(summary(seen))
    if len(pipelines) > _FAILED_TOLD_MAX:
        count = len(pipelines) - _FAILED_TOLD_MAX
        render.tell(f"{count} more stopped short: `stado status {base_id}`")


def _wait_for_steps(repo: Repository, root_id: str, *, quiet: bool) -> PipelineSight:
    """The pipeline once nothing of it is under way; its jobs are told as they come and end, unless
    it is one of many."""
    patience = Patience(repo.clock, meanwhile="the pipeline goes on")
    if not quiet:
        patience.call(lambda: tell_outcome(repo, present_record(repo, root_id)))
    pace, told = Pace(repo.clock), dict[int, State]()
    reasons = None if quiet else WaitReasons(repo, patience)
    while True:
        seen = patience.call(lambda: look(repo, root_id))
        for one in seen.steps:
            if one.state is not None and told.get(one.number) is not one.state:
                if not quiet:
                    patience.call(partial(_tell_step, repo, one))
                told[one.number] = one.state
                pace.quicken()
        if seen.state.is_over:
            return seen
        _wait_for_a_move(repo, seen, pace, patience, reasons)


def _wait_for_a_move(
    repo: Repository,
    seen: PipelineSight,
    pace: Pace,
    patience: Patience,
    reasons: WaitReasons | None,
) -> None:
    """Until a step that lives is in another state than it was seen in: a request a look, however
    long it takes. Where none lives the next is about to be launched."""
    live = [(one.job_id, one.state) for one in seen.steps if one.job_id and not _is_over(one)]
    watched = [
        (JobSight(repo, patience.call(partial(present_record, repo, job_id))), state)
        for job_id, state in live
    ]
    queued = [job_id for job_id, state in live if state is State.QUEUED]
    while True:
        pace.pause()
        if reasons is not None:
            reasons.look(queued)
        if not watched or any(
            patience.call(sight.look).state is not state for sight, state in watched
        ):
            return


def _is_over(one: StepSight) -> bool:
    return one.state is not None and one.state.terminal


def _tell_step(repo: Repository, one: StepSight) -> None:
    if one.job_id is None or one.state is None:
        return
    name = f"step {one.number} ({one.step.name}): "
    record = present_record(repo, one.job_id)
    if record.state.terminal:
        tell_outcome(repo, record, name=name)
    elif record.state is State.PAUSED:
        render.tell(f"{name}{pause_text(repo, record)}")
    elif record.state is State.QUEUED and record.epoch > 1:
        render.tell(f"{name}{EpochBegins(record.id, record.epoch, record.ending).text}")
    else:
        render.tell(f"{name}job {record.id} is {record.state.value}")
