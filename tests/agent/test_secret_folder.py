"""Secrets in a folder of the host: which files count, and which are refused by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stado_agent.secret_folder import SecretFolder
from stado_agent.secrets import SecretRefused, SecretUnreachable

VALUE = "a value that is long"


def put(root: Path, name: str, data: bytes = VALUE.encode(), mode: int = 0o600) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_bytes(data)
    path.chmod(mode)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    folder = tmp_path / "secrets"
    folder.mkdir(mode=0o700)
    put(folder, "db/password")
    return folder


def refusal(root: Path, item: str, field: str) -> str:
    with pytest.raises(SecretRefused) as caught:
        SecretFolder(root).read(item, field)
    assert VALUE not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"plain", "plain"),
        (b"one line\n", "one line"),
        (b"one line\r\n", "one line"),
        (b"two\nlines\n\n", "two\nlines\n"),
        (b" kept ", " kept "),
        (b"no \xff text", "no \udcff text"),
    ],
)
def test_a_file_is_a_value_without_one_line_end(root: Path, data: bytes, value: str) -> None:
    put(root, "team/db/field", data)
    assert SecretFolder(root).read("team/db", "field") == value


@pytest.mark.parametrize("mode", [0o400, 0o600])
def test_a_file_of_ones_own_is_read(root: Path, mode: int) -> None:
    put(root, "db/strict", mode=mode)
    assert SecretFolder(root).read("db", "strict") == VALUE


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_is_open_to_others_is_refused_by_name(root: Path, mode: int) -> None:
    put(root, "db/loose", mode=mode)
    assert f"db/loose is open to others (mode {mode:04o})" in refusal(root, "db", "loose")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_refused_by_name(root: Path) -> None:
    os.chown(put(root, "db/foreign"), 12345, -1)
    assert "db/foreign belongs to another user" in refusal(root, "db", "foreign")


def test_a_folder_that_others_may_write_is_refused(root: Path) -> None:
    (root / "db").chmod(0o770)
    assert "the folder db can be written by others" in refusal(root, "db", "password")
    root.chmod(0o777)
    assert "the folder of secrets can be written by others" in refusal(root, "db", "password")


def test_links_are_refused_wherever_they_lead(root: Path, tmp_path: Path) -> None:
    outside = put(tmp_path, "outside/field")
    (root / "db" / "link").symlink_to(outside)
    (root / "linked").symlink_to(outside.parent)
    (root / "db" / "inside").symlink_to(root / "db" / "password")
    assert "link in this host's folder of secrets is a link" in refusal(root, "db", "link")
    assert "linked in this host's folder of secrets is a link" in refusal(root, "linked", "field")
    assert "is a link" in refusal(root, "db", "inside")


@pytest.mark.parametrize(
    ("item", "field"),
    [("..", "x"), ("db/..", "x"), ("/etc", "passwd"), ("db", ".."), ("a//b", "c")],
)
def test_names_that_lead_out_are_refused(root: Path, item: str, field: str) -> None:
    assert "leads out of the folder" in refusal(root, item, field)


def test_what_is_not_there_or_no_file_is_refused(root: Path) -> None:
    assert "no such file" in refusal(root, "db", "other")
    assert "no such file" in refusal(root, "other", "password")
    os.mkfifo(root / "db" / "pipe", 0o600)
    assert "is no file" in refusal(root, "db", "pipe")
    (root / "db" / "folder").mkdir(mode=0o700)
    assert "is no file" in refusal(root, "db", "folder")


def test_a_folder_that_is_away_is_tried_again(root: Path) -> None:
    with pytest.raises(SecretUnreachable, match="Not a directory"):
        SecretFolder(root / "db" / "password").read("db", "password")
