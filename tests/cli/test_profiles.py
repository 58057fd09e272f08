"""Profiles: listed, shown, checked, and used by whatever submits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import stado as api
from stado.core.spec import Spec
from stado.jobs.finding import find_job
from tests.architecture.source import REPOSITORY
from tests.cli.conftest import Program, World

BUNDLED = sorted(path.stem for path in (REPOSITORY / "profiles").glob("*.json"))
KINDS = sorted(path.stem for path in (REPOSITORY / "profiles" / "kinds").glob("*.json"))

EVERYTHING: dict[str, Any] = {
    "priority": 7,
    "cpu": 2.5,
    "memory_gb": 4,
    "gpus": "a100:2",
    "vram_gb": 40,
    "disk_gb": 9,
    "exclusive": True,
    "pinned_host": "lab-7",
    "label": ["zone=b", "disk=nvme"],
    "machine_type": "large",
    "provider": "local",
    "pin_provider": True,
    "spot": False,
    "max_cost_per_hour": 2.5,
    "boot_disk_gb": 50,
    "model": "resnet",
    "runtime_seconds_estimate": 60,
    "group": "licences",
    "not_before": "2099-01-01T00:00:00Z",
    "yieldable": True,
    "max_yields": 2,
    "deadline_at": "2100-01-01T02:00:00+02:00",
    "timeout": "2h",
    "idle_timeout": 90,
    "body_retries": 3,
    "retries": 4,
    "retry_on": ["body_hung"],
    "retry_delay": "5m",
    "final": True,
    "notify": ["chat:failed"],
    "max_lease_losses": "unlimited",
    "verify": "test -f out",
    "host_dir": "/srv",
    "pre_command": "make",
    "strict_shell": True,
    "image": "lab/train:1",
    "env": {"A": "1", "B": "x=y"},
    "secret_env": {"KEY": "team/db#password"},
    "expect_output": ["a", "b/*"],
    "output_uri": "stado://x",
    "tag": ["v2", "nightly"],
    "type": "play",
    "require_checkpoint": True,
    "input_artifact": {"data": f"https://host/x.csv#sha256={'ab' * 32}"},
    "then": {"export": "make", "eval": "./judge x=y"},
    "then_parallel": True,
    "then_checkpoint": "latest",
    "then_cpu": 2,
    "then_memory_gb": 8,
    "then_gpus": 1,
}
"""All that needs no other job, policy or folder."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of profiles, which counts."""
    path = tmp_path / "mine"
    path.mkdir()
    monkeypatch.setenv("WC_PROFILES_DIR", str(path))
    return path


def write(folder: Path, name: str, **stated: Any) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(stated))
    return path


def spec_of(world: World, job_id: str) -> Spec:
    found = find_job(world.repo, job_id)
    assert found is not None
    return found.record.spec


def test_the_profiles_that_come_with_it_are_listed_and_can_be_used(stado: Program) -> None:
    """R171, R174"""
    listed = stado.ok("profiles")
    assert [line.split()[0] for line in listed.splitlines()[1:]] == BUNDLED
    assert {"pytorch-1gpu", "pytorch-ddp", "cpu-batch", "notebook", "evaluation"} <= set(BUNDLED)
    found = stado.json("profiles")
    assert [one["name"] for one in found["profiles"]] == BUNDLED
    assert all(one["description"] and one["refused"] is None for one in found["profiles"])
    checked = stado.ok("profiles", "check").splitlines()
    assert len(checked) == len(BUNDLED) + len(KINDS)
    assert all(line.endswith(": it can be used") for line in checked)


@pytest.mark.parametrize("name", BUNDLED)
def test_a_name_shows_its_json(stado: Program, name: str) -> None:
    """R174"""
    file = REPOSITORY / "profiles" / f"{name}.json"
    assert json.loads(stado.ok("profiles", name)) == json.loads(file.read_text())
    assert stado.ok("profiles", "show", name) == stado.ok("profiles", name)


def test_the_folder_that_is_named_counts_alone(stado: Program, folder: Path) -> None:
    """R171"""
    write(folder, "ours", cpu=3, description="What we use")
    (folder / "notes.txt").write_text("no profile")
    listed = stado.ok("profiles").splitlines()
    assert [line.split()[0] for line in listed[1:]] == ["ours"]
    said = stado.refused("profiles", "cpu-batch")
    assert said == f"there is no profile 'cpu-batch' in {folder}: there is ours"
    assert "did you mean ours?" in stado.refused("profiles", "our")


def test_a_folder_that_is_none_is_refused_and_nothing_is_taken_in_its_place(
    stado: Program, world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """R173"""
    words = ("submit", "--run-id", "a", "--profile", "cpu-batch", "run")
    file = tmp_path / "a file"
    file.touch()
    for path in (tmp_path / "nothing", file):
        monkeypatch.setenv("WC_PROFILES_DIR", str(path))
        for command in (("profiles",), ("profiles", "cpu-batch"), ("profiles", "check"), words):
            said = stado.refused(*command)
            assert said == f"WC_PROFILES_DIR names {path}, which is not a directory"
        with pytest.raises(api.Refused, match="which is not a directory"):
            api.submit("run", run_id="a", profile="cpu-batch")
    monkeypatch.setitem(os.environ, "WC_PROFILES_DIR", "/n\udcff")
    why = "'utf-8' codec can't decode byte 0xff in position 2: invalid start byte"
    assert stado.refused(*words) == f"WC_PROFILES_DIR cannot be read: {why}"
    monkeypatch.setenv("WC_PROFILES_DIR", "")
    assert stado(*words).exit_code == 0


def test_a_profile_states_what_options_can_and_makes_the_same_request(
    stado: Program, world: World, folder: Path
) -> None:
    """R171"""
    write(folder, "every", command="run", **EVERYTHING)
    job_id = stado.ok("submit", "--run-id", "a", "--profile", "every")
    with pytest.warns(UserWarning, match="image lab/train:1 is named by a tag"):
        job = api.submit(run_id="a", profile="every")
    assert job.id == job_id
    spec = spec_of(world, job_id).plain()
    unstated = Spec(command="").plain()
    unsaid = {name for name, value in spec.items() if value == unstated[name]}
    assert unsaid == {
        "snapshot",
        "repo",
        "start_from",
        "after",
        "array",
        "step_of",
        "workload_kind",
        "terminates_agent",  # not together with what is checked after a command
    }


def test_options_that_are_typed_win_also_where_they_say_what_is_done_anyway(
    stado: Program, world: World, folder: Path
) -> None:
    """R172"""
    write(folder, "every", command="run", **EVERYTHING)
    flags = (
        "exclusive",
        "yieldable",
        "final",
        "strict-shell",
        "require-checkpoint",
    )
    job_id = stado.ok(
        *("submit", "--run-id", "a", "--priority", "0", "--body-retries", "0", "--gpus", "h100"),
        *("--any-provider", "--spot", "--type", "job", "--label", "zone=c", "--env", "B=z"),
        *("--secret-env", "TOKEN=hub#t", "--cpu", "1", "--timeout", "60", "--no-then-parallel"),
        *(f"--no-{flag}" for flag in flags),
        *("--profile", "every", "another"),
    )
    spec = spec_of(world, job_id)
    assert (spec.command, spec.priority, spec.body_retries, spec.cpu) == ("another", 0, 0, 1)
    assert (spec.gpus, spec.gpu_type, spec.labels) == (1, "h100", ["zone=c"])
    assert (spec.pin_provider, spec.spot, spec.type, spec.timeout_seconds) == (
        *(False, "require", "job", 60),
    )
    assert spec.environment == {"A": "1", "B": "z"}
    assert spec.secrets == {"KEY": "team/db#password", "TOKEN": "hub#t"}
    assert not any(getattr(spec, flag.replace("-", "_")) for flag in (*flags, "then-parallel"))
    assert spec.max_yields is None
    assert spec.memory_gb == 4


def test_a_declared_end_of_the_agent_can_be_taken_back(
    stado: Program, world: World, folder: Path
) -> None:
    """R172, R193"""
    write(folder, "update", command="run", terminates_agent=True)
    words = ("submit", "--profile", "update", "--run-id")
    assert spec_of(world, stado.ok(*words, "a")).terminates_agent
    typed = ("--no-terminates-agent", "--verify", "true")
    assert not spec_of(world, stado.ok(*words, "b", *typed)).terminates_agent


def test_a_file_of_variables_wins_over_a_profile_and_what_is_typed_over_both(
    stado: Program, world: World, folder: Path, tmp_path: Path
) -> None:
    """R172"""
    write(folder, "ours", env={"A": "profile", "B": "profile", "C": "profile"})
    variables = tmp_path / "env"
    variables.write_text("B=file\nC=file\n")
    words = ("--env", "C=typed", "--env-file", str(variables), "--profile", "ours", "run")
    job_id = stado.ok("submit", "--run-id", "a", *words)
    assert spec_of(world, job_id).environment == {"A": "profile", "B": "file", "C": "typed"}


def test_a_secret_that_is_typed_wins_over_a_variable_of_the_profile(
    stado: Program, world: World, folder: Path, tmp_path: Path
) -> None:
    """R172: and the other way round; a file of variables does, too."""
    write(folder, "ours", env={"A": "1", "B": "1"}, secret_env={"C": "x#y", "D": "x#y"})
    variables = tmp_path / "env"
    variables.write_text("D=file\n")
    words = ("--secret-env", "B=team#b", "--env", "C=typed", "--env-file", str(variables))
    job_id = stado.ok("submit", "--run-id", "a", *words, "--profile", "ours", "run")
    spec = spec_of(world, job_id)
    assert spec.environment == {"A": "1", "C": "typed", "D": "file"}
    assert spec.secrets == {"B": "team#b"}


def test_the_cards_of_a_profile_can_be_taken_back(
    stado: Program, world: World, folder: Path
) -> None:
    """R172"""
    write(folder, "ours", gpus="a100:2", vram_gb=40, cpu=3)
    spec = spec_of(world, stado.ok("submit", "--run-id", "a", "--profile", "ours", "run"))
    assert (spec.gpus, spec.gpu_type, spec.vram_gb, spec.cpu) == (2, "a100", 40, 3)
    words = ("submit", "--run-id", "b", "--profile", "ours", "--gpus", "0", "run")
    spec = spec_of(world, stado.ok(*words))
    assert (spec.gpus, spec.gpu_type, spec.vram_gb, spec.cpu) == (None, None, None, 3)


def test_a_folder_of_profiles_may_be_called_kinds(
    stado: Program, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked of kinds of workloads is not asked of its profiles."""
    path = tmp_path / "kinds"
    path.mkdir()
    monkeypatch.setenv("WC_PROFILES_DIR", str(path))
    write(path, "small", cpu=1)
    stado.ok("profiles", "small")
    stado.ok("profiles", "check")
    stado.ok("profiles", "check", str(path / "small.json"))
    stado.ok("submit", "--run-id", "a", "--profile", "small", "run")


def test_schedules_take_profiles_as_submissions_do(
    stado: Program, world: World, folder: Path
) -> None:
    """R171, R172"""
    write(folder, "ours", command="nightly", priority=3, cpu=2)
    words = ("schedule", "create", "--name", "n", "--cron", "@daily", "--profile", "ours")
    stado.ok(*words, "--priority", "0")
    job_id = stado.json("schedule", "run", "n")["job_ids"][0]
    spec = spec_of(world, job_id)
    assert (spec.command, spec.priority, spec.cpu) == ("nightly", 0, 2)


def test_python_says_what_wins_in_the_same_way(stado: Program, world: World, folder: Path) -> None:
    """R172"""
    write(folder, "ours", priority=3, exclusive=True, env={"A": "1"}, gpus="a100:2")
    job = api.submit(
        "run", run_id="a", profile="ours", priority=0, exclusive=False, gpus=1, env={"B": "2"}
    )
    spec = spec_of(world, job.id)
    assert (spec.priority, spec.exclusive, spec.gpus, spec.gpu_type) == (0, False, 1, "a100")
    assert spec.environment == {"A": "1", "B": "2"}
    batch = api.submit(commands=["one", "two"], run_id="b", profile="ours")
    assert [spec_of(world, one.id).priority for one in batch] == [3, 3]
    with pytest.raises(TypeError, match="takes a command"):
        api.submit(run_id="c", profile="ours")


def test_a_batch_and_an_array_take_a_profile_too(
    stado: Program, world: World, folder: Path, tmp_path: Path
) -> None:
    write(folder, "ours", cpu=3, command="run {index}")
    (tmp_path / "b").write_text("one\ntwo\n")
    batch = stado.ok("submit", "--run-id", "b", "--profile", "ours", "--batch", str(tmp_path / "b"))
    array = stado.ok("submit", "--run-id", "c", "--profile", "ours", "--array", "0-1")
    specs = [spec_of(world, job_id) for job_id in (*batch.split(), *array.split())]
    assert [spec.command for spec in specs] == ["one", "two", "run 0", "run 1"]
    assert {spec.cpu for spec in specs} == {3}


@pytest.mark.parametrize(
    ("stated", "sentence"),
    [
        ({"priority": -1}, "priority -1 must be nonnegative"),
        ({"cpu": "4"}, 'field cpu must be a number, and not "4"'),
        ({"max_yields": 2}, "max-yields is for jobs that yield"),
        ({"gpus": "a100:2", "gpu_type": "h100"}, "state one"),
        ({"workdir": "a", "host_dir": 3}, "field host_dir must be text"),
        ({"env": {"STADO_X": "1"}}, "environment name STADO_X is reserved"),
        ({"secret_env": {"KEY": "hunter2"}}, "named by item and field, never by its value"),
        ({"secret_env": ["KEY=hunter2"]}, "field secret_env must be an object of texts"),
        ({"then": {"a b": "x"}}, "a b"),
        ({"cpus": 4}, "there is no field 'cpus': did you mean cpu or gpus?"),
    ],
)
def test_a_profile_that_cannot_be_is_refused_with_its_file_wherever_it_is_named(
    stado: Program, world: World, folder: Path, stated: dict[str, Any], sentence: str
) -> None:
    """R171"""
    path = write(folder, "bad", **stated)
    write(folder, "good", cpu=1)
    told = stado.refused("submit", "--run-id", "a", "--profile", "bad", "--cpu", "1", "run")
    assert told.startswith(f"{path}: ")
    assert sentence in told
    assert "hunter2" not in told
    with pytest.raises(api.Refused, match=r"bad\.json: "):
        api.submit("run", run_id="a", profile="bad")
    checked = stado("profiles", "check", str(path))
    assert (checked.exit_code, checked.stderr) == (2, f"stado: {told}\n")
    whole = stado("profiles", "check")
    assert whole.exit_code == 2
    assert whole.stdout == f"{folder / 'good.json'}: it can be used\n"
    assert whole.stderr == f"stado: {told}\n"
    listed = stado.ok("profiles").splitlines()
    assert listed[1].split()[:3] == ["bad", "-", "refused:"]
    assert listed[2].startswith("good  1 core")


def test_a_file_is_checked_before_it_is_put_anywhere(stado: Program, tmp_path: Path) -> None:
    """R171"""
    good = write(tmp_path, "good", cpu=2)
    assert stado.ok("profiles", "check", str(good)) == f"{good}: it can be used"
    assert "cannot be read: No such file" in stado.refused("profiles", "check", "./nothing.json")
    unnamed = tmp_path / "no name"
    unnamed.write_text("{}")
    assert "nobody finds it under that name" in stado.refused("profiles", "check", str(unnamed))
    kinds = tmp_path / "kinds"
    kinds.mkdir()
    kind = write(kinds, "mine", command="run")
    assert "field cpu is missing" in stado.refused("profiles", "check", str(kind))
    assert stado.json("profiles", "check", str(good))["files"] == [
        {"file": str(good), "refused": None}
    ]


def test_profiles_come_with_an_installation(tmp_path: Path) -> None:
    """R171"""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = "import stado.cli.main as m, stado; m.cli.main(['profiles', 'check'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            "PYTHONPATH": str(tmp_path / "site"),
            "HOME": str(tmp_path),
            "PATH": "/usr/bin:/bin",
        },
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    files = [line.split(": ")[0] for line in done.stdout.splitlines()]
    inside = tmp_path / "site" / "stado" / "bundled_profiles"
    expected = [inside / f"{name}.json" for name in BUNDLED]
    expected += [inside / "kinds" / f"{name}.json" for name in KINDS]
    assert files == [str(path) for path in expected]
