"""A81: a secret that a job shows in every way that it can think of is found nowhere."""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

from stado.core.states import Reason, State
from tests.cli.conftest import Program
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import SMALL, Fleet, wait_for
from tests.jobs.world import stored_log

SECRET = "ab/mArKeR-81 of=a+secret&that'is\"long"
SHOWN = "SHOWN-ON-PURPOSE"

COMMAND = """
echo "plain $TOKEN"
printf '%s' "${TOKEN%?????????????}"; sleep 0.3; printf '%s\\n' "${TOKEN#????????????????????????}"
echo "$TOKEN" | base64
echo "x$TOKEN" | base64
echo "xy$TOKEN" | base64
echo "$TOKEN" >&2
"$PYTHON" -c 'import os, urllib.parse as u; print(u.quote(os.environ["TOKEN"]))'
echo "visible $OPEN" | tee kept
touch "$GATE.reached"
while [ ! -e "$GATE" ]; do sleep 0.05; done
"$TOKEN"
"""


def forms_of(text: str) -> set[bytes]:
    """How it could be recognised: as it is, quoted, in base64 at each of the three places."""
    data = text.encode()
    inner = {base64.b64encode(b"x" * n + data)[4:-4] for n in range(3)}
    return {data, quote(text).encode(), *inner}


FORMS = forms_of(SECRET) | forms_of("mArKeR-81 of=a+secret")


def marked(data: bytes) -> bool:
    return any(form in data for form in FORMS)


def read(path: Path) -> bytes:
    """Nothing of what has been shipped meanwhile, and removed."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def marked_files(folder: Path) -> list[str]:
    """The job's other variable is in there: the search would find what is to be found."""
    contents = {str(path): read(path) for path in folder.rglob("*") if path.is_file()}
    assert any(SHOWN.encode() in content for content in contents.values()), folder
    return [path for path, content in contents.items() if marked(content)]


def marked_processes() -> list[str]:
    """All that show it in their arguments, and those outside the command's own tree in whose
    environment it is."""
    found = []
    for process in psutil.process_iter():
        try:
            arguments = " ".join(process.cmdline()).encode(errors="replace")
            with open(f"/proc/{process.pid}/environ", "rb") as file:
                environment = file.read()
        except (psutil.Error, OSError):
            continue
        own = b"\0TOKEN=" in b"\0" + environment
        if marked(arguments) or (marked(environment) and not own):
            found.append(f"{process.pid} {arguments!r}")
    return found


def secrets_folder(folder: Path) -> Path:
    """Outside of what is searched."""
    item = folder / "vault" / "team" / "db"
    item.mkdir(parents=True, mode=0o700)
    for part in (folder / "vault", folder / "vault" / "team"):
        part.chmod(0o700)
    file = item / "password"
    file.touch(mode=0o600)
    file.write_text(SECRET + "\n")
    return folder / "vault"


def command_line(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Program:
    for name, value in fleet.settings.environment().items():
        monkeypatch.setenv(name, value)
    return Program(os.environ)


def test_a_secret_that_a_job_shows_is_found_nowhere(
    make_fleet: MakeFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R140, A81"""
    fleet = make_fleet()
    vault = secrets_folder(tmp_path / "outside")
    fleet.agent("one", "--secrets-dir", str(vault), "--allow-secret", "team/*")
    gate = tmp_path / "gate"
    python = sys.executable
    spec = SMALL.evolve(
        secrets={"TOKEN": "team/db#password"},
        environment={"GATE": str(gate), "PYTHON": python, "OPEN": SHOWN},
    )
    submission = fleet.submit(COMMAND, spec=spec)
    (job_id,) = submission.job_ids
    wait_for((tmp_path / "gate.reached").exists)
    assert marked_processes() == []
    assert marked_files(tmp_path / "store") == marked_files(tmp_path / "hosts") == []
    gate.touch()
    assert fleet.wait_at_rest(submission) == {job_id: State.FAILED}
    ending = fleet.story(job_id).record.ending
    assert ending is not None
    assert (ending.reason, ending.exit_code) == (Reason.JOB_FAILED, 127)
    log = stored_log(fleet.repo, job_id, 1)
    assert b"plain ***\n***\n***" in log
    assert b"visible SHOWN-ON-PURPOSE\n" in log
    assert not [n for n in range(len(SECRET) - 8) if SECRET[n : n + 8].encode() in log]
    assert marked_files(tmp_path / "store") == []
    assert not marked(fleet.log("one").encode())
    stado = command_line(fleet, monkeypatch)
    for words in (
        *(["job", "show", job_id], ["job", "show", job_id, "--json"], ["status", "--json"]),
        *(["logs", job_id], ["job", "watch", job_id], ["doctor"], ["hosts", "--json"]),
    ):
        told = stado(*words)
        assert told.stdout
        assert not marked(told.stdout.encode()), words
        assert not marked(told.stderr.encode()), words
    shown = stado("job", "show", job_id).stdout
    assert "TOKEN=team/db#password" in shown


def test_a_secret_that_a_host_does_not_allow_fails_the_job_by_name(
    make_fleet: MakeFleet, tmp_path: Path
) -> None:
    """R140"""
    fleet = make_fleet()
    vault = secrets_folder(tmp_path / "outside")
    fleet.agent("one", "--secrets-dir", str(vault), "--allow-secret", "other/*")
    submission = fleet.submit("true", spec=SMALL.evolve(secrets={"TOKEN": "team/db#password"}))
    (job_id,) = submission.job_ids
    assert fleet.wait_at_rest(submission) == {job_id: State.FAILED}
    ending = fleet.story(job_id).record.ending
    assert ending is not None
    assert ending.reason is Reason.INPUT_UNAVAILABLE
    assert ending.started_at is None
    assert ending.detail == (
        "secret team/db#password for TOKEN: this host allows no job to have it: "
        "--allow-secret team/db of its agent does"
    )
