"""systemd, as its own commands show it: programs of these names that remember what they were told.

For what stado does with systemd's answers. What systemd does with stado's units is tried in the
machine (`python -m tests.services`)."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

_PROGRAM = """\
#!{python}
import sys
sys.path.insert(0, {root!r})
from tests.services.stand_in import answer
sys.exit(answer({name!r}, sys.argv[1:]))
"""
ROOT = Path(__file__).parents[2]
NAMES = ("systemctl", "loginctl", "journalctl")


class SystemdStandIn:
    """Lives in a folder, whose `bin` is to be first in PATH, and `STADO_TEST_SYSTEMD` names it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        for name in NAMES:
            program = self.bin / name
            text = _PROGRAM.format(python=sys.executable, root=str(ROOT), name=name)
            program.write_text(text)
            program.chmod(0o755)
        self.tell(units={}, linger=True, runs=True, starts=True, says="at work", calls=[])

    def environment(self) -> dict[str, str]:
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "STADO_TEST_SYSTEMD": str(self.folder)}

    def tell(self, **facts: Any) -> None:
        known = self.facts if self._path.exists() else {}
        self._path.write_text(json.dumps({**known, **facts}))

    @property
    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self._path.read_text())
        return facts

    def change_unit(self, unit: str, **facts: Any) -> None:
        units = self.facts["units"]
        units[unit] = {**units.get(unit, {}), **facts}
        self.tell(units=units)

    def take_calls(self) -> list[str]:
        """What was asked to be done since the last look: what only asks is left out."""
        calls = [str(call) for call in self.facts["calls"]]
        self.tell(calls=[])
        return calls

    @property
    def _path(self) -> Path:
        return self.folder / "facts.json"


def answer(program: str, argv: list[str]) -> int:
    path = Path(os.environ["STADO_TEST_SYSTEMD"]) / "facts.json"
    facts = json.loads(path.read_text())
    words = [word for word in argv if word not in ("--user", "--no-block", "--")]
    if program == "loginctl":
        print("yes" if facts["linger"] else "no")
        return 0
    if program == "journalctl":
        print("a line of the log", " ".join(words))
        return 0
    if not facts["runs"]:
        print("Failed to connect to bus: No medium found", file=sys.stderr)
        return 1
    if words[0] == "show":
        _show(facts, words)
        path.write_text(json.dumps(facts))
        return 0
    facts["calls"].append(" ".join(words))
    if words[0] in facts.get("fails", []):
        print("Connection timed out", file=sys.stderr)
        return 1
    if words[0] == "stop" and facts.get("at_stop"):
        os.rename(*facts.pop("at_stop"))
    _act(facts["units"], words, starts=facts["starts"])
    path.write_text(json.dumps(facts))
    return 0


def _show(facts: dict[str, Any], words: list[str]) -> None:
    _count_down(facts["units"].get(words[-1], {}))
    if words[1] == "--property=Version":
        print("257.13-1~deb13u1")
        return
    if words[1] == "--property=ExecMainStartTimestamp":
        at = facts["units"].get(words[-1], {}).get("started_at")
        zone = "UTC" if os.environ.get("TZ") == "UTC" else "CET"
        print("" if at is None else time.strftime(f"%a %Y-%m-%d %H:%M:%S {zone}", time.gmtime(at)))
        return
    unit = facts["units"].get(words[-1], {})
    active = unit.get("active", "inactive")
    print(f"LoadState={'loaded' if unit else 'not-found'}")
    print(f"ActiveState={active}")
    print(f"SubState={unit.get('sub', 'dead')}")
    print(f"UnitFileState={'enabled' if unit.get('enabled') else ''}")
    print(f"MainPID={unit.get('pid', 0)}")
    print(f"NRestarts={unit.get('restarts', 0)}")
    print(f"StatusText={facts['says'] if active == 'active' else ''}")
    print(f"Result={unit.get('result', 'success')}")
    print(f"ExecMainStatus={unit.get('status', 0)}")
    print(f"InvocationID={unit.get('invocation', '')}")
    print(f"NeedDaemonReload={'yes' if unit.get('needs_reload') else 'no'}")
    print("ActiveEnterTimestamp=")


def _count_down(unit: dict[str, Any]) -> None:
    """A restart that was asked for and has not been done yet."""
    left = unit.get("looks_left")
    if left is not None:
        unit["looks_left"] = left - 1
        if left <= 0:
            del unit["looks_left"]
            unit.update(unit.pop("then"))


def _act(units: dict[str, Any], words: list[str], *, starts: bool) -> None:
    if words == ["daemon-reload"]:
        for one in units.values():
            one["needs_reload"] = False
        return
    verb, unit = words[0], units.setdefault(words[-1], {})
    count = unit["count"] = unit.get("count", 0) + (verb == "restart")
    if verb == "enable":
        unit["enabled"] = True
    elif verb == "disable":
        unit["enabled"] = False
    elif verb == "stop":
        unit.update(active="inactive", sub="dead", pid=0)
    elif verb == "restart" and starts:
        new = {"active": "active", "sub": "running", "pid": 4710 + count, "restarts": 0}
        new |= {"invocation": f"{count:032x}", "started_at": time.time()}
        if unit.get("slow"):
            unit.update(then=new, looks_left=1)
        else:
            unit.update(new)
    elif verb == "restart":
        new = {"active": "activating", "sub": "auto-restart", "result": "exit-code", "status": 2}
        unit.update(new, restarts=1, pid=0, invocation=f"{count:032x}")
