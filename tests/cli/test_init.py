"""What `stado init` takes for a store of its own, and how it names it to a shell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from stado.composition import live_machine, open_store_of
from stado.core import keys
from stado.settings import Settings
from tests.cli.conftest import Program
from tests.servers.catalogue import SERVERS

ASIDE = "--among-other-files"


def test_a_folder_with_other_files_is_refused_and_stays_as_it_was(
    stado: Program, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    for name in ("data", "src"):
        (project / name).mkdir(parents=True)
    for name in (".gitignore", "README.md", "train.py"):
        (project / name).write_text("")
    before = sorted(os.listdir(project))
    assert stado.refused("init", str(project)) == (
        f"{project} is no stado store, and holds something else: .gitignore, README.md, data/ and "
        f"2 more. Name a place of its own, such as {project}/stado, or give {ASIDE}"
    )
    assert sorted(os.listdir(project)) == before
    assert stado.json("init", str(project), ASIDE)["created"] is True
    assert stado.json("init", str(project))["created"] is False


def test_an_empty_folder_and_what_an_init_that_was_killed_left_are_taken(
    stado: Program, tmp_path: Path
) -> None:
    """lost+found is what an empty disk holds."""
    for name in ("empty/lost+found", "begun/.tmp", f"begun/.locks/{keys.PROOF}", "left"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "left" / keys.PROOF).mkdir(parents=True)
    for name in ("empty", "begun", "left"):
        assert stado.json("init", str(tmp_path / name))["created"] is True


def test_a_folder_that_cannot_be_read_is_not_taken_for_an_empty_one(
    stado: Program, tmp_path: Path
) -> None:
    long = tmp_path / ("x" * 300)
    assert "File name too long" in stado.refused("init", str(long))


@pytest.mark.parametrize("name", ["seaweedfs", "fake-gcs"])
def test_a_bucket_with_other_objects_is_refused(
    stado: Program, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STADO_STORE")
    with SERVERS[name]() as server:
        server.make_bucket("bucket")
        for variable, value in server.environment.items():
            monkeypatch.setenv(variable, value)
        root = f"{server.scheme}://bucket"
        there = ("--endpoint", server.endpoint)
        assert stado.json("init", f"{root}/photos", *there)["created"] is True
        assert stado.json("init", f"{root}/photos", *there)["created"] is False
        assert stado.refused("init", root, *there) == (
            f"{root} is no stado store, and holds something else: photos/. Name a place of its "
            f"own, such as {root}/stado, or give {ASIDE}"
        )
        assert stado.json("init", root, *there, ASIDE)["created"] is True
        store = open_store_of(Settings(root, server.endpoint), live_machine())
        store.create_many([(f"aside/{number:03}", b"") for number in range(120)])
        store.close()
        assert stado.json("init", root, *there)["created"] is False


def test_what_it_prints_for_a_shell_leaves_no_variable_of_another_store(
    stado: Program, tmp_path: Path, environment: dict[str, str]
) -> None:
    left = {"STADO_STORE": "s3://old", "STADO_ENDPOINT": "http://old", "STADO_CONTEXT": "gone"}
    process = stado.start("init", str(tmp_path / "queue"), environment=left)
    printed, _ = process.communicate(timeout=60)
    shell = subprocess.run(
        ["sh", "-c", f'{printed.decode()}\necho "$STADO_STORE,$STADO_ENDPOINT,$STADO_CONTEXT"'],
        env=left,
        capture_output=True,
        check=True,
        text=True,
    )
    assert shell.stdout == f"{tmp_path}/queue,,\n"


def test_two_stores_are_refused_and_neither_is_made(stado: Program, tmp_path: Path) -> None:
    sentence = stado.refused("init", str(tmp_path / "a"), "--store", str(tmp_path / "b"))
    assert "STORE and --store name two stores: state one of them." in sentence
    assert os.listdir(tmp_path) == ["home"]
