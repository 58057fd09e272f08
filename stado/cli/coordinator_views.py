"""The coordinator that acts, and how its passes fare: as lines and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stado.core.records import PassNote
    from stado.jobs.health import CoordinatorSight

WHAT_PASSES_DO = {
    "reap": "gives lost jobs back",
    "fire": "submits what schedules have due",
    "repair": "mends the index of the queue",
    "sweep": "finishes submissions",
    "forget": "forgets hosts that are gone",
    "walk": "removes what moves have left behind",
    "slots": "frees places under limits",
    "assign": "works out which host should get which job",
    "ledger": "keeps what jobs used",
    "rows": "keeps rows of lists",
    "budgets": "works out what is spent of budgets",
    "notify": "sends notices",
}
"""By the names that stand in its log; those that a newer program has are told without."""


def coordinator_fields(sight: CoordinatorSight | None, now: datetime) -> dict[str, Any] | None:
    """None: none has ever worked there."""
    from stado.cli.render import instant_text

    if sight is None:
        return None
    lease = sight.lease
    return {
        "acts": sight.alive,
        "holder": lease.holder,
        "since": instant_text(lease.since),
        "heard_seconds": round(sight.age_seconds, 3),
        "lease_seconds": lease.lease_seconds,
        "left": lease.released,
        "version": lease.version,
        "passes": [_pass_fields(note, now) for note in lease.passes],
    }


def _pass_fields(note: PassNote, now: datetime) -> dict[str, Any]:
    from stado.cli.render import instant_text

    return {
        "name": note.name,
        "succeeded_at": instant_text(note.at),
        "age_seconds": None if note.at is None else round((now - note.at).total_seconds(), 3),
        "fails": note.fails,
        "failed_at": instant_text(note.failed_at),
        "error": note.error,
    }


def acting_text(sight: CoordinatorSight | None) -> str:
    """Which coordinator acts, since when, and what becomes of the queue where none does."""
    from stado.cli.render import duration

    if sight is None:
        return "no coordinator has worked there"
    lease, heard = sight.lease, f"last heard {duration(sight.age_seconds)} ago"
    if not sight.alive:
        gone = "has left" if lease.released else "is silent"
        return f"no coordinator is at work: {lease.holder} {gone}, {heard}"
    version = "" if lease.version is None else f" (stado {lease.version})"
    since = ""
    if lease.since is not None:
        since = f" for {duration(_seconds(lease.at, lease.since) + sight.age_seconds)}"
    return f"{lease.holder}{version} acts{since}; {heard}"


def next_text(sight: CoordinatorSight | None) -> str:
    """Who would act next, as far as the store can tell: who stands by writes nothing there."""
    from stado.cli.render import duration

    if sight is not None and sight.alive:
        lease = duration(sight.lease.lease_seconds)
        return (
            f"any that stands by takes over when this one leaves, or is silent for {lease}; where "
            "none does, agents give lost jobs back and mend the index"
        )
    return (
        "agents give lost jobs back and mend the index meanwhile; notices, assignments and the "
        "ledger wait: `stado up`, or `stado coordinator run`"
    )


def pass_lines(sight: CoordinatorSight | None, now: datetime) -> Iterator[str]:
    """A table, where something is told: at the first tick nothing is yet, and an earlier program
    tells nothing."""
    from stado.cli.render import clean_table_lines
    from stado.cli.tables import Column

    if sight is None:
        return
    if not sight.lease.passes:
        yield "it has not told how its passes fare: that comes with its second tick"
        return
    columns = [
        Column("PASS"),
        Column("LAST SUCCESS", right=True),
        Column("WHAT IT DOES"),
        Column("LAST ERROR"),
    ]
    yield from clean_table_lines(columns, [_cells(note, now) for note in sight.lease.passes])


def _cells(note: PassNote, now: datetime) -> list[str]:
    from stado.cli.render import short_duration

    succeeded = "never" if note.at is None else f"{short_duration(_seconds(now, note.at))} ago"
    error = "-"
    if note.failed_at is not None:
        ago = f"{short_duration(_seconds(now, note.failed_at))} ago"
        error = f"{ago}: {note.error or 'it did not say why'}"
    return [note.name, succeeded, WHAT_PASSES_DO.get(note.name, ""), error]


def _seconds(later: datetime, earlier: datetime) -> float:
    """Both by the store's clock, as two processes measured it."""
    return max(0.0, (later - earlier).total_seconds())
