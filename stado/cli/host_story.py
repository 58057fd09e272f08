"""All that is known of one host: what it has, what it runs, and why it takes no jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from stado.cli import render
from stado.cli.accelerator_views import accelerator_lines
from stado.cli.host_views import free_texts, held_text, hindrance_text, host_fields, means
from stado.cli.stories import ago_text
from stado.core.records import Capacity, HostClosing, HostOrders, JobEnd
from stado.jobs.health import AgentSight, AgentState

_LABEL_WIDTH = 12
_JOBS_NAMED_MAX = 20


class HostStory(NamedTuple):
    """What was read of it. `sight` None: no agent of that name has reported, or it is long ago."""

    consumer: str
    sight: AgentSight | None
    held: Sequence[str] | None
    """Job ids by the running records, of an agent that is not heard."""
    orders: HostOrders | None
    now: datetime


def show(story: HostStory) -> None:
    for label, text in _lines(story):
        render.print_wrapped(f"{label:<{_LABEL_WIDTH}}{text}", indent=_LABEL_WIDTH)


def fields(story: HostStory) -> dict[str, Any]:
    sight = story.sight
    return {
        "worker": story.consumer,
        "host": None if sight is None else host_fields(sight, story.held),
        "why": why_no_jobs(story),
        "orders": orders_fields(story.orders),
    }


def orders_fields(orders: HostOrders | None) -> dict[str, Any] | None:
    if orders is None:
        return None
    closing, release = orders.closing, orders.release
    return {
        "closing": closing and _closing_fields(closing),
        "release": release and {"by": release.by, "at": render.instant_text(release.at)},
        "labels": orders.labels,
        "price_per_hour": orders.price_per_hour,
        "changed_by": orders.changed_by,
        "changed_at": render.instant_text(orders.changed_at),
    }


def _closing_fields(closing: HostClosing) -> Mapping[str, Any]:
    return {
        "order": closing.order.value,
        "by": closing.by,
        "at": render.instant_text(closing.at),
        "reason": closing.reason,
        "deadline_at": render.instant_text(closing.deadline_at),
    }


def why_no_jobs(story: HostStory) -> str | None:
    """In one sentence; None: it takes what fits into what it has free."""
    sight, closing = story.sight, story.orders.closing if story.orders is not None else None
    if sight is None:
        return "no agent of this name has reported lately: start one, or `stado hosts rm` it"
    one = sight.capacity
    if sight.state is AgentState.STOPPED:
        return "its agent has stopped: `stado agent run` there starts one"
    if sight.state is AgentState.STALE:
        silence = render.duration(sight.age_seconds)
        return f"it has not been heard for {silence}: it may be gone, and its host too"
    if sight.state is AgentState.DRAINING:
        return "its agent was told to stop, and waits for the end of what runs there"
    if one.hindrance is not None:
        return hindrance_text(one.hindrance, story.now)
    if closing is not None:
        asked = ago_text(closing.at, story.now)
        return f"{closing.by} has closed it {asked}; its agent heeds that with its next report"
    return _why_full(one)


def _why_full(one: Capacity) -> str | None:
    if one.closed:
        return "a job has it for itself"
    if one.cpu_free <= 0:
        return "all its cores are given to jobs"
    return "all its memory is in use" if one.memory_free_gb <= 0 else None


def _lines(story: HostStory) -> Iterator[tuple[str, str]]:
    sight = story.sight
    yield "agent", story.consumer if sight is None else _agent_text(sight)
    yield "state", "unknown" if sight is None else sight.word
    why = why_no_jobs(story)
    yield "takes jobs", f"no: {why}" if why is not None else "yes: what fits into what is free"
    if sight is not None and sight.capacity.keeps_room_for is not None:
        yield "keeps room", f"for job {sight.capacity.keeps_room_for}, which it passed by for long"
    if sight is not None:
        yield from _report_lines(sight, story.held, story.now)
    if story.orders is not None:
        yield "changed", f"by {story.orders.changed_by} {_ago(story.orders.changed_at, story)}"


def _agent_text(sight: AgentSight) -> str:
    one = sight.capacity
    seen = render.duration(sight.age_seconds)
    return f"{one.consumer} on {one.host}, version {one.version}, heard {seen} ago"


def _report_lines(
    sight: AgentSight, held: Sequence[str] | None, now: datetime
) -> Iterator[tuple[str, str]]:
    one = sight.capacity
    if sight.alive:
        yield "free", ", ".join(free_texts(one))
        yield "jobs", _jobs_text(one, now)
        for number, line in enumerate(accelerator_lines(one)):
            yield "" if number else "GPUs", line
    if held:
        yield "not heard", held_text(held)
    if one.labels:
        yield "labels", ", ".join(one.labels)
    if one.last_claim is not None:
        claim = one.last_claim
        yield "last claim", f"{claim.job_id}, {ago_text(claim.at, now)}"
    if one.recent_ends:
        yield "last ends", "; ".join(_end_text(end) for end in reversed(one.recent_ends))
    if means(one):
        yield "means", "; ".join(means(one))


def _jobs_text(one: Capacity, now: datetime) -> str:
    if not one.jobs:
        return "none"
    shown = [
        job.job_id
        if job.began_at is None
        else f"{job.job_id} for {render.duration((now - job.began_at).total_seconds())}"
        for job in one.jobs[:_JOBS_NAMED_MAX]
    ]
    more = len(one.jobs) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _end_text(end: JobEnd) -> str:
    why = f" ({end.reason})" if end.reason is not None else ""
    lasted = "" if end.ran_seconds is None else f" after {render.duration(end.ran_seconds)}"
    return f"{end.job_id} {end.verdict}{why}{lasted}"


def _ago(at: datetime, story: HostStory) -> str:
    return ago_text(at, story.now)
