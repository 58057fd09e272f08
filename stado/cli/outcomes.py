"""How a job ended, in one line with its times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stado.cli.render import clean, duration
from stado.core.states import State

if TYPE_CHECKING:
    from stado.core.records import Ending, Record

_WORDS = {
    State.CANCELLED: "was cancelled",
    State.TIMED_OUT: "timed out",
    State.PAUSED: "is paused",
}


def outcome_line(record: Record) -> str:
    """`job x completed in 3m 12s on local@h (waited 4s)`, `job x failed: exit 3 after 12s on
    local@h: the command exited with 3 (job_failed)`; of a job at rest."""
    text = f"job {record.id} {ended_word(record.state)}"
    ending = record.ending
    if ending is None:
        return text
    place = f" on {record.holder.consumer}" if record.holder is not None else ""
    if record.state is State.COMPLETED:
        return clean(f"{text}{_taken(ending, 'in')}{place}{_waited(record, ending)}")
    code = f": {_code(ending.exit_code)}" if ending.exit_code else ""
    return clean(f"{text}{code}{_taken(ending, 'after')}{place}{_why(ending)}")


def ended_word(state: State) -> str:
    """`failed`, `was cancelled`, `timed out`."""
    return _WORDS.get(state, state.value)


def elapsed_text(seconds: float) -> str:
    """As all durations, `3m 12s`; what is short with its tenths: `0.4s`."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}".removesuffix(".0") + "s"
    return duration(round(seconds))


def _taken(ending: Ending, word: str) -> str:
    if ending.started_at is None:
        return ""
    return f" {word} {elapsed_text((ending.ended_at - ending.started_at).total_seconds())}"


def _waited(record: Record, ending: Ending) -> str:
    """In the queue; of a job that had to start again this would tell of other things too."""
    if ending.started_at is None or record.epoch > 1:
        return ""
    waited = (ending.started_at - record.submitted_at).total_seconds()
    return f" (waited {elapsed_text(waited)})"


def _code(exit_code: int) -> str:
    return f"signal {-exit_code}" if exit_code < 0 else f"exit {exit_code}"


def _why(ending: Ending) -> str:
    reason = f"({ending.reason.value})" if ending.reason is not None else ""
    told = " ".join(part for part in (ending.detail, reason) if part)
    return f": {told}" if told else ""
