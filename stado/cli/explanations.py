"""Why a job waits, what it is doing, or how it ended: in a sentence, and then in full."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from stado.cli import render
from stado.cli.outcomes import outcome_line
from stado.cli.remarks import news_text
from stado.cli.stories import LABEL_WIDTH, ago_text, life_lines
from stado.cli.tables import Colour
from stado.cli.views import (
    life_word,
    live_job_fields,
    running_seconds,
    silent_seconds,
    wait_fields,
    waiting_seconds,
)
from stado.core.records import Record
from stado.core.states import State
from stado.jobs.fitting import Gate, causes_text, count_causes
from stado.jobs.forecast import Forecast
from stado.jobs.status import Life
from stado.jobs.waiting import Ahead, Explanation

_MARKS: Mapping[bool, tuple[str, Colour]] = {True: ("open", "green"), False: ("CLOSED", "red")}

_DOING = {
    "preparing": "its folder is being made ready",
    "running": "its command runs",
    "verifying": "its verify command runs",
    "uploading": "what it left is being uploaded",
    "stopping": "it is being stopped",
    "cancelling": "it is being cancelled",
    "pausing": "it is being paused",
}


def print_explanation(record: Record, seen: Explanation | Life | None, now: datetime) -> None:
    for line in render.wrapped(_answer(record, seen, now), indent=2):
        render.print_styled(render.styled(line, None, bold=True))
    if isinstance(seen, Explanation):
        _print_wait(record, seen, now)
    elif isinstance(seen, Life):
        _print_run(record, seen, now)
    elif record.ending is not None:
        print_field("ended", f"{ago_text(record.ending.ended_at, now)} by {record.ending.by}")
        print_field("next", _next(record))


def _next(record: Record) -> str:
    if record.state is State.PAUSED:
        return f"`stado job resume {record.id}` queues it again"
    return f"`stado job show {record.id}`"


def _answer(record: Record, seen: Explanation | Life | None, now: datetime) -> str:
    """The whole truth in one sentence."""
    if isinstance(seen, Explanation):
        return f"job {record.id} waits: {seen.wait.text}"
    if isinstance(seen, Life):
        where = record.holder.consumer if record.holder is not None else "a worker"
        since = render.duration(running_seconds(record, seen.heartbeat, now))
        return f"job {record.id} has run on {where} for {since}: {_doing(record, seen, now)}"
    return outcome_line(record)


def _doing(record: Record, life: Life, now: datetime) -> str:
    silence = silent_seconds(record, life.heartbeat, now)
    if record.holder is not None and silence > record.holder.lease_seconds:
        return f"nothing has been heard of it for {render.duration(silence)}"
    return _DOING[life_word(life)]


def _print_wait(record: Record, seen: Explanation, now: datetime) -> None:
    if seen.wait.remedy is not None:
        render.print_wrapped(f"  -> {seen.wait.remedy}", indent=5)
    render.print_line()
    for gate in seen.gates:
        _print_gate(gate)
    render.print_line()
    if seen.hosts:
        print_field("hosts", causes_text(seen.hosts))
    if seen.ahead is not None:
        print_field("before it", _ahead_text(seen.ahead))
    if seen.forecast is not None:
        _print_forecast(seen.forecast)
    news = news_text(seen.settings_changed_at, now)
    if news is not None:
        print_field("settings", news.removeprefix("the settings "))
    since = render.duration(waiting_seconds(record, now))
    print_field("waiting", f"for {since}, at priority {record.priority:,}")
    if record.ending is not None:
        print_field(f"epoch {record.epoch - 1}", record.ending.told)


def _print_forecast(known: Forecast) -> None:
    if known.starts is not None:
        print_field("room", known.starts)
    if known.assigned_to is not None:
        print_field("assigned", f"to {known.assigned_to}")
    print_field("run time", known.takes)


def _print_run(record: Record, life: Life, now: datetime) -> None:
    for label, text in life_lines(record, life, now):
        print_field(label, text)
    heartbeat, holder = life.heartbeat, record.holder
    if heartbeat is not None and heartbeat.started_at is not None:
        print_field("started", ago_text(heartbeat.started_at, now))
    if holder is not None:
        print_field("claimed", f"{ago_text(holder.claimed_at, now)} as epoch {record.epoch}")


def _print_gate(gate: Gate) -> None:
    mark, style = _MARKS[gate.wait is None]
    first, *rest = render.wrapped(f"  {mark:<6}  {gate.name.value:<8}  {gate.text}", indent=20)
    render.print_styled(first.replace(mark, render.styled(mark, style), 1))
    for line in rest:
        render.print_styled(line)


def print_field(label: str, text: str) -> None:
    render.print_wrapped(f"{label:<{LABEL_WIDTH}}{text}", indent=LABEL_WIDTH)


def _ahead_text(ahead: Ahead) -> str:
    if ahead.at_least:
        return f"at least {render.plural(ahead.count, 'job')} in the order of the queue"
    if not ahead.count:
        return "no job: it is the first in the order of the queue"
    return f"{render.plural(ahead.count, 'job')} in the order of the queue"


def explanation_fields(
    record: Record, seen: Explanation | Life | None, now: datetime
) -> dict[str, Any]:
    life = seen if isinstance(seen, Life) else None
    return {
        **live_job_fields(record, life),
        "answer": _answer(record, seen, now),
        **_wait_fields(seen if isinstance(seen, Explanation) else None),
        "run": _run_fields(record, life, now) if life is not None else None,
    }


def _wait_fields(seen: Explanation | None) -> dict[str, Any]:
    if seen is None:
        none = ("waiting", "gates", "hosts", "before_it", "forecast")
        return {"wait_reasons": [], **dict.fromkeys(none)}
    closed = [gate.wait.code for gate in seen.gates if gate.wait is not None]
    ahead = seen.ahead
    return {
        "wait_reasons": closed or [seen.wait.code],
        "waiting": wait_fields(seen.wait),
        "gates": [_gate_fields(gate) for gate in seen.gates],
        "hosts": {"count": len(seen.hosts), "causes": count_causes(seen.hosts)},
        "before_it": None if ahead is None else {"count": ahead.count, "at_least": ahead.at_least},
        "forecast": None if seen.forecast is None else _forecast_fields(seen.forecast),
    }


def _forecast_fields(known: Forecast) -> dict[str, Any]:
    return {
        "run_time": known.takes,
        "assigned_to": known.assigned_to,
        "starts_at": render.instant_text(known.starts_at),
        "starts": known.starts,
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
    holder, heartbeat = record.holder, life.heartbeat
    silence = silent_seconds(record, heartbeat, now)
    return {
        "claimed_at": render.instant_text(holder.claimed_at) if holder else None,
        "started_at": render.instant_text(heartbeat.started_at) if heartbeat else None,
        "silent_seconds": round(silence, 3),
        "lease_seconds": holder.lease_seconds if holder else None,
        "lease_left_seconds": round(holder.lease_seconds - silence, 3) if holder else None,
        "cancel_asked_by": life.cancel_asked_by,
        "cancel_asked_at": render.instant_text(life.cancel_asked_at),
        "pause_asked_by": life.pause_asked_by,
        "pause_asked_at": render.instant_text(life.pause_asked_at),
        "yields_left": record.yields_left,
        "yield_asked_by": life.yield_asked_by,
        "yield_asked_at": render.instant_text(life.yield_asked_at),
    }
