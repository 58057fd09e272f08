"""What installing a service does to a host besides asking systemd: files, accounts, a try of the
program as the account that is to run it. All of it is small and by name; nothing is searched.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stado.errors import Refused
from stado.system.folder_lock import FolderLock
from stado.system.identity import find_process
from stado.system.service_manager import ask

_SECONDS_MAX = 60.0
_TRY_SECONDS_MAX = 30.0
_COMPLAINT_MAX = 300
_NOTES = "supervisors"
"""Of supervisors with a job, in an agent's folder: each names the job and its own process, and is
called by the pid of that."""
_NOBODY = 65534
"""Whoever has no rights of their own: tries what an account could do that is not there yet."""


class ServiceHost:
    """This host."""

    def has_account(self, name: str) -> bool:
        try:
            pwd.getpwnam(name)
        except KeyError:
            return False
        return True

    def has_group(self, name: str) -> bool:
        try:
            grp.getgrnam(name)
        except KeyError:
            return False
        return True

    def make_account(self, name: str, *, home: str) -> None:
        """A user of the system that nobody logs in as. Raises `Refused`."""
        argv = (
            *("useradd", "--system", "--user-group", "--create-home", "--home-dir", home),
            *("--shell", shutil.which("nologin") or "/usr/sbin/nologin", "--", name),
        )
        ask(argv, dict(os.environ), seconds_max=_SECONDS_MAX)

    def account_argv(self, name: str, *, home: str) -> str:
        """How `make_account` does it, for people."""
        return (
            f"useradd --system --user-group --create-home --home-dir {home} --shell nologin {name}"
        )

    def why_program_fails(self, argv: Sequence[str], account: str | None) -> str | None:
        """Its complaint where it does not work as this account, without our environment; None: it
        does. `account` None: as ourselves; one that is not there: as somebody without rights."""
        as_whom: dict[str, object] = {}
        if account is not None and os.getuid() == 0:
            found = pwd.getpwnam(account) if self.has_account(account) else None
            as_whom = {
                "user": found.pw_uid if found else _NOBODY,
                "group": found.pw_gid if found else _NOBODY,
                "extra_groups": [],
            }
        try:
            done = subprocess.run(
                argv,
                env={"PATH": os.defpath, "HOME": "/nonexistent"},
                cwd="/",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TRY_SECONDS_MAX,
                check=False,
                **as_whom,  # type: ignore[call-overload]  # none of them, or these three
            )
        except OSError as error:
            return error.strerror or str(error)
        except subprocess.TimeoutExpired:
            return f"it takes longer than {_TRY_SECONDS_MAX:g} seconds"
        if done.returncode == 0:
            return None
        told = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return told[-1][:_COMPLAINT_MAX] if told else f"exit code {done.returncode}"

    def find_text(self, path: Path) -> str | None:
        """None: there is no such file. Raises `Refused` for one that cannot be read."""
        try:
            return path.read_text("utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise Refused("file_unreadable", f"{path} cannot be read: {why}") from None

    def modified_at(self, path: Path) -> float | None:
        """In seconds since 1970; None: there is no such file. Raises `Refused`."""
        try:
            return path.stat().st_mtime
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Refused("file_unreadable", f"{path}: {error.strerror}") from None

    def write_text(self, path: Path, text: str, mode: int) -> None:
        """Whole or not at all, and never open to others than `mode` says. Raises `Refused`."""
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            descriptor = os.open(
                partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600
            )
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), mode)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except OSError as error:
            with suppress(OSError):
                partial.unlink()
            raise Refused(
                "file_unwritable", f"{path} cannot be written: {error.strerror}"
            ) from None

    def narrow(self, path: Path, mode: int) -> bool:
        """Takes from a file the rights that are not in `mode`; whether there were any. Raises
        `Refused`."""
        try:
            if path.stat().st_mode & 0o777 & ~mode == 0:
                return False
            path.chmod(mode)
        except OSError as error:
            raise Refused("file_unwritable", f"{path}: {error.strerror}") from None
        return True

    def remove(self, path: Path) -> bool:
        """Whether it was there. Raises `Refused`."""
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise Refused(
                "file_unwritable", f"{path} cannot be removed: {error.strerror}"
            ) from None
        return True

    def remove_tree(self, folder: Path) -> None:
        """Raises `Refused` when something of it stays."""
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise Refused("folder_left", f"{folder} cannot be removed: {error.strerror}") from None

    def remove_if_empty(self, folder: Path) -> bool:
        """Whether it is gone by this. One that holds something, or may not be removed, stays."""
        try:
            folder.rmdir()
        except OSError:
            return False
        return True

    def owns_host(self) -> bool:
        """Whether we are root."""
        return os.geteuid() == 0

    def running_jobs(self, folder: Path) -> list[str]:
        """Ids of the jobs that supervisors of the agent have in hand whose folder this is, by the
        notes of those that live; a living one whose note tells no job is told by its pid. Raises
        `Refused` when the folder cannot be read."""
        try:
            # Not by `glob`, which takes what may not be read for empty.
            names = sorted(name for name in os.listdir(folder / _NOTES) if name.endswith(".json"))
            notes = [(name, _read_note(folder / _NOTES / name)) for name in names]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise Refused(
                "folder_unreadable",
                f"{folder} cannot be read ({error.strerror}): which jobs run here is not known",
            ) from None
        found = [_living_job(name, note) for name, note in notes if note is not None]
        return [job for job in found if job is not None]

    def agent_works_in(self, folder: Path) -> bool:
        """Whether an agent has this folder of its own right now, whoever started it. Raises
        `Refused` when that cannot be told."""
        lock = folder / "lock"
        try:
            if not lock.exists():
                return False
            with FolderLock(lock) as free:
                return not free
        except OSError as error:
            raise Refused(
                "folder_unreadable",
                f"{lock} cannot be opened ({error.strerror}): whether an agent works there is not "
                "known",
            ) from None


def _read_note(path: Path) -> bytes | None:
    """None: its job has ended meanwhile."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _living_job(name: str, note: bytes) -> str | None:
    """None for one whose supervisor is gone: its pid is another's then."""
    try:
        fields = json.loads(note)
        pid, started = map(int, fields["supervisor"])
        job = str(fields["job_id"])
    except (ValueError, KeyError, TypeError):
        return _unnamed_job(name.removesuffix(".json"))
    found = find_process(pid)
    alive = found is not None and not found.zombie and found.identity.started == started
    return job if alive else None


def _unnamed_job(pid: str) -> str | None:
    """Of a note that cannot be read: the file's name alone tells whose it is."""
    found = find_process(int(pid)) if pid.isascii() and pid.isdecimal() else None
    return None if found is None or found.zombie else f"unknown, of process {pid}"
