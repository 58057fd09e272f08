"""Submitting: one answer however often, and nothing half done."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from stado.core import keys
from stado.core.records import PolicySeal, SaveRef
from stado.core.spec import COMMAND_BYTES_MAX
from stado.core.states import State
from stado.jobs.finding import find_job
from stado.jobs.settings import change_setting, read_settings
from tests.cli.conftest import Program, World, report, run_each

DIGEST = "ab" * 32


def objects_of(world: World) -> list[Path]:
    return sorted(
        path
        for path in world.path.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.parts)
    )


def test_a_single_job_prints_its_id_alone(stado: Program, world: World) -> None:
    """R131"""
    result = stado("submit", "--run-id", "first", "python train.py")
    (job_id,) = result.stdout.splitlines()
    assert result.exit_code == 0
    assert f"submitted job {job_id} (run first)" in result.stderr
    assert f"next: stado job watch {job_id} --follow" in result.stderr
    found = find_job(world.repo, job_id)
    assert found is not None
    assert found.record.spec.command == "python train.py"
    assert found.record.submitter == "ada"


def test_a_batch_prints_the_id_of_each_job(stado: Program, world: World, tmp_path: Path) -> None:
    """R168, R170"""
    batch = tmp_path / "commands.txt"
    batch.write_text("# a comment\none\n\n  two  \nthree\n")
    result = stado("submit", "--run-id", "sweep", "--batch", str(batch), "")
    ids = result.stdout.splitlines()
    assert [job_id[-2:] for job_id in ids] == ["-1", "-2", "-3"]
    assert f"submitted 3 jobs as batch {ids[0][:16]} (run sweep)" in result.stderr
    assert "is not submitted" not in result.stderr
    commands = [find_job(world.repo, job_id) for job_id in ids]
    assert [found.record.spec.command for found in commands if found] == ["one", "two", "three"]


def test_a_batch_comes_from_standard_input_and_the_command_is_ignored(
    stado: Program, world: World
) -> None:
    """R169"""
    ids = stado.ok("submit", "--run-id", "sweep", "--batch", "-", "ignored", stdin=b"one\ntwo\n")
    assert len(ids.splitlines()) == 2


def test_a_job_can_be_declared_to_end_its_agent(stado: Program, world: World) -> None:
    job_id = stado.ok("submit", "--run-id", "update", "--terminates-agent", "run")
    found = find_job(world.repo, job_id)
    assert found is not None
    assert found.record.spec.terminates_agent


def test_each_option_reaches_the_spec(stado: Program, world: World) -> None:
    trained, sealed_at = "zrkkcmezlzooeqjq", world.repo.now()
    manifest = keys.checkpoint_manifest(trained, 1, 1)
    save = SaveRef(manifest=manifest, sha256=DIGEST, at=sealed_at, size=1)
    seal = PolicySeal(job_id=trained, epoch=1, at=sealed_at, latest=save)
    world.repo.store.create(keys.policy(trained), seal.encode())
    first = stado.ok("submit", "--run-id", "first", "run")
    job_id = stado.ok(
        *("submit", "--run-id", "every", "--priority", "7", "--cpu", "2.5", "--memory-gb", "4"),
        *("--verify", "test -f out", "--host-dir", "/srv", "--env", "A=1", "--env", "B=x=y"),
        *("--pre-command", "make", "--strict-shell", "--secret-env", "KEY=team/db#password"),
        *("--image", "lab/train:1"),
        *("--deadline-at", "2100-01-01T02:00:00+02:00", "--max-lease-losses", "unlimited"),
        *("--timeout", "2h", "--idle-timeout", "90", "--body-retries", "3", "--final"),
        *("--input-artifact", f"data=https://host/x.csv#sha256={DIGEST}"),
        *("--expect-output", "a", "--expect-output", "b/*", "--output-uri", "stado://x"),
        *("--type", "Play", "--require-checkpoint", "--from", f"policy_{trained}:latest"),
        *("--tag", "v2", "--tag", "nightly", "--tag", "v2", "--notify", "chat:failed"),
        *("--retries", "4", "--retry-on", "body_hung", "--retry-delay", "5m"),
        *("--after", f"{first}:any", "--then", "export=make", "--then", "eval=./judge x=y"),
        *("--then-parallel", "--then-checkpoint", "latest", "--then-cpu", "2"),
        *("--then-memory-gb", "8", "--then-gpus", "1"),
        *("--gpus", "a100:2", "--vram-gb", "40", "--disk-gb", "9", "--exclusive"),
        *("--pinned-host", "lab-7", "--label", "zone=b", "--label", "disk=nvme"),
        *("--machine-type", "large", "--provider", "local", "--pin-provider", "--no-spot"),
        *("--max-cost-per-hour", "2.5", "--boot-disk-gb", "50", "--model", "resnet"),
        *("--runtime-seconds-estimate", "60", "--group", "licences", "--yieldable"),
        *("--max-yields", "2", "--not-before", "2099-01-01T00:00:00Z", "run"),
    )
    found = find_job(world.repo, job_id)
    assert found is not None
    assert found.record.spec.plain() == {
        "command": "run",
        "verify": "test -f out",
        "host_dir": "/srv",
        "environment": {"A": "1", "B": "x=y"},
        "pre_command": "make",
        "strict_shell": True,
        "final": True,
        "terminates_agent": False,
        "image": "lab/train:1",
        "secrets": {"KEY": "team/db#password"},
        "cpu": 2.5,
        "memory_gb": 4.0,
        "priority": 7,
        "deadline_at": "2100-01-01T00:00:00Z",
        "timeout_seconds": 7200,
        "idle_timeout_seconds": 90,
        "body_retries": 3,
        "max_lease_losses": -1,
        "expected_outputs": ["a", "b/*"],
        "output_uri": "stado://x",
        "inputs": [
            {
                "name": "data",
                "source": "https://host/x.csv",
                "sha256": DIGEST,
                "path": "",
            }
        ],
        "tags": ["nightly", "v2"],
        "notify": ["chat:failed"],
        "type": "play",
        "require_checkpoint": True,
        "start_from": {
            "policy": f"policy_{trained}",
            "kind": "latest",
            "manifest": manifest,
            "sha256": DIGEST,
        },
        "snapshot": None,
        "repo": None,
        "retries": 4,
        "retry_on": ["body_hung"],
        "retry_delay_seconds": 300,
        "after": [{"job_id": first, "when": "any"}],
        "then": [
            {"name": "export", "command": "make", "type": "export"},
            {"name": "eval", "command": "./judge x=y", "type": "eval"},
        ],
        "then_parallel": True,
        "then_from": "latest",
        "then_cpu": 2.0,
        "then_memory_gb": 8.0,
        "then_gpus": 1,
        "gpus": 2,
        "gpu_type": "a100",
        "vram_gb": 40.0,
        "disk_gb": 9.0,
        "exclusive": True,
        "machine_type": "large",
        "labels": ["disk=nvme", "zone=b"],
        "pinned_host": "lab-7",
        "provider": "local",
        "pin_provider": True,
        "spot": "never",
        "max_cost_per_hour": 2.5,
        "boot_disk_gb": 50.0,
        "model": "resnet",
        "runtime_seconds_estimate": 60,
        "group": "licences",
        "not_before": "2099-01-01T00:00:00Z",
        "yieldable": True,
        "max_yields": 2,
        "array": None,
        "step_of": None,
        "workload_kind": None,
    }


def test_every_field_of_the_spec_has_an_option() -> None:
    from stado.cli.submit import submit
    from stado.core.spec import Spec
    from stado.pinning import PINNED_AS
    from stado.target import Target

    others = {"words", "run_id", "batch", "wait", "as_json", *Target._fields}
    others |= {"env_file", "profile"}  # the same field as --env; fields of any name
    # The latter two are said by who launches a step, and who starts a session.
    others_of_spec = {"unknown_fields", "step_of", "workload_kind"}
    asked = {parameter.name for parameter in submit.params} - others
    fields = {PINNED_AS.get(name, name) for name in asked}
    assert fields | {"command"} == set(Spec.__struct_fields__) - others_of_spec


@pytest.mark.parametrize("typed", ["KEY=hunter2-hunter2", "KEY", "KEY=a#b#c", "KEY=a #b", "KEY=#b"])
def test_a_secret_that_is_typed_as_a_value_is_refused_and_not_repeated(
    stado: Program, world: World, typed: str
) -> None:
    """R140"""
    result = stado("submit", "--run-id", "one", "--secret-env", typed, "run")
    assert result.exit_code == 2
    assert "the secret for 'KEY' is named by item and field" in result.stderr
    assert "hunter2" not in result.stderr


def test_the_reference_of_a_secret_is_shown(stado: Program, world: World) -> None:
    """R140"""
    job_id = stado.ok("submit", "--run-id", "one", "--secret-env", "KEY=team/db#password", "run")
    assert "secrets   KEY=team/db#password" in stado.ok("job", "show", job_id)
    assert stado.json("job", "show", job_id)["secrets"] == {"KEY": "team/db#password"}


def test_an_image_that_is_named_by_a_tag_is_taken_and_said_so(stado: Program, world: World) -> None:
    """It is a note and no refusal; the job shows what it runs in."""
    tagged = stado("submit", "--run-id", "tag", "--image", "python:3.12", "run")
    assert tagged.exit_code == 0
    told = " ".join(tagged.stderr.split())
    assert "image python:3.12 is named by a tag, which may move: name it with @sha256:…" in told
    assert stado.json("job", "show", tagged.stdout.strip())["image"] == "python:3.12"
    pinned = stado("submit", "--run-id", "pin", "--image", f"python@sha256:{DIGEST}", "run")
    assert pinned.exit_code == 0
    assert "tag" not in pinned.stderr
    shown = stado.ok("job", "show", pinned.stdout.strip())
    assert f"image     python@sha256:{DIGEST}" in shown


def test_submitting_again_answers_the_same_job(stado: Program, world: World) -> None:
    """R130"""
    first = stado.ok("submit", "--run-id", "same", "run")
    result = stado("submit", "--run-id", "same", "run")
    assert result.stdout.strip() == first
    assert result.stderr.startswith("already submitted: job")


def test_submitting_again_tells_how_the_job_stands_and_what_helps(
    stado: Program, world: World
) -> None:
    """R130: the same command starts nothing any more once the job has ended."""
    cancelled = stado.ok("submit", "--run-id", "stopped", "run")
    stado.ok("cancel", cancelled)
    told = stado("submit", "--run-id", "stopped", "run").stderr.splitlines()
    assert told == [
        f"already submitted: job {cancelled} (run stopped), now cancelled",
        f"next: stado job rerun {cancelled}",
    ]
    done = stado.ok("submit", "--run-id", "done", "run")
    assert "(run done), now queued" in stado("submit", "--run-id", "done", "run").stderr
    world.complete(done)
    told = stado("submit", "--run-id", "done", "run").stderr.splitlines()
    assert told[1] == f"next: stado results {done} DIR"
    batch = ("submit", "--run-id", "two", "--batch", "-")
    first, _ = stado.ok(*batch, stdin=b"one\ntwo\n").splitlines()
    world.fail(first, 3)
    assert "(run two), now 1 queued, 1 failed" in stado(*batch, stdin=b"one\ntwo\n").stderr


def test_fifty_at_once_print_one_id(
    stado: Program, world: World, environment: dict[str, str]
) -> None:
    """A18"""
    code = (
        "import os, stado.cli.submit, stado.composition, stado.jobs.submit, stado.storage.open\n"
        "from stado.cli.main import cli\n"
        "children = [os.fork() for _ in range(50) if os.getpid() == parent]\n"
        "if os.getpid() != parent:\n"
        "    cli.main(['submit', '--run-id', 'same', 'run'])\n"
        "assert all(os.waitpid(child, 0)[1] == 0 for child in children)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import os; parent = os.getpid()\n{code}"],
        env=environment,
        capture_output=True,
        check=True,
        timeout=100,
    )
    answers = done.stdout.split()
    assert len(answers) == 50
    assert len(set(answers)) == 1
    assert done.stderr.count(b"already submitted: job") == 49
    assert len(list(world.repo.walk_records(State.QUEUED))) == 1


def test_a_run_id_of_another_request_is_refused_with_the_field(
    stado: Program, world: World
) -> None:
    """R130, A18"""
    stado.ok("submit", "--run-id", "taken", "one")
    sentence = stado.refused("submit", "--run-id", "taken", "two")
    assert "run id taken" in sentence
    assert "command: 'one' was submitted, now 'two'" in sentence


def test_a_negative_priority_is_refused_in_these_words(stado: Program, world: World) -> None:
    """R144"""
    sentence = stado.refused("submit", "--run-id", "x", "--priority", "-3", "run")
    assert sentence == "priority -3 must be nonnegative"


@pytest.mark.parametrize(
    ("args", "stdin", "sentence"),
    [
        (["run"], None, "Missing option '--run-id'"),
        (["--run-id", "x"], None, "no command"),
        (["--run-id", "x", "  "], None, "the command is empty"),
        (["--run-id", "x", "python", "train.py"], None, "quote all of it, such as 'python train.p"),
        (["--run-id", "last", "run"], None, "commands take 'last' for another thing"),
        (["--run-id", "All", "run"], None, "run id 'All' cannot be used"),
        (["--run-id", "a b", "run"], None, "run id 'a b' cannot be used"),
        (["--run-id", "x", "--priority", "many", "run"], None, "'many' is not a valid int"),
        (["--run-id", "x", "--priority", str(2**63), "run"], None, f"priority {2**63} is above"),
        (["--run-id", "x", "--cpu", "0", "run"], None, "cpu 0.0 must be a positive number"),
        (["--run-id", "x", "--memory-gb", "nan", "run"], None, "memory-gb nan must be a positive"),
        (["--run-id", "x", "--host-dir", "here", "run"], None, "'here' is not absolute"),
        (["--run-id", "x", "--env", "FOO", "run"], None, "write FOO=VALUE"),
        (["--run-id", "x", "--env", "2=1", "run"], None, "environment name '2'"),
        (
            ["--run-id", "x", "--env", "A=x\udcff", "run"],
            None,
            "what is given for 'A' is not valid",
        ),
        (["--run-id", "x", "--verify", "\udcff", "run"], None, "is not valid UTF-8"),
        (["--run-id", "x", "\udcff"], None, "the command is not valid UTF-8"),
        (["--run-id", "x", "--deadline-at", "tomorrow", "run"], None, "'tomorrow' is no instant"),
        (["--run-id", "x", "--deadline-at", "2030-01-01T00:00:00", "run"], None, "a time zone"),
        (["--run-id", "x", "--deadline-at", "2030-02-30T00:00:00Z", "run"], None, "no instant"),
        (["--run-id", "x", "--max-lease-losses", "-1", "run"], None, "'-1' must be 0 or more"),
        (["--run-id", "x", "--timeout", "0", "run"], None, "'0' must be a positive whole number"),
        (["--run-id", "x", "--timeout", "1.5h", "run"], None, "'1.5h' must be a positive whole"),
        (
            ["--run-id", "x", "--idle-timeout", "soon", "run"],
            None,
            "or one with s, m, h or d behind",
        ),
        (["--run-id", "x", "--body-retries", "-1", "run"], None, "body-retries -1 must be a whole"),
        (["--run-id", "x", "--batch", "/nowhere"], None, "'/nowhere' cannot be read: No such file"),
        (["--run-id", "x", "--batch", "-"], b"", "standard input holds no command"),
        (["--run-id", "x", "--batch", "-"], b"# only\n\n", "standard input holds no command"),
        (["--run-id", "x", "--batch", "-"], b"a\n" * 6 + b"b\0c\n", "line 7 of standard input hol"),
        (["--run-id", "x", "--batch", "-"], b"a\n\xff\n", "line 2 of standard input is not UTF-8"),
        (["--run-id", "x", "--batch", "-"], b"x" * 2_000_000, "line 1 of standard input has 20000"),
        (["--run-id", "x", "y" * 2_000_000], None, f"execute at most {COMMAND_BYTES_MAX}"),
    ],
)
def test_a_wrong_request_is_refused_and_leaves_nothing(
    stado: Program, world: World, args: list[str], stdin: bytes | None, sentence: str
) -> None:
    """R129"""
    before = objects_of(world)
    assert sentence in stado.refused("submit", *args, stdin=stdin)
    assert objects_of(world) == before


def test_a_deadline_that_has_passed_is_said(stado: Program, world: World) -> None:
    result = stado("submit", "--run-id", "x", "--deadline-at", "2020-01-01T00:00:00Z", "run")
    assert result.exit_code == 0
    assert "; it will not start: its deadline has passed" in result.stderr
    assert "to do: submit it again with more time" in result.stderr


def test_the_answer_says_what_the_job_waits_for(stado: Program, world: World) -> None:
    """R208: with what to do about it, where there is something."""
    result = stado("submit", "--run-id", "a", "run")
    assert "(run a); it starts when a worker is at work\n" in result.stderr
    assert "to do: `stado up` here, " in result.stderr
    report(world, "a@box")
    result = stado("submit", "--run-id", "b", "run")
    assert "(run b); it starts in turn: 1 job is ahead in the queue\n" in result.stderr
    assert "to do" not in result.stderr
    stado.ok("queue", "pause")
    assert (
        "(run c); it starts when the queue is resumed"
        in stado("submit", "--run-id", "c", "run").stderr
    )
    assert "it starts" not in stado("submit", "--run-id", "c", "run").stderr


def test_a_group_that_is_misspelt_is_noted(stado: Program, world: World) -> None:
    """It would escape its limit without a word. Nothing is refused."""
    change_setting(world.repo, "groups.limits", {"licences": 2}, by="ada")
    change_setting(world.repo, "windows.rules", ["group.big:daily@01:00-08:00@UTC"], by="ada")
    asked = ("submit", "--run-id")
    told = stado(*asked, "a", "--group", "licence", "run")
    assert told.exit_code == 0
    assert "window or budget of a group; did you mean licences?" in " ".join(told.stderr.split())
    assert "did you mean big?" in " ".join(
        stado(*asked, "b", "--group", "bgi", "run").stderr.split()
    )
    change_setting(world.repo, "budgets.rules", ["group.evals:40gpuh/day"], by="ada")
    assert "did you mean evals?" in " ".join(
        stado(*asked, "c", "--group", "eval", "run").stderr.split()
    )
    for name in ("big", "licences", "other"):
        assert "did you mean" not in stado(*asked, name, "--group", name, "run").stderr
    assert "did you mean" not in stado(*asked, "none", "run").stderr
    daily = stado("schedule", "create", "--cron", "@daily", "--group", "bgi", "run")
    assert "did you mean big?" in " ".join(daily.stderr.split())


def test_a_job_that_may_yield_no_time_is_noted_to_be_protected(
    stado: Program, world: World
) -> None:
    told = stado("submit", "--run-id", "a", "--yieldable", "run")
    assert "note: --yieldable without --max-yields lets it be put back not once" in told.stderr
    told = stado("submit", "--run-id", "b", "--yieldable", "--max-yields", "2", "run")
    assert "note: " not in told.stderr


def test_settings_that_workers_may_not_know_yet_are_noted(stado: Program, world: World) -> None:
    change_setting(world.repo, "quotas.running_jobs", 0, by="ada")
    told = " ".join(stado("submit", "--run-id", "a", "run").stderr.split())
    assert "(run a); it should start when it may: " in told
    assert re.search(r"note: the settings were changed \d+s ago; workers look at them", told)
    assert "workers look at them each two minutes" in stado.ok("job", "why", "a")
    settings = read_settings(world.repo)
    assert settings.changed_at is not None
    earlier = settings.evolve(changed_at=settings.changed_at - timedelta(minutes=3))
    world.repo.store.put(keys.SETTINGS, earlier.encode())
    told = stado("submit", "--run-id", "b", "run").stderr
    assert "(run b); it starts when it may: " in told
    assert "note: " not in told
    assert "workers look at them" not in stado.ok("job", "why", "a")


def test_no_more_is_promised_than_was_reported(stado: Program, world: World) -> None:
    """R208: how old the report is; that it is late; that a batch does not start all at once."""
    report(world, "a@box", age_seconds=12)
    result = stado("submit", "--run-id", "six", "--batch", "-", stdin=b"one\n" * 6)
    told = (
        r"; the first should start in a moment: a@box has room, by its report of [1-9][0-9] s ago\n"
    )
    assert re.search(told, result.stderr)
    report(world, "a@box", age_seconds=2 * 3600)
    result = stado("submit", "--run-id", "one", "run", "--priority", "1")
    told = (
        r"; it starts once a worker is heard: a@box had room, but was not heard for 7[2-9]\d\d s\n"
    )
    assert re.search(told, result.stderr)


def test_a_submission_stands_though_nobody_can_see_what_it_waits_for(
    stado: Program, world: World
) -> None:
    reports = world.path / "capacity"
    reports.symlink_to("capacity")
    result = stado("submit", "--run-id", "a", "run")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.splitlines()[0].endswith(f"submitted job {result.stdout.strip()} (run a)")
    reports.unlink()
    assert stado.json("job", "show", "a")["status"] == "queued"


def test_a_large_batch_is_counted_and_told_how_to_watch(stado: Program, world: World) -> None:
    lines = "".join(f"job {number}\n" for number in range(1200)).encode()
    result = stado("submit", "--run-id", "sweep", "--batch", "-", stdin=lines)
    ids = result.stdout.splitlines()
    assert len(ids) == 1200
    batch = ids[0].rpartition("-")[0]
    told = (
        rf"submitted 1,200 jobs as batch {batch} \(run sweep\)( in \d+(\.\d)?s)?; they start when "
    )
    assert re.match(told, result.stderr)
    assert f"next: stado status {batch} --watch" in result.stderr


def test_the_answer_is_one_json_document(stado: Program, world: World) -> None:
    single = stado.json("submit", "--run-id", "x", "run")
    assert single["job_ids"] == [stado.ok("submit", "--run-id", "x", "run")]
    assert (single["batch_id"], single["created"], single["run_id"]) == (None, True, "x")
    assert stado.json("submit", "--run-id", "x", "run")["created"] is False


def test_a_refusal_leaves_stdout_empty_with_json_too(stado: Program, world: World) -> None:
    stado.refused("submit", "--run-id", "x", "--priority", "-1", "run", "--json")


def wait_while(stado: Program, world: World, act: str, exit_code: int = 0) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a `submit --wait` whose job is moved along meanwhile."""
    process = stado.start("submit", "--run-id", "waited", "run", "--wait")
    assert process.stdout is not None
    job_id = process.stdout.readline().decode().strip()
    if act == "fail":
        world.fail(job_id, exit_code)
    elif act == "complete":
        world.complete(job_id)
    else:
        stado.ok("cancel", job_id)
    ((code, out, err),) = run_each([process])
    return code, out.decode(), err.decode()


@pytest.mark.parametrize(
    ("act", "exit_code", "expected"),
    [
        ("complete", 0, 0),
        ("fail", 7, 7),
        ("fail", 125, 125),
        ("fail", -9, 1),
        ("fail", 126, 1),
        ("cancel", 0, 3),
    ],
)
def test_waiting_ends_as_the_job_did(
    stado: Program, world: World, act: str, exit_code: int, expected: int
) -> None:
    code, _, err = wait_while(stado, world, act, exit_code)
    assert code == expected
    assert err.splitlines()[-1].startswith("job ")
    if act == "complete":
        assert " completed in " in err.splitlines()[-1]


def test_waiting_for_a_batch_ends_with_1_unless_all_completed(stado: Program, world: World) -> None:
    args = ("submit", "--run-id", "sweep", "--batch", "-")
    first, second = stado.ok(*args, stdin=b"one\ntwo\n").splitlines()
    world.complete(first)
    world.fail(second, 2)
    result = stado(*args, "--wait", stdin=b"one\ntwo\n")
    assert result.exit_code == 1
    assert "2 of 2 ended: 1 completed, 1 failed" in result.stderr
    document = json.loads(stado(*args, "--wait", "--json", stdin=b"one\ntwo\n").stdout)
    assert document["statuses"] == {first: "completed", second: "failed"}


# --- code that goes along ---------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "train.py").write_text("print(1)\n")
    return tree


def test_a_folder_is_taken_along_and_said_so(stado: Program, world: World, tree: Path) -> None:
    """R24: where it came from is in the record, as `job show` tells it."""
    (tree / "out").symlink_to("/etc")
    result = stado("submit", "--run-id", "one", "--workdir", str(tree), "python train.py")
    assert result.exit_code == 0, result.stderr
    told = " ".join(result.stderr.split())
    assert f"takes along {tree}: snapshot " in told
    assert ": 1 file, 9 bytes" in told
    assert "not taken: out: a link that leads out of the folder" in told
    shown = stado.json("job", "show", "one")
    assert shown["snapshot"]["files"] == 1
    assert (shown["snapshot"]["commit"], shown["snapshot"]["dirty"]) == (None, False)
    assert f"snapshot  {shown['snapshot']['digest'][:12]} (1 file, 9 bytes)" in stado.ok(
        "job", "show", "one"
    )


def test_the_same_files_are_the_same_submission_and_other_files_are_refused(
    stado: Program, world: World, tree: Path
) -> None:
    """R24, R130: by content, not by times."""
    words = ("submit", "--run-id", "one", "--workdir", str(tree), "python train.py")
    job_id = stado.ok(*words)
    objects = objects_of(world)
    os.utime(tree / "train.py", (1, 1))
    assert stado.ok(*words) == job_id
    (tree / "train.py").write_text("print(2)\n")
    sentence = stado.refused(*words)
    assert "belongs to another request: snapshot: '" in " ".join(sentence.split())
    assert objects_of(world) == objects, "nothing was uploaded for what is refused"


@pytest.mark.parametrize(
    ("names", "words", "said"),
    [
        ([".env"], (), ".env (by its name) looks like a secret"),
        (["sub/id_rsa", ".netrc"], (), ".netrc (by its name), sub/id_rsa (by its name) look like"),
        (["big"], ("--workdir-limit-mb", "0.0001"), "The largest: big ("),
        ([], ("--require-clean",), "is no checkout of a commit"),
        ([], ("--host-dir", "/srv"), "--workdir and --host-dir each say"),
        ([], ("--repo", "/srv/a", "--repo-ref", "0" * 40), "--workdir and --repo each say"),
    ],
)
def test_a_folder_that_must_not_go_along_is_refused_before_anything_is_written(
    stado: Program, world: World, tree: Path, names: list[str], words: tuple[str, ...], said: str
) -> None:
    """R24"""
    for name in names:
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text("x" * 200)
    before = objects_of(world)
    sentence = stado.refused("submit", "--run-id", "one", "--workdir", str(tree), *words, "true")
    assert said in " ".join(sentence.split())
    assert objects_of(world) == before


def test_the_ten_largest_files_are_named_when_there_is_too_much(
    stado: Program, world: World, tree: Path
) -> None:
    for number in range(12):
        (tree / f"data-{number:02}").write_bytes(b"x" * 1024 * (number + 1))
    words = ("submit", "--run-id", "one", "--workdir", str(tree), "--workdir-limit-mb")
    sentence = " ".join(stado.refused(*words, "0.05", "true").split())
    assert "have 78 KiB, more than 0.05 MiB. The largest: data-11 (12 KiB), data-10" in sentence
    assert "data-02 (3 KiB). Name what" in sentence
    assert ".stadoignore, or raise the limit with --workdir-limit-mb" in sentence
    (tree / ".stadoignore").write_text("data-*\n")
    stado.ok(*words, "0.05", "true")


def test_a_dirty_tree_is_taken_and_said_so_or_refused_on_request(
    stado: Program, world: World, tree: Path
) -> None:
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "x")):
        identity = ("-c", "user.name=ada", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *words], cwd=tree, check=True)
    clean = ("submit", "--require-clean", "--workdir", str(tree), "--run-id")
    stado.ok(*clean, "clean", "true")
    assert stado.json("job", "show", "clean")["snapshot"]["dirty"] is False
    (tree / "train.py").write_text("print(2)\n")
    (tree / "new").write_text("x")
    sentence = " ".join(stado.refused(*clean, "dirty", "true").split())
    assert "differs from commit" in sentence
    assert "in new, train.py (1 of them untracked): commit that, or leave --req" in sentence
    result = stado("submit", "--workdir", str(tree), "--run-id", "dirty", "true")
    told = " ".join(result.stderr.split())
    assert "it differs in new, train.py (1 of them untracked)" in told
    assert stado.json("job", "show", "dirty")["snapshot"]["dirty"] is True


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--repo", "/srv/a"), "--repo needs --repo-ref COMMIT"),
        (("--repo-ref", "0" * 40), "--repo-ref says nothing without --repo"),
        (("--repo-workdir", "a"), "--repo-workdir says nothing without --repo"),
        (("--require-clean",), "--require-clean says nothing without --workdir"),
        (("--workdir-limit-mb", "9"), "--workdir-limit-mb says nothing without --workdir"),
        (("--repo", "/srv/a", "--repo-ref", "main"), "name of a branch or a tag"),
        (("--repo", "https://a:b@c/d", "--repo-ref", "0" * 40), "carries a user or a password"),
        (
            ("--repo", "/srv/a", "--repo-ref", "0" * 40, "--repo-workdir", "../x"),
            "does not leave the repository",
        ),
        (("--workdir", "/no/such/folder"), "--workdir '/no/such/folder' does not exist"),
    ],
)
def test_words_that_say_nothing_exact_are_refused(
    stado: Program, world: World, words: tuple[str, ...], said: str
) -> None:
    """R138"""
    sentence = stado.refused("submit", "--run-id", "one", *words, "true")
    assert said in " ".join(sentence.split())


def test_a_commit_is_named_by_options_and_shown(stado: Program, world: World) -> None:
    """R138"""
    words = ("--repo", "git@host:lab.git", "--repo-ref", "0" * 40, "--repo-workdir", "train")
    stado.ok("submit", "--run-id", "one", *words, "true")
    shown = stado.json("job", "show", "one")
    assert shown["repo"] == {"url": "git@host:lab.git", "commit": "0" * 40, "folder": "train"}
    assert f"repo      git@host:lab.git at commit {'0' * 40}, folder train" in stado.ok(
        "job", "show", "one"
    )


@pytest.mark.parametrize(
    ("after", "text"),
    [
        ("last:banana", "'banana' is no way to end; after the colon stands ok, any, fail"),
        ("last:", "'' is no way to end; after the colon stands ok, any, fail"),
        ("", " names no job: write JOB, or JOB:ok, JOB:any, JOB:fail"),
        (":any", " names no job: write JOB, or JOB:ok, JOB:any, JOB:fail"),
    ],
)
def test_what_cannot_be_waited_for_is_named(
    stado: Program, world: World, after: str, text: str
) -> None:
    stado.ok("submit", "--run-id", "x", "true")
    assert stado.refused("submit", "--run-id", "y", "--after", after, "true").endswith(text)
