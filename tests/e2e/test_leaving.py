"""An agent that is told twice to leave does so, and says that all went well."""

from __future__ import annotations

import signal
import sys

from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import wait_for

_SLOW_TO_FREE = """
import time

class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(8)

slow = Slow()
from stado.cli.entry import run
run()
"""
"""What a busy host needs to free a large memory, when no handler of a signal is there any more."""


def test_an_agent_that_takes_long_to_end_after_a_second_signal_ends_well(
    make_fleet: MakeFleet,
) -> None:
    fleet = make_fleet()
    work_dir = str(fleet.folder / "hosts")
    options = ["agent", "run", "--consumer-id", "one", "--work-dir", work_dir]
    agent = fleet._run("one", [sys.executable, "-c", _SLOW_TO_FREE, *options])
    gate = fleet.folder / "gate"
    submission = fleet.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done")
    fleet.started("one", submission.job_ids[0])
    agent.send_signal(signal.SIGTERM)
    wait_for(lambda: "event=draining" in fleet.log("one"))
    agent.send_signal(signal.SIGTERM)
    assert fleet.expect_failure(agent) == 0
    gate.touch()
    fleet.wait_at_rest(submission)
