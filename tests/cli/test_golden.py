"""What commands answer to programs: exit codes, and the shape of each JSON document.

Agreed on in `golden/`, a file a case: the same keys, types and nulls, and the same words where
there is a fixed list of them. `make golden` writes the files anew; what changed shows in the diff.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stado.core.records import Phase, Progress
from stado.jobs import snapshots
from stado.jobs.sight import present_record
from tests.cli.conftest import Program, World

GOLDEN = Path(__file__).parent / "golden"
REWRITE = "REWRITE_GOLDEN"

_WORDS = {"schema", "status", "state", "phase", "code", "kind", "status_reason", "verdict", "name"}
"""Fields whose values are shown as they are."""


def shape(value: Any, field: str = "") -> Any:
    """Types in place of values; of a list each shape that occurs in it, once."""
    if isinstance(value, dict):
        return {name: shape(content, name) for name, content in value.items()}
    if isinstance(value, list):
        shapes = [shape(one) for one in value]
        return [one for number, one in enumerate(shapes) if one not in shapes[:number]]
    if value is None or isinstance(value, bool):
        return value if value is None else "boolean"
    if isinstance(value, int | float):
        return value if field in _WORDS else "number"
    return f"={value}" if field in _WORDS else "string"


@dataclass(frozen=True)
class Stage:
    """A deployment with jobs in every state, and a pipeline that stopped short."""

    stado: Program
    world: World
    jobs: dict[str, str]

    def submit(self, run_id: str, *options: str) -> str:
        self.jobs[run_id] = self.stado.ok("submit", "--run-id", run_id, *options, "run")
        return self.jobs[run_id]


def staged(stado: Program, world: World) -> Stage:
    stage = Stage(stado, world, {})
    steps = ("--then", "export=./export", "--then", "eval=./eval")
    root = stage.submit("pipeline", *steps, "--tag", "nightly")
    world.complete(root)
    run = world.repo.find_run(f"{root}.1")
    assert run is not None
    world.fail(run.value.base_id, 3)
    world.complete(stage.submit("completed"))
    world.fail(stage.submit("failed"), 3)
    world.fail(stage.submit("final", "--final"), 3)
    running = world.claim(stage.submit("running"))
    world.beat(running, Phase.RUNNING, progress=Progress(fraction=0.5, text="half"))
    for name in ("queued", "to-pause", "paused", "to-cancel"):
        stage.submit(name)
    stado.ok("job", "pause", "paused", "--reason", "lunch")
    lines = stado.ok("submit", "--run-id", "batch", "--batch", "-", stdin=b"one\ntwo\n")
    first, _ = lines.splitlines()
    world.fail(first, 1)
    world.fail(_with_files_that_are_gone(stage), 3)
    stage.submit("newest")
    return stage


def _with_files_that_are_gone(stage: Stage) -> str:
    folder, repo = stage.world.path.parent / "code", stage.world.repo
    folder.mkdir()
    (folder / "train.py").write_text("pass")
    job = stage.submit("took-files", "--workdir", str(folder))
    snapshot = present_record(repo, job).spec.snapshot
    assert snapshot is not None
    snapshots.drop_reference(repo, snapshot.digest, "took-files")
    assert snapshots.remove_unnamed(repo, snapshot.digest)
    return job


CASES: tuple[tuple[str, int, str], ...] = (
    ("jobs", 0, "jobs --json"),
    ("jobs-limit", 0, "jobs --limit 2 --json"),
    ("jobs-none", 0, "jobs --type play --json"),
    ("jobs-limit-invalid", 2, "jobs --limit 251 --json"),
    ("job-ls", 0, "job ls --org --json"),
    ("status", 0, "status --json"),
    ("status-of-a-job", 0, "status running --json"),
    ("status-of-a-batch", 0, "status batch --json"),
    ("quota", 0, "quota --json"),
    ("usage", 0, "usage --json"),
    ("usage-org", 0, "usage --org --json"),
    ("usage-by-pipeline", 0, "usage --by pipeline --since 7d --json"),
    ("usage-of-nobody", 0, "usage --user nobody --by day --json"),
    ("usage-since-invalid", 2, "usage --since soon --json"),
    ("job-show-queued", 0, "job show queued --json"),
    ("job-show-running", 0, "job show running --json"),
    ("job-show-paused", 0, "job show paused --json"),
    ("job-show-completed", 0, "job show completed --json"),
    ("job-show-failed", 0, "job show failed --json"),
    ("job-show-final", 0, "job show final --json"),
    ("job-show-without-its-files", 0, "job show took-files --json"),
    ("job-show-events", 0, "job show failed --section events --json"),
    ("job-show-unknown", 2, "job show nobody --json"),
    ("pipeline-show", 0, "pipeline show pipeline --json"),
    ("pipeline-show-of-no-pipeline", 2, "pipeline show queued --json"),
    ("settings-list", 0, "settings list --json"),
    ("settings-get-unset", 1, "settings get limits.runtime_seconds --json"),
    ("settings-set", 0, "settings set limits.runtime_seconds 12h --json"),
    ("settings-get", 0, "settings get limits.runtime_seconds --json"),
    ("settings-set-invalid", 2, "settings set limits.runtime_seconds soon --json"),
    ("settings-unset", 0, "settings unset limits.runtime_seconds --json"),
    ("settings-unset-unknown", 2, "settings unset limits.nothing --json"),
    ("job-set-priority", 0, "job set-priority queued 7 --json"),
    ("job-set-priority-again", 0, "job set-priority queued 7 --json"),
    ("job-set-priority-negative", 2, "job set-priority queued -7 --json"),
    ("job-set-priority-running", 2, "job set-priority running 7 --json"),
    ("job-set-priority-ended", 2, "job set-priority completed 7 --json"),
    ("job-pause-queued", 0, "job pause to-pause --reason lunch --json"),
    ("job-pause-paused", 1, "job pause paused --json"),
    ("job-pause-ended", 1, "job pause failed --json"),
    ("job-pause-running", 0, "job pause running --no-wait --json"),
    ("job-resume", 0, "job resume to-pause --json"),
    ("job-resume-queued", 2, "job resume queued --json"),
    ("job-retry-completed", 2, "job retry completed --json"),
    ("job-retry-final", 2, "job retry final --json"),
    ("job-retry-live", 2, "job retry running --json"),
    ("job-retry-without-its-files", 2, "job retry took-files --json"),
    ("job-retry-batch", 1, "job retry batch --json"),
    ("job-retry", 0, "job retry failed --reason again --json"),
    ("job-retry-queued", 2, "job retry failed --json"),
    ("job-show-retried", 0, "job show failed --json"),
    ("cancel-without-an-answer", 2, "cancel --json"),
    ("cancel-queued", 0, "cancel to-cancel --json"),
    ("cancel-running", 0, "cancel running --no-wait --reason dear --json"),
    ("cancel-running-terminate", 0, "cancel running --no-wait --terminate --json"),
    ("job-show-cancelling", 0, "job show running --json"),
    ("stop-ended", 1, "stop completed --json"),
    ("job-retry-step", 0, "job retry {root}.1 --json"),
    ("cancel-pipeline", 0, "cancel pipeline_{root} --json"),
    ("cancel-pipeline-ended", 1, "cancel pipeline_{root} --json"),
    ("cancel-all", 0, "cancel all --yes --no-wait --json"),
    ("job-delete", 0, "job delete completed --yes --json"),
    ("job-retry-deleted", 2, "job retry completed --json"),
    ("schedule-create", 0, "schedule create --name nightly --cron @daily --env A=b run --json"),
    (
        "schedule-create-again",
        0,
        "schedule create --name nightly --cron @daily --env A=b run --json",
    ),
    ("schedule-create-other", 2, "schedule create --name nightly --cron @hourly run --json"),
    ("schedule-create-invalid", 2, "schedule create --cron @reboot run --json"),
    ("schedule-run", 0, "schedule run nightly --json"),
    ("schedule-list", 0, "schedule list --json"),
    ("schedule-show", 0, "schedule show nightly --json"),
    ("schedule-next", 0, "schedule next nightly --json"),
    ("schedule-history", 0, "schedule history nightly --json"),
    ("schedule-pause", 0, "schedule pause nightly --json"),
    ("schedule-show-paused", 0, "schedule show nightly --json"),
    ("schedule-resume", 0, "schedule resume nightly --json"),
    ("schedule-rm", 0, "schedule rm nightly --json"),
    ("schedule-rm-unknown", 2, "schedule rm nightly --json"),
    ("profiles-check", 0, "profiles check --json"),
    ("workload-start-without-room", 2, "workload start hold --json"),
    ("workload-sessions-none", 0, "workload sessions --json"),
    ("service-reaped-none", 0, "service reaped --json"),
)
"""Name of the file, exit code, command; one after another on one stage."""


def answered(stage: Stage, command: str) -> dict[str, Any]:
    words = command.format(root=stage.jobs["pipeline"]).split()
    result = stage.stado(*words)
    document = json.loads(result.stdout) if result.stdout else None
    if document is None:
        assert result.stderr.startswith(("stado: ", "Usage: ")), result.stderr
    return {"command": command, "exit_code": result.exit_code, "document": shape(document)}


def test_every_command_answers_as_agreed(stado: Program, world: World) -> None:
    stage = staged(stado, world)
    assert len({name for name, _, _ in CASES}) == len(CASES)
    answers = {name: answered(stage, command) for name, _, command in CASES}
    assert {name: one["exit_code"] for name, one in answers.items()} == {
        name: code for name, code, _ in CASES
    }
    if os.environ.get(REWRITE):
        write(answers)
    agreed = {path.stem: json.loads(path.read_text()) for path in GOLDEN.glob("*.json")}
    assert agreed.keys() == answers.keys()
    for name, answer in answers.items():
        assert lines(answer) == lines(agreed[name]), f"{name}: `make golden` takes what it is now"


def lines(answer: dict[str, Any]) -> list[str]:
    """So that the first one that differs is told."""
    return json.dumps(answer, indent=1, sort_keys=True).splitlines()


def write(answers: dict[str, dict[str, Any]]) -> None:
    GOLDEN.mkdir(exist_ok=True)
    for path in GOLDEN.glob("*.json"):
        path.unlink()
    for name, answer in answers.items():
        (GOLDEN / f"{name}.json").write_text(json.dumps(answer, indent=1) + "\n")


def test_a_field_that_goes_or_changes_its_type_is_another_shape() -> None:
    shown: Callable[..., Any] = lambda **fields: shape({"jobs": [fields]})  # noqa: E731
    before = shown(job_id="x", status="failed", exit_code=3)
    assert before == shown(job_id="y", status="failed", exit_code=4)
    for other in (
        shown(job_id="x", status="failed"),
        shown(job_id="x", status="failed", exit_code=None),
        shown(job_id="x", status="failed", exit_code="3"),
        shown(job_id="x", status="completed", exit_code=3),
    ):
        assert other != before
