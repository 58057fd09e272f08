"""`stado workload …`: sessions of declared kinds, started where there is room and stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from stado.cli.context import json_option, opened_repository, profile_folder, user_name
from stado.cli.job_options import job_options_but_profile, request_of, submitter_named, unpinned_of
from stado.cli.options import plain_text, reason_option
from stado.cli.profile_option import KindArgument, command_of_profile, known_kinds
from stado.target import Target, target_options

if TYPE_CHECKING:
    from datetime import datetime

    from stado.core.spec import Request
    from stado.jobs.repository import Repository
    from stado.jobs.status import Row
    from stado.jobs.submit import Submission

_SESSIONS_MAX = 250
_NAME_LETTERS = 8


@click.command()
@click.argument(
    "kind",
    metavar="KIND",
    cls=KindArgument,
    is_eager=True,
    callback=plain_text,
    shell_complete=known_kinds,
)
@click.argument("command", metavar="[COMMAND]", required=False, callback=plain_text)
@click.option(
    "--run-id",
    callback=plain_text,
    metavar="NAME",
    help="Your stable name for it: starting it again answers the same job.  [default: a new one]",
)
@job_options_but_profile
@json_option
@target_options
def start(
    *,
    kind: str,
    command: str | None,
    run_id: str | None,
    as_json: bool,
    target: Target,
    **asked: Any,
) -> None:
    """Start a session of a kind (`stado workload kinds`): a job with the room that the kind
    declares, pinned to a worker that has that room now.

    COMMAND takes the place of what the kind runs; options of jobs (`stado submit --help`) win over
    what it states. Everything else that one does with jobs is done with sessions, too.

    \b
      stado workload start notebook
      stado workload start hold --gpus 1 --timeout 2h
    """
    from stado.cli import render
    from stado.jobs.submit import submit

    words = command if command is not None else command_of_profile()
    assert words is not None  # a kind says what it runs
    request = request_of([words], asked, batch=False)
    user = user_name()
    with opened_repository(target) as repo:
        name = f"{kind}.{repo.entropy.letters(_NAME_LETTERS)}" if run_id is None else run_id
        request, worker = _placed(repo, kind, request, unpinned_of(asked), name, user)
        submission = submit(repo, run_id=name, request=request, submitter=user)
        (job_id,) = submission.job_ids
        if as_json:
            fields = {"job_id": job_id, "run_id": name, "workload_kind": kind, "worker": worker}
            render.print_json({**fields, "created": submission.created})
        else:
            _tell_started(repo, request, submission, worker)


def _placed(
    repo: Repository,
    kind: str,
    request: Request,
    unpinned: Any,
    run_id: str,
    user: str,
) -> tuple[Request, str]:
    """With its host. Of a session that was started before it is the one that was chosen then, so
    that it is the same request."""
    from stado.jobs.workloads import place, placed_before
    from stado.pinning import pin

    shared = request.shared.evolve(workload_kind=kind)
    before = placed_before(repo, run_id)
    typed = shared.pinned_host
    worker = (typed or before) if before is not None else place(repo, shared)
    request = request.evolve(shared=shared.evolve(pinned_host=worker))
    return pin(repo, request, unpinned, submitter_named(user), run_id=run_id), worker


def _tell_started(repo: Repository, request: Request, submission: Submission, worker: str) -> None:
    from stado.cli import render
    from stado.cli.remarks import tell_remarks
    from stado.cli.submit import what_happens, why_it_waits
    from stado.jobs.sight import present_record

    (job_id,) = submission.job_ids
    render.print_line(job_id)
    if not submission.created:
        state = present_record(repo, job_id).state.value
        started = f"session {job_id} was started before, on {worker} (run {submission.run_id})"
        render.tell(f"{started}: {state}")
    else:
        why = why_it_waits(repo, request.shared, job_id)
        happens = "" if why is None else f"; {what_happens(why)}"
        render.tell(f"session {job_id} is placed on {worker} (run {submission.run_id}){happens}")
        tell_remarks(repo, request.shared)
    render.tell(f"next: stado job watch {job_id} --follow, stado workload stop {job_id}")


# --- sessions -----------------------------------------------------------------------------


@click.command()
@click.option("--all", "show_all", is_flag=True, help="Those that have ended too.")
@json_option
@target_options
def sessions(*, show_all: bool, as_json: bool, target: Target) -> None:
    """List everybody's sessions that wait, run or are paused, the newest first."""
    from stado.cli import render, views
    from stado.jobs.workloads import sessions as sessions_of

    with opened_repository(target) as repo:
        listing = sessions_of(repo, ended=show_all, limit=_SESSIONS_MAX)
        now = repo.now()
    if as_json:
        render.print_json(views.listing_fields(listing, {}, now))
    elif listing.rows:
        _print_sessions(listing.rows, now)
    if not listing.rows:
        which = "yet" if show_all else "now"
        render.tell(f"there is no session {which}: `stado workload start KIND` starts one")
    if listing.more:
        render.tell(f"showing {len(listing.rows)}; there may be more")


def _print_sessions(rows: list[Row], now: datetime) -> None:
    from stado.cli import render
    from stado.cli.tables import Column

    columns = (
        Column("JOB"),
        Column("KIND"),
        Column("STATUS"),
        Column("WORKER"),
        Column("USER"),
        Column("AGE", right=True),
        Column("RUN"),
    )
    render.print_table(columns, [_session_cells(row, now) for row in rows])


def _session_cells(row: Row, now: datetime) -> list[str]:
    from stado.cli import render

    record = row.record
    assert record is not None  # its kind was read
    age = max(0.0, (now - record.submitted_at).total_seconds())
    return [
        row.job_id,
        record.spec.workload_kind or "-",
        record.state.value,
        record.spec.pinned_host or "-",
        record.submitter,
        render.duration(round(age)),
        record.run_id,
    ]


@click.command()
@click.argument("session", metavar="ID", callback=plain_text)
@reason_option
@click.option("--no-wait", is_flag=True, help="Return once it is asked; do not wait for its end.")
@json_option
@target_options
def stop(*, session: str, note: str | None, no_wait: bool, as_json: bool, target: Target) -> int:
    """Stop a session: the same as `stado cancel`, for nothing but sessions.

    ID is its job id, a part of it, or its run id. What it left is kept (`stado results`).
    """
    from stado.cli.cancel import cancelling
    from stado.cli.selectors import select
    from stado.cli.stopping import Wish, stop_jobs
    from stado.jobs.workloads import present_session

    wish = Wish(by=user_name(), note=note, wait=not no_wait, as_json=as_json)
    with opened_repository(target) as repo:
        selection = select(repo, session, user=wish.by)
        for job_id in selection.job_ids:
            present_session(repo, job_id)
        return stop_jobs(repo, selection, cancelling(terminate=False), wish)


@click.command()
@click.argument("name", metavar="[KIND]", required=False, callback=plain_text)
@json_option
def kinds(*, name: str | None, as_json: bool) -> None:
    """List the kinds of sessions that can be started; with KIND: print what it states, as JSON.

    They are files in the folder `kinds` of the profiles (`stado profiles`).
    """
    from stado.cli import render
    from stado.cli.profiles import find_all, print_profiles, print_stated, profile_fields

    folder = profile_folder().kinds
    if name is not None:
        print_stated(folder.read(name))
        return
    names, found = find_all(folder)
    if as_json:
        listed = [profile_fields(one, stated) for one, stated in zip(names, found, strict=True)]
        render.print_json({"folder": str(folder.path), "kinds": listed})
        return
    print_profiles(names, found)
    if not names:
        render.tell(f"there is no kind of workload: put KIND.json into {folder.path}")
