"""Limits of time with real processes: what was started is gone, and the outcome says why."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import psutil

from stado.core.states import Reason, State
from stado.jobs.submit import Submission
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import SMALL, Fleet


def test_each_limit_ends_what_was_started_and_a_run_goes_on_from_the_one_before(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """R75, R83, R95, R136: a job's own limit, a deadline in the queue, a host's limit, silence; and
    a command that succeeds at its third run."""
    fleet = make_fleet()
    fleet.agent("one", "--max-run-seconds", "5")
    deadline_at = fleet.repo.now() + timedelta(seconds=1)
    pids = tmp_path / "pids"
    stubborn = f"trap '' TERM; sleep 300 & echo $! >> {pids}; echo $$ >> {pids}; wait; sleep 300"
    runs_file = "$STADO_CHECKPOINT_DIR/runs"
    third = f"echo run $STADO_BODY_RUN; echo x >> {runs_file}; [ $(wc -l < {runs_file}) = 3 ]"
    runs = {
        "own": fleet.submit(stubborn, spec=SMALL.evolve(timeout_seconds=3)),
        "queued": fleet.submit("true", spec=SMALL.evolve(cpu=999, deadline_at=deadline_at)),
        "host's": fleet.submit("sleep 300", spec=SMALL),
        "silent": fleet.submit("sleep 300", spec=SMALL.evolve(idle_timeout_seconds=3)),
        "third": fleet.submit(third, spec=SMALL.evolve(body_retries=2)),
    }
    ended = {name: _ended(fleet, run) for name, run in runs.items()}
    assert ended == {
        "own": (State.TIMED_OUT, Reason.ORG_RUNTIME_LIMIT_EXCEEDED),
        "queued": (State.TIMED_OUT, Reason.DEADLINE_PASSED),
        "host's": (State.FAILED, Reason.TIMEOUT),
        "silent": (State.FAILED, Reason.BODY_HUNG),
        "third": (State.COMPLETED, None),
    }
    assert len(started := pids.read_text().split()) == 2
    assert not any(psutil.pid_exists(int(pid)) for pid in started)


def _ended(fleet: Fleet, run: Submission) -> tuple[State, Reason | None]:
    (state,) = fleet.wait_at_rest(run).values()
    record = fleet.story(run.job_ids[0]).record
    assert record.ending is not None
    return state, record.ending.reason
