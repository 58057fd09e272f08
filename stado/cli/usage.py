"""`stado usage`."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from stado.cli import options
from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

_LIMIT_DEFAULT = 20
_LIMIT_MAX = 250

_GROUPINGS = ("user", "group", "job", "pipeline", "model", "target", "day")
"""What a `Question` can ask for."""


@click.command()
@click.option("--org", is_flag=True, help="What everybody used, not you alone.")
@click.option(
    "--user", callback=options.plain_text, metavar="USER", help="What somebody else used."
)
@click.option(
    "--since",
    callback=options.moment,
    metavar="WHEN",
    help="From then on: 90m, 7d, 2h30m ago, or an instant of RFC 3339. [default: 30d]",
)
@click.option(
    "--by",
    type=click.Choice(_GROUPINGS),
    help="What a row is for. [default: user with --org, else job]",
)
@click.option(
    "--limit",
    type=click.IntRange(1, _LIMIT_MAX),
    metavar="N",
    help=f"So many rows at most.  [default: {_LIMIT_DEFAULT}; with --json all]",
)
@json_option
@target_options
def usage(
    *,
    org: bool,
    user: str | None,
    since: timedelta | datetime | None,
    by: str | None,
    limit: int | None,
    as_json: bool,
    target: Target,
) -> None:
    """Show what jobs have used: GPUs times the time that a command held them.

    What runs counts up to now. Time in the queue, paused, or spent on fetching and uploading
    counts for nothing; days begin at midnight in UTC. Deleted jobs stay counted.

    \b
      stado usage
      stado usage --org --since 7d
      stado usage --org --by day --json
    """
    from stado.cli import render, usage_views
    from stado.jobs.usage import Question, report_usage

    if org and user is not None:
        raise click.UsageError("--org counts everybody, and --user one: state one of them.")
    whose = None if org else user_name() if user is None else user
    with opened_repository(target) as repo:
        begin = options.moment_meant(since, repo.now())
        question = Question(since=begin, by=by or ("user" if org else "job"), user=whose)
        report = report_usage(repo, question)
    if as_json:
        render.print_json(usage_views.usage_fields(question, report, limit=limit))
        if limit is not None and usage_views.more_text(report, limit=limit):
            render.tell(
                f"{usage_views.more_text(report, limit=limit)}: without --limit all of them"
            )
        return
    limit = _LIMIT_DEFAULT if limit is None else limit
    for line in usage_views.usage_lines(question, report, limit=limit):
        render.print_styled(line)
    for note in usage_views.notes(question, report, limit=limit, by_default=since is None):
        render.tell(note)
