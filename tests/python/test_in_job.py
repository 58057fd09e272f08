"""What a program says to stado while it runs as a job; and that it may run as none."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import stado
from stado.core.reported import live_of, progress_of, refusal_of
from stado.core.sidecar import NAME, CheckpointMeta, parse_sidecar
from stado.in_job import RESULT_BYTES_MAX
from stado.reports import LIVE_NAME, PROGRESS_NAME, REFUSAL_NAME, REFUSED_EXIT_CODE

FOLDERS = {"STADO_OUTPUT_DIR": "output", "STADO_CHECKPOINT_DIR": "checkpoints"} | {
    "STADO_REPORT_DIR": "report"
}


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The workspace of a job, in which this program runs."""
    for variable, name in FOLDERS.items():
        (tmp_path / name).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / name))
    return tmp_path


@pytest.fixture
def no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable in FOLDERS:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(step: int, content: str, **said: Any) -> None:
    with stado.checkpoint(step=step, **said) as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "weights").write_text(content)


def files_in(folder: Path) -> list[str]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(path.relative_to(folder).as_posix() for path in found)


def contents_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in files_in(folder)}


def latest() -> tuple[int, str] | None:
    found = stado.latest_checkpoint()
    if found is None:
        return None
    return found.step, (found.folder / "deep" / "weights").read_text()


# Checkpoints


def test_a_checkpoint_takes_the_place_of_the_one_before(job: Path) -> None:
    assert latest() is None
    save(100, "a", metric="accuracy", value=0.5)
    assert latest() == (100, "a")
    save(200, "b", metric="accuracy", value=np.float32(0.75))
    assert latest() == (200, "b")
    assert files_in(job / "checkpoints") == [NAME, "step-000000000200/deep/weights"]
    save(200, "b2", metric="loss", value=1, higher_is_better=False)
    save(50, "again from the beginning")
    assert latest() == (50, "again from the beginning")
    assert files_in(job / "report") == []


@pytest.mark.parametrize(
    ("said", "meta"),
    [
        ({}, CheckpointMeta(step=7)),
        ({"value": 0.5}, CheckpointMeta(step=7, value=0.5)),
        (
            {"metric": "loss", "value": np.float64(2.5), "higher_is_better": False},
            CheckpointMeta(step=7, metric="loss", value=2.5, higher_is_better=False),
        ),
    ],
)
def test_what_is_said_of_a_checkpoint_is_read_as_it_was_said(
    job: Path, said: dict[str, Any], meta: CheckpointMeta
) -> None:
    save(7, "w", **said)
    assert parse_sidecar((job / "checkpoints" / NAME).read_bytes()).meta == meta


def test_a_block_that_raises_changes_nothing(job: Path) -> None:
    save(1, "good", value=1.0)
    before = contents_of(job / "checkpoints")
    with pytest.raises(RuntimeError, match="out of memory"), stado.checkpoint(step=2) as folder:
        (folder / "half").write_text("half")
        raise RuntimeError("out of memory")
    with pytest.raises(ValueError, match="the checkpoint is empty"), stado.checkpoint(step=2):
        pass
    assert contents_of(job / "checkpoints") == before
    assert files_in(job / "report") == []


def test_nothing_is_in_the_folder_before_the_block_ends(job: Path) -> None:
    with stado.checkpoint(step=1) as folder:
        (folder / "weights").write_text("half")
        assert list((job / "checkpoints").iterdir()) == []


def test_a_checkpoint_moves_from_one_file_system_to_another(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == job.stat().st_dev:
        other = job
    with TemporaryDirectory(dir=other) as report:
        monkeypatch.setenv("STADO_REPORT_DIR", report)
        save(3, "moved")
        assert latest() == (3, "moved")
        assert os.listdir(report) == []


def test_the_metrics_before_a_checkpoint_come_back_with_it(job: Path) -> None:
    file = job / "output" / "metrics.jsonl"
    stado.metrics(1, loss=0.5)
    save(1, "w")
    stado.metrics(2, loss=0.25)
    file.unlink()  # the next epoch has an output folder of its own
    assert latest() == (1, "w")
    stado.metrics(2, loss=0.25)
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [1, 2]
    assert latest() == (1, "w")
    assert len(file.read_text().splitlines()) == 2


# Progress, metrics, result


def test_progress_is_what_a_supervisor_reads(job: Path) -> None:
    stado.progress(0.5, "round 3 of 6")
    stado.progress(np.float64(1.0000001), "x" * 5_000)
    told = progress_of((job / "report" / PROGRESS_NAME).read_bytes())
    assert told is not None
    assert (told.fraction, told.text) == (1.0, "x" * 199 + "…")
    assert files_in(job / "report") == [PROGRESS_NAME]


def test_progress_that_cannot_be_written_is_no_error(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job / "file").touch()
    monkeypatch.setenv("STADO_REPORT_DIR", str(job / "file"))
    stado.progress(0.5)


def test_a_live_view_is_what_a_supervisor_reads(job: Path) -> None:
    """R125"""
    stado.live("http://host:6006")
    stado.live("http://host:6007/lab\n")
    assert live_of((job / "report" / LIVE_NAME).read_bytes()) == "http://host:6007/lab"
    assert files_in(job / "report") == [LIVE_NAME]


def test_metrics_are_a_line_a_call(job: Path) -> None:
    stado.metrics(1, loss=0.5, accuracy=np.float32(0.25))
    stado.metrics(np.int64(2), loss=3, share=Fraction(1, 4))
    assert (job / "output" / "metrics.jsonl").read_text() == (
        '{"step": 1, "loss": 0.5, "accuracy": 0.25}\n{"step": 2, "loss": 3, "share": 0.25}\n'
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: stado.metrics(1, loss=math.nan),
        lambda: stado.metrics(1, loss=-math.inf),
        lambda: stado.metrics(1, loss="0.5"),  # type: ignore[arg-type]
        lambda: stado.metrics(1, done=True),
        lambda: stado.metrics(-1, loss=1),
        lambda: stado.metrics(1.5, loss=1),  # type: ignore[arg-type]
        lambda: stado.progress(math.nan),
        lambda: stado.progress("half"),  # type: ignore[arg-type]
        lambda: save(-1, "w"),
        lambda: save(1, "w", value=math.nan),
        lambda: save(1, "w", metric="loss"),
        lambda: save(1, "w", metric="two words", value=1),
        lambda: save(1, "w", metric="x" * 65, value=1),
        lambda: stado.result({"loss": math.nan}),
        lambda: stado.result({"text": "x" * RESULT_BYTES_MAX}),
        lambda: stado.refuse(" \n"),
        lambda: stado.live(""),
        lambda: stado.live("host:6006"),
        lambda: stado.live("http://ada:secret@host/"),
    ],
)
@pytest.mark.parametrize("where", ["job", "no_job"])
def test_nonsense_is_an_error_in_a_job_and_outside_and_leaves_nothing(
    call: Callable[[], object], where: str, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(where)
    with pytest.raises(ValueError, match=r"\w"):
        call()
    assert files_in(folder) == []


def test_the_last_result_counts_and_is_whole(job: Path) -> None:
    stado.result({"accuracy": 0.5})
    stado.result({"accuracy": 0.75, "labels": ["a", None, True]})
    for wrong in ([1], {"model": object()}):
        with pytest.raises(TypeError):
            stado.result(wrong)  # type: ignore[arg-type]
    assert json.loads((job / "output" / "result.json").read_text()) == {
        "accuracy": 0.75,
        "labels": ["a", None, True],
    }
    assert files_in(job / "output") == ["result.json"]


# Refusing


@pytest.mark.parametrize("where", ["job", "no_job"])
def test_a_refusal_ends_the_program_with_its_reason(
    where: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """R81"""
    folder: Path = request.getfixturevalue(where)
    with pytest.raises(SystemExit) as ended:
        stado.refuse("iteration 300 is covered already \N{EN DASH} nothing to do")
    assert ended.value.code == REFUSED_EXIT_CODE
    assert capsys.readouterr().err.startswith("refused: iteration 300 is covered")
    file = folder / "report" / REFUSAL_NAME
    assert file.exists() == (where == "job")
    if file.exists():
        assert refusal_of(file.read_bytes()).endswith("already \N{EN DASH} nothing to do")


# Outside of a job


def test_outside_of_a_job_nothing_is_kept(no_job: Path) -> None:
    with stado.checkpoint(step=1, value=0.5) as folder:
        (folder / "weights").write_text("w")
    assert not folder.exists()
    assert stado.latest_checkpoint() is None
    stado.progress(0.5, "half")
    stado.live("http://host:6006")
    stado.metrics(1, loss=0.5)
    stado.result({"a": 1})
    assert list(no_job.iterdir()) == []


def test_folders_that_somebody_names_by_hand_are_made_and_used(
    no_job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STADO_OUTPUT_DIR", "out/here")
    monkeypatch.setenv("STADO_CHECKPOINT_DIR", str(no_job / "saved"))
    stado.result({"a": 1})
    save(1, "w")
    assert latest() == (1, "w")
    assert files_in(no_job) == [
        "out/here/result.json",
        "saved/stado-checkpoint.json",
        "saved/step-000000000001/deep/weights",
    ]


# What it costs to import

HEAVY = ("msgspec", "click", "rich", "psutil", "tenacity", "boto3", "google", "tomlkit")


def modules_after(code: str, environment: dict[str, str] | None = None) -> set[str]:
    """What a fresh interpreter has loaded besides what it loads by itself."""
    report = f"import sys; before = set(sys.modules); {code}; print(*set(sys.modules) - before)"
    argv = [sys.executable, "-c", report]
    env = {"PYTHONPATH": str(Path(stado.__file__).parents[1]), **(environment or {})}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_importing_stado_imports_nothing_else() -> None:
    assert modules_after("import stado; dir(stado)") == {"stado"}


def test_a_job_loads_a_handful_of_modules_of_the_standard_library(job: Path) -> None:
    environment = {name: os.environ[name] for name in FOLDERS}
    loaded = modules_after("import stado; stado.progress, stado.checkpoint", environment)
    assert not {*HEAVY, "typing", "json", "pathlib"} & loaded
    assert len(loaded) < 30, sorted(loaded)
    used = modules_after("import stado; stado.progress(0.5); stado.metrics(1, a=1)", environment)
    assert not {*HEAVY} & used


def test_what_a_killed_save_left_is_in_nobodys_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A copy that was cut, and one that was about to be removed."""
    folder = tmp_path / "checkpoints"
    monkeypatch.setenv("STADO_CHECKPOINT_DIR", str(folder))
    monkeypatch.setenv("STADO_REPORT_DIR", str(tmp_path / "report"))
    for name in (".step-000000000005", ".old-step-000000000300"):
        (folder / name).mkdir(parents=True)
        (folder / name / "half").write_text("half")
    with stado.checkpoint(step=300) as building:
        (building / "weights").write_text("later")
    with stado.checkpoint(step=5) as building:
        (building / "weights").write_text("w")
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["step-000000000005"]
    found = stado.latest_checkpoint()
    assert found is not None
    assert (found.folder / "weights").read_text() == "w"
