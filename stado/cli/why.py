"""`stado job why`: what holds a job, in one line, and then everything that was looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from stado.cli.context import json_option, opened_repository, user_name
from stado.target import Target, target_options

if TYPE_CHECKING:
    from datetime import datetime

    from stado.core.records import Record
    from stado.jobs.repository import Repository
    from stado.jobs.status import Life
    from stado.jobs.waiting import Ahead, Explanation, Gate

_LABEL_WIDTH = 10
_MARKS = {True: ("open", "green"), False: ("CLOSED", "red")}


@click.command()
@click.argument("job", metavar="[ID]", default="last")
@json_option
@target_options
def why(*, job: str, as_json: bool, target: Target) -> None:
    """Say why a job waits, what it is doing, or how it ended.

    ID is a job id, a part of one, a run id, or `last`, which is meant when nothing is given. What a
    queued job has to pass is shown in order; the first closed gate is the answer.
    """
    from stado.cli import render
    from stado.cli.selectors import select_job

    with opened_repository(target) as repo:
        record, seen = _look(repo, select_job(repo, job, user=user_name()))
        if as_json:
            render.print_json(_fields(record, seen, repo.now()))
            return
        for line in _lines(record, seen, repo.now()):
            render.print_styled(line)


def _look(repo: Repository, job_id: str) -> tuple[Record, Explanation | Life | None]:
    """The job, and what there is to know of its wait or of its run. One that moved while we
    looked is looked at again: a queued job must have a place in the queue."""
    from stado.cli.following import present_record
    from stado.core.states import State
    from stado.jobs.status import life_of
    from stado.jobs.waiting import explain

    record = present_record(repo, job_id)
    if record.state is State.QUEUED:
        explanation = explain(repo, record)
        if explanation.ahead is not None:
            return record, explanation
        again = present_record(repo, job_id)
        if again == record:
            return record, explanation
        record = again
    if record.state is State.QUEUED:
        return record, explain(repo, record)
    return record, life_of(repo, record) if record.state is State.RUNNING else None


def _lines(record: Record, seen: Explanation | Life | None, now: datetime) -> Iterator[str]:
    from stado.cli.render import clean, styled
    from stado.jobs.status import Life
    from stado.jobs.waiting import Explanation

    if isinstance(seen, Explanation):
        yield styled(clean(f"job {record.id} waits: {seen.wait.text}"), None, bold=True)
        yield from _wait_lines(record, seen, now)
    elif isinstance(seen, Life):
        yield styled(clean(_running_text(record, seen, now)), None, bold=True)
        yield from _run_lines(record, seen, now)
    else:
        yield from _rest_lines(record, now)


def _wait_lines(record: Record, seen: Explanation, now: datetime) -> Iterator[str]:
    from stado.cli.render import clean, duration
    from stado.cli.views import ending_text, waiting_seconds
    from stado.jobs.waiting import causes_text

    if seen.wait.remedy is not None:
        yield clean(f"  -> {seen.wait.remedy}")
    yield ""
    for gate in seen.gates:
        yield _gate_line(gate)
    yield ""
    if seen.hosts:
        yield _line("hosts", causes_text(seen.hosts))
    if seen.ahead is not None:
        yield _line("before it", _ahead_text(seen.ahead))
    since = duration(waiting_seconds(record, now))
    yield _line("waiting", f"for {since}, at priority {record.priority:,}")
    if record.ending is not None:
        yield _line(f"epoch {record.epoch - 1}", ending_text(record.ending))


def _run_lines(record: Record, life: Life, now: datetime) -> Iterator[str]:
    from stado.cli.stories import ago_text, life_lines

    for label, text in life_lines(record, life, now):
        yield _line(label, text)
    heartbeat, holder = life.heartbeat, record.holder
    if heartbeat is not None and heartbeat.started_at is not None:
        yield _line("started", ago_text(heartbeat.started_at, now))
    if holder is not None:
        yield _line("claimed", f"{ago_text(holder.claimed_at, now)} as epoch {record.epoch}")


def _rest_lines(record: Record, now: datetime) -> Iterator[str]:
    from stado.cli.render import styled
    from stado.cli.stories import ago_text
    from stado.cli.views import outcome_text

    yield styled(outcome_text(record), None, bold=True)
    if record.ending is not None:
        yield _line("ended", f"{ago_text(record.ending.ended_at, now)} by {record.ending.by}")
        yield _line("next", f"stado job show {record.id}")


def _running_text(record: Record, life: Life, now: datetime) -> str:
    """`job x runs on box: uploading, after 3m 12s`."""
    from stado.cli.render import duration
    from stado.cli.views import life_word, running_seconds

    where = record.holder.consumer if record.holder is not None else "a worker"
    since = duration(running_seconds(record, life.heartbeat, now))
    return f"job {record.id} runs on {where}: {life_word(life)} for {since}"


def _gate_line(gate: Gate) -> str:
    from stado.cli.render import clean, styled

    mark, style = _MARKS[gate.wait is None]
    return f"  {styled(f'{mark:<6}', style)}  {gate.name.value:<8}  {clean(gate.text)}"


def _line(label: str, text: str) -> str:
    from stado.cli.render import clean

    return f"{label:<{_LABEL_WIDTH}}{clean(text)}"


def _ahead_text(ahead: Ahead) -> str:
    from stado.cli.render import plural

    if ahead.at_least:
        return f"at least {plural(ahead.count, 'job')} in the order of the queue"
    if not ahead.count:
        return "no job: it is the first in the order of the queue"
    return f"{plural(ahead.count, 'job')} in the order of the queue"


def _fields(record: Record, seen: Explanation | Life | None, now: datetime) -> dict[str, Any]:
    from stado.cli.views import job_fields, life_fields, outcome_text
    from stado.jobs.status import Life
    from stado.jobs.waiting import Explanation

    life = seen if isinstance(seen, Life) else None
    explanation = seen if isinstance(seen, Explanation) else None
    if explanation is not None:
        answer = explanation.wait.text
    else:
        answer = _running_text(record, life, now) if life is not None else outcome_text(record)
    return {
        **job_fields(record),
        **life_fields(life),
        "answer": answer,
        **_wait_fields(explanation),
        "run": _run_fields(record, life, now) if life is not None else None,
    }


def _wait_fields(seen: Explanation | None) -> dict[str, Any]:
    from stado.cli.views import wait_fields
    from stado.jobs.waiting import count_causes

    if seen is None:
        none = ("waiting", "gates", "hosts", "before_it")
        return {"wait_reasons": [], **dict.fromkeys(none)}
    closed = [gate.wait.code for gate in seen.gates if gate.wait is not None]
    ahead = seen.ahead
    return {
        "wait_reasons": closed or [seen.wait.code],
        "waiting": wait_fields(seen.wait),
        "gates": [_gate_fields(gate) for gate in seen.gates],
        "hosts": {"count": len(seen.hosts), "causes": count_causes(seen.hosts)},
        "before_it": None if ahead is None else {"count": ahead.count, "at_least": ahead.at_least},
    }


def _gate_fields(gate: Gate) -> dict[str, Any]:
    return {
        "gate": gate.name.value,
        "open": gate.wait is None,
        "text": gate.text,
        "code": gate.wait.code if gate.wait is not None else None,
        "remedy": gate.wait.remedy if gate.wait is not None else None,
    }


def _run_fields(record: Record, life: Life, now: datetime) -> dict[str, Any]:
    from stado.cli.render import instant_text
    from stado.cli.views import silent_seconds

    holder, heartbeat = record.holder, life.heartbeat
    silence = silent_seconds(record, heartbeat, now)
    return {
        "claimed_at": instant_text(holder.claimed_at) if holder else None,
        "started_at": instant_text(heartbeat.started_at) if heartbeat else None,
        "silent_seconds": round(silence, 3),
        "lease_seconds": holder.lease_seconds if holder else None,
        "lease_left_seconds": round(holder.lease_seconds - silence, 3) if holder else None,
        "cancel_asked_by": life.cancel_asked_by,
        "cancel_asked_at": instant_text(life.cancel_asked_at),
    }
