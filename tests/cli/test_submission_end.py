"""Waiting for a submission: through the steps of a pipeline, to what is told of its end."""

from __future__ import annotations

import signal

import pytest

from stado.cli.submission_end import Ended, tell_end, wait_for
from stado.core.spec import Request, Spec, Step, make_request
from stado.core.states import Verdict
from stado.jobs.changes import pause, resume
from stado.jobs.claim import Claimed
from stado.jobs.log_segments import write_segment
from stado.jobs.submit import Submission, submit
from stado.storage.observe import CountingStore
from tests.cli.conftest import Program, run_each
from tests.cli.conftest import World as Folder
from tests.cli.test_following import Script
from tests.cli.test_logs import move
from tests.jobs.world import World

DONE, FAILED = Verdict.COMPLETED, Verdict.FAILED
THEN = [Step(name="export", command="./export"), Step(name="eval", command="./eval")]


class Stage:
    """A submission, whose jobs come to their ends at five seconds, ten, and so on."""

    def __init__(self, *commands: str, then: list[Step], ends: list[Verdict]) -> None:
        self.clock = Script()
        self.world = World(clock=self.clock)
        batch = len(commands) > 1
        self.request: Request = make_request([*commands], Spec(command="", then=then), batch=batch)
        self.submission: Submission = submit(
            self.world.repo, run_id="run", request=self.request, submitter="ada"
        )
        for number, verdict in enumerate(ends, 1):
            self.clock.at(5 * number, lambda verdict=verdict: self.end_next(verdict))

    def end_next(self, verdict: Verdict) -> None:
        claimed = self.world.start()
        write_segment(self.world.repo, claimed.record.id, claimed.record.epoch, 0, b"no luck\n")
        self.world.end(claimed, verdict)

    def wait(self) -> Ended:
        return wait_for(self.world.repo, self.submission, self.request)

    def tell(self, ended: Ended) -> int:
        return tell_end(self.world.repo, self.submission, self.request, ended)


@pytest.mark.parametrize(
    ("ends", "code", "word"),
    [
        ([DONE, DONE, DONE], 0, "is succeeded: 2 of 2 steps completed"),
        ([DONE, FAILED], 4, "is partial: 0 of 2 steps completed, 1 skipped"),
        ([DONE, DONE, Verdict.TIMED_OUT], 4, "is partial: 1 of 2 steps completed"),
        ([FAILED], 1, "is failed: 0 of 2 steps completed, 2 skipped"),
        ([Verdict.CANCELLED], 1, "is stopped: 0 of 2 steps completed, 2 skipped"),
    ],
)
def test_waiting_for_a_pipeline_ends_with_its_last_step(
    ends: list[Verdict], code: int, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """R43, R60, R61, R62: and not with its first job; 4 is partial."""
    stage = Stage("./train", then=THEN, ends=ends)
    assert stage.tell(stage.wait()) == code
    assert 5 * len(ends) <= stage.clock.monotonic() < 5 * len(ends) + 3
    told = capsys.readouterr().err
    assert told.splitlines()[-1].endswith(word)
    assert told.count(": job ") == 2 * (len(ends) - 1)  # each step as it is queued, and as it ends
    assert told.count("its last lines:\n  no luck\n") == (ends[-1] in (FAILED, Verdict.TIMED_OUT))


def test_a_step_that_lasts_costs_a_request_a_look() -> None:
    stage = Stage("./train", then=THEN[:1], ends=[DONE])
    claimed: list[Claimed] = []
    stage.clock.at(10, lambda: claimed.append(stage.world.start()))
    stage.clock.at(1210, lambda: stage.world.end(claimed[0], DONE))
    counting = CountingStore(stage.world.store, stage.world.tasks)
    repo = stage.world.repo_over(counting)
    assert stage.tell(wait_for(repo, stage.submission, stage.request)) == 0
    assert stage.clock.monotonic() < 1213
    assert sum(counting.snapshot().counts.values()) < 600 + 20 * 6 + 60


def test_a_paused_step_is_told_and_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage("./train", then=THEN[:1], ends=[DONE])
    (root,) = stage.submission.job_ids

    def export() -> str:
        run = stage.world.repo.find_run(f"{root}.1")
        assert run is not None
        return run.value.base_id

    stage.clock.at(10, lambda: pause(stage.world.repo, export(), by="bea", note="lunch"))
    stage.clock.at(60, lambda: resume(stage.world.repo, export(), by="bea"))
    stage.clock.at(65, lambda: stage.end_next(DONE))
    assert stage.tell(stage.wait()) == 0
    told = capsys.readouterr().err
    assert f'step 1 (export): job {export()} was paused by bea ("lunch")' in told


def test_the_first_failures_of_a_batch_are_told_with_their_last_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stage = Stage(*[f"./{n}" for n in range(6)], then=[], ends=[FAILED] * 5 + [DONE])
    assert stage.tell(stage.wait()) == 1
    told = capsys.readouterr().err
    assert told.count("its last lines:") == 3
    assert f"2 more failed: `stado status {stage.submission.base_id}`" in told
    assert told.splitlines()[-1].endswith("1 completed, 5 failed")


@pytest.mark.parametrize(
    ("ends", "code", "last_lines"),
    [
        ([DONE, DONE, DONE, DONE], 0, 0),
        ([DONE, DONE, DONE, FAILED], 4, 1),
        ([DONE, FAILED, FAILED], 1, 2),
        ([DONE, FAILED, DONE], 1, 1),
    ],
)
def test_a_batch_of_pipelines_has_ended_well_when_all_of_them_have(
    ends: list[Verdict], code: int, last_lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """4: all first jobs have completed. What failed is told once."""
    stage = Stage("./a", "./b", then=THEN[:1], ends=ends)
    ended = stage.wait()
    assert stage.tell(ended) == code
    told = capsys.readouterr().err
    assert told.count("its last lines:") == last_lines
    assert ("is partial: 0 of 1 step completed" in told) is (FAILED in ends[2:])


@pytest.mark.parametrize("at", [1, 2], ids=["roots", "steps"])
def test_of_a_batch_of_pipelines_the_first_failures_are_told_with_their_last_lines(
    at: int, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = [f"./{n}" for n in range(5)]
    ends = [FAILED] * 5 if at == 1 else [DONE] * 5 + [FAILED] * 5
    stage = Stage(*commands, then=THEN[:1], ends=ends)
    assert stage.tell(stage.wait()) == (1 if at == 1 else 4)
    told = capsys.readouterr().err
    assert told.count("its last lines:") == 3
    word = "failed" if at == 1 else "stopped short"
    assert f"2 more {word}: `stado status {stage.submission.base_id}`" in told
    assert len(told.splitlines()) < 25


BAR = b"".join(b"\rround %3d" % number for number in range(500))


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"\x1b[31mred\x1b[0m \x07bell\n", ["[31mred[0m bell"]),
        (BAR + b"\nno luck\n", ["round 499", "no luck"]),
        (b"a" * 20_000, ["a" * 8192]),
        (b"%d\n" * 40 % tuple(range(40)), [str(number) for number in range(30, 40)]),
        (b"\xff\xfe half\n\n", ["�� half"]),
    ],
    ids=["control characters", "a bar", "one long line", "many lines", "no text"],
)
def test_last_lines_are_few_and_drive_no_terminal(
    stado: Program, world: Folder, printed: bytes, shown: list[str]
) -> None:
    process_args = ("submit", "--run-id", "x", "run")
    job_id = stado.ok(*process_args)
    world.log(job_id, printed)
    world.fail(job_id, 3)
    result = stado(*process_args, "--wait")
    assert result.exit_code == 3
    lines = result.stderr.splitlines()
    begin, end = lines.index("its last lines:"), lines.index(f"all of it: `stado logs {job_id}`")
    assert lines[begin + 1 : end] == [f"  {line}" for line in shown]


def test_ctrl_c_while_a_pipeline_is_waited_for_leaves_it_alone(
    stado: Program, world: Folder
) -> None:
    """A82: in its second job, and while the store is away."""
    process = stado.start(
        *("submit", "--run-id", "x", "--then", "export=./export", "--wait", "./train")
    )
    assert process.stdout is not None
    assert process.stderr is not None
    root = process.stdout.readline().decode().strip()
    world.complete(root)
    while b"step 1 (export): job" not in (line := process.stderr.readline()):
        assert line, "it ended"
    move(world.path, away=True)
    while b"the store does not answer" not in (line := process.stderr.readline()):
        assert line, "it ended"
    assert b"the pipeline goes on" in line
    process.send_signal(signal.SIGINT)
    ((code, _, err),) = run_each([process])
    move(world.path, away=False)
    assert code == 130
    assert b"Traceback" not in err
    assert err.decode().splitlines()[-3:] == [
        "stado: no longer waiting; what was submitted goes on",
        f"look again: `stado pipeline show pipeline_{root}`",
        f"stop it: `stado cancel pipeline_{root}`",
    ]
    shown = stado.json("pipeline", "show", f"pipeline_{root}")
    assert (shown["state"], shown["steps"][0]["status"]) == ("queued", "queued")
