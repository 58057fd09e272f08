"""Pausing, resuming, retrying and deleting jobs by the command line."""

from __future__ import annotations

import signal

import pytest

from stado.core.states import Reason, State, Verdict
from tests.cli.conftest import Program, World, run_each


def submit(stado: Program, run_id: str, *options: str) -> str:
    return stado.ok("submit", "--run-id", run_id, *options, "run")


def batch_of_three(stado: Program) -> list[str]:
    return stado.ok(
        "submit", "--run-id", "x", "--batch", "-", stdin=b"one\ntwo\nthree\n"
    ).splitlines()


def test_a_queued_job_is_paused_and_goes_on_when_it_is_resumed(
    stado: Program, world: World
) -> None:
    """R49"""
    job_id = submit(stado, "x")
    paused = stado("job", "pause", job_id, "--reason", "lunch")
    assert (paused.exit_code, paused.stdout) == (0, f"{job_id}  paused\n")
    assert paused.stderr.splitlines()[-1] == f"next: stado job resume {job_id}"
    resumed = stado("job", "resume", job_id)
    assert (resumed.exit_code, resumed.stdout) == (0, f"{job_id}  queued\n")
    assert resumed.stderr.splitlines() == [
        "resumed 1 job: queued again as of now, epoch 2",
        f"next: stado job watch {job_id} --follow",
    ]


def test_pausing_a_running_job_waits_for_its_worker(stado: Program, world: World) -> None:
    """R48, T21"""
    job_id = submit(stado, "x")
    claimed = world.claim(job_id)
    process = stado.start("job", "pause", job_id)
    assert process.stderr is not None
    assert process.stderr.readline().decode() == (
        "asked local@box to stop 1 job: TERM within 15 s, KILL 30 s later if that is not enough; "
        "waiting (Ctrl-C stops the waiting, not the pause)\n"
    )
    asked = world.repo.find_asks(job_id, 1)
    assert asked is not None
    assert (asked.value.pause_by, asked.value.cancel) == ("ada", False)
    world.end(claimed, Verdict.PAUSED, reason=Reason.PAUSED_BY_USER)
    ((code, out, _),) = run_each([process])
    assert (code, out.decode()) == (0, f"{job_id}  paused\n")


def test_ctrl_c_stops_the_waiting_and_not_the_pause(stado: Program, world: World) -> None:
    job_id = submit(stado, "x")
    world.claim(job_id)
    process = stado.start("job", "pause", job_id)
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    ((code, _, err),) = run_each([process])
    assert code == 130
    assert b"the pause stays" in err
    assert b"wait again: `stado job pause " in err
    asked = world.repo.find_asks(job_id, 1)
    assert asked is not None
    assert asked.value.pause


def test_what_has_ended_is_not_paused(stado: Program, world: World) -> None:
    job_id = submit(stado, "x")
    world.complete(job_id)
    result = stado("job", "pause", job_id)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"not paused: job {job_id} completed in " in result.stderr
    (job,) = stado.json("job", "pause", job_id)["jobs"]
    assert (job["status"], job["paused_now"], job["pause_asked"]) == ("completed", False, False)


def test_a_failed_job_is_retried_under_its_id(stado: Program, world: World) -> None:
    """R50"""
    job_id = submit(stado, "x")
    world.fail(job_id, 3)
    document = stado.json("job", "retry", job_id, "--reason", "disk is larger now")
    (job,) = document["jobs"]
    assert (job["job_id"], job["status"], job["epoch"]) == (job_id, "queued", 2)
    assert (job["retried_now"], document["refused"]) == (True, [])


@pytest.mark.parametrize(
    ("way", "state", "code", "said"),
    [
        ("resume", State.QUEUED, "job_not_paused", "is queued, and not paused"),
        ("retry", State.QUEUED, "still_live", "only what has ended is retried"),
        ("retry", State.COMPLETED, "completed_is_final", "`stado job rerun` makes a new one"),
        ("delete", State.QUEUED, "still_live", "cancel it first"),
    ],
)
def test_a_single_refusal_is_2_and_says_why(
    stado: Program, world: World, way: str, state: State, code: str, said: str
) -> None:
    """T29, T31, T32. Of a batch of one job the code is told besides."""
    job_id = submit(stado, "x")
    (member,) = stado.ok("submit", "--run-id", "y", "--batch", "-", stdin=b"one\n").splitlines()
    if state is State.COMPLETED:
        world.complete(job_id)
        world.complete(member)
    assert said in stado.refused("job", way, job_id)
    yes = ["--yes"] if way == "delete" else []
    result = stado("job", way, "y", *yes)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[0].endswith(f"({code})")
    assert member in result.stderr


def test_a_final_job_is_not_retried(stado: Program, world: World) -> None:
    """R66"""
    job_id = submit(stado, "x", "--final")
    world.fail(job_id, 3)
    assert "submitted as final" in stado.refused("job", "retry", job_id)


def test_of_a_batch_those_are_retried_that_can_be(stado: Program, world: World) -> None:
    one, two, three = batch_of_three(stado)
    world.fail(one, 1)
    world.complete(two)
    result = stado("job", "retry", "x")
    assert (result.exit_code, result.stdout) == (1, f"{one}  queued\n")
    told = result.stderr.splitlines()
    assert told[0].startswith(f"stado: not retried: job {two} has completed, ")
    assert told[0].endswith("(completed_is_final)")
    assert told[1].endswith("(still_live)")
    assert told[2] == "retried 1 job: queued again as of now; 2 were not"
    refused = stado.json("job", "retry", "x")["refused"]
    assert [(each["job_id"], each["code"]) for each in refused] == [
        (one, "retry_already_queued"),
        (two, "completed_is_final"),
        (three, "still_live"),
    ]


def test_a_batch_is_paused_and_resumed_as_a_whole(stado: Program, world: World) -> None:
    jobs = batch_of_three(stado)
    base = jobs[0].partition("-")[0]
    paused = stado("job", "pause", "x")
    assert paused.stdout.splitlines() == [f"{job}  paused" for job in jobs]
    assert paused.stderr.splitlines()[-1] == f"next: stado job resume {base}"
    assert stado.ok("job", "resume", base).splitlines() == [f"{job}  queued" for job in jobs]


def test_paused_jobs_are_cancelled_with_all_others(stado: Program, world: World) -> None:
    """T24"""
    paused, queued = submit(stado, "x"), submit(stado, "y")
    stado.ok("job", "pause", paused)
    assert stado.ok("stop", "all", "--yes", "--reason", "done with it").splitlines() == [
        f"{queued}  cancelled",
        f"{paused}  cancelled",
    ]
    (job,) = stado.json("status", paused)["jobs"]
    assert (job["status"], job["status_detail"]) == ("cancelled", "done with it")


def test_a_deleted_job_is_told_to_be_deleted(stado: Program, world: World) -> None:
    job_id = submit(stado, "x")
    world.fail(job_id, 3)
    assert stado.ok("job", "delete", job_id) == f"{job_id}  deleted"
    for command in (("job", "show"), ("status",), ("logs",), ("cancel",), ("job", "delete")):
        for name in (job_id, "x"):
            assert stado.refused(*command, name) == f"job {job_id} was deleted"


def test_of_what_is_not_named_by_its_whole_id_it_is_asked(stado: Program, world: World) -> None:
    job_id = submit(stado, "x")
    world.fail(job_id, 3)
    for named in ("x", "last", job_id[-6:]):
        assert "say --yes where nobody can be asked" in stado.refused("job", "delete", named)
    document = stado.json("job", "delete", "x", "--yes")
    (told,) = document["deleted"]
    assert (told["job_id"], told["policies_stay"], document["refused"]) == (job_id, False, [])


def test_what_is_left_of_a_batch_goes_on_without_those_deleted(
    stado: Program, world: World
) -> None:
    one, two, three = batch_of_three(stado)
    world.fail(one, 1)
    stado.ok("job", "delete", one)
    assert stado.ok("cancel", "x").splitlines() == [f"{two}  cancelled", f"{three}  cancelled"]
    assert stado.ok("job", "delete", "x", "--yes").splitlines() == [
        f"{two}  deleted",
        f"{three}  deleted",
    ]
    assert stado.refused("status", "x") == "the jobs of run x were deleted"
