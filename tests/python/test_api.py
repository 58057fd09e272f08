"""Jobs from Python: the same jobs as from the command line, waited for and read."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import stado as api
from stado.api import JobOptions, _keep_open, _repository
from stado.cli.job_options import job_options
from stado.core import keys
from stado.core.records import (
    JobWarning,
    LogAccount,
    Manifest,
    Phase,
    PolicySeal,
    Progress,
    SaveRef,
)
from stado.core.stated import FIELDS
from stado.core.states import Reason, State, Verdict, WarningCode
from stado.jobs.changes import pause, resume
from stado.jobs.outputs import publish
from stado.storage.faults import Fault, FaultKind, FaultyStore, ScriptedFaults
from stado.storage.observe import CountingStore, Operation
from tests.cli.conftest import Program, World
from tests.jobs.fakes import FakeClock

TRAINED = "zrkkcmezlzooeqjq"
"""A job that has left a policy."""

EXAMPLES: dict[str, tuple[Any, list[str]]] = {
    "priority": (3, ["3"]),
    "cpu": (2, ["2"]),
    "memory_gb": (0.5, ["0.5"]),
    "gpus": ("a100:2", ["a100:2"]),
    "gpu_type": ("A100", ["A100"]),
    "vram_gb": (16, ["16"]),
    "disk_gb": (20, ["20"]),
    "exclusive": (True, []),
    "pinned_host": ("lab-7", ["lab-7"]),
    "label": (["zone=b", "zone=a"], ["zone=a", "zone=b"]),
    "machine_type": ("n1-standard-8", ["n1-standard-8"]),
    "provider": ("gcp", ["gcp"]),
    "spot": (True, []),
    "max_cost_per_hour": (2.5, ["2.5"]),
    "boot_disk_gb": (50, ["50"]),
    "model": ("resnet/50", ["resnet/50"]),
    "runtime_seconds_estimate": (3600, ["3600"]),
    "group": ("licences", ["licences"]),
    "not_before": (datetime(2030, 1, 1, tzinfo=UTC), ["2030-01-01T00:00:00Z"]),
    "yieldable": (True, []),
    "deadline_at": (datetime(2030, 1, 1, tzinfo=UTC), ["2030-01-01T00:00:00Z"]),
    "timeout": (5 * 60, ["5m"]),
    "idle_timeout": (600, ["600"]),
    "body_retries": (2, ["2"]),
    "retries": (2, ["2"]),
    "retry_on": (["job_failed", "body_hung"], ["body_hung", "job_failed"]),
    "retry_delay": (90, ["90"]),
    "notify": (["team:failed", "a:STOPPED"], ["team:failed", "a:STOPPED"]),
    "then": ({"export": "a", "eval": "b=c"}, ["export=a", "eval=b=c"]),
    "max_lease_losses": ("unlimited", ["unlimited"]),
    "terminates_agent": (True, []),
    "verify": ("test -e model", ["test -e model"]),
    "host_dir": (Path("/srv/data"), ["/srv/data"]),
    "pre_command": ("pip list", ["pip list"]),
    "strict_shell": (True, []),
    "image": ("lab/train@sha256:" + "0" * 64, ["lab/train@sha256:" + "0" * 64]),
    "expect_output": (("model.npz", "plots/*.png"), ["model.npz", "plots/*.png"]),
    "output_uri": ("stado://models", ["stado://models"]),
    "tag": (["v2", "nightly"], ["nightly", "v2"]),
    "type": ("train", ["train"]),
    "require_checkpoint": (True, []),
    "start_from": (f"policy_{TRAINED}:latest", [f"policy_{TRAINED}:latest"]),
    "input_artifact": (
        {"data": "file:///srv/data.npz#sha256=" + "0" * 64},
        ["data=file:///srv/data.npz#sha256=" + "0" * 64],
    ),
    "secret_env": ({"TOKEN": "team/hub#token"}, ["TOKEN=team/hub#token"]),
    "env": ({"A": "1", "B": "x y"}, ["A=1", "B=x y"]),
}
"""A value of each option here, and what the command line has for it."""

ELSEWHERE = {"env_file"}
"""What Python has anyway: a file of variables is read into a dict."""


def submitted(run_id: str = "x", **options: Any) -> api.Job:
    return api.submit("run", run_id=run_id, **options)


def leave_policy(world: World, job_id: str) -> None:
    save = SaveRef(
        manifest=keys.checkpoint_manifest(job_id, 1, 1),
        sha256="0" * 64,
        at=world.repo.now(),
        size=1,
    )
    seal = PolicySeal(job_id=job_id, epoch=1, at=world.repo.now(), latest=save)
    world.repo.store.create(keys.policy(job_id), seal.encode())


def in_a_moment(act: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(0.3, act)
    timer.start()
    return timer


def pauses_in(told: pytest.WarningsRecorder) -> list[str]:
    """The file that each is told of; others' warnings may be among them."""
    return [one.filename for one in told if "is paused: " in str(one.message)]


# Submitting


def test_a_job_is_submitted_once_and_the_command_line_knows_it(
    stado: Program, world: World
) -> None:
    """R116"""
    job = submitted()
    assert job == submitted() == api.job("x") == api.job(job.id)
    assert stado.json("job", "show", job.id)["command"] == "run"
    assert job.status() == api.Status(state="queued", epoch=1, at_rest=False)
    with pytest.raises(api.Refused, match="run id x belongs to another request"):
        api.submit("something else", run_id="x")


def test_a_batch_is_a_list_of_jobs_in_order(stado: Program, world: World) -> None:
    jobs = api.submit(commands=["one", "two", "three"], run_id="sweep", cpu=0.5)
    assert [stado.json("job", "show", job.id)["command"] for job in jobs] == ["one", "two", "three"]
    assert api.batch("sweep") == jobs
    assert api.batch(jobs[1].id) == [jobs[1]]
    assert len(api.submit(commands=["alone"], run_id="of-one")) == 1
    with pytest.raises(api.Refused, match="names a batch of 3 jobs"):
        api.job("sweep")


def test_an_array_is_a_list_of_jobs_as_on_the_command_line(stado: Program, world: World) -> None:
    """R168: the same request as `stado submit --array`."""
    jobs = api.submit("part {index}", array="3-7:2%2", run_id="parts")
    assert [stado.json("job", "show", job.id)["command"] for job in jobs] == [
        "part 3",
        "part 5",
        "part 7",
    ]
    assert stado.json("job", "show", jobs[0].id)["array_at_a_time"] == 2
    words = ("--run-id", "parts", "--array", "3-7:2%2", "part {index}")
    assert stado.ok("submit", *words).splitlines() == [job.id for job in jobs]
    assert api.batch("parts") == jobs
    assert len(api.submit("part", array="5", run_id="of-one")) == 1
    with pytest.raises(api.Refused, match="--array '9-3' has '9-3', which counts down"):
        api.submit("part", array="9-3", run_id="other")


def test_the_options_are_those_of_the_command_line_under_the_same_names() -> None:
    options = {
        max(option.opts, key=len).lstrip("-").replace("-", "_"): option.name
        for option in job_options(lambda: None).__click_params__  # type: ignore[attr-defined]
    }
    assert set(options) - ELSEWHERE == set(JobOptions.__annotations__), (
        "an option of `stado submit` is missing in JobOptions of stado/api.py, or the other way"
    )
    for name in JobOptions.__annotations__:
        assert options[name] == FIELDS.get(name, name)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_option_makes_the_same_request_as_on_the_command_line(
    stado: Program, world: World, name: str
) -> None:
    leave_policy(world, TRAINED)
    value, texts = EXAMPLES[name]
    option = f"--{name.replace('_', '-')}"
    words = [word for text in texts for word in (option, text)] or [option]
    job = submitted(**{name: value})
    assert stado.ok("submit", "--run-id", "x", *words, "run") == job.id


def test_what_goes_before_and_after_is_asked_for_as_on_the_command_line(
    stado: Program, world: World
) -> None:
    first = submitted("first")
    job = submitted(
        after=[f"{first.id}:any"],
        then={"export": "a"},
        then_parallel=True,
        then_checkpoint="latest",
        then_cpu=2,
        then_memory_gb=8,
    )
    again = stado.ok(
        *("submit", "--run-id", "x", "--after", f"{first.id}:any", "--then", "export=a"),
        *("--then-parallel", "--then-checkpoint", "latest", "--then-cpu", "2"),
        *("--then-memory-gb", "8", "run"),
    )
    assert again == job.id


@pytest.mark.parametrize("typed", [{"KEY": "hunter2-hunter2"}, {"KEY": "hunter2#é"}, "hunter2"])
def test_a_secret_in_place_of_its_name_is_refused_and_not_repeated(
    world: World, typed: Any
) -> None:
    """R140"""
    with pytest.raises((api.Refused, TypeError)) as refused:
        submitted(secret_env=typed)
    assert "hunter2" not in str(refused.value)
    assert not list(world.repo.walk_records(State.QUEUED))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"cpu": -1}, "cpu -1 must be a positive number of cores"),
        ({"cpu": "4"}, "got `str` - at `cpu`"),
        ({"env": {"STADO_X": "1"}}, "environment name STADO_X is reserved"),
        ({"env": {"A": 1}}, "got `int` - at `environment"),
        ({"secret_env": {"TOKEN": "hf_secret"}}, "secret"),
        ({"deadline_at": datetime(2030, 1, 1)}, "timezone"),  # noqa: DTZ001 - that is the point
        ({"timeout": 0}, "timeout 0 must be a positive whole number of seconds"),
        ({"timeout": True}, "timeout True must be a positive whole number of seconds"),
        ({"timeout": 1.5}, "timeout 1.5 must be a positive whole number of seconds"),
        ({"idle_timeout": "soon"}, "idle-timeout 'soon' must be a positive whole number"),
        ({"body_retries": -1}, "body-retries -1 must be a whole number"),
        ({"host_dir": "here"}, "'here' is not absolute"),
        ({"verify": object()}, "cannot be"),
        ({"run_id": "last"}, "'last' cannot be used"),
        ({"store": "/nowhere/at/all"}, "/nowhere/at/all"),
    ],
)
def test_what_cannot_be_is_refused_with_its_value_and_nothing_is_queued(
    world: World, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(api.StadoError) as refused:
        submitted(**options)
    assert sentence in str(refused.value)
    assert "hf_secret" not in str(refused.value)
    assert not list(world.repo.walk_records(State.QUEUED))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: submitted(env=["A=1"]), "env is a mapping"),
        (lambda: submitted(input_artifact="data=x"), "input_artifact is a mapping"),
        (lambda: submitted(expect_output="model"), r"a list of strings, such as \['model'\]"),
        (
            lambda: submitted(memory=3),
            "no option 'memory'; did you mean 'memory_gb' or 'then_memory_gb'?",
        ),
        (lambda: api.submit(run_id="x"), "a command, or commands="),  # type: ignore[call-overload]
        (lambda: api.submit(commands=["a"], array="1", run_id="x"), "array= is for one command"),  # type: ignore[call-overload]
        (lambda: api.submit("a", array=3, run_id="x"), "array is text"),  # type: ignore[call-overload]
        (lambda: api.submit(["a", "b"], run_id="x"), "one string"),  # type: ignore[call-overload]
        (lambda: api.submit("a"), "run_id"),  # type: ignore[call-overload]
    ],
)
def test_a_call_that_python_would_not_take_is_a_type_error(
    world: World, call: Callable[[], object], sentence: str
) -> None:
    with pytest.raises(TypeError, match=sentence.replace("?", r"\?")):
        call()


def test_a_name_that_nothing_has_is_refused(world: World) -> None:
    for name in ("nothing", "a" * 16, "no name", ""):
        with pytest.raises(api.Refused, match="there is no job"):
            api.job(name)


# Waiting


def test_what_a_running_job_reports_is_in_its_status(world: World) -> None:
    job = submitted()
    progress = Progress(fraction=0.25, text="round 1")
    world.beat(world.claim(job.id), Phase.RUNNING, progress=progress)
    assert job.status() == api.Status(
        state="running",
        epoch=1,
        at_rest=False,
        phase="running",
        progress=0.25,
        progress_text="round 1",
    )


def test_waiting_ends_with_the_job_or_with_the_time(world: World) -> None:
    """R116"""
    job = submitted()
    began = time.monotonic()
    for wait in (job.wait, job.result):
        with pytest.raises(TimeoutError, match=r"queued after \d s of waiting: it goes on") as late:
            wait(timeout=0.05)
        assert isinstance(late.value, api.NotFinished)
        assert late.value.job_id == job.id
    assert time.monotonic() - began < 30
    timer = in_a_moment(lambda: world.complete(job.id))
    assert job.wait(timeout=60).state == "completed"
    timer.join()
    assert job.wait(timeout=0).at_rest
    assert job.result() is None


def complete_with(world: World, job: api.Job, folder: Path, files: dict[str, bytes]) -> None:
    claimed = world.claim(job.id)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    publish(world.repo, job_id=job.id, epoch=1, folder=folder, partial=False)
    world.end(claimed, Verdict.COMPLETED, exit_code=0, started_at=world.repo.now())


def test_a_result_is_what_the_job_wrote(world: World, tmp_path: Path) -> None:
    """R116: and its files come down, whole."""
    job = submitted()
    files = {"result.json": b'{"accuracy": 0.5}', "deep/model": b"weights"}
    complete_with(world, job, tmp_path / "left", files)
    assert job.result() == {"accuracy": 0.5}
    paths = job.outputs(tmp_path / "got")
    assert sorted(paths) == [tmp_path / "got" / name for name in ("deep/model", "result.json")]
    assert (tmp_path / "got/deep/model").read_bytes() == b"weights"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").touch()
    with pytest.raises(api.Refused, match="holds other files"):
        job.outputs(tmp_path / "mine")


@pytest.mark.parametrize(
    ("verdict", "reason", "kind"),
    [
        (Verdict.FAILED, Reason.JOB_FAILED, api.JobFailed),
        (Verdict.FAILED, Reason.JOB_REFUSED, api.JobFailed),
        (Verdict.CANCELLED, Reason.CANCELLED, api.JobCancelled),
        (Verdict.TIMED_OUT, None, api.JobTimedOut),
    ],
)
def test_a_job_that_did_not_complete_has_no_result_and_says_why(
    world: World, verdict: Verdict, reason: Reason | None, kind: type[api.JobError]
) -> None:
    """R81, R116"""
    job = submitted()
    world.end(world.claim(job.id), verdict, reason=reason, detail="for that", exit_code=3)
    with pytest.raises(kind, match=f"job {job.id} {verdict.value}.*: for that") as error:
        job.result()
    told = error.value.job_id, error.value.detail, error.value.exit_code
    assert told == (job.id, "for that", 3)
    assert error.value.reason == (reason.value if reason else None)
    assert job.wait() == job.status()
    assert (job.status().reason, job.status().detail) == (error.value.reason, "for that")


def test_a_result_that_was_lost_is_not_called_none(world: World, tmp_path: Path) -> None:
    """R116: undelivered, left out, or gone from the store since."""
    undelivered, left_out, unlisted, gone = (submitted(name) for name in "wxyz")
    warning = JobWarning(code=WarningCode.OUTPUT_UNDELIVERED, detail="its disk is broken")
    world.end(world.claim(undelivered.id), Verdict.COMPLETED, exit_code=0, warnings=[warning])
    (tmp_path / "y").mkdir()
    (tmp_path / "y/result.json").symlink_to("elsewhere")
    complete_with(world, left_out, tmp_path / "y", {})
    skipped = [".: it cannot be read: Permission denied"]
    manifest = Manifest(job_id=unlisted.id, epoch=1, partial=False, files=[], skipped=skipped)
    world.repo.store.put(keys.output_manifest(unlisted.id, 1), manifest.encode())
    world.complete(unlisted.id)
    complete_with(world, gone, tmp_path / "z", {"result.json": b"{}"})
    (world.path / keys.output_file(gone.id, 1, "result.json")).unlink()
    for job, reason, detail in (
        (undelivered, "result_undelivered", "its disk is broken"),
        (left_out, "result_left_out", "not a regular file"),
        (unlisted, "result_left_out", r"\.: it cannot be read: Permission denied"),
        (gone, "result_damaged", f"result.json of job {gone.id} is missing"),
    ):
        with pytest.raises(api.ResultLost, match=detail) as lost:
            job.result()
        assert (lost.value.job_id, lost.value.reason) == (job.id, reason)
        assert job.id in str(lost.value)


def test_a_cancel_tells_whether_there_was_anything_to_cancel(world: World) -> None:
    job = submitted()
    assert job.cancel()
    assert not job.cancel()
    with pytest.raises(api.JobCancelled):
        job.result()
    running = submitted("y")
    world.claim(running.id)
    assert running.cancel()
    assert running.status().state == "running"


def test_a_queued_job_is_moved_in_the_queue(stado: Program, world: World) -> None:
    """R143, R144, R145: with the refusals of the command line."""
    job = submitted()
    assert job.set_priority(5)
    assert not job.set_priority(5)
    assert stado.json("job", "show", job.id)["priority"] == 5
    with pytest.raises(api.Refused, match="job priority -1 must be nonnegative"):
        job.set_priority(-1)
    for priority in (True, 1.5, "5"):
        with pytest.raises(TypeError, match="a priority is a whole number"):
            job.set_priority(priority)  # type: ignore[arg-type]
    world.claim(job.id)
    with pytest.raises(api.Refused, match=f"job {job.id} is running, and not queued") as refused:
        job.set_priority(7)
    assert refused.value.code == "job_not_queued"


def test_a_job_is_paused_and_goes_on(stado: Program, world: World) -> None:
    """R48, R49"""
    job = submitted()
    with pytest.raises(api.Refused, match=f"job {job.id} is queued, and not paused") as refused:
        job.resume()
    assert refused.value.code == "job_not_paused"
    assert job.pause("the disk is full")
    assert job.status().state == "paused"
    assert not job.pause()
    assert stado.json("job", "show", job.id)["pause_reason"] == "the disk is full"
    job.resume(reason="there is room")
    assert (job.status().state, job.status().epoch) == ("queued", 2)
    world.claim(job.id)
    assert job.pause()
    assert job.status().state == "running"


def test_a_reason_that_cannot_be_kept_is_refused(world: World) -> None:
    job = submitted()
    with pytest.raises(api.Refused, match="has 2,000 characters, and 1,024 are kept at most"):
        job.pause("x" * 2000)
    with pytest.raises(TypeError, match="a reason is text"):
        job.pause(3)  # type: ignore[arg-type]
    assert job.status().state == "queued"


# Logs


def lose(world: World, job: api.Job) -> None:
    world.end(world.claim(job.id), Verdict.LOST, reason=Reason.LEASE_EXPIRED, detail="not heard")


def test_a_log_is_lines_over_all_epochs(world: World) -> None:
    job = submitted()
    assert list(job.logs()) == []
    world.log(job.id, b"1\n\xe2\x82")
    world.log(job.id, b"\xac\n\n\xffhalf", offset=4)
    lose(world, job)
    world.claim(job.id)
    world.log(job.id, b"3\r4\r5\nlast", epoch=2)
    announced = f"[stado: epoch 2 of job {job.id} begins: epoch 1 lost (lease_expired): not heard]"
    lines = ["1", "\N{EURO SIGN}", "", "\N{REPLACEMENT CHARACTER}half", announced]
    assert list(job.logs()) == [*lines, "3\r4\r5", "last"]
    assert list(job.logs(tail=1)) == ["last"]
    assert list(job.logs(tail=3)) == [*lines[3:], "3\r4\r5", "last"]
    assert list(job.logs(tail=0)) == []


def test_who_follows_gets_what_comes_until_the_end(world: World) -> None:
    job = submitted()
    lines = job.logs(follow=True)
    first = world.claim(job.id)
    world.log(job.id, b"begun\n")

    def go_on() -> None:
        world.log(job.id, b"lost\n", offset=6)
        world.end(first, Verdict.LOST, reason=Reason.LEASE_EXPIRED)
        world.log(job.id, b"again\n", epoch=2)
        world.complete(job.id)

    assert next(lines) == "begun"
    timer = in_a_moment(go_on)
    assert list(lines) == [
        "lost",
        f"[stado: epoch 2 of job {job.id} begins: epoch 1 lost (lease_expired)]",
        "again",
    ]
    timer.join()


def test_a_log_that_was_dropped_as_a_whole_is_not_one_that_is_not_there(
    stado: Program, world: World
) -> None:
    silent, dropped = submitted("x"), submitted("y")
    log = LogAccount(written=9, kept=0, dropped=9)
    manifest = Manifest(job_id=dropped.id, epoch=1, partial=False, files=[], log=log)
    world.repo.store.put(keys.output_manifest(dropped.id, 1), manifest.encode())
    for job in (silent, dropped):
        world.complete(job.id)
    assert list(silent.logs()) == []
    told = "9 bytes of the log were dropped here, at its end"
    assert list(dropped.logs()) == list(dropped.logs(tail=5)) == [f"[stado: {told}]"]
    assert "there is no log" in stado("logs", silent.id).stderr
    assert told in stado("logs", dropped.id).stderr
    assert "there is no log" not in stado("logs", dropped.id).stderr


class Waking(FakeClock):
    """Does something after so many sleeps."""

    def __init__(self, **acts: Callable[[], object]) -> None:
        super().__init__()
        self._sleeps = 0
        self._acts = acts

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._sleeps += 1
        self._acts.get(f"after_{self._sleeps}", lambda: None)()


def test_who_follows_lists_nothing_while_a_job_waits(world: World) -> None:
    """Neither in the queue nor through a pause, of which what was printed before is read once."""
    job = submitted()
    work = world.repo
    lines = []

    def run() -> None:
        world.log(job.id, b"begun\n")
        world.end(world.claim(job.id), Verdict.PAUSED, reason=Reason.PAUSED_BY_USER)

    def go_on() -> None:
        resume(work, job.id, by="ada")
        world.log(job.id, b"again\n", epoch=2)
        world.complete(job.id)

    clock = Waking(after_30=run, after_60=go_on)
    store = CountingStore(work.store, work.tasks)
    repo = type(work)(store, work.deployment, clock=clock, entropy=work.entropy, tasks=work.tasks)
    _keep_open(job.settings, repo)
    with pytest.warns(UserWarning, match=f"job {job.id} is paused: ") as told:
        lines = list(job.logs(follow=True))
    assert [line for line in lines if not line.startswith("[stado:")] == ["begun", "again"]
    assert pauses_in(told) == [__file__]
    assert 0 < store.snapshot().of(Operation.LIST, kind="status/*/log") < 20


def test_a_pause_is_waited_through_and_told_once(world: World) -> None:
    job = submitted()
    pause(world.repo, job.id, by="ada")
    with (
        pytest.warns(UserWarning, match=f"job {job.id} is paused: ") as told,
        pytest.raises(api.NotFinished, match=f"is paused after .*`stado job resume {job.id}`"),
    ):
        job.wait(timeout=0.05)
    assert pauses_in(told) == [__file__]
    assert job.status().at_rest

    def go_on() -> None:
        resume(world.repo, job.id, by="ada")
        world.complete(job.id)

    timer = in_a_moment(go_on)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # told again, unless it goes on before
        assert job.wait(timeout=60).state == "completed"
    timer.join()


def test_a_store_that_is_away_for_a_moment_costs_no_line_and_no_wait(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job = submitted()
    world.log(job.id, b"one\n")
    world.log(job.id, b"two\n", offset=4)
    world.complete(job.id)
    faults = ScriptedFaults()
    away = FaultyStore(world.repo.store, world.repo.clock, faults)
    repo = type(world.repo)(
        away,
        world.repo.deployment,
        clock=world.repo.clock,
        entropy=world.repo.entropy,
        tasks=world.repo.tasks,
    )
    _keep_open(job.settings, repo)
    lines = job.logs()
    faults.add(Fault(FaultKind.UNAVAILABLE, Operation.GET))
    assert list(lines) == ["one", "two"]
    faults.add(Fault(FaultKind.UNAVAILABLE))
    assert job.wait().state == "completed"
    assert caplog.text.count("the store does not answer") == 2


# Handles


def state_in_another_process(job: api.Job) -> str:
    return job.status().state


def test_a_handle_goes_to_other_processes_forked_or_not(world: World) -> None:
    job = submitted()
    assert pickle.loads(pickle.dumps(job)) == job
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.apply(state_in_another_process, (job,)) == "queued"


def test_a_store_is_opened_once_for_many_jobs(world: World) -> None:
    jobs = [submitted(f"run-{number}") for number in range(3)]
    assert len({id(_repository(job.settings)) for job in jobs}) == 1
