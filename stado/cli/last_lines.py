"""What a job printed last, for who waits for one that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stado.cli import render
from stado.core.states import State

if TYPE_CHECKING:
    from stado.core.records import Record
    from stado.jobs.repository import Repository

LINES = 10
_BYTES_MAX = 8192
"""Of lines that are longer than people read."""


def tell_last_lines(repo: Repository, record: Record) -> None:
    """Nothing where the job did not fail, or printed nothing. What cannot be read keeps nobody from
    learning how it ended."""
    from stado.errors import StoreError, Unreadable

    if record.state not in (State.FAILED, State.TIMED_OUT):
        return
    try:
        lines = _last_lines(repo, record)
    except (StoreError, Unreadable):
        return
    if lines:
        render.tell("its last lines:")
        for line in lines:
            render.tell(f"  {line}")
        render.tell(f"all of it: `stado logs {record.id}`")


def _last_lines(repo: Repository, record: Record) -> list[str]:
    from stado.jobs.job_log import JobLog

    log = JobLog(repo, record.id, up_to_epoch=record.epoch, lines=LINES, tail_bytes=_BYTES_MAX)
    pieces = log.read_up_to(record.epoch, complete=True)
    data = b"".join(piece for piece in pieces if isinstance(piece, bytes))
    return _as_seen(data[-_BYTES_MAX:].decode("utf-8", "replace"))


def _as_seen(text: str) -> list[str]:
    """What a terminal would show at the end: of a bar that was drawn again and again the last."""
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return [line for line in lines if line.strip()][-LINES:]
