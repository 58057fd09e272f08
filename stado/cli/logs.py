"""`stado logs` and `stado job logs`: one engine (`watching`), two habits."""

from __future__ import annotations

import click

from stado.cli.context import opened_repository, user_name
from stado.cli.log_options import Begin, LogView, begin_options, log_view_options
from stado.target import Target, target_options

_TAIL_DEFAULT = 2000
_FOLLOWED_TAIL_DEFAULT = 50


@click.command("logs")
@click.argument("job", metavar="[ID]", required=False)
@begin_options(habit=f"{_TAIL_DEFAULT}; with --since: wherever that is")
@click.option(
    "-f/ ",
    "--follow/--no-follow",
    default=True,
    help="Go on until the job has ended, and exit as it did.  [on]",
)
@log_view_options
@target_options
def job_logs(*, job: str | None, begin: Begin, follow: bool, view: LogView, target: Target) -> int:
    """Follow the log of a job until it is at rest, and exit as the job did.

    ID is a job id, a part of one, a run id, or `last`; without one it is your newest job.
    `stado logs` prints what there is and ends.
    """
    lines = begin.lines
    if not begin.stated and view.since is None:
        lines = _TAIL_DEFAULT
    command = "stado job logs"
    return show_log(target, job, command=command, follow=follow, lines=lines, view=view)


@click.command()
@click.argument("job", metavar="[ID]", required=False)
@click.option(
    "-f", "--follow", is_flag=True, help="Go on until the job has ended, and exit as it did."
)
@begin_options(habit=f"at the beginning; with --follow: {_FOLLOWED_TAIL_DEFAULT}")
@click.option("--from-start", is_flag=True, help="All of it, also with --follow: as -n 0.")
@log_view_options
@target_options
def logs(
    *,
    job: str | None,
    follow: bool,
    begin: Begin,
    from_start: bool,
    view: LogView,
    target: Target,
) -> int:
    """Print the log of a job, and end.

    ID is a job id, a part of one, a run id, or `last`; without one it is your newest job.
    `stado job logs` follows by itself.
    """
    if from_start and begin.stated:
        raise click.UsageError(
            "--from-start and --tail exclude each other, and so does -n: state one of them."
        )
    lines = begin.lines
    if follow and not from_start and not begin.stated and view.since is None:
        lines = _FOLLOWED_TAIL_DEFAULT
    command = "stado logs --follow" if follow else "stado logs"
    return show_log(target, job, command=command, follow=follow, lines=lines, view=view)


def show_log(
    target: Target,
    job: str | None,
    *,
    command: str,
    follow: bool,
    lines: int | None,
    view: LogView,
) -> int:
    """Of the last `lines` (None: all) of the log of the job that is named what `view` says; the
    exit code."""
    from stado.cli.selectors import named_or_newest
    from stado.cli.watching import follow_log, print_log

    with opened_repository(target) as repo:
        job_id = named_or_newest(repo, job, user=user_name(), command=command)
        if follow:
            return follow_log(repo, job_id, lines=lines, view=view)
        print_log(repo, job_id, lines=lines, view=view)
    return 0
