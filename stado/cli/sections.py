"""Parts of what is known of a job, one at a time: `stado job show ID --section NAME`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from stado.cli import render
from stado.cli.explanations import explanation_fields, print_explanation
from stado.cli.stories import LABEL_WIDTH, ago_text, moment_text
from stado.cli.watching import print_log
from stado.cli.why import explained
from stado.core.events import Event
from stado.jobs.capacity import find_capacity
from stado.jobs.events import Timeline, events_of
from stado.jobs.sight import present_record

if TYPE_CHECKING:
    from stado.core.records import Capacity, Record
    from stado.jobs.repository import Repository

_KIND_WIDTH = 14


def print_section(repo: Repository, job_id: str, name: str) -> None:
    if name == "events":
        _print_events(events_of(repo, job_id))
    elif name == "logs":
        print_log(repo, job_id, lines=None)
    elif name == "system":
        record, capacity = _placed(repo, job_id)
        for label, text in _system_lines(record, capacity, repo.now()):
            render.print_wrapped(f"{label:<{LABEL_WIDTH}}{text}", indent=LABEL_WIDTH)
    else:
        record, seen = explained(repo, job_id)
        print_explanation(record, seen, repo.now())


def section_fields(repo: Repository, job_id: str, name: str) -> dict[str, Any]:
    """Of every section but the log: what it adds to the document."""
    if name == "events":
        return _timeline_fields(events_of(repo, job_id))
    if name == "system":
        return {"system": _system_fields(*_placed(repo, job_id))}
    record, seen = explained(repo, job_id)
    return {"diagnostics": explanation_fields(record, seen, repo.now())}


# --- events -------------------------------------------------------------------------------------


def _print_events(told: Timeline) -> None:
    if told.earlier_epochs:
        render.tell(f"{render.plural(told.earlier_epochs, 'earlier epoch')} left out")
    for key in told.unreadable:
        render.tell(f"{key} cannot be read: what it says is missing here")
    width = max((len(str(event.epoch)) for event in told.events), default=1)
    indent = len(moment_text(told.events[0].at)) + width + _KIND_WIDTH + 6 if told.events else 0
    for event in told.events:
        when = f"{moment_text(event.at)}  {event.epoch:>{width}}  {event.kind.value:<{_KIND_WIDTH}}"
        render.print_wrapped(f"{when}  {_sentence(event)}", indent=indent)


def _sentence(event: Event) -> str:
    due = f", from {moment_text(event.due_at)} on" if event.due_at is not None else ""
    note = f' ("{event.note}")' if event.note is not None else ""
    return f"{event.text}{due}{note}"


def _timeline_fields(told: Timeline) -> dict[str, Any]:
    return {
        "events": [_event_fields(event) for event in told.events],
        "earlier_epochs": told.earlier_epochs,
        "unreadable": told.unreadable,
    }


def _event_fields(event: Event) -> dict[str, Any]:
    return {
        "at": render.instant_text(event.at),
        "kind": event.kind.value,
        "epoch": event.epoch,
        "actor": event.actor,
        "host": event.host,
        "status_reason": event.reason.value if event.reason is not None else None,
        "reason": event.note,
        "retry_at": render.instant_text(event.due_at),
        "text": event.text,
    }


# --- system -------------------------------------------------------------------------------------


def _placed(repo: Repository, job_id: str) -> tuple[Record, Capacity | None]:
    """The job, and the newest report of the worker that has it, or had it last."""
    record = present_record(repo, job_id)
    holder = record.holder
    return record, find_capacity(repo, holder.consumer) if holder is not None else None


def _system_lines(
    record: Record, capacity: Capacity | None, now: datetime
) -> Iterator[tuple[str, str]]:
    spec, holder = record.spec, record.holder
    cpu = "1 core unless stated" if spec.cpu is None else f"{spec.cpu:g} cores"
    memory = "1 GiB unless stated" if spec.memory_gb is None else f"{spec.memory_gb:g} GiB"
    yield "asked for", f"{cpu}, {memory}"
    if spec.image is not None:
        yield "image", spec.image
    if holder is None:
        yield "host", "none has it"
        return
    yield "host", f"{holder.consumer} on {holder.host}, since {ago_text(holder.claimed_at, now)}"
    if capacity is None:
        yield "report", "there is none of its worker any more"
        return
    yield "report", f"{ago_text(capacity.at, now)}, stado {capacity.version}"
    yield "has", f"{capacity.cpu_total:g} cores, {capacity.memory_total_gb:g} GiB for jobs"
    stated = {
        "contains": capacity.contains_by,
        "limits": capacity.limits_memory_by,
        "engine": capacity.runs_images_by,
        "hindered": capacity.hindrance.detail if capacity.hindrance is not None else None,
    }
    yield from ((label, text) for label, text in stated.items() if text is not None)


def _system_fields(record: Record, capacity: Capacity | None) -> dict[str, Any]:
    spec, holder = record.spec, record.holder
    return {
        "cpu": spec.cpu,
        "memory_gb": spec.memory_gb,
        "image": spec.image,
        "worker": holder.consumer if holder is not None else None,
        "host": holder.host if holder is not None else None,
        "claimed_at": render.instant_text(holder.claimed_at) if holder is not None else None,
        "report": _report_fields(capacity) if capacity is not None else None,
    }


def _report_fields(capacity: Capacity) -> dict[str, Any]:
    return {
        "at": render.instant_text(capacity.at),
        "version": capacity.version,
        "cpu_total": capacity.cpu_total,
        "memory_total_gb": capacity.memory_total_gb,
        "contains_by": capacity.contains_by,
        "limits_memory_by": capacity.limits_memory_by,
        "runs_images_by": capacity.runs_images_by,
        "max_run_seconds": capacity.max_run_seconds,
    }
