"""A report folder belongs to the job: whatever it puts there, nobody waits for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stado.core.records import Progress
from stado.reports import LIVE_NAME, PROGRESS_NAME, REFUSAL_NAME, REPORT_BYTES_MAX
from stado_agent.report_folder import ReportFolder

HALF = b'{"fraction": 0.5, "text": "half"}'


def test_progress_is_read_anew_when_it_was_replaced_and_kept_when_it_is_nonsense(
    tmp_path: Path,
) -> None:
    reports, file = ReportFolder(tmp_path), tmp_path / PROGRESS_NAME
    assert reports.progress() is None
    file.write_bytes(HALF)
    assert reports.progress() == Progress(fraction=0.5, text="half")
    file.write_bytes(b'{"fraction": 0.')
    assert reports.progress() == Progress(fraction=0.5, text="half")
    file.unlink()
    file.write_bytes(b'{"fraction": 0.75}')
    assert reports.progress() == Progress(fraction=0.75)
    file.unlink()
    assert reports.progress() == Progress(fraction=0.75)


def test_a_live_view_is_the_last_url_until_its_file_is_gone_or_empty(tmp_path: Path) -> None:
    reports, file = ReportFolder(tmp_path), tmp_path / LIVE_NAME
    assert reports.live() is None
    file.write_text("http://host:6006\n")
    assert reports.live() == reports.live() == "http://host:6006"
    file.write_text("https://host/lab")
    assert reports.live() == "https://host/lab"
    file.write_text("")
    assert reports.live() is None
    file.write_text("http://host:6007")
    assert reports.live() == "http://host:6007"
    file.unlink()
    assert reports.live() is None


def test_what_is_no_live_view_changes_nothing_and_is_said_once(tmp_path: Path) -> None:
    """R125: without what it was, which may be a password."""
    said: list[str] = []
    reports, file = ReportFolder(tmp_path, say=said.append), tmp_path / LIVE_NAME
    file.write_text("http://host:6006")
    assert reports.live() == "http://host:6006"
    for text in ("http://ada:secret@host/", "no url", "x" * 100_000):
        file.write_text(text)
        assert reports.live() == "http://host:6006"
    (told,) = said
    assert told.startswith("the live view that the job states is ignored: its URL has a user or a ")
    assert "secret" not in told


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_link(path: Path) -> None:
    elsewhere = path.with_name("elsewhere")
    elsewhere.write_bytes(b"http://host/" if path.name == LIVE_NAME else HALF)
    path.symlink_to(elsewhere)


def make_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("make", [make_pipe, make_link, make_folder])
def test_what_is_no_regular_file_says_nothing(tmp_path: Path, make: object) -> None:
    assert callable(make)
    for name in (PROGRESS_NAME, REFUSAL_NAME, LIVE_NAME):
        (folder := tmp_path / name.partition(".")[0]).mkdir()
        make(folder / name)
        assert ReportFolder(folder).progress() is None
        assert ReportFolder(folder).live() is None
        assert ReportFolder(folder).find_refusal() is None


def test_no_more_than_a_few_kilobytes_are_read(tmp_path: Path) -> None:
    with (tmp_path / REFUSAL_NAME).open("wb") as file:
        file.write(b"too late ")
        file.truncate(1 << 40)
    refusal = ReportFolder(tmp_path).find_refusal()
    assert refusal == "too late"
    assert REPORT_BYTES_MAX < 1 << 20


def test_what_is_secret_is_masked_before_anything_is_cut_off(tmp_path: Path) -> None:
    """The mask may be longer than what it hides: what is left still fits a heartbeat."""

    def mask(text: str) -> str:
        return text.replace("key", "[masked]")

    reports = ReportFolder(tmp_path, mask)
    (tmp_path / PROGRESS_NAME).write_text(f'{{"fraction": 0.5, "text": "{"." * 198}key, key"}}')
    (tmp_path / REFUSAL_NAME).write_text("." * 1_022 + "key is wrong")
    told = reports.progress()
    assert told is not None
    assert told.text == "." * 198 + "[…"
    refusal = reports.find_refusal()
    assert refusal == "." * 1_022 + "[…"


def test_a_folder_that_is_gone_says_nothing(tmp_path: Path) -> None:
    reports = ReportFolder(tmp_path / "gone")
    assert (reports.progress(), reports.find_refusal()) == (None, None)
