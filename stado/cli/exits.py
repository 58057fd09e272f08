"""Exit codes, in one place: docs/exit-codes.md has the table for users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stado import errors

if TYPE_CHECKING:
    from stado.core.pipelines import PipelineState
    from stado.core.records import Record

OK = 0
FAILED = 1
REFUSED = 2
CANCELLED = 3
PARTIAL = 4
"""Of a pipeline: its first job has completed, and not all of its steps."""
UNKNOWN = 69
"""The store cannot be reached, or did not say what became of a request (`EX_UNAVAILABLE`)."""
INTERNAL = 70
"""A mistake of ours (`EX_SOFTWARE`)."""
TIMED_OUT = 124
"""As `timeout` of GNU coreutils says it."""
INTERRUPTED = 130
PIPE_CLOSED = 141
"""As a program ends whose reader has gone (128 + SIGPIPE)."""

_OWN_CODES = range(1, 126)
"""What a command can end with that a shell could not mean otherwise."""


def of_error(error: errors.StadoError) -> int:
    """Refusals, and what trying again does not help, are 2; an open question is 69."""
    if isinstance(error, errors.Unavailable | errors.Ambiguous | errors.Unreadable):
        return UNKNOWN
    if isinstance(error, errors.Conflict | errors.Exists | errors.ChannelClosed):
        return FAILED
    return REFUSED


def of_pipeline(state: PipelineState) -> int:
    """How waiting for all of a pipeline ends."""
    from stado.core.pipelines import PipelineState

    codes = {PipelineState.SUCCEEDED: OK, PipelineState.PARTIAL: PARTIAL}
    return codes.get(state, FAILED)


def of_job(record: Record) -> int:
    """How following a job ends."""
    from stado.core.states import Reason, State

    codes = {State.COMPLETED: OK, State.CANCELLED: CANCELLED, State.TIMED_OUT: TIMED_OUT}
    if record.state in codes:
        return codes[record.state]
    ending = record.ending
    if (
        record.state is State.FAILED
        and ending is not None
        and ending.reason in (Reason.JOB_FAILED, Reason.JOB_REFUSED)
        and ending.exit_code is not None
        and ending.exit_code in _OWN_CODES
    ):
        return ending.exit_code
    return FAILED
