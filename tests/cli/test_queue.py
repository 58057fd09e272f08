"""`stado queue`: pause, drain, resume."""

from __future__ import annotations

import json
import os
from pathlib import Path

from stado.core import keys
from tests.cli.conftest import Program, World


def paused_long_ago(stado: Program, world: World) -> None:
    stado.ok("queue", "pause")
    for mark in Path(world.path, keys.READY).iterdir():
        os.utime(mark, (0, 0))


def test_what_still_runs_is_told_and_the_time_that_was_given_ends_the_wait(
    stado: Program, world: World
) -> None:
    """R209"""
    job = stado.ok("submit", "--run-id", "it", "true")
    holder = world.claim(job).record.holder
    assert holder is not None
    where = holder.consumer
    answer = stado("queue", "drain", "--timeout", "1")
    assert answer.exit_code == 1
    first, last = answer.stderr.splitlines()
    assert first == f"the queue is paused; 1 job runs: {job} on {where}"
    assert last == f"stado: after 1 s 1 job runs: {job} on {where}; the queue stays paused"
    fields = json.loads(stado("queue", "drain", "--timeout", "1", "--json").stdout)
    assert (fields["drained"], fields["queue_paused"], fields["running"]) == (False, True, [job])
    assert stado.json("status")["queue_paused"] is True


def test_a_drained_queue_stays_paused(stado: Program, world: World) -> None:
    """R209"""
    paused_long_ago(stado, world)
    answer = stado("queue", "drain")
    assert (answer.exit_code, answer.stderr) == (
        0,
        "nothing runs, and nothing starts until `stado queue resume`\n",
    )
    assert stado.json("queue", "drain")["drained"] is True
    stado.ok("queue", "resume")
    assert stado.json("status")["queue_paused"] is False


def test_a_time_that_is_none_is_refused(stado: Program, world: World) -> None:
    assert "must be a positive whole number of seconds" in stado.refused(
        "queue", "drain", "--timeout", "0"
    )
    assert stado.json("status")["queue_paused"] is False
