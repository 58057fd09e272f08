"""Pausing, resuming, retrying and deleting jobs by the command line."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from stado.core.records import Phase
from stado.core.states import Reason, State, Verdict
from stado.jobs import snapshots
from stado.jobs.changes import pause, resume, retry
from stado.jobs.queue_index import read_page
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
    """R15, R48, T21"""
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


def test_a_job_tells_whether_it_can_be_retried_as_the_retry_does(
    stado: Program, world: World
) -> None:
    """R17, R23"""
    for name in ("queued", "done", "final", "failed", "cancelled"):
        submit(stado, name, *(["--final"] if name == "final" else []))
    job_ids = {job["run_id"]: job["job_id"] for job in stado.json("jobs")["jobs"]}
    world.complete(job_ids["done"])
    world.fail(job_ids["final"], 3)
    world.fail(job_ids["failed"], 3)
    stado.ok("cancel", "cancelled")
    told = {name: stado.json("job", "show", name)["retryable"] for name in job_ids}
    assert {name: (one["allowed"], one["code"]) for name, one in told.items()} == {
        "queued": (False, "still_live"),
        "done": (False, "completed_is_final"),
        "final": (False, "terminal_is_final"),
        "failed": (True, None),
        "cancelled": (True, None),
    }
    listed = {job["run_id"]: job["retryable"] for job in stado.json("jobs")["jobs"]}
    assert listed == told
    for name in ("queued", "done", "final"):
        assert stado.refused("job", "retry", name) == told[name]["detail"]
    assert "it cannot be retried (terminal_is_final): " in stado.ok("job", "show", "final")
    assert f"`stado job retry {job_ids['failed']}` queues it again" in stado.ok(
        "job", "show", "failed"
    )
    for name in ("failed", "cancelled"):
        stado.ok("job", "retry", name)
        again = stado.json("job", "show", name)["retryable"]
        assert (again["allowed"], again["code"]) == (False, "retry_already_queued")


def test_whether_files_are_still_there_is_looked_up_where_one_job_is_shown(
    stado: Program, world: World, tmp_path: Path
) -> None:
    """R23, R56: a list does not read for it, and does not say what it does not know."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("pass")
    job_id = submit(stado, "x", "--workdir", str(tmp_path / "code"))
    world.fail(job_id, 3)
    shown, (listed,) = stado.json("job", "show", job_id), stado.json("jobs")["jobs"]
    assert (shown["retryable"]["allowed"], listed["retryable"]["allowed"]) == (True, None)
    digest = shown["snapshot"]["digest"]
    snapshots.drop_reference(world.repo, digest, "x")
    assert snapshots.remove_unnamed(world.repo, digest)
    told = stado.json("job", "show", job_id)["retryable"]
    assert (told["allowed"], told["code"]) == (False, "snapshot_missing")
    assert stado.refused("job", "retry", job_id) == told["detail"]
    assert "submit it anew" in told["detail"]


def test_a_retried_job_has_to_be_let_in_like_any_other(stado: Program, world: World) -> None:
    """R19"""
    job_id = submit(stado, "x")
    world.fail(job_id, 3)
    stado.ok("queue", "pause")
    stado.ok("job", "retry", job_id)
    assert stado.json("job", "why", job_id)["wait_reasons"][0] == "queue_paused"
    stado.ok("queue", "resume")
    (entry,) = read_page(world.repo).entries
    assert (entry.job_id, entry.epoch) == (job_id, 2)


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


def test_of_a_large_batch_refusals_of_one_kind_are_counted(stado: Program, world: World) -> None:
    lines = b"1\n" * 5
    jobs = stado.ok("submit", "--run-id", "x", "--batch", "-", stdin=lines).splitlines()
    world.fail(jobs[0], 1)
    for job in jobs[1:4]:
        world.complete(job)
    told = stado("job", "retry", "x").stderr.splitlines()
    assert told[0].startswith("stado: not retried: 3 jobs (completed_is_final; --json lists them)")
    assert f"such as: job {jobs[1]} has completed" in told[0]
    assert told[1].endswith("(still_live)")
    assert told[2] == "retried 1 job: queued again as of now; 4 were not"


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
    assert (job["status"], job["status_detail"]) == (
        "cancelled",
        "cancelled while it was paused, by ada: done with it",
    )


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


def test_the_question_tells_what_remains_of_a_pipeline(stado: Program, world: World) -> None:
    root = stado.ok("submit", "--run-id", "x", "--then", "a=true", "--then", "b=true", "true")
    world.complete(root)
    (step,) = [entry.job_id for entry in read_page(world.repo).entries]
    world.fail(step, 1)
    assert "(1 step of it remains and takes its input from it)" in stado.refused(
        "job", "delete", "x"
    )
    stado.ok("job", "delete", root)
    assert "what is left of it are jobs of their own" in stado.refused("pipeline", "show", step)
    assert stado.ok("job", "delete", step) == f"{step}  deleted"


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


def test_who_follows_a_job_goes_on_over_its_pause(stado: Program, world: World) -> None:
    """The log is one, the pause is told once, and the end decides the exit code."""
    job_id = submit(stado, "x")
    claimed = world.claim(job_id)
    world.log(job_id, b"before\n")
    following = stado.start("job", "watch", job_id, "--follow")
    waiting = stado.start("submit", "--run-id", "x", "--wait", "run")
    pause(world.repo, job_id, by="bob", note="lunch")
    world.end(claimed, Verdict.PAUSED, reason=Reason.PAUSED_BY_USER)
    told = f'job {job_id} was paused by bob ("lunch"): `stado job resume {job_id}` lets it go on\n'
    for process in (following, waiting):
        assert process.stderr is not None
        assert told.encode() in iter(process.stderr.readline, b"")
    resume(world.repo, job_id, by="bob")
    again = world.claim(job_id)
    world.log(job_id, b"after\n", epoch=2)
    world.end(again, Verdict.FAILED, reason=Reason.JOB_FAILED, exit_code=7)
    (code, out, err), (waited_code, _, _) = run_each([following, waiting])
    assert (code, out.decode()) == (7, "before\nafter\n")
    assert waited_code == 7
    assert told.encode() not in err


def test_a_story_tells_who_stopped_a_job_and_brought_it_back(stado: Program, world: World) -> None:
    job_id = submit(stado, "x", "--type", "train")
    pause(world.repo, job_id, by="bob", note="lunch")
    paused = stado.ok("job", "show", job_id)
    assert 'by bob ("lunch")' in paused
    assert f"`stado job resume {job_id}` lets it go on" in paused
    told = stado.json("job", "show", job_id)
    assert (told["status"], told["paused_by"], told["pause_reason"]) == ("paused", "bob", "lunch")
    (row,) = stado.json("status", job_id)["jobs"]
    assert (row["paused_by"], row["status_reason"]) == ("bob", "paused_by_user")
    assert "paused_by_user" in stado.ok("status")
    assert f"`stado job resume {job_id}` queues it again" in stado.ok("job", "why", job_id)
    resume(world.repo, job_id, by="ann", note="back")
    world.fail(job_id, 3)
    retry(world.repo, job_id, by="bob", note="more memory")
    shown = stado.ok("job", "show", job_id)
    assert "resumed by ann " in shown
    assert '("back")' in shown
    assert "retried by bob " in shown
    assert "retried 1 time, paused 1 time" in shown
    assert f"policy_{job_id}.r2, once it has ended" in shown
    told = stado.json("job", "show", job_id)
    assert (told["manual_retries"], told["pauses"], told["opened_from"]) == (1, 1, "failed")
    openings = [epoch["opening"] for epoch in told["epochs"]]
    assert openings[0] is None
    assert [(one["kind"], one["by"], one["reason"]) for one in openings[1:]] == [
        ("resume", "ann", "back"),
        ("retry", "bob", "more memory"),
    ]


def test_a_pause_that_was_asked_for_is_shown(stado: Program, world: World) -> None:
    job_id = submit(stado, "x")
    claimed = world.claim(job_id)
    world.beat(claimed, Phase.RUNNING)
    pause(world.repo, job_id, by="bob", note="lunch")
    assert "asked for by bob " in stado.ok("job", "show", job_id)
    assert "pausing" in stado.ok("status")
    told = stado.json("job", "why", job_id)
    assert (told["pause_asked_by"], told["run"]["pause_asked_by"]) == ("bob", "bob")
    assert "it is being paused" in told["answer"]


def test_the_documents_of_changes_are_complete(stado: Program, world: World) -> None:
    """As docs/cli.md has them."""
    job_id = submit(stado, "x")
    documents = {
        "paused": stado.json("job", "pause", job_id),
        "resumed": stado.json("job", "resume", job_id),
    }
    world.fail(job_id, 3)
    documents["retried"] = stado.json("job", "retry", job_id)
    documents["cancelled"] = stado.json("stop", job_id)
    asked = {"paused": {"pause_asked"}, "cancelled": {"cancel_asked"}}
    refused = {"resumed": {"refused"}, "retried": {"refused"}}
    (listed,) = stado.json("status", job_id)["jobs"]
    for done, document in documents.items():
        assert document.keys() == {"schema", "jobs"} | refused.get(done, set())
        (job,) = document["jobs"]
        own = {f"{done}_now"} | asked.get(done, set())
        assert own <= job.keys()
        assert job.keys() - own <= listed.keys()
        assert job[f"{done}_now"]
    deleted = stado.json("job", "delete", job_id)
    assert deleted.keys() == {"schema", "deleted", "refused"}
    assert deleted["deleted"] == [{"job_id": job_id, "objects": 0, "policies_stay": False}]


def test_a_pause_that_is_not_waited_for_does_not_hold_yet(stado: Program, world: World) -> None:
    job_id = stado.ok("submit", "--run-id", "x", "true")
    world.beat(world.claim(job_id), Phase.RUNNING)
    said = stado("job", "pause", "x", "--no-wait").stderr
    assert said.endswith(f"next, once it is paused: stado job resume {job_id}\n")


@pytest.mark.parametrize("command", [("cancel",), ("job", "pause")])
def test_a_reason_that_comes_second_is_said_to_be_lost(
    stado: Program, world: World, command: tuple[str, ...]
) -> None:
    job_id = stado.ok("submit", "--run-id", "x", "true")
    world.beat(world.claim(job_id), Phase.RUNNING)
    said = stado(*command, "x", "--no-wait", "--reason", "mine").stderr
    assert "not kept" not in said
    answer = stado(*command, "x", "--no-wait", "--reason", "yours")
    assert answer.exit_code == 0
    told = rf"stado: job {job_id} was asked already by ada at [0-9: -]+Z; the reason is not kept\n"
    assert re.search(told, answer.stderr)
    assert "not kept" not in stado(*command, "x", "--no-wait", "--reason", "mine").stderr


def test_a_rerun_that_will_not_start_says_so(stado: Program, world: World) -> None:
    deadline = "2026-03-29T01:30:00Z"
    stado.ok("submit", "--run-id", "x", "--deadline-at", deadline, "true")
    said = stado("job", "rerun", "x").stderr
    assert "; it will not start: its deadline has passed" in said
    assert "to do: " in said
