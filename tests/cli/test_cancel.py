"""Cancelling: what waits at once, what runs when its worker answers, or has been silent."""

from __future__ import annotations

import os
import pty
import re
import signal
import sys

import pytest

from stado.core import keys
from stado.core.records import Phase
from stado.core.states import Reason, State, Verdict
from stado.jobs.life import LifeSigns
from stado.jobs.queue_index import read_page
from tests.cli.conftest import Program, World, run_each


def submit(stado: Program, run_id: str) -> str:
    return stado.ok("submit", "--run-id", run_id, "run")


def interrupted_batch(stado: Program, world: World) -> tuple[str, str]:
    """Of its two jobs the first was made."""
    first, second = stado.ok(
        "submit", "--run-id", "x", "--batch", "-", stdin=b"one\ntwo\n"
    ).splitlines()
    run = world.repo.find_run("x")
    assert run is not None
    world.repo.store.put(keys.run("x"), run.value.evolve(complete=False).encode())
    world.repo.store.delete(keys.record(State.QUEUED, second), None)
    return first, second


def test_a_queued_job_is_cancelled_at_once(stado: Program, world: World) -> None:
    """R99, R101, R205"""
    job_id = submit(stado, "x")
    assert stado.ok("cancel", job_id) == f"{job_id}  cancelled"
    (job,) = stado.json("status", job_id)["jobs"]
    assert (job["status"], job["status_reason"]) == ("cancelled", "cancelled_by_user")


def test_a_job_at_rest_keeps_its_outcome_and_it_is_said(stado: Program, world: World) -> None:
    job_id = submit(stado, "x")
    world.fail(job_id, 3)
    result = stado("cancel", job_id)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"not cancelled: job {job_id} failed: exit 3 after " in result.stderr
    (job,) = stado.json("cancel", job_id)["jobs"]
    assert (job["status"], job["cancelled_now"], job["cancel_asked"]) == ("failed", False, False)


def test_a_running_job_is_waited_for(stado: Program, world: World) -> None:
    """R71, R104, R205"""
    job_id = submit(stado, "x")
    claimed = world.claim(job_id)
    process = stado.start("cancel", job_id)
    assert process.stderr is not None
    assert process.stderr.readline().decode() == (
        "asked local@box to stop 1 job: TERM within 15 s, KILL 30 s later if that is not enough; "
        "waiting (Ctrl-C stops the waiting, not the cancel)\n"
    )
    asked = world.repo.find_asks(job_id, 1)
    assert asked is not None
    assert asked.value.cancel_by == "ada"
    world.end(claimed, Verdict.CANCELLED, reason=Reason.CANCELLED)
    ((code, out, _),) = run_each([process])
    assert (code, out.decode()) == (0, f"{job_id}  cancelled\n")


def test_a_job_that_completes_meanwhile_keeps_that_and_it_is_1(
    stado: Program, world: World
) -> None:
    """R105"""
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
    """R104"""
    job_id = submit(stado, "x")
    world.claim(job_id)
    result = stado("cancel", job_id, "--no-wait")
    assert (result.exit_code, result.stdout) == (0, f"{job_id}  running\n")
    assert result.stderr.splitlines()[-1] == "1 job will be stopped"
    (job,) = stado.json("cancel", job_id, "--no-wait")["jobs"]
    assert (job["status"], job["cancel_asked"]) == ("running", True)


@pytest.mark.parametrize("named", ["last", "base id"])
def test_an_interrupted_submission_is_cancelled_whole(
    stado: Program, world: World, named: str
) -> None:
    """Else a sweep would queue what is missing of it later, and it would start."""
    first, second = interrupted_batch(stado, world)
    job = "last" if named == "last" else first.partition("-")[0]
    told = stado.ok("cancel", job, "--yes")
    assert told.splitlines() == [f"{first}  cancelled", f"{second}  cancelled"]


def test_an_interrupted_submission_has_not_ended_with_those_that_were_made(
    stado: Program, world: World
) -> None:
    first, second = interrupted_batch(stado, world)
    world.complete(first)
    assert stado.ok("cancel", "--yes") == f"{second}  cancelled"


def test_a_silent_worker_is_not_waited_for_beyond_its_lease(
    stado: Program, quick_world: World
) -> None:
    """A person is told of the silence, and that the command may still run; in sentences."""
    job_id = submit(stado, "x")
    quick_world.claim(job_id)
    ((code, out, err),) = run_each([stado.start("cancel", job_id)])
    assert (code, out.decode()) == (0, f"{job_id}  cancelled\n")
    asked, silent, ended, warned = err.decode().splitlines()
    assert asked.startswith("asked local@box to stop 1 job: TERM within ")
    assert re.fullmatch(
        f"stado: job {job_id}: local@box has not been heard for [01] s; unless it is, the wait "
        "ends in [01] s",
        silent,
    )
    assert ended.startswith("cancelled 1 job in ")
    assert warned == (
        f"stado: the worker of {job_id} was silent: the command may run there until that worker "
        "is heard again, and then it is stopped"
    )
    (job,) = stado.json("status", job_id)["jobs"]
    assert job["status_detail"].startswith("cancelled while its worker did not answer: ")


def test_ctrl_c_stops_the_waiting_and_not_the_cancel(stado: Program, world: World) -> None:
    """R104"""
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
    assert re.search(r"^cancelled 2 jobs in [0-9.]+ ?s; 1 had ended before$", result.stderr, re.M)
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


@pytest.mark.parametrize(
    ("command", "verdict", "reason"),
    [
        (("cancel",), Verdict.CANCELLED, Reason.CANCELLED),
        (("job", "pause"), Verdict.PAUSED, Reason.PAUSED_BY_USER),
    ],
    ids=["cancel", "pause"],
)
def test_what_keeps_a_worker_from_stopping_is_told_and_the_job_is_not_stopped(
    stado: Program, world: World, command: tuple[str, ...], verdict: Verdict, reason: Reason
) -> None:
    """A24: never `cancelled`, nor `paused`, while a process lives."""
    job_id = submit(stado, "x")
    claimed = world.claim(job_id)
    signs = LifeSigns(world.repo, claimed.record)
    process = stado.start(*command, job_id)
    assert process.stderr is not None
    process.stderr.readline()
    for number in (7, 8):
        trouble = f"kill round {number}: process 4711 (python) still lives"
        assert signs.beat(Phase.STOPPING, None, trouble=trouble)
        line = process.stderr.readline().decode()
        assert line == f"stado: job {job_id} is not stopped yet: {trouble}\n"
        assert process.poll() is None
        assert world.repo.find_record(State(verdict), job_id) is None
    world.end(claimed, verdict, reason=reason)
    ((code, out, err),) = run_each([process])
    assert (code, out.decode()) == (0, f"{job_id}  {verdict}\n")
    assert "still lives" not in err.decode()


def test_the_second_of_many_that_had_ended_is_counted(stado: Program, world: World) -> None:
    lines = b"".join(b"%d\n" % number for number in range(12))
    ids = stado.ok("submit", "--run-id", "b", "--batch", "-", stdin=lines).splitlines()
    for job_id in ids[:11]:
        world.complete(job_id)
    told = stado("cancel", "b").stderr
    assert told.count("stado: not cancelled: job ") == 8
    assert "stado: and 3 more had ended before\n" in told
    assert "; 11 had ended before\n" in told


# All of one's own, and the newest


def test_all_is_what_i_have_queued_and_running_and_nothing_else(
    stado: Program, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R100"""
    ended, running, queued = (submit(stado, name) for name in ("a", "b", "c"))
    world.complete(ended)
    world.claim(running)
    monkeypatch.setenv("USER", "bob")
    others = submit(stado, "d")
    assert "no job of bob is" not in stado("cancel", "all", "--yes").stderr
    assert world.repo.find_record(State.CANCELLED, others) is not None
    monkeypatch.setenv("USER", "ada")
    shown = stado.ok("cancel", " ALL ", "--yes", "--no-wait")
    assert sorted(shown.splitlines()) == sorted([f"{queued}  cancelled", f"{running}  running"])
    assert world.repo.find_record(State.COMPLETED, ended) is not None


def test_all_of_nothing_is_done_at_once(stado: Program, world: World) -> None:
    result = stado("cancel", "all", "--yes")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no job of ada is queued, runs or is paused" in result.stderr
    assert stado.json("cancel", "all", "--yes") == {"schema": 1, "jobs": []}


def test_nobody_there_to_ask_is_refused_with_what_it_would_have_been(
    stado: Program, world: World
) -> None:
    """R100"""
    ids = [submit(stado, f"run-{number}") for number in range(5)]
    sentence = stado.refused("cancel", "all")
    assert sentence.startswith("this would cancel all 5 jobs of yours (")
    assert ids[4] in sentence
    assert ", 2 more)" in sentence
    assert sentence.endswith(": say --yes where nobody can be asked")
    sentence = stado.refused("cancel")
    assert f"this would cancel your newest, job {ids[4]} (run run-4, queued: `run`)" in sentence
    assert all(world.repo.find_record(State.QUEUED, one) is not None for one in ids)
    assert stado.ok("cancel", "--yes") == f"{ids[4]}  cancelled"


def test_the_newest_that_has_ended_is_not_asked_about(stado: Program, world: World) -> None:
    job_id = submit(stado, "x")
    world.complete(job_id)
    result = stado("cancel")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"your newest, job {job_id} (run x, completed: `run`), has ended" in result.stderr


def test_giving_its_machine_back_is_kept_with_the_request_and_said_to_be_of_no_use_yet(
    stado: Program, world: World
) -> None:
    """Also where the cancel had been asked for before."""
    job_id = submit(stado, "x")
    claimed = world.claim(job_id)
    stado.ok("cancel", job_id, "--no-wait", "--reason", "dear")
    assert stado.json("job", "show", job_id)["terminate_asked"] is False
    result = stado("cancel", job_id, "--no-wait", "--terminate")
    assert "no machine is given back: none is rented" in result.stderr
    asks = world.repo.find_asks(job_id, 1)
    assert asks is not None
    assert (asks.value.terminate, asks.value.cancel_note) == (True, "dear")
    assert stado.json("job", "show", job_id)["terminate_asked"] is True
    assert "to give its machine back (--terminate), which nobody heeds yet" in stado.ok(
        "job", "show", job_id
    )
    world.end(claimed, Verdict.CANCELLED, reason=Reason.CANCELLED)
    assert stado.json("job", "show", job_id)["epochs"][0]["terminate_asked"] is True


def test_a_question_names_what_sort_of_job_it_is(stado: Program, world: World) -> None:
    """R100: a step that was launched is no submission of somebody's."""
    job_id = stado.ok(
        "submit", "--run-id", "x", "--type", "train", "--then", "eval=./eval", "./train"
    )
    sentence = stado.refused("cancel")
    assert f"cancel your newest, train job {job_id} (run x, queued: `./train`)" in sentence


def test_of_a_pipeline_whose_root_has_completed_the_way_to_its_steps_is_told(
    stado: Program, world: World
) -> None:
    root = stado.ok("submit", "--run-id", "x", "--then", "eval=./eval", "./train")
    world.complete(root)
    result = stado("cancel")
    assert result.exit_code == 1
    assert f"`stado cancel pipeline_{root}` cancels those of its steps" in result.stderr
    document = stado.json("cancel", f"pipeline_{root}")
    assert [job["status"] for job in document["jobs"]] == ["cancelled"]
    again = stado("cancel", f"pipeline_{root}")
    assert (again.exit_code, again.stdout) == (1, "")
    assert f"nothing of pipeline_{root} is queued, runs or is paused\n" in again.stderr


def ask(stado: Program, environment: dict[str, str], answer: bytes) -> tuple[int, str]:
    """`cancel` on a terminal, and what it shows there."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, "-m", "stado.cli.main", "cancel"], environment)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(terminal, 1000)
    os.write(terminal, answer)
    try:
        while data := os.read(terminal, 1000):
            shown += data
    except OSError:  # the other end is closed
        pass
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


@pytest.mark.parametrize(
    ("answer", "code", "state"),
    [(b"y\n", 0, State.CANCELLED), (b"\n", 1, State.QUEUED), (b"n\n", 1, State.QUEUED)],
)
def test_on_a_terminal_the_newest_is_asked_about_and_no_is_the_default(
    stado: Program,
    world: World,
    environment: dict[str, str],
    answer: bytes,
    code: int,
    state: State,
) -> None:
    """R100"""
    lines = stado.ok("submit", "--run-id", "b", "--batch", "-", stdin=b"1\n2\n").splitlines()
    found, shown = ask(stado, environment, answer)
    assert found == code, shown
    assert f"Cancel your newest, batch {lines[0][:16]} (run b: 2 queued)? [y/N]" in shown
    assert all(world.repo.find_record(state, job_id) is not None for job_id in lines)


@pytest.mark.parametrize(
    "command", [("cancel",), ("job", "pause"), ("job", "why"), ("job", "show")]
)
def test_of_a_root_that_has_completed_its_steps_are_told(
    stado: Program, world: World, command: tuple[str, ...]
) -> None:
    root = stado.ok("submit", "--run-id", "x", "--then", "a=true", "true")
    world.complete(root)
    (step,) = [entry.job_id for entry in read_page(world.repo).entries]
    live = f"`stado cancel pipeline_{root}` cancels those of its steps that have not ended"
    assert live in " ".join(stado(*command, root).output.split())
    world.fail(step, 1)
    result = " ".join(stado(*command, root).output.split())
    assert f"its step a failed: `stado job retry {step}`" in result
    assert live not in result


def test_the_retry_of_a_partial_pipelines_root_names_the_step(stado: Program, world: World) -> None:
    root = stado.ok("submit", "--run-id", "x", "--then", "a=true", "true")
    world.complete(root)
    (step,) = [entry.job_id for entry in read_page(world.repo).entries]
    world.fail(step, 1)
    said = stado.refused("job", "retry", root)
    assert said.endswith(f"its step a failed: `stado job retry {step}`")
    stado.ok("job", "retry", step)
    stado.ok("cancel", step)
    said = stado.refused("job", "retry", root)
    assert said.endswith(f"its step a was cancelled: `stado job retry {step}`")


@pytest.mark.parametrize(
    "command",
    [
        ("job", "show"),
        ("job", "retry"),
        ("job", "delete"),
        ("submit", "true", "--run-id=y", "--after"),
    ],
)
def test_a_pipeline_is_no_job(stado: Program, world: World, command: tuple[str, ...]) -> None:
    root = stado.ok("submit", "--run-id", "x", "--then", "a=true", "true")
    assert stado.refused(*command, f"pipeline_{root}") == (
        f"'pipeline_{root}' is a pipeline, and here a job is meant: its root {root}, or a step of "
        f"it (`stado pipeline show pipeline_{root}`)"
    )
