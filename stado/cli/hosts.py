"""`stado hosts`."""

from __future__ import annotations

import click

from stado.cli.context import json_option, opened_repository
from stado.target import Target, target_options


@click.command()
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
@json_option
@target_options
def hosts(*, watch: bool, as_json: bool, target: Target) -> None:
    """List the agents: what each has free, what it runs, and why it takes no jobs.

    An agent that is late by three reports is stale: it may be gone, and its host too. No job
    waits for it.
    """
    from stado.cli import host_views, render
    from stado.cli.screen import check_screen, redraw
    from stado.jobs.health import Fleet, Holdings

    if watch:
        check_screen(as_json=as_json)
    with opened_repository(target) as repo:
        fleet, holdings = Fleet(repo), Holdings(repo)

        def look() -> host_views.Hosts:
            sights = fleet.look()
            return host_views.Hosts(sights, fleet.unreadable, holdings.look(sights))

        if watch:
            redraw(lambda: host_views.hosts_frame(look(), repo.now()), repo.clock)
        seen = look()
        if as_json:
            render.print_json(host_views.hosts_fields(seen))
            return
        for line in host_views.table_lines(seen, repo.now()):
            render.print_styled(line)
        for note in host_views.notes(seen):
            render.tell(note)
