"""`stado hosts …`: the agents as they are, and what operators say to one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from stado.cli.context import json_option, opened_repository, user_name
from stado.cli.options import duration, plain_text, price_or_default
from stado.target import Target, target_options

if TYPE_CHECKING:
    from stado.core.records import HostOrders
    from stado.jobs.health import AgentSight
    from stado.jobs.repository import Repository

_REASON_MAX = 300


def _reason(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    text = plain_text(ctx, param, value)
    if text is not None and len(text) > _REASON_MAX:
        raise click.BadParameter(f"it has more than {_REASON_MAX} characters.", ctx, param)
    return text or None


_name_argument = click.argument("name", metavar="NAME", callback=plain_text)
_reason_option = click.option(
    "--reason", callback=_reason, metavar="TEXT", help="Why: others read it in `stado hosts`."
)


@click.command()
@click.argument("name", metavar="[NAME]", required=False, callback=plain_text)
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
@json_option
@target_options
def show(*, name: str | None, watch: bool, as_json: bool, target: Target) -> None:
    """List the agents: what each has free, what it runs, and why it takes no jobs. With NAME: all
    that is known of one.

    An agent that is late by three reports is stale: it may be gone, and its host too. No job
    waits for it.
    """
    if name is None:
        _list(watch=watch, as_json=as_json, target=target)
    elif watch:
        raise click.UsageError("--watch shows all hosts: leave NAME out")
    else:
        _show_one(name, as_json=as_json, target=target)


def _list(*, watch: bool, as_json: bool, target: Target) -> None:
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


def _show_one(name: str, *, as_json: bool, target: Target) -> None:
    from stado.cli import host_story, render
    from stado.jobs.health import Holdings, agents
    from stado.jobs.host_orders import consumer_named, find_orders

    with opened_repository(target) as repo:
        sights = agents(repo)
        consumer = consumer_named(repo, name, sights)
        sight = _sight_of(consumer, sights)
        held = Holdings(repo).look([sight]) if sight is not None else {}
        story = host_story.HostStory(
            consumer, sight, held.get(consumer), find_orders(repo, consumer), repo.now()
        )
    if as_json:
        render.print_json(host_story.fields(story))
    else:
        host_story.show(story)


def _sight_of(consumer: str, sights: list[AgentSight]) -> AgentSight | None:
    return next((one for one in sights if one.capacity.consumer == consumer), None)


# --- what operators say -------------------------------------------------------------------------


@click.command()
@_name_argument
@_reason_option
@json_option
@target_options
def cordon(*, name: str, reason: str | None, as_json: bool, target: Target) -> None:
    """Let a host take no more jobs, until `stado hosts uncordon`. What runs there goes on.

    \b
      stado hosts cordon local@lab-7 --reason "new driver"
    """
    from stado.core.records import HostOrder
    from stado.jobs.host_orders import close_host

    user = user_name()

    def change(repo: Repository, consumer: str) -> HostOrders:
        return close_host(repo, consumer, HostOrder.CORDON, by=user, reason=reason)

    _say(name, change, "is cordoned: it takes no more jobs", as_json=as_json, target=target)


@click.command()
@_name_argument
@click.option(
    "--deadline",
    callback=duration,
    metavar="DURATION",
    help="Stop what still runs there after so long, save it, and queue it again at its old place. "
    "Default: it goes on to its end.",
)
@_reason_option
@json_option
@target_options
def drain(
    *, name: str, deadline: int | None, reason: str | None, as_json: bool, target: Target
) -> None:
    """Let a host take no more jobs, to be empty in the end: `stado hosts` shows it as drained once
    nothing runs there.

    \b
      stado hosts drain local@lab-7 --reason "moves to another rack"
      stado hosts drain local@lab-7 --deadline 30m
    """
    from stado.core.durations import duration_text
    from stado.core.records import HostOrder
    from stado.jobs.host_orders import close_host

    user = user_name()

    def change(repo: Repository, consumer: str) -> HostOrders:
        return close_host(
            repo, consumer, HostOrder.DRAIN, by=user, reason=reason, deadline_seconds=deadline
        )

    what = "is to drain: it takes no more jobs"
    if deadline is not None:
        what += f", and puts back what still runs in {duration_text(deadline)}"
    _say(name, change, what, as_json=as_json, target=target)


@click.command()
@_name_argument
@json_option
@target_options
def uncordon(*, name: str, as_json: bool, target: Target) -> None:
    """Let a host that was cordoned or drained take jobs again. It lifts no quarantine."""
    from stado.jobs.host_orders import open_host

    user = user_name()

    def change(repo: Repository, consumer: str) -> HostOrders:
        return open_host(repo, consumer, by=user)

    _say(name, change, "may take jobs again", as_json=as_json, target=target)


@click.command()
@_name_argument
@json_option
@target_options
def release(*, name: str, as_json: bool, target: Target) -> None:
    """Lift the quarantine of a host that has been mended: it takes jobs again."""
    from stado.jobs.host_orders import release_host

    user = user_name()

    def change(repo: Repository, consumer: str) -> HostOrders:
        return release_host(repo, consumer, by=user)

    _say(name, change, "is released: no quarantine keeps it", as_json=as_json, target=target)


@click.command()
@_name_argument
@click.argument("labels", metavar="KEY=VALUE|KEY-...", nargs=-1, required=True)
@json_option
@target_options
def label(*, name: str, labels: tuple[str, ...], as_json: bool, target: Target) -> None:
    """Say what a host is, for jobs to ask for: `KEY=VALUE` over what its agent was started with,
    `KEY-` to take that back.

    \b
      stado hosts label local@lab-7 zone=a rack=12
      stado hosts label local@lab-7 rack-
    """
    from stado.core.host_labels import label_texts, parse_changes
    from stado.jobs.host_orders import label_host

    changes, user = parse_changes(labels), user_name()

    def change(repo: Repository, consumer: str) -> HostOrders:
        return label_host(repo, consumer, changes, by=user)

    def what(orders: HostOrders) -> str:
        said = ", ".join(label_texts(orders.labels)) or "nothing"
        return f"has {said} over the labels of its agent"

    _say(name, change, what, as_json=as_json, target=target)


@click.command("set")
@_name_argument
@click.option(
    "--price-per-hour",
    required=True,
    callback=price_or_default,
    metavar="DOLLARS|default",
    help="What it costs; 'default': what its agent was started with.",
)
@json_option
@target_options
def set_(*, name: str, price_per_hour: float | None, as_json: bool, target: Target) -> None:
    """Say what a host costs an hour: its jobs bear that by the part of it that they have.

    It counts for what is claimed there from then on.

    \b
      stado hosts set local@lab-7 --price-per-hour 2.40
      stado hosts set local@lab-7 --price-per-hour default
    """
    from stado.jobs.host_orders import price_host

    user = user_name()

    def change(repo: Repository, consumer: str) -> HostOrders:
        return price_host(repo, consumer, price_per_hour, by=user)

    def what(orders: HostOrders) -> str:
        price = orders.price_per_hour
        return "costs what its agent says" if price is None else f"costs ${price:g} an hour"

    _say(name, change, what, as_json=as_json, target=target)


def _say(
    name: str,
    change: Callable[[Repository, str], HostOrders],
    what: str | Callable[[HostOrders], str],
    *,
    as_json: bool,
    target: Target,
) -> None:
    """Of an agent that is not there it counts once it is."""
    from stado.cli import host_story, render
    from stado.jobs.health import agents
    from stado.jobs.host_orders import consumer_named

    with opened_repository(target) as repo:
        sights = agents(repo)
        consumer = consumer_named(repo, name, sights)
        orders = change(repo, consumer)
        sight = _sight_of(consumer, sights)
        seconds = repo.deployment.tick_seconds
    if as_json:
        render.print_json({"worker": consumer, "orders": host_story.orders_fields(orders)})
        return
    there = sight is not None and sight.alive
    when = f"within {seconds:.0f} s" if there else "once its agent is there"
    told = what if isinstance(what, str) else what(orders)
    render.tell(f"{consumer} {told} ({when})")


@click.command("rm")
@_name_argument
@json_option
@target_options
def remove(*, name: str, as_json: bool, target: Target) -> None:
    """Forget a host that is gone for good: its report, and what operators have said to it.

    Only one whose agent has stopped, or is stale, and under whose name no job runs.
    """
    from stado.cli import render
    from stado.jobs.health import Holdings, agents
    from stado.jobs.host_orders import consumer_named, forget_host

    with opened_repository(target) as repo:
        sights = agents(repo)
        consumer = consumer_named(repo, name, sights)
        sight = _sight_of(consumer, sights)
        held = Holdings(repo).under({consumer})
        forget_host(repo, consumer, sight, held[consumer])
    if as_json:
        render.print_json({"worker": consumer, "forgotten": True})
    else:
        render.tell(f"{consumer} is forgotten")
