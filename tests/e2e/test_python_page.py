"""docs/python.md: its programs run as they are printed, and print what it says."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path

import pytest

import stado
from stado.core.states import State
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import ROOT, SMALL

_BLOCK = re.compile(r"^```(python|text|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\w+\.py)\n")


def blocks() -> list[tuple[str, str]]:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    return [(found[1], found[2]) for found in _BLOCK.finditer(page)]


def test_the_page_runs_as_it_is_printed(
    make_fleet: MakeFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R81, R116"""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setenv("USER", "ada")
    fleet = make_fleet()
    for name, value in fleet.settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    fleet.agent("one", "--poll-seconds", "0.1")
    names: dict[str, object] = {"FOLDER": str(tmp_path)}
    printed = ""
    for kind, text in blocks():
        file = _FILE.match(text)
        if file is not None:
            (tmp_path / file[1]).write_text(text)
        elif kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(text, names)
            printed = output.getvalue()
        elif kind == "text":
            assert printed == text
        else:
            refused = fleet.submit(text, spec=SMALL)
            assert set(fleet.wait_at_rest(refused).values()) == {State.FAILED}
            status = stado.job(refused.job_ids[0]).status()
            assert (status.reason, status.exit_code) == ("job_refused", 86)
            assert status.detail == "there is no input for today"


def test_the_page_tells_of_every_name() -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    untold = [name for name in stado.__all__ if not re.search(rf"\b{name}\b", page)]
    assert untold == ["Checkpoint", "JobError", "JobOptions"]  # what others give, hold or take
