"""`stado submit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from stado.cli.context import json_option, opened_repository, user_name
from stado.cli.job_options import job_options, submitter_named, unpinned_of
from stado.cli.options import plain_text
from stado.cli.which_jobs import request_asked, which_jobs
from stado.target import Target, target_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stado.cli.submission_end import Ended
    from stado.core.spec import Request, Spec
    from stado.core.states import State
    from stado.jobs.fitting import Wait
    from stado.jobs.repository import Repository
    from stado.jobs.submit import Submission

_TOLD_SECONDS_MIN = 1.0
"""What takes longer is told."""


@click.command()
@click.argument("words", metavar="COMMAND", nargs=-1)
@click.option(
    "--run-id",
    required=True,
    callback=plain_text,
    metavar="NAME",
    help="Your stable name for this run: submitting it again answers the same jobs.",
)
@which_jobs
@job_options
@click.option("--wait", is_flag=True, help="Wait until all has ended, steps too; exit as it did.")
@json_option
@target_options
def submit(
    *,
    words: tuple[str, ...],
    run_id: str,
    batch: str | None,
    array: str | None,
    wait: bool,
    as_json: bool,
    target: Target,
    **asked: Any,
) -> int:
    """Queue COMMAND (one argument: quote it), which a worker gives to /bin/sh.

    Prints the id of each job. Repeating a submission is safe: the same run id with the same
    request answers the jobs that it made before.

    \b
      stado submit --run-id digits-1 'python train.py --lr 0.1'
      stado submit --run-id digits-2 --cpu 4 --wait 'python train.py'
      stado submit --run-id sweep --batch commands.txt
      stado submit --run-id eval-1 --profile evaluation 'python eval.py'
      stado submit --run-id parts --array 0-99%10 'python run.py --part {index}'
    """
    from stado.pinning import pin

    request = request_asked(
        words, batch=batch, array=array, asked=asked, example="stado submit --run-id NAME"
    )
    unpinned = unpinned_of(asked)
    user = user_name()
    with opened_repository(target) as repo:
        began = repo.clock.monotonic()
        request = pin(repo, request, unpinned, submitter_named(user), run_id=run_id)
        submission = _submit(repo, run_id, request, user)
        taken_seconds = repo.clock.monotonic() - began
        told = None
        if not as_json:
            told = _answer(repo, submission, request, taken_seconds=taken_seconds, wait=wait)
        if not wait:
            if as_json:
                _print_json(submission, request, None)
            return 0
        return _follow(repo, submission, request, as_json=as_json, told=told)


def _follow(
    repo: Repository,
    submission: Submission,
    request: Request,
    *,
    as_json: bool,
    told: Wait | None,
) -> int:
    from stado.cli.submission_end import tell_end, wait_for

    reason = None if told is None else told.code
    ended = wait_for(repo, submission, request, reason_told=reason)
    if as_json:
        _print_json(submission, request, ended)
    return tell_end(repo, submission, request, ended)


def _submit(repo: Repository, run_id: str, request: Request, user: str) -> Submission:
    from stado.cli.failures import going_on
    from stado.jobs.submit import submit as submit_request

    with going_on(
        "interrupted while submitting: some jobs may be queued already; "
        "the same command again completes the submission"
    ):
        return submit_request(repo, run_id=run_id, request=request, submitter=user)


def _answer(
    repo: Repository,
    submission: Submission,
    request: Request,
    *,
    taken_seconds: float,
    wait: bool,
) -> Wait | None:
    """The ids; then for people what was done, what it waits for, and what to type next. Why the
    jobs are queued, where that was told."""
    from stado.cli import render, views
    from stado.cli.outcomes import elapsed_text
    from stado.cli.remarks import tell_remarks

    for job_id in submission.job_ids:
        render.print_line(job_id)
    base = submission.base_id
    what = (
        f"{views.jobs_text(len(submission.job_ids))} as batch {base}"
        if request.batch
        else f"job {base}"
    )
    said = "submitted" if submission.created else "already submitted:"
    taken = f" in {elapsed_text(taken_seconds)}" if taken_seconds > _TOLD_SECONDS_MIN else ""
    states = {} if submission.created else _states(repo, submission)
    standing = f", {_standing(list(states.values()), request)}" if states else ""
    text = f"{said} {what} (run {submission.run_id}){standing}{taken}"
    notes: list[str] = []
    why = None
    if submission.created:
        why = why_it_waits(repo, request.shared, submission.job_ids[0], notes=notes)
    if why is None:
        render.tell(text)
    else:
        render.tell(f"{text}; {what_happens(why, several=len(request.commands) > 1)}")
        if why.remedy is not None:
            render.tell(f"to do: {why.remedy}")
    if submission.created:
        tell_remarks(repo, request.shared)
    for note in notes:
        render.tell(f"note: {note}")
    if not wait:
        render.tell(f"next: stado {_next(base, list(states.values()), request)}")
    return why


def _states(repo: Repository, submission: Submission) -> dict[str, State]:
    """Of what was submitted before; nothing when that cannot be seen."""
    from stado.errors import StoreError, Unreadable
    from stado.jobs.status import states_of

    try:
        found = states_of(repo, submission.base_id)
    except (StoreError, Unreadable):
        return {}
    return {job_id: found[job_id] for job_id in submission.job_ids if job_id in found}


def _standing(states: Sequence[State], request: Request) -> str:
    """`now cancelled`; of a batch `now 2 queued, 1 failed`."""
    from stado.cli import views

    if request.batch:
        return f"now {views.count_text(states)}"
    return f"now {states[0].value}"


def _next(base: str, states: Sequence[State], request: Request) -> str:
    """What to type; of one that has ended the same command submits nothing any more."""
    from stado.core.states import State

    over = bool(states) and all(state.terminal for state in states)
    if request.batch:
        return f"status {base}" if over else f"status {base} --watch"
    if not over:
        return f"job watch {base} --follow"
    return f"results {base} DIR" if State.COMPLETED in states else f"job rerun {base}"


def what_happens(why: Wait, *, several: bool = False) -> str:
    """`it starts when a worker is at work`, `it should start in a moment`."""
    from stado.jobs.waiting import STARTING

    if why.until is None:
        return f"{'they' if several else 'it'} will not start: {why.text}"
    who = "it"
    if several:
        who = "the first" if why.code == STARTING else "they"
    start = "should start" if not why.certain else "start" if several else "starts"
    return f"{who} {start} {why.until}"


def why_it_waits(
    repo: Repository, shared: Spec, job_id: str, *, notes: list[str] | None = None
) -> Wait | None:
    """What keeps the jobs in the queue; None when that cannot be seen, which must not make a
    submission fail that stands. `notes`: gets what else is to be said of their budgets."""
    from stado.errors import StoreError, Unreadable
    from stado.jobs.limit_sight import LimitSight
    from stado.jobs.waiting import why_queued

    limits, user = LimitSight(repo), user_name()
    try:
        why = why_queued(repo, shared, job_id, user=user, limits=limits)
        if notes is not None:
            notes += limits.budget_notes(shared, user=user)
        return why
    except (StoreError, Unreadable):
        return None


def _print_json(submission: Submission, request: Request, ended: Ended | None) -> None:
    from stado.cli import render
    from stado.cli.pipeline import pipeline_fields

    fields: dict[str, Any] = {
        "run_id": submission.run_id,
        "batch_id": submission.base_id if request.batch else None,
        "job_ids": submission.job_ids,
        "created": submission.created,
    }
    if ended is not None:
        states = ended.states
        fields["statuses"] = {job_id: states[job_id].value for job_id in submission.job_ids}
        fields["pipelines"] = [pipeline_fields(seen) for seen in ended.pipelines]
    render.print_json(fields)
