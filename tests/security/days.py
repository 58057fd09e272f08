"""What people of each role do in a day, by the commands that they type."""

from __future__ import annotations

import os
from pathlib import Path

from tests.security.behind_gates import Deployment

_LARGE_BYTES = 17 << 20
"""A file that goes up in parts."""

_WORK = (
    f"echo begun; head -c {_LARGE_BYTES} /dev/zero > $STADO_OUTPUT_DIR/large; "
    "echo weights > $STADO_CHECKPOINT_DIR/model"
)


def of_everybody(made: Deployment) -> None:
    """An operator, a submitter, an agent, a coordinator, a reader."""
    made.start("coordinator", "coordinator", "run")
    made.start("agent", "agent", "run", "--work-dir", str(made.folder / "hosts"))
    _submit(made)
    _cancel(made)
    _pause_retry_delete(made)
    _schedule(made)
    _look(made, "submitter")
    _look(made, "reader")


def _submit(made: Deployment) -> None:
    job = made.stado("submitter", "submit", "--run-id", "one", "--verify", "true", _WORK)
    assert made.stado("submitter", "submit", "--run-id", "one", "--verify", "true", _WORK) == job
    made.wait_at_rest(job)
    made.stado("submitter", "job", "watch", job, "--follow")
    batch = made.folder / "batch"
    batch.write_text("exit 3\ntrue\n")
    for two in made.stado("submitter", "submit", "--run-id", "two", "--batch", str(batch)).split():
        made.wait_at_rest(two)
    made.stado("submitter", "job", "rerun", job)
    limited = ("--timeout", "1", "sleep 600")
    made.wait_at_rest(made.stado("submitter", "submit", "--run-id", "late", *limited))
    _take_code_along(made)
    _take_along(made)


def _take_code_along(made: Deployment) -> None:
    code = made.folder / "code"
    code.mkdir()
    (code / "large").write_bytes(os.urandom(_LARGE_BYTES))
    with_code = ("submit", "--run-id", "code", "--workdir", str(code), "ls -l large")
    made.wait_at_rest(made.stado("submitter", *with_code))


def _take_along(made: Deployment) -> None:
    """What one job left, and what is published of it, taken along by another."""
    for name in ("kept", "kept"):
        made.stado("submitter", "artifact", "publish", "one", "--name", name)
    inputs = ("--input-artifact", "a=artifact:kept", "--input-artifact", "b=one/large")
    script = "cmp $STADO_INPUT_DIR/a/large $STADO_INPUT_DIR/b/large"
    made.wait_at_rest(made.stado("submitter", "submit", "--run-id", "taking", *inputs, script))


def _cancel(made: Deployment) -> None:
    """What waits at once, with what runs; an operator looks in between."""
    running = made.stado("submitter", "submit", "--run-id", "long", "sleep 600")
    made.wait_running(running)
    for run in ("huge", "huger"):
        made.stado("submitter", "submit", "--run-id", run, "--cpu", "1000", "true")
    made.stado("submitter", "cancel", "huge")
    for limit in ("2h", "3h"):
        made.stado("operator", "settings", "set", "limits.runtime_seconds", limit)
    made.stado("operator", "queue", "pause")
    made.stado("operator", "doctor", code=1)
    made.stado("operator", "queue", "resume")
    made.stado("operator", "ledger", "rebuild")
    made.stado("submitter", "cancel", "all", "--yes")


def _pause_retry_delete(made: Deployment) -> None:
    """A job that saves and leaves something, and takes code along, goes with all of it."""
    code = made.folder / "little"
    code.mkdir()
    (code / "small").write_bytes(b"x")
    script = "echo 1 > $STADO_OUTPUT_DIR/one; echo 1 > $STADO_CHECKPOINT_DIR/model; exit 3"
    job = made.stado("submitter", "submit", "--run-id", "life", "--workdir", str(code), script)
    made.wait_at_rest(job)
    made.stado("submitter", "job", "retry", job)
    made.stado("submitter", "job", "watch", job, "--follow", code=3)
    made.stado("submitter", "job", "delete", job)
    waiting = made.stado("submitter", "submit", "--run-id", "break", "sleep 600")
    made.wait_running(waiting)
    made.stado("submitter", "job", "pause", waiting)
    made.stado("submitter", "job", "resume", waiting)
    made.wait_running(waiting)
    made.stado("submitter", "job", "pause", waiting, "--no-wait")
    made.stado("submitter", "cancel", waiting)
    made.stado("submitter", "job", "delete", waiting)


def _schedule(made: Deployment) -> None:
    """One that is made, looked at and removed; what it submits is asked for."""
    when = ("--name", "nightly", "--cron", "@daily")
    made.stado("submitter", "schedule", "create", *when, "--tz", "Europe/Berlin", "true")
    made.wait_at_rest(made.stado("submitter", "schedule", "run", "nightly"))
    for change in ("pause", "resume"):
        made.stado("submitter", "schedule", change, "nightly")
    made.stado("submitter", "schedule", "create", "--name", "gone", "--cron", "@daily", "true")
    made.stado("submitter", "schedule", "rm", "gone")


def _look(made: Deployment, role: str) -> None:
    out = made.folder / f"out-{role}"
    for command in (
        ("status",),
        ("hosts",),
        ("usage", "--org"),
        ("ledger", "show"),
        ("cost", "report"),
        ("cost", "allocation"),
        ("cost", "budgets"),
        ("settings", "list"),
        ("job", "why", "one"),
        ("logs", "one"),
        ("schedule", "list"),
        ("schedule", "show", "nightly"),
        ("schedule", "next", "nightly"),
        ("schedule", "history", "nightly"),
        ("artifact", "list"),
        ("artifact", "show", "kept"),
        ("artifact", "verify", "kept@1"),
        ("results", "one", str(out)),
    ):
        made.stado(role, *command)
    assert Path(out / "large").stat().st_size == _LARGE_BYTES
