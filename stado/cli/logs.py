"""`stado logs` and `stado job logs`: one engine (`watching`), two habits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stado.cli.context import opened_repository, user_name
from stado.cli.log_options import LogView, log_view_options
from stado.target import Target, target_options

if TYPE_CHECKING:
    pass

_TAIL_DEFAULT = 2000
_FOLLOWED_TAIL_DEFAULT = 50


@click.command("logs")
@click.argument("job", metavar="[ID]", required=False)
@click.option(
    "-n",
    "lines",
    type=click.IntRange(min=0),
    metavar="N",
    help="Begin N lines before the end; 0: at the beginning.  "
    f"[{_TAIL_DEFAULT}; with --since: wherever that is]",
)
@click.option(
    "--follow/--no-follow",
    default=True,
    help="Go on until the job has ended, and exit as it did.  [on]",
)
@log_view_options
@target_options
def job_logs(
    *, job: str | None, lines: int | None, follow: bool, view: LogView, target: Target
) -> int:
    """Follow the log of a job until it is at rest, and exit as the job did.

    ID is a job id, a part of one, a run id, or `last`; without one it is your newest job.
    `stado logs` prints what there is and ends; there `--tail 0` is nothing, here `-n 0` is
    everything.
    """
    if lines is None and view.since is None:
        lines = _TAIL_DEFAULT
    command = "stado job logs"
    return show_log(target, job, command=command, follow=follow, lines=lines or None, view=view)


@click.command()
@click.argument("job", metavar="[ID]", required=False)
@click.option("--follow", is_flag=True, help="Go on until the job has ended, and exit as it did.")
@click.option(
    "--tail",
    "lines",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"The last N lines; 0: none.  [all; with --follow: {_FOLLOWED_TAIL_DEFAULT}]",
)
@click.option("--from-start", is_flag=True, help="All of it, also with --follow.")
@log_view_options
@target_options
def logs(
    *,
    job: str | None,
    follow: bool,
    lines: int | None,
    from_start: bool,
    view: LogView,
    target: Target,
) -> int:
    """Print the log of a job, and end.

    ID is a job id, a part of one, a run id, or `last`; without one it is your newest job.
    `stado job logs` follows by itself. Here `--tail 0` is nothing; there `-n 0` is everything.
    """
    if from_start and lines is not None:
        raise click.UsageError("--from-start and --tail exclude each other: state one of them.")
    if follow and not from_start and lines is None and view.since is None:
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
