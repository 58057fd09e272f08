"""systemd of this host, or of one of its users, asked by its own commands: each call is a process
with a time limit. What systemd refuses is an error with its words; no answer never means that
something is not there.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from stado.errors import Refused

_SECONDS_MAX = 60.0
_LOOK_SECONDS_MAX = 15.0
_COMPLAINT_MAX = 300

_PROPERTIES = (
    *("LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID", "NRestarts"),
    *("StatusText", "Result", "ExecMainStatus", "ActiveEnterTimestamp", "NeedDaemonReload"),
    *("InvocationID",),
)
_VERSION = re.compile(r"systemd (\d+)|(\d+)")


@dataclass(frozen=True, slots=True)
class UnitState:
    """What systemd says of a unit: its own words."""

    load: str
    active: str
    sub: str
    enabled: str
    main_pid: int | None
    restarts: int
    status_text: str
    result: str
    exit_status: int
    since: str
    """When it became active, as systemd writes it; "" when it is not."""
    invocation: str
    """Of its newest start; "" when there was none."""
    needs_reload: bool
    """Whether its files are others than those that systemd has read."""


class ServiceManager:
    """`user`: that of the user who asks, not of the host. `environment`: what says where it is."""

    def __init__(self, *, user: bool, environment: Mapping[str, str]) -> None:
        self._scope = ("--user",) if user else ()
        self._user = user
        self._environment = {**environment, "LC_ALL": "C", "SYSTEMD_PAGER": "cat"}

    def version(self) -> int:
        """Raises `Refused` where there is none that answers."""
        try:
            told = self._ask("systemctl", *self._scope, "show", "--property=Version", "--value")
        except Refused as error:
            raise Refused("systemd_missing", f"{error.text}: {self._remedy()}") from None
        found = _VERSION.match(told.strip())
        if found is None:
            raise Refused("systemd_missing", f"systemctl tells of no systemd: {self._remedy()}")
        return int(found[1] or found[2])

    def _remedy(self) -> str:
        if self._user:
            return (
                "log in as this user (not by `su` or `sudo`), so that systemd runs for it, or "
                "install for the whole host with --system"
            )
        return (
            "this host was not started by systemd; let what starts programs here call `stado agent "
            "run`, or see with --print what would be written"
        )

    def state(self, unit: str) -> UnitState:
        """Of a unit that is not there, too. Raises `Refused`."""
        told = self._ask(
            *("systemctl", *self._scope, "show", f"--property={','.join(_PROPERTIES)}", "--", unit)
        )
        fields = dict(line.partition("=")[::2] for line in told.splitlines())
        return UnitState(
            load=fields.get("LoadState", ""),
            active=fields.get("ActiveState", ""),
            sub=fields.get("SubState", ""),
            enabled=fields.get("UnitFileState", ""),
            main_pid=_number(fields.get("MainPID")) or None,
            restarts=_number(fields.get("NRestarts")),
            status_text=fields.get("StatusText", ""),
            result=fields.get("Result", ""),
            exit_status=_number(fields.get("ExecMainStatus")),
            since=fields.get("ActiveEnterTimestamp", ""),
            invocation=fields.get("InvocationID", ""),
            needs_reload=fields.get("NeedDaemonReload") == "yes",
        )

    def started_at(self, unit: str) -> float | None:
        """Of its newest process, in seconds since 1970, to a second; None: there was none, or it
        is not told. Raises `Refused`."""
        told = ask(
            (
                *("systemctl", *self._scope, "show", "--property=ExecMainStartTimestamp"),
                *("--value", "--", unit),
            ),
            {**self._environment, "TZ": "UTC"},
            seconds_max=_LOOK_SECONDS_MAX,
        )
        moment, utc, _ = told.strip().partition(" UTC")
        try:
            parsed = datetime.strptime(f"{moment} +0000", "%a %Y-%m-%d %H:%M:%S %z")
        except ValueError:
            return None
        return parsed.timestamp() if utc else None

    def reload(self) -> None:
        self._do("daemon-reload")

    def enable(self, unit: str) -> None:
        self._do("enable", "--", unit)

    def disable(self, unit: str) -> None:
        self._do("disable", "--", unit)

    def restart(self, unit: str) -> None:
        """Starts it where it does not run. Returns at once: what becomes of it is in `state`."""
        self._do("restart", "--no-block", "--", unit)

    def stop(self, unit: str) -> None:
        """Returns once it has ended."""
        self._do("stop", "--", unit)

    def forget_failure(self, unit: str) -> None:
        with suppress(Refused):  # Of a unit that is gone there is nothing to forget.
            self._do("reset-failed", "--", unit)

    def last_lines(self, unit: str, count: int) -> list[str]:
        """Of its log, the newest last. Raises `Refused`."""
        told = self._ask(*self._journal(unit), "--lines", str(count), "--no-pager", "--quiet")
        return told.splitlines()

    def show_log(self, unit: str, options: Sequence[str]) -> int:
        """On our own terminal, until its end or Ctrl-C; the exit code of `journalctl`."""
        try:
            return subprocess.call([*self._journal(unit), *options], env=self._environment)
        except FileNotFoundError:
            raise Refused("systemd_missing", "there is no `journalctl` on this host") from None
        except KeyboardInterrupt:
            return 130

    def lingers(self, user: str) -> bool:
        """Whether this user's services run while nobody is logged in. False where that cannot be
        told: who relies on it has to know."""
        with suppress(Refused):
            told = self._ask("loginctl", "show-user", "--property=Linger", "--value", "--", user)
            return told.strip() == "yes"
        return False

    def _journal(self, unit: str) -> tuple[str, ...]:
        return ("journalctl", *(("--user", "--unit") if self._user else ("--unit",)), unit)

    def _do(self, *words: str) -> None:
        self._ask("systemctl", *self._scope, *words, seconds_max=_SECONDS_MAX)

    def _ask(self, *argv: str, seconds_max: float = _LOOK_SECONDS_MAX) -> str:
        return ask(argv, self._environment, seconds_max=seconds_max)


def ask(argv: Sequence[str], environment: Mapping[str, str], *, seconds_max: float) -> str:
    """stdout of a program that succeeds. Raises `Refused` with its words when it does not."""
    try:
        done = subprocess.run(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds_max,
            check=False,
        )
    except FileNotFoundError:
        raise Refused("systemd_missing", f"there is no `{argv[0]}` on this host") from None
    except subprocess.TimeoutExpired:
        raise Refused(
            "systemd_silent", f"`{' '.join(argv)}` has not answered for {seconds_max:g} seconds"
        ) from None
    if done.returncode:
        why = " ".join(done.stderr.decode("utf-8", "replace").split())[:_COMPLAINT_MAX]
        raise Refused("systemd_refused", f"`{' '.join(argv)}` failed: {why or done.returncode}")
    return done.stdout.decode("utf-8", "replace")


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
