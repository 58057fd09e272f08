"""The program itself, as somebody uses it, and what it answered: reports of journeys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from stado.core.spec import PRIORITY_MAX
from tests.e2e.fleet import ROOT

_COMMAND_SECONDS = 60


class Journey:
    """A deployment of its own, and what the program was asked and answered there."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.commands: list[dict[str, Any]] = []
        self.facts: dict[str, Any] = {}
        program = os.environ.get("STADO_BIN")
        self._program = [program] if program else [sys.executable, "-m", "stado.cli.main"]

    def stado(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """What it answered, noted before it is looked at."""
        done = subprocess.run(
            [*self._program, *arguments],
            env={**os.environ, "STADO_STORE": str(self.store), "PYTHONPATH": _import_path()},
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        told = {"stdout": done.stdout, "stderr": done.stderr}
        self.commands.append({"argv": list(arguments), "exit_code": done.returncode, **told})
        assert done.returncode == code, done.stderr
        return self.commands[-1]

    def answer(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.stado(*arguments, "--json", code=code)["stdout"])
        return document

    def submit(self, name: str, *options: str) -> str:
        (job_id,) = self.answer("submit", "--run-id", name, *options, "true")["job_ids"]
        return str(job_id)

    def order(self) -> list[tuple[int, str]]:
        """Priorities and jobs as the names in the store have them, in their order."""
        names = sorted(entry.name for entry in (self.store / "index" / "ready").iterdir())
        fields = [name.split("-") for name in names]
        return [(PRIORITY_MAX - int(field[0]), field[2].split(".")[0]) for field in fields]

    def report(self, *, passed: bool) -> dict[str, Any]:
        identity = {
            "revision": os.environ.get("STADO_TEST_SOURCE_REVISION") or _revision(),
            "program": self._program,
            "python": sys.version,
        }
        return {"passed": passed, "source": identity, **self.facts, "commands": self.commands}


def _import_path() -> str:
    return os.pathsep.join(str(ROOT / name) for name in (".", "agent", "coordinator"))


def _revision() -> str | None:
    """None where there is no git, or no repository."""
    try:
        asked = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def report_folder(name: str, folder: Path) -> Path:
    """Where the report of a journey stays: in `$STADO_JOURNEY_DIR`, or in the test's folder."""
    made = Path(os.environ.get("STADO_JOURNEY_DIR") or folder) / name
    made.mkdir(parents=True, exist_ok=True)
    return made
