"""Stores by names of one's own: `stado context`, and `--context` of every command."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from stado.core import keys
from tests.cli.conftest import Program, World, make_world, run_each


@pytest.fixture
def config(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config file of a user whose shell names no store."""
    monkeypatch.delenv("STADO_STORE")
    return Path(environment["HOME"], ".config/stado/config.toml")


def test_a_store_that_was_given_a_name_is_worked_on_by_it(
    stado: Program, config: Path, tmp_path: Path
) -> None:
    lab, office = make_world(tmp_path / "lab"), make_world(tmp_path / "office")
    stado.ok("context", "add", "lab", "--store", str(lab.path), "--use")
    stado.ok("context", "add", "office", "--store", str(office.path))
    job_id = stado.ok("submit", "--run-id", "x", "run", "--context", "office")
    assert stado.json("status")["jobs"] == []
    assert [job["job_id"] for job in stado.json("status", "--context", "office")["jobs"]] == [
        job_id
    ]
    stado.ok("context", "use", "office")
    assert [job["job_id"] for job in stado.json("status")["jobs"]] == [job_id]


def test_the_list_shows_each_context_and_marks_the_current_one(
    stado: Program, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stado.ok("context", "add", "lab", "--store", "s3://lab", "--endpoint", "http://lab:9000")
    stado.ok("context", "add", "here", "--store", "/queue", "--use")
    assert stado.ok("context", "list").splitlines() == [
        "   NAME  STORE     ENDPOINT",
        "   lab   s3://lab  http://lab:9000",
        "*  here  /queue    -",
    ]
    listed = stado.json("context", "list")
    assert listed["current"] == "here"
    assert listed["contexts"][0] == {
        "name": "lab",
        "store": "s3://lab",
        "endpoint": "http://lab:9000",
        "region": None,
        "current": False,
    }
    monkeypatch.setenv("STADO_CONTEXT", "lab")
    assert stado.json("context", "list")["current"] == "lab"
    assert (
        "but here the context lab (STADO_CONTEXT) counts first" in stado("context", "list").stderr
    )


def test_a_list_of_none_says_how_to_make_one(stado: Program, config: Path) -> None:
    result = stado("context", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "has no contexts: `stado context add NAME --store …` makes one" in result.stderr
    assert stado.json("context", "list")["contexts"] == []


def test_the_list_stays_to_be_had_when_the_current_context_does_not_exist(
    stado: Program, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stado.ok("context", "add", "lab", "--store", "s3://lab")
    monkeypatch.setenv("STADO_CONTEXT", "lap")
    result = stado("context", "list")
    assert result.exit_code == 0
    assert "s3://lab" in result.stdout
    assert "STADO_CONTEXT: there is no context 'lap'; did you mean 'lab'?" in result.stderr


def test_a_folder_is_named_by_its_whole_path(
    stado: Program, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stado.ok("context", "add", "here", "--store", "./queue")
    stado.ok("context", "add", "mine", "--store", "~/queue")
    stores = {one["name"]: one["store"] for one in stado.json("context", "list")["contexts"]}
    assert stores == {"here": str(tmp_path / "queue"), "mine": str(tmp_path / "home/queue")}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("lab", "--store", "s3:/lab"), "did you mean s3://lab?"),
        (("lab", "--store", ""), "no store is given"),
        (("lab", "--store", "ftp://lab"), "stores of kind ftp:// are unknown"),
        (("lab", "--store", "s3://lab", "--endpoint", "lab:9000"), "an endpoint is a URL"),
        (("lab",), "Missing option '--store'"),
        (("my lab", "--store", "s3://lab"), "'my lab' cannot name a context"),
        (("a.b", "--store", "s3://lab"), "'a.b' cannot name a context"),
        (("lab\udcff", "--store", "s3://lab"), "is not valid UTF-8"),
    ],
)
def test_what_cannot_be_a_context_is_refused_and_nothing_is_written(
    stado: Program, config: Path, options: tuple[str, ...], sentence: str
) -> None:
    assert sentence in stado.refused("context", "add", *options)
    assert not config.exists()


def test_a_name_that_is_taken_is_replaced_only_on_demand(stado: Program, config: Path) -> None:
    add = ("context", "add", "lab", "--store")
    stado.ok(*add, "s3://lab", "--endpoint", "http://lab")
    stado.ok(*add, "s3://lab", "--endpoint", "http://lab")
    assert "lab names s3://lab already" in stado.refused(*add, "s3://other")
    assert "lab names s3://lab already" in stado.refused(*add, "s3://lab")
    stado.ok(*add, "s3://other", "--replace")
    shown = stado.json("context", "show", "lab")
    assert (shown["store"], shown["endpoint"]) == ("s3://other", None)


def test_an_unknown_name_is_answered_with_the_near_ones(stado: Program, config: Path) -> None:
    stado.ok("context", "add", "lab", "--store", "s3://lab")
    for command in (("use",), ("remove",), ("show",)):
        sentence = stado.refused("context", *command, "lap")
        assert sentence.startswith("there is no context 'lap'; did you mean 'lab'?")
    assert "did you mean 'lab'?" in stado.refused("status", "--context", "lap")


def test_the_current_context_is_not_removed_under_the_commands(
    stado: Program, config: Path
) -> None:
    stado.ok("context", "add", "lab", "--store", "s3://lab", "--use")
    assert "lab is the current context" in stado.refused("context", "remove", "lab")
    stado.ok("config", "unset", "context")
    stado.ok("context", "remove", "lab")
    assert stado.json("context", "list")["contexts"] == []


def test_show_tells_the_current_one_or_that_there_is_none(
    stado: Program, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stado.ok("context", "add", "lab", "--store", "s3://lab", "--region", "eu", "--use")
    assert stado.ok("context", "show").splitlines() == [
        "lab (current)",
        "  store    s3://lab",
        "  region   eu",
        f"  from     {config}, line 3",
    ]
    monkeypatch.setenv("STADO_STORE", "/queue")
    assert stado.refused("context", "show") == (
        "no context is current: commands work on /queue (STADO_STORE); `stado context use NAME` "
        "chooses one"
    )


def test_choosing_a_context_tells_when_a_variable_counts_first(
    stado: Program, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stado.ok("context", "add", "lab", "--store", "s3://lab")
    assert stado("context", "use", "lab").stderr == "lab is the current context\n"
    monkeypatch.setenv("STADO_STORE", "/queue")
    assert stado("context", "use", "lab").stderr.endswith(
        "but here the store /queue (STADO_STORE) counts first: `unset STADO_STORE`\n"
    )


def test_what_up_starts_works_on_the_store_of_the_context(
    stado: Program, config: Path, tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though another store is named by the environment, which the children inherit."""
    lab = make_world(tmp_path / "lab")
    stado.ok("context", "add", "lab", "--store", str(lab.path))
    process = stado.start(
        *("up", "--context", "lab", "--consumer-id", "local@test"),
        *("--work-dir", str(tmp_path / "work")),
        environment={"STADO_STORE": str(world.path), "STADO_CONTEXT": "gone"},
        start_new_session=True,
    )
    try:
        end = time.monotonic() + 60
        while not (
            lab.repo.store.list(keys.CAPACITY) and (lab.path / keys.COORDINATOR_LEASE).exists()
        ):
            assert time.monotonic() < end, "no agent and coordinator came"
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        ((code, _, err),) = run_each([process])
    finally:
        process.kill()
    assert code == 0, err.decode()
    assert not world.repo.store.list(keys.CAPACITY)
    assert not (world.path / keys.COORDINATOR_LEASE).exists()


# Making a store with a name


def test_init_gives_the_new_store_a_name(stado: Program, config: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "queue")
    result = stado("init", path, "--add-context", "lab")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "lab names it, and is the current context" in result.stderr
    assert stado.json("status")["jobs"] == []
    again = stado.json("init", path, "--add-context", "lab")
    assert (again["created"], again["context"]) == (False, "lab")


def test_init_makes_nothing_when_the_name_is_taken(
    stado: Program, config: Path, tmp_path: Path
) -> None:
    stado.ok("context", "add", "lab", "--store", "s3://lab")
    sentence = stado.refused("init", str(tmp_path / "queue"), "--add-context", "lab")
    assert "lab names s3://lab already" in sentence
    assert sentence.endswith("choose another name, or `stado context add lab --store … --replace`")
    assert os.listdir(tmp_path) == ["home"]
    assert "cannot name" in stado.refused("init", str(tmp_path / "queue"), "--add-context", "a b")
