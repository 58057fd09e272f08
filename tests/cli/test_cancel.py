"""Cancelling: what waits at once, what runs when its worker answers, or has been silent."""

from __future__ import annotations

import signal

from stado.core import keys
from stado.core.states import Reason, Verdict
from tests.cli.conftest import Program, World, run_each


def submit(stado: Program, run_id: str) -> str:
    return stado.ok("submit", "--run-id", run_id, "run")


def test_a_queued_job_is_cancelled_at_once(stado: Program, world: World) -> None:
    """R205"""
    job_id = submit(stado, "x")
    assert stado.ok("cancel", job_id) == f"{job_id}  cancelled"
    (job,) = stado.json("status", job_id)["jobs"]
    assert (job["status"], job["status_reason"]) == ("cancelled", "cancelled_by_user")


def test_a_job_at_rest_keeps_its_outcome_and_it_is_said(stado: Program, world: World) -> None:
    job_id = submit(stado, "x")
    world.fail(job_id, 3)
    result = stado("cancel", job_id)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"not cancelled: job {job_id} failed: the command exited with 3" in result.stderr
    (job,) = stado.json("cancel", job_id)["jobs"]
    assert (job["status"], job["cancelled_now"], job["cancel_asked"]) == ("failed", False, False)


def test_a_running_job_is_waited_for(stado: Program, world: World) -> None:
    """R205"""
    job_id = submit(stado, "x")
    claimed = world.claim(job_id)
    process = stado.start("cancel", job_id)
    assert process.stderr is not None
    assert b"asked local@box to stop 1 job, within " in process.stderr.readline()
    asked = world.repo.find_asks(job_id, 1)
    assert asked is not None
    assert asked.value.cancel_by == "ada"
    world.end(claimed, Verdict.CANCELLED, reason=Reason.CANCELLED)
    ((code, out, _),) = run_each([process])
    assert (code, out.decode()) == (0, f"{job_id}  cancelled\n")


def test_a_job_that_completes_meanwhile_keeps_that_and_it_is_1(
    stado: Program, world: World
) -> None:
    job_id = submit(stado, "x")
    claimed = world.claim(job_id)
    process = stado.start("cancel", job_id)
    assert process.stderr is not None
    process.stderr.readline()
    world.end(claimed, Verdict.COMPLETED, exit_code=0)
    ((code, out, err),) = run_each([process])
    assert (code, out.decode()) == (1, f"{job_id}  completed\n")
    assert f"not cancelled: job {job_id} completed" in err.decode()


def test_without_waiting_the_request_is_made(stado: Program, world: World) -> None:
    job_id = submit(stado, "x")
    world.claim(job_id)
    assert stado.ok("cancel", job_id, "--no-wait") == f"{job_id}  running"
    (job,) = stado.json("cancel", job_id, "--no-wait")["jobs"]
    assert (job["status"], job["cancel_asked"]) == ("running", True)


def test_a_silent_worker_is_not_waited_for_beyond_its_lease(
    stado: Program, quick_world: World
) -> None:
    job_id = submit(stado, "x")
    quick_world.claim(job_id)
    assert stado.ok("cancel", job_id) == f"{job_id}  cancelled"
    (job,) = stado.json("status", job_id)["jobs"]
    assert job["status_detail"].startswith("cancelled while its worker did not answer: ")


def test_ctrl_c_stops_the_waiting_and_not_the_cancel(stado: Program, world: World) -> None:
    job_id = submit(stado, "x")
    world.claim(job_id)
    process = stado.start("cancel", job_id)
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    ((code, _, err),) = run_each([process])
    assert code == 130
    assert b"the cancel stays" in err
    asked = world.repo.find_asks(job_id, 1)
    assert asked is not None
    assert asked.value.cancel


def test_a_whole_batch_is_cancelled(stado: Program, world: World) -> None:
    ids = stado.ok("submit", "--run-id", "b", "--batch", "-", stdin=b"1\n2\n3\n").splitlines()
    world.complete(ids[0])
    result = stado("cancel", ids[0][:16])
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [f"{one}  cancelled" for one in ids[1:]]
    assert f"not cancelled: job {ids[0]} completed" in result.stderr
    assert stado("cancel", "b").exit_code == 1


def test_a_submission_that_was_interrupted_is_cancelled_as_a_whole(
    stado: Program, world: World
) -> None:
    ids = stado.ok("submit", "--run-id", "b", "--batch", "-", stdin=b"1\n2\n").splitlines()
    run = world.repo.find_run("b")
    assert run is not None
    unfinished = run.value.evolve(complete=False)
    world.repo.store.replace(keys.run("b"), unfinished.encode(), run.version)
    (world.path / f"queue/{ids[1]}.json").unlink()
    assert stado.ok("cancel", "b").splitlines() == [f"{one}  cancelled" for one in ids]


def test_an_unknown_job_is_refused(stado: Program, world: World) -> None:
    assert "there is no job 'nope'" in stado.refused("cancel", "nope")
