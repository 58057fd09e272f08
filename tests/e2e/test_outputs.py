"""What jobs leave on real hosts: odd names, what was expected, copies, and a failed copy."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from stado.core.documents import parse
from stado.core.records import OutputCopy
from stado.core.states import Reason, State
from tests.e2e.conftest import MakeFleet
from tests.e2e.fleet import SMALL

NAMES = [
    *(
        "manifest.json",
        "log.txt",
        "readme",
        "README",
        'it\'s "quoted"',
        "line\nbreak",
        "-rf",
        "a\\b",
    ),
    *("ż" * 127, "/".join(["deep"] * 60), ".hidden/x", "recordings/one.mcap"),
]
"""Beside one that is no UTF-8."""

LEAVE = """
import os, sys
out = os.environb[b"STADO_OUTPUT_DIR"]
for name in [*(os.fsencode(name) for name in sys.argv[1:]), b"caf\\xe9"]:
    path = os.path.join(out, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(name)
"""


def test_odd_names_come_back_and_a_copy_has_them_too(make_fleet: MakeFleet, tmp_path: Path) -> None:
    """R199, R200: a copy into a folder that is not there is a warning, and one that is expected
    and missing a failure."""
    fleet = make_fleet()
    fleet.agent("one")
    program, copies = tmp_path / "leave.py", tmp_path / "copies"
    program.write_text(LEAVE)
    copies.mkdir()
    leave = " ".join(["exec", sys.executable, str(program), *map(_quoted, NAMES)])
    sent = SMALL.evolve(output_uri=str(copies), expected_outputs=["**/*.mcap", "readme"])
    runs = [
        fleet.submit(leave, spec=sent),
        fleet.submit(leave, spec=SMALL.evolve(output_uri=str(tmp_path / "nowhere"))),
        fleet.submit("true", spec=SMALL.evolve(expected_outputs=["model.npz"])),
    ]
    whole, uncopied, empty = [run.job_ids[0] for run in runs]
    assert fleet.wait_at_rest(runs[0]) == {whole: State.COMPLETED}
    assert fleet.wait_at_rest(runs[1]) == {uncopied: State.COMPLETED}
    assert fleet.wait_at_rest(runs[2]) == {empty: State.FAILED}

    out = tmp_path / "out"
    done = fleet.stado("results", whole, str(out))
    assert done.returncode == 0, done.stderr
    assert {name: (out / name).read_bytes() for name in NAMES} == {
        name: os.fsencode(name) for name in NAMES
    }
    assert "1 path left out" in done.stderr
    copy = parse(OutputCopy, "a copy", (copies / whole / "manifest.json").read_bytes())
    assert {file.path for file in copy.files} == set(NAMES)
    assert all((copies / file.key).read_bytes() == os.fsencode(file.path) for file in copy.files)
    assert copy.skipped == ["caf?: its name is not UTF-8"]

    ending = fleet.story(uncopied).record.ending
    assert ending is not None
    assert [warning.code.value for warning in ending.warnings] == [
        "output_left_out",
        "output_uri_failed",
    ]
    assert "there is no such folder on the host" in ending.warnings[1].detail
    assert "output_uri_failed" in fleet.stado("status").stdout
    ending = fleet.story(empty).record.ending
    assert ending is not None
    assert (ending.reason, ending.detail) == (
        Reason.DECLARED_OUTPUT_MISSING,
        "not in its output folder: 'model.npz'",
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
