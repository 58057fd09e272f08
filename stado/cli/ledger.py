"""`stado ledger`: what ended jobs used, as it is kept."""

from __future__ import annotations

import click

from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options


@click.command()
@json_option
@target_options
def show(*, as_json: bool, target: Target) -> None:
    """Show how much the ledger has, and how much waits to be brought into it."""
    from stado.cli import render
    from stado.cli.stories import moment_text
    from stado.jobs.ledger import look_at_ledger

    with opened_repository(target) as repo:
        seen = look_at_ledger(repo)
    if as_json:
        render.print_json(
            {
                "segments": seen.segments,
                "epochs": seen.rows,
                "first_at": None if seen.first is None else render.instant_text(seen.first),
                "last_at": None if seen.last is None else render.instant_text(seen.last),
                "waiting": seen.waiting,
                "waiting_more": seen.more,
            }
        )
        return
    told = f"{render.plural(seen.rows, 'epoch')} in {render.plural(seen.segments, 'segment')}"
    if seen.first is not None and seen.last is not None:
        told += f", from {moment_text(seen.first)} to {moment_text(seen.last)}"
    render.print_line(told)
    more = "more than " if seen.more else ""
    wait = "waits" if seen.waiting == 1 else "wait"
    render.print_line(f"{more}{seen.waiting:,} {wait} for the coordinator's next compaction")


@click.command()
@click.option(
    "--drop-unreadable",
    is_flag=True,
    help="Delete segments that nobody can read; without it they stay.",
)
@json_option
@target_options
def rebuild(*, drop_unreadable: bool, as_json: bool, target: Target) -> None:
    """Make the ledger anew from the verdicts of all jobs.

    For a ledger that is spoilt or gone. It reads every submission and every verdict, which takes a
    while, and drops nothing that can still be read. Segments that cannot be read stay unless
    --drop-unreadable is given. Where a newer stado wrote one it refuses, and changes nothing. Jobs
    may run meanwhile.
    """
    from stado.cli import render
    from stado.jobs.ledger_rebuild import Rebuild

    with opened_repository(target) as repo:
        report = Rebuild(repo, by=user_name(), drop_unreadable=drop_unreadable).run()
    if as_json:
        render.print_json(
            {
                "jobs": report.jobs,
                "epochs": report.uses,
                "found": report.found,
                "kept": report.kept,
                "segments": report.segments,
                "unreadable": report.unreadable,
                "left": report.left,
                "removed": report.removed,
            }
        )
        return
    render.print_line(
        f"{render.plural(report.uses, 'epoch')} in {render.plural(report.segments, 'segment')}: "
        f"{report.found:,} that it did not have, {report.kept:,} whose verdicts are gone"
    )
    for key in report.unreadable:
        fate = ""
        if key in report.removed:
            fate = ", and was deleted"
        elif key in report.left:
            fate = ", and stays: with --drop-unreadable it is deleted"
        render.tell(f"{key} could not be read{fate}")
